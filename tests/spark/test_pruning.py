"""Filters of any DataFrame rule blocks out: of a view, of a join, of a later condition."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from random import Random
from threading import Thread

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import IllegalArgumentException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from fuse_stream.format.layout import block_key, segment_key
from fuse_stream.predicate.bound import Bound
from fuse_stream.spark.block_list import BlockFile, SnapshotBlocks
from fuse_stream.spark.read import read
from fuse_stream.table.handle import Table
from tests.kit.predicates import SCHEMA, random_table, random_where

BLOCKS, BLOCK_ROWS = 12, 100
DAY = dt.date(2026, 1, 1)

Asked = list[int]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The numbers of blocks that Spark was given, in turn."""
    found: Asked = []
    matching: Callable[[SnapshotBlocks, Bound | None], list[BlockFile]]
    matching = SnapshotBlocks.matching  # type: ignore[assignment]

    def counted(self: SnapshotBlocks, where: Bound | None) -> list[BlockFile]:
        files = matching(self, where)
        found.append(len(files))
        return files

    monkeypatch.setattr(SnapshotBlocks, "matching", counted)
    return found


def rows_of(block: int) -> pa.Table:
    keys = range(block * BLOCK_ROWS, (block + 1) * BLOCK_ROWS)
    at = [dt.datetime(2026, 1, 1 + block, key % 24, tzinfo=dt.UTC) for key in keys]
    return pa.table(
        {
            "k": keys,
            "name": [f"{chr(ord('a') + block)}{key % 10}" for key in keys],
            "day": [DAY + dt.timedelta(days=block)] * BLOCK_ROWS,
            "at": pa.array(at, pa.timestamp("us", "UTC")),
            "x": [key / 10 for key in keys],
        }
    )


