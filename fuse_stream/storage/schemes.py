"""The schemes of the URLs of object stores: which package reads them, and what Spark needs."""

from __future__ import annotations

from collections.abc import Mapping

SCHEMES: Mapping[str, tuple[str, ...]] = {
    "s3fs": ("s3", "s3a"),
    "gcsfs": ("gs", "gcs"),
    "adlfs": ("az", "abfs", "abfss"),
}
"""By fsspec's adapter: the schemes that it reads."""

EXTRAS: Mapping[str, str] = {"s3fs": "s3", "gcsfs": "gcs", "adlfs": "azure"}
"""By fsspec's adapter: the extra of this package that brings it."""

HADOOP_SCHEMES = {"s3": "s3a", "gcs": "gs", "az": "abfss", "abfs": "abfss"}
"""Spark's names of the file systems that have another name in fsspec."""

HADOOP_JARS: Mapping[str, str] = {
    "s3a": "org.apache.hadoop:hadoop-aws",
    "abfss": "org.apache.hadoop:hadoop-azure",
    "gs": "com.google.cloud.bigdataoss:gcs-connector",
}
"""By Spark's name: Maven's coordinates of the jar with the file system, without a version."""
