"""Messages of other systems as the rows that Kafka's source gives."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

FOLDER = Path(__file__).parent / "messages"
KAFKA = "key binary, value binary, topic string, partition int, offset bigint"


def recorded(system: str) -> dict[str, dict[str, Any]]:
    """Return the recorded messages of a system by their names."""
    listed = json.loads((FOLDER / f"{system}.json").read_text())
    return {message["name"]: message for message in listed}


def encoded(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def kafka(spark: SparkSession, values: Iterable[Any], keys: Iterable[Any] = ()) -> DataFrame:
    """Return messages of one partition: texts, bytes, None, or what is written as JSON."""
    listed = list(values)
    padded = [*keys, *[None] * len(listed)]
    rows = [
        (encoded(key), encoded(value), "topic", 0, offset)
        for offset, (key, value) in enumerate(zip(padded, listed, strict=False))
    ]
    return spark.createDataFrame(rows, KAFKA)


def replay(spark: SparkSession, system: str) -> DataFrame:
    """Return the recorded messages of a system, in order."""
    messages = recorded(system).values()
    return kafka(spark, [one["value"] for one in messages], [one["key"] for one in messages])


def rows(events: DataFrame) -> list[Row]:
    """Return the events in the order of their messages."""
    found = events.collect()
    return sorted(found, key=lambda row: (row["_source"].offset or 0, row["_op"] or ""))


def ops(events: DataFrame) -> list[tuple[Any, ...]]:
    """Return the first column, the op and the reason of each event."""
    return [(row[0], row["_op"], row["_error"]) for row in rows(events)]


def sequence(row: Row) -> tuple[int, ...]:
    return tuple(row["_seq"])


def debezium(
    after: Any = None, before: Any = None, op: str = "c", source: Any = None, **parts: Any
) -> dict[str, Any]:
    """Return an envelope without schema, of PostgreSQL if nothing else is said."""
    known = {"connector": "postgresql", "lsn": 100} if source is None else source
    return {"before": before, "after": after, "source": known, "op": op, "ts_ms": 1, **parts}


def with_schema(fields: list[dict[str, Any]], after: Any) -> dict[str, Any]:
    """Return an envelope with the Connect schema of the columns."""
    schema = {"type": "struct", "fields": [{"type": "struct", "field": "after", "fields": fields}]}
    return {"schema": schema, "payload": debezium(after)}
