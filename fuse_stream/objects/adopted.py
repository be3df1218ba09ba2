"""Judge whether a Parquet file of another writer is a block as it is.

`docs/format.md`, section "Blocks", says what a block's file has to be. Footer and page headers tell
whether a file is that. The statistics of its record are computed from its values, not taken from
its footer: a footer does not count NaN, and old writers compared text in another order.

A file whose rows are not in the order of the cluster key is a block that counts as unsorted.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.block import COMPRESSION, block_of_file, stored_columns
from fuse_stream.format.page_headers import has_checksums
from fuse_stream.format.records import Block
from fuse_stream.format.schema import ARRAY, MAP, NESTED, Column, Schema, decimal_of
from fuse_stream.objects.blocks import sort_order

_ARROW_SCHEMA = b"ARROW:schema"

_STORED = {
    "boolean": ("BOOLEAN", "NONE"),
    "byte": ("INT32", "INT"),
    "short": ("INT32", "INT"),
    "integer": ("INT32", "NONE"),
    "long": ("INT64", "NONE"),
    "float": ("FLOAT", "NONE"),
    "double": ("DOUBLE", "NONE"),
    "string": ("BYTE_ARRAY", "STRING"),
    "binary": ("BYTE_ARRAY", "NONE"),
    "date": ("INT32", "DATE"),
    "timestamp": ("INT64", "TIMESTAMP"),
    "timestamp_ntz": ("INT64", "TIMESTAMP"),
}
"""Physical and logical type of each type."""


def flaw_of_footer(metadata: pq.FileMetaData, arrow: pa.Schema, schema: Schema) -> str | None:
    """Return why a file is no block of `schema`; None if its footer shows nothing.

    `arrow` is the file's Arrow schema.
    """
    if metadata.num_row_groups != 1:
        return "not one row group"
    if _ARROW_SCHEMA in (metadata.metadata or {}):
        return "an Arrow schema in the footer"
    group = metadata.row_group(0)
    chunks = [group.column(at) for at in range(group.num_columns)]
    if any(chunk.compression.lower() != COMPRESSION for chunk in chunks):
        return f"not compressed with {COMPRESSION}"
    try:
        columns = stored_columns(arrow.serialize().to_pybytes())
    except CorruptObjectError:
        return "columns without field ids"
    if columns != schema.columns:
        return "other columns, types or field ids than the table"
    leaves = [leaf for column in schema.columns for leaf in _leaves(column, (column.name,))]
    stored = [metadata.schema.column(at) for at in range(len(metadata.schema))]
    if len(stored) != len(leaves) or any(map(_differs, stored, *zip(*leaves, strict=True))):
        return "types stored in another way"
    return None


def adopt_block(
    data: bytes, schema: Schema, cluster_key: tuple[int, ...], *, block_id: str
) -> Block | str:
    """Return the record of the block whose file is `data`; or a text, why it is none.

    The file has passed `flaw_of_footer`.

    Raises:
        CorruptObjectError: the file is damaged.
    """
    file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    group = file.metadata.row_group(0)
    view = memoryview(data)
    for at in range(group.num_columns):
        chunk = group.column(at)
        start = chunk.data_page_offset
        if chunk.dictionary_page_offset is not None:
            start = min(start, chunk.dictionary_page_offset)
        if not has_checksums(view[start : start + chunk.total_compressed_size]):
            return "pages without checksums"
    try:
        table = file.read().cast(arrow_schema(schema))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise CorruptObjectError(
            "a Parquet file cannot be read: it is damaged", reason=str(error)
        ) from error
    order = sort_order(table, schema, cluster_key).to_numpy() if cluster_key else None
    is_sorted = order is not None and bool((order[1:] > order[:-1]).all())
    key = cluster_key if is_sorted else ()
    return block_of_file(pa.py_buffer(data), table, schema, key, block_id=block_id)


def _leaves(column: Column, path: tuple[str, ...]) -> Iterator[tuple[str, Column]]:
    if column.type not in NESTED:
        yield ".".join(path), column
        return
    between = {ARRAY: ("list",), MAP: ("key_value",)}.get(column.type, ())
    for child in column.children:
        yield from _leaves(child, (*path, *between, child.name))


def _differs(stored: pq.ColumnSchema, path: str, column: Column) -> bool:
    found = stored.physical_type, stored.logical_type.type
    if decimal := decimal_of(column.type):
        least = next(size for size in range(1, 17) if 10 ** decimal[0] <= 2 ** (8 * size - 1))
        wanted = ("FIXED_LEN_BYTE_ARRAY", "DECIMAL")
        return stored.path != path or found != wanted or stored.length != least
    physical, logical = _STORED[column.type]
    if found == (physical, "INT") and column.type in {"integer", "long"}:
        found = physical, "NONE"  # Int(32) and Int(64) are what a plain INT32 and INT64 mean
    return stored.path != path or found != (physical, logical)
