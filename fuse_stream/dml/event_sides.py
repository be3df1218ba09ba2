"""What a table keeps of its events beside its rows: tombstones, and the quarantine."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.clock import Clock
from fuse_stream.commit.ledger import Batch
from fuse_stream.commit.plan import StagedSide
from fuse_stream.commit.stage import stage_side
from fuse_stream.dml.events import DELETE, TRUNCATE, UPSERT, Events, names_given
from fuse_stream.dml.stored_keys import StoredRows
from fuse_stream.format.arrow import adapt, columns_of_arrow
from fuse_stream.format.evolve import first_schema, relaxed, resolve
from fuse_stream.format.grouping import joined
from fuse_stream.format.hidden_columns import AT, KIND, ROW_SEQUENCE
from fuse_stream.format.positions import BlockRows
from fuse_stream.format.records import Block, Snapshot
from fuse_stream.format.schema import Schema, with_columns
from fuse_stream.format.side_schemas import FIRST_OWN_ID, tombstone_schema
from fuse_stream.format.sides import SideName, side_or_empty
from fuse_stream.objects.blocks import load_block
from fuse_stream.objects.slots import Metadata
from fuse_stream.objects.snapshot_blocks import iter_blocks

_TIME = pa.timestamp("us", tz="UTC")
OF_KEY, OF_ALL, LOW_WATER = "delete", "truncate", "low water"
"""The kinds of tombstones. The last two have no key."""
BY_HAND = "by hand"
"""The kind of tombstones of rows that somebody deleted, without an event. They have the sequence of
the row, and count as a delete right after it."""
ID, REASON, OP, EVENT, GIVEN, RAW = "id", "reason", "op", "event", "given", "raw"
"""Columns of the quarantine."""
APP_ID, WRITER, BATCH_ID, KEPT_AT = "app_id", "writer", "batch_id", "at"
"""Columns of the quarantine: the batch that brought an event, and when it was kept."""
OPERATIONS = {UPSERT: "u", DELETE: "d", TRUNCATE: "t"}


def side_of(head: Snapshot, name: SideName, schema: Schema) -> Snapshot:
    """Return a side of a snapshot as a snapshot with this schema; it may be empty."""
    return dataclasses.replace(side_or_empty(head, name), schema=schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class Markers:
    """The tombstones that have no key."""

    rows: StoredRows
    kinds: np.ndarray
    sequences: pa.Array

    def of(self, kind: str) -> pa.Array:
        """Return the sequence of the marker of a kind; nothing if there is none."""
        return self.sequences.take(pa.array(np.flatnonzero(self.kinds == kind)))

    def positions(self, kind: str) -> BlockRows:
        """Return where the marker of a kind is."""
        return self.rows.positions(np.flatnonzero(self.kinds == kind))


def find_markers(metadata: Metadata, side: Snapshot) -> Markers:
    """Return the tombstones without a key; errors of `StoredRows.load`."""
    first = side.schema.columns[0].id
    found = []
    for block in iter_blocks(metadata, side):
        stats = block.col_stats.get(first)
        if block.live_rows and (stats is None or stats.null_count):
            found.append(block)
    rows = StoredRows(metadata, found)
    loaded = rows.load(side.schema)
    is_marker = np.flatnonzero(loaded.column(0).is_null().to_numpy())
    rows = rows.only(is_marker)
    loaded = loaded.take(pa.array(is_marker))
    return Markers(
        rows=rows,
        kinds=loaded.column(KIND).to_numpy(),
        sequences=loaded.column(ROW_SEQUENCE).combine_chunks(),
    )


def find_expired(metadata: Metadata, side: Snapshot, keep_us: int | None) -> StoredRows:
    """Return the tombstones that were written longer ago than they are kept."""
    if keep_us is None:
        return StoredRows(metadata, ())
    before = metadata.clock.now_us() - keep_us
    blocks = list(_blocks_before(metadata, side, before))
    rows = StoredRows(metadata, blocks)
    loaded = rows.load(side.schema)
    is_old = pc.less(loaded.column(AT).cast(pa.int64()), before).to_numpy()
    is_kept = loaded.column(KIND).to_numpy() == LOW_WATER
    return rows.only(np.flatnonzero(is_old & ~is_kept))


def _blocks_before(metadata: Metadata, side: Snapshot, before: int) -> Iterator[Block]:
    for block in iter_blocks(metadata, side):
        stats = block.col_stats.get(FIRST_OWN_ID)
        oldest = None if stats is None else stats.min
        if block.live_rows and (not isinstance(oldest, int) or oldest < before):
            yield block


def tombstones_of(side: Schema, rows: pa.Table, kind: str, now_us: int) -> pa.Table:
    """Return tombstones of a kind: `rows` has the columns of the key, if any, and `_fuse_seq`."""
    count = len(rows)
    rows = rows.append_column(AT, pa.repeat(pa.scalar(now_us, _TIME), count))
    rows = rows.append_column(KIND, pa.repeat(pa.scalar(kind), count))
    by_name = {column.name: column for column in side.columns}
    return adapt(rows, tuple(by_name[name] for name in rows.column_names), side)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """Rows of the quarantine whose events are applied again."""

    rows: pa.Table
    """All columns if `stays` is false; else `id` is enough."""
    of_row: np.ndarray
    """For each row the number of its message."""
    of_event: np.ndarray
    """For each event the number of its message."""
    stays: bool
    """True: if an event of a message is bad, the rows of the message stay as they are. False: the
    rows go, and bad events come back as new rows; each event is a message then."""

    def solved(self, bad: np.ndarray) -> pa.Array:
        """Return the ids of the rows that go, if the events with the numbers `bad` are bad."""
        ids = joined([self.rows.column(ID)])
        if not self.stays:
            return ids
        return ids.filter(pa.array(~np.isin(self.of_row, self.of_event[bad])))


def stage_by_hand(
    metadata: Metadata, head: Snapshot, rows: Iterable[Block]
) -> dict[str, StagedSide]:
    """Put the tombstones of rows that somebody deletes; nothing where rows come from no events.

    The blocks show just these rows. One without a sequence is older than all events of its key.
    """
    if head.sequence is None:
        return {}
    side, now_us = tombstone_schema(head.schema, head.sequence.keys), metadata.clock.now_us()
    wanted = relaxed(with_columns(head.schema, head.sequence.keys, [ROW_SEQUENCE]))

    def iter_tombstones() -> Iterator[pa.Table]:
        for block in rows:
            loaded = load_block(metadata.store, block, wanted)
            loaded = loaded.filter(loaded.column(ROW_SEQUENCE).is_valid())
            yield tombstones_of(side, loaded, BY_HAND, now_us)

    staged = stage_side(metadata, head, side, iter_tombstones())
    return {} if staged.ref is None else {SideName.TOMBSTONES.value: staged}


def quarantine(
    head: Snapshot,
    events: Events,
    reasons: np.ndarray,
    batch: Batch | None,
    clock: Clock,
    *,
    kept: pa.Table | None,
) -> tuple[Schema, pa.Table]:
    """Return the schema of the quarantine, which may have new columns, and bad events as its rows.

    `reasons` says why each event is bad; `batch` brought them. If they were retried, `kept` are
    their rows in the quarantine, which say what brought them.
    """
    count = len(events)
    name, now_us = clock.new_id(), clock.now_us()
    is_unread = events.error.is_valid().to_numpy(zero_copy_only=False)
    ops = np.array([OPERATIONS[kind] for kind in events.kind.tolist()], object)
    rows = pa.table(
        {
            ID: pa.array([f"{name}-{number}" for number in range(count)], pa.string()),
            REASON: pa.array(list(reasons), pa.string()),
            OP: pa.array(ops, pa.string(), mask=is_unread),
            "sequence": events.sequence,
            EVENT: pa.StructArray.from_arrays(
                [column.combine_chunks() for column in events.rows.columns],
                fields=[field.remove_metadata() for field in events.rows.schema],
            ),
            GIVEN: names_given(events),
            RAW: events.raw,
            "source": events.source,
            APP_ID: _repeated(None if batch is None else batch.application, count),
            WRITER: _repeated(None if batch is None else batch.writer, count),
            BATCH_ID: pa.repeat(
                pa.scalar(None if batch is None else batch.batch_id, pa.int64()), count
            ),
            KEPT_AT: pa.repeat(pa.scalar(now_us, _TIME), count),
        }
    )
    if kept is not None:
        for name in (APP_ID, WRITER, BATCH_ID, KEPT_AT):
            rows = rows.set_column(rows.column_names.index(name), name, kept.column(name))
    columns = columns_of_arrow(rows.schema)
    known = head.sides.get(SideName.QUARANTINE)
    table = (
        first_schema(columns, nullable=True, case_sensitive=True) if known is None else known.schema
    )
    schema, resolved = resolve(table, columns, merge_schema=True, case_sensitive=True)
    return schema, adapt(rows, resolved, schema)


def is_text_alone(rows: pa.Table) -> pa.ChunkedArray:
    """Return of which events of the quarantine only the text was kept."""
    return pc.and_(pc.is_null(rows.column(OP)), pc.is_valid(rows.column(RAW)))


def _repeated(text: str | None, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)
