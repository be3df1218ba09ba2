"""A message of Kafka, and the events that readers find in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from fuse_stream.cdc import json_text

UPSERT, DELETE, TRUNCATE = "u", "d", "t"

UNREADABLE, UNKNOWN_OP = "unreadable", "unknown op"

Image = dict[str, Any]
"""The fields of a row by name, as values of JSON."""


class Message(NamedTuple):
    """What Kafka's source gives of a message."""

    value: bytes | None
    key: bytes | None
    topic: str | None
    partition: int | None
    offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What the schema in a message says of a column."""

    type: str | None = None
    logical: str | None = None
    scale: str | None = None
    element: Kind | None = None
    """Of the elements, if the column is a list."""


UNKNOWN_KIND = Kind()
"""Where messages have no schema, and within structs and maps."""


def unknown_kind(_: str) -> Kind:
    """Return that nothing is known of a column."""
    return UNKNOWN_KIND


class Event(NamedTuple):
    """One change of one row, or a truncate."""

    op: str | None
    """`u`, `d`, `t`; None if it is not known."""
    sequence: tuple[int, ...] | None
    """The position without Kafka's offset; None if it is not known."""
    image: Image | None = None
    fault: str | None = None
    """Why there is no event to apply."""
    is_whole: bool = False
    """True if a field that is missing is null."""
    kind_of: Callable[[str], Kind] = unknown_kind
    """Returns what the message says of a column."""


UNREADABLE_EVENT = Event(op=None, sequence=None, fault=UNREADABLE)
"""Of a message that says nothing."""


def unknown_op(code: str | None) -> str:
    """Return the fault of an operation that the reader does not know."""
    return UNKNOWN_OP if code is None else f"{UNKNOWN_OP}: {code}"


def has_other_key(before: Image | None, after: Image | None, keys: tuple[str, ...]) -> bool:
    """Return true if both have a column of the key, and another value in it."""
    if before is None or after is None:
        return False
    return any(
        key in before
        and key in after
        and before[key] != after[key]
        and json_text.text_of(before, key) != json_text.text_of(after, key)
        for key in keys
    )


def row_before(data: Image, old: Image | None) -> Image:
    """Return a row as it was, of the row as it is and the old values of what has changed."""
    return data if old is None else {name: old.get(name, data[name]) for name in data}


def is_of_table(table: str | None, database: str | None, name: str | None) -> bool:
    """Return true if an event is of `table`, which is `name` or `database.name`.

    Without a table each event is, and an event that names none may be.
    """
    if table is None or name is None:
        return True
    return table == name or (database is not None and table == f"{database}.{name}")
