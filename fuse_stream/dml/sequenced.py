"""Stage a batch of events with sequences: rows are the latest state of their keys (SCD 1).

Rules:
- `settle` decides; this module finds what is stored of the keys, and puts what has to change. The
  commit has the effect of one that runs alone on the head on which it lands.
- A key without a row has a tombstone, so that a late event does not bring the row back. A truncate
  is the tombstone of all keys. Dropped tombstones leave a low-water mark: an event at or below it,
  of a key of which nothing is known, is bad.
- Every event of the batch is counted once: applied, superseded, duplicate or quarantined.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.ledger import Batch
from fuse_stream.commit.plan import Intent, NothingToDoError, Staged, StagedSide
from fuse_stream.commit.stage import stage_deletions, stage_side, stage_tables
from fuse_stream.dml.event_rules import EventRules, sums_of
from fuse_stream.dml.event_sides import (
    LOW_WATER,
    OF_ALL,
    OF_KEY,
    find_expired,
    find_markers,
    quarantine,
    side_of,
    tombstone_schema,
    tombstones_of,
)
from fuse_stream.dml.events import TIE, TOO_LATE, TRUNCATE, Events, with_nulls_unset
from fuse_stream.dml.fitted_events import FittedEvents, fit, fit_columns, sequence_schema
from fuse_stream.dml.keys import check_unique, key_schema, readable
from fuse_stream.dml.result import ChangeResult
from fuse_stream.dml.settle import (
    APPLIED,
    DUPLICATE,
    LATE,
    SUPERSEDED,
    TIED,
    Known,
    Settled,
    settle,
)
from fuse_stream.dml.stored_keys import StoredRows, find_keys, union_of_rows
from fuse_stream.dml.upsert import key_ids, marked_rows
from fuse_stream.errors import InvalidInputError, SchemaMismatchError
from fuse_stream.format.arrow import adapt, columns_of_arrow
from fuse_stream.format.batch_sums import BatchSums
from fuse_stream.format.evolve import relaxed, with_ids_of
from fuse_stream.format.grouping import grouping_keys, groups_of, ranks_of
from fuse_stream.format.hidden_columns import COLUMN_SEQUENCES, KIND, ROW_SEQUENCE
from fuse_stream.format.positions import BlockRows, positions_of, to_numpy, union
from fuse_stream.format.records import Block, Counts, Sequenced, Snapshot
from fuse_stream.format.schema import Schema, with_columns
from fuse_stream.format.side_names import SideName
from fuse_stream.objects.blocks import load_block, sort_order
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.objects.snapshot_blocks import iter_blocks

_SHOWN, _SHOWN_CHARACTERS = 3, 200
"""The most bad events that an error shows, and of each."""


def upsert_events(
    committer: Committer,
    rows: pa.Table,
    rules: EventRules,
    *,
    keys: Sequence[str] | None,
    merge_schema: bool,
    intent: Intent,
) -> ChangeResult:
    """Apply Arrow rows that are events; arguments and errors of `Table.upsert`."""
    batch = intent.batch
    sums = sums_of(rows) if batch is not None and batch.is_numbered else None
    staging = SequencedStaging(
        committer.metadata,
        rules.read(rows),
        rules,
        keys=keys,
        batch=batch,
        merge_schema=merge_schema,
        case_sensitive=False,
        may_be_empty=batch is not None,
        sums=sums,
    )
    committer.head()  # the known one may lack the key, or have another
    measure = None if sums is None else (lambda _head: sums)
    try:
        outcome = committer.commit(intent, staging.stage, measure=measure)
    except NothingToDoError:
        return ChangeResult()
    if outcome.snapshot.replayed:
        return ChangeResult(snapshot=outcome.snapshot)
    counts = staging.counts
    return ChangeResult(
        snapshot=outcome.snapshot,
        inserted=counts.inserted,
        updated=counts.updated,
        deleted=counts.deleted,
    )


class SequencedStaging:
    """Stages a batch of events on one head after another."""

    def __init__(
        self,
        metadata: Metadata,
        events: Events,
        rules: EventRules,
        *,
        keys: Sequence[str] | None,
        batch: Batch | None,
        merge_schema: bool,
        case_sensitive: bool,
        may_be_empty: bool,
        sums: BatchSums | None = None,
    ) -> None:
        """Stage events.

        Args:
            metadata: the table.
            events: the batch.
            rules: how they are treated.
            keys: the columns that name a key; None for those that the table has.
            batch: its number, to be noted in the quarantine.
            merge_schema: let the events add columns and widen types.
            case_sensitive: whether columns whose names differ in case are different ones.
            may_be_empty: whether there is something to commit if nothing changes.
            sums: those of a numbered batch.
        """
        self.counts = Counts()
        """Of the events, on the last head."""

        self._metadata = metadata
        self._events = events
        self._rules = rules
        self._keys = keys
        self._batch = batch
        self._merge_schema = merge_schema
        self._case_sensitive = case_sensitive
        self._may_be_empty = may_be_empty
        self._sums = sums

    def stage(self, on: Stored, _before: Staged | None) -> Staged:
        head = on.snapshot
        fitted = self._fit(head)
        if not head.key:
            check_unique(self._metadata, head, fitted.key)
        events = fitted.events
        reasons = fitted.flaws.copy()
        is_good = reasons == None  # noqa: E711 - of each item
        keyed = np.flatnonzero(is_good & (events.kind != TRUNCATE))
        truncates = np.flatnonzero(is_good & (events.kind == TRUNCATE))

        tombs = side_of(head, SideName.TOMBSTONES, tombstone_schema(fitted.schema, fitted.key))
        store = _Store(self._metadata, head, tombs, fitted)
        status = np.full(len(events), -1, np.int8)
        status[truncates] = store.truncate(events.sequence.take(pa.array(truncates)))
        settled, status[keyed] = store.settle(keyed)
        reasons[status == TIED], reasons[status == LATE] = TIE, TOO_LATE
        bad = np.flatnonzero(reasons != None)  # noqa: E711 - of each item
        if len(bad) and not self._rules.quarantines:
            raise bad_events(events, bad, reasons)
        hidden = store.hidden(settled)
        self.counts = Counts(
            inserted=len(settled.written) - len(settled.updated),
            updated=len(settled.updated),
            deleted=sum(map(len, hidden.values())) - len(settled.updated),
            applied=int((status == APPLIED).sum()),
            superseded=int((status == SUPERSEDED).sum()),
            duplicate=int((status == DUPLICATE).sum()),
            quarantined=len(bad),
        )
        assert self.counts.events == len(events), "an event was not counted"
        updated = store.updated(settled)
        staged = self._written(head, fitted.schema, settled, hidden, updated)
        sides: dict[str, StagedSide] = {}
        if (tombstones := store.stage_tombstones(settled, self._rules)) is not None:
            sides[SideName.TOMBSTONES] = tombstones
        if len(bad):
            now_us = self._metadata.clock.now_us()
            schema, rows = quarantine(head, events.take(bad), reasons[bad], self._batch, now_us)
            sides[SideName.QUARANTINE] = stage_side(self._metadata, head, schema, [rows])
        is_known = head.sequence is not None and fitted.schema == head.schema
        nothing = staged.ref is None and not staged.deletions and not sides
        if nothing and is_known and not self._may_be_empty:
            raise NothingToDoError
        return dataclasses.replace(
            staged,
            key=fitted.key,
            sides=sides,
            sequence=Sequenced(scd_type=1, keys=fitted.key),
            counts=self.counts,
            sums=self._sums,
            is_for_one_head=True,
        )

    def _fit(self, head: Snapshot) -> FittedEvents:
        events = self._events
        check_type(head, 1)
        keeps_parts = self._rules.ignore_null_updates or bool(events.unset)
        schema, columns = fit_columns(
            events,
            head.schema,
            merge_schema=self._merge_schema,
            case_sensitive=self._case_sensitive,
            keeps_parts=keeps_parts,
        )
        key = key_ids(head, schema, self._keys)
        fitted = fit(events, schema, columns, key)
        if self._rules.ignore_null_updates:
            partial = with_nulls_unset(fitted.events, fitted.key_names)
            fitted = dataclasses.replace(fitted, events=partial)
        return fitted

    def _written(
        self,
        head: Snapshot,
        schema: Schema,
        settled: Settled,
        hidden: BlockRows,
        updated: BlockRows,
    ) -> Staged:
        """Put the new rows, and the deletion files of those that go."""
        written = settled.written
        columns = with_ids_of(schema.columns, columns_of_arrow(written.schema), lambda: 0)
        rows = adapt(written, columns, schema)
        is_update = settled.is_update
        if head.cluster_key:  # here, so that it is known which row is where
            order = sort_order(rows, schema, head.cluster_key)
            rows, is_update = rows.take(order), is_update[order.to_numpy()]
        staged = stage_tables(self._metadata, head, schema, [rows])
        if not hidden:
            return staged
        marked = dict(updated)
        if staged.ref is not None:
            blocks = self._metadata.load_segment(staged.ref, schema.leaf_types).blocks
            marked |= marked_rows(blocks, is_update)
        return dataclasses.replace(
            staged, deletions=stage_deletions(self._metadata, hidden, marked)
        )


class _Store:
    """What a head holds of the keys of a batch."""

    def __init__(
        self, metadata: Metadata, head: Snapshot, tombs: Snapshot, fitted: FittedEvents
    ) -> None:
        self._metadata, self._head, self._tombs = metadata, head, tombs
        self._fitted = fitted
        self._markers = find_markers(metadata, tombs)
        self._truncated = self._markers.of(OF_ALL)
        self._is_truncated = False
        self._below: BlockRows = {}
        """The rows below the batch's truncate."""
        self._parted: list[Block] = []
        """Rows that are not below it, of which a column may be."""
        self._rows = self._tombstones = StoredRows(metadata, ())

    def truncate(self, sequences: pa.Array) -> np.ndarray:
        """Apply truncates; return what became of each."""
        status = np.full(len(sequences), SUPERSEDED, np.int8)
        if not len(sequences):
            return status
        both = pa.concat_arrays([sequences, self._truncated])
        ranks = ranks_of(both)
        greatest = int(np.argmax(ranks))
        same = np.flatnonzero(ranks[: len(sequences)] == ranks[greatest])
        status[same] = DUPLICATE
        if (ranks[len(sequences) :] < ranks[greatest]).all():
            status[same[0]] = APPLIED
            self._truncated = both.slice(greatest, 1)
            self._is_truncated = True
            self._find_below()
        return status

    def settle(self, at: np.ndarray) -> tuple[Settled, np.ndarray]:
        """Settle upserts and deletes; return what became of each, too."""
        metadata, schema = self._metadata, self._fitted.schema
        fitted = self._fitted.take(at)
        keys = fitted.keys_of(fitted.events.rows)
        wanted = keys.take(groups_of(grouping_keys(keys))[0])
        own, side = (key_schema(of, fitted.key) for of in (fitted.data, self._tombs.schema))
        found = find_keys(metadata, self._head, own, wanted)
        self._rows = StoredRows(metadata, union_of_rows(found.blocks, self._parted))
        self._tombstones = find_keys(metadata, self._tombs, side, wanted)
        hidden = [name for name in (ROW_SEQUENCE, COLUMN_SEQUENCES) if name in schema.names()]
        known = Known(
            rows=self._rows.load(relaxed(with_columns(schema, fitted.key, hidden))),
            load=lambda numbers: self._rows.load(fitted.data, numbers),
            tombstones=self._tombstones.load(
                with_columns(self._tombs.schema, fitted.key, [ROW_SEQUENCE])
            ),
            truncated=self._truncated,
            low_water=self._markers.of(LOW_WATER),
        )
        settled = settle(fitted, known)
        return settled, settled.status

    def updated(self, settled: Settled) -> BlockRows:
        """Return the rows that new ones replace."""
        return self._rows.positions(settled.updated)

    def hidden(self, settled: Settled) -> BlockRows:
        """Return all rows that go."""
        gone = np.sort(np.concatenate([settled.updated, settled.deleted]))
        return union(self._rows.positions(gone), self._below)

    def stage_tombstones(self, settled: Settled, rules: EventRules) -> StagedSide | None:
        """Put the new tombstones, and hide those that go; None if there is nothing to do."""
        side, now_us = self._tombs.schema, self._metadata.clock.now_us()
        new = [tombstones_of(side, settled.tombstones, OF_KEY, now_us)]
        hidden: BlockRows = self._tombstones.positions(settled.dropped)
        if self._is_truncated:
            new.append(tombstones_of(side, self._marker(self._truncated), OF_ALL, now_us))
            below = StoredRows(self._metadata, iter_blocks(self._metadata, self._tombs))
            hidden = union(hidden, self._tombs_below(below))
        expired = find_expired(self._metadata, self._tombs, rules.tombstones_us)
        if len(expired):
            low = expired.load(sequence_schema(side)).column(0)
            both = pa.concat_arrays([*low.chunks, self._markers.of(LOW_WATER)])
            greatest = both.slice(int(np.argmax(ranks_of(both))), 1)
            new.append(tombstones_of(side, self._marker(greatest), LOW_WATER, now_us))
            hidden = union(hidden, self._markers.positions(LOW_WATER))
            hidden = union(hidden, expired.positions(np.arange(len(expired))))
        rows = pa.concat_tables(new)
        if not len(rows) and not hidden:
            return None
        return stage_side(self._metadata, self._head, side, [rows], hidden=hidden)

    def _marker(self, sequence: pa.Array) -> pa.Table:
        return pa.table({ROW_SEQUENCE: sequence})

    def _find_below(self) -> None:
        """Find the rows below the truncate, and those of which a column may be."""
        schema = self._fitted.schema
        hidden = [name for name in (ROW_SEQUENCE, COLUMN_SEQUENCES) if name in schema.names()]
        wanted = relaxed(with_columns(schema, (), hidden))
        below = {}
        for block in iter_blocks(self._metadata, self._head):
            if not block.live_rows:
                continue
            shown = to_numpy(block.shown)
            rows = load_block(self._metadata.store, block, wanted)
            is_below = self._is_below(rows.column(ROW_SEQUENCE))
            if is_below.any():
                below[block.id] = positions_of(shown[is_below])
            if COLUMN_SEQUENCES in hidden:
                is_parted = rows.column(COLUMN_SEQUENCES).is_valid().to_numpy() & ~is_below
                if is_parted.any():
                    self._parted.append(block.showing(positions_of(shown[is_parted])))
        self._below = below

    def _tombs_below(self, tombs: StoredRows) -> BlockRows:
        rows = tombs.load(self._tombs.schema)
        is_mark = rows.column(KIND).to_numpy() == LOW_WATER
        return tombs.positions(np.flatnonzero(self._is_below(rows.column(ROW_SEQUENCE)) & ~is_mark))

    def _is_below(self, sequences: pa.ChunkedArray) -> np.ndarray:
        ranks = ranks_of(pa.concat_arrays([*sequences.chunks, self._truncated]))
        is_below: np.ndarray = ranks[:-1] < ranks[-1]
        return is_below


def check_type(head: Snapshot, scd_type: int) -> None:
    """Raise SchemaMismatchError if the table keeps another kind of rows of its events."""
    if head.sequence is not None and head.sequence.scd_type != scd_type:
        raise SchemaMismatchError(
            "the table stores its events in another way: pass stored_as_scd_type as it is, or "
            "write to a new table",
            stored_as_scd_type=head.sequence.scd_type,
        )


def bad_events(events: Events, at: np.ndarray, reasons: np.ndarray) -> InvalidInputError:
    """Return the error for bad events, where they are not kept; it shows some."""
    shown = []
    for number in at[:_SHOWN].tolist():
        raw = events.raw[number].as_py()
        row = raw if raw is not None else str(readable(events.rows.slice(number, 1))[0])
        shown.append(f"{reasons[number]}: {row[:_SHOWN_CHARACTERS]}")
    return InvalidInputError(
        'some events cannot be applied: mend the source, or keep them with on_bad="quarantine"',
        count=len(at),
        examples=shown,
    )
