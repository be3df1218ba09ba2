"""Records to JSON and back, read off their type hints.

Rules:
- One record has one encoding: keys sorted, no white space, a field that is None is left out.
- Reading is strict: a missing, unknown or ill-typed field is a `CorruptObjectError`, found in time
  and memory proportional to the bytes.
- Bounds need their column's type, so every call takes the types of the schema at hand.
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
from fuse_stream.format.records import ColumnStats, KeyRange, Ledger, LedgerEntry, Retirement, Value
from fuse_stream.format.schema import Schema
from fuse_stream.format.values import value_from_json, value_to_json

T = typing.TypeVar("T")

LeafTypes = Mapping[int, str]
"""The type of every leaf column, by id."""

_Write = Callable[[typing.Any, LeafTypes], typing.Any]
_Read = Callable[[typing.Any, LeafTypes], typing.Any]


def dump_canonical(item: object) -> bytes:
    """Return the one encoding of a JSON value."""
    # The option sorts dicts alone, so records become dicts before they come here.
    return orjson.dumps(item, option=orjson.OPT_SORT_KEYS)


def is_storable(text: object) -> bool:
    """Whether this is text that JSON in UTF-8 can hold: no lone half of a UTF-16 pair."""
    if not isinstance(text, str):
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def load_json(data: bytes) -> typing.Any:
    """Parse JSON.

    Raises:
        CorruptObjectError: it is none.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise CorruptObjectError("these bytes are not JSON", size=len(data)) from error


def to_json(record: object, types: LeafTypes) -> typing.Any:
    """Return a record as JSON values."""
    return _writer(typing.cast("typing.Any", type(record)))(record, types)


def from_json(cls: type[T], item: object, types: LeafTypes) -> T:
    """Rebuild a record from JSON values.

    Raises:
        CorruptObjectError: they are not what `to_json` makes of one.
    """
    try:
        return typing.cast("T", _reader(typing.cast("typing.Any", cls))(item, types))
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, CorruptObjectError):
            raise
        raise CorruptObjectError(
            "this is not the record that its name says", record=cls.__name__, reason=str(error)
        ) from error


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
    def write(record: typing.Any, types: LeafTypes) -> dict[str, typing.Any]:
        return {
            name: each(value, types)
            for name, each in _field_writers(cls).items()
            if (value := getattr(record, name)) is not None
        }

    return write


@cache
def _field_writers(cls: typing.Any) -> dict[str, _Write]:
    # Looked up at the first record, not before: a Column has Columns for children.
    return {name: _writer(hint) for name, hint in _hints(cls)}


@cache
def _reader(tp: typing.Any) -> _Read:
    if special := _SPECIAL.get(tp):
        return special[1]
    if dataclasses.is_dataclass(tp):
        return _record_reader(tp)
    origin, args = typing.get_origin(tp), typing.get_args(tp)
    if origin in {typing.Union, python_types.UnionType}:
        return _reader(_without_none(args))
    if origin is tuple and args[-1] is Ellipsis:
        each = _reader(args[0])
        return lambda items, types: tuple(each(item, types) for item in _checked(items, list))
    if origin is tuple:
        parts = [_reader(arg) for arg in args]
        return lambda items, types: tuple(
            part(item, types) for part, item in zip(parts, _checked(items, list), strict=True)
        )
    if origin is Mapping:
        key_of, each = args[0], _reader(args[1])
        return lambda items, types: {
            key_of(key): each(item, types) for key, item in _checked(items, dict).items()
        }
    if issubclass(tp, StrEnum):
        return lambda item, types: tp(item)
    return lambda item, types: _checked(item, tp)


def _record_reader(cls: typing.Any) -> _Read:
    readers: dict[str, _Read] = {}

    def read(item: typing.Any, types: LeafTypes) -> typing.Any:
        if not readers:  # filled at the first record, not before: a Column has Columns for children
            readers.update({name: _reader(hint) for name, hint in _hints(cls)})
        # An unknown key has no reader, and a missing one no argument: both are errors.
        return cls(
            **{name: readers[name](value, types) for name, value in _checked(item, dict).items()}
        )

    return read


