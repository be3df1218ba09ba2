"""The change feed: what every commit did, in order.

The columns that it adds are those of Spark's own change data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.records import Block, Operation, Snapshot
from fuse_stream.format.schema import Schema
from fuse_stream.objects.metadata import Metadata, Stored
from fuse_stream.reading.cancel import read_net
from fuse_stream.reading.diff import BlockDiff
from fuse_stream.reading.history import load_version
from fuse_stream.reading.scan import BATCH_ROWS, Selection, read_block, stats_may_match
from fuse_stream.reading.way import NET_OPERATIONS, Retained, diff_commit, retained_by
from fuse_stream.storage.base import Store

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = (
    "_change_type",
    "_commit_version",
    "_commit_timestamp",
)
INSERT, DELETE = "insert", "delete"
FEED_FIELDS = (
    pa.field(CHANGE_TYPE, pa.string(), nullable=False),
    pa.field(COMMIT_VERSION, pa.int64(), nullable=False),
    pa.field(COMMIT_TIMESTAMP, pa.timestamp("us", tz="UTC"), nullable=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one commit did."""

    version: int
    timestamp_us: int
    operation: Operation
    diff: BlockDiff

    @property
    def is_net(self) -> bool:
        """Whether equal rows may stand on both sides, which are to be left out."""
        both = bool(self.diff.removed and self.diff.inserted)
        return both and self.operation in NET_OPERATIONS

    @property
    def blocks(self) -> tuple[tuple[str, Block], ...]:
        """Return (change type, block) in the feed's canonical order: removed ones first."""
        removed = ((DELETE, block) for block in self.diff.removed)
        return (*removed, *((INSERT, block) for block in self.diff.inserted))


def feed_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of the feed of these columns."""
    return pa.schema([*arrow_schema(schema), *FEED_FIELDS])


def change_of(metadata: Metadata, snapshot: Snapshot, retained: Retained) -> Change:
    """Return what the commit of `snapshot` did."""
    return Change(
        version=snapshot.version,
        timestamp_us=snapshot.timestamp_us,
        operation=snapshot.operation,
        diff=diff_commit(metadata, snapshot, retained),
    )


def iter_changes(metadata: Metadata, head: Stored, start: int, end: int) -> Iterator[Change]:
    """Yield what the commits from `start` to `end` did, both inclusive, oldest first."""
    for version in range(start, end + 1):
        snapshot = load_version(metadata, head, version).snapshot
        yield change_of(metadata, snapshot, retained_by(head))


def read_changes(
    store: Store, changes: Iterator[Change], selection: Selection
) -> pa.RecordBatchReader:
    """Return the rows of `changes`, commit by commit, with the feed's columns."""
    schema = feed_schema(selection.schema)

    def batches() -> Iterator[pa.RecordBatch]:
        for change in changes:
            if change.is_net:
                yield from _net_batches(store, change, selection, schema)
                continue
            for change_type, block in change.blocks:
                if stats_may_match(selection, block.col_stats, block.row_count):
                    rows = read_block(store, block, selection)
                    yield from mark(
                        rows, schema, change_type, change.version, change.timestamp_us
                    ).to_batches(max_chunksize=BATCH_ROWS)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _net_batches(
    store: Store, change: Change, selection: Selection, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    found = read_net(store, change.diff.removed, change.diff.inserted, selection)
    for change_type, rows in zip((DELETE, INSERT), found, strict=True):
        marked = mark(rows, schema, change_type, change.version, change.timestamp_us)
        yield from marked.to_batches(max_chunksize=BATCH_ROWS)


def mark(
    rows: pa.Table, schema: pa.Schema, change_type: str, version: int, timestamp_us: int
) -> pa.Table:
    """Return `rows` with the feed's columns, as `schema` (`feed_schema`) has them."""
    values = (change_type, version, timestamp_us)
    constants = [
        pa.repeat(pa.scalar(value, field.type), len(rows))
        for value, field in zip(values, FEED_FIELDS, strict=True)
    ]
    return pa.Table.from_arrays([*rows.columns, *constants], schema=schema)


def without_statistics(change: Change) -> Change:
    """Return `change` with blocks that only say where their rows are: small to send."""

    def bare(block: Block) -> Block:
        return dataclasses.replace(block, col_stats={}, col_metas={}, cluster_stats=None)

    diff = change.diff
    return dataclasses.replace(
        change,
        diff=BlockDiff(
            removed=tuple(bare(block) for block in diff.removed),
            inserted=tuple(bare(block) for block in diff.inserted),
        ),
    )
