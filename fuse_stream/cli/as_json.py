"""What each command prints with `--json`: records -> JSON values. Pure.

The keys are promised: a release may add some, never rename or drop one. Sizes are bytes, times are
ISO text in UTC, ids and hashes are whole. In rows and bounds a decimal is text, binary is hex, a
float that JSON lacks is "NaN", "Infinity" or "-Infinity", a map is a list of [key, value].
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from fuse_stream.cli.names import Names
from fuse_stream.cli.text import bound, iso, timestamp
from fuse_stream.commit.ledger import Batch
from fuse_stream.feed.changes import CHANGE_TYPE, Change
from fuse_stream.feed.diff import BlockDiff
from fuse_stream.format.records import (
    Block,
    ColumnStats,
    Ledger,
    SegmentRef,
    Snapshot,
    Summary,
    Value,
)
from fuse_stream.format.schema import Column, Schema
from fuse_stream.trace.bisect import BisectResult
from fuse_stream.trace.blame import BlamedCommit

Json = dict[str, object]


def log_entry(snapshot: Snapshot, row_count_change: int | None, names: Names | None = None) -> Json:
    """Return one line of the log.

    Keys: `version snapshot_id timestamp operation data_change row_count row_count_change`
    (null where the version before has expired) `block_count batches author message`, and with
    `names` `labels` (`branches` that have it as their head, `tags`).
    """
    labels = names and {
        "branches": names.branches_at(snapshot),
        "tags": [tag.name for tag in names.tags_at(snapshot)],
    }
    return {
        "version": snapshot.version,
        "snapshot_id": snapshot.snapshot_id,
        "timestamp": iso(snapshot.timestamp_us, exact=True),
        "operation": snapshot.operation.value,
        "data_change": snapshot.data_change,
        "row_count": snapshot.summary.row_count,
        "row_count_change": row_count_change,
        "block_count": snapshot.summary.block_count,
        "batches": [
            {"application": application, "writer": writer, "batch_id": entry.batch_id}
            for (application, writer), entry in snapshot.ledger.entries.items()
            if entry.version == snapshot.version
        ],
        "author": snapshot.author,
        "message": snapshot.message,
        **({"labels": labels} if labels else {}),
    }


def snapshot_document(snapshot: Snapshot, row_count_change: int | None, names: Names) -> Json:
    """Return a snapshot whole.

    Keys: those of the log, and `table_id branch` (null if that was deleted) `branch_id
    format_version clock prev_snapshot_id parent target schema cluster_key required_features
    properties summary segments added floor epoch ledger`.
    """
    parent, target = (
        {"branch_id": at.branch_id, "version": at.version, "sha256": at.sha256} if at else None
        for at in (snapshot.parent, snapshot.target)
    )
    columns = column_names(snapshot.schema)
    return {
        **log_entry(snapshot, row_count_change, names),
        "table_id": snapshot.table_id,
        "branch": names.find_name(snapshot.branch_id),
        "branch_id": snapshot.branch_id,
        "format_version": snapshot.format_version,
        "clock": iso(snapshot.clock_us, exact=True),
        "prev_snapshot_id": snapshot.prev_snapshot_id,
        "parent": parent,
        "target": target,
        "schema": {
            "id": snapshot.schema.id,
            "columns": [_column(column) for column in snapshot.schema.columns],
        },
        "cluster_key": [columns.get(column, str(column)) for column in snapshot.cluster_key],
        "required_features": list(snapshot.required_features),
        "properties": dict(snapshot.properties),
        "summary": _summary(snapshot.summary, snapshot.schema),
        "segments": [_segment(ref) for ref in snapshot.segments],
        "added": list(snapshot.added),
        "floor": snapshot.floor,
        "epoch": snapshot.epoch,
        "ledger": ledger_document(snapshot.ledger),
    }


def block_document(block: Block, schema: Schema, only: int | None = None) -> Json:
    """Return a block; with `only`, the statistics of that column alone.

    Keys: `id row_count block_size` (uncompressed) `file_size sha256 compression schema_id origin`
    (the id of the table that holds it, null for the one at hand) `col_stats` (by column name: `min
    max null_count nan_count in_memory_size distinct_of_values`; a bound that is not known is null).
    """
    return {
        "id": block.id,
        "row_count": block.row_count,
        "block_size": block.block_size,
        "file_size": block.file_size,
        "sha256": block.sha256,
        "compression": block.compression,
        "schema_id": block.schema_id,
        "origin": block.origin,
        "col_stats": _col_stats(block.col_stats, schema, only),
    }


def ledger_document(ledger: Ledger) -> Json:
    """Return the ledger.

    Keys: `entries` (`application writer query_id batch_id rows version timestamp`) and `retired`
    (`query_id application version fork`).
    """
    return {
        "entries": [
            {
                "application": application,
                "writer": writer,
                "query_id": entry.query_id,
                "batch_id": entry.batch_id,
                "rows": entry.rows,
                "version": entry.version,
                "timestamp": iso(entry.timestamp_us, exact=True),
            }
            for (application, writer), entry in sorted(ledger.entries.items())
        ],
        "retired": [
            {
                "query_id": query_id,
                "application": retired.application,
                "version": retired.version,
                "fork": retired.fork,
            }
            for query_id, retired in sorted(ledger.retired.items())
        ],
    }


def change_document(change: Change, schema: Schema, *, blocks: bool = False) -> Json:
    """Return what one commit did, with its blocks if asked for.

    Keys: `version timestamp operation` and those of `diff_counts`; `blocks`: those of `blocks`,
    and `_change_type`.
    """
    document: Json = {
        "version": change.version,
        "timestamp": iso(change.timestamp_us, exact=True),
        "operation": change.operation.value,
        **diff_counts(change.diff),
    }
    if blocks:
        document["blocks"] = [
            {CHANGE_TYPE: kind, **block_document(block, schema)} for kind, block in change.blocks
        ]
    return document


def diff_counts(diff: BlockDiff) -> Json:
    """Return `inserted_row_count inserted_block_count removed_row_count removed_block_count`.

    Rows are counted as the blocks hold them: a row that was only rewritten stands on both sides.
    """
    return {
        "inserted_row_count": sum(block.row_count for block in diff.inserted),
        "inserted_block_count": len(diff.inserted),
        "removed_row_count": sum(block.row_count for block in diff.removed),
        "removed_block_count": len(diff.removed),
    }


def blame_document(head: Snapshot, found: Sequence[BlamedCommit]) -> Json:
    """Return who brought the rows of a head that match.

    Keys: `version row_count commits` (`version branch_id snapshot_id timestamp operation message
    author batch row_count is_exact`; a batch is null or has `application writer batch_id
    query_id`).
    """
    commits = [
        {
            "version": commit.version,
            "branch_id": commit.branch_id,
            "snapshot_id": commit.snapshot_id,
            "timestamp": iso(commit.timestamp_us, exact=True),
            "operation": commit.operation.value,
            "message": commit.message,
            "author": commit.author,
            "batch": commit.batch and _batch(commit.batch),
            "row_count": commit.row_count,
            "is_exact": commit.is_exact,
        }
        for commit in found
    ]
    row_count = sum(commit.row_count for commit in found)
    return {"version": head.version, "row_count": row_count, "commits": commits}


def bisect_document(result: BisectResult, found: tuple[Snapshot, int | None] | None) -> Json:
    """Return which snapshot was the first with a row that matches.

    Keys: `first_version last_version snapshot` (a line of the log, or null) `may_be_older tested`
    (`version matches blocks_read`) `blocks_read`.
    """
    return {
        "first_version": result.first,
        "last_version": result.last,
        "snapshot": log_entry(*found) if found else None,
        "may_be_older": result.may_be_older,
        "tested": [
            {"version": one.version, "matches": one.matches, "blocks_read": one.blocks_read}
            for one in result.tested
        ],
        "blocks_read": result.blocks_read,
    }


def row_documents(names: Sequence[str], rows: Iterable[Sequence[object]]) -> list[Json]:
    """Return rows as objects with the columns' names as keys."""
    return [{name: _value(value) for name, value in zip(names, row, strict=True)} for row in rows]


