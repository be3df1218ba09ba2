"""The rules of events that Spark evaluates."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import fuse_stream as fuse
from fuse_stream.errors import InvalidInputError


def test_a_predicate_that_spark_refuses_is_an_invalid_input(
    spark: SparkSession, tmp_path: Path
) -> None:
    df = spark.createDataFrame([(1, 1)], "k bigint, s bigint")

    with pytest.raises(InvalidInputError, match="apply_as_deletes"):
        fuse.write(
            df,
            tmp_path / "t",
            mode="upsert",
            keys=["k"],
            sequence_by="s",
            apply_as_deletes="nope = 1",
        )
