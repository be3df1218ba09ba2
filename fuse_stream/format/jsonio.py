"""Encode records as JSON and decode them, by the type hints of their fields.

Rules:
- One record has one encoding: keys sorted, no white space, a field that is None is left out, and
  so is an empty list or map of a field that is marked `IF_ANY`.
- Decoding is strict: a missing or unknown field, or a value of the wrong type, is a
  `CorruptObjectError`. It takes time and memory proportional to the number of bytes.
- A bound is encoded by its column's type, so every call takes the types of the leaf columns.
"""

from __future__ import annotations

import dataclasses
import types as python_types
import typing
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache, lru_cache

import orjson

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.columns import (
    READING_ERRORS,
    LeafTypes,
    as_corrupt,
    checked,
    read_col_metas,
    read_col_stats,
    value_from_json,
    value_to_json,
    write_col_metas,
    write_col_stats,
)
from fuse_stream.format.records import (
    ColumnMeta,
    ColumnStats,
    KeyRange,
    Ledger,
    LedgerEntry,
    LedgerKey,
    Retirement,
    SegmentRef,
    Side,
    Value,
)
from fuse_stream.format.schema import Schema
from fuse_stream.format.stored_fields import IF_ANY, NOT_STORED

T = typing.TypeVar("T")

MAX_MARKS = 1_000_000
"""The most commas, colons and opening brackets of a JSON text. A parser makes an object for about
each of them, so a text of a few megabytes could fill a gigabyte."""

MAX_WIDE_BYTES = 16 * 1024 * 1024
"""A longer JSON text is ASCII: a string with one other character may take 4 bytes for each."""

_Write = Callable[[typing.Any, LeafTypes], typing.Any]
_Read = Callable[[typing.Any, LeafTypes], typing.Any]


def dump_canonical(item: object) -> bytes:
    """Return the canonical bytes of a JSON value."""
    # The option sorts only dicts, so the caller converts records to dicts first.
    return orjson.dumps(item, option=orjson.OPT_SORT_KEYS)


def is_storable(text: object) -> bool:
    """True if `text` is a string that UTF-8 can encode: it has no lone surrogate."""
    if not isinstance(text, str):
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def count_marks(data: bytes) -> int:
    """Return how many commas, colons and opening brackets a JSON text has, or a number above."""
    if len(data) <= MAX_MARKS:
        return len(data)
    return sum(map(data.count, (b",", b":", b"[", b"{")))


def is_narrow(data: bytes) -> bool:
    """True if the strings of a JSON text take no more memory than its bytes, or are short."""
    return len(data) <= MAX_WIDE_BYTES or data.isascii()


def load_json(data: bytes) -> typing.Any:
    """Return the JSON value that `data` encodes.

    Raises:
        CorruptObjectError: the bytes are not JSON, or have more than `MAX_MARKS`, or are not
            `is_narrow`.
    """
    if not is_narrow(data):
        raise CorruptObjectError(
            "a JSON text of this size has to be ASCII", size=len(data), most=MAX_WIDE_BYTES
        )
    if count_marks(data) > MAX_MARKS:
        raise CorruptObjectError("the JSON holds too many values", size=len(data), most=MAX_MARKS)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise CorruptObjectError("the bytes are not JSON", size=len(data)) from error


def load_canonical(data: bytes) -> typing.Any:
    """Return the JSON value that `data`, written by `dump_canonical`, encodes.

    Raises:
        CorruptObjectError: the bytes are not JSON, or not in the canonical encoding.
    """
    item = load_json(data)
    # Finds what a JSON parser accepts: a duplicate key, a number in another notation.
    try:
        is_canonical = dump_canonical(item) == data
    except TypeError:  # nested deeper than `dump_canonical` can write
        is_canonical = False
    if not is_canonical:
        raise CorruptObjectError("the bytes are not canonical JSON", size=len(data))
    return item


def to_json(record: object, types: LeafTypes) -> typing.Any:
    """Return the JSON value of a record; `types` are those of the leaf columns."""
    return _writer(typing.cast("typing.Any", type(record)))(record, types)