def _hints(cls: typing.Any) -> list[tuple[str, typing.Any]]:
    hints = typing.get_type_hints(cls)
    return [(field.name, hints[field.name]) for field in dataclasses.fields(cls)]


def _without_none(args: tuple[typing.Any, ...]) -> typing.Any:
    return next(arg for arg in args if arg is not type(None))


def _checked(item: typing.Any, cls: type) -> typing.Any:
    if type(item) is not cls:  # exactly: a bool is no int here
        raise TypeError(f"{str(item)[:100]!r} is not of type {cls.__name__}")
    return item


def _write_col_stats(
    stats: Mapping[int, ColumnStats], types: LeafTypes
) -> dict[str, dict[str, typing.Any]]:
    return {str(column): _write_stats(item, types[column]) for column, item in stats.items()}


def _write_stats(stats: ColumnStats, type_name: str) -> dict[str, typing.Any]:
    item: dict[str, typing.Any] = {
        "null_count": stats.null_count,
        "nan_count": stats.nan_count,
        "in_memory_size": stats.in_memory_size,
    }
    if stats.distinct_of_values is not None:
        item["distinct_of_values"] = stats.distinct_of_values
    if stats.min is not None:
        item["min"] = value_to_json(stats.min, type_name)
    if stats.max is not None:
        item["max"] = value_to_json(stats.max, type_name)
    return item


def _read_col_stats(items: typing.Any, types: LeafTypes) -> dict[int, ColumnStats]:
    # Bounds of columns that the schema no longer has cannot be asked for, nor read.
    known = ((int(column), item) for column, item in _checked(items, dict).items())
    return {column: _read_stats(item, types[column]) for column, item in known if column in types}


def _read_stats(item: dict[str, typing.Any], type_name: str) -> ColumnStats:
    # Straight on, not by the hints: metadata is mostly these, and reading it is mostly this.
    if not _STATS_FIELDS.issuperset(item):
        raise KeyError(f"unknown statistics: {sorted(item)}")
    low, high, distinct = item.get("min"), item.get("max"), item.get("distinct_of_values")
    return ColumnStats(
        min=None if low is None else value_from_json(low, type_name),
        max=None if high is None else value_from_json(high, type_name),
        null_count=_checked(item["null_count"], int),
        nan_count=_checked(item["nan_count"], int),
        in_memory_size=_checked(item["in_memory_size"], int),
        distinct_of_values=None if distinct is None else _checked(distinct, int),
    )


def _write_key_range(key_range: KeyRange, types: LeafTypes) -> dict[str, typing.Any]:
    def bounds(values: tuple[Value | None, ...]) -> list[typing.Any]:
        return [
            None if value is None else value_to_json(value, types[column])
            for column, value in zip(key_range.columns, values, strict=True)
        ]

    return {
        "columns": list(key_range.columns),
        "min": bounds(key_range.min),
        "max": bounds(key_range.max),
    }


def _read_key_range(item: typing.Any, types: LeafTypes) -> KeyRange:
    columns = tuple(_checked(column, int) for column in item["columns"])

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
    entries = {}
    for line in item["entries"]:
        entry = dict(_checked(line, dict))
        key = (_checked(entry.pop("application"), str), _checked(entry.pop("writer"), str))
        entries[key] = _reader(LedgerEntry)(entry, types)
    return Ledger(entries=entries, retired=_reader(_Retired)(item["retired"], types))


_Retired = Mapping[str, Retirement]
_STATS_FIELDS = frozenset(field.name for field in dataclasses.fields(ColumnStats))


def _read_schema(item: typing.Any, _types: LeafTypes) -> Schema:
    return _known_schema(dump_canonical(_checked(item, dict)))


@lru_cache(maxsize=64)
def _known_schema(data: bytes) -> Schema:
    # Every snapshot holds the schema, and hardly any another one than its parent.
    return typing.cast("Schema", _record_reader(Schema)(orjson.loads(data), {}))


_SPECIAL: dict[typing.Any, tuple[_Write, _Read]] = {
    Schema: (_record_writer(Schema), _read_schema),
    Mapping[int, ColumnStats]: (_write_col_stats, _read_col_stats),
    KeyRange: (_write_key_range, _read_key_range),
    Ledger: (_write_ledger, _read_ledger),
}
