"""Apply events to a table whose rows are the states that keys had (SCD 2).

Rules:
- `history` makes the history of the keys of a batch anew from all their events: those of the batch,
  the rows of the table, what was merged into them (`coalesced`), and the deletes (`tombstones`).
- A row keeps the event that it shows: its sequence, and which columns the event did not give. So
  the table, with its sides, holds every event, and only rows that differ are written.
- Deletes and truncates are kept for ever: a late event may come before one.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.commit.plan import StagedSide
from fuse_stream.commit.stage import stage_side
from fuse_stream.dml.effect import (
    APPLIED,
    DUPLICATE,
    LACKING,
    NOT_APPLICABLE,
    SUPERSEDED,
    TIED,
    Effect,
    find_lacks,
)
from fuse_stream.dml.event_rules import EventRules
from fuse_stream.dml.event_sides import (
    OF_ALL,
    OF_KEY,
    find_markers,
    side_of,
    tombstones_of,
)
from fuse_stream.dml.events import UPSERT
from fuse_stream.dml.fitted_events import FittedEvents
from fuse_stream.dml.history import NONE, HistoryEntries, moments_of
from fuse_stream.dml.keys import key_schema
from fuse_stream.dml.stored_keys import StoredRows, find_keys
from fuse_stream.format.arrow import adapt, arrow_schema, columns_of_arrow
from fuse_stream.format.evolve import relaxed, with_ids_of
from fuse_stream.format.grouping import (
    begins,
    codes_of,
    grouping_keys,
    groups_of,
    joined,
    ranks_of,
)
from fuse_stream.format.hidden_columns import (
    END_AT,
    ROW_SEQUENCE,
    START_AT,
    UNSET_COLUMNS,
    last_columns_of,
    with_last_column,
)
from fuse_stream.format.records import Snapshot
from fuse_stream.format.schema import Schema, with_columns
from fuse_stream.format.side_schemas import coalesced_schema, tombstone_schema
from fuse_stream.format.sides import SideName
from fuse_stream.objects.slots import Metadata
from fuse_stream.objects.snapshot_blocks import iter_blocks


class Histories:
    """Applies a batch of events to the rows of one head."""

    def __init__(
        self, metadata: Metadata, head: Snapshot, fitted: FittedEvents, _rules: EventRules
    ) -> None:
        coalesced = coalesced_schema(fitted.schema)
        tombs = tombstone_schema(fitted.schema, fitted.key)
        self._metadata, self._head, self._fitted = metadata, head, fitted
        self._coalesced = side_of(head, SideName.COALESCED, coalesced)
        self._tombs = side_of(head, SideName.TOMBSTONES, tombs)
        self._truncates = find_markers(metadata, self._tombs).of(OF_ALL)
        self._new_truncates = self._truncates.slice(0, 0)

    def apply(self, at: np.ndarray, truncates: np.ndarray) -> Effect:
        """Return what the events with these numbers do: upserts and deletes, and truncates."""
        events = self._fitted.events
        status = np.full(len(events), NOT_APPLICABLE, np.int8)
        status[truncates] = self._truncate(events.sequence.take(pa.array(truncates)))
        fitted = self._fitted.take(at)
        wanted = self._wanted(fitted)
        own, side = (key_schema(of, fitted.key) for of in (fitted.data, self._tombs.schema))
        self._rows = find_keys(self._metadata, self._head, own, wanted)
        self._merged = find_keys(self._metadata, self._coalesced, own, wanted)
        self._deletes = find_keys(self._metadata, self._tombs, side, wanted)
        batch = self._batch = _Batch(
            fitted,
            rows=_spelt_out(self._rows.load(relaxed(fitted.schema)), fitted),
            merged=_spelt_out(self._merged.load(self._coalesced.schema), fitted),
            deletes=self._deletes.load(self._tombs.schema),
            truncates=pa.concat_arrays([self._truncates, self._new_truncates]),
        )
        lacks = np.full(len(events), None, object)
        status[at], lacks[at] = batch.status()
        new = self._as(batch.rows(), relaxed(fitted.schema))
        is_written, is_kept = _difference(new, batch.stored)
        written, gone = new.filter(pa.array(is_written)), np.flatnonzero(~is_kept)
        names = [*fitted.key_names, START_AT]
        replaced = batch.stored.take(pa.array(gone))
        both = pa.concat_tables([written.select(names), replaced.select(names)])
        codes = codes_of(grouping_keys(both))
        is_update = np.isin(codes[: len(written)], codes[len(written) :])
        is_replaced = np.isin(codes[len(written) :], codes[: len(written)])
        return Effect(
            status=status,
            lacks=lacks,
            written=written,
            is_update=is_update,
            updated=self._rows.positions(gone[is_replaced]),
            hidden=self._rows.positions(gone),
        )

    def stage_sides(self) -> dict[str, StagedSide]:
        """Put what is new in the sides, and hide what is not so any more, after `apply`."""
        sides, metadata, head = {}, self._metadata, self._head
        merged = self._as(self._batch.merged_rows(), self._coalesced.schema)
        is_written, is_kept = _difference(merged, self._batch.merged)
        if is_written.any() or not is_kept.all():
            sides[SideName.COALESCED.value] = stage_side(
                metadata,
                head,
                self._coalesced.schema,
                [merged.filter(pa.array(is_written))],
                hidden=self._merged.positions(np.flatnonzero(~is_kept)),
            )
        schema, now_us = self._tombs.schema, metadata.clock.now_us()
        marks = pa.table({ROW_SEQUENCE: self._new_truncates})
        deletes = pa.concat_tables(
            [
                tombstones_of(schema, self._batch.new_deletes(), OF_KEY, now_us),
                tombstones_of(schema, marks, OF_ALL, now_us),
            ]
        )
        if len(deletes):
            sides[SideName.TOMBSTONES.value] = stage_side(metadata, head, schema, [deletes])
        return sides

    def _truncate(self, sequences: pa.Array) -> np.ndarray:
        """Note new truncates; return what became of each."""
        known = len(self._truncates)
        ranks = ranks_of(pa.concat_arrays([self._truncates, sequences]))
        _, first = np.unique(ranks, return_index=True)
        new = first[first >= known] - known
        self._new_truncates = sequences.take(pa.array(new))
        status = np.full(len(sequences), DUPLICATE, np.int8)
        status[new] = APPLIED
        return status

    def _wanted(self, fitted: FittedEvents) -> pa.Table:
        """Return the keys whose histories may change, each once."""
        keys = [fitted.keys_of(fitted.events.rows)]
        if len(self._new_truncates):
            keys.append(self._cut())
        every = pa.concat_tables(keys)
        return every.take(groups_of(grouping_keys(every))[0])

    def _cut(self) -> pa.Table:
        """Return the keys of rows that last beyond a new truncate."""
        wanted = relaxed(with_columns(self._fitted.schema, self._fitted.key, [END_AT]))
        rows = StoredRows(self._metadata, iter_blocks(self._metadata, self._head)).load(wanted)
        ends = rows.column(END_AT)
        ranks = ranks_of(pa.concat_arrays([*ends.chunks, self._new_truncates]))
        first = ranks[len(rows) :].min()
        lasts = (ranks[: len(rows)] > first) | ends.is_null().to_numpy()
        return self._fitted.keys_of(rows).filter(pa.array(lasts))

    def _as(self, rows: pa.Table, schema: Schema) -> pa.Table:
        columns = with_ids_of(schema.columns, columns_of_arrow(rows.schema), lambda: 0)
        return adapt(rows, columns, schema)


def _spelt_out(rows: pa.Table, fitted: FittedEvents) -> pa.Table:
    """Return rows that name the columns that are newer than they are among those not given."""
    last = last_columns_of(rows, fitted.schema)
    if not (last < fitted.schema.last_column_id).any():
        return rows
    ids = np.array([column.id for column in fitted.data.columns], np.int32)
    lacks = last[:, None] < ids
    noted = joined([rows.column(UNSET_COLUMNS)])
    parents = pc.list_parent_indices(noted).to_numpy()
    order = np.argsort(ids)
    lacks[parents, order[np.searchsorted(ids, noted.flatten().to_numpy(), sorter=order)]] = True
    at = rows.column_names.index(UNSET_COLUMNS)
    rows = rows.set_column(at, rows.schema.field(at), _ids_of(lacks, ids))
    return with_last_column(rows, fitted.schema)


def _ids_of(lacks: np.ndarray, ids: np.ndarray) -> pa.Array:
    """Return for each row the ids of the columns that are marked in it."""
    offsets = np.concatenate([[0], np.cumsum(lacks.sum(axis=1))]).astype(np.int32)
    of_rows = ids[np.nonzero(lacks)[1]]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(of_rows, pa.int32()))


def _difference(new: pa.Table, stored: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return which new rows are not stored, and which stored rows are still so."""
    codes = codes_of(grouping_keys(pa.concat_tables([new, stored])))
    of_new, of_stored = codes[: len(new)], codes[len(new) :]
    return ~np.isin(of_new, of_stored), np.isin(of_stored, of_new)


