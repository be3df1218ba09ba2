"""MERGE in SQL, on a table of a catalog: rows alone, and whole blocks."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import fuse_stream as fuse
from benchmarks.changes import ARRIVING, COLUMNS, made_rows
from benchmarks.measure import Result, in_turn
from fuse_stream.spark.attach import attach
from fuse_stream.table.handle import Table

_BLOCKS = 20
_REWRITES = "spark.fuse.rewriteBlocks"


def merges(spark: SparkSession, work: Path, *, size: int, runs: int) -> list[Result]:
    """Merge 10,000 keys into a table; let Spark rewrite Parquet files so that they have them."""
    root = work / "merged"
    shutil.rmtree(root, ignore_errors=True)
    draw = np.random.default_rng(2)
    tables = {"in_order": np.arange(size), "random": draw.permutation(size)}
    for name, keys in tables.items():
        _make(root / name, keys)
    known, first = ARRIVING // 2, size // _BLOCKS * 7
    new = np.arange(size, size + ARRIVING - known)
    arriving = {
        "in_order": first + draw.choice(size // 10, known, replace=False),
        "random": draw.choice(size, known, replace=False),
    }
    for name, keys in arriving.items():
        pq.write_table(made_rows(np.concatenate([keys, new]), 3), root / f"arriving_{name}")
    catalog = attach(spark, "merged", root)
    try:
        run = partial(_merged, spark, root, runs=runs)
        tenth = "in a tenth of the blocks"
        return [
            run("in_order", tenth, limit=0.5, rewrites=False),
            run("random", "random", limit=0.25, rewrites=False),
            run("in_order", tenth, limit=0.5, rewrites=True),
            run("random", "random", limit=1.3, rewrites=True),
        ]
    finally:
        spark.conf.unset(_REWRITES)
        catalog.detach()


def _merged(
    spark: SparkSession,
    root: Path,
    name: str,
    keys: str,
    *,
    limit: float | None,
    runs: int,
    rewrites: bool,
) -> Result:
    table, plain = Table.open(root / name), root / f"{name}_plain"
    size = table.head().summary.row_count
    spark.read.parquet(str(root / f"arriving_{name}")).createOrReplaceTempView("arriving")
    spark.conf.set(_REWRITES, str(rewrites).lower())

    def merge() -> None:
        spark.sql(
            f"MERGE INTO merged.{name} t USING arriving s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def rewrite() -> None:
        old, new = spark.read.parquet(str(plain)), spark.table("arriving")
        kept = old.join(new, "id", "left_anti").unionByName(new)
        kept.write.mode("overwrite").parquet(str(root / "rewritten"))

    ours, theirs = in_turn(merge, rewrite, runs=runs, before=partial(_rewind, table))
    assert table.head().summary.row_count == size + ARRIVING // 2
    _rewind(table)
    how = "by whole blocks" if rewrites else "by rows"
    return Result(
        work=f"SQL MERGE of {ARRIVING:,} keys, {keys}, {how}: {size:,} rows x {COLUMNS}",
        against="a rewrite by Spark: anti join, union, Parquet",
        ours=ours,
        theirs=theirs,
        limit=limit,
    )


def _rewind(table: Table) -> None:
    if table.head().summary.row_count != table.snapshot(1).summary.row_count:
        fuse.rewind(table.location.path, version=1)


def _make(path: Path, keys: np.ndarray) -> None:
    rows = made_rows(keys, 1)
    count = -(-len(keys) // _BLOCKS)
    table = Table.create(path, rows.schema, properties={"fuse.block.rows": str(count)})
    table.append(rows)
    plain = path.with_name(f"{path.name}_plain")
    plain.mkdir()
    for number in range(_BLOCKS):
        part = rows.slice(number * count, count)
        pq.write_table(part, plain / f"{number}.parquet", compression="zstd")
