"""The change feed: what every commit did, in order.

The columns that it adds are those of Spark's own change data.

The rows that turn one snapshot into another: those of the way between, equal ones cancelled.

The two may have gone apart, and given one id to different columns. So the rows of each line are
read with that line's schema, and columns of one name are one column.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from fuse_stream.feed.diff import (
    NET_OPERATIONS,
    BlockDiff,
    NetDiff,
    diff_commit,
)
from fuse_stream.feed.net import read_net
from fuse_stream.feed.offsets import FeedBlock
from fuse_stream.feed.views import Request, Views
from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.evolve import merged
from fuse_stream.format.records import Block, Operation, Snapshot
from fuse_stream.format.schema import Schema
from fuse_stream.reading.history import History
from fuse_stream.reading.scan import BATCH_ROWS, read_block, select, stats_may_match
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
class Side:
    """Blocks that a commit removed or inserted, and the schema in which their rows were visible."""

    change_type: str
    schema: Schema
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one commit did."""

    version: int
    timestamp_us: int
    operation: Operation
    net: NetDiff

    @property
    def diff(self) -> BlockDiff:
        """The blocks, whatever schema reads them."""
        return self.net.blocks

    @property
    def is_net(self) -> bool:
        """Whether equal rows may stand on both sides, which are to be left out."""
        both = bool(self.diff.removed and self.diff.inserted)
        return both and self.operation in NET_OPERATIONS

    @property
    def blocks(self) -> tuple[tuple[str, Block], ...]:
        """Return (change type, block) in the feed's canonical order: removed ones first."""
        return tuple((side.change_type, block) for side in self.sides for block in side.blocks)

    @property
    def sides(self) -> tuple[Side, ...]:
        """The blocks by schema, in the feed's canonical order; no side is empty."""
        net = self.net
        sides = (
            Side(change_type=DELETE, schema=net.old, blocks=net.back.removed),
            Side(change_type=DELETE, schema=net.new, blocks=net.forth.removed),
            Side(change_type=INSERT, schema=net.old, blocks=net.back.inserted),
            Side(change_type=INSERT, schema=net.new, blocks=net.forth.inserted),
        )
        return tuple(side for side in sides if side.blocks)


def feed_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of the feed of these columns."""
    return pa.schema([*arrow_schema(schema), *FEED_FIELDS])


def change_of(history: History, snapshot: Snapshot) -> Change:
    """Return what the commit of `snapshot` did."""
    return Change(
        version=snapshot.version,
        timestamp_us=snapshot.timestamp_us,
        operation=snapshot.operation,
        net=diff_commit(history, snapshot),
    )


def table_change(snapshot: Snapshot, blocks: Iterable[Block]) -> Change:
    """Return a change that brings `blocks` of `snapshot`, as a reader of a whole table takes it."""
    return Change(
        version=snapshot.version,
        timestamp_us=snapshot.timestamp_us,
        operation=snapshot.operation,
        net=NetDiff(
            back=BlockDiff(),
            forth=BlockDiff(inserted=tuple(blocks)),
            old=snapshot.schema,
            new=snapshot.schema,
        ),
    )


def iter_changes(history: History, start: int, end: int) -> Iterator[Change]:
    """Yield what the commits from `start` to `end` did, both inclusive, oldest first."""
    for stored in history.iter_between(start, end):
        yield change_of(history, stored.snapshot)


def read_changes(store: Store, changes: Iterator[Change], views: Views) -> pa.RecordBatchReader:
    """Return the rows of `changes`, commit by commit, with the feed's columns.

    Raises:
        SchemaChangedError: while it is read, a commit has columns that the views cannot hold.
    """
    schema = feed_schema(views.selection.schema)

    def batches() -> Iterator[pa.RecordBatch]:
        for change in changes:
            read = net_rows if change.is_net else _plain_rows
            for change_type, rows in read(store, change, views):
                marked = mark(rows, schema, change_type, change.version, change.timestamp_us)
                yield from marked.to_batches(max_chunksize=BATCH_ROWS)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _plain_rows(store: Store, change: Change, views: Views) -> Iterator[tuple[str, pa.Table]]:
    for side in change.sides:
        selection = views.find(side.schema, version=change.version).selection
        for block in side.blocks:
            if stats_may_match(selection, block.col_stats, block.row_count):
                yield side.change_type, read_block(store, block, selection)


def net_rows(store: Store, change: Change, views: Views) -> Iterator[tuple[str, pa.Table]]:
    """Yield the removed and then the inserted rows of a change, without those on both sides."""
    removed, inserted = (
        [
            (block, views.find(side.schema, version=change.version).selection)
            for side in change.sides
            if side.change_type == kind
            for block in side.blocks
        ]
        for kind in (DELETE, INSERT)
    )
    found = read_net(store, removed, inserted, views.selection.schema)
    yield from zip((DELETE, INSERT), found, strict=True)


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


def feed_blocks(change: Change, views: Views) -> Iterator[FeedBlock]:
    """Yield the blocks of a change as a stream sends them: without their statistics.

    Raises:
        SchemaChangedError: the commit has columns that the views cannot hold.
    """
    for side in change.sides:
        view = views.find(side.schema, version=change.version)
        for block in side.blocks:
            yield FeedBlock(
                change_type=side.change_type,
                block=without_statistics(block),
                is_wanted=stats_may_match(view.selection, block.col_stats, block.row_count),
                selection=view.sent,
            )


def without_statistics(block: Block) -> Block:
    """Return a block that only says where its rows are: small to send."""
    return dataclasses.replace(block, col_stats={}, col_metas={}, cluster_stats=None)


def read_diff(
    store: Store, change: Change, *, columns: Sequence[str] | None = None
) -> pa.RecordBatchReader:
    """Return the rows of `change` with `_change_type`: those removed first, then those inserted.

    Raises:
        InvalidInputError: an unknown column.
        SchemaMismatchError: a column has types on the two lines that do not fit each other.
    """
    net = change.net
    if columns is not None:
        _check_known(net, columns)
        net = dataclasses.replace(net, old=_only(net.old, columns), new=_only(net.new, columns))
        change = dataclasses.replace(change, net=net)
    wanted = select(merged(net.new, net.old), columns=columns)
    field = FEED_FIELDS[0]
    schema = pa.schema([*arrow_schema(wanted.schema), field])
    parts = [
        pa.Table.from_arrays(
            [*rows.columns, pa.repeat(pa.scalar(kind, field.type), len(rows))], schema=schema
        )
        for kind, rows in net_rows(store, change, Views(Request(), wanted))
    ]
    return pa.concat_tables(parts).to_reader()


def _check_known(net: NetDiff, columns: Sequence[str]) -> None:
    known = {column.name: column for column in (*net.old.columns, *net.new.columns)}
    select(dataclasses.replace(net.new, columns=tuple(known.values())), columns=columns)


def _only(schema: Schema, columns: Sequence[str]) -> Schema:
    chosen = tuple(column for column in schema.columns if column.name in columns)
    return dataclasses.replace(schema, columns=chosen)
