"""Which values Spark groups together: columns to compare and hash rows by.

Null equals null, NaN equals NaN whatever its bits, and -0.0 equals 0.0. Floating-point numbers are
compared and hashed by their bits, so that every processor gets the same result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MOST_FRUITLESS = 3
"""After so many columns that tell no rows apart, rows are compared as a whole."""


def grouping_keys(rows: pa.Table) -> pa.Table:
    """Return columns whose values are equal exactly if Spark groups those of `rows` together."""
    columns = [_keyed(rows.column(at)) for at in range(rows.num_columns)]
    return pa.table(columns, names=[f"c{at}" for at in range(rows.num_columns)])


def groups_of(keys: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Return the first row and the count of each group of equal rows of `grouping_keys`."""
    numbered = keys.append_column("at", _numbers(len(keys)))
    groups = numbered.group_by(keys.column_names).aggregate([("at", "min"), ("at", "count")])
    return groups["at_min"].combine_chunks(), groups["at_count"].combine_chunks()


def cancel_equal_rows(removed: pa.Table, inserted: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return both tables minus their multiset intersection."""
    if not len(removed) or not len(inserted):
        return removed, inserted
    of_removed, of_inserted = find_unequal_rows(removed, inserted)
    return removed.take(of_removed), inserted.take(of_inserted)


def find_unequal_rows(removed: pa.Table, inserted: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Return the rows of both tables that are not in their multiset intersection, in order.

    Of equal rows of one table, the first ones of `removed` are kept, and the last of `inserted`.
    """
    if not len(removed) or not len(inserted):
        return _numbers(len(removed)), _numbers(len(inserted))
    both = _candidates(removed, inserted)
    if not len(both[0]) or not len(both[1]):
        return _numbers(len(removed)), _numbers(len(inserted))
    gone = _cancelled(removed.take(both[0]), inserted.take(both[1]))
    left = []
    for table, candidates, cancelled in zip((removed, inserted), both, gone, strict=True):
        keeps = np.ones(len(table), bool)
        keeps[candidates.take(cancelled).to_numpy()] = False
        left.append(pa.array(np.flatnonzero(keeps)))
    return left[0], left[1]


def _candidates(removed: pa.Table, inserted: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Return the rows of two tables each of whose values is a value of a row of the other table.

    A column is much faster to search than rows are to compare, and one is often enough: an update
    leaves few rows as they were.
    """
    left, right = _numbers(len(removed)), _numbers(len(inserted))
    fruitless = 0
    for columns in zip(removed.columns, inserted.columns, strict=True):
        of_left, of_right = (
            _keyed(column.take(rows)).combine_chunks()
            for column, rows in zip(columns, (left, right), strict=True)
        )
        count = len(left) + len(right)
        left = left.filter(pc.is_in(of_left, of_right))
        right = right.filter(pc.is_in(of_right, of_left))
        fruitless += len(left) + len(right) == count
        if not len(left) or not len(right) or fruitless == MOST_FRUITLESS:
            break
    return left, right


def _cancelled(removed: pa.Table, inserted: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Return the rows of both tables that are in their multiset intersection."""
    keys = grouping_keys(pa.concat_tables([removed, inserted]))
    of_removed = len(removed)
    numbered = keys.append_column("at", _numbers(len(keys))).append_column(
        "is_removed", pc.less(_numbers(len(keys)), of_removed).cast(pa.int64())
    )
    # A single thread keeps the rows of a group in order: removed ones first.
    groups = numbered.group_by(keys.column_names, use_threads=False).aggregate(
        [("at", "list"), ("is_removed", "sum")]
    )
    rows = groups["at_list"].combine_chunks()
    group = pc.list_parent_indices(rows)
    at = rows.flatten()
    first = pc.take(pc.subtract(rows.offsets[:-1], rows.offsets[0]), group)
    place = pc.subtract(_numbers(len(at)), first.cast(pa.int64()))
    gone = pc.take(groups["is_removed_sum"].combine_chunks(), group)
    came = pc.subtract(pc.take(pc.list_value_length(rows), group).cast(pa.int64()), gone)
    # A group lists its removed rows, then its inserted rows; min(gone, came) of each cancel out.
    keeps = pc.or_(
        pc.less(place, pc.subtract(gone, came)), pc.greater_equal(place, pc.multiply(gone, 2))
    )
    cancelled = at.filter(pc.invert(keeps))
    is_removed = pc.less(cancelled, of_removed)
    return (
        cancelled.filter(is_removed),
        pc.subtract(cancelled.filter(pc.invert(is_removed)), of_removed),
    )


def _keyed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    plain = column.cast(_plain(column.type))
    if pa.types.is_nested(plain.type):
        texts = (None if v is None else repr(_comparable(v)) for v in plain.to_pylist())
        return pa.chunked_array([pa.array(texts, pa.string())])
    if pa.types.is_floating(plain.type):
        bits = pa.int64() if pa.types.is_float64(plain.type) else pa.int32()
        return pa.chunked_array([_bits(plain.combine_chunks(), bits)])
    return plain


def _bits(values: pa.Array, bits: pa.DataType) -> pa.Array:
    """Return the bits of floating-point numbers, with one value for all NaN and one for zero."""
    one_zero = pc.if_else(pc.equal(values, 0), pa.scalar(0, bits), values.view(bits))
    nan = -1  # as bits this is a NaN in every width
    return pc.if_else(pc.is_nan(values), pa.scalar(nan, bits), one_zero)


def _plain(arrow: pa.DataType) -> pa.DataType:
    # Dates and times that Python cannot represent need keys too, and so do strings with bad UTF-8.
    types = pa.types
    if types.is_string(arrow):
        return pa.binary()
    if types.is_date32(arrow):
        return pa.int32()
    if types.is_timestamp(arrow):
        return pa.int64()
    if types.is_struct(arrow):
        return pa.struct([field.with_type(_plain(field.type)) for field in arrow])
    if types.is_map(arrow):
        return pa.map_(_plain(arrow.key_type), _plain(arrow.item_type))
    if types.is_list(arrow):
        return pa.list_(_plain(arrow.value_type))
    return arrow


def _comparable(value: object) -> object:
    if isinstance(value, dict):
        return tuple(_comparable(part) for part in value.values())
    if isinstance(value, list | tuple):
        return tuple(_comparable(part) for part in value)
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def _numbers(count: int) -> pa.Array:
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count)), 1)


