"""Statistics of blocks, and their merge into those of a segment or snapshot.

Rules (`docs/format.md`, section "Statistics"; bounds may be loose, never wrong):
- Bounds ignore null and NaN. NaN is counted: it is greater than every bound.
- Bounds of long texts are shortened: a minimum is cut, a maximum is cut and rounded up.
- A private column (`fuse.private`) has no bounds, only counts.
- If a column has values but no bound in one child, its parent does not have that bound either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.format.dictionaries import plain_byte_size, presence
from fuse_stream.format.properties import BlockTarget
from fuse_stream.format.records import Block, ColumnStats, KeyRange, Summary, Value
from fuse_stream.format.schema import Schema

MAX_BOUND_LENGTH = 32
"""Characters of a string bound, bytes of a binary one."""

_TEXTS = (pa.string(), pa.binary())
_DENSE = 4
"""Integers are dense if their range has at most this many times as many numbers as there are
values."""

_LAST_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def column_stats(table: pa.Table, schema: Schema) -> dict[int, ColumnStats]:
    """Return the statistics of a table of `schema`, by column id."""
    stats = {}
    for leaf in schema.leaves():
        if not leaf.repeated:
            values = table.column(leaf.path[0])
            for name in leaf.path[1:]:
                # By index: Arrow takes a name that begins with a dot for a path.
                values = pc.struct_field(values, values.type.get_field_index(name))
            stats[leaf.column.id] = _leaf_stats(values)
    return stats


def merge_stats(
    children: Iterable[tuple[Mapping[int, ColumnStats], int]],
) -> dict[int, ColumnStats]:
    """Return the merged statistics of `children`, each given with its row count.

    A child that lacks a column is older than the column, which is null in all its rows.
    """
    children = list(children)
    if len(children) == 1:
        return dict(children[0][0])
    columns = dict.fromkeys(column for stats, _ in children for column in stats)
    return {
        column: _merge_column([(stats.get(column), rows) for stats, rows in children])
        for column in columns
    }


def summarize(blocks: Sequence[Block], target: BlockTarget) -> Summary:
    """Return the totals of `blocks`, hidden rows included; `target` decides which are perfect."""
    return Summary(
        row_count=sum(block.row_count for block in blocks),
        block_count=len(blocks),
        perfect_block_count=sum(map(target.is_perfect, blocks)),
        uncompressed_byte_size=sum(block.block_size for block in blocks),
        compressed_byte_size=sum(block.file_size for block in blocks),
        index_size=sum(block.index_size for block in blocks),
        col_stats=merge_stats((block.col_stats, block.row_count) for block in blocks),
    )


def merge_summaries(summaries: Sequence[Summary]) -> Summary:
    """Return the sum of summaries."""
    return Summary(
        row_count=sum(item.row_count for item in summaries),
        block_count=sum(item.block_count for item in summaries),
        perfect_block_count=sum(item.perfect_block_count for item in summaries),
        uncompressed_byte_size=sum(item.uncompressed_byte_size for item in summaries),
        compressed_byte_size=sum(item.compressed_byte_size for item in summaries),
        index_size=sum(item.index_size for item in summaries),
        col_stats=merge_stats((item.col_stats, item.row_count) for item in summaries),
    )


def without_bounds(
    stats: Mapping[int, ColumnStats], private: Collection[int]
) -> Mapping[int, ColumnStats]:
    """Return `stats` without the bounds of the columns with the ids `private`; counts stay."""
    shown = {
        column
        for column in private
        if (found := stats.get(column)) is not None
        and (found.min is not None or found.max is not None)
    }
    if not shown:
        return stats
    return {
        column: replace(item, min=None, max=None) if column in shown else item
        for column, item in stats.items()
    }


def key_range(stats: Mapping[int, ColumnStats], cluster_key: tuple[int, ...]) -> KeyRange | None:
    """Return the bounds of the cluster key's columns; None without a cluster key."""
    if not cluster_key:
        return None
    parts = [stats.get(column) for column in cluster_key]
    return KeyRange(
        columns=cluster_key,
        min=tuple(part.min if part else None for part in parts),
        max=tuple(part.max if part else None for part in parts),
    )


def contains(stats: ColumnStats, low: Value | None, high: Value | None) -> bool:
    """True if the bounds in `stats` contain the range from `low` to `high`; None is unbounded."""
    least, greatest = cast("Any", stats.min), cast("Any", stats.max)
    return (least is None or (low is not None and least <= low)) and (
        greatest is None or (high is not None and greatest >= high)
    )


