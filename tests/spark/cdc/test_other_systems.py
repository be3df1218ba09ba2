"""Events of Maxwell, Canal and AWS DMS, and of change feeds."""

from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import fuse_stream as fuse
from tests.spark.cdc.recorded import kafka, ops, rows, sequence
from tests.spark.streams import PATIENCE_S

COLUMNS = "id bigint, name string"


def maxwell(kind: str, data: Any, at: str = "b.000001:4", **more: Any) -> dict[str, Any]:
    known = {"database": "d", "table": "t", "type": kind, "position": at, "data": data}
    return {**known, **more}


def test_maxwell(spark: SparkSession) -> None:
    values = [
        maxwell("bootstrap-start", {}),
        maxwell("bootstrap-insert", {"id": 1, "name": "a"}),
        maxwell("bootstrap-complete", {}),
        maxwell("update", {"id": 2, "name": "b"}, old={"id": 1, "name": "a"}, xoffset=0),
        maxwell("update", {"id": 2, "name": "b"}, old={"id": 2}, xoffset=1),
        maxwell("update", {"id": 2}, old={"name": "b"}, commit=True),
        maxwell("delete", {"id": 2, "name": "b"}, at="b.000001:99"),
        {**maxwell("insert", {"id": 3}), "table": "other"},
        {"type": "table-alter", "database": "d", "table": "t", "def": {}},
        maxwell("replace", {"id": 3}),
        maxwell("insert", None),
        maxwell("insert", {"id": 3}, position=None),
        maxwell("insert", {"id": 3, "more": 1}),
        "x",
        None,
    ]

    events = fuse.from_maxwell(kafka(spark, values), COLUMNS, keys=["id"], table="t")

    found = rows(events)
    assert [(row.id, row.name, row["_op"], row["_unset"]) for row in found[:6]] == [
        (1, "a", "u", []),
        (1, "a", "d", None),
        (2, "b", "u", []),
        (2, "b", "u", []),
        (2, None, "u", ["name"]),
        (2, "b", "d", None),
    ]
    in_order = [row["_seq"] for row in found[1:6]]
    assert in_order[0] == in_order[1] < in_order[2] < in_order[3] < in_order[4]
    assert [row["_error"] for row in found[6:]] == [
        "unknown op: replace",
        "unreadable",
        "no sequence",
        "unknown field: more",
        "unreadable",
    ]


def canal(kind: str, data: Any, old: Any = None, **more: Any) -> dict[str, Any]:
    known = {"database": "d", "table": "t", "type": kind, "isDdl": False, "data": data, "old": old}
    return {**known, **more}


def test_canal(spark: SparkSession) -> None:
    values = [
        canal("INSERT", [{"id": "1", "name": "a", "b": "\xff\x00"}, {"id": "2", "name": None}]),
        canal("UPDATE", [{"id": "3"}, {"id": "2"}], [{"id": "1"}, {"name": "x"}]),
        canal("UPDATE", [{"id": "3"}, {"id": "2"}], [{"id": "1"}]),
        canal("DELETE", [{"id": "2", "at": "2024-01-01 00:00:00"}]),
        canal("TRUNCATE", None, isDdl=True),
        canal("ALTER", None, isDdl=True),
        canal("TIDB_WATERMARK", None),
        canal("MIGRATE", [{"id": "1"}]),
        canal("INSERT", []),
        canal("INSERT", [{"id": "1", "b": "€"}]),
        canal("INSERT", [{"id": "1", "at": "20240101"}]),
        {},
    ]
    columns = "id bigint, name string, b binary, at timestamp_ntz"

    found = rows(fuse.from_canal(kafka(spark, values), columns, keys=["id"]))

    changes = [row for row in found if row["_op"] in {"u", "d"}]
    assert sorted((sequence(row)[:2], row.id, row["_op"]) for row in changes) == [
        ((0, 0), 1, "u"),
        ((0, 1), 2, "u"),
        ((1, 0), 1, "d"),
        ((1, 0), 3, "u"),
        ((1, 1), 2, "u"),
        ((3, 0), 2, "d"),
    ]
    assert bytes(next(row.b for row in found if row.b)) == b"\xff\x00"
    assert [row["_error"] for row in found if row["_error"]] == [
        "unreadable",
        "unknown op: MIGRATE",
        "unreadable",
        'failed cast: b="€"',
        'failed cast: at="20240101"',
        "unknown op",
    ]
    assert [row["_op"] for row in found].count("t") == 1


def dms(operation: str, data: Any, record: str = "data", before: Any = None) -> dict[str, Any]:
    metadata = {"operation": operation, "record-type": record}
    return {"data": data, "before-image": before, "metadata": metadata}


