"""Spark reads a side by its name; every feed leaves sides out."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import fuse_stream as fuse
from fuse_stream.errors import InvalidInputError, NotFoundError
from fuse_stream.spark.format import register
from fuse_stream.spark.options import parse_read_options
from fuse_stream.table.handle import Table
from tests.kit.sides import commit_sides, side_rows
from tests.recovery.histories import rows


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    """Version 2 hides tombstone b."""
    register(spark)
    folder = str(tmp_path / "t")
    table = Table.create(folder, rows(1).schema)
    commit_sides(table, {"tombstones": side_rows("a", "b", "c")}, rows=rows(1, 2))
    commit_sides(table, {"quarantine": side_rows("x")}, hides={"tombstones": {"b"}})
    return folder


def test_fuse_read_reads_a_side(spark: SparkSession, path: str) -> None:
    found = fuse.read(spark, path, side="tombstones")

    assert found.columns == ["key", "seq"]
    assert sorted(row.key for row in found.collect()) == ["a", "c"]
    old = fuse.read(spark, path, side="tombstones", version=1, columns=["key"], where="key < 'c'")
    assert sorted(row.key for row in old.collect()) == ["a", "b"]
    assert fuse.read(spark, path).count() == 2


def test_the_format_reads_a_side(spark: SparkSession, path: str) -> None:
    reader = spark.read.format("fuse").option("side", "tombstones")

    assert sorted(row.key for row in reader.load(path).collect()) == ["a", "c"]
    assert sorted(row.key for row in reader.option("versionAsOf", 1).load(path).collect()) == [
        *("a", "b", "c")
    ]


def test_a_side_that_is_not_there_is_an_error_that_names_those_that_are(
    spark: SparkSession, path: str
) -> None:
    with pytest.raises(NotFoundError, match=r"sides=\['quarantine', 'tombstones'\]"):
        fuse.read(spark, path, side="coalesced")
    with pytest.raises(Exception, match="no such side"):
        spark.read.format("fuse").option("side", "coalesced").load(path)


def test_a_side_of_a_table_of_events_may_be_empty(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    folder = str(tmp_path / "events")
    table = Table.create(folder, pa.schema([("k", pa.int64())]))
    events = pa.table({"k": [1], "n": [5]})
    table.upsert(events, keys=["k"], sequence_by="n", except_column_list=["n"])
    reader = spark.read.format("fuse").option("side", "quarantine")

    assert fuse.read(spark, folder, side="quarantine").select("reason", "event").collect() == []
    assert reader.load(folder).select("reason", "event").collect() == []


@pytest.mark.parametrize("streaming", [False, True])
def test_a_feed_of_a_side_is_refused(*, streaming: bool) -> None:
    options = {"path": "/t", "feed": "changes", "side": "tombstones"}
    with pytest.raises(InvalidInputError, match="a feed has the table's rows alone"):
        parse_read_options({**options, "startingVersion": "1"}, streaming=streaming)


def test_a_feed_shows_no_side(spark: SparkSession, path: str) -> None:
    feed = spark.read.format("fuse").option("feed", "changes").option("startingVersion", 0)

    assert sorted(row.k for row in feed.load(path).collect()) == [1, 2]
