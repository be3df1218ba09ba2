"""A program of its own, on a cluster of two executors: statements that change rows."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from fuse_stream.spark.attach import attach

FOLDER, REWRITES = sys.argv[1:]
os.environ["PYSPARK_PYTHON"] = sys.executable

spark = (
    SparkSession.builder.master("local-cluster[2,1,1024]")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.ui.enabled", "false")
    .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
    .getOrCreate()
)
attach(spark, "lake", Path(FOLDER, "lake"))
spark.conf.set("spark.fuse.rewriteBlocks", REWRITES)
spark.sql("CREATE TABLE lake.t AS SELECT id, id AS v FROM range(5)")
spark.sql("UPDATE lake.t SET v = v + 1 WHERE id % 3 = 0")
spark.sql("DELETE FROM lake.t WHERE id IN (SELECT 4L)")
spark.sql(
    "MERGE INTO lake.t t USING (SELECT explode(array(1L, 3L, 9L)) AS k) s ON t.id = s.k "
    "WHEN MATCHED AND s.k = 1 THEN UPDATE SET v = -7 WHEN MATCHED THEN UPDATE SET v = v + 1 "
    "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (k, k)"
)
sys.stdout.write(f"{sorted(tuple(row) for row in spark.table('lake.t').collect())}\n")
spark.stop()