def test_dms(spark: SparkSession) -> None:
    values = [
        dms("insert", {"id": 1, "day": "2024-01-31"}),
        dms("update", {"id": 2}, before={"id": 1, "name": "a"}),
        dms("truncate-table", None, "control"),
        dms("rename-table", None, "control"),
        dms("insert", {"id": 1, "day": 19000}),
        dms("refresh", {"id": 1}),
        dms("delete", None),
    ]
    columns = COLUMNS + ", day date"
    messages = kafka(spark, values)

    found = rows(fuse.from_dms(messages, columns, keys=["id"]))
    whole = rows(fuse.from_dms(messages, columns, keys=["id"], missing="null"))

    assert [(row.id, row.day, row["_op"], row["_unset"]) for row in found[:4]] == [
        (1, date(2024, 1, 31), "u", ["name"]),
        (1, None, "d", None),
        (2, None, "u", ["name", "day"]),
        (None, None, "t", None),
    ]
    assert [row["_error"] for row in found[4:]] == [
        'failed cast: day="19000"',
        "unknown op: refresh",
        "unreadable",
    ]
    assert [row["_unset"] for row in whole[:3]] == [[], None, []]


def test_keys_are_asked_for(spark: SparkSession) -> None:
    messages = kafka(spark, [])

    for reader in (fuse.from_maxwell, fuse.from_canal, fuse.from_dms):
        with pytest.raises(fuse.InvalidInputError, match="keys"):
            reader(messages, COLUMNS, keys=[])


def test_a_change_feed_gives_the_table_at_each_version(spark: SparkSession, tmp_path: Path) -> None:
    table = fuse.Table.create(
        tmp_path / "table", pa.schema([("id", pa.int64()), ("a.b", pa.string())])
    )
    table.append(pa.table({"id": [1, 2, 3], "a.b": ["x", "y", "z"]}))
    table.update("id = 2", {"a.b": "w"})
    table.update("id = 1", {"id": 7})
    table.delete("id = 3")
    feed = spark.read.format("fuse").option("feed", "changes").option("startingVersion", "0")

    events = rows(fuse.from_changes(feed.load(str(tmp_path / "table"))))

    assert {row["_error"] for row in events} == {None}
    kept: dict[int, str] = {}
    for row in sorted(events, key=lambda row: tuple(row["_seq"])):
        if row["_op"] == "d":
            kept.pop(row.id, None)
        else:
            kept[row.id] = row["a.b"]
    assert kept == {2: "w", 7: "x"}


def test_the_images_before_an_update_may_be_dropped(spark: SparkSession) -> None:
    feed = "id int, name string, _change_type string, _commit_version bigint"
    data = [
        (1, "a", "update_preimage", 4),
        (1, "b", "update_postimage", 4),
        (2, "c", "delete", 4),
        (3, "d", "moved", 4),
        (3, "d", None, 4),
        (4, "e", "insert", None),
    ]
    changes = spark.createDataFrame(data, feed)

    dropped = fuse.from_changes(changes, preimages="drop").collect()

    assert fuse.from_changes(changes).count() == len(data)
    assert [(row.id, row["_op"], row["_error"]) for row in dropped] == [
        (1, "u", None),
        (2, "d", None),
        (None, None, "unknown op: moved"),
        (None, None, "unknown op"),
        (None, None, "no sequence"),
    ]
    assert [row["_seq"] and tuple(row["_seq"]) for row in dropped[:2]] == [(4, 1), (4, 0)]
    raw = json.loads(dropped[2]["_raw"])
    assert raw == {"id": 3, "name": "d", "_change_type": "moved", "_commit_version": 4}
    with pytest.raises(fuse.InvalidInputError, match="no change feed"):
        fuse.from_changes(spark.range(1))
    with pytest.raises(fuse.InvalidInputError):
        fuse.from_changes(changes, preimages="keep")


def test_a_stream_is_read(spark: SparkSession, tmp_path: Path) -> None:
    kafka(spark, [{"op": "x"}, None]).write.parquet(str(tmp_path / "topic"))
    stream = spark.readStream.schema(kafka(spark, []).schema).parquet(str(tmp_path / "topic"))
    events = fuse.from_debezium(stream, COLUMNS)

    query = (
        events.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "events"))
    )
    query.awaitTermination(PATIENCE_S)

    assert ops(spark.read.parquet(str(tmp_path / "events"))) == [(None, None, "unknown op: x")]


def test_zones_of_texts_are_stated(spark: SparkSession) -> None:
    value = maxwell("insert", {"id": 1, "at": "2024-07-01 00:00:00", "day": "2024-07-01 00:00:00"})
    columns = "id bigint, at timestamp_ntz, day date"

    (row,) = rows(fuse.from_maxwell(kafka(spark, [value]), columns, keys=["id"]))

    assert (row["at"], row.day) == (datetime(2024, 7, 1), date(2024, 7, 1))  # noqa: DTZ001
