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
from functools import lru_cache
from typing import Any, NamedTuple

from fuse_stream.cdc import json_text, sequence
from fuse_stream.cdc.extended_json import plain
from fuse_stream.cdc.json_text import Json, fields_of, text_of
from fuse_stream.cdc.message import (
    DELETE,
    TRUNCATE,
    UNKNOWN_KIND,
    UNREADABLE,
    UNREADABLE_EVENT,
    UPSERT,
    Event,
    Image,
    Kind,
    Message,
    has_other_key,
    unknown_kind,
    unknown_op,
)

KindOf = Callable[[str], Kind]
Payload = tuple[Json, KindOf | None]

_OPS = {"c": UPSERT, "u": UPSERT, "r": UPSERT, "d": DELETE, "t": TRUNCATE}
_UPDATE, _MESSAGE = "u", "m"
_MONGO = "mongodb"
_MONGO_TIME = "io.debezium.time.Timestamp"
_MONGO_KIND = Kind(type=_MONGO, logical=_MONGO_TIME, element=Kind(type=_MONGO, logical=_MONGO_TIME))
_ID = "_id"
_WITH_SCHEMA, _PAYLOAD = '{"schema":', ',"payload":'
_ALONE = '{"payload":'
"""A message without its schema."""
_TIMES = frozenset({"ts_ms", "ts_us", "ts_ns"})
_TRANSACTION = frozenset({"status", "id", "event_count", "data_collections"})
_SCHEMA_CHANGE = frozenset({"source", "databaseName", "ddl"})


def events_of(
    payload: Payload, message: Message, *, keys: tuple[str, ...], by_offset: bool
) -> Iterator[Event]:
    """Yield the events of a message; two for an update that changes the key.

    Args:
        payload: what `payload_of` returns of the message.
        message: what Kafka gives.
        keys: the columns of the key; if there are none, no update is known to change it.
        by_offset: Kafka's offset is the sequence.
    """
    root, kind_of = payload
    if root is None and kind_of is not None:
        return  # a tombstone
    if not isinstance(root, dict):
        yield UNREADABLE_EVENT
        return
    if _is_no_event(root):
        return
    source = fields_of(root.get("source"))
    is_mongo = text_of(source, "connector") == _MONGO
    yield from _changes(
        _Envelope(
            root=root,
            key=message.key,
            position=sequence.by_offset(message.offset)
            if by_offset
            else sequence.of_debezium(source),
            is_mongo=is_mongo,
            kind_of=_kind_of_mongo if is_mongo else kind_of or unknown_kind,
        ),
        keys,
    )


class _Envelope(NamedTuple):
    """What a message says beside its rows."""

    root: dict[str, Any]
    key: bytes | None
    """The message's."""
    position: sequence.Position | None
    is_mongo: bool
    kind_of: KindOf

    def row(self, name: str) -> Image | None:
        """Return a row's fields; MongoDB's row is a text with a document."""
        value = self.root.get(name)
        return _document(value) if self.is_mongo else fields_of(value)

    def event(self, op: str | None, image: Image | None = None, **more: Any) -> Event:
        return Event(op, self.position, image, kind_of=self.kind_of, **more)


def _changes(envelope: _Envelope, keys: tuple[str, ...]) -> Iterator[Event]:
    code = text_of(envelope.root, "op")
    op, before, after = _OPS.get(code or ""), envelope.row("before"), envelope.row("after")
    match op:
        case None:
            yield envelope.event(None, fault=unknown_op(code))
        case "t":
            yield envelope.event(op)
        case "d":
            is_broken = before is None and envelope.root.get("before") is not None
            image = _key_fields(envelope) if before is None else before
            yield envelope.event(op, image, fault=UNREADABLE if is_broken else None)
        case _:
            if has_other_key(before, after, keys):
                yield envelope.event(DELETE, before)
            image = _changed_row(envelope) if after is None else after
            fault = UNREADABLE if image is None else None
            is_whole = envelope.is_mongo and after is not None
            yield envelope.event(op, image, fault=fault, is_whole=is_whole)


def payload_of(text: str) -> Payload:
    """Return the envelope, and what its schema says of columns if it is a payload.

    Raises:
        ValueError: the text is no JSON.
    """
    if text.startswith(_WITH_SCHEMA):
        head, mark, tail = text.partition(_PAYLOAD)
        if mark:
            kind_of = _kind_of_head(head)
            if kind_of is not None:
                event = json_text.parse(_ALONE + tail)
                if isinstance(event, dict) and [*event] == ["payload"]:
                    return event["payload"], kind_of
    event = json_text.parse(text)
    if isinstance(event, dict) and "payload" in event and event.get("op") is None:
        return event["payload"], _kind_of(fields_of(event.get("schema")))
    return event, None


@lru_cache(maxsize=64)
def _kind_of_head(head: str) -> KindOf | None:
    """Return what a message's schema says of columns; None if the schema does not end here.

    Each message has its schema, and is mostly that: so it is read once.
    """
    try:
        return _kind_of(fields_of(json_text.parse(head.removeprefix(_WITH_SCHEMA))))
    except ValueError:
        return None


def _is_no_event(root: dict[str, Any]) -> bool:
    """Return true for heartbeats, transactions, changes of schemas and logical messages."""
    code, parts = text_of(root, "op"), root.keys()
    if code is not None:
        return code == _MESSAGE
    is_heartbeat = "ts_ms" in parts and parts <= _TIMES
    is_transaction = (
        text_of(root, "status") in {"BEGIN", "END"}
        and "data_collections" in parts
        and parts <= _TRANSACTION | _TIMES
    )
    return is_heartbeat or is_transaction or parts >= _SCHEMA_CHANGE


def _document(value: Json) -> Image | None:
    try:
        return fields_of(plain(json_text.parse_nested(value)))
    except ValueError:
        return None


def _changed_row(envelope: _Envelope) -> Image | None:
    """Return the key, and the fields that an update of a document names."""
    if not envelope.is_mongo or text_of(envelope.root, "op") != _UPDATE:
        return None
    fields, changed = _key_fields(envelope), _changed_fields(envelope.root)
    return None if fields is None or changed is None else {**fields, **changed}


def _key_fields(envelope: _Envelope) -> Image | None:
    """Return the fields of the message's key; MongoDB's is the text of a document's id."""
    try:
        found = fields_of(json_text.parse((envelope.key or b"").decode()))
        fields = found and (fields_of(found.get("payload")) or found)
        if not envelope.is_mongo or fields is None:
            return fields
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
    names = described.get("removedFields")
    removed = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    both: Image = dict.fromkeys(removed) | fields
    return {name: value for name, value in both.items() if name != _ID}


def _kind_of_mongo(_: str) -> Kind:
    return _MONGO_KIND


def _kind_of(schema: dict[str, Any] | None) -> KindOf:
    """Return what looks a column up in a schema."""
    for part in _objects((schema or {}).get("fields")):
        if text_of(part, "field") in {"before", "after"}:
            fields = _objects(part.get("fields"))
            kinds = {text_of(field, "field"): _kind(field) for field in fields}
            return lambda name: kinds.get(name, UNKNOWN_KIND)
    return unknown_kind


def _kind(field: dict[str, Any]) -> Kind:
    items = fields_of(field.get("items"))
    return Kind(
        type=text_of(field, "type"),
        logical=text_of(field, "name"),
        scale=text_of(fields_of(field.get("parameters")), "scale"),
        element=None if items is None else _kind(items),
    )


def _objects(value: Json) -> list[dict[str, Any]]:
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []
