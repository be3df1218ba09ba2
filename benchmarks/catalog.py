"""SQL statements on a table of a catalog, against Spark on Parquet files."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import SparkSession

import fuse_stream as fuse
from benchmarks.batch import noop
from benchmarks.measure import JIT_RUNS, Result, in_turn


def statements(spark: SparkSession, rows: Path, work: Path, *, runs: int) -> list[Result]:
    """Read a table by its name, and insert all rows of a query into one."""
    root, plain = work / "catalog", work / "catalog_plain"
    shutil.rmtree(root, ignore_errors=True)
    source = spark.read.parquet(str(rows))
    source.createOrReplaceTempView("flights")
    row_count = source.count()
    catalog = fuse.attach(spark, "bench", root)
    try:
        spark.sql("CREATE TABLE bench.flights AS SELECT * FROM flights")
        source.write.mode("overwrite").parquet(str(plain))
        selected = in_turn(
            lambda: noop(spark.sql("SELECT * FROM bench.flights")),
            lambda: noop(spark.read.parquet(str(plain))),
            runs=runs,
            warm_ups=JIT_RUNS,
        )
        spark.sql("CREATE TABLE bench.inserted AS SELECT * FROM flights LIMIT 0")
        inserted = in_turn(
            lambda: spark.sql("INSERT INTO bench.inserted SELECT * FROM flights"),
            lambda: source.write.mode("overwrite").parquet(str(plain)),
            runs=runs,
        )
    finally:
        catalog.detach()
    return [
        Result(
            work=f"SELECT * of {row_count:,} rows through the catalog",
            against="spark.read.parquet of what df.write.parquet wrote",
            ours=selected[0],
            theirs=selected[1],
            limit=1.05,
        ),
        Result(
            work=f"INSERT INTO … SELECT of {row_count:,} rows",
            against="df.write.parquet",
            ours=inserted[0],
            theirs=inserted[1],
            limit=1.1,
        ),
    ]