def _leaf_stats(values: pa.ChunkedArray) -> ColumnStats:
    nan_count = 0
    if pa.types.is_floating(values.type):
        nan_count = pc.sum(pc.is_nan(values)).as_py() or 0
    texts = _distinct_texts(values)
    low = high = None
    if values.null_count + nan_count < len(values):
        bounds = pc.min_max(values if texts is None else texts)
        low, high = _lower(bounds["min"]), _upper(bounds["max"])
    return ColumnStats(
        min=low,
        max=high,
        null_count=values.null_count,
        nan_count=nan_count,
        in_memory_size=plain_byte_size(values),
        distinct_of_values=(
            _distinct_count(values, low, high) if texts is None else len(texts) - texts.null_count
        ),
    )


def _distinct_texts(values: pa.ChunkedArray) -> pa.Array | None:
    """Return the distinct texts; None for values of another type."""
    # Hashing a text is as fast as comparing it, so distinct texts give count and bounds at once.
    if values.type in _TEXTS:
        return pc.unique(values)
    if pa.types.is_dictionary(values.type):
        return pc.unique(pa.chunked_array(chunk.dictionary for chunk in values.chunks))
    return None


def _distinct_count(values: pa.ChunkedArray, low: Value | None, high: Value | None) -> int:
    """Return the number of distinct values between these bounds, without null."""
    if not (
        pa.types.is_integer(values.type) and isinstance(low, int) and isinstance(high, int)
    ) or high - low >= _DENSE * len(values):
        return cast("int", pc.count_distinct(values, mode="only_valid").as_py())
    # For dense integers an array of flags takes a third of the time of hashing.
    return int(np.count_nonzero(presence(values, low, high)))


def bounds_of_one(value: Value | None) -> tuple[Value | None, Value | None]:
    """Return the least and the greatest bound of a column that has this value alone."""
    return _shortened(value), _shortened_up(value)


def _lower(scalar: pa.Scalar) -> Value | None:
    return _shortened(_readable(scalar))


def _upper(scalar: pa.Scalar) -> Value | None:
    return _shortened_up(_readable(scalar))


def _shortened(value: Value | None) -> Value | None:
    return value[:MAX_BOUND_LENGTH] if isinstance(value, str | bytes) else value


def _shortened_up(value: Value | None) -> Value | None:
    if isinstance(value, str) and len(value) > MAX_BOUND_LENGTH:
        return _next_string(value[:MAX_BOUND_LENGTH])
    if isinstance(value, bytes) and len(value) > MAX_BOUND_LENGTH:
        return _next_bytes(value[:MAX_BOUND_LENGTH])
    return value


def _readable(scalar: pa.Scalar) -> Value | None:
    try:
        return physical(scalar)
    except UnicodeDecodeError:  # Spark accepts any bytes as text; a bound must be UTF-8
        return None


def physical(scalar: pa.Scalar) -> Value:
    """Return the value of a non-null scalar as a bound: dates and times as integers."""
    if pa.types.is_temporal(scalar.type):
        return int(scalar.value)
    return cast("Value", scalar.as_py())


def _next_string(prefix: str) -> str | None:
    # The smallest text that is greater than every text with this prefix, in code point order,
    # which is also the order of UTF-8 bytes, as in Spark.
    for end in range(len(prefix), 0, -1):
        point = ord(prefix[end - 1]) + 1
        if point in _SURROGATES:
            point = _SURROGATES.stop  # surrogates are not characters
        if point <= _LAST_CODE_POINT:
            return prefix[: end - 1] + chr(point)
    return None


def _next_bytes(prefix: bytes) -> bytes | None:
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def _merge_column(parts: list[tuple[ColumnStats | None, int]]) -> ColumnStats:
    known = [(stats, rows) for stats, rows in parts if stats is not None]
    # A child with only nulls and NaN needs no bound. A child with a bound counts in any case:
    # the counts may include rows that a deletion vector hides.
    bounded = [
        stats
        for stats, rows in known
        if stats.null_count + stats.nan_count < rows
        or stats.min is not None
        or stats.max is not None
    ]
    distinct = [stats.distinct_of_values for stats, _ in known]
    return ColumnStats(
        min=_merged(min, [stats.min for stats in bounded]),
        max=_merged(max, [stats.max for stats in bounded]),
        null_count=sum(rows if stats is None else stats.null_count for stats, rows in parts),
        nan_count=sum(stats.nan_count for stats, _ in known),
        in_memory_size=sum(stats.in_memory_size for stats, _ in known),
        distinct_of_values=max((count for count in distinct if count is not None), default=None),
    )


def _merged(choose: Callable[[Any], Any], values: Sequence[Value | None]) -> Value | None:
    return None if None in values or not values else choose(values)
