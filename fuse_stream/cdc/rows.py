"""Rows of events: the columns of a table, what to do with them, their order, and their faults.

Rules:
- A row with a fault has no values. Its reason begins with the first fault found, in the order
  `unreadable`, `unknown op`, `no sequence`, `unknown field`, `failed cast`.
- Of a deleted row, columns beside the key are read where that is possible.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from fuse_stream.cdc import json_text
from fuse_stream.cdc.json_text import Json, to_text
from fuse_stream.cdc.message import TRUNCATE, UNREADABLE_EVENT, UPSERT, Event, Image, Message
from fuse_stream.cdc.sequence import PARTS
from fuse_stream.cdc.values import Form, Read, reader_of
from fuse_stream.format import raw_text
from fuse_stream.format.arrow import PRIMITIVES, arrow_schema
from fuse_stream.format.schema import Column, Schema

OP, SEQ, UNSET, ERROR, RAW, SOURCE = "_op", "_seq", "_unset", "_error", "_raw", "_source"

RESERVED = (OP, SEQ, UNSET, ERROR, RAW, SOURCE)
"""The columns that follow those of the table, in order."""

Reader = Callable[[Any, Message], Iterable[Event]]
"""Returns the events of a message, of which it gets the value; none if it is passed over."""

NO_SEQUENCE, UNKNOWN_FIELD, FAILED_CAST = "no sequence", "unknown field", "failed cast"

_LONG, _TEXT = PRIMITIVES["long"], PRIMITIVES["string"]
_SEQUENCE = pa.struct([(name, _LONG) for name in (*PARTS, "offset")])
_PLACE = ("topic", "partition", "offset")
_SOURCE = pa.struct(zip(_PLACE, (_TEXT, PRIMITIVES["integer"], _LONG), strict=True))
_TYPES = (_TEXT, _SEQUENCE, pa.list_(_TEXT), _TEXT, _TEXT, _SOURCE)
"""Of `RESERVED`."""

_SHOWN = 100
"""Characters of a text that a reason shows."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How rows of a table are made of messages."""

    read: Reader
    parse: Callable[[str], Any] = json_text.parse
    """Returns the value of a message's text for `read`; raises `ValueError`."""
    columns: tuple[Column, ...]
    """All nullable."""
    form: Form
    keys: tuple[str, ...] = ()
    """Without keys, all columns of a deleted row must be read; else these."""
    ignore: tuple[str, ...] = ()
    """Fields that are left out."""
    unavailable: str | None = None
    """The text that says that a value is not known."""

    def rows(self, messages: Iterable[Message]) -> pa.RecordBatch:
        """Return the rows of messages: the table's columns, then those of `RESERVED`."""
        rows = [row for message in messages for row in self._rows(message)]
        lists = zip(*rows, strict=True) if rows else [()] * len(self.arrow_schema)
        arrays = [
            pa.array(values, type=of.type)
            for values, of in zip(lists, self.arrow_schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The columns of `rows`."""
        table = arrow_schema(
            Schema(id=0, last_column_id=len(self.columns), columns=self.columns)
        ).remove_metadata()
        more = [pa.field(name, of) for name, of in zip(RESERVED, _TYPES, strict=True)]
        return pa.schema([*table, *more])

    @cached_property
    def _readers(self) -> dict[str, Read]:
        return {column.name: reader_of(column, self.form) for column in self.columns}

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset((*self._readers, *self.ignore))

    def _is_placeholder(self, value: Json) -> bool:
        return value in (self._placeholders[0 if isinstance(value, str) else 1])

    @cached_property
    def _placeholders(self) -> tuple[frozenset[str], list[Json]]:
        """What stands for a value that is not known: texts, and lists and maps of them.

        Source: `UnchangedToastedPlaceholder` of Debezium's connector for PostgreSQL.
        """
        if self.unavailable is None:
            return frozenset(), []
        text, in_bytes = self.unavailable, self.unavailable.encode()
        in_base64 = base64.b64encode(in_bytes).decode()
        urlsafe = base64.urlsafe_b64encode(in_bytes).decode()
        numbers = [str(byte) for byte in in_bytes]
        texts = frozenset((text, in_base64, urlsafe, in_bytes.hex()))
        return texts, [[text], [in_base64], numbers, {text: text}]

    def _rows(self, message: Message) -> Iterator[tuple[Any, ...]]:
        if message.value is None:
            return
        events = list(self._events(message.value, message))
        raw = raw_text.text_of(message.value) if events else None
        for event in events:
            sequence = _sequence(event.sequence, message.offset)
            image = event.image or {}
            values, unset, error = [None] * len(self.columns), None, self._fault(event, image)
            if error is None and event.op != TRUNCATE:
                values, unset, error = self._values(event, image)
            op = event.op if error is None else None
            yield *values, op, sequence, unset, error, raw, message[2:]

    def _events(self, value: bytes, message: Message) -> Iterable[Event]:
        try:
            parsed = self.parse(value.decode())
        except ValueError:
            return [UNREADABLE_EVENT]
        return self.read(parsed, message)

    def _fault(self, event: Event, image: Image) -> str | None:
        if event.fault is not None:
            return event.fault
        if event.sequence is None:
            return NO_SEQUENCE
        if event.op != UPSERT or self.form.ignore_fields or image.keys() <= self._known:
            return None
        return f"{UNKNOWN_FIELD}: {', '.join(name for name in image if name not in self._known)}"

    def _values(self, event: Event, image: Image) -> tuple[list[Any], list[str] | None, str | None]:
        """Return the values, the names of columns that the event does not give, and the fault."""
        values: list[Any] = []
        unset, failed = [], []
        for name, read in self._readers.items():
            value = image.get(name)
            if value is None or self._is_placeholder(value):
                values.append(None)
                if value is not None or (name not in image and not event.is_whole):
                    unset.append(name)
                continue
            try:
                values.append(read(value, event.kind_of(name)))
            except (ValueError, ArithmeticError):
                values.append(None)
                if event.op == UPSERT or not self.keys or name in self.keys:
                    failed.append(f'{name}="{to_text(value)[:_SHOWN]}"')
        if failed:
            return [None] * len(values), None, f"{FAILED_CAST}: {', '.join(failed)}"
        return values, unset if event.op == UPSERT else None, None


def _sequence(position: tuple[int, ...] | None, offset: int | None) -> tuple[int, ...] | None:
    if position is None:
        return None
    return *position, *(0,) * (len(PARTS) - len(position)), offset or 0
