"""Statements on a catalog in a cluster of two executors: `python -m tests.spark.cluster_program`.

It prints what they show as one line of JSON. The executors are processes of their own, so nothing
of the driver's Python reaches them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import fuse_stream as fuse
from tests.spark.conftest import SETTINGS
from tests.spark.driver import ROOT
from tests.spark.streams import PATIENCE_S

COUNT = 1000


def main(folder: Path) -> None:
    """Run the statements on the empty table `t` in `folder`/lake."""
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("catalog")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.executorEnv.PYTHONPATH", str(ROOT))
    spark = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse")).getOrCreate()
    try:
        sys.stdout.write(json.dumps(run(spark, folder)) + "\n")
    finally:
        spark.stop()


def run(spark: SparkSession, folder: Path) -> dict[str, object]:
    """Return what the statements show."""
    fuse.attach(spark, "lake", folder / "lake")
    found: dict[str, object] = {}

    def value(query: str) -> object:
        rows = spark.sql(query).collect()
        return list(rows[0]) if len(rows[0]) > 1 else rows[0][0]

    spark.sql(f"INSERT INTO lake.t SELECT id, id % 7 FROM range(0, {COUNT}, 1, 4)")
    found["inserted"] = value("SELECT count(*), sum(k) FROM lake.t")
    spark.sql("CREATE TABLE lake.half CLUSTER BY (k) AS SELECT * FROM lake.t WHERE k % 2 = 0")
    found["created"] = value("SELECT count(*) FROM lake.half")
    spark.sql("DELETE FROM lake.t WHERE k >= 400")
    found["deleted"] = value("SELECT count(*) FROM lake.t")
    found["old"] = value("SELECT count(*) FROM lake.t VERSION AS OF 1")
    kinds = "SELECT _change_type, count(*) FROM {} GROUP BY _change_type ORDER BY _change_type"
    changes = spark.sql(kinds.format("lake.t CHANGES FROM VERSION 1"))
    found["changes"] = [list(row) for row in changes.collect()]
    found["joined"] = value("SELECT count(*) FROM lake.t a JOIN lake.t b ON a.k = b.k")

    follow(fuse.read_stream(spark, folder / "lake" / "t", starting_version=1), folder)
    stream = spark.read.parquet(str(folder / "followed")).groupBy("_change_type").count()
    found["stream"] = [list(row) for row in stream.orderBy("_change_type").collect()]
    query = (
        spark.readStream.table("lake.t")
        .writeStream.option("checkpointLocation", str(folder / "copying"))
        .trigger(availableNow=True)
        .toTable("lake.copy")
    )
    query.awaitTermination(PATIENCE_S)
    found["copy"] = value("SELECT count(*) FROM lake.copy")
    status = spark.sparkContext._jsc.sc().statusTracker()  # noqa: SLF001
    found["executors"] = len(status.getExecutorInfos()) - 1  # the driver is one of them
    return found


def follow(changes: DataFrame, folder: Path) -> None:
    """Write a stream of changes to files of Parquet, until it has all that is there."""
    query = (
        changes.writeStream.format("parquet")
        .option("path", str(folder / "followed"))
        .option("checkpointLocation", str(folder / "following"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(PATIENCE_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
