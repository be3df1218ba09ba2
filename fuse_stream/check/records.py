"""Compare segments and blocks with their records: totals, bounds, columns, values. No I/O.

Each function returns a text that says what is wrong, or None.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from fuse_stream.errors import FuseError
from fuse_stream.format.block import column_metas, decode_block, stored_columns
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.records import Block, ColumnStats, Segment, SegmentRef
from fuse_stream.format.schema import Schema
from fuse_stream.format.split_block import hashes_of, missing_hashes
from fuse_stream.format.stats import column_stats, contains, merge_stats

Stats = Mapping[int, ColumnStats]


def flaw_of_segment(segment: Segment, ref: SegmentRef) -> str | None:
    """Return how a segment or its snapshot's record differs from the sum of its blocks."""
    blocks, summary = segment.blocks, segment.summary
    rows = sum(block.row_count for block in blocks)
    if not rows == summary.row_count == ref.row_count:
        return f"its blocks hold {rows} rows, the records say otherwise"
    if not len(blocks) == summary.block_count == ref.block_count:
        return f"it holds {len(blocks)} blocks, the records say otherwise"
    names = ("block_size", "file_size", "index_size")
    sizes = tuple(sum(getattr(block, name) for block in blocks) for name in names)
    if sizes != (
        summary.uncompressed_byte_size,
        summary.compressed_byte_size,
        summary.index_size,
    ):
        return "its sizes are not the sums of its blocks'"
    merged = merge_stats((block.col_stats, block.row_count) for block in blocks)
    return (
        flaw_of_bounds(summary.col_stats, merged, rows)
        or _flaw_of_nulls(summary.col_stats, merged)
        or _flaw_of_key_range(ref, merged, rows)
    )


def flaw_of_bounds(parent: Stats, child: Stats, rows: int) -> str | None:
    """Return which of the parent's bounds do not contain those of a child with `rows` rows."""
    for column, part in child.items():
        whole = parent.get(column)
        is_empty = part.null_count + part.nan_count >= rows and part.min is None is part.max
        if whole is None or not (is_empty or contains(whole, part.min, part.max)):
            return f"the bounds of column {column} do not contain those of a part"
    return None


def flaw_of_block(data: bytes, block: Block, schema: Schema) -> str | None:
    """Return how the file of a block, `data`, differs from its record; reads the whole file.

    `schema` is the block's own, or a later one of the same branch.
    """
    if len(data) != block.file_size:
        return f"it has {len(data)} bytes, its record says {block.file_size}"
    if sha256_hex(data) != block.sha256:
        return "its bytes were changed: they do not have the recorded hash"
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        if file.num_row_groups != 1:
            return f"it has {file.num_row_groups} row groups, not one"
        columns = stored_columns(file.schema_arrow.serialize().to_pybytes())
        stored = Schema(id=block.schema_id, last_column_id=schema.last_column_id, columns=columns)
        if column_metas(file.metadata, stored) != dict(block.col_metas):
            return "its columns do not have the ids and places that its record says"
        rows = decode_block(pa.BufferReader(data), block, schema)
    except (FuseError, pa.ArrowException, OSError, UnicodeDecodeError) as error:
        return str(error)
    if flaw := _flaw_of_filters(file, data, block, stored):
        return flaw
    bounded = frozenset(schema.bounded_ids.values())
    found = {
        column: stats for column, stats in column_stats(rows, schema).items() if column in bounded
    }
    unknown = ColumnStats(null_count=block.row_count, in_memory_size=0)
    recorded = {column: block.col_stats.get(column, unknown) for column in found}
    return flaw_of_bounds(recorded, found, block.row_count) or _flaw_of_nulls(recorded, found)


def _flaw_of_filters(file: pq.ParquetFile, data: bytes, block: Block, stored: Schema) -> str | None:
    """Return which Bloom filter lacks a value of its column."""
    for column in stored.columns:
        bloom = block.col_metas[column.id].bloom if column.id in block.col_metas else None
        if bloom is None:
            continue
        if bloom.type != column.type:
            return f"the filter of column {column.id} is for another type than the file's"
        bits = data[bloom.offset : bloom.offset + bloom.len]
        # By name: `columns` takes `a.b` for the field of a struct as well.
        values = file.read_row_group(0, columns=[column.name]).column(column.name)
        lost = missing_hashes(bits, hashes_of(values, bloom.type))
        if lost:
            return f"the filter of column {column.id} lacks {lost} of its values"
    return None


def _flaw_of_key_range(ref: SegmentRef, merged: Stats, rows: int) -> str | None:
    if ref.key_range is None:
        return None
    parts = zip(ref.key_range.columns, ref.key_range.min, ref.key_range.max, strict=True)
    ranges = {
        column: ColumnStats(min=low, max=high, null_count=0, in_memory_size=0)
        for column, low, high in parts
    }
    return flaw_of_bounds(ranges, {c: s for c, s in merged.items() if c in ranges}, rows)


def _flaw_of_nulls(recorded: Stats, found: Stats) -> str | None:
    for column, stats in found.items():
        stated = recorded[column]
        if (stated.null_count, stated.nan_count) != (stats.null_count, stats.nan_count):
            return f"column {column} has other counts of nulls or NaN than its record says"
    return None
