"""`fuse.retry`: messages of the quarantine are read again by Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, concat, lit

import fuse_stream as fuse
from fuse_stream.errors import InvalidInputError, SchemaMismatchError
from fuse_stream.table.handle import Table

NARROW = "id bigint, amount int"
WIDE = "id bigint, amount decimal(10,2), note string"


def message(fields: str, lsn: int) -> str:
    source = f'{{"connector": "postgresql", "lsn": {lsn}}}'
    return (
        f'{{"payload": {{"op": "u", "before": null, "after": {{{fields}}}, "source": {source}}}}}'
    )


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    """A table with one row; of four messages the quarantine has the text."""
    texts = [
        message('"id": 1, "amount": 5', 10).encode(),
        message('"id": 2, "amount": "x"', 11).encode(),
        message('"id": 3, "amount": 7, "note": "n"', 12).encode(),
        message('"id": 4, "amount": 8', 13).encode()[:-3],
        b'{"payload": "\xff"}',
    ]
    rows = [(None, text, "orders", 0, 40 + at) for at, text in enumerate(texts)]
    columns = "key binary, value binary, topic string, partition int, offset bigint"
    kafka = spark.createDataFrame(rows, columns)
    folder = str(tmp_path / "t")
    fuse.write(fuse.from_debezium(kafka, NARROW), folder, mode="upsert", keys=["id"])
    return folder


def ids(path: str) -> list[int]:
    return sorted(row["id"] for row in Table.open(path).to_arrow().to_pylist())


def left(path: str) -> list[str]:
    return sorted(row["source"] for row in Table.open(path).to_arrow(side="quarantine").to_pylist())


def test_messages_are_read_by_a_wider_schema(spark: SparkSession, path: str) -> None:
    def wider(df: DataFrame) -> DataFrame:
        return fuse.from_debezium(df, "id bigint, amount int, note string")

    version = Table.open(path).head().version
    dry = fuse.retry(spark, path, wider, dry_run=True)
    with pytest.raises(SchemaMismatchError):
        fuse.retry(spark, path, wider)
    assert Table.open(path).head().version == version
    done = fuse.retry(spark, path, wider, merge_schema=True, message="note", author="anna")

    assert (dry.snapshot, dry.events, dry.quarantined) == (None, 4, 3)
    assert done.snapshot is not None
    assert (done.snapshot.version, done.snapshot.message) == (version + 1, "note")
    assert (done.inserted, done.events, done.quarantined) == (1, 4, 3)
    assert ids(path) == [1, 3]
    assert left(path) == ["orders/0/41", "orders/0/43", "orders/0/44"]
    assert fuse.retry(spark, path, wider, merge_schema=True).snapshot is None


def test_a_reader_may_correct_the_text(spark: SparkSession, path: str) -> None:
    seen: list[DataFrame] = []

    def corrected(df: DataFrame) -> DataFrame:
        seen.append(df)
        mended = concat(col("value").cast("string"), lit("}}}"))
        return fuse.from_debezium(df.withColumn("value", mended), NARROW)

    done = fuse.retry(spark, path, corrected, where="reason = 'unreadable' AND raw LIKE '{%'")

    assert (done.inserted, done.events, done.quarantined) == (1, 1, 0)
    assert [row.offset for row in seen[0].collect()] == [43]
    assert seen[0].dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
    ]
    assert ids(path) == [1, 4]


def test_bytes_come_back_as_they_were(spark: SparkSession, path: str) -> None:
    def latin(df: DataFrame) -> DataFrame:
        event = message('"id": 5, "amount": 9', 14)
        decoded = df.where("decode(value, 'ISO-8859-1') LIKE '%ÿ%'")
        return fuse.from_debezium(decoded.withColumn("value", lit(event)), NARROW)

    assert fuse.retry(spark, path, latin).inserted == 1
    assert left(path) == ["orders/0/41", "orders/0/42", "orders/0/43"]


def test_without_messages_the_reader_is_not_asked(spark: SparkSession, path: str) -> None:
    def never(_df: DataFrame) -> DataFrame:
        raise AssertionError

    assert fuse.retry(spark, path, never, where="reason = 'tie'") == fuse.ChangeResult()


def test_a_reader_is_a_function(spark: SparkSession, path: str) -> None:
    with pytest.raises(InvalidInputError, match="read is a function") as caught:
        fuse.retry(spark, path, spark.range(1))  # type: ignore[arg-type]

    assert caught.value.context["type"] == "DataFrame"


def test_a_reader_returns_what_from_debezium_makes(spark: SparkSession, path: str) -> None:
    with pytest.raises(InvalidInputError, match="from_debezium"):
        fuse.retry(spark, path, lambda df: df)
    with pytest.raises(InvalidInputError, match="_source"):
        fuse.retry(spark, path, lambda df: fuse.from_debezium(df.drop("offset"), NARROW))
