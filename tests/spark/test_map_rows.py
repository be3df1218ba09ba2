"""DataFrame rows passed to Python: in batches of a fixed row count where that is safe."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql.functions import count, expr, lit, repeat, struct, udf, when

from fuse_stream.spark import collect
from fuse_stream.spark.collect import BATCH_ROWS, FetchPolicy, RowMapper
from fuse_stream.spark.sink import fuse_sink
from tests.spark.streams import deliver_table, ids_of, read_stream, run

ROWS = 3 * BATCH_ROWS
MEASURED = "some rows are too long for batches of a fixed size; the plan runs again"
RESULT = "rows long, largest long"


def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        values = [[batch.num_rows], [batch.nbytes]]
        yield pa.RecordBatch.from_arrays([*map(pa.array, values)], names=["rows", "largest"])


def mapped(df: DataFrame, by: RowMapper | None = None, *, mean: int = 0) -> list[Row]:
    return (by or RowMapper()).collect(df, sizes, RESULT, mean_row_bytes=mean)


def fetched(df: DataFrame) -> pa.Table | None:
    policy = FetchPolicy()
    policy.note(ROWS, 1)
    return policy.fetch(df)


def texts(spark: SparkSession, length: int) -> DataFrame:
    """One partition of rows, each with a text of `length` bytes within a struct."""
    ids = spark.range(0, ROWS, 1, 1)
    return ids.select("id", struct(repeat(lit("x"), length).alias("text")).alias("part"))


def test_every_row_comes_in_batches_of_a_fixed_size(spark: SparkSession) -> None:
    found = mapped(texts(spark, 2_000))  # 20 MB: no batch of 10,000 rows, Spark's own number

    assert [row.rows for row in found] == [BATCH_ROWS] * 3


@pytest.mark.parametrize("where", ["id = 0", f"id = {ROWS - 1}"], ids=["first", "last"])
def test_long_rows_come_in_batches_measured_by_bytes(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    length = when(expr(where), 40_000_000).otherwise(0)
    df = spark.range(0, ROWS, 1, 1).withColumn("text", repeat(lit("x"), length))
    by = RowMapper()

    with caplog.at_level(logging.INFO, collect.__name__):
        first, second = mapped(df, by), mapped(df, by)

    assert [record.getMessage() for record in caplog.records] == [MEASURED]  # and remembered
    assert sum(row.rows for row in first) == ROWS
    assert first == second


@pytest.mark.parametrize(
    ("column", "mean"),
    [("array(id)", 0), ("map(id, id)", 0), ("struct(array(id) AS a)", 0), ("id", 60_000)],
    ids=["array", "map", "within a struct", "rows that were long before"],
)
def test_columns_that_may_be_long_are_measured_from_the_first_batch(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, column: str, mean: int
) -> None:
    df = spark.range(0, ROWS, 1, 1).select(expr(column).alias("x"))

    with caplog.at_level(logging.INFO, collect.__name__):
        found = mapped(df, mean=mean)

    assert max(row.rows for row in found) == 10_000  # Spark's own number
    assert not caplog.records


def test_the_batch_settings_of_the_session_apply(spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    assert {row.rows for row in mapped(texts(session, 10))} == {1_000, ROWS % 1_000}

    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "0")  # no limit
    session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", "1m")
    assert max(row.largest for row in mapped(texts(session, 2_000))) < 3_000_000
    assert session.conf.get("spark.sql.execution.arrow.maxBytesPerBatch") == "1m"


@pytest.mark.parametrize("bring", [mapped, fetched])
def test_a_column_is_computed_once(
    spark: SparkSession, bring: Callable[[DataFrame], object]
) -> None:
    calls = spark.sparkContext.accumulator(0)

    def text(number):  # type: ignore[no-untyped-def]
        calls.add(1)
        return str(number)

    called = udf(text, "string", useArrow=False)
    bring(spark.range(0, ROWS, 1, 1).select(called("id").alias("text")))

    assert calls.value == ROWS


def test_observed_metrics_of_the_user_are_reported(spark: SparkSession) -> None:
    observation = Observation()
    df = spark.range(ROWS).observe(observation, count(lit(1)).alias("rows"))

    mapped(df)

    assert observation.get == {"rows": ROWS}


def test_an_error_of_the_plan_reaches_the_user_unchanged(spark: SparkSession) -> None:
    df = spark.range(1).select(expr("raise_error('theirs')").cast("string").alias("text"))

    with pytest.raises(PySparkException, match="theirs"):
        mapped(df)


@pytest.mark.long
def test_a_stateful_stream_of_long_rows_is_exact(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(3):
        ids = [number * 2, number * 2 + 1]
        keys = ["x" * 20_000 * number, "y"]  # the state knows "y" after the first batch
        deliver_table(tmp_path, number, pa.table({"id": ids, "key": keys}))
    distinct = read_stream(spark, tmp_path).dropDuplicates(["key"])

    run(distinct, fuse_sink(str(tmp_path / "table")), tmp_path / "checkpoint")

    assert ids_of(tmp_path / "table") == [0, 1, 2, 4]
