"""The net rows of a difference: equal rows of its two sides cancel out.

Rows are equal if Spark groups them together: null equals null, NaN equals NaN whatever its bits,
and -0.0 equals 0.0. Floating-point numbers are compared and hashed by their bits, so that every
processor gets the same result.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.records import Block
from fuse_stream.format.schema import Schema
from fuse_stream.reading.scan import Selection, read_block
from fuse_stream.storage.base import Store


def read_net(
    store: Store,
    removed: Iterable[tuple[Block, Selection]],
    inserted: Iterable[tuple[Block, Selection]],
    schema: Schema,
    *,
    share: int = 0,
    of: int = 1,
) -> tuple[pa.Table, pa.Table]:
    """Return the wanted rows of both sides minus their multiset intersection.

    Every block has a selection that reads it in the columns of `schema`; the columns' ids may
    differ. With `of`, the rows are divided by their hash into that number of shares, and only those
    of one share are returned. Equal rows fall into the same share in every process, so each task
    can take one share.
    """

    def rows(blocks: Iterable[tuple[Block, Selection]]) -> pa.Table:
        parts = [arrow_schema(schema).empty_table()]
        for block, selection in blocks:
            found = read_block(store, block, selection)
            parts.append(found if of == 1 else found.filter(_in_share(found, share, of)))
        return pa.concat_tables(parts)

    return cancel_equal_rows(rows(removed), rows(inserted))


def cancel_equal_rows(removed: pa.Table, inserted: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return both tables minus their multiset intersection."""
    if not len(removed) or not len(inserted):
        return removed, inserted
    keys = _keys(pa.concat_tables([removed, inserted]))
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
    kept = at.filter(keeps)
    kept = kept.take(pc.sort_indices(kept))
    is_removed = pc.less(kept, of_removed)
    return (
        removed.take(kept.filter(is_removed)),
        inserted.take(pc.subtract(kept.filter(pc.invert(is_removed)), of_removed)),
    )


def _in_share(rows: pa.Table, share: int, of: int) -> pa.Array:
    """Return for each row whether it is in a share; equal rows are in the same share."""
    total = pa.repeat(pa.scalar(0, pa.int64()), len(rows))
    for column in _keys(rows).columns:
        number = pc.fill_null(_number(column.combine_chunks()), 7)
        # Round doubles have zeros in their low half, and multiplication carries no bits down.
        folded = pc.bit_wise_xor(number, pc.shift_right(number, 32))
        total = pc.multiply(pc.bit_wise_xor(total, folded), _SPREAD)
    mixed = pc.bit_wise_and(pc.shift_right(total, 32), _POSITIVE)
    rest = pc.subtract(mixed, pc.multiply(pc.divide(mixed, of), of))
    return pc.equal(rest, share)


_SPREAD = 6_364_136_223_846_793_005
_POSITIVE = 2**31 - 1


def _number(column: pa.Array) -> pa.Array:
    """Return a 64-bit hash for each value, the same in every process."""
    types = pa.types
    if types.is_boolean(column.type) or types.is_integer(column.type):
        return column.cast(pa.int64(), safe=False)
    values = pc.dictionary_encode(column)  # hash each value once: crc32 runs in Python
    numbers = [
        None if v is None else zlib.crc32(repr(v).encode()) for v in values.dictionary.to_pylist()
    ]
    return pc.take(pa.array(numbers, pa.int64()), values.indices)


def _keys(rows: pa.Table) -> pa.Table:
    """Return key columns, whose bytes are equal if Spark groups the values together."""
    columns = [_keyed(rows.column(at)) for at in range(rows.num_columns)]
    return pa.table(columns, names=[f"c{at}" for at in range(rows.num_columns)])


def _keyed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    plain = column.cast(_plain(column.type))
    if pa.types.is_nested(plain.type):
        texts = (None if v is None else repr(_comparable(v)) for v in plain.to_pylist())
        return pa.chunked_array([pa.array(texts, pa.string())])
    if pa.types.is_floating(plain.type):
        bits = pa.int64() if pa.types.is_float64(plain.type) else pa.int32()
        return pa.chunked_array([_bits(chunk, bits) for chunk in plain.chunks], type=bits)
    return plain


def _bits(values: pa.Array, bits: pa.DataType) -> pa.Array:
    """Return the bits of floating-point numbers, with one value for all NaN and one for zero."""
    one_zero = pc.if_else(pc.equal(values, 0), pa.scalar(0, bits), values.view(bits))
    nan = -1  # as bits this is a NaN in every width
    return pc.if_else(pc.is_nan(values), pa.scalar(nan, bits), one_zero)


def _numbers(count: int) -> pa.Array:
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count)), 1)


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
