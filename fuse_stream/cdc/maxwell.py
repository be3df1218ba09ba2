"""Messages of Maxwell's daemon.

Source: docs/dataformat.md of zendesk/maxwell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fuse_stream.cdc import sequence
from fuse_stream.cdc.json_text import Json, fields_of, text_of
from fuse_stream.cdc.message import (
    DELETE,
    UNREADABLE,
    UPSERT,
    Event,
    Message,
    has_other_key,
    is_of_table,
    row_before,
    unknown_op,
)

_UPDATE = "update"
_OPS = {"insert": UPSERT, _UPDATE: UPSERT, "bootstrap-insert": UPSERT, "delete": DELETE}
_NO_EVENT = re.compile(
    "bootstrap-(?:start|complete)|heartbeat|(?:table|database)-(?:create|alter|drop)"
)


def events_of(
    event: Json, message: Message, *, keys: tuple[str, ...], table: str | None, by_offset: bool
) -> Iterator[Event]:
    """Yield the event of a message; two for an update that changes the key.

    Args:
        event: the value of the message.
        message: what Kafka gives.
        keys: the columns of the key.
        table: the events of others are passed over, unless it is None.
        by_offset: Kafka's offset is the sequence.
    """
    fields = fields_of(event) or {}
    code = text_of(fields, "type")
    if code is not None and _NO_EVENT.fullmatch(code):
        return
    database, name = text_of(fields, "database"), text_of(fields, "table")
    if not is_of_table(table, database, name):
        return
    op = _OPS.get(code or "")
    position = sequence.by_offset(message.offset) if by_offset else sequence.of_maxwell(fields)
    data, old = fields_of(fields.get("data")), fields_of(fields.get("old"))
    if op is None or data is None:
        fault = unknown_op(code) if op is None else UNREADABLE
        yield Event(op=op, sequence=position, fault=fault)
        return
    if code == _UPDATE and has_other_key(old, data, keys):
        yield Event(op=DELETE, sequence=position, image=row_before(data, old))
    yield Event(op=op, sequence=position, image=data)
