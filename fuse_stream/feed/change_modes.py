"""The changes of several commits in the modes of Spark's `CHANGES`.

| deduplication | rows |
| --- | --- |
| none | what each commit removed and inserted: the rows of the change feed |
| dropCarryovers | the same, without equal rows that one commit both removed and inserted |
| netChanges | without equal rows that the commits, all together, removed and inserted |

Of equal rows that the commits removed, `netChanges` keeps the earliest ones; of inserted ones the
latest. So a row shows the commit that ended the old state, or began the new one.

Without `computes_updates`, an updated row is one that was deleted and one that was inserted. With
it, the two are the images before and after. An update is what the commit that made it calls one;
and, in a table with a key, a row that was removed and one that was inserted with the same key, if
they are the only ones with that key. Across commits only a key can say which row became which.

Blocks whose rows are shown as they are, are plain: any Parquet reader reads them. Rows that are
compared are read by tasks. A plan compares all columns, so it must have the selection of all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from fuse_stream.errors import CorruptObjectError, InvalidInputError
from fuse_stream.feed.changes import Piece, Unit, count_shares
from fuse_stream.feed.net import in_share
from fuse_stream.feed.offsets import Batch
from fuse_stream.feed.tasks import Task, plain_pieces, plan_compared_tasks, read_task
from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.feed_columns import (
    CHANGE_TYPE,
    DELETE,
    FEED_FIELDS,
    INSERT,
    POSTIMAGE,
    PREIMAGE,
    change_type_of,
)
from fuse_stream.format.grouping import codes_of, find_unequal_rows, grouping_keys
from fuse_stream.format.positions import Positions
from fuse_stream.reading.history import name_version
from fuse_stream.reading.scan import BATCH_ROWS, Selection, read_each, readers_in_task
from fuse_stream.reading.tasks import split_work, work_bytes
from fuse_stream.storage.base import Store

Deduplication = Literal["none", "dropCarryovers", "netChanges"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeMode:
    """How changes are shown."""

    deduplication: Deduplication = "none"
    computes_updates: bool = False
    key: tuple[str, ...] = ()
    """The columns by which rows are unique; empty if the table has no key."""

    @property
    def is_net(self) -> bool:
        return self.deduplication == "netChanges"

    def change_type(self, piece: Piece) -> str:
        """Return the change type of a plain piece's rows."""
        is_update = piece.is_update and self.computes_updates and not self.is_net
        return change_type_of(is_removed=piece.is_removed, is_update=is_update)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTask:
    """Pieces whose removed and inserted rows one task compares with each other."""

    selection: Selection
    pieces: tuple[Piece, ...]
    """In the order of their commits."""
    mode: ChangeMode
    cancels: bool
    """True to leave out equal rows; False to find the updates only."""
    share: int = 0
    shares: int = 1

    def version_of(self, block_id: object) -> int | None:
        """Return a version that has this block; None if no piece has it."""
        return next((p.needs_version for p in self.pieces if p.block.id == block_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePlan:
    """What reads the changes of a batch."""

    plain: tuple[Piece, ...] = ()
    tasks: tuple[Task | ComparedTask, ...] = ()

    def as_tasks(self, selection: Selection) -> tuple[Task | ComparedTask, ...]:
        """Return tasks for everything, the plain pieces included."""
        parts = split_work([work_bytes(piece.block) for piece in self.plain])
        read = (Task(selection=selection, pieces=self.plain[part]) for part in parts)
        return (*read, *self.tasks)


def plan_changes(batch: Batch, mode: ChangeMode) -> ChangePlan:
    """Return what reads a batch of the feed `changes` in a mode. Pure.

    Raises:
        InvalidInputError: updates across commits are wanted, and the table has no key.
    """
    if mode.is_net:
        if mode.computes_updates and not mode.key:
            raise InvalidInputError(
                "netChanges finds updates by the table's key, and it has none: set one "
                "(Table.set_key), or read with computeUpdates = 'false'"
            )
        return _plan_net(batch, mode)
    others: list[Unit] = []
    tasks: list[Task | ComparedTask] = []
    for unit in batch.units:
        if _is_compared(batch, unit, mode):
            cancels = unit.is_net or mode.deduplication == "dropCarryovers"
            wanted = [piece for piece in unit.pieces if piece.is_wanted]
            tasks += _compared(batch, wanted, mode, cancels=cancels)
        else:
            others.append(unit)
    rest = dataclasses.replace(batch, units=tuple(others))
    return ChangePlan(plain=tuple(plain_pieces(rest)), tasks=(*plan_compared_tasks(rest), *tasks))


def read_changes_task(
    store: Store, task: Task | ComparedTask, mode: ChangeMode, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task in batches of `schema`: all columns, then those of the feed.

    Raises:
        CorruptObjectError: a block is missing or damaged; the error names a version that has it.
    """
    if isinstance(task, Task):
        for batch in read_task(store, task, schema):
            has_images = mode.computes_updates and not mode.is_net
            yield batch if has_images else _as_two_rows(batch)
        return
    try:
        rows = _compare(store, task)
    except CorruptObjectError as error:
        name_version(error, task.version_of(error.context.get("block")))
        raise
    yield from rows.cast(schema).to_batches(max_chunksize=BATCH_ROWS)


def _is_compared(batch: Batch, unit: Unit, mode: ChangeMode) -> bool:
    """True if the mode needs a comparison of a commit's rows that the feed does not make."""
    wanted = [piece for piece in unit.pieces if piece.is_wanted]
    others = {piece.is_removed for piece in wanted if not piece.is_update}
    images = {piece.is_removed for piece in wanted if piece.is_update}
    is_labelled = mode.computes_updates and bool(mode.key)
    if mode.deduplication != "dropCarryovers":
        return len(others) > 1 and is_labelled
    if len(images) > 1:  # the feed compares them in sparse units only
        return bool(plain_pieces(dataclasses.replace(batch, units=(unit,)))) or len(others) > 1
    return len(others) > 1 and (is_labelled or not unit.is_net)


def _plan_net(batch: Batch, mode: ChangeMode) -> ChangePlan:
    pieces = [piece for piece in _composed(batch.units) if piece.is_wanted]
    if len({piece.is_removed for piece in pieces}) < 2:
        return ChangePlan(plain=tuple(pieces))
    return ChangePlan(tasks=_compared(batch, pieces, mode, cancels=True))


def _compared(
    batch: Batch, pieces: Sequence[Piece], mode: ChangeMode, *, cancels: bool
) -> tuple[ComparedTask, ...]:
    shares = count_shares(pieces)
    return tuple(
        ComparedTask(
            selection=dataclasses.replace(batch.selection, leaf_ids={}),
            pieces=tuple(pieces),
            mode=mode,
            cancels=cancels,
            share=share,
            shares=shares,
        )
        for share in range(shares)
    )


def _composed(units: Iterable[Unit]) -> Iterator[Piece]:
    """Yield the pieces of units without rows that were both inserted and removed.

    Rows are those of blocks here, so a row that a compaction moved may be left on both sides.
    """
    kept: list[tuple[Piece, list[Positions]]] = []
    by_block: dict[str, list[tuple[Piece, list[Positions]]]] = {}
    for unit in units:
        for piece in unit.pieces:
            shown = piece.block.shown
            earlier = by_block.setdefault(piece.block.id, [])
            for other, left in earlier:
                if other.is_removed is not piece.is_removed:
                    both = left[0] & shown
                    left[0] -= both
                    shown -= both
            entry = piece, [shown]
            kept.append(entry)
            earlier.append(entry)
    for piece, (shown,) in kept:
        if len(shown) == piece.block.live_rows:
            yield piece
        elif shown:
            yield dataclasses.replace(piece, block=piece.block.showing(shown))


# ---- in a task


@dataclass(slots=True, kw_only=True)
class _Side:
    """The removed or the inserted rows of a task, and the facts of each."""

    rows: pa.Table
    version: np.ndarray
    timestamp_us: np.ndarray
    is_update: np.ndarray

    def take(self, at: np.ndarray) -> _Side:
        return _Side(
            rows=self.rows.take(pa.array(at)),
            version=self.version[at],
            timestamp_us=self.timestamp_us[at],
            is_update=self.is_update[at],
        )


def _compare(store: Store, task: ComparedTask) -> pa.Table:
    removed, inserted = (_read_side(store, task, is_removed=side) for side in (True, False))
    if task.cancels:
        kept = _unequal(removed, inserted, by_kind=not task.mode.is_net)
        removed, inserted = removed.take(kept[0]), inserted.take(kept[1])
    before, after = _find_updates(removed, inserted, task.mode)
    return pa.concat_tables(
        [
            _marked(removed, np.where(before, PREIMAGE, DELETE)),
            _marked(inserted, np.where(after, POSTIMAGE, INSERT)),
        ]
    )


def _read_side(store: Store, task: ComparedTask, *, is_removed: bool) -> _Side:
    tables = [arrow_schema(task.selection.schema).empty_table()]
    facts: list[tuple[int, int, bool]] = [(0, 0, False)]
    pieces = [piece for piece in task.pieces if piece.is_removed is is_removed]
    blocks = [(piece.block, piece.selection or task.selection) for piece in pieces]
    found = read_each(store, blocks, readers=readers_in_task(store))
    for piece, rows in zip(pieces, found, strict=True):
        hashed = rows.select(list(task.mode.key)) if task.mode.key else rows
        is_shared = task.shares > 1
        shown = rows.filter(in_share(hashed, task.share, task.shares)) if is_shared else rows
        tables.append(shown)
        facts.append((piece.version, piece.timestamp_us, piece.is_update))
    counts = [len(table) for table in tables]
    version, timestamp_us, is_update = (
        np.repeat(np.array(values), counts) for values in zip(*facts, strict=True)
    )
    return _Side(
        rows=pa.concat_tables(tables),
        version=version,
        timestamp_us=timestamp_us,
        is_update=is_update,
    )


def _unequal(removed: _Side, inserted: _Side, *, by_kind: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of the rows of both sides that are not in both.

    With `by_kind`, images of updates are compared with each other only, and so are other rows.
    """
    sides = removed, inserted
    if by_kind:
        kinds = [
            [np.flatnonzero(side.is_update == is_update) for side in sides]
            for is_update in (True, False)
        ]
    else:
        kinds = [[np.arange(len(side.rows)) for side in sides]]
    found: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for places in kinds:
        tables = [
            side.rows.take(pa.array(place)) for side, place in zip(sides, places, strict=True)
        ]
        for kept, place, at in zip(found, places, find_unequal_rows(*tables), strict=True):
            kept.append(place[np.asarray(at)])
    before, after = (np.sort(np.concatenate(kept)) for kept in found)
    return before, after


def _find_updates(
    removed: _Side, inserted: _Side, mode: ChangeMode
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each row of both sides whether it is the image of an update."""
    known = [
        np.zeros(len(side.rows), bool) if mode.is_net else side.is_update.copy()
        for side in (removed, inserted)
    ]
    if not mode.computes_updates:
        return np.zeros(len(removed.rows), bool), np.zeros(len(inserted.rows), bool)
    if mode.key and len(removed.rows) and len(inserted.rows):
        both = pa.concat_tables([side.rows.select(list(mode.key)) for side in (removed, inserted)])
        codes = codes_of(grouping_keys(both))
        sides = codes[: len(removed.rows)], codes[len(removed.rows) :]
        count = int(codes.max()) + 1
        once = np.logical_and.reduce([np.bincount(side, minlength=count) == 1 for side in sides])
        known = [is_update | once[side] for is_update, side in zip(known, sides, strict=True)]
    return known[0], known[1]


def _marked(side: _Side, kinds: np.ndarray) -> pa.Table:
    marks = (
        pa.array(kinds.tolist(), FEED_FIELDS[0].type),
        pa.array(side.version, FEED_FIELDS[1].type),
        pa.array(side.timestamp_us, pa.int64()).cast(FEED_FIELDS[2].type),
    )
    rows = side.rows
    for field, values in zip(FEED_FIELDS, marks, strict=True):
        rows = rows.append_column(field, values)
    return rows


def _as_two_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with images of updates as deleted and inserted rows."""
    at = batch.schema.get_field_index(CHANGE_TYPE)
    names = {PREIMAGE: DELETE, POSTIMAGE: INSERT}
    kinds = batch.column(at).dictionary_encode()
    plain = pa.array([names.get(kind, kind) for kind in kinds.dictionary.to_pylist()], pa.string())
    return batch.set_column(at, batch.schema.field(at), plain.take(kinds.indices))
