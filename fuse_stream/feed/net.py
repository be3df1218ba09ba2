"""The net rows of a difference: equal rows of its two sides cancel out.

Rows are equal if Spark groups them together (`format.grouping`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.grouping import cancel_equal_rows, grouping_keys
from fuse_stream.format.records import Block
from fuse_stream.format.schema import Schema
from fuse_stream.reading.scan import Selection, read_each, readers_in_task
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
        for found in read_each(store, blocks, readers=readers_in_task(store)):
            shown = found if of == 1 else found.filter(in_share(found, share, of))
            parts.append(shown)
        return pa.concat_tables(parts)

    return cancel_equal_rows(rows(removed), rows(inserted))


def in_share(rows: pa.Table, share: int, of: int) -> pa.Array:
    """Return for each row whether it is in a share; equal rows are in the same share."""
    total = pa.repeat(pa.scalar(0, pa.int64()), len(rows))
    for column in grouping_keys(rows).columns:
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
