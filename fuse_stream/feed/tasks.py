"""The tasks of a batch: planned on the driver's machine, read by workers.

A task yields Arrow batches of the schema that the reader asks for: the reader's columns, then those
columns of the feed that this schema has.

Commits that change a few rows of large blocks are read together: each block once, however many of
the commits changed it. Of an updated row whose wanted columns did not change nothing is delivered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from fuse_stream.errors import CorruptObjectError, FuseError, SchemaChangedError
from fuse_stream.feed.changes import (
    Piece,
    Unit,
    count_shares,
    feed_schema,
    iter_parts,
    iter_units,
    load_diff,
    read_share,
    unit_of,
)
from fuse_stream.feed.diff import diff_net
from fuse_stream.feed.offsets import Batch
from fuse_stream.feed.views import Request, Views
from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.columns import write_stats
from fuse_stream.format.evolve import merged
from fuse_stream.format.feed_columns import DELETE, FEED_FIELDS, INSERT, POSTIMAGE, PREIMAGE
from fuse_stream.format.grouping import cancel_equal_rows
from fuse_stream.format.jsonio import dump_canonical
from fuse_stream.format.names import names_in
from fuse_stream.format.names_in_files import clashes
from fuse_stream.format.records import Block, Snapshot
from fuse_stream.format.schema import Schema
from fuse_stream.objects.blocks import is_small
from fuse_stream.objects.slots import Metadata
from fuse_stream.reading.history import History, expiry_reported, name_version
from fuse_stream.reading.scan import (
    Selection,
    read_each,
    read_parts,
    readers_in_task,
    select,
    with_expiry_reported,
)
from fuse_stream.reading.tasks import MOST_TASK_BYTES, iter_batches, split_work, work_bytes
from fuse_stream.storage.base import Store
from fuse_stream.storage.parallel import each

BLOCKS_A_TASK = 20_000
"""The most blocks that one task of the feed `blocks` describes."""
BLOCK_ROWS_A_BATCH = 4096
READERS = 2
"""The most blocks of which a task reads parts at a time, unless they are small and remote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Pieces whose rows one task reads."""

    selection: Selection
    """How pieces without a selection of their own are read."""
    pieces: tuple[Piece, ...]
    share: int = 0
    shares: int = 0
    """If not 0, the rows of a net unit are divided into shares by their hash. Each task reads all
    pieces of the unit, and cancels equal rows within its share."""
    is_sparse: bool = False
    """True if the pieces are those of whole units, all to be read before the first is delivered."""

    def version_of(self, block_id: object) -> int | None:
        """Return a version that has this block; None if no piece has it."""
        return next((p.needs_version for p in self.pieces if p.block.id == block_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRange:
    """Blocks of a unit, by their positions in it."""

    version: int
    base: int | None
    """As in the unit: None for the whole table."""
    floor: int
    """The branch's floor when the unit was planned."""
    first: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksTask:
    """Blocks that one task describes. The task loads their statistics: they are too big to send."""

    ranges: tuple[BlockRange, ...]

    def version_of(self, _block_id: object) -> int | None:
        """Return the first version that the task needs."""
        return min(part.version if part.base is None else part.base for part in self.ranges)


def plan_tasks(batch: Batch) -> list[Task]:
    """Return tasks for the pieces of a batch that may hold a wanted row, in order. Pure.

    Sparse units have tasks of their own, after the others, and so have net units.
    """
    return plan_plain_tasks(batch) + plan_compared_tasks(batch)


def plain_pieces(batch: Batch) -> list[Piece]:
    """Return the pieces of which each wanted row is delivered as its block holds it. Pure."""
    return [
        piece
        for unit in batch.units
        if not unit.is_net and not _is_sparse(unit)
        for piece in _wanted(unit)
    ]


def plan_plain_tasks(batch: Batch) -> list[Task]:
    """Return tasks for the plain pieces of a batch. Pure."""
    pieces = plain_pieces(batch)
    return [
        Task(selection=_sent(batch.selection), pieces=tuple(pieces[part]))
        for part in split_work([work_bytes(piece.block) for piece in pieces])
    ]


def plan_compared_tasks(batch: Batch) -> list[Task]:
    """Return tasks for the sparse and the net units of a batch, whose rows are compared. Pure."""
    selection = _sent(batch.selection)
    tasks = [
        Task(selection=selection, pieces=pieces, is_sparse=True)
        for pieces in _together(filter(_is_sparse, batch.units))
    ]
    for unit in batch.units:
        if unit.is_net:
            pieces = _wanted(unit)
            count = count_shares(pieces)
            tasks += [
                Task(selection=selection, pieces=pieces, share=share, shares=count)
                for share in range(count)
            ]
    return tasks


def _sent(selection: Selection) -> Selection:
    """Return a selection without the ids of the leaves: only planning rules blocks out by them."""
    return dataclasses.replace(selection, leaf_ids={})


