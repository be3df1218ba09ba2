"""An aggregate of many blocks, against Spark's GROUP BY over the same table."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import fuse_stream as fuse
from benchmarks.measure import Result, in_turn, seconds

BLOCK_ROWS = 100_000
BLOCKS_A_COMMIT = 20
GROUPS = 300
NAME = "by_group"
TEXT = "SELECT g, count(*) AS n, sum(a) AS total, avg(b) AS mean, max(k) AS last FROM t GROUP BY g"


def aggregate(spark: SparkSession, work: Path, *, blocks: int, runs: int) -> list[Result]:
    """Ask for 300 groups of blocks of 100,000 rows: all covered, and with two blocks to read."""
    place = work / f"grouped_blocks_{blocks}"
    if not place.exists():
        _make(place, blocks)
    table = fuse.Table.open(place)
    if table.indexes():
        table.drop_index()
    table.create_aggregate(NAME, TEXT)
    built_s = seconds(table.refresh_indexes)
    [state] = table.indexes()
    assert state.covered_blocks == blocks
    name = f"aggregate of {GROUPS} groups, {blocks:,} blocks of {BLOCK_ROWS:,} rows x 4 columns"
    theirs = partial(_group_by, spark, place)
    assert sorted(_ask(spark, place)) == sorted(theirs())
    whole = in_turn(partial(_ask, spark, place), theirs, runs=runs)
    head = table.head().version
    table.delete(f"k = 5 OR k = {BLOCK_ROWS + 5}")
    spoilt = in_turn(partial(_ask, spark, place), theirs, runs=runs)
    fuse.rewind(place, version=head)
    size = f"{state.byte_size / 1e6:.1f} MB, built in {built_s:.0f} s"
    return [
        Result(
            work=name,
            against="Spark's GROUP BY over fuse.read",
            ours=whole[0],
            theirs=whole[1],
            limit=0.05,
            note=size,
        ),
        Result(
            work="the same, rows deleted in two blocks",
            against="Spark's GROUP BY over fuse.read",
            ours=spoilt[0],
            theirs=spoilt[1],
            note="these two are read",
        ),
    ]


def _ask(spark: SparkSession, place: Path) -> list[tuple[object, ...]]:
    return _rounded(fuse.aggregate(spark, str(place), NAME))


def _group_by(spark: SparkSession, place: Path) -> list[tuple[object, ...]]:
    rows = fuse.read(spark, str(place)).groupBy("g")
    return _rounded(rows.agg(sql.count("*"), sql.sum("a"), sql.avg("b"), sql.max("k")))


def _rounded(df: DataFrame) -> list[tuple[object, ...]]:
    return [(row[0], row[1], row[2], round(row[3], 9), row[4]) for row in df.collect()]


def _make(place: Path, blocks: int) -> None:
    draw = np.random.default_rng(1)
    names = pa.array([f"group {number}" for number in range(GROUPS)])
    table: fuse.Table | None = None
    for first in range(0, blocks, BLOCKS_A_COMMIT):
        size = min(BLOCKS_A_COMMIT, blocks - first) * BLOCK_ROWS
        start = first * BLOCK_ROWS
        rows = pa.table(
            {
                "k": np.arange(start, start + size),
                "a": draw.integers(0, 1_000_000, size),
                "b": draw.random(size),
                "g": names.take(pa.array(draw.integers(0, GROUPS, size))),
            }
        )
        if table is None:
            properties = {"fuse.block.rows": str(BLOCK_ROWS)}
            table = fuse.Table.create(place, rows.schema, properties=properties)
        table.append(rows)
