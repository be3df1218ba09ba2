"""Columns of text that repeat their values, held as dictionaries while blocks are rewritten.

To read, hash and write a text once for all its rows takes a part of the time. A block's record and
file are the same as if each row had its own: no size counts a dictionary, and none has a value
that stands in no row, or what was erased from the rows would live on in the file.

Arrow's values as NumPy sees them where they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.format.records import Block, ColumnStats
from fuse_stream.format.schema import Schema

MAX_DICTIONARY_BYTES = 1024 * 1024
"""Parquet gives up a column's dictionary when it is larger, but stores what there is of it."""


def repeated_texts(
    blocks: Sequence[Block], schema: Schema, *, apart_from: Sequence[int] = ()
) -> list[str]:
    """Return the columns of text of which each of `blocks` repeats its values many times."""
    return [
        column.name
        for column in schema.columns
        if column.type in {"string", "binary"}
        and column.id not in apart_from
        and all(_repeats(block.col_stats.get(column.id), block.row_count) for block in blocks)
    ]


def joined(tables: Sequence[pa.Table], plain: pa.Schema) -> pa.Table:
    """Return the rows of all tables, of `plain`'s schema but that texts may be dictionaries.

    Where one table has a column as a dictionary and another has not, none has.
    """
    if any(table.schema != tables[0].schema for table in tables[1:]):
        tables = [table.cast(plain) for table in tables]
    return pa.concat_tables(tables)


def with_one_dictionary(table: pa.Table) -> pa.Table:
    """Return `table` with one dictionary a column, of just the values that stand in its rows."""
    table = table.unify_dictionaries()
    for place, column in enumerate(table.columns):
        if pa.types.is_dictionary(column.type):
            values = _of_used(column)
            field = table.schema.field(place).with_type(values.type)
            table = table.set_column(place, field, values)
    return table


def plain_byte_size(values: pa.ChunkedArray) -> int:
    """Return how many bytes values take when each row has its own."""
    if not pa.types.is_dictionary(values.type):
        return cast("int", values.nbytes)
    return sum(map(_plain_byte_size, values.chunks))


def _plain_byte_size(values: pa.DictionaryArray) -> int:
    texts = pc.sum(pc.binary_length(values.dictionary).take(values.indices)).as_py() or 0
    return cast("int", values.indices.nbytes + texts)  # an offset is as long as an index


def _of_used(column: pa.ChunkedArray) -> pa.ChunkedArray:
    dictionary = column.chunk(0).dictionary
    if dictionary.nbytes > MAX_DICTIONARY_BYTES:
        return column.cast(column.type.value_type)
    indices = pa.chunked_array([chunk.indices for chunk in column.chunks])
    is_used = marked(indices, 0, len(dictionary) - 1)
    if is_used.all():
        return column
    places = pa.array(np.cumsum(is_used, dtype=np.int32) - np.int32(1))
    dictionary = dictionary.filter(pa.array(is_used))
    return pa.chunked_array(
        pa.DictionaryArray.from_arrays(places.take(chunk), dictionary) for chunk in indices.chunks
    )


def _repeats(stats: ColumnStats | None, rows: int) -> bool:
    distinct = stats.distinct_of_values if stats else None
    return distinct is not None and distinct * 8 <= rows


def numpy_view(values: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return values of a fixed width as they lie in memory; anything where they are null."""
    # Not by `to_numpy`, which loads pandas, and which makes floats of integers beside nulls.
    item = np.dtype(dtype)
    start, count = values.offset * item.itemsize, len(values)
    return np.frombuffer(
        values.buffers()[1], item.base, count * item.itemsize // item.base.itemsize, start
    ).reshape(count, *item.shape)


def marked(values: pa.ChunkedArray, low: int, high: int) -> npt.NDArray[np.bool_]:
    """Return for each integer from `low` to `high` whether it is among `values`, all of these."""
    is_there = np.zeros(high - low + 1, np.bool_)
    dtype = np.dtype(f"i{values.type.bit_width // 8}")
    for chunk in values.drop_null().chunks:
        if len(chunk):
            is_there[np.subtract(numpy_view(chunk, dtype), low, dtype=np.int64)] = True
    return is_there
