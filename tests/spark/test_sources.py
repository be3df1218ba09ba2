"""The source positions that Spark's queries record in the ledgers of their tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

import fuse_stream as fuse
from fuse_stream.checkpoint.offsets import PlannedSource
from fuse_stream.format.source_offset import SourcePosition
from fuse_stream.spark import identity
from fuse_stream.spark.sink import fuse_sink
from fuse_stream.table.handle import Table
from tests.spark.streams import DOORS, PATIENCE_S, deliver, follow_table, read_stream, run

SCHEMA = pa.schema([("k", pa.int64())])


def make(path: Path, *keys: int) -> Table:
    """Create a table with one commit for each key."""
    table = Table.create(path, SCHEMA)
    for key in keys:
        table.append(pa.table({"k": [key]}, SCHEMA))
    return table


def follow(spark: SparkSession, path: Path, door: str = "format", **options: object) -> DataFrame:
    return follow_table(spark, path, door, feed="append", **options).select("k")


def sources_of(path: Path) -> tuple[SourcePosition, ...]:
    entries = Table.open(path).ledger()
    return entries["default", ""].sources or ()


@pytest.mark.long
@pytest.mark.parametrize("door", DOORS)
def test_a_sink_records_each_reader_with_its_position_and_path(
    spark: SparkSession, tmp_path: Path, door: str
) -> None:
    bronze, orders = make(tmp_path / "bronze", 1, 2), make(tmp_path / "orders", 5)
    deliver(tmp_path, range(1))
    files = read_stream(spark, tmp_path).selectExpr("id AS k")
    static = spark.createDataFrame([(1,)], "k long")
    joined = follow(spark, tmp_path / "bronze", door).join(static, "k", "left_outer")
    both = joined.union(files).union(follow(spark, tmp_path / "orders", door))
    again = both.union(follow(spark, tmp_path / "bronze", door))
    run(again, fuse_sink(tmp_path / "silver", optimize="off"), tmp_path / "c")
    found = sources_of(tmp_path / "silver")

    assert [one.name for one in found] == ["bronze@2", "orders@1", "bronze@2"]
    assert [one.path for one in found] == [
        str(tmp_path / name) for name in ("bronze", "orders", "bronze")
    ]
    assert [one.offset.table_id for one in found] == [
        bronze.table_id,
        orders.table_id,
        bronze.table_id,
    ]
    assert found[1].offset.snapshot_id == orders.head().snapshot_id
    bronze.append(pa.table({"k": [3]}, SCHEMA))
    assert repr(fuse.lineage(tmp_path / "silver")) == (
        "Lineage(silver@1 <- bronze@2 (1 behind), orders@1 (0 behind); 2 tables upstream)"
    )


def test_the_paths_of_a_query_are_asked_for_once_a_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    ask = identity._planned_sources  # noqa: SLF001 - to count its calls

    def count(execution: Any) -> tuple[PlannedSource, ...]:
        asked.append(execution)
        return ask(execution)

    monkeypatch.setattr(identity, "_planned_sources", count)
    make(tmp_path / "bronze", 1, 2, 3)
    frame = follow(spark, tmp_path / "bronze", startingVersion=1, maxCommitsPerTrigger=1)
    sink = fuse_sink(tmp_path / "silver", optimize="off")
    seen: list[str] = []

    def commit(df: DataFrame, number: int) -> None:
        spark.sparkContext.setJobGroup("the user's", "own group")
        sink(df, number)
        seen.extend(one.name for one in sources_of(tmp_path / "silver"))

    run(frame, commit, tmp_path / "c")

    assert seen == ["bronze@1", "bronze@2", "bronze@3"]
    assert len(asked) == 1


@pytest.mark.skipif(not hasattr(DataStreamReader, "name"), reason="Spark 4.2 has no names")
def test_sources_with_names_have_their_paths(spark: SparkSession, tmp_path: Path) -> None:
    option = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
    make(tmp_path / "bronze", 1, 2)
    make(tmp_path / "orders", 5)
    spark.conf.set(option, "true")
    try:
        frames = [
            spark.readStream.format("fuse")
            .option("feed", "append")
            .name(name)
            .load(str(tmp_path / table))
            for name, table in (("z", "bronze"), ("a", "orders"))
        ]
        run(
            frames[0].union(frames[1]),
            fuse_sink(tmp_path / "silver", optimize="off"),
            tmp_path / "c",
        )
    finally:
        spark.conf.unset(option)

    found = {one.name for one in sources_of(tmp_path / "silver")}
    assert found == {"bronze@2", "orders@1"}


def test_without_the_plan_the_positions_have_no_path(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "_STREAMING_TABLE", "AnotherReleaseOfSpark")
    table = make(tmp_path / "bronze", 1)
    sink = fuse_sink(tmp_path / "silver", optimize="off")
    run(follow(spark, tmp_path / "bronze"), sink, tmp_path / "c")

    assert [one.name for one in sources_of(tmp_path / "silver")] == [f"{table.table_id[:8]}@1"]


@pytest.mark.long
def test_the_writer_of_the_format_records_positions_without_paths(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = make(tmp_path / "bronze", 1)
    Table.create(tmp_path / "silver", SCHEMA)
    writer = follow(spark, tmp_path / "bronze").writeStream.format("fuse")
    query: StreamingQuery = (
        writer.option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "silver"))
    )
    assert query.awaitTermination(PATIENCE_S)
    (found,) = sources_of(tmp_path / "silver")

    assert found.path is None
    assert found.offset.table_id == table.table_id
    assert found.version == 1
