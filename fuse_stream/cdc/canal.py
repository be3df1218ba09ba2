"""Messages of Canal.

Source: FlatMessage.java and MQMessageUtils.java of alibaba/canal. A message has the rows of one
event of the binlog, all values as text, and no position in the binlog.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fuse_stream.cdc import sequence
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

_UPDATE = "UPDATE"
_OPS = {"INSERT": UPSERT, _UPDATE: UPSERT, "DELETE": DELETE, "TRUNCATE": TRUNCATE}
_DDL = frozenset({"CREATE", "ALTER", "ERASE", "QUERY", "RENAME", "CINDEX", "DINDEX"})
"""Canal's types of events that change a schema (`EventType` of its protocol)."""
_WATERMARK = "TIDB_WATERMARK"


def events_of(
    event: Json, message: Message, *, keys: tuple[str, ...], table: str | None
) -> Iterator[Event]:
    """Yield the events of a message: one a row, two for an update that changes the key.

    Args:
        event: the value of the message.
        message: what Kafka gives.
        keys: the columns of the key.
        table: the events of others are passed over, unless it is None.
    """
    fields = fields_of(event) or {}
    code = text_of(fields, "type")
    if code == _WATERMARK or (code in _DDL and text_of(fields, "isDdl") == "true"):
        return
    database, name = text_of(fields, "database"), text_of(fields, "table")
    if not is_of_table(table, database, name):
        return
    op = _OPS.get(code or "")
    data, olds = _rows(fields.get("data")), _rows(fields.get("old"))
    # Canal leaves old values out where nothing changed: then it is not known whose the others are.
    is_mismatch = code == _UPDATE and 0 < len(olds) < len(data)
    if op in {None, TRUNCATE} or not data or is_mismatch:
        fault = unknown_op(code) if op is None else None if op == TRUNCATE else UNREADABLE
        yield Event(op=op, sequence=sequence.by_offset(message.offset), fault=fault)
        return
    for index, row in enumerate(data):
        position = sequence.by_offset(message.offset, index)
        old = olds[index] if code == _UPDATE and index < len(olds) else None
        if row is not None and has_other_key(old, row, keys):
            yield Event(op=DELETE, sequence=position, image=row_before(row, old))
        fault = UNREADABLE if row is None else None
        yield Event(op=op, sequence=position, image=row, fault=fault)


def _rows(value: Json) -> list[dict[str, Any] | None]:
    return [fields_of(part) for part in value] if isinstance(value, list) else []
