"""Bloom filters of columns: which columns have one, and where it is in a block's file. Pure.

The property `fuse.bloom.columns` names them. A name without a column, such as after a rewind, is
ignored. `split_block` has the bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow.parquet as pq

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.bloom_filter import BloomFilter
from fuse_stream.format.properties import BLOOM, iter_listed_columns
from fuse_stream.format.schema import Leaf, Schema
from fuse_stream.format.split_block import is_filterable

FALSE_POSITIVES = 0.01
"""The share of absent values that a filter does not rule out."""


def filter_options(
    schema: Schema, names: Sequence[str], row_count: int
) -> dict[str, dict[str, float]] | None:
    """Return what pyarrow needs to write filters for the columns with these names; None for none.

    Its keys are the columns' names in files.

    It makes a filter smaller that turns out to be for fewer values than rows.
    """
    options = {
        column.stored_name: {"ndv": row_count, "fpp": FALSE_POSITIVES}
        for column in schema.columns
        if column.name in names and is_filterable(column.type)
    }
    return options or None


def filter_of(leaf: Leaf, chunk: pq.ColumnChunkMetaData) -> BloomFilter | None:
    """Return the location of the filter of a column chunk; None if there is none."""
    if chunk.bloom_filter_offset is None or len(leaf.path) > 1:
        # Parquet names `b` in the struct `a` and a column `a.b` alike, so both have the filter.
        return None
    # The header has fewer bytes than the bits, which are a power of two.
    bit_bytes = 1 << (chunk.bloom_filter_length.bit_length() - 1)
    header_bytes = chunk.bloom_filter_length - bit_bytes
    return BloomFilter(
        offset=chunk.bloom_filter_offset + header_bytes, len=bit_bytes, type=leaf.column.type
    )


def check_filtered(schema: Schema, properties: Mapping[str, str]) -> None:
    """Raise unless `fuse.bloom.columns` names columns of a table that may have filters.

    Raises:
        InvalidInputError: there is no such column, or its type has no filter.
    """
    for column in iter_listed_columns(BLOOM, schema, properties):
        if not is_filterable(column.type):
            raise InvalidInputError(
                "a column of this type cannot have a Bloom filter: take it out of "
                f"{BLOOM}; integers, decimals, dates, timestamps, text and binary can",
                column=column.name,
                type=column.type,
            )
