"""Making `format("fuse")` known to a session that does not look for formats by itself."""

from __future__ import annotations

from pyspark.sql import SparkSession

from fuse_stream.spark.datasource import FuseDataSource


def register(spark: SparkSession) -> None:
    """Register `format("fuse")` with a session.

    Spark finds it by itself where the package is installed for the Python that runs its workers;
    this is for a session whose search fails over somebody else's broken `pyspark_*` module.
    """
    spark.dataSource.register(FuseDataSource)
