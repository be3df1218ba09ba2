"""Messages of Debezium.

Rules:
- A message is passed over only if its whole shape says what it is: a tombstone, a heartbeat, a
  message of the transaction or the schema-change topic, a logical message (`m`). Any other one
  is an event.
- What a value means is taken from the schema in the message, if it has one.
- A document of MongoDB is whole: a field that it lacks is null. Updates without the document give
  the fields that they name, and the key is the message's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fuse_stream.cdc import json_text, sequence
from fuse_stream.cdc.extended_json import plain
from fuse_stream.cdc.json_text import Json, fields_of, text_of
from fuse_stream.cdc.message import (
    DELETE,
    TRUNCATE,
    UNKNOWN_KIND,
    UNREADABLE,
    UPSERT,
    Event,
    Image,
    Kind,
    Message,
    event_in,
    has_other_key,
    unknown_kind,
    unknown_op,
    unreadable,
)

_OPS = {"c": UPSERT, "u": UPSERT, "r": UPSERT, "d": DELETE, "t": TRUNCATE}
_UPDATE, _MESSAGE = "u", "m"
_MONGO = "mongodb"
_MONGO_TIME = "io.debezium.time.Timestamp"
_MONGO_KIND = Kind(type=_MONGO, logical=_MONGO_TIME, element=Kind(type=_MONGO, logical=_MONGO_TIME))
_ID = "_id"
_TIMES = frozenset({"ts_ms", "ts_us", "ts_ns"})
_TRANSACTION = frozenset({"status", "id", "event_count", "data_collections"})
_SCHEMA_CHANGE = frozenset({"source", "databaseName", "ddl"})


def events_of(message: Message, *, keys: tuple[str, ...], by_offset: bool) -> Iterator[Event]:
    """Yield the events of a message; two for an update that changes the key.

    Args:
        message: what Kafka gives.
        keys: the columns of the key; if there are none, no update is known to change it.
        by_offset: Kafka's offset is the sequence.
    """
    if message.value is None:
        return
    try:
        event = event_in(message.value)
    except ValueError:
        yield unreadable()
        return
    root, schema = _envelope(event)
    if root is None and schema is not None:
        return  # a tombstone
    if not isinstance(root, dict):
        yield unreadable()
        return
    code, source = text_of(root, "op"), fields_of(root.get("source"))
    if code == _MESSAGE or (code is None and _is_no_event(root)):
        return
    op = _OPS.get(code or "")
    position = sequence.by_offset(message.offset) if by_offset else sequence.of_debezium(source)
    if op is None:
        yield Event(op=None, sequence=position, fault=unknown_op(code))
        return
    is_mongo = text_of(source, "connector") == _MONGO
    before, after = (_row(root.get(name), is_mongo=is_mongo) for name in ("before", "after"))
    kind_of = _kind_of_mongo if is_mongo else _kind_of(schema)
    if op == UPSERT and has_other_key(before, after, keys):
        yield Event(op=DELETE, sequence=position, image=before, kind_of=kind_of)
    image = after
    if op == DELETE:
        image = before
    if image is None and op != TRUNCATE:
        image = _image_by_key(root, message.key, op, is_mongo=is_mongo)
    is_broken = (op == UPSERT and image is None) or (
        op == DELETE and before is None and root.get("before") is not None
    )
    yield Event(
        op=op,
        sequence=position,
        image=image,
        fault=UNREADABLE if is_broken else None,
        is_whole=is_mongo and after is not None,
        kind_of=kind_of,
    )


def _envelope(event: Json) -> tuple[Json, dict[str, Any] | None]:
    """Return the envelope, and the fields around it if it is a payload."""
    if isinstance(event, dict) and "payload" in event and event.get("op") is None:
        return event["payload"], event
    return event, None


def _is_no_event(root: dict[str, Any]) -> bool:
    """Return true for heartbeats, transactions and changes of schemas."""
    parts = root.keys()
    is_heartbeat = "ts_ms" in parts and parts <= _TIMES
    is_transaction = (
        text_of(root, "status") in {"BEGIN", "END"}
        and "data_collections" in parts
        and parts <= _TRANSACTION | _TIMES
    )
    return is_heartbeat or is_transaction or parts >= _SCHEMA_CHANGE


def _row(value: Json, *, is_mongo: bool) -> Image | None:
    """Return a row's fields; MongoDB's row is a text with a document."""
    return _document(value) if is_mongo else fields_of(value)


def _document(value: Json) -> Image | None:
    try:
        return fields_of(plain(json_text.parse_nested(value)))
    except ValueError:
        return None


def _image_by_key(
    root: dict[str, Any], key: bytes | None, op: str, *, is_mongo: bool
) -> Image | None:
    """Return what the message's key says of a row, with the fields that an update names."""
    fields = _key_fields(key, is_mongo=is_mongo)
    if op == DELETE:
        return fields
    changed = _changed_fields(root) if is_mongo and text_of(root, "op") == _UPDATE else None
    return None if fields is None or changed is None else {**fields, **changed}


def _key_fields(key: bytes | None, *, is_mongo: bool) -> Image | None:
    """Return the fields of the message's key; MongoDB's is the text of a document's id."""
    try:
        found = fields_of(event_in(key))
    except ValueError:
        return None
    fields = found and (fields_of(found.get("payload")) or found)
    if not is_mongo or fields is None:
        return fields
    try:
        identity = plain(json_text.parse_nested(fields.get("id")))
    except ValueError:
        return None
    return None if identity is None else {_ID: identity}


def _changed_fields(root: dict[str, Any]) -> Image | None:
    """Return what an update without its document sets, and as null what it removes.

    None if it cuts lists off, which cannot be followed without the document.
    """
    described = fields_of(root.get("updateDescription"))
    if described is None or described.get("truncatedArrays"):
        return None
    updated = described.get("updatedFields")
    fields = {} if updated is None else _document(updated)
    if fields is None:
        return None
    removed = dict.fromkeys(described.get("removedFields") or ())
    return {name: of for name, of in (removed | fields).items() if name != _ID}


def _kind_of_mongo(_: str) -> Kind:
    return _MONGO_KIND


def _kind_of(wrapper: dict[str, Any] | None) -> Callable[[str], Kind]:
    """Return what looks a column up in the schema that a message has."""
    schema = fields_of((wrapper or {}).get("schema"))
    for part in _objects((schema or {}).get("fields")):
        if part.get("field") in {"before", "after"}:
            fields = {text_of(field, "field"): field for field in _objects(part.get("fields"))}
            return lambda name: _kind(fields.get(name))
    return unknown_kind


def _kind(field: dict[str, Any] | None) -> Kind:
    if field is None:
        return UNKNOWN_KIND
    return Kind(
        type=text_of(field, "type"),
        logical=text_of(field, "name"),
        scale=text_of(fields_of(field.get("parameters")), "scale"),
        element=_kind(fields_of(field.get("items"))),
    )


def _objects(value: Json) -> list[dict[str, Any]]:
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []
