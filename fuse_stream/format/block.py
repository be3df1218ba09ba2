"""Encode rows as a block, a Parquet file with one row group, and decode a block's file."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.types import is_dictionary

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.arrow import FIELD_ID, adapt, arrow_schema, child_fields, columns_of_arrow
from fuse_stream.format.bloom import filter_of, filter_options
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.dictionaries import FEW_ROWS, with_one_dictionary
from fuse_stream.format.private import private_ids
from fuse_stream.format.records import Block, ClusterStats, ColumnMeta, ColumnStats, KeyRange
from fuse_stream.format.schema import Column, Schema, stored_form
from fuse_stream.format.stats import column_stats, key_range, without_bounds

COMPRESSION = "zstd"

ENCODED_AT_ONCE = 16_384
"""Values of a column that Arrow encodes at once; its default, 1,024, takes 5 % longer."""


def encode_block(
    table: pa.Table,
    schema: Schema,
    cluster_key: tuple[int, ...],
    *,
    block_id: str,
    private: Sequence[str] = (),
    filtered: Sequence[str] = (),
) -> tuple[Block, pa.Buffer]:
    """Return the record and the bytes of a block with the rows of `table`, in their order.

    `table` has the schema `schema` (`arrow.adapt`) and at least one row, and is sorted by the
    cluster key. Its text columns may be dictionaries. In the file its columns have their names in
    files (`stored_form`). The columns named `private` get no bounds,
    neither in the record nor in the footer. The columns named `filtered` get Bloom filters.
    """
    if len(table) < FEW_ROWS * max(column.num_chunks for column in table.columns):
        table = table.combine_chunks()
    table = with_one_dictionary(table)
    write = partial(_parquet, table, schema, private=private, filtered=filtered)
    if pa.cpu_count() == 1:
        data, stats = write(), column_stats(table, schema)
    else:
        with ThreadPoolExecutor(1) as pool:  # both run in Arrow, each on a core of its own
            future = pool.submit(column_stats, table, schema)
            data, stats = write(), future.result()
    stats = dict(without_bounds(stats, private_ids(schema, private)))
    return _record(table, schema, data, stats, key_range(stats, cluster_key), block_id), data


def block_of_file(
    data: pa.Buffer, table: pa.Table, schema: Schema, cluster_key: tuple[int, ...], *, block_id: str
) -> Block:
    """Return the record of a block whose file is `data`, with the rows of `table`.

    The rows are sorted by the cluster key; without one the block counts as unsorted.
    """
    stats = column_stats(table, schema)
    return _record(table, schema, data, stats, key_range(stats, cluster_key), block_id)


def _record(  # noqa: PLR0917 - private, of two callers
    table: pa.Table,
    schema: Schema,
    data: pa.Buffer,
    stats: dict[int, ColumnStats],
    cluster_range: KeyRange | None,
    block_id: str,
) -> Block:
    return Block(
        id=block_id,
        row_count=len(table),
        block_size=sum(
            # Only text columns with statistics are dictionaries.
            stats[column.id].in_memory_size if is_dictionary(values.type) else values.nbytes
            for column, values in zip(schema.columns, table.columns, strict=True)
        ),
        file_size=data.size,
        sha256=sha256_hex(data),
        schema_id=schema.id,
        col_stats=stats,
        col_metas=column_metas(pq.read_metadata(pa.BufferReader(data)), schema),
        cluster_stats=ClusterStats(range=cluster_range) if cluster_range else None,
        compression=COMPRESSION,
    )


def decode_block(
    source: BinaryIO | pa.NativeFile,
    block: Block,
    target: Schema,
    *,
    is_verified: bool = False,
    repeated: Sequence[str] = (),
    use_threads: bool = False,
) -> pa.Table:
    """Return the columns of `target` from a block's file; a column that the file lacks is null.

    If `is_verified`, the file has the hash in `block`, so page checksums are not compared. The text
    columns `repeated` (`repeated_texts`) are returned as dictionaries, if the block has exactly the
    schema `target`. With `use_threads` Arrow uses its threads.

    Raises:
        CorruptObjectError: a page's checksum, the file's structure or its row count is wrong.
    """
    in_files = stored_form(target)
    if repeated and in_files is not target:
        stored_names = {one.name: one.stored_name for one in target.columns}
        repeated = [stored_names[name] for name in repeated]
    try:
        file = pq.ParquetFile(
            source,
            page_checksum_verification=not is_verified,
            # Of a large file the column chunks, each by one read; a small one is in memory.
            pre_buffer=not is_verified,
            read_dictionary=list(repeated),
        )
        rows = file.metadata.num_rows
        _check_row_count(block, rows)
        if file.schema_arrow.equals(_as_read(in_files, tuple(repeated)), check_metadata=True):
            table = file.read(use_threads=use_threads)  # most blocks have the schema `target`
            _check_row_count(block, len(table))
            return table if in_files is target else _named(table, in_files, target)
        if repeated:
            return decode_block(source, block, target, is_verified=is_verified)
        columns = stored_columns(file.schema_arrow.serialize().to_pybytes())
        wanted = {column.id for column in target.columns}
        chosen = tuple(column for column in columns if column.id in wanted)
        table = file.read(columns=[column.name for column in chosen], use_threads=False)
        _check_row_count(block, len(table) if chosen else rows)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: a column's name
        raise CorruptObjectError("a block cannot be read", block=block.id) from error
    if not chosen:
        nulls = [pa.nulls(rows, field.type) for field in arrow_schema(target)]
        return pa.Table.from_arrays(nulls, schema=arrow_schema(target))
    return adapt(table.select([column.name for column in chosen]), chosen, target)


def _named(table: pa.Table, schema: Schema, names: Schema) -> pa.Table:
    """Return `table`, of `schema`, with the names of the columns of `names`, at every depth.

    Both have the same columns; text columns of the table may be dictionaries.
    """
    arrays, fields = [], []
    for column, new, values, field in zip(
        schema.columns, names.columns, table.columns, arrow_schema(names), strict=True
    ):
        if column.children and column != new:
            one = dataclasses.replace(names, columns=(new,))
            (values,) = adapt(pa.table([values], [column.name]), (column,), one).columns  # noqa: PLW2901
        arrays.append(values)
        fields.append(field.with_type(values.type))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


@lru_cache(maxsize=256)
def _as_read(schema: Schema, repeated: tuple[str, ...]) -> pa.Schema:
    """Return the Arrow schema of a file of `schema`, the `repeated` columns as dictionaries."""
    return pa.schema(
        [
            field.with_type(pa.dictionary(pa.int32(), field.type))
            if field.name in repeated
            else field
            for field in arrow_schema(schema)
        ]
    )


def _parquet(
    table: pa.Table, schema: Schema, *, private: Sequence[str], filtered: Sequence[str]
) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    in_files = stored_form(schema)
    if in_files is not schema:
        table = _named(table, schema, in_files)
    # The Arrow schema is not stored: Parquet's types and ids are complete, and a reader that finds
    # an Arrow schema would return Arrow types that blocks do not have.
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression=COMPRESSION,
        store_schema=False,
        write_page_checksum=True,
        write_batch_size=ENCODED_AT_ONCE,
        write_statistics=_described(schema, private) if private else True,
        bloom_filter_options=filter_options(schema, filtered, len(table)),
    ) as writer:
        writer.write_table(table, row_group_size=len(table))
    return sink.getvalue()


def _described(schema: Schema, private: Sequence[str]) -> list[str]:
    """Return the Parquet paths of the leaves that have statistics beside private columns."""
    hidden = private_ids(schema, private)
    return [
        ".".join(leaf.stored_path)
        for leaf in schema.leaves()
        if leaf.column.id not in hidden and not leaf.repeated
    ]


def _check_row_count(block: Block, rows: int) -> None:
    if rows != block.row_count:  # the footer holds the count twice, and one may be damaged
        raise CorruptObjectError(
            "the number of rows in a block differs from its record; run fuse-stream fsck",
            block=block.id,
            stored=rows,
            recorded=block.row_count,
        )


@lru_cache(maxsize=256)
def stored_columns(serialized: bytes) -> tuple[Column, ...]:
    """Return the columns of a block's serialized Arrow schema, with the ids that it holds."""
    # The cache key is bytes: pyarrow calls two schemas equal even if their ids differ.
    schema = pa.ipc.read_schema(pa.py_buffer(serialized))
    return tuple(
        _with_stored_ids(column, field)
        for column, field in zip(columns_of_arrow(schema), schema, strict=True)
    )


def _with_stored_ids(column: Column, field: pa.Field) -> Column:
    metadata = field.metadata or {}
    if FIELD_ID not in metadata:
        raise CorruptObjectError("a column of a block has no id", column=column.name)
    return dataclasses.replace(
        column,
        id=int(metadata[FIELD_ID]),
        children=tuple(
            _with_stored_ids(child, part)
            for child, part in zip(column.children, child_fields(field.type), strict=True)
        ),
    )


def column_metas(metadata: pq.FileMetaData, schema: Schema) -> dict[int, ColumnMeta]:
    """Return the location of each leaf column in a file of `schema`, by column id."""
    group = metadata.row_group(0)
    metas = {}
    for place, leaf in enumerate(schema.leaves()):
        chunk = group.column(place)
        first = chunk.data_page_offset
        if chunk.dictionary_page_offset is not None:
            first = min(first, chunk.dictionary_page_offset)
        metas[leaf.column.id] = ColumnMeta(
            offset=first,
            len=chunk.total_compressed_size,
            num_values=chunk.num_values,
            bloom=filter_of(leaf, chunk),
        )
    return metas