def make(path: Path) -> Table:
    table = Table.create(path, rows_of(0).schema)
    for block in range(BLOCKS):
        table.append(rows_of(block))
    return table


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Twelve blocks of a hundred rows; some of the fourth and fifth are hidden."""
    table = make(tmp_path_factory.mktemp("pruned") / "t")
    table.delete("k >= 350 AND k < 420")
    return table.metadata.store.url


@pytest.fixture
def view(spark: SparkSession, path: str) -> str:
    read(spark, path).createOrReplaceTempView("pruned")
    return "pruned"


MANY = ", ".join(str(number) for number in range(500, 600))
STATEMENTS = [
    ("k = 777", 1, 1),
    ("k BETWEEN 195 AND 204", 2, 10),
    ("k IN (1, 2, 1101)", 2, 3),
    ("k IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 1101)", 2, 12),
    (f"k IN ({MANY})", 1, 100),
    (f"k NOT IN ({MANY})", BLOCKS, 1030),
    ("name IN ('a1', 'a2', 'a3', 'a4', 'a5', 'a6', 'a7', 'a8', 'a9', 'a0', 'b1', NULL)", 2, 110),
    ("name LIKE 'c%'", 1, 100),
    ("name LIKE 'c%1'", 1, 10),
    ("startswith(name, 'c')", 1, 100),
    ("day = '2026-01-07'", 1, 100),
    ("day IN (SELECT DATE '2026-01-07')", BLOCKS, 100),
    ("at >= TIMESTAMP '2026-01-12 00:00:00'", 1, 100),
    ("x > 119.85", 1, 1),
    ("CAST(k AS STRING) = '777'", BLOCKS, 1),
    ("k > 1150 AND length(name) = 2", 1, 49),
    ("k < 5 OR k >= 1195", 2, 10),
    ("k BETWEEN 345 AND 425", 2, 11),
    ("k + 1 = 778", BLOCKS, 1),
]


@pytest.mark.parametrize("statement", STATEMENTS, ids=[it[0] for it in STATEMENTS])
def test_a_filter_of_a_view_rules_blocks_out(
    spark: SparkSession, view: str, asked: Asked, statement: tuple[str, int, int]
) -> None:
    where, blocks, count = statement

    found = spark.sql(f"SELECT * FROM {view} WHERE {where}").count()

    assert found == count
    assert set(asked) == {blocks}


def test_the_columns_and_the_filter_of_a_plan_reach_the_reader(
    spark: SparkSession, path: str, asked: Asked
) -> None:
    rows = read(spark, path, columns=["name", "k"]).where("k = 777").select("name")

    assert [row.name for row in rows.collect()] == ["h7"]
    assert set(asked) == {1}
    assert "EqualTo(k,777)" in str(rows._jdf.queryExecution().executedPlan())  # noqa: SLF001


def test_a_join_prunes_both_sides(spark: SparkSession, path: str, asked: Asked) -> None:
    left, right = read(spark, path), read(spark, path, columns=["k", "name"])

    joined = left.join(right.withColumnRenamed("name", "other"), "k").where("k = 777")

    assert [(row.name, row.other) for row in joined.collect()] == [("h7", "h7")]
    assert set(asked) == {1}


def test_a_condition_of_the_read_and_a_later_one_prune_together(
    spark: SparkSession, path: str, asked: Asked
) -> None:
    rows = read(spark, path, where="k >= 100").where("k < 120")

    assert rows.count() == 20
    assert set(asked) == {1}


def test_nothing_is_read_before_spark_plans(
    spark: SparkSession, tmp_path: Path, asked: Asked
) -> None:
    table = make(tmp_path / "t")
    missing = table.head().segments[0]
    rows = read(spark, tmp_path / "t")
    (tmp_path / "t" / segment_key(missing.id)).unlink()

    assert asked == []
    with pytest.raises(IllegalArgumentException, match="CorruptObjectError: a segment is missing"):
        read(spark, tmp_path / "t").count()
    assert rows.schema.names == ["k", "name", "day", "at", "x"]


def test_a_block_that_no_filter_needs_may_be_missing(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    (tmp_path / "t" / block_key(table.blocks()[0].id)).unlink()
    rows = read(spark, tmp_path / "t")

    assert rows.where("k >= 100").count() == (BLOCKS - 1) * BLOCK_ROWS
    with pytest.raises(IllegalArgumentException, match="CorruptObjectError: a block is missing"):
        rows.count()


def test_equal_reads_share_sparks_cache_and_others_do_not(
    spark: SparkSession, path: str, asked: Asked
) -> None:
    kept = read(spark, path, where="k < 700").cache()
    assert kept.count() == 630
    asked.clear()

    assert read(spark, path, where="k < 700").agg({"k": "max"}).first()[0] == 699  # type: ignore[index]
    assert asked == []
    assert read(spark, path, where="k < 600").agg({"k": "max"}).first()[0] == 599  # type: ignore[index]
    assert read(spark, path, version=3, where="k < 700").count() == 300
    assert asked != []
    kept.unpersist()


def test_threads_plan_at_a_time(spark: SparkSession, path: str) -> None:
    rows = read(spark, path)
    counts: dict[int, int] = {}

    def count(block: int) -> None:
        counts[block] = rows.where(f"k >= {block * 100} AND k < {block * 100 + 100}").count()

    threads = [Thread(target=count, args=(block,)) for block in range(BLOCKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    hidden = {3: 50, 4: 80}
    assert counts == {block: hidden.get(block, 100) for block in range(BLOCKS)}


def kept(frame: DataFrame, texts: list[str]) -> dict[str, int]:
    """Return for each predicate how many rows it keeps; those that Spark refuses are left out."""
    found = {}
    for text in texts:
        try:
            found[text] = frame.where(text).count()
        except PySparkException:
            continue
    return found


@pytest.mark.parametrize(("seed", "count"), [(1, 12), pytest.param(2, 60, marks=pytest.mark.long)])
def test_no_filter_loses_a_row(spark: SparkSession, tmp_path: Path, seed: int, count: int) -> None:
    random = Random(f"filters {seed}")
    parts = [random_table(random, 20) for _ in range(6)]
    table = Table.create(tmp_path / "t", SCHEMA)
    for part in parts:
        table.append(part)
    session = spark.newSession()
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    texts = [random_where(random, depth=random.choice([0, 1, 2])) for _ in range(count)]
    whole = session.createDataFrame(read(session, tmp_path / "t").toArrow())

    expected = kept(whole.coalesce(1), texts)

    assert len(expected) > count // 2
    assert kept(read(session, tmp_path / "t"), list(expected)) == expected
    assert pc.sum(pa.array(expected.values())).as_py() > 0
