"""Statistics of blocks, and how those of children make those of a parent.

Rules (loose, never wrong; `docs/format.md`, section "Statistics"):
- Bounds leave out null and NaN; NaN is counted, for it is greater than every bound.
- A cut text is a bound all the same: a minimum by cutting, a maximum by rounding up.
- A child in which a column has values but no bound leaves the parent without that bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.format.dictionaries import marked, plain_byte_size
from fuse_stream.format.properties import BlockTarget
from fuse_stream.format.records import (
    Block,
    ColumnStats,
    KeyRange,
    Summary,
    Value,
)
from fuse_stream.format.schema import Schema

MAX_BOUND_LENGTH = 32
"""Characters of a string bound, bytes of a binary one."""

_TEXTS = (pa.string(), pa.binary())
_DENSE = 4
"""Integers lie close together if there are at most so many times as many numbers in their range."""

_LAST_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def column_stats(table: pa.Table, schema: Schema) -> dict[int, ColumnStats]:
    """Return the statistics of `table`, which has the shape of `schema`, by column id."""
    stats = {}
    for leaf in schema.leaves():
        if not leaf.repeated:
            values = table.column(leaf.path[0])
            for name in leaf.path[1:]:
                # By place: Arrow takes a name that begins with a dot for a path.
                values = pc.struct_field(values, values.type.get_field_index(name))
            stats[leaf.column.id] = _leaf_stats(values)
    return stats


def merge_stats(
    children: Iterable[tuple[Mapping[int, ColumnStats], int]],
) -> dict[int, ColumnStats]:
    """Return the statistics over `children`, each with its row count.

    A child without a column predates it: the column is null in all of its rows.
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
    """Return the totals of `blocks`; `target` says which of them are perfect."""
    return Summary(
        row_count=sum(live_rows(block) for block in blocks),
        block_count=len(blocks),
        perfect_block_count=sum(map(target.is_perfect, blocks)),
        uncompressed_byte_size=sum(block.block_size for block in blocks),
        compressed_byte_size=sum(block.file_size for block in blocks),
        index_size=0,
        col_stats=merge_stats((block.col_stats, block.row_count) for block in blocks),
    )


def merge_summaries(summaries: Sequence[Summary]) -> Summary:
    """Return the totals over parts."""
    return Summary(
        row_count=sum(item.row_count for item in summaries),
        block_count=sum(item.block_count for item in summaries),
        perfect_block_count=sum(item.perfect_block_count for item in summaries),
        uncompressed_byte_size=sum(item.uncompressed_byte_size for item in summaries),
        compressed_byte_size=sum(item.compressed_byte_size for item in summaries),
        index_size=sum(item.index_size for item in summaries),
        col_stats=merge_stats((item.col_stats, item.row_count) for item in summaries),
    )


def live_rows(block: Block) -> int:
    """Return the rows of a block that no deletion vector hides."""
    return block.row_count - (block.deletes.row_count if block.deletes else 0)


def key_range(stats: Mapping[int, ColumnStats], cluster_key: tuple[int, ...]) -> KeyRange | None:
    """Return the range of the cluster key's columns; None where there is no key."""
    if not cluster_key:
        return None
    parts = [stats.get(column) for column in cluster_key]
    return KeyRange(
        columns=cluster_key,
        min=tuple(part.min if part else None for part in parts),
        max=tuple(part.max if part else None for part in parts),
    )


def contains(stats: ColumnStats, low: Value | None, high: Value | None) -> bool:
    """Whether bounds are as loose as others; None is loosest, and nothing but None contains it."""
    least, greatest = cast("Any", stats.min), cast("Any", stats.max)
    return (least is None or (low is not None and least <= low)) and (
        greatest is None or (high is not None and greatest >= high)
    )


def _leaf_stats(values: pa.ChunkedArray) -> ColumnStats:
    nan_count = 0
    if pa.types.is_floating(values.type):
        nan_count = pc.sum(pc.is_nan(values)).as_py() or 0
    different = _different(values)
    low = high = None
    if values.null_count + nan_count < len(values):
        bounds = pc.min_max(values if different is None else different)
        low, high = _lower(bounds["min"]), _upper(bounds["max"])
    return ColumnStats(
        min=low,
        max=high,
        null_count=values.null_count,
        nan_count=nan_count,
        in_memory_size=plain_byte_size(values),
        distinct_of_values=(
            _distinct_count(values, low, high)
            if different is None
            else len(different) - different.null_count
        ),
    )