def codes_of(keys: pa.Table) -> np.ndarray:
    """Return a number from 0 for each row of `grouping_keys`, the same for equal rows only."""
    codes = np.zeros(len(keys), np.int64)
    for column in keys.columns:
        values = column.combine_chunks().dictionary_encode(null_encoding="encode")
        own = values.indices.to_numpy().astype(np.int64)
        _, codes = np.unique(codes * (len(values.dictionary) + 1) + own, return_inverse=True)
    return codes


def ranks_of(values: pa.Array) -> np.ndarray:
    """Return a number for each value, in a fixed order of all values of the type; -1 for null.

    Values that Spark groups together have equal numbers. The order is that of integers, decimals,
    times and bytes, and of structs of them field by field; other types have one that is fixed, too.
    """
    if pa.types.is_struct(values.type):
        parts = [ranks_of(part) for part in values.flatten()]
        order = np.lexsort(parts[::-1])
        ordered = np.stack([part[order] for part in parts])
        is_new = np.ones(len(values), bool)
        is_new[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
        ranks = np.empty(len(values), np.int64)
        ranks[order] = np.cumsum(is_new) - 1
        ranks[values.is_null().to_numpy(zero_copy_only=False)] = -1
        return ranks
    encoded = _keyed(pa.chunked_array([values])).combine_chunks().dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    ranks = np.empty(len(order) + 1, np.int64)
    ranks[order] = np.arange(len(order))
    ranks[-1] = -1
    found: np.ndarray = ranks[pc.fill_null(encoded.indices, len(order)).to_numpy()]
    return found


def begins(*columns: np.ndarray) -> np.ndarray:
    """Return for each place in columns that are ordered whether another row begins there."""
    found = np.ones(len(columns[0]), bool)
    found[1:] = np.logical_or.reduce([values[1:] != values[:-1] for values in columns])
    return found


def joined(parts: Iterable[pa.Array | pa.ChunkedArray]) -> pa.Array:
    """Return the values of arrays of one type, one array after the other."""
    chunks: list[pa.Array] = []
    for part in parts:
        chunks += part.chunks if isinstance(part, pa.ChunkedArray) else [part]
    return pa.concat_arrays(chunks)