def from_json(cls: type[T], item: object, types: LeafTypes) -> T:
    """Return the record of class `cls` whose JSON value is `item`.

    Raises:
        CorruptObjectError: `to_json` makes no such value of a record of this class.
    """
    try:
        return typing.cast("T", _reader(typing.cast("typing.Any", cls))(item, types))
    except CorruptObjectError:
        raise
    except READING_ERRORS as error:
        raise as_corrupt(error, cls.__name__) from error


@cache
def _writer(tp: typing.Any) -> _Write:
    if special := _SPECIAL.get(tp):
        return special[0]
    if dataclasses.is_dataclass(tp):
        return _record_writer(tp)
    origin, args = typing.get_origin(tp), typing.get_args(tp)
    if origin in {typing.Union, python_types.UnionType}:
        return _writer(_without_none(args))
    if origin is tuple and args[-1] is Ellipsis:
        each = _writer(args[0])
        return lambda items, types: [each(item, types) for item in items]
    if origin is tuple:
        parts = [_writer(arg) for arg in args]
        return lambda items, types: [
            part(item, types) for part, item in zip(parts, items, strict=True)
        ]
    if origin is Mapping:
        each = _writer(args[1])
        return lambda items, types: {str(key): each(item, types) for key, item in items.items()}
    return lambda item, types: item


def _record_writer(cls: typing.Any) -> _Write:
    optional = _if_any(cls)

    def write(record: typing.Any, types: LeafTypes) -> dict[str, typing.Any]:
        return {
            name: each(value, types)
            for name, each in _field_writers(cls).items()
            if (value := getattr(record, name)) is not None and (value or name not in optional)
        }

    return write


@cache
def _field_writers(cls: typing.Any) -> dict[str, _Write]:
    # Built at the first record, not before: `Column` is recursive.
    return {name: _writer(hint) for name, hint in _hints(cls)}


@cache
def _reader(tp: typing.Any) -> _Read:
    if special := _SPECIAL.get(tp):
        return special[1]
    if dataclasses.is_dataclass(tp):
        return _record_reader(typing.cast("typing.Any", tp))
    origin, args = typing.get_origin(tp), typing.get_args(tp)
    if origin in {typing.Union, python_types.UnionType}:
        return _reader(_without_none(args))
    if origin is tuple and args[-1] is Ellipsis:
        each = _reader(args[0])
        return lambda items, types: tuple(each(item, types) for item in checked(items, list))
    if origin is tuple:
        parts = [_reader(arg) for arg in args]
        return lambda items, types: tuple(
            part(item, types) for part, item in zip(parts, checked(items, list), strict=True)
        )
    if origin is Mapping:
        key_of, each = args[0], _reader(args[1])
        return lambda items, types: {
            key_of(key): each(item, types) for key, item in checked(items, dict).items()
        }
    if issubclass(tp, StrEnum):
        return lambda item, types: tp(item)
    return lambda item, types: checked(item, tp)


@cache
def _record_reader(cls: typing.Any) -> _Read:
    readers: dict[str, _Read] = {}
    optional = _if_any(cls)
    # Only None is left out when a record is written, and an empty list or map of `optional`.
    stored = {field.name for field in _stored_fields(cls) if field.default is not None}
    needed = stored - optional

    def read(item: typing.Any, types: LeafTypes) -> typing.Any:
        if not readers:  # built at the first record, not before: `Column` is recursive
            readers.update({name: _reader(hint) for name, hint in _hints(cls)})
        if not needed <= checked(item, dict).keys():
            raise KeyError(f"there is no {min(needed - item.keys())}")
        if empty := [name for name in optional if item.get(name) in ([], {})]:
            raise ValueError(f"{empty[0]} is empty")
        # `readers` raises KeyError for an unknown key.
        return cls(**{name: readers[name](value, types) for name, value in item.items()})

    return read


def _hints(cls: typing.Any) -> list[tuple[str, typing.Any]]:
    hints = typing.get_type_hints(cls)
    return [(field.name, hints[field.name]) for field in _stored_fields(cls)]


def _if_any(cls: typing.Any) -> set[str]:
    return {field.name for field in dataclasses.fields(cls) if field.metadata == IF_ANY}


def _stored_fields(cls: typing.Any) -> list[dataclasses.Field[typing.Any]]:
    return [field for field in dataclasses.fields(cls) if field.metadata != NOT_STORED]