def plan_block_tasks(batch: Batch) -> list[BlocksTask]:
    """Return tasks of the feed `blocks` for the blocks of a batch, in order. Pure."""
    tasks: list[list[BlockRange]] = []
    count = 0
    for unit in batch.units:
        stop = unit.first + len(unit.pieces)
        for first in range(unit.first, stop, BLOCKS_A_TASK):
            part = BlockRange(
                version=unit.version,
                base=unit.base,
                floor=unit.floor,
                first=first,
                stop=min(first + BLOCKS_A_TASK, stop),
            )
            if not tasks or count + part.stop - part.first > BLOCKS_A_TASK:
                tasks.append([])
                count = 0
            tasks[-1].append(part)
            count += part.stop - part.first
    return [BlocksTask(ranges=tuple(task)) for task in tasks]


def read_task(store: Store, task: Task, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the wanted rows of a task, in order, in batches of `schema`; see `iter_batches`.

    Raises:
        CorruptObjectError: a block is missing or damaged; the error names a version that has it.
    """
    try:
        yield from iter_batches(_rows(store, task), schema)
    except CorruptObjectError as error:
        name_version(error, task.version_of(error.context.get("block")))
        raise


def read_units(
    store: Store, units: Iterable[Unit], selection: Selection, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted rows of `units`, in order, reading neighbouring sparse units together."""
    for is_sparse, run in groupby(units, key=_is_sparse):
        if is_sparse:
            for pieces in _together(run):
                task = Task(selection=selection, pieces=pieces, is_sparse=True)
                yield from read_task(store, task, schema)
            continue
        for unit in run:
            if pieces := _wanted(unit):
                task = Task(selection=selection, pieces=pieces, shares=int(unit.is_net))
                yield from read_task(store, task, schema)


def read_changes(
    history: History,
    first: Snapshot,
    last: Snapshot,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    time_zone: str = "UTC",
) -> pa.RecordBatchReader:
    """Return the rows that the commits from `first` to `last` removed and inserted.

    They have the columns of `last`, then those of the feed.

    Raises:
        InvalidInputError: a column is unknown, or the predicate is invalid.
        SchemaChangedError: while rows are read: a commit has columns that `last` does not have.
        SnapshotExpiredError: while rows are read: `first` has expired.
    """
    names = None if columns is None else names_in("columns", columns)
    request = Request(columns=names, where=where, time_zone=time_zone)
    selection = select(last.schema, columns=names, where=where, time_zone=time_zone)
    units = iter_units(history, first.version, last.version, Views(request, selection))
    schema = feed_schema(selection.schema)
    batches = read_units(history.metadata.store, units, selection, schema)
    rows = pa.RecordBatchReader.from_batches(schema, batches)
    return with_expiry_reported(history.metadata, first, rows)


def read_diff(
    history: History, old: Snapshot, new: Snapshot, *, columns: Sequence[str] | None = None
) -> pa.RecordBatchReader:
    """Return the rows that turn `old` into `new`, with `_change_type`: removed, then inserted.

    Raises:
        InvalidInputError: a column is unknown.
        SchemaChangedError: a column was renamed, or its name was given to another one.
        SchemaMismatchError: a column's types in the two snapshots do not fit each other.
        SnapshotExpiredError: while rows are read: one of the two has expired.
    """
    net = diff_net(history, old, new)
    if columns is not None:
        columns = names_in("columns", columns)
        known = {column.name: column for column in (*net.old.columns, *net.new.columns)}
        select(dataclasses.replace(net.new, columns=tuple(known.values())), columns=columns)
        net = dataclasses.replace(net, old=_only(net.old, columns), new=_only(net.new, columns))
    else:
        net = dataclasses.replace(net, old=net.old.visible, new=net.new.visible)
    if lines := clashes(net.old, net.new):
        raise SchemaChangedError(
            "a column has another name in one of the two versions, or its name is that of another "
            "column there: name the other columns (columns), or read each version by itself",
            versions=[old.version, new.version],
            difference=lines,
        )
    wanted = select(merged(net.new, net.old), columns=columns)
    schema = pa.schema([*arrow_schema(wanted.schema), FEED_FIELDS[0]])
    views = Views(Request(columns=columns), wanted, are_checked=True)
    metadata = history.metadata
    unit = unit_of(metadata.store, new, net, views, base=old.version, is_whole=True)
    with expiry_reported(metadata, *((each.branch_id, each.version) for each in (old, new))):
        batches = list(read_units(metadata.store, [unit], wanted, schema))
    return pa.RecordBatchReader.from_batches(schema, batches)


def iter_block_rows(
    metadata: Metadata, branch_id: str, ranges: Iterable[BlockRange], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the feed `blocks`: one for each block."""
    for part in ranges:
        stored = metadata.load_snapshot(branch_id, part.version)
        snapshot, history = stored.snapshot, History(metadata, stored).with_floor(part.floor)
        net = load_diff(history, snapshot, base=part.base)
        listed = list(iter_parts(net))
        for first in range(part.first, part.stop, BLOCK_ROWS_A_BATCH):
            parts = listed[first : min(first + BLOCK_ROWS_A_BATCH, part.stop)]
            columns = (
                [part.change_type for part in parts],
                [part.block.id for part in parts],
                [part.block.live_rows for part in parts],
                [part.block.file_size for part in parts],
                [stats_json(part.block, part.schema) for part in parts],
                [snapshot.version] * len(parts),
                [snapshot.timestamp_us] * len(parts),
            )
            arrays = [
                pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def stats_json(block: Block, schema: Schema) -> str:
    """Return a block's statistics as a JSON object, with a key for each column's dotted path.

    Values are written as in the table's metadata (`docs/format.md`): 64-bit integers and decimals
    as text, a date as days, a time as microseconds. Columns in an array or a map have no
    statistics.
    """
    found = {
        ".".join(leaf.path): write_stats(block.col_stats[leaf.column.id], leaf.column.type)
        for leaf in schema.visible.leaves()
        if leaf.column.id in block.col_stats
    }
    always = {"distinct_of_values": None}
    return dump_canonical({name: {**always, **stats} for name, stats in found.items()}).decode()


def _wanted(unit: Unit) -> tuple[Piece, ...]:
    return tuple(piece for piece in unit.pieces if piece.is_wanted)


def _is_sparse(unit: Unit) -> bool:
    """True if a unit has updates or parts of blocks, and all of its rows fit into a task."""
    if unit.is_net or unit.is_table:
        return False
    has_parts = any(piece.is_update or piece.block.hidden for piece in unit.pieces)
    return has_parts and _live_bytes(unit) <= MOST_TASK_BYTES


def _live_bytes(unit: Unit) -> int:
    return sum(piece.block.live_size for piece in unit.pieces)


def _together(units: Iterable[Unit]) -> Iterator[tuple[Piece, ...]]:
    """Yield the wanted pieces of sparse units, of as many in turn as fit into a task."""
    held: list[Piece] = []
    size = 0
    try:
        for unit in units:
            if held and size + _live_bytes(unit) > MOST_TASK_BYTES:
                yield tuple(held)
                held, size = [], 0
            held += _wanted(unit)
            size += _live_bytes(unit)
    except FuseError:
        if held:  # what comes before a commit that cannot be read is delivered
            yield tuple(held)
        raise
    if held:
        yield tuple(held)


def _rows(store: Store, task: Task) -> Iterator[tuple[tuple[str, int, int], pa.Table]]:
    """Yield (values of `FEED_FIELDS`, rows) of a task."""
    pieces = task.pieces
    if task.is_sparse:
        yield from _sparse_rows(store, task)
        return
    if not task.shares:
        blocks = [(piece.block, piece.selection or task.selection) for piece in pieces]
        found_rows = read_each(store, blocks, readers=readers_in_task(store))
        for piece, rows in zip(pieces, found_rows, strict=True):
            yield (piece.change_type, piece.version, piece.timestamp_us), rows
        return
    found = read_share(store, pieces, task.selection, share=task.share, of=task.shares)
    for kind, rows in zip((DELETE, INSERT), found, strict=True):
        yield (kind, pieces[0].version, pieces[0].timestamp_us), rows


def _sparse_rows(store: Store, task: Task) -> Iterator[tuple[tuple[str, int, int], pa.Table]]:
    """Yield the rows of sparse units in order, with each block read once."""
    parts: dict[tuple[str, int], list[Piece]] = {}
    for piece in task.pieces:
        parts.setdefault((piece.block.id, id(piece.selection)), []).append(piece)

    def read(pieces: Sequence[Piece]) -> list[pa.Table]:
        selection = pieces[0].selection or task.selection
        return read_parts(store, [piece.block for piece in pieces], selection)

    rows: dict[int, pa.Table] = {}
    at_once = min(pa.cpu_count(), READERS)
    if all(is_small(piece.block) for piece in task.pieces):
        at_once = max(at_once, readers_in_task(store))
    tables = each(read, list(parts.values()), store, at_once=at_once)
    for pieces, found in zip(parts.values(), tables, strict=True):
        rows |= {id(piece): table for piece, table in zip(pieces, found, strict=True)}
    for version, run in groupby(task.pieces, key=lambda piece: piece.version):
        unit = list(run)
        updates = _images([(piece, rows[id(piece)]) for piece in unit if piece.is_update])
        for piece in unit:
            values = piece.change_type, version, piece.timestamp_us
            if not piece.is_update:
                yield values, rows[id(piece)]
            elif table := updates.pop(piece.change_type, None):
                yield values, table


def _images(parts: Sequence[tuple[Piece, pa.Table]]) -> dict[str, pa.Table]:
    """Return the images before and after of updated rows, by change type, without equal ones."""
    if not parts:
        return {}
    empty = parts[0][1].slice(0, 0)
    before, after = (
        pa.concat_tables(
            [empty, *(table for piece, table in parts if piece.is_removed is is_removed)]
        )
        for is_removed in (True, False)
    )
    before, after = cancel_equal_rows(before, after)
    return {PREIMAGE: before, POSTIMAGE: after}


def _only(schema: Schema, columns: Sequence[str]) -> Schema:
    chosen = tuple(column for column in schema.columns if column.name in columns)
    return dataclasses.replace(schema, columns=chosen)
