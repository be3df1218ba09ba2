"""Small batches fetched by the driver: complete, with a size guard analysed once per query."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import struct

from fuse_stream.spark import collect
from fuse_stream.spark.collect import SMALLEST_LIMIT, FetchPolicy
from fuse_stream.spark.sink import fuse_sink
from fuse_stream.table.handle import Table
from tests.spark.streams import deliver_table, read_stream, run

WIDE = "x" * 20_000
"""Longer than the average row that the expected number of rows allows."""


@pytest.fixture
def analysed(monkeypatch: pytest.MonkeyPatch) -> list[collect.RowLimit]:
    """The limits of the guards that Spark analysed."""
    limits: list[collect.RowLimit] = []
    whole = collect.guarded

    def counted(df: DataFrame, limit: collect.RowLimit, message: str) -> DataFrame:
        limits.append(limit)
        return whole(df, limit, message)

    monkeypatch.setattr(collect, "guarded", counted)
    return limits


def fetched(
    spark: SparkSession,
    folder: Path,
    batches: list[pa.Table],
    change: Callable[[DataFrame, int], DataFrame] = lambda df, _: df,
) -> list[pa.Table | None]:
    """Return the rows that one policy fetches of each batch of a query."""
    policy = FetchPolicy()
    policy.note(1, 1)
    found = []

    def fetch(df: DataFrame, batch_id: int) -> None:
        found.append(policy.fetch(change(df, batch_id)))

    for number, rows in enumerate(batches):
        deliver_table(folder, number, rows)
    run(read_stream(spark, folder), fetch, folder / "checkpoint")
    return found


def rows_of(*ids: int, key: str = "k") -> pa.Table:
    return pa.table({"id": list(ids), "key": [key] * len(ids)})


def test_the_guard_is_analysed_for_the_first_batch_only(
    spark: SparkSession, tmp_path: Path, analysed: list[collect.RowLimit]
) -> None:
    batches = [rows_of(1, 2), rows_of(3), rows_of(4, 5, 6)]

    found = fetched(spark, tmp_path, batches)

    assert [rows.to_pylist() for rows in found if rows] == [rows.to_pylist() for rows in batches]
    assert len(analysed) == 1


@pytest.mark.parametrize(
    "large",
    [rows_of(*range(SMALLEST_LIMIT + 1)), rows_of(9, key=WIDE)],
    ids=["tall", "wide"],
)
def test_a_batch_above_the_limit_is_stopped_by_a_guard_made_for_an_earlier_batch(
    spark: SparkSession, tmp_path: Path, analysed: list[collect.RowLimit], large: pa.Table
) -> None:
    found = fetched(spark, tmp_path, [rows_of(1), large, rows_of(2)])

    assert [rows and rows["id"].to_pylist() for rows in found] == [[1], None, [2]]
    assert len(analysed) == 1


def test_a_batch_with_other_columns_gets_a_new_guard(
    spark: SparkSession, tmp_path: Path, analysed: list[collect.RowLimit]
) -> None:
    def change(df: DataFrame, batch_id: int) -> DataFrame:
        return df.selectExpr("key", "id * 2 AS id") if batch_id == 1 else df

    found = fetched(spark, tmp_path, [rows_of(1), rows_of(2), rows_of(3)], change)

    assert [rows.to_pylist() for rows in found if rows] == [
        [{"id": 1, "key": "k"}],
        [{"key": "k", "id": 4}],
        [{"id": 3, "key": "k"}],
    ]
    assert len(analysed) == 3


def test_an_empty_batch_has_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    (found,) = fetched(spark, tmp_path, [rows_of(1)], lambda df, _: df.where("id > 1"))

    assert found is not None
    assert found.column_names == ["id", "key"]
    assert len(found) == 0


def test_times_are_the_same_in_any_session_time_zone(spark: SparkSession, tmp_path: Path) -> None:
    at = dt.datetime(2026, 3, 29, 0, 30, tzinfo=dt.UTC)
    days = [at + dt.timedelta(days=day) for day in range(4)]
    for number, day in enumerate(days):
        deliver_table(
            tmp_path, number, pa.table({"at": pa.array([day], pa.timestamp("us", "UTC"))})
        )
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")

    sink = fuse_sink(str(tmp_path / "table"), optimize="off")
    run(read_stream(session, tmp_path, "at timestamp"), sink, tmp_path / "checkpoint")

    assert Table.open(tmp_path / "table").to_arrow()["at"].to_pylist() == days


def test_a_guard_names_columns_in_any_quoting_mode_of_the_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.parser.quotedRegexColumnNames", "true")

    def renamed(df: DataFrame, _: int) -> DataFrame:
        within = struct(df.key.alias("in side")).alias("a|b")
        return df.select(df.id.alias("dep delay"), df.key.alias("a.*"), within)

    found = fetched(session, tmp_path, [rows_of(1), rows_of(2, key="l")], renamed)

    assert [rows and rows.to_pylist() for rows in found] == [
        [{"dep delay": 1, "a.*": "k", "a|b": {"in side": "k"}}],
        [{"dep delay": 2, "a.*": "l", "a|b": {"in side": "l"}}],
    ]


def test_a_guard_does_not_substitute_variables_in_column_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    session = spark.newSession()
    session.conf.set("a", "id")

    def renamed(df: DataFrame, _: int) -> DataFrame:
        return df.select(df.key.alias("${a}"), df.id, df.key.alias("${nosuch}"))

    found = fetched(session, tmp_path, [rows_of(1), rows_of(2, key="l")], renamed)

    assert [rows and rows.to_pylist() for rows in found] == [
        [{"${a}": "k", "id": 1, "${nosuch}": "k"}],
        [{"${a}": "l", "id": 2, "${nosuch}": "l"}],
    ]
