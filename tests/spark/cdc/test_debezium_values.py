"""What the values in Debezium's messages mean, with their schema and without it."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

import fuse_stream as fuse
from tests.spark.cdc.recorded import debezium, kafka, rows, with_schema

DECIMAL = "org.apache.kafka.connect.data.Decimal"
ANY_SCALE = "io.debezium.data.VariableScaleDecimal"
TIME = "io.debezium.time."
NOON = datetime(2024, 2, 29, 12, 0, 0, 123456, UTC)
NOON_US = int(NOON.timestamp()) * 1_000_000 + 123456
UNKNOWN = "__debezium_unavailable_value"
ZONES = ("UTC", "America/New_York")


def in_bytes(unscaled: int) -> str:
    """Return an integer as `java.math.BigInteger.toByteArray` has it, in base64."""
    length = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    return base64.b64encode(unscaled.to_bytes(length, "big", signed=True)).decode()


def field(name: str, type_name: str, logical: str | None = None, **more: Any) -> dict[str, Any]:
    return {"field": name, "type": type_name, "name": logical, "optional": True, **more}


@pytest.fixture(params=[ZONES[0], *(pytest.param(z, marks=pytest.mark.long) for z in ZONES[1:])])
def strange(spark: SparkSession, request: pytest.FixtureRequest) -> SparkSession:
    """A session with settings that change what casts and JSON mean."""
    made = spark.newSession()
    is_odd = request.param != "UTC"
    made.conf.set("spark.sql.session.timeZone", request.param)
    made.conf.set("spark.sql.ansi.enabled", str(not is_odd).lower())
    made.conf.set("spark.sql.caseSensitive", str(is_odd).lower())
    made.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ" if is_odd else "TIMESTAMP_LTZ")
    made.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY" if is_odd else "CORRECTED")
    made.conf.set("spark.sql.json.enablePartialResults", str(not is_odd).lower())
    made.conf.set("spark.sql.decimalOperations.allowPrecisionLoss", str(not is_odd).lower())
    return made


@pytest.mark.long
def test_the_schema_in_a_message_says_what_its_values_mean(strange: SparkSession) -> None:
    fields = [
        field("price", "bytes", DECIMAL, parameters={"scale": "2"}),
        field("huge", "bytes", DECIMAL, parameters={"scale": "0"}),
        field("any", "struct", ANY_SCALE),
        field("told", "bytes", DECIMAL, parameters={"scale": "3"}),
        field("day", "int32", TIME + "Date"),
        field("ms", "int64", TIME + "Timestamp"),
        field("us", "int64", TIME + "MicroTimestamp"),
        field("ns", "int64", TIME + "NanoTimestamp"),
        field("zoned", "string", TIME + "ZonedTimestamp"),
        field("local", "int64", TIME + "MicroTimestamp"),
        field("connect", "int64", "org.apache.kafka.connect.data.Timestamp"),
        field(
            "prices",
            "array",
            items={"type": "bytes", "name": DECIMAL} | {"parameters": {"scale": "1"}},
        ),
        field("oracle_day", "int64", TIME + "Timestamp"),
        field("clock", "int64", TIME + "MicroTime"),
    ]
    after = {
        "price": in_bytes(-12345),
        "huge": in_bytes(-(10**38) + 1),
        "any": {"scale": 3, "value": in_bytes(1500)},
        "told": in_bytes(-5),
        "day": -1,
        "ms": NOON_US // 1000,
        "us": NOON_US,
        "ns": NOON_US * 1000 + 999,
        "zoned": "2024-02-29T13:00:00.123456+01:00",
        "local": NOON_US,
        "connect": 0,
        "prices": [in_bytes(15), None, in_bytes(-1)],
        "oracle_day": 86_400_000,
        "clock": 3_600_000_000,
    }
    columns = (
        "price decimal(10,2), huge decimal(38,0), any double, told string, day date, "
        "ms timestamp_ltz, us timestamp_ltz, ns timestamp_ltz, zoned timestamp_ltz, "
        "local timestamp_ntz, connect timestamp_ltz, prices array<decimal(5,1)>, "
        "oracle_day date, clock bigint"
    )

    (row,) = rows(fuse.from_debezium(kafka(strange, [with_schema(fields, after)]), columns))

    assert row["_error"] is None
    assert row.price == Decimal("-123.45")
    assert row.huge == Decimal(1 - 10**38)
    assert (row.any, row.told) == (1.5, "-0.005")
    assert (row.day, row.oracle_day) == (date(1969, 12, 31), date(1970, 1, 2))
    instants = [row[name].astimezone(UTC) for name in ("ms", "us", "ns", "zoned", "connect")]
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert instants == [NOON.replace(microsecond=123000), NOON, NOON, NOON, epoch]
    assert row.local == NOON.replace(tzinfo=None)
    assert row.prices == [Decimal("1.5"), None, Decimal("-0.1")]
    assert row.clock == 3_600_000_000


def test_without_a_schema_only_what_is_clear_is_read(strange: SparkSession) -> None:
    columns = "id int, amount decimal(10,2), at timestamp_ltz, day date, data binary, flag boolean"
    good = {"amount": "12.50", "at": NOON_US, "day": 19000, "data": "aGk_", "flag": True}
    texts = {"amount": 3, "at": "2024-02-29T12:00:00.123456Z", "day": "2022-01-08", "flag": "1"}
    bad: list[dict[str, Any]] = [
        {"amount": "1234"},  # a number, or three bytes in base64
        {"amount": "12.505"},
        {"amount": "12x"},
        {"at": 253_402_300_799_999},  # the year 9999 in ms, or 1978 in us
        {"at": "12:00"},
        {"at": "2024"},
        {"day": "2022-01-08T10:00:00"},
        {"data": "*"},
        {"flag": "maybe"},
        {"id": 2**31},
        {"id": "1.5"},
    ]
    values = [debezium({"id": 1, **part}) for part in (good, texts, *bad)]

    first, second, *failed = rows(fuse.from_debezium(kafka(strange, values), columns))

    assert (first.amount, first.day) == (Decimal("12.50"), date(2022, 1, 8))
    assert (second.amount, second.day) == (Decimal("3.00"), date(2022, 1, 8))
    assert first["at"].astimezone(UTC) == second["at"].astimezone(UTC) == NOON
    assert (bytes(first.data), first.flag, second.flag) == (b"hi?", True, True)
    assert second["_unset"] == ["data"]
    told = [f'failed cast: {name}="{value}"' for part in bad for name, value in part.items()]
    assert [row["_error"] for row in failed] == told
    assert {(row.id, row["_op"], row["_unset"]) for row in failed} == {(None, None, None)}


def test_what_is_stated_counts_where_no_schema_says_it(spark: SparkSession) -> None:
    after = {"amount": in_bytes(123456), "at": 253_402_300_799_999, "data": "6869"}
    columns = "amount decimal(10,3), at timestamp, data binary"
    events = fuse.from_debezium(
        kafka(spark, [debezium(after)]),
        columns,
        decimals="precise",
        time_precision="us",
        binary="hex",
    )

    (row,) = rows(events)

    assert (row.amount, bytes(row.data)) == (Decimal("123.456"), b"hi")
    assert row["at"].astimezone(UTC).year == 1978


def test_numbers_keep_all_their_digits(spark: SparkSession) -> None:
    text = '{"op":"c","source":{"connector":"postgresql","lsn":7},"after":{"a":%s,"b":%s,"c":%s}}'
    exact = text % ("12345678901234567890.123456789012345678", 2**63 - 1, "0.1")
    rounded = text % ("123456789012345678901234567890123456789012345.5", 1, 1)
    over = text % ("1", 2**63, "1")
    columns = "a decimal(38,18), b bigint, c double"

    first, second, third = rows(fuse.from_debezium(kafka(spark, [exact, rounded, over]), columns))

    assert first[:3] == (Decimal("12345678901234567890.123456789012345678"), 2**63 - 1, 0.1)
    assert second["_error"].startswith('failed cast: a="1234567890')
    assert third["_error"] == f'failed cast: b="{2**63}"'


def test_unavailable_and_missing_values_are_not_set(spark: SparkSession) -> None:
    columns = "id int, t string, b binary, l array<string>, n array<int>, m map<string,string>"
    hidden = {
        "t": UNKNOWN,
        "b": base64.b64encode(UNKNOWN.encode()).decode(),
        "l": [UNKNOWN],
        "n": list(UNKNOWN.encode()),
        "m": {UNKNOWN: UNKNOWN},
    }
    nulls = dict.fromkeys(hidden)
    values = [debezium({"id": 1, **hidden}), debezium({"id": 2}), debezium({"id": 3, **nulls})]

    found = rows(fuse.from_debezium(kafka(spark, values), columns))

    assert [row["_error"] for row in found] == [None] * 3
    assert [row["_unset"] for row in found] == [[*hidden], [*hidden], []]
    assert found[0][:6] == (1, None, None, None, None, None)


def test_nested_values_are_read_whole_or_not_at_all(spark: SparkSession) -> None:
    columns = "id int, s struct<a:int,d:date,n:struct<x:string>>, l array<struct<a:int>>"
    columns += ", m map<string,array<int>>, j string"
    good = {
        "s": {"a": 1, "d": 19000, "n": {"x": "ü😀"}},
        "l": [{"a": 1}, None, {}],
        "m": {"k": [1, None]},
        "j": {"any": [1, {"x": None}]},
    }
    bad: list[dict[str, Any]] = [
        {"s": {"a": "x"}},
        {"s": {"b": 1}},
        {"l": [{"a": 1}, {"a": "x"}]},
        {"m": {"k": [1, "x"]}},
        {"l": 7},
    ]
    values = [debezium({"id": 1, **part}) for part in (good, *bad)]

    first, *failed = rows(fuse.from_debezium(kafka(spark, values), columns))

    assert first["_error"] is None
    assert first.s.asDict(recursive=True) == {"a": 1, "d": date(2022, 1, 8), "n": {"x": "ü😀"}}
    assert [None if item is None else item.a for item in first.l] == [1, None, None]
    assert first.m == {"k": [1, None]}
    assert json.loads(first.j) == good["j"]
    assert [row["_error"].partition("=")[0] for row in failed] == [
        f"failed cast: {name}" for part in bad for name in part
    ]


def test_documents_of_mongodb_are_made_plain(spark: SparkSession) -> None:
    source = {"connector": "mongodb", "ts_ms": 1000, "ord": 1}
    document = {
        "_id": {"$oid": "5d505646cf6d4fe581014ab2"},
        "n": {"$numberLong": "9007199254740993"},
        "d": {"$numberDecimal": "1234"},
        "at": {"$date": 1709208000123},
        "at2": {"$date": "2024-02-29T12:00:00.123Z"},
        "at3": {"$date": {"$numberLong": "1709208000123"}},
        "b": {"$binary": {"base64": "aGk=", "subType": "00"}},
        "l": [{"$numberInt": "1"}, {"$numberInt": "2"}],
        "s": 'no {"$oid": "x"} here',
    }
    columns = "_id string, n bigint, d decimal(10,2), at timestamp, at2 timestamp, at3 timestamp"
    columns += ", b binary, l array<int>, s string, gone string"
    text = json.dumps(document)
    key = {"payload": {"id": json.dumps(document["_id"])}}
    update = {"updatedFields": '{"n": {"$numberLong": "2"}}', "removedFields": ["s", "s", "n"]}
    cut = {**update, "truncatedArrays": [{"field": "l", "size": 1}]}
    dotted = {"updatedFields": '{"a.b": 1}', "removedFields": None}
    values = [
        debezium(text, op="r", source=source),
        debezium(None, op="u", source=source, updateDescription=update),
        debezium(None, op="d", source=source),
        debezium(None, op="u", source=source, updateDescription=cut),
        debezium(None, op="u", source=source, updateDescription=dotted),
        debezium(None, op="u", source=source, patch='{"$set": {"n": 1}}'),
    ]

    whole, partial, delete, *poison = rows(
        fuse.from_debezium(kafka(spark, values, [key] * 6), columns)
    )

    moment = datetime(2024, 2, 29, 12, 0, 0, 123000, UTC)
    assert whole["_error"] is None
    assert (whole["_id"], whole.n, whole.d) == ("5d505646cf6d4fe581014ab2", 2**53 + 1, 1234)
    assert [whole[name].astimezone(UTC) for name in ("at", "at2", "at3")] == [moment] * 3
    assert (bytes(whole.b), whole.l, whole.s) == (b"hi", [1, 2], document["s"])
    assert (whole["_unset"], whole.gone) == ([], None)
    assert (partial["_id"], partial.n, partial.s) == ("5d505646cf6d4fe581014ab2", 2, None)
    assert partial["_unset"] == ["d", "at", "at2", "at3", "b", "l", "gone"]
    assert (delete["_id"], delete["_op"]) == ("5d505646cf6d4fe581014ab2", "d")
    assert [row["_error"] for row in poison] == ["unreadable", "unknown field: a.b", "unreadable"]
