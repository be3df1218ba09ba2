"""Apply events to a table whose rows are the latest state of each key (SCD 1).

Rules:
- A key that was deleted has a tombstone, so that a late event does not bring back its row, or a
  value of a column that its row does not know. A truncate is the tombstone of all keys. Dropped
  tombstones leave a low-water mark: an event at or below it, of a key or a column of which nothing
  is known, is bad. A tombstone by hand is not dropped beside a row of its key.
- A row that lacks a value which the table needs is in the side `coalesced`, until events bring it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fuse_stream.commit.plan import StagedSide
from fuse_stream.commit.stage import stage_side
from fuse_stream.dml.effect import APPLIED, DUPLICATE, NOT_APPLICABLE, SUPERSEDED, Effect
from fuse_stream.dml.event_rules import EventRules
from fuse_stream.dml.event_sides import (
    BY_HAND,
    LOW_WATER,
    OF_ALL,
    OF_KEY,
    find_expired,
    find_markers,
    side_of,
    tombstones_of,
)
from fuse_stream.dml.fitted_events import FittedEvents
from fuse_stream.dml.keys import key_schema
from fuse_stream.dml.settle import Known, Settled, settle
from fuse_stream.dml.stored_keys import StoredRows, find_keys, union_of_rows
from fuse_stream.format.arrow import adapt, arrow_schema, columns_of_arrow
from fuse_stream.format.evolve import relaxed, with_ids_of
from fuse_stream.format.grouping import codes_of, grouping_keys, groups_of, ranks_of
from fuse_stream.format.hidden_columns import COLUMN_SEQUENCES, KIND, LAST_COLUMN, ROW_SEQUENCE
from fuse_stream.format.positions import BlockRows, positions_of, to_numpy, union
from fuse_stream.format.records import Block, Snapshot
from fuse_stream.format.schema import Schema, with_columns
from fuse_stream.format.side_schemas import (
    coalesced_schema,
    sequence_schema,
    tombstone_schema,
)
from fuse_stream.format.sides import SideName
from fuse_stream.objects.blocks import load_block
from fuse_stream.objects.slots import Metadata
from fuse_stream.objects.snapshot_blocks import iter_blocks


class LatestRows:
    """Applies a batch of events to the rows of one head."""

    def __init__(
        self, metadata: Metadata, head: Snapshot, fitted: FittedEvents, rules: EventRules
    ) -> None:
        tombs = tombstone_schema(fitted.schema, fitted.key)
        self._metadata, self._head = metadata, head
        self._tombs = side_of(head, SideName.TOMBSTONES, tombs)
        self._fitted, self._rules = fitted, rules
        self._markers = find_markers(metadata, self._tombs)
        self._truncated = self._markers.of(OF_ALL)
        self._is_truncated = False
        self._below: BlockRows = {}
        self._held_below: BlockRows = {}
        """The rows below the batch's truncate: of the table, and of `coalesced`."""
        self._parted: list[Block] = []
        self._held_parted: list[Block] = []
        """Rows that are not below it, of which a column may be."""
        self._hidden = [
            name
            for name in (ROW_SEQUENCE, COLUMN_SEQUENCES, LAST_COLUMN)
            if name in fitted.schema.names()
        ]
        self._coalesced = side_of(head, SideName.COALESCED, coalesced_schema(fitted.schema))
        self._rows = self._held = self._tombstones = StoredRows(metadata, ())

    def apply(self, at: np.ndarray, truncates: np.ndarray) -> Effect:
        """Return what the events with these numbers do: upserts and deletes, and truncates."""
        events = self._fitted.events
        status = np.full(len(events), NOT_APPLICABLE, np.int8)
        status[truncates] = self._truncate(events.sequence.take(pa.array(truncates)))
        settled = self._settled = self._settle(at)
        status[at] = settled.status
        lacks = np.full(len(events), None, object)
        lacks[at] = settled.lacks
        gone, _ = self._parts(settled.gone)
        return Effect(
            status=status,
            lacks=lacks,
            written=settled.written,
            is_update=settled.is_update,
            updated=self._rows.positions(settled.updated),
            hidden=union(self._rows.positions(gone), self._below),
        )

    def stage_sides(self) -> dict[str, StagedSide]:
        """Put the new tombstones, and hide those that go, after `apply`."""
        side, now_us, settled = self._tombs.schema, self._metadata.clock.now_us(), self._settled
        new = [tombstones_of(side, settled.tombstones, OF_KEY, now_us)]
        hidden: BlockRows = self._tombstones.positions(settled.dropped)
        if self._is_truncated:
            new.append(tombstones_of(side, self._marker(self._truncated), OF_ALL, now_us))
            below = StoredRows(self._metadata, iter_blocks(self._metadata, self._tombs))
            hidden = union(hidden, self._tombs_below(below))
        expired = self._forgettable(
            find_expired(self._metadata, self._tombs, self._rules.tombstones_us)
        )
        if len(expired):
            low = expired.load(sequence_schema(side)).column(0)
            both = pa.concat_arrays([*low.chunks, self._markers.of(LOW_WATER)])
            greatest = both.slice(int(np.argmax(ranks_of(both))), 1)
            new.append(tombstones_of(side, self._marker(greatest), LOW_WATER, now_us))
            hidden = union(hidden, self._markers.positions(LOW_WATER))
            hidden = union(hidden, expired.positions(np.arange(len(expired))))
        rows, staged = pa.concat_tables(new), self._stage_held()
        if len(rows) or hidden:
            staged[SideName.TOMBSTONES] = stage_side(
                self._metadata, self._head, side, [rows], hidden=hidden
            )
        return staged

    def _forgettable(self, expired: StoredRows) -> StoredRows:
        """Return expired tombstones but those by hand of keys that have a row.

        Such a tombstone says which columns the delete set to null in a row that came back in part.
        """
        schema, key = self._tombs.schema, self._fitted.key
        loaded = expired.load(with_columns(schema, key, [KIND]))
        is_by_hand = loaded.column(KIND).to_numpy() == BY_HAND
        if not is_by_hand.any():
            return expired
        own = key_schema(self._fitted.data, key)
        tombs = self._fitted.keys_of(loaded).filter(pa.array(is_by_hand))
        tombs = tombs.cast(arrow_schema(own))
        wanted = tombs.take(groups_of(grouping_keys(tombs))[0])
        lists = (self._head, self._coalesced)
        rows = [find_keys(self._metadata, of, own, wanted).load(own) for of in lists]
        rows += [self._fitted.keys_of(new) for new in (self._settled.written, self._settled.held)]
        codes = codes_of(grouping_keys(pa.concat_tables([tombs, *rows])))
        is_kept = np.zeros(len(loaded), bool)
        is_kept[is_by_hand] = np.isin(codes[: len(tombs)], codes[len(tombs) :])
        return expired.only(np.flatnonzero(~is_kept))

    def _stage_held(self) -> dict[str, StagedSide]:
        """Put the new rows that lack a value, and hide those that do so no more."""
        schema, rows = self._coalesced.schema, self._settled.held
        hidden = union(self._held.positions(self._parts(self._settled.gone)[1]), self._held_below)
        if not len(rows) and not hidden:
            return {}
        columns = with_ids_of(schema.columns, columns_of_arrow(rows.schema), lambda: 0)
        new = adapt(rows, columns, schema)
        staged = stage_side(self._metadata, self._head, schema, [new], hidden=hidden)
        return {SideName.COALESCED: staged}

    def _parts(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return which of the known rows are in the table, and which in `coalesced`."""
        end = len(self._rows)
        return numbers[numbers < end], numbers[numbers >= end] - end

    def _load(self, schema: Schema, numbers: np.ndarray) -> pa.Table:
        """Return the known rows with the given ascending numbers."""
        lists = zip((self._rows, self._held), self._parts(numbers), strict=True)
        return pa.concat_tables([rows.load(schema, own) for rows, own in lists])

    def _truncate(self, sequences: pa.Array) -> np.ndarray:
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
            self._below, self._parted = self._find_below(self._head)
            self._held_below, self._held_parted = self._find_below(self._coalesced)
        return status

    def _settle(self, at: np.ndarray) -> Settled:
        metadata, schema = self._metadata, self._fitted.schema
        fitted = self._fitted.take(at)
        keys = fitted.keys_of(fitted.events.rows)
        wanted = keys.take(groups_of(grouping_keys(keys))[0])
        own, side = (key_schema(of, fitted.key) for of in (fitted.data, self._tombs.schema))
        found = find_keys(metadata, self._head, own, wanted)
        self._rows = StoredRows(metadata, union_of_rows(found.blocks, self._parted))
        found = find_keys(metadata, self._coalesced, own, wanted)
        self._held = StoredRows(metadata, union_of_rows(found.blocks, self._held_parted))
        self._tombstones = find_keys(metadata, self._tombs, side, wanted)
        low_water = self._markers.of(LOW_WATER)
        narrow = relaxed(with_columns(schema, fitted.key, self._hidden))
        parts = [rows.load_cached(narrow) for rows in (self._rows, self._held)]
        known = Known(
            rows=pa.concat_tables(parts),
            is_shown=np.arange(len(self._rows) + len(self._held)) < len(self._rows),
            load=lambda numbers: self._load(fitted.data, numbers),
            tombstones=self._tombstones.load_cached(
                with_columns(self._tombs.schema, fitted.key, [ROW_SEQUENCE, KIND])
            ),
            truncated=self._truncated,
            low_water=low_water.slice(0, 0) if self._rules.forgives else low_water,
        )
        return settle(fitted, known)

    def _marker(self, sequence: pa.Array) -> pa.Table:
        return pa.table({ROW_SEQUENCE: sequence})

    def _find_below(self, held: Snapshot) -> tuple[BlockRows, list[Block]]:
        """Return the rows below the truncate, and those of which a column may be."""
        wanted = relaxed(with_columns(self._fitted.schema, (), self._hidden))
        below, parted = {}, []
        for block in iter_blocks(self._metadata, held):
            if not block.live_rows:
                continue
            shown = to_numpy(block.shown)
            rows = load_block(self._metadata.store, block, wanted)
            is_below = self._is_below(rows.column(ROW_SEQUENCE))
            if is_below.any():
                below[block.id] = positions_of(shown[is_below])
            if COLUMN_SEQUENCES in self._hidden:
                is_parted = rows.column(COLUMN_SEQUENCES).is_valid().to_numpy() & ~is_below
                if is_parted.any():
                    parted.append(block.showing(positions_of(shown[is_parted])))
        return below, parted

    def _tombs_below(self, tombs: StoredRows) -> BlockRows:
        rows = tombs.load(self._tombs.schema)
        is_mark = rows.column(KIND).to_numpy() == LOW_WATER
        return tombs.positions(np.flatnonzero(self._is_below(rows.column(ROW_SEQUENCE)) & ~is_mark))

    def _is_below(self, sequences: pa.ChunkedArray) -> np.ndarray:
        ranks = ranks_of(pa.concat_arrays([*sequences.chunks, self._truncated]))
        is_below: np.ndarray = ranks[:-1] < ranks[-1]
        return is_below
