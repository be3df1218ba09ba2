"""What records hold by column id: statistics, and where the columns stand. To JSON and back.

Metadata is mostly this, and most who read it look at little of it or at none: it is read when it
is asked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.records import ColumnMeta, ColumnStats
from fuse_stream.format.values import value_from_json, value_to_json

T = TypeVar("T")

LeafTypes = Mapping[int, str]
"""The type of every leaf column, by id."""

_STATS_FIELDS = frozenset(field.name for field in dataclasses.fields(ColumnStats))
_META_FIELDS = frozenset(field.name for field in dataclasses.fields(ColumnMeta))


class ReadLater(Mapping[int, T]):
    """JSON values by column id, each made a record when it is looked up."""

    __slots__ = ("_items", "_read")

    def __init__(self, items: dict[int, Any], read: Callable[[int, Any], T]) -> None:
        self._items = items
        self._read = read

    def __getitem__(self, column: int) -> T:
        item = self._items[column]
        try:
            return self._read(column, item)
        except CorruptObjectError:
            raise
        except READING_ERRORS as error:
            raise as_corrupt(error, "a column's part of a record") from error

    def __contains__(self, column: object) -> bool:
        return column in self._items

    def __iter__(self) -> Iterator[int]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[object, ...]:
        return dict, (dict(self),)


def write_col_stats(
    stats: Mapping[int, ColumnStats], types: LeafTypes
) -> dict[str, dict[str, Any]]:
    """Return statistics by column id as JSON values."""
    return {str(column): _write_stats(item, types[column]) for column, item in stats.items()}


def read_col_stats(items: Any, types: LeafTypes) -> Mapping[int, ColumnStats]:
    """Rebuild statistics by column id from JSON values, later.

    Bounds of columns that the schema no longer has cannot be asked for, nor read.
    """
    return ReadLater(
        {column: item for column, item in by_column(items).items() if column in types},
        lambda column, item: read_stats(item, types[column]),
    )


def write_col_metas(metas: Mapping[int, ColumnMeta], _types: LeafTypes) -> dict[str, Any]:
    """Return the places of columns by their id as JSON values."""
    return {
        str(column): {"offset": meta.offset, "len": meta.len, "num_values": meta.num_values}
        for column, meta in metas.items()
    }


def read_col_metas(items: Any, _types: LeafTypes) -> Mapping[int, ColumnMeta]:
    """Rebuild the places of columns by their id from JSON values, later."""
    return ReadLater(by_column(items), lambda _column, item: read_meta(item))


def checked(item: Any, cls: type) -> Any:
    """Return `item` if it is a `cls`.

    Raises:
        TypeError: it is something else.
    """
    if type(item) is not cls:  # exactly: a bool is no int here
        raise TypeError(f"{str(item)[:100]!r} is not of type {cls.__name__}")
    return item


READING_ERRORS = (TypeError, ValueError, KeyError, AttributeError, RecursionError)
"""What goes wrong while JSON values that are no record are read as one."""


def as_corrupt(error: Exception, record: str) -> CorruptObjectError:
    """Return the error to raise for one of `READING_ERRORS`."""
    return CorruptObjectError(
        "this is not the record that its name says", record=record, reason=str(error)
    )


def by_column(items: Any) -> dict[int, Any]:
    found = {int(column): item for column, item in checked(items, dict).items()}
    if list(map(str, found)) != list(items):
        raise ValueError("a column id is not spelt as one")
    return found


def _write_stats(stats: ColumnStats, type_name: str) -> dict[str, Any]:
    item: dict[str, Any] = {
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


def read_stats(item: dict[str, Any], type_name: str) -> ColumnStats:
    if not _STATS_FIELDS.issuperset(item):
        raise KeyError(f"unknown statistics: {sorted(item)}")
    low, high, distinct = item.get("min"), item.get("max"), item.get("distinct_of_values")
    return ColumnStats(
        min=None if low is None else value_from_json(low, type_name),
        max=None if high is None else value_from_json(high, type_name),
        null_count=checked(item["null_count"], int),
        nan_count=checked(item["nan_count"], int),
        in_memory_size=checked(item["in_memory_size"], int),
        distinct_of_values=None if distinct is None else checked(distinct, int),
    )


def read_meta(item: dict[str, Any]) -> ColumnMeta:
    if checked(item, dict).keys() != _META_FIELDS:
        raise KeyError(f"not the place of a column: {sorted(item)}")
    return ColumnMeta(**{name: checked(value, int) for name, value in item.items()})