def _different(values: pa.ChunkedArray) -> pa.Array | None:
    """Return what texts there are, each once; None for values of another type."""
    # To compare a text takes as long as to hash it.
    if values.type in _TEXTS:
        return pc.unique(values)
    if pa.types.is_dictionary(values.type):
        return pc.unique(pa.chunked_array(chunk.dictionary for chunk in values.chunks))
    return None


def _distinct_count(values: pa.ChunkedArray, low: Value | None, high: Value | None) -> int:
    """Return how many different values there are beside null, between these bounds."""
    if not (
        pa.types.is_integer(values.type) and isinstance(low, int) and isinstance(high, int)
    ) or high - low >= _DENSE * len(values):
        return cast("int", pc.count_distinct(values, mode="only_valid").as_py())
    # Numbers that lie close together are marked, not hashed: a third of the time.
    return int(np.count_nonzero(marked(values, low, high)))


def _lower(scalar: pa.Scalar) -> Value | None:
    value = _readable(scalar)
    return value[:MAX_BOUND_LENGTH] if isinstance(value, str | bytes) else value


def _upper(scalar: pa.Scalar) -> Value | None:
    value = _readable(scalar)
    if isinstance(value, str) and len(value) > MAX_BOUND_LENGTH:
        return _next_string(value[:MAX_BOUND_LENGTH])
    if isinstance(value, bytes) and len(value) > MAX_BOUND_LENGTH:
        return _next_bytes(value[:MAX_BOUND_LENGTH])
    return value


def _readable(scalar: pa.Scalar) -> Value | None:
    try:
        return physical(scalar)
    except UnicodeDecodeError:  # Spark lets any bytes pass for text; a bound has to be text
        return None


def physical(scalar: pa.Scalar) -> Value:
    """Return a scalar that is not null in the domain of bounds: times as integers."""
    if pa.types.is_temporal(scalar.type):
        return int(scalar.value)
    return cast("Value", scalar.as_py())


def _next_string(prefix: str) -> str | None:
    # The least text that is greater than everything that starts with `prefix`, by code point,
    # which is the order of UTF-8 bytes and so Spark's.
    for end in range(len(prefix), 0, -1):
        point = ord(prefix[end - 1]) + 1
        if point in _SURROGATES:
            point = _SURROGATES.stop  # halves of UTF-16 pairs are no characters
        if point <= _LAST_CODE_POINT:
            return prefix[: end - 1] + chr(point)
    return None


def _next_bytes(prefix: bytes) -> bytes | None:
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def _merge_column(parts: list[tuple[ColumnStats | None, int]]) -> ColumnStats:
    known = [(stats, rows) for stats, rows in parts if stats is not None]
    # Where all is null or NaN there is nothing to bound, so nothing is unknown.
    # A bound speaks for itself: deletion vectors hide rows that the counts still count.
    bounded = [
        stats
        for stats, rows in known
        if stats.null_count + stats.nan_count < rows
        or stats.min is not None
        or stats.max is not None
    ]
    distinct = [stats.distinct_of_values for stats, _ in known]
    return ColumnStats(
        min=_least([stats.min for stats in bounded]),
        max=_greatest([stats.max for stats in bounded]),
        null_count=sum(rows if stats is None else stats.null_count for stats, rows in parts),
        nan_count=sum(stats.nan_count for stats, _ in known),
        in_memory_size=sum(stats.in_memory_size for stats, _ in known),
        distinct_of_values=max((count for count in distinct if count is not None), default=None),
    )


def _least(values: Sequence[Value | None]) -> Value | None:
    return None if None in values or not values else min(cast("Sequence[Any]", values))


def _greatest(values: Sequence[Value | None]) -> Value | None:
    return None if None in values or not values else max(cast("Sequence[Any]", values))
