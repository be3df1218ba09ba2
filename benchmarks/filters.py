"""Bloom filters: lookups in blocks whose bounds rule nothing out, and what the filters cost."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import fuse_stream as fuse
from benchmarks.batch import noop
from benchmarks.measure import Result, in_turn

BLOCK_ROWS = 100_000
BLOCKS_A_COMMIT = 20
_ODD = 2_654_435_761
"""Times the number of a row it is a key: each is there once, and each block has small and great."""


def lookups(
    work: Path, *, blocks: int, runs: int, session: Callable[[], SparkSession]
) -> list[Result]:
    """Find single keys in blocks of 100,000 rows in no order, without Spark and by its plans."""
    place = work / f"filtered_blocks_{blocks}"
    if not place.exists():
        _unordered_blocks(place, blocks)
    table = fuse.Table.open(place)
    numbers = count()

    def key() -> int:
        return _key(next(numbers) * 7919 % (blocks * BLOCK_ROWS))

    def scan() -> None:
        wanted = key()
        assert table.to_arrow(where=f"k = {wanted}").column("k").to_pylist() == [wanted]

    def full_scan() -> None:
        for _ in table.scan():
            pass

    samples = in_turn(scan, full_scan, runs=runs)
    name = f"{blocks:,} blocks of {BLOCK_ROWS:,} rows x 4 columns in no order"
    results = [
        Result(
            work=f"lookup by Table.scan, filtered key, {name}",
            against="Table.scan of all rows",
            ours=samples[0],
            theirs=samples[1],
            limit=0.02,
        )
    ]
    spark = session()

    def plan() -> None:
        wanted = key()
        rows = fuse.read(spark, str(place)).where(f"k = {wanted}").collect()
        assert [row.k for row in rows] == [wanted]

    samples = in_turn(plan, lambda: noop(fuse.read(spark, str(place))), runs=runs)
    return [
        *results,
        Result(
            work=f"lookup by df.where, filtered key, {name}",
            against="a scan of all columns of the same table",
            ours=samples[0],
            theirs=samples[1],
            limit=0.05,
        ),
    ]


def append(spark: SparkSession, rows: Path, work: Path, *, runs: int) -> Result:
    """Append all rows to a new table with two filtered columns, and write them as Parquet."""
    source = spark.read.parquet(str(rows))
    row_count = source.count()
    schema = source.limit(1).toArrow().schema
    properties = {"fuse.bloom.columns": "tailnum,time_hour"}

    def ours() -> None:
        place = work / "appended_filtered"
        shutil.rmtree(place, ignore_errors=True)
        fuse.Table.create(place, schema, properties=properties)
        fuse.write(source, str(place))

    samples = in_turn(
        ours,
        lambda: source.write.mode("overwrite").parquet(str(work / "plain")),
        runs=runs,
    )
    return Result(
        work=f"append {row_count:,} rows x {len(source.columns)} columns, two filtered",
        against="df.write.parquet",
        ours=samples[0],
        theirs=samples[1],
        limit=1.0,
    )


def _key(row: int) -> int:
    return row * _ODD % 2**40


def _unordered_blocks(place: Path, blocks: int) -> None:
    table: fuse.Table | None = None
    for rows in _tables(blocks):
        if table is None:
            properties = {"fuse.block.rows": str(BLOCK_ROWS), "fuse.bloom.columns": "k"}
            table = fuse.Table.create(place, rows.schema, properties=properties)
        table.append(rows)


def _tables(blocks: int) -> Iterator[pa.Table]:
    draw = np.random.default_rng(1)
    for first in range(0, blocks, BLOCKS_A_COMMIT):
        size = min(BLOCKS_A_COMMIT, blocks - first) * BLOCK_ROWS
        start = first * BLOCK_ROWS
        yield pa.table(
            {
                "k": np.arange(start, start + size) * _ODD % 2**40,
                "a": draw.integers(0, 1_000_000, size),
                "b": draw.random(size),
                "c": pa.array(draw.integers(0, 5_000, size)).cast(pa.string()),
            }
        )
