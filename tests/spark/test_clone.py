"""Clones in Spark: every kind of read and write, with an allowed origin and without."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import fuse_stream as fuse
from fuse_stream.errors import InvalidInputError, StreamIdentityError
from fuse_stream.table.handle import Table
from tests.spark.streams import (
    DOORS,
    ROWS,
    deliver,
    follow_table,
    ids_delivered,
    ids_of,
    raised_by,
    read_stream,
    refusal_of,
    run,
)


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A table of three commits, and its clone."""
    table, clone = tmp_path / "table", tmp_path / "clone"
    made = Table.create(table, pa.schema([("id", pa.int64()), ("key", pa.string())]))
    for number in range(3):
        ids = ids_delivered(number + 1)[-ROWS:]
        made.append(pa.table({"id": ids, "key": ["old"] * ROWS}))
    fuse.clone(table, clone)
    return table, clone


def ids_in(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.collect())


def test_a_batch_reads_a_clone(spark: SparkSession, places: tuple[Path, Path]) -> None:
    table, clone = map(str, places)
    allowed = json.dumps([table])
    plain = fuse.read(spark, clone, origins=[table])
    chosen = fuse.read(spark, clone, origins=[table], where="id >= 20", columns=["id"])
    through_python = spark.read.format("fuse").option("origins", allowed)
    feed = through_python.option("feed", "changes").option("startingVersion", 0)

    assert ids_in(plain) == ids_in(through_python.load(clone)) == ids_delivered(3)
    assert ids_in(chosen) == ids_delivered(3)[20:]
    assert sorted((row.id, row["_commit_version"]) for row in feed.load(clone).collect()) == [
        (row_id, 1) for row_id in ids_delivered(3)
    ]


def test_a_batch_opens_no_origin_without_permission(
    spark: SparkSession, places: tuple[Path, Path]
) -> None:
    _, clone = map(str, places)

    with pytest.raises(InvalidInputError, match=r"origins=\[…\]"):
        fuse.read(spark, clone)
    with pytest.raises(PySparkException, match="the option `origins`"):
        spark.read.format("fuse").load(clone).collect()


@pytest.mark.long
@pytest.mark.parametrize("door", DOORS)
def test_a_stream_follows_a_clone(
    spark: SparkSession, places: tuple[Path, Path], tmp_path: Path, door: str
) -> None:
    table, clone = map(str, places)
    allowed = follow_table(spark, clone, door, feed="append", origins=[table])
    target, checkpoint = str(tmp_path / "target"), tmp_path / "follows"

    run(allowed, fuse.fuse_sink(target), checkpoint)
    fuse.write(spark.createDataFrame([(100, "new")], "id long, key string"), clone)
    run(allowed, fuse.fuse_sink(target), checkpoint)

    assert ids_of(tmp_path / "target") == [*ids_delivered(3), 100]
    refused = follow_table(spark, clone, door, feed="append")
    text = refusal_of(refused, fuse.fuse_sink(f"{target}-2"), tmp_path / "refused")
    assert "InvalidInputError" in text
    assert "the option `origins`" in text


def test_only_the_query_of_the_origin_continues_in_the_clone(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, clone = tmp_path / "table", tmp_path / "clone"
    deliver(tmp_path, range(2))
    run(read_stream(spark, tmp_path), fuse.fuse_sink(str(table)), tmp_path / "checkpoint")
    fuse.clone(table, clone)
    deliver(tmp_path, range(2, 3))
    sink = fuse.fuse_sink(str(clone), origins=[str(table)])
    refused: list[type] = []

    def offer(batch: DataFrame, batch_id: int) -> None:
        refused.append(type(raised_by(sink, batch, batch_id)))

    run(read_stream(spark, tmp_path), sink, tmp_path / "checkpoint")
    run(read_stream(spark, tmp_path), offer, tmp_path / "another")

    assert sink.last_commit is not None
    assert (sink.last_commit.batch_id, sink.last_commit.version) == (2, 2)
    assert refused == [StreamIdentityError] * 3
    assert ids_in(fuse.read(spark, str(clone), origins=[str(table)])) == ids_delivered(3)
    assert ids_of(table) == ids_delivered(2)


def test_the_format_writes_to_a_clone(
    spark: SparkSession, places: tuple[Path, Path], tmp_path: Path
) -> None:
    table, clone = map(str, places)
    allowed = json.dumps([table])
    rows = spark.createDataFrame([(100, "new")], "id long, key string")
    rows.write.format("fuse").mode("append").option("origins", allowed).save(clone)
    deliver(tmp_path, range(3, 4))  # the ids after those of the table
    writer = read_stream(spark, tmp_path).writeStream.format("fuse").option("path", clone)
    writer = writer.option("origins", allowed).option("appId", "second")
    checkpoint = str(tmp_path / "second")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination(240)

    assert ids_in(fuse.read(spark, clone, origins=[table])) == [*ids_delivered(4), 100]
