"""Rows that stand on both sides of a difference, left out.

Rows are equal as Spark groups them: null equals null, NaN equals NaN, and -0.0 equals 0.0.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.records import Block
from fuse_stream.reading.scan import Selection, read_block
from fuse_stream.storage.base import Store


def read_net(
    store: Store,
    removed: Iterable[Block],
    inserted: Iterable[Block],
    selection: Selection,
    *,
    share: int = 0,
    of: int = 1,
) -> tuple[pa.Table, pa.Table]:
    """Return the wanted rows of each side that have no partner on the other.

    With `of`, only those whose hash falls into one of so many shares: equal rows fall together, in
    every process, so that several can each take a share.
    """

    def rows(blocks: Iterable[Block]) -> pa.Table:
        parts = [arrow_schema(selection.schema).empty_table()]
        for block in blocks:
            found = read_block(store, block, selection)
            parts.append(found if of == 1 else found.filter(_in_share(found, share, of)))
        return pa.concat_tables(parts)

    return cancel_equal_rows(rows(removed), rows(inserted))


def cancel_equal_rows(removed: pa.Table, inserted: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return both sides without the rows that stand on both, counted as often as they stand."""
    if not len(removed) or not len(inserted):
        return removed, inserted
    removed_keys, inserted_keys = _row_keys(removed), _row_keys(inserted)
    keep_removed = _without_partner(removed_keys, inserted_keys)
    keep_inserted = _without_partner(inserted_keys, removed_keys)
    return removed.filter(pa.array(keep_removed)), inserted.filter(pa.array(keep_inserted))


def _in_share(rows: pa.Table, share: int, of: int) -> pa.Array:
    # Python's own hash of a text differs from process to process.
    return pa.array([zlib.crc32(repr(key).encode()) % of == share for key in _row_keys(rows)])


def _without_partner(rows: list[object], others: list[object]) -> list[bool]:
    """Return for each row whether no equal one is left among `others`, each used once."""
    left = Counter(others)
    alone = []
    for row in rows:
        alone.append(not left[row])
        if left[row]:
            left[row] -= 1
    return alone


def _row_keys(rows: pa.Table) -> list[object]:
    columns = [_keyed(rows.column(name)) for name in rows.column_names]
    return list(zip(*columns, strict=True))


def _keyed(column: pa.ChunkedArray) -> list[object]:
    values = column.cast(_plain(column.type)).to_pylist()
    exact = not (pa.types.is_nested(column.type) or pa.types.is_floating(column.type))
    return list(values) if exact else [_hashable(value) for value in values]


def _plain(arrow: pa.DataType) -> pa.DataType:
    # Times past Python's and texts that are not UTF-8 have keys, too.
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


def _hashable(value: object) -> object:
    if isinstance(value, dict):
        return tuple(_hashable(part) for part in value.values())
    if isinstance(value, list | tuple):
        return tuple(_hashable(part) for part in value)
    return "NaN" if isinstance(value, float) and math.isnan(value) else value
