"""Messages of AWS Database Migration Service.

Source: "Using Apache Kafka as a target" of the AWS DMS user guide.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fuse_stream.cdc import json_text, sequence
from fuse_stream.cdc.json_text import Json, fields_of, text_of
from fuse_stream.cdc.message import (
    DELETE,
    TRUNCATE,
    UNREADABLE,
    UPSERT,
    Event,
    Message,
    has_other_key,
    is_of_table,
    row_before,
    unknown_op,
)

_UPDATE, _CONTROL = "update", "control"
_OPS = {"load": UPSERT, "insert": UPSERT, _UPDATE: UPSERT, "delete": DELETE}
_OPS |= {"truncate-table": TRUNCATE, "TruncateTable": TRUNCATE}


def events_of(
    event: Json,
    message: Message,
    *,
    keys: tuple[str, ...],
    table: str | None,
    is_whole: bool,
    before_image: str,
) -> Iterator[Event]:
    """Yield the event of a message; two for an update that changes the key.

    Args:
        event: the value of the message.
        message: what Kafka gives.
        keys: the columns of the key.
        table: the events of others are passed over, unless it is None.
        is_whole: a column that is not in the event is null.
        before_image: the field that has old values.
    """
    fields = fields_of(event) or {}
    metadata = fields_of(fields.get("metadata")) or {}
    code = text_of(metadata, "operation")
    op = _OPS.get(code or "")
    if text_of(metadata, "record-type") == _CONTROL and op != TRUNCATE:
        return
    database, name = text_of(metadata, "schema-name"), text_of(metadata, "table-name")
    if not is_of_table(table, database, name):
        return
    position = sequence.by_offset(message.offset)
    data, old = fields_of(fields.get("data")), _nested(fields.get(before_image))
    if op is None or (data is None and op != TRUNCATE):
        fault = unknown_op(code) if op is None else UNREADABLE
        yield Event(op=op, sequence=position, fault=fault)
        return
    if data is not None and code == _UPDATE and has_other_key(old, data, keys):
        yield Event(op=DELETE, sequence=position, image=row_before(data, old))
    yield Event(op=op, sequence=position, image=data, is_whole=is_whole)


def _nested(value: Json) -> dict[str, Any] | None:
    try:
        return fields_of(json_text.parse_nested(value))
    except ValueError:
        return None