def _without_none(args: tuple[typing.Any, ...]) -> typing.Any:
    return next(arg for arg in args if arg is not type(None))


def _write_key_range(key_range: KeyRange, types: LeafTypes) -> dict[str, typing.Any]:
    def bounds(values: tuple[Value | None, ...]) -> list[typing.Any]:
        return [
            None if value is None or column not in types else value_to_json(value, types[column])
            for column, value in zip(key_range.columns, values, strict=True)
        ]

    return {
        "columns": list(key_range.columns),
        "min": bounds(key_range.min),
        "max": bounds(key_range.max),
    }


def _read_key_range(item: typing.Any, types: LeafTypes) -> KeyRange:
    if set(checked(item, dict)) != {"columns", "min", "max"}:
        raise KeyError(f"unknown parts of a range: {sorted(item)}")
    columns = tuple(checked(column, int) for column in item["columns"])

    def bounds(values: list[typing.Any]) -> tuple[Value | None, ...]:
        return tuple(
            None if value is None or column not in types else value_from_json(value, types[column])
            for column, value in zip(columns, values, strict=True)
        )

    return KeyRange(columns=columns, min=bounds(item["min"]), max=bounds(item["max"]))


def _write_ledger(ledger: Ledger, types: LeafTypes) -> dict[str, typing.Any]:
    entries = [
        {"application": application, "writer": writer, **_writer(LedgerEntry)(entry, types)}
        for (application, writer), entry in sorted(ledger.entries.items())
    ]
    return {"entries": entries, "retired": _writer(_Retired)(ledger.retired, types)}


def _read_ledger(item: typing.Any, types: LeafTypes) -> Ledger:
    if set(checked(item, dict)) != {"entries", "retired"}:
        raise KeyError(f"unknown parts of a ledger: {sorted(item)}")
    entries: dict[LedgerKey, LedgerEntry] = {}
    last: LedgerKey | None = None
    for line in checked(item["entries"], list):
        entry = dict(checked(line, dict))
        key = (checked(entry.pop("application"), str), checked(entry.pop("writer"), str))
        if last is not None and key <= last:
            raise ValueError("the entries of the ledger are out of order")
        last = key
        entries[key] = _reader(LedgerEntry)(entry, types)
    return Ledger(entries=entries, retired=_reader(_Retired)(item["retired"], types))


_Retired = Mapping[str, Retirement]


def _read_schema(item: typing.Any, _types: LeafTypes) -> Schema:
    return _known_schema(dump_canonical(checked(item, dict)))


@lru_cache(maxsize=64)
def _known_schema(data: bytes) -> Schema:
    # Cached: most snapshots have the same schema as their parent.
    return typing.cast("Schema", _record_reader(Schema)(orjson.loads(data), {}))


def _read_ref(item: typing.Any, types: LeafTypes) -> SegmentRef:
    if "key_range" in checked(item, dict):  # its bounds are read by their columns' types
        return typing.cast("SegmentRef", _record_reader(SegmentRef)(item, types))
    return _known_ref(dump_canonical(item))


@lru_cache(maxsize=1024)
def _known_ref(data: bytes) -> SegmentRef:
    # Cached: a snapshot shares most segments with its parent.
    return typing.cast("SegmentRef", _record_reader(SegmentRef)(orjson.loads(data), {}))


def _write_side(side: Side, _types: LeafTypes) -> dict[str, typing.Any]:
    written: dict[str, typing.Any] = _record_writer(Side)(side, side.schema.leaf_types)
    return written


def _read_side(item: typing.Any, types: LeafTypes) -> Side:
    # The bounds in it are of its own columns.
    schema = _read_schema(checked(item, dict)["schema"], types)
    return typing.cast("Side", _record_reader(Side)(item, schema.leaf_types))


_SPECIAL: dict[typing.Any, tuple[_Write, _Read]] = {
    Schema: (_record_writer(Schema), _read_schema),
    SegmentRef: (_record_writer(SegmentRef), _read_ref),
    Side: (_write_side, _read_side),
    Mapping[int, ColumnStats]: (write_col_stats, read_col_stats),
    Mapping[int, ColumnMeta]: (write_col_metas, read_col_metas),
    KeyRange: (_write_key_range, _read_key_range),
    Ledger: (_write_ledger, _read_ledger),
}
