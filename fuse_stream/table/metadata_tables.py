"""The metadata tables: rows about a table, such as its snapshots, its blocks or its consumers.

This module alone says which there are and what their columns are; `Table.metadata`, the catalog's
`lake.t.blocks`, `format("fuse")` and the functions in SQL show the same rows.

Rules:
- Columns are named as those of Databend's functions (`fuse_snapshot`, `fuse_block`) where the
  meaning is the same.
- The types are long, double, boolean, string, timestamp in UTC, and lists of strings.
- A location is a key below the table's folder.
- A release may add columns at the end; it never renames or drops one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice

import pyarrow as pa

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.layout import block_key, segment_key, slot_key
from fuse_stream.format.names import Version
from fuse_stream.format.records import ColumnStats, Snapshot
from fuse_stream.format.schema import Leaf
from fuse_stream.format.text import bound
from fuse_stream.objects.refs import iter_branch_heads
from fuse_stream.objects.snapshot_blocks import iter_blocks
from fuse_stream.optimize.overlap import measure_clustering
from fuse_stream.optimize.recluster import no_cluster_key
from fuse_stream.table.reads import BranchReader

Row = tuple[object, ...]
"""Values in the order of the columns; a time is in microseconds since 1970."""

_SECOND_US = 1_000_000
_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataTable:
    """The columns of one of these tables, and how its rows are made."""

    schema: pa.Schema
    rows: Callable[[BranchReader, Snapshot], Iterator[Row]]
    """Takes the handle of a branch, and the snapshot that the rows are about."""
    is_of_version: bool = False
    """True if the rows are about one snapshot; else they are about the table or the branch now."""


def metadata_table(table: BranchReader, name: str, version: Version | None = None) -> pa.Table:
    """Return one of the metadata tables of a branch; arguments and errors of `Table.metadata`."""
    return pa.Table.from_batches(iter_batches(table, name, version), get_kind(name).schema)


def iter_batches(
    table: BranchReader, name: str, version: Version | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield a metadata table a part at a time; arguments and errors of `Table.metadata`."""
    schema = get_kind(name).schema
    rows = iter_rows(table, name, version)
    for part in iter(lambda: list(islice(rows, _ROWS_AT_ONCE)), []):
        columns = zip(*part, strict=True)
        arrays = [
            pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)
        ]
        yield pa.record_batch(arrays, schema=schema)


def iter_rows(table: BranchReader, name: str, version: Version | None = None) -> Iterator[Row]:
    """Return the rows of a metadata table; arguments and errors of `Table.metadata`."""
    check_version(name, version)
    return get_kind(name).rows(table, table.snapshot(version))


def check_version(name: str, version: Version | None) -> None:
    """Raise unless there is such a metadata table, and its rows can be about a version.

    Raises:
        InvalidInputError: they cannot, or there is no such metadata table.
    """
    if version is not None and not get_kind(name).is_of_version:
        raise InvalidInputError(
            "these rows are not about one version of the table; leave the version out",
            metadata=name,
            version=version,
            of_a_version=[one for one, other in METADATA.items() if other.is_of_version],
        )


def get_kind(name: str) -> MetadataTable:
    """Return a metadata table by its name.

    Raises:
        InvalidInputError: there is no such metadata table.
    """
    if name not in list(METADATA):  # no lookup: a wrong name may have no hash
        raise InvalidInputError(
            "there is no such metadata table; name one of those that there are",
            metadata=name,
            known=[*METADATA],
        )
    return METADATA[name]


def batch_names(snapshot: Snapshot) -> list[str]:
    """Return the batches that a snapshot committed, as the log shows them."""
    return [batch_name(key, entry.batch_id) for key, entry in snapshot.batches.items()]


def batch_name(key: tuple[str, str], batch_id: int) -> str:
    """Return a batch of an application and a writer, as the log shows it."""
    return f"{'/'.join(filter(None, key))} #{batch_id}"


# ---- rows about the branch and the table


def _snapshots(table: BranchReader, _: Snapshot) -> Iterator[Row]:
    for snapshot in table.log():
        summary = snapshot.summary
        yield (
            snapshot.version,
            snapshot.snapshot_id,
            snapshot.timestamp_us,
            str(snapshot.operation),
            snapshot.data_change,
            summary.row_count,
            snapshot.message,
            snapshot.author,
            slot_key(snapshot.branch_id, snapshot.version),
            snapshot.format_version,
            snapshot.prev_snapshot_id,
            len(snapshot.segments),
            summary.block_count,
            summary.uncompressed_byte_size,
            summary.compressed_byte_size,
            summary.index_size,
        )


