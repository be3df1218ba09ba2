"""What comes out for messages that are no rows, broken, or out of the ordinary."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, StructField, StructType

import fuse_stream as fuse
from tests.spark.cdc.recorded import KAFKA, debezium, kafka, ops, rows, sequence

COLUMNS = "id bigint, name string"


def test_each_broken_message_is_a_row_with_its_reason(spark: SparkSession) -> None:
    good = json.dumps(debezium({"id": 1, "name": "a"}))
    no_position = debezium({"id": 1}, source={"connector": "vitess", "lsn": 1})
    values: dict[Any, str | None] = {
        "": "unreadable",
        "null": "unreadable",
        "[1]": "unreadable",
        '"x"': "unreadable",
        good[:-1]: "unreadable",
        good + " x": "unreadable",
        good + good: "unreadable",
        good.replace('"name"', '"id"'): "unreadable",  # one name twice
        good.replace("{", "{'q': 1,", 1): "unreadable",
        b'{"op": "c\xff"}': "unreadable",
        '{"op":"c","source":{"connector":"postgresql","lsn":1},"after":7}': "unreadable",
        '{"op":"u","source":{"connector":"postgresql","lsn":1},"after":null}': "unreadable",
        '{"op":"d","source":{"connector":"postgresql","lsn":1},"before":[1]}': "unreadable",
        '{"id":1,"name":"a"}': "unknown op",  # flattened by ExtractNewRecordState
        '{"ts_ms":1,"id":1}': "unknown op",
        '{"op":"x"}': "unknown op: x",
        '{"op":"c","after":{"id":1}}': "no sequence",
        json.dumps(no_position): "no sequence",
        json.dumps(debezium({"id": 1, "more": 1, "x.y": 2})): "unknown field: more, x.y",
        json.dumps(debezium({"ID": 1})): "unknown field: ID",
        json.dumps(debezium({"id": "x", "name": "b"})): 'failed cast: id="x"',
        good: None,
    }

    found = rows(fuse.from_debezium(kafka(spark, values), COLUMNS))

    assert [row["_error"] for row in found] == [*values.values()]
    broken = [row for row in found if row["_error"]]
    assert {(row.id, row.name, row["_op"], row["_unset"]) for row in broken} == {(None,) * 4}
    raw = [row["_raw"] for row in found]
    kept = [value for value in values if isinstance(value, str)]
    assert [text for text in raw if not text.startswith("base64:")] == kept
    assert "base64:eyJvcCI6ICJj/yJ9" in raw
    assert [row["_source"].offset for row in found] == list(range(len(values)))


def test_only_messages_that_are_no_events_are_passed_over(spark: SparkSession) -> None:
    transaction = {"status": "BEGIN", "id": "571", "event_count": None, "data_collections": None}
    schema_change = {"source": {}, "databaseName": "d", "ddl": "CREATE", "tableChanges": []}
    values = [
        None,
        {"schema": None, "payload": None},
        {"ts_ms": 1},
        {"schema": {"type": "struct"}, "payload": {"ts_ms": 1}},
        {**transaction, "ts_ms": 1},
        {"ts_ms": 1, **schema_change},
        debezium(None, op="m", message={"prefix": "p", "content": "Ymfy"}),
        {**transaction, "name": "x"},
        {"status": "BEGIN", "id": "1"},
    ]

    assert ops(fuse.from_debezium(kafka(spark, values), COLUMNS)) == [
        (None, None, "unknown op"),
        (None, None, "unknown op"),
    ]


def test_deletes_and_truncates_have_no_faults_in_what_they_do_not_need(
    spark: SparkSession,
) -> None:
    values = [
        debezium(before={"id": 1, "name": None, "more": 1}, op="d"),
        debezium(op="d"),
        debezium(op="d"),
        debezium(op="t"),
        debezium(before={"id": 1, "amount": "x"}, op="d"),
    ]
    keys = [None, {"payload": {"id": 2}}, None, None, None]
    columns = "id bigint, amount decimal(10,2)"

    events = kafka(spark, values, keys)

    told = [(1, "d", None), (2, "d", None), (None, "d", None), (None, "t", None)]
    assert ops(fuse.from_debezium(events, columns, keys=["id"])) == [*told, (1, "d", None)]
    bad = (None, None, 'failed cast: amount="x"')
    assert ops(fuse.from_debezium(events, columns)) == [*told, bad]


def test_a_changed_key_is_a_delete_and_an_upsert_at_one_position(spark: SparkSession) -> None:
    values = [
        debezium({"id": 2, "name": "a"}, {"id": 1, "name": "a"}, op="u"),
        debezium({"id": 2, "name": "b"}, {"id": 2, "name": "a"}, op="u"),
        debezium({"id": 2, "name": "b"}, {"name": "a"}, op="u"),
    ]

    found = rows(fuse.from_debezium(kafka(spark, values), COLUMNS, keys=["id"]))

    assert [(row.id, row["_op"], row["_unset"]) for row in found] == [
        (1, "d", None),
        (2, "u", []),
        (2, "u", []),
        (2, "u", []),
    ]
    assert sequence(found[0]) == sequence(found[1]) == (100, 100, 0, 0, 0)


def test_positions_sort_as_the_source_orders_them(spark: SparkSession) -> None:
    def lsn(last_commit: str | None, own: int) -> dict[str, Any]:
        pair = json.dumps([last_commit, str(own)])
        return {"connector": "postgresql", "lsn": own, "sequence": pair}

    def mysql(file: str, pos: int, row: int) -> dict[str, Any]:
        return {"connector": "mysql", "file": file, "pos": pos, "row": row}

    in_order: list[list[dict[str, Any]]] = [
        # Committed after the snapshot at 100, logged before it.
        [lsn(None, 100), lsn("130", 90), lsn("130", 95), lsn("140", 92)],
        [mysql("b.000009", 900, 0), mysql("b.000010", 4, 0), mysql("b.000010", 4, 1)],
        [
            {"connector": "sqlserver", "commit_lsn": "00000009:0000000f:0001"},
            {"connector": "sqlserver", "commit_lsn": "0000000a:00000001:0001"}
            | {"change_lsn": "0000000a:00000001:0001", "event_serial_no": 1},
            {"connector": "sqlserver", "commit_lsn": "0000000a:00000001:0001"}
            | {"change_lsn": "0000000a:00000001:0001", "event_serial_no": 2},
            {"connector": "sqlserver", "commit_lsn": "0000000A:FFFFFFFF:0001"},
        ],
        [
            {"connector": "oracle", "scn": "100", "commit_scn": None},
            {"connector": "oracle", "scn": "90", "commit_scn": "101"},
            {"connector": "oracle", "scn": "9999999999999", "commit_scn": "9999999999999"},
        ],
        [{"connector": "mongodb", "ts_ms": 5, "ord": n} for n in (9, 10)],
    ]
    unreadable: list[dict[str, Any]] = [
        {"connector": "mysql", "file": "binlog", "pos": 1},
        {"connector": "sqlserver", "commit_lsn": "x"},
        {"connector": "sqlserver", "commit_lsn": "80000000:00000001:0001"},
        {"connector": "postgresql", "lsn": str(2**63)},
        {"connector": "postgresql", "lsn": None},
    ]
    values = [debezium({"id": 1}, source=one) for group in in_order for one in group]
    broken = [debezium({"id": 1}, source=one) for one in unreadable]

    found = rows(fuse.from_debezium(kafka(spark, [*values, *broken]), COLUMNS))

    good = iter(found)
    for group in in_order:
        # Without Kafka's offset, which goes up in any case.
        positions = [sequence(next(good))[:-1] for _ in group]
        assert positions == sorted(set(positions))
    assert [row["_error"] for row in good] == ["no sequence"] * len(unreadable)


def test_the_sequence_may_be_kafkas(spark: SparkSession) -> None:
    values = [debezium({"id": 1}, source={"gtid": "x"})] * 2
    events = fuse.from_debezium(kafka(spark, values), COLUMNS, sequence="offset")
    lost = kafka(spark, values).selectExpr("value", "CAST(NULL AS bigint) AS offset")

    assert [sequence(row) for row in rows(events)] == [(0, 0, 0, 0, 0), (1, 0, 0, 0, 1)]
    assert [
        row["_error"] for row in rows(fuse.from_debezium(lost, COLUMNS, sequence="offset"))
    ] == ["no sequence"] * 2


def test_fields_are_left_out_if_asked(spark: SparkSession) -> None:
    messages = kafka(spark, [debezium({"id": 1, "name": "a", "x": 1})])

    options: dict[str, Any]
    for options in ({"ignore": ["x"]}, {"ignore_fields": True}):
        (row,) = rows(fuse.from_debezium(messages, COLUMNS, **options))
        assert (row.id, row["_error"], row["_unset"]) == (1, None, [])


def test_odd_names_are_names(spark: SparkSession) -> None:
    odd = ["a.b", "`", "x y", "it's", '"', "$", "ü", "value", "op", "text_0", ""]
    schema = StructType([StructField(name, IntegerType()) for name in odd])
    after = {name: number for number, name in enumerate(odd)}

    (row,) = rows(fuse.from_debezium(kafka(spark, [debezium(after)]), schema))

    assert row["_error"] is None
    assert row[: len(odd)] == tuple(range(len(odd)))


def test_values_that_were_decoded_before_are_read(spark: SparkSession) -> None:
    source = "struct<connector:string,lsn:bigint>"
    row = "struct<id:bigint,name:string>"
    schema = f"value struct<before:{row},after:{row},source:{source},op:string>, offset bigint"
    data = [(((None), (1, None), ("postgresql", 5), "c"), 3), (None, 4)]

    (found,) = rows(fuse.from_debezium(spark.createDataFrame(data, schema), COLUMNS))

    assert (found.id, found.name, found["_unset"]) == (1, None, [])
    assert sequence(found) == (5, 5, 0, 0, 3)


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ("id bigint, _op string", {}),
        ("id bigint, id string", {}),
        ("id nothing", {}),
        ("", {}),
        (COLUMNS, {"sequence": "lsn"}),
        (COLUMNS, {"time_zone": "Nowhere"}),
        (COLUMNS, {"time_precision": "s"}),
        (COLUMNS, {"decimals": "double"}),
        (COLUMNS, {"binary": "raw"}),
        (COLUMNS, {"keys": "id"}),
        (COLUMNS, {"keys": ["no"]}),
        (COLUMNS, {"keys": []}),
        (COLUMNS, {"ignore": "x"}),
    ],
)
def test_a_wrong_argument_is_refused_at_once(
    spark: SparkSession, columns: str, options: dict[str, Any]
) -> None:
    messages = spark.createDataFrame([], KAFKA)

    with pytest.raises(fuse.InvalidInputError):
        fuse.from_debezium(messages, columns, **options)


def test_a_frame_in_which_no_message_can_be_an_event_is_refused(spark: SparkSession) -> None:
    flat = spark.createDataFrame([], "value struct<id:bigint,name:string>, offset bigint")
    alone = spark.createDataFrame([], "value string, topic string")

    with pytest.raises(fuse.InvalidInputError, match=r"no.* envelope.*'id', 'name'"):
        fuse.from_debezium(flat, COLUMNS)
    with pytest.raises(fuse.InvalidInputError, match=r"column offset.*'value', 'topic'"):
        fuse.from_debezium(alone, COLUMNS, sequence="offset")
    with pytest.raises(fuse.InvalidInputError, match="nearest='id'"):
        fuse.from_debezium(alone, COLUMNS, keys=["ID"])


def test_a_frame_that_is_not_kafkas_is_refused(spark: SparkSession) -> None:
    with pytest.raises(fuse.InvalidInputError, match="no column value"):
        fuse.from_debezium(spark.range(1), COLUMNS)
    with pytest.raises(fuse.InvalidInputError, match="cast the column"):
        fuse.from_debezium(spark.range(1).withColumnRenamed("id", "value"), COLUMNS)
    with pytest.raises(fuse.UnsupportedTypeError):
        fuse.from_debezium(spark.createDataFrame([], KAFKA), "v variant")
