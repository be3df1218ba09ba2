"""Compaction against Spark, which reads the same files and writes fewer."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import fuse_stream as fuse
from benchmarks.flights import copies
from benchmarks.measure import Result, in_turn


def compactions(
    spark: SparkSession, flights: pa.Table, work: Path, *, shapes: list[tuple[int, int]], runs: int
) -> list[Result]:
    """Compact tables of these block counts and rows per block, with Arrow's threads, one per core.

    Spark writes as many files as the compaction leaves blocks, from the blocks themselves.
    """
    return [_compaction(spark, flights, work, *shape, runs=runs) for shape in shapes]


def _compaction(
    spark: SparkSession, flights: pa.Table, work: Path, blocks: int, rows: int, *, runs: int
) -> Result:
    fresh = work / f"blocks_{blocks}_{rows}"
    if not fresh.exists():
        _make(fresh, flights, blocks, rows)
    standing = fuse.Table.open(fresh).blocks()
    table = work / "compacted"
    files = str(fresh / "_b")

    def ours() -> None:
        fuse.Table.open(table).compact()

    def restore() -> None:
        shutil.rmtree(table, ignore_errors=True)
        shutil.copytree(fresh, table)
        os.sync()  # otherwise the next sync would wait for this copy, too

    restore()
    ours()
    left = len(fuse.Table.open(table).blocks())

    def theirs() -> None:
        parts = spark.read.parquet(files).coalesce(left)
        parts.write.mode("overwrite").parquet(str(work / "coalesced"))

    samples = in_turn(ours, theirs, runs=runs, before=restore)
    return Result(
        work=f"compact {blocks} blocks of {rows:,} rows",
        against=f"read them with Spark, coalesce({left}), write Parquet",
        ours=samples[0],
        theirs=samples[1],
        limit=0.33,
        note=f"{len(standing)} -> {left} blocks",
    )


def _make(folder: Path, flights: pa.Table, blocks: int, rows: int) -> None:
    source = copies(flights, math.ceil(blocks * rows / len(flights)))
    table = fuse.Table.create(folder, source.schema)
    for number in range(blocks):
        table.append(source.slice(number * rows, rows))
