"""Encode per-column values as JSON and decode them: statistics, bounds, column locations.

Most of a table's metadata are such values, and most readers use few of them or none. So each is
decoded when it is looked up.

A bound is exact; its JSON form depends on the column's type (`docs/format.md`, section "Bounds"):
decimals and 64-bit integers are strings, floats are exact with "inf" and "-inf", binary is hex,
dates are days and timestamps are microseconds since 1970. An old bound of a widened column is
decoded as the new type.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import cache
from typing import Any, TypeVar

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.bloom_filter import BloomFilter
from fuse_stream.format.records import ColumnMeta, ColumnStats, Value
from fuse_stream.format.schema import decimal_of
from fuse_stream.format.split_block import BUCKET_BYTES, is_filterable

T = TypeVar("T")

LeafTypes = Mapping[int, str]
"""The type of every leaf column, by id."""

_STATS_FIELDS = frozenset(field.name for field in dataclasses.fields(ColumnStats))
_META_FIELDS = frozenset(field.name for field in dataclasses.fields(ColumnMeta)) - {"bloom"}
_BLOOM_FIELDS = frozenset(field.name for field in dataclasses.fields(BloomFilter))


class ByColumn(Mapping[int, T]):
    """Records by column id, each decoded when it is looked up; pickled as a `dict`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[object, ...]:
        return dict, (dict(self),)


class ReadLater(ByColumn[T]):
    """JSON values by column id, each decoded to a record when it is looked up."""

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


def write_col_stats(
    stats: Mapping[int, ColumnStats], types: LeafTypes
) -> dict[str, dict[str, Any]]:
    """Return statistics by column id as JSON values, without columns that are not in `types`."""
    return {
        str(column): write_stats(item, types[column])
        for column, item in stats.items()
        if column in types  # not dropped
    }


def read_col_stats(items: Any, types: LeafTypes) -> Mapping[int, ColumnStats]:
    """Return statistics by column id, decoded from JSON values when they are looked up.

    Columns that the schema no longer has are left out: their type is not known.
    """
    return ReadLater(
        {column: item for column, item in by_column(items).items() if column in types},
        lambda column, item: read_stats(item, types[column]),
    )


def write_col_metas(metas: Mapping[int, ColumnMeta], _types: LeafTypes) -> dict[str, Any]:
    """Return column locations by column id as JSON values."""
    return {str(column): _write_meta(meta) for column, meta in metas.items()}


def _write_meta(meta: ColumnMeta) -> dict[str, Any]:
    item: dict[str, Any] = {
        "offset": meta.offset,
        "len": meta.len,
        "num_values": meta.num_values,
    }
    if meta.bloom is not None:
        item["bloom"] = dataclasses.asdict(meta.bloom)
    return item


def read_col_metas(items: Any, _types: LeafTypes) -> Mapping[int, ColumnMeta]:
    """Return column locations by column id, decoded from JSON when they are looked up."""
    return ReadLater(by_column(items), lambda _column, item: read_meta(item))


def checked(item: Any, cls: type) -> Any:
    """Return `item`; raise TypeError unless it is a `cls`."""
    if type(item) is not cls:  # exactly: a bool is no int here
        raise TypeError(f"{str(item)[:100]!r} is not of type {cls.__name__}")
    return item


READING_ERRORS = (TypeError, ValueError, KeyError, AttributeError, RecursionError)
"""The errors of decoding JSON values that are not a record."""


def as_corrupt(error: Exception, record: str) -> CorruptObjectError:
    """Return the error to raise for one of `READING_ERRORS`; `record` names what was decoded."""
    return CorruptObjectError("a stored record cannot be decoded", record=record, reason=str(error))


def by_column(items: Any) -> dict[int, Any]:
    found = {int(column): item for column, item in checked(items, dict).items()}
    if list(map(str, found)) != list(items):
        raise ValueError("a column id is not a plain number")
    return found


def write_stats(stats: ColumnStats, type_name: str) -> dict[str, Any]:
    """Return the statistics of a column of `type_name` as a JSON value."""
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
    if checked(item, dict).keys() - {"bloom"} != _META_FIELDS:
        raise KeyError(f"not the location of a column: {sorted(item)}")
    return ColumnMeta(
        **{name: checked(item[name], int) for name in _META_FIELDS},
        bloom=_read_bloom(item["bloom"]) if "bloom" in item else None,
    )


def _read_bloom(item: Any) -> BloomFilter:
    if checked(item, dict).keys() != _BLOOM_FIELDS:
        raise KeyError(f"not the location of a filter: {sorted(item)}")
    found = BloomFilter(
        offset=checked(item["offset"], int),
        len=checked(item["len"], int),
        type=checked(item["type"], str),
    )
    is_valid = found.offset > 0 and found.len > 0 and found.len % BUCKET_BYTES == 0
    if not is_valid or not is_filterable(found.type):
        raise ValueError("not the location of a filter")
    return found


_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,37})(\.[0-9]{1,38})?")

Json = bool | int | float | str


def value_to_json(value: Value, type_name: str) -> Json:
    """Return the JSON form of a bound of a column of `type_name`."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if type_name == "long" else value


def value_from_json(item: object, type_name: str) -> Value:
    """Return the bound whose JSON form is `item`.

    Raises:
        CorruptObjectError: `item` is not a bound of the type.
    """
    try:
        return _reader_of(type_name)(item)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise CorruptObjectError(
            "a bound does not fit the type of its column", type=type_name, value=str(item)[:100]
        ) from error


@cache
def _reader_of(type_name: str) -> Callable[[object], Value]:
    return _READERS["decimal" if decimal_of(type_name) else type_name]


def _boolean(item: object) -> bool:
    if not isinstance(item, bool):
        raise TypeError("not a boolean")
    return item


def _integer(item: object) -> int:
    if type(item) is not int and not isinstance(item, str):
        raise TypeError("not an integer")
    if isinstance(item, str) and not _INTEGER.fullmatch(item):
        raise ValueError("not the text of an integer")
    number = int(item)
    if not -(2**63) <= number < 2**63:
        raise ValueError("not a 64-bit integer")
    return number


def _floating(item: object) -> float:
    if type(item) is float:
        return item
    if isinstance(item, bool) or not isinstance(item, int | float | str):
        raise TypeError("not a number")
    if isinstance(item, str) and item not in {"inf", "-inf"}:
        raise ValueError("not an infinity")  # JSON has no NaN, and no bound is one
    return float(item)


def _decimal(item: object) -> Decimal:
    text = _string(item)
    if not _DECIMAL.fullmatch(text):  # an exponent could expand to any number of digits
        raise ValueError("not a decimal of up to 38 digits")
    return Decimal(text)


def _string(item: object) -> str:
    if not isinstance(item, str):
        raise TypeError("not a string")
    return item


def _binary(item: object) -> bytes:
    return bytes.fromhex(_string(item))


_READERS: dict[str, Callable[[object], Value]] = {
    "boolean": _boolean,
    "byte": _integer,
    "short": _integer,
    "integer": _integer,
    "long": _integer,
    "date": _integer,
    "timestamp": _integer,
    "timestamp_ntz": _integer,
    "float": _floating,
    "double": _floating,
    "decimal": _decimal,
    "string": _string,
    "binary": _binary,
}
