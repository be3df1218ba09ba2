"""Whatever a message is, it ends as rows: never as an exception, and nothing is passed over."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fuse_stream.cdc import canal, debezium, dms, json_text, maxwell
from fuse_stream.cdc.message import Message
from fuse_stream.cdc.rows import Reader, Reading
from fuse_stream.cdc.values import ADAPTIVE, Form
from fuse_stream.format.arrow import columns_of_arrow
from tests.cdc.readings import UNAVAILABLE

RECORDED = Path(__file__).parent.parent / "spark" / "cdc" / "messages"
READERS: Mapping[str, Reader] = {
    "maxwell": partial(maxwell.events_of, keys=("id",), table=None, by_offset=False),
    "canal": partial(canal.events_of, keys=("id",), table=None),
    "dms": partial(
        dms.events_of, keys=("id",), table=None, is_whole=False, before_image="before-image"
    ),
} | dict.fromkeys(
    ("postgresql", "mysql", "sqlserver", "oracle", "mongodb"),
    partial(debezium.events_of, keys=("id",), by_offset=False),
)
PARSERS = dict.fromkeys(("maxwell", "canal", "dms"), json_text.parse)
NAMES = "first_name last_name email m c comment name description weight age attributes".split()
NAMES += "ID FIRST_NAME LAST_NAME EMAIL".split()
TEXTS = pa.schema(
    [("id", pa.int32()), ("_id", pa.int64()), *((name, pa.string()) for name in NAMES)]
)
ODD_TYPES = pa.schema(
    [
        ("id", pa.int32()),
        ("_id", pa.int64()),
        ("first_name", pa.string()),
        ("last_name", pa.list_(pa.string())),
        ("email", pa.binary()),
        ("m", pa.float32()),
        ("c", pa.timestamp("us", tz="UTC")),
        ("comment", pa.struct([("a", pa.date32())])),
        ("name", pa.map_(pa.string(), pa.decimal128(5, 2))),
        ("weight", pa.decimal128(10, 2)),
        ("age", pa.timestamp("us")),
        ("attributes", pa.bool_()),
    ]
)
ODD: list[Any] = [None, True, 0, -1, 2**70, 1e300, "", "x", "{", "[1]", "\u0000", [], {}, [[{}]]]
ODD += [{"$oid": {}}, {"a": "2024-01-01"}, {"value": "AA==", "scale": 999}, {"$date": None}]
ROUNDS = 400


def mutated(value: Any, draw: random.Random) -> Any:
    """Return JSON with a part that is another one, is gone, or is new."""
    if draw.random() < 0.15 or not isinstance(value, dict | list) or not value:
        return draw.choice(ODD)
    if isinstance(value, list):
        at = draw.randrange(len(value))
        return [mutated(part, draw) if index == at else part for index, part in enumerate(value)]
    name = draw.choice([*value])
    if draw.random() < 0.15:
        return {other: part for other, part in value.items() if other != name}
    if draw.random() < 0.1:
        return {**value, draw.choice(["op", "payload", "schema", "x"]): draw.choice(ODD)}
    return {**value, name: mutated(value[name], draw)}


def messages(system: str, draw: random.Random) -> Iterator[Message]:
    listed = json.loads((RECORDED / f"{system}.json").read_text())
    for at in range(ROUNDS):
        one = draw.choice(listed)
        value = one["value"]
        if isinstance(value, str):
            value = json.loads(value)
        for _ in range(draw.randrange(3)):
            value = mutated(value, draw)
        text = json.dumps(value, separators=(",", ":")).encode()
        if draw.random() < 0.1:
            text = text[: draw.randrange(len(text) + 1)]
        key = one["key"] if draw.random() < 0.5 else mutated(one["key"], draw)
        yield Message(text, json.dumps(key).encode(), "topic", 0, at)


@pytest.mark.parametrize("system", READERS)
@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_message_is_a_row_or_says_that_it_is_no_event(system: str, seed: int) -> None:
    form = Form(numbers_as_times=ADAPTIVE, decimals=ADAPTIVE)
    schema = TEXTS if seed else ODD_TYPES
    reading = Reading(
        parse=PARSERS.get(system, debezium.payload_of),
        read=READERS[system],
        columns=columns_of_arrow(schema),
        form=form,
        keys=("id",),
        unavailable=UNAVAILABLE,
    )
    given = list(messages(system, random.Random(seed)))

    rows = reading.rows(given).to_pylist()

    seen = set()
    for row in rows:
        at = row["_source"]["offset"]
        seen.add(at)
        assert row["_raw"] == (given[at].value or b"").decode()
        is_good = row["_error"] is None
        assert (row["_op"] in {"u", "d", "t"}) == is_good
        assert is_good <= (row["_seq"] is not None)
        assert (row["_unset"] is not None) == (row["_op"] == "u")
        if not is_good:
            assert {row[name] for name in schema.names} == {None}
    passed = [given[at].value for at in range(len(given)) if at not in seen]
    assert [text for text in passed if not _is_no_event(system, json.loads(text or b""))] == []
    assert schema is ODD_TYPES or {row["_op"] for row in rows} >= {"u", None}


def _is_no_event(system: str, event: Any) -> bool:
    match system, event:
        case "maxwell", {"type": str(kind)}:
            return kind.startswith(("bootstrap-", "table-", "database-", "heartbeat"))
        case "canal", {"type": "TIDB_WATERMARK"} | {"isDdl": True}:
            return True
        case "dms", {"metadata": {"record-type": "control"}}:
            return True
        case _, {"payload": None}:
            return True
        case _, {"payload": {"op": "m"}} | {"op": "m"}:
            return True
        case _, {"payload": {"ts_ms": _, **more}} | {"ts_ms": _, **more}:
            return more.keys() <= {"ts_us", "ts_ns", "schema"}
    return False
