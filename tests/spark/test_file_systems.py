"""Whether Spark has a file system for the store of a table; nothing is asked of a store."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fuse_stream.spark.jvm.file_systems import find_reader_problem
from fuse_stream.table.location import TableLocation


def test_a_table_on_a_disk_is_read_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    assert find_reader_problem(spark, TableLocation.of(tmp_path)) is None


def test_a_store_for_which_spark_has_a_file_system_is_read_by_spark(spark: SparkSession) -> None:
    assert find_reader_problem(spark, TableLocation.of("http://127.0.0.1:9/t")) is None


@pytest.mark.parametrize(
    ("url", "scheme", "jar"),
    [
        ("s3://lake/t", "s3a", "org.apache.hadoop:hadoop-aws"),
        ("az://lake/t", "abfss", "org.apache.hadoop:hadoop-azure"),
        ("gs://lake/t", "gs", "com.google.cloud.bigdataoss:gcs-connector"),
    ],
)
def test_the_jar_that_spark_lacks_is_named(
    spark: SparkSession, url: str, scheme: str, jar: str
) -> None:
    problem = find_reader_problem(spark, TableLocation.of(url))
    assert problem == f"Spark has no file system for {scheme}:// (give Spark {jar})"


def test_an_origin_of_a_clone_needs_a_file_system_too(spark: SparkSession, tmp_path: Path) -> None:
    clone = TableLocation.of(tmp_path, origins=["s3://lake/t"])
    assert find_reader_problem(spark, clone) is not None
