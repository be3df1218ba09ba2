"""How blocks are spread over tasks."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import fuse_stream as fuse
from fuse_stream.spark.block_scan import LOCAL_SETTINGS
from fuse_stream.spark.jvm.packing import Packing

MANY = 1 << 40


def tasks_of(sizes: list[int], packing: Packing, limit: int) -> list[list[int]]:
    """Pack files as Spark's `FilePartition` does."""
    parts = [min(limit, size - start) for size in sizes for start in range(0, size, limit)]
    found: list[list[int]] = [[]]
    filled = 0
    for part in sorted(parts, reverse=True):
        if filled + part > limit and found[-1]:
            found.append([])
            filled = 0
        found[-1].append(part)
        filled += part + packing.opening
    return found


@pytest.mark.parametrize(
    ("blocks", "cores", "largest"), [(8, 2, 4), (9, 3, 3), (7, 2, 4), (5, 8, 1)]
)
def test_blocks_of_one_size_make_one_task_a_core(blocks: int, cores: int, largest: int) -> None:
    packing = Packing(MANY, 10, None)
    sizes = [1000 + at for at in range(blocks)]
    tasks = tasks_of(sizes, packing, packing.limit(sizes, cores))
    assert len(tasks) == min(blocks, cores)
    assert max(map(len, tasks)) == largest


@given(
    sizes=st.lists(st.integers(1, 1000), max_size=60),
    most=st.integers(1, 2000),
    opening=st.integers(0, 50),
    cores=st.integers(1, 9),
)
def test_as_many_tasks_as_the_cores_take_in_equal_rounds(
    sizes: list[int], most: int, opening: int, cores: int
) -> None:
    packing = Packing(most, opening, None)
    limit = packing.limit(sizes, cores)
    assert limit <= most
    capped = [min(size, most) for size in sizes]
    least = len(tasks_of(capped, packing, most))
    rounds = max(1, -(-(sum(capped) + opening * len(capped)) // (cores * most)))
    assert len(tasks_of(capped, packing, limit)) <= max(least, cores * rounds)
    assert limit >= max(capped, default=1), "a block must not be split"


def test_a_wanted_number_of_tasks_is_kept() -> None:
    packing = Packing(MANY, 0, 4)
    assert len(tasks_of([10] * 8, packing, packing.limit([10] * 8, 2))) == 4


@pytest.fixture(scope="module")
def eight_blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("packing") / "lake" / "t"
    table = fuse.Table.create(place, pa.schema([("k", pa.int64())]))
    for at in range(8):
        table.append(pa.table({"k": range(at * 1000, at * 1000 + 990 + at)}))
    return place


def test_all_readers_make_one_task_a_core(spark: SparkSession, eight_blocks: Path) -> None:
    cores = spark.sparkContext.defaultParallelism
    catalog = fuse.attach(spark, "packing", eight_blocks.parent)
    try:
        for rows in (fuse.read(spark, str(eight_blocks)), spark.table("packing.t")):
            assert rows.rdd.getNumPartitions() == cores
            parts = rows.rdd.glom().map(len).collect()
            assert sum(parts) == 7948
            assert max(parts) - min(parts) < 100
    finally:
        catalog.detach()


def test_a_users_limit_of_bytes_is_kept(spark: SparkSession, eight_blocks: Path) -> None:
    largest = max(block.file_size for block in fuse.Table.open(eight_blocks).blocks())
    opening = int(LOCAL_SETTINGS["spark.sql.files.openCostInBytes"])
    spark.conf.set("spark.sql.files.maxPartitionBytes", str(largest + opening))
    try:
        parts = fuse.read(spark, str(eight_blocks)).rdd.glom().map(len).collect()
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert sorted(parts) == list(range(990, 998))


def test_each_run_of_a_query_packs_what_it_reads(spark: SparkSession, eight_blocks: Path) -> None:
    rows = fuse.read(spark, str(eight_blocks))
    few, all_of_them = rows.where("k < 2000"), rows.where("k >= 0")
    assert (few.count(), all_of_them.count(), few.count()) == (1981, 7948, 1981)
    assert few.rdd.getNumPartitions() == all_of_them.rdd.getNumPartitions() == 2