def column_names(schema: Schema) -> dict[int, str]:
    """Return the dotted name of every leaf, by column id."""
    return {leaf.column.id: ".".join(leaf.path) for leaf in schema.leaves()}


def _batch(batch: Batch) -> Json:
    return {
        "application": batch.application,
        "writer": batch.writer,
        "batch_id": batch.batch_id,
        "query_id": batch.query_id,
    }


def _column(column: Column) -> Json:
    document: Json = {
        "id": column.id,
        "name": column.name,
        "type": column.type,
        "nullable": column.nullable,
    }
    if column.children:
        document["children"] = [_column(child) for child in column.children]
    return document


def _segment(ref: SegmentRef) -> Json:
    return {
        "id": ref.id,
        "sha256": ref.sha256,
        "level": ref.level,
        "row_count": ref.row_count,
        "block_count": ref.block_count,
        "byte_size": ref.byte_size,
    }


def _summary(summary: Summary, schema: Schema) -> Json:
    return {
        "row_count": summary.row_count,
        "block_count": summary.block_count,
        "perfect_block_count": summary.perfect_block_count,
        "uncompressed_byte_size": summary.uncompressed_byte_size,
        "compressed_byte_size": summary.compressed_byte_size,
        "index_size": summary.index_size,
        "col_stats": _col_stats(summary.col_stats, schema),
    }


def _col_stats(
    stats: Mapping[int, ColumnStats], schema: Schema, only: int | None = None
) -> dict[str, Json]:
    names, types = column_names(schema), schema.leaf_types
    return {
        names[column]: {
            "min": _bound(item.min, types[column]),
            "max": _bound(item.max, types[column]),
            "null_count": item.null_count,
            "nan_count": item.nan_count,
            "in_memory_size": item.in_memory_size,
            "distinct_of_values": item.distinct_of_values,
        }
        for column, item in stats.items()
        if column in names and only in {None, column}
    }


def _bound(value: Value | None, type_name: str) -> object:
    if value is None:
        return None
    if type_name in {"date", "timestamp", "timestamp_ntz"}:
        return bound(value, type_name)
    return _value(value)


def _value(value: object) -> object:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _no_number(value)
        case bytes():
            return value.hex()
        case Decimal():
            return format(value, "f")
        case dt.datetime():
            return timestamp(value)
        case dt.date():
            return value.isoformat()
        case Mapping():
            return {str(name): _value(item) for name, item in value.items()}
        case list() | tuple():
            return [_value(item) for item in value]
    return str(value)


def _no_number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