def _history(table: BranchReader, _: Snapshot) -> Iterator[Row]:
    for snapshot in table.log():
        yield (
            snapshot.version,
            snapshot.timestamp_us,
            str(snapshot.operation),
            snapshot.message,
            snapshot.author,
            batch_names(snapshot),
        )


def _refs(table: BranchReader, _: Snapshot) -> Iterator[Row]:
    for branch in table.branches():
        forked = branch.forks[-1].version if branch.forks else None
        yield branch.name, "branch", forked, branch.created_us
    for tag in table.tags():
        yield tag.name, "tag", tag.target.version, tag.created_us


def _tags(table: BranchReader, _: Snapshot) -> Iterator[Row]:
    for tag in table.tags():
        location = slot_key(tag.target.branch_id, tag.target.version)
        yield (
            tag.name,
            tag.target.version,
            tag.snapshot_id,
            location,
            tag.created_us,
            tag.expires_us,
        )


def _branches(table: BranchReader, _: Snapshot) -> Iterator[Row]:
    created_us = {branch.branch_id: branch.created_us for branch in table.branches()}
    for branch, stored in iter_branch_heads(table.committer.metadata):
        head = stored.snapshot
        yield (
            branch.name,
            branch.branch_id,
            head.version,
            head.snapshot_id,
            slot_key(head.branch_id, head.version),
            branch.forks[-1].version if branch.forks else None,
            created_us.get(branch.branch_id, branch.created_us),
        )


def _consumers(table: BranchReader, _: Snapshot) -> Iterator[Row]:
    for state in table.consumers():
        yield (
            state.consumer,
            state.branch,
            state.version,
            state.versions_behind,
            state.rows_to_read,
            None if state.behind_us is None else state.behind_us / _SECOND_US,
            state.is_live,
            state.lapses_us,
            state.owner_id,
        )


# ---- rows about one snapshot


def _segments(table: BranchReader, snapshot: Snapshot) -> Iterator[Row]:
    types = snapshot.schema.leaf_types
    segments = table.committer.metadata.iter_segments(snapshot.segments, types)
    for ref, segment in zip(snapshot.segments, segments, strict=True):
        yield (
            ref.id,
            ref.level,
            ref.block_count,
            ref.row_count,
            ref.byte_size,
            segment_key(ref.id),
            segment.format_version,
            segment.summary.uncompressed_byte_size,
            segment.summary.compressed_byte_size,
        )


def _blocks(table: BranchReader, snapshot: Snapshot) -> Iterator[Row]:
    for block in iter_blocks(table.committer.metadata, snapshot):
        yield (
            block.id,
            block.row_count,
            block.live_rows,
            block.file_size,
            block.block_size,
            snapshot.snapshot_id,
            snapshot.timestamp_us,
            block_key(block.id),
            block.origin,
        )


def _columns(table: BranchReader, snapshot: Snapshot) -> Iterator[Row]:
    leaves = tuple(snapshot.schema.leaves())
    for block in iter_blocks(table.committer.metadata, snapshot):
        for leaf in leaves:
            meta = block.col_metas.get(leaf.column.id)
            if meta is None:
                continue  # the block is older than the column
            yield (
                snapshot.snapshot_id,
                snapshot.timestamp_us,
                block_key(block.id),
                block.block_size,
                block.file_size,
                block.row_count,
                ".".join(leaf.path),
                leaf.column.type,
                leaf.column.id,
                meta.offset,
                meta.len,
                *_statistics_of(leaf, block.col_stats.get(leaf.column.id)),
                block.id,
            )


def _statistics(_: BranchReader, snapshot: Snapshot) -> Iterator[Row]:
    for leaf in snapshot.schema.leaves():
        stats = snapshot.summary.col_stats.get(leaf.column.id)
        yield (
            snapshot.snapshot_id,
            ".".join(leaf.path),
            leaf.column.type,
            leaf.column.id,
            *_statistics_of(leaf, stats),
            None if stats is None else stats.in_memory_size,
        )


