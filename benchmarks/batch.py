"""Batch work against plain Spark Parquet: append, scan, scan with deleted rows, point lookup."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import sum as sum_of

import fuse_stream as fuse
from benchmarks.flights import write_files
from benchmarks.measure import JIT_RUNS, Result, in_turn

DELETED_BLOCKS = 50
"""Blocks of a table of which rows are deleted."""
LOOKUP_ROWS = 100_000
LOOKUP_BLOCKS_A_COMMIT = 20


def noop(df: DataFrame) -> None:
    """Run the plan of `df` and drop the rows."""
    df.write.format("noop").mode("overwrite").save()


_SCANS: dict[str, Callable[[DataFrame], object]] = {
    "all columns": noop,
    "one column": lambda df: df.agg(sum_of("distance")).collect(),
}


def append(spark: SparkSession, rows: Path, work: Path, *, runs: int) -> Result:
    """Append all rows to a new table, and write them as Parquet."""
    source = spark.read.parquet(str(rows))
    row_count = source.count()

    def ours() -> None:
        shutil.rmtree(work / "appended", ignore_errors=True)
        fuse.write(source, str(work / "appended"))

    def theirs() -> None:
        source.write.mode("overwrite").parquet(str(work / "plain"))

    samples = in_turn(ours, theirs, runs=runs)
    return Result(
        work=f"append {row_count:,} rows x {len(source.columns)} columns",
        against="df.write.parquet",
        ours=samples[0],
        theirs=samples[1],
        limit=1.0,
    )


def scans(spark: SparkSession, rows: Path, work: Path, *, runs: int) -> list[Result]:
    """Read a whole table, one column of it, and count it; and files of the same DataFrame."""
    table = work / "scanned"
    shutil.rmtree(table, ignore_errors=True)
    source, plain = spark.read.parquet(str(rows)), work / "scanned_plain"
    fuse.write(source, str(table))
    blocks = len(fuse.Table.open(table).blocks())
    source.write.mode("overwrite").parquet(str(plain))
    files = len(list(plain.glob("*.parquet")))
    results = []
    for name, action in {**_SCANS, "count": lambda df: df.count()}.items():
        samples = in_turn(
            partial(_act, action, partial(fuse.read, spark, str(table))),
            partial(_act, action, partial(spark.read.parquet, str(plain))),
            runs=runs,
            warm_ups=JIT_RUNS,
        )
        results.append(
            Result(
                work=f"fuse.read: {name}",
                against="spark.read.parquet of what df.write.parquet wrote",
                ours=samples[0],
                theirs=samples[1],
                limit=1.05,
                note=f"{blocks} blocks, {files} files",
            )
        )
    return results


def deleted_rows(spark: SparkSession, rows: pa.Table, work: Path, *, runs: int) -> list[Result]:
    """Read tables of 50 blocks that hide rows; and Parquet files of the rows that are left."""
    block_rows = -(-len(rows) // DELETED_BLOCKS)
    block = np.arange(len(rows)) // block_rows
    hidden_in = {
        "nothing hidden": (np.zeros(len(rows), bool), 1.1),
        "1 % hidden in 10 % of the blocks": (block % 10 == 0, 1.15),
        "1 % hidden in all blocks": (np.ones(len(rows), bool), 1.3),
    }
    results = []
    for name, (is_touched, limit) in hidden_in.items():
        lots = np.random.default_rng(1).integers(0, 100, len(rows))
        lots[~is_touched & (lots == 0)] = 1
        marked = rows.append_column("lot", pa.array(lots))
        place = work / "deleted"
        shutil.rmtree(place, ignore_errors=True)
        table = fuse.Table.create(
            place / "table", marked.schema, properties={"fuse.block.rows": str(block_rows)}
        )
        table.append(marked)
        if is_touched.any():
            table.delete("lot = 0")
            marked = marked.filter(pa.array(~(is_touched & (lots == 0))))
        write_files(marked, place / "plain", -(-len(marked) // DELETED_BLOCKS))
        hiding = sum(1 for each in table.blocks() if each.hidden)
        for columns, action in _SCANS.items():
            samples = in_turn(
                partial(_act, action, partial(fuse.read, spark, str(place / "table"))),
                partial(_act, action, partial(spark.read.parquet, str(place / "plain"))),
                runs=runs,
            )
            results.append(
                Result(
                    work=f"fuse.read, {name}: {columns}",
                    against="spark.read.parquet of the rows that are left",
                    ours=samples[0],
                    theirs=samples[1],
                    limit=limit if columns == "all columns" else None,
                    note=f"{hiding} of {len(table.blocks())} blocks hide rows",
                )
            )
    return results


def _act(action: Callable[[DataFrame], object], load: Callable[[], DataFrame]) -> None:
    action(load())


def lookup(spark: SparkSession, rows: Path, work: Path, *, runs: int) -> Result:
    """Find the flights of one hour in 50 blocks ordered by time."""
    table = work / "clustered"
    shutil.rmtree(table, ignore_errors=True)
    source = spark.read.parquet(str(rows))
    schema = fuse.Table.open(work / "scanned").schema
    fuse.Table.create(
        table, schema, cluster_by=["time_hour"], properties={"fuse.block.rows": "100000"}
    )
    fuse.write(source.orderBy("time_hour"), str(table))
    blocks = len(fuse.Table.open(table).blocks())
    hour = source.select("time_hour").limit(1).collect()[0][0]
    where = f"time_hour = TIMESTAMP '{hour:%Y-%m-%d %H:%M:%S}'"
    samples = in_turn(
        lambda: fuse.read(spark, str(table), where=where).collect(),
        lambda: noop(fuse.read(spark, str(table))),
        runs=runs,
    )
    return Result(
        work="point lookup on a clustered column",
        against="a full scan of the same table",
        ours=samples[0],
        theirs=samples[1],
        limit=0.15,
        note=f"{blocks} blocks",
    )


def late_lookup(spark: SparkSession, work: Path, *, blocks: int, runs: int) -> Result:
    """Find a key by a filter of the DataFrame in blocks of 100,000 rows, ordered by it."""
    place = work / f"keyed_blocks_{blocks}"
    if not place.exists():
        _ordered_blocks(place, blocks)
    keys = count()

    def look_up() -> None:
        key = next(keys) * 7919 % (blocks * LOOKUP_ROWS)
        rows = fuse.read(spark, str(place)).where(f"k = {key}").collect()
        assert [row.k for row in rows] == [key]

    samples = in_turn(look_up, lambda: noop(fuse.read(spark, str(place))), runs=runs)
    return Result(
        work=f"lookup by df.where, {blocks:,} blocks of {LOOKUP_ROWS:,} rows x 4 columns",
        against="a scan of all columns of the same table",
        ours=samples[0],
        theirs=samples[1],
        limit=0.05,
    )


def _ordered_blocks(place: Path, blocks: int) -> None:
    draw = np.random.default_rng(1)
    table: fuse.Table | None = None
    for first in range(0, blocks, LOOKUP_BLOCKS_A_COMMIT):
        size = min(LOOKUP_BLOCKS_A_COMMIT, blocks - first) * LOOKUP_ROWS
        start = first * LOOKUP_ROWS
        rows = pa.table(
            {
                "k": np.arange(start, start + size),
                "a": draw.integers(0, 1_000_000, size),
                "b": draw.random(size),
                "c": pa.array(draw.integers(0, 5_000, size)).cast(pa.string()),
            }
        )
        if table is None:
            properties = {"fuse.block.rows": str(LOOKUP_ROWS)}
            table = fuse.Table.create(place, rows.schema, cluster_by=["k"], properties=properties)
        table.append(rows)