class _Batch:
    """The history of the keys of one batch.

    The entries are, in this order: the events, the stored rows, what was merged into them, the
    stored deletes, and a delete of each key by each truncate.
    """

    def __init__(
        self,
        fitted: FittedEvents,
        *,
        rows: pa.Table,
        merged: pa.Table,
        deletes: pa.Table,
        truncates: pa.Array,
    ) -> None:
        self.stored, self.merged = rows, merged
        self._fitted, events = fitted, fitted.events
        names = list(fitted.data.names())
        parts = [events.rows, rows.select(names), merged.select(names)]
        schema = arrow_schema(fitted.data)
        self._content = pa.concat_tables([part.cast(schema) for part in parts])
        keyed = [*parts, deletes]
        plain = [f"k{number}" for number in range(len(fitted.key))]
        tables = [fitted.keys_of(part).rename_columns(plain) for part in keyed]
        own = codes_of(grouping_keys(pa.concat_tables(tables, promote_options="permissive")))
        groups = int(own.max()) + 1 if len(own) else 0
        self._events, self._own = len(events), len(own)
        self._deletes = self._own - len(deletes)
        """The number of the first stored delete."""
        pools = [
            events.sequence,
            *(part.column(ROW_SEQUENCE) for part in (rows, merged, deletes)),
            truncates,
        ]
        self._pool = joined(pools)
        by_truncates = self._own + np.repeat(np.arange(len(truncates)), groups)
        self._place = np.concatenate([np.arange(self._own), by_truncates])
        """For each entry, where its sequence is in the pool."""
        is_upsert = np.zeros(len(self._place), bool)
        is_upsert[: self._events] = events.kind == UPSERT
        is_upsert[self._events : self._deletes] = True
        self._entries = HistoryEntries(
            key=np.concatenate([own, np.tile(np.arange(groups), len(truncates))]).astype(np.int64),
            rank=ranks_of(self._pool)[self._place],
            is_upsert=is_upsert,
            given=self._given(rows, merged),
        )
        tracked = [
            number
            for number, column in enumerate(fitted.data.columns)
            if not fitted.tracked or column.id in fitted.tracked
        ]
        self._moments = moments_of(self._entries, self._values, tracked)
        self._starts = np.flatnonzero(self._moments.begins_run)
        self._ends = np.flatnonzero(self._moments.ends_run)
        self._states = self._taken(self._moments.state[:, self._ends])
        self._lacks = find_lacks(self._states, fitted.schema)
        """For each run the column of which its row lacks a value, as objects; None if it is whole.
        A row that lacks one is not shown: its events are kept in `coalesced`, like merged ones."""

    def _given(self, rows: pa.Table, merged: pa.Table) -> list[np.ndarray]:
        unset = joined([part.column(UNSET_COLUMNS) for part in (rows, merged)])
        of_entry = pc.list_parent_indices(unset).to_numpy() + self._events
        ids = unset.flatten().to_numpy()
        found = []
        for column in self._fitted.data.columns:
            given = np.zeros(len(self._place), bool)
            given[: self._deletes] = True
            lacks = self._fitted.events.unset.get(column.name)
            if column.id not in self._fitted.key:
                if lacks is not None:
                    given[: self._events] = ~lacks
                given[of_entry[ids == column.id]] = False
            found.append(given)
        return found

    def _values(self, number: int, at: np.ndarray) -> np.ndarray:
        taken = self._content.column(number).take(pa.array(at))
        return ranks_of(joined([taken]))

    def rows(self) -> pa.Table:
        """Return all rows of the keys: the visible columns and the hidden ones of the table."""
        moments = self._moments
        is_whole = self._lacks == None  # noqa: E711 - of each item
        starts, ends = self._starts[is_whole], self._ends[is_whole]
        after = np.minimum(ends + 1, max(len(moments.first) - 1, 0))
        is_last = (ends + 1 == len(moments.first)) | moments.begins_key[after]
        rows = self._states.filter(pa.array(is_whole))
        rows = rows.append_column(START_AT, self._sequences(starts))
        rows = rows.append_column(END_AT, self._sequences(after, is_null=is_last))
        return self._with_event(rows, ends)

    def merged_rows(self) -> pa.Table:
        """Return the upserts of the keys that rows do not show, as rows of `coalesced`."""
        is_shown = np.zeros(len(self._moments.first), bool)
        is_shown[self._ends[self._lacks == None]] = True  # noqa: E711 - of each item
        at = np.flatnonzero(self._moments.is_upsert & ~is_shown)
        return self._with_event(self._taken(self._moments.given[:, at]), at)

    def new_deletes(self) -> pa.Table:
        """Return the deletes that are not stored: the columns of the key, and `_fuse_seq`."""
        of_entry = self._moments.of_entry
        events = np.flatnonzero(~self._entries.is_upsert[: self._events])
        is_known = np.isin(of_entry[events], of_entry[self._deletes : self._own])
        _, first = np.unique(of_entry[events], return_index=True)
        new = np.intersect1d(events[first], events[~is_known])
        keys = self._fitted.keys_of(self._fitted.events.rows.take(pa.array(new)))
        return keys.append_column(ROW_SEQUENCE, self._pool.take(pa.array(self._place[new])))

    def _taken(self, entries: np.ndarray) -> pa.Table:
        """Return rows of values that entries give, one array of entries for each column."""
        arrays = [
            self._content.column(number).take(pa.array(at, mask=at == NONE))
            for number, at in enumerate(entries)
        ]
        return pa.table(arrays, schema=arrow_schema(self._fitted.data))

    def _with_event(self, rows: pa.Table, at: np.ndarray) -> pa.Table:
        """Return `rows` with the sequences of moments, and the columns that these do not give."""
        lacks = self._moments.given[:, at] == NONE
        ids = np.array([column.id for column in self._fitted.data.columns], np.int32)
        rows = rows.append_column(ROW_SEQUENCE, self._sequences(at))
        rows = rows.append_column(UNSET_COLUMNS, _ids_of(lacks.T, ids))
        return with_last_column(rows, self._fitted.schema)

    def _sequences(self, at: np.ndarray, is_null: np.ndarray | None = None) -> pa.Array:
        entries = self._moments.first[at]
        return self._pool.take(pa.array(self._place[entries], mask=is_null))

    def status(self) -> tuple[np.ndarray, np.ndarray]:
        """Return what became of the events, and what rows lack for which they count."""
        moments, count = self._moments, self._events
        status = np.full(count, APPLIED, np.int8)
        of_event = moments.of_entry[:count]
        ends = ~moments.begins_key
        ends[1:] &= moments.is_upsert[:-1]
        status[~moments.is_upsert[of_event] & ~ends[of_event]] = SUPERSEDED
        shared = np.bincount(moments.of_entry[: self._own], minlength=len(moments.first)) > 1
        at = np.flatnonzero(shared[moments.of_entry[: self._own]])
        if len(at):
            self._compare(at, status)
        of_moment = np.full(len(moments.first), None, object)
        run = np.cumsum(moments.begins_run) - 1
        of_moment[moments.is_upsert] = self._lacks[run[moments.is_upsert]]
        found = of_moment[of_event]
        counts = (status == APPLIED) | (status == DUPLICATE)
        is_lacking = (found != None) & counts  # noqa: E711 - of each item
        status[is_lacking], found[~is_lacking] = LACKING, None
        return status, found

    def _compare(self, at: np.ndarray, status: np.ndarray) -> None:
        """Note which events are doubles, among entries that share their moments with others."""
        columns = {}
        is_upsert = self._entries.is_upsert[at]
        upserts = at[is_upsert]
        for number, given in enumerate(self._entries.given):
            codes = np.full(len(at), NONE - 1)
            codes[is_upsert] = np.where(given[upserts], self._values(number, upserts), NONE - 1)
            columns[f"c{number}"] = codes
        content = codes_of(pa.table(columns))
        moment, is_event = self._moments.of_entry[at], at < self._events
        order = np.lexsort((is_event, content, moment))
        is_first = begins(moment[order], content[order])
        doubles = at[order[~is_first]]
        status[doubles[doubles < self._events]] = DUPLICATE
        order = order[is_first]
        order = order[np.lexsort((is_event[order], moment[order]))]
        others = at[order[~begins(moment[order])]]
        status[others[others < self._events]] = TIED
