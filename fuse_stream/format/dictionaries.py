"""Text columns with repeated values, kept as dictionaries while blocks are rewritten.

Reading, hashing and writing each distinct text once is faster. The block's record and file are the
same as without dictionaries: no size counts a dictionary, and no dictionary has a value that no
row has, or values erased from the rows would stay in the file.
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
"""Parquet stops using a column's dictionary at this size, but still stores the dictionary."""


FEW_ROWS = 32_768
"""Chunks with fewer rows are combined first: statistics of many small chunks are slow."""


def repeated_texts(
    blocks: Sequence[Block], schema: Schema, *, apart_from: Sequence[int] = ()
) -> list[str]:
    """Return the names of the text columns that have many repeated values in each of `blocks`."""
    return [
        column.name
        for column in schema.columns
        if column.type in {"string", "binary"}
        and column.id not in apart_from
        and all(_repeats(block.col_stats.get(column.id), block.row_count) for block in blocks)
    ]


def joined(tables: Sequence[pa.Table], plain: pa.Schema) -> pa.Table:
    """Return the rows of all tables; their schema is `plain`, except for dictionary columns.

    If the tables differ in which columns are dictionaries, the result has none.
    """
    if any(table.schema != tables[0].schema for table in tables[1:]):
        tables = [table.cast(plain) for table in tables]
    return pa.concat_tables(tables)


def with_one_dictionary(table: pa.Table) -> pa.Table:
    """Return `table` with one dictionary per column, which has only the values of its rows."""
    table = table.unify_dictionaries()
    for index, column in enumerate(table.columns):
        if pa.types.is_dictionary(column.type):
            values = _of_used(column)
            field = table.schema.field(index).with_type(values.type)
            table = table.set_column(index, field, values)
    return table


def plain_byte_size(values: pa.ChunkedArray) -> int:
    """Return the size of `values` in bytes without dictionaries."""
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
    is_used = presence(indices, 0, len(dictionary) - 1)
    if is_used.all():
        return column
    indexes = pa.array(np.cumsum(is_used, dtype=np.int32) - np.int32(1))
    dictionary = dictionary.filter(pa.array(is_used))
    return pa.chunked_array(
        pa.DictionaryArray.from_arrays(indexes.take(chunk), dictionary) for chunk in indices.chunks
    )


def _repeats(stats: ColumnStats | None, rows: int) -> bool:
    distinct = stats.distinct_of_values if stats else None
    return distinct is not None and distinct * 8 <= rows


def numpy_view(values: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return a NumPy view of fixed-width values, without a copy; undefined where they are null."""
    # Not `to_numpy`: it imports pandas, and converts integers with nulls to floats.
    item = np.dtype(dtype)
    start, count = values.offset * item.itemsize, len(values)
    return np.frombuffer(
        values.buffers()[1], item.base, count * item.itemsize // item.base.itemsize, start
    ).reshape(count, *item.shape)


def presence(values: pa.ChunkedArray, low: int, high: int) -> npt.NDArray[np.bool_]:
    """Return, for each integer from `low` to `high`, whether `values` has it.

    All of `values` are within this range.
    """
    is_there = np.zeros(high - low + 1, np.bool_)
    dtype = np.dtype(f"i{values.type.bit_width // 8}")
    for chunk in values.drop_null().chunks:
        if len(chunk):
            is_there[np.subtract(numpy_view(chunk, dtype), low, dtype=np.int64)] = True
    return is_there
