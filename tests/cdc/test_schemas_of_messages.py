"""The schema of a Debezium message is read once; what a message says does not depend on it."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.cdc.readings import debezium_reading, rows_of

DECIMAL = "org.apache.kafka.connect.data.Decimal"
COLUMNS = pa.schema([("id", pa.int64()), ("price", pa.decimal128(10, 2))])
COMPACT = (",", ":")


def schema(scale: int, **more: Any) -> dict[str, Any]:
    price = {"type": "bytes", "field": "price", "name": DECIMAL} | {
        "parameters": {"scale": str(scale)}
    }
    fields = [{"type": "int64", "field": "id"}, price]
    return {"type": "struct", "fields": [{"field": "after", "fields": fields}], **more}


def payload(encoded: str, lsn: int = 1) -> dict[str, Any]:
    source = {"connector": "postgresql", "lsn": lsn}
    return {"after": {"id": 1, "price": encoded}, "source": source, "op": "c"}


def found(*texts: str) -> list[tuple[Any, Any]]:
    rows = rows_of(debezium_reading(COLUMNS), [text.encode() for text in texts])
    return [(row["price"], row["_error"]) for row in rows]


def test_each_message_has_its_own_schema() -> None:
    texts = [
        json.dumps({"schema": schema(scale), "payload": payload("AN4=")}, separators=separators)
        for scale in (0, 1, 2, 1)
        for separators in (COMPACT, None)
    ]

    scaled = [Decimal(text) for text in ("222.00", "22.20", "2.22", "22.20")]
    assert found(*texts) == [(price, None) for price in scaled for _ in range(2)]


def test_the_text_that_divides_a_message_may_be_within_its_parts() -> None:
    odd = {"schema": schema(1, doc='x,"payload":{'), "payload": payload("AN4=")}
    nested = {"schema": {**schema(1), "payload": 1, "z": 2}, "payload": payload("AN4=")}
    both = {"payload": payload("AN4="), "schema": schema(1)}

    texts = [json.dumps(one, separators=COMPACT) for one in (odd, nested, both)]

    assert found(*texts) == [(Decimal("22.20"), None)] * 3


def test_names_that_are_there_twice_are_refused_as_well() -> None:
    text = json.dumps({"schema": schema(1), "payload": payload("AN4=")}, separators=COMPACT)
    twice = [
        text[:-1] + ',"schema":null}',
        text[:-1] + ',"payload":null}',
        text[:-1] + ',"payload":null',
        text + "}",
        text.replace('"op"', '"op":"c","op"'),
    ]

    assert found(text, *twice, text) == [
        (Decimal("22.20"), None),
        *[(None, "unreadable")] * len(twice),
        (Decimal("22.20"), None),
    ]