def _statistics_of(leaf: Leaf, stats: ColumnStats | None) -> Row:
    """Return the bounds as text, and the counts; all None if there are no statistics."""
    if stats is None:
        return (None,) * 5
    low, high = (
        None if value is None else bound(value, leaf.column.type)
        for value in (stats.min, stats.max)
    )
    return low, high, stats.null_count, stats.nan_count, stats.distinct_of_values


def _ledger(_: BranchReader, snapshot: Snapshot) -> Iterator[Row]:
    for (application, writer), entry in sorted(snapshot.ledger.entries.items()):
        yield (
            application,
            writer,
            entry.query_id,
            entry.batch_id,
            entry.rows,
            entry.version,
            entry.timestamp_us,
        )


def _clustering(table: BranchReader, snapshot: Snapshot) -> Iterator[Row]:
    if not snapshot.cluster_key:
        raise no_cluster_key(snapshot)
    found = measure_clustering(snapshot, tuple(iter_blocks(table.committer.metadata, snapshot)))
    yield (
        ", ".join(found.columns),
        found.block_count,
        found.unsorted_count,
        found.average_overlap,
        found.average_depth,
        found.max_depth,
        json.dumps({str(depth): count for depth, count in found.depths.items()}),
        snapshot.version,
    )


# ---- their columns

_TYPES = {
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "strings": pa.list_(pa.string()),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def _of(
    rows: Callable[[BranchReader, Snapshot], Iterator[Row]],
    columns: str,
    *,
    is_of_version: bool = False,
) -> MetadataTable:
    """Return a metadata table; `columns` are names, each with a type after a colon."""
    fields = [column.split(":") for column in columns.split()]
    schema = pa.schema([(name, _TYPES[data_type]) for name, data_type in fields])
    return MetadataTable(schema=schema, rows=rows, is_of_version=is_of_version)


_of_version = partial(_of, is_of_version=True)

_STATISTICS = "min:string max:string null_count:long nan_count:long distinct_count:long"

METADATA: Mapping[str, MetadataTable] = {
    "snapshots": _of(
        _snapshots,
        "version:long snapshot_id:string timestamp:timestamp operation:string data_change:boolean "
        "row_count:long message:string author:string snapshot_location:string format_version:long "
        "previous_snapshot_id:string segment_count:long block_count:long bytes_uncompressed:long "
        "bytes_compressed:long index_size:long",
    ),
    "history": _of(
        _history,
        "version:long timestamp:timestamp operation:string message:string author:string "
        "batches:strings",
    ),
    "segments": _of_version(
        _segments,
        "segment_id:string level:long block_count:long row_count:long byte_size:long "
        "file_location:string format_version:long bytes_uncompressed:long bytes_compressed:long",
    ),
    "blocks": _of_version(
        _blocks,
        "block_id:string row_count:long live_rows:long file_size:long block_size:long "
        "snapshot_id:string timestamp:timestamp block_location:string origin:string",
    ),
    "columns": _of_version(
        _columns,
        "snapshot_id:string timestamp:timestamp block_location:string block_size:long "
        "file_size:long row_count:long column_name:string column_type:string column_id:long "
        f"block_offset:long bytes_compressed:long {_STATISTICS} block_id:string",
    ),
    "statistics": _of_version(
        _statistics,
        "snapshot_id:string column_name:string column_type:string column_id:long "
        f"{_STATISTICS} bytes_uncompressed:long",
    ),
    "refs": _of(_refs, "name:string type:string version:long created:timestamp"),
    "tags": _of(
        _tags,
        "name:string version:long snapshot_id:string snapshot_location:string created:timestamp "
        "expires_at:timestamp",
    ),
    "branches": _of(
        _branches,
        "name:string branch_id:string version:long snapshot_id:string snapshot_location:string "
        "forked_at:long created:timestamp",
    ),
    "ledger": _of_version(
        _ledger,
        "app_id:string writer:string query_id:string batch_id:long rows:long version:long "
        "timestamp:timestamp",
    ),
    "consumers": _of(
        _consumers,
        "consumer:string branch:string version:long versions_behind:long rows_to_read:long "
        "seconds_behind:double is_live:boolean lapses:timestamp owner_id:string",
    ),
    "clustering_information": _of_version(
        _clustering,
        "cluster_key:string total_block_count:long unclustered_block_count:long "
        "average_overlaps:double average_depth:double max_depth:long "
        "block_depth_histogram:string version:long",
    ),
}
"""By name."""
