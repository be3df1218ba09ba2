"""Settle a batch of events with what is stored of their keys, as the latest state. Pure.

The entries of `latest` are, in this order: the events, a delete of each key by the greatest
truncate if there is one, the stored rows, and the tombstones.

A settled row that has null in a column that takes none is stored, but not shown. It cannot be
refused: whether it lacks a value depends on all events of its key, and more of them may come.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.dml.effect import (
    APPLIED,
    DUPLICATE,
    LACKING,
    LATE,
    SUPERSEDED,
    TIED,
    find_lacks,
)
from fuse_stream.dml.event_sides import BY_HAND
from fuse_stream.dml.events import UPSERT
from fuse_stream.dml.fitted_events import FittedEvents
from fuse_stream.dml.latest import NONE, NOT_GIVEN, Entries, Latest, latest
from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.grouping import begins, codes_of, grouping_keys, joined, ranks_of
from fuse_stream.format.hidden_columns import (
    COLUMN_SEQUENCES,
    KIND,
    ROW_SEQUENCE,
    last_columns_of,
    with_last_column,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is stored of the keys of a batch."""

    rows: pa.Table
    """Of each stored row the columns of the key, `_fuse_seq`, and, if they are kept, `_fuse_seqs`
    and `_fuse_last_column`; rows that are not shown are among them."""
    is_shown: np.ndarray
    """Which of them the table shows."""
    load: Callable[[np.ndarray], pa.Table]
    """Returns all visible columns of the stored rows with these ascending numbers."""
    tombstones: pa.Table
    """Of each deleted key its columns, `_fuse_seq` and `_fuse_kind`."""
    truncated: pa.Array
    """The sequence of the greatest truncate, or nothing."""
    low_water: pa.Array
    """The greatest sequence of a dropped tombstone, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What a batch does to the keys of its events."""

    status: np.ndarray
    """What became of each event."""
    lacks: np.ndarray
    """For each event that is `LACKING` the column, as objects; None for the others."""
    written: pa.Table
    """New rows that are shown: the visible columns and the hidden ones of the table."""
    is_update: np.ndarray
    """For each of them, whether it replaces a row that is shown."""
    held: pa.Table
    """New rows that are not shown, in the same columns."""
    updated: np.ndarray
    """The numbers of the stored rows that are shown, and which shown ones replace."""
    gone: np.ndarray
    """The numbers of all stored rows that go."""
    tombstones: pa.Table
    """New ones: the columns of the key, and `_fuse_seq`."""
    dropped: np.ndarray
    """The numbers of the tombstones that go."""


def settle(fitted: FittedEvents, known: Known) -> Settled:
    """Return what good events, upserts and deletes, do to a table that holds `known` of them."""
    late = _late(fitted, known)
    status, lacks = np.full(len(late), LATE, np.int8), np.full(len(late), None, object)
    at = np.flatnonzero(~late)
    found = _Batch(fitted, known, at).settle()
    status[at], lacks[at] = found.status, found.lacks
    return dataclasses.replace(found, status=status, lacks=lacks)


def _late(fitted: FittedEvents, known: Known) -> np.ndarray:
    """Return which events may be older than a delete that is forgotten.

    They are at or below the low-water mark, and nothing is known of their keys, or of a column to
    which they give a value.
    """
    count = len(fitted.events)
    if not len(known.low_water):
        return np.zeros(count, bool)
    sequences = known.rows.column(ROW_SEQUENCE)
    ranks = ranks_of(joined([fitted.events.sequence, known.low_water, sequences]))
    keys = _keys(fitted, known, np.arange(count))
    is_known = np.isin(keys[:count], keys[count:])
    row_of = np.full(int(keys.max(initial=-1)) + 1, NONE)
    row_of[keys[count : count + len(known.rows)]] = np.arange(len(known.rows))
    row = row_of[keys[:count]]
    at = np.flatnonzero((row != NONE) & (fitted.events.kind == UPSERT))
    at = at[ranks[at] < ranks[count + 1 + row[at]]]
    is_known[at] &= ~_fills(fitted, known, at, row[at])
    is_late: np.ndarray = (ranks[:count] <= ranks[count]) & ~is_known
    return is_late


def _fills(fitted: FittedEvents, known: Known, at: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return which of the upserts `at` give their stored row a column that no event gave it."""
    noted = _per_column(fitted, known.rows)
    is_open = noted.sequences.is_null().to_numpy(zero_copy_only=False)
    found = np.zeros(len(at), bool)
    for column in fitted.data.columns:
        lacks = np.zeros(len(known.rows), bool)
        lacks[noted.rows[is_open & (noted.columns == column.id)]] = True
        unset = fitted.events.unset.get(column.name)
        found |= lacks[rows] if unset is None else lacks[rows] & ~unset[at]
    return found


def _keys(fitted: FittedEvents, known: Known, at: np.ndarray) -> np.ndarray:
    parts = [fitted.events.rows.take(pa.array(at)), known.rows, known.tombstones]
    names = [f"k{number}" for number in range(len(fitted.key))]
    tables = [fitted.keys_of(part).rename_columns(names) for part in parts]
    return codes_of(grouping_keys(pa.concat_tables(tables, promote_options="permissive")))


class _Batch:
    """The entries of one batch."""

    def __init__(self, fitted: FittedEvents, known: Known, at: np.ndarray) -> None:
        """`at` are the events that take part."""
        events = fitted.events.take(at)
        self._fitted, self._known, self._events = fitted, known, events
        keys = _keys(fitted, known, at)
        count, stored = len(events), len(known.rows)
        groups = int(keys.max()) + 1 if len(keys) else 0
        truncates = np.arange(groups if len(known.truncated) else 0)
        key = np.concatenate([keys[:count], truncates, keys[count:]]).astype(np.int64)
        self._stored = count + len(truncates)
        """The number of the first entry of a stored row."""
        self._tombs = self._stored + stored
        sequences = known.rows.column(ROW_SEQUENCE)
        per_column = _per_column(fitted, known.rows)
        self._pool = joined(
            [
                events.sequence,
                known.truncated,
                sequences,
                known.tombstones.column(ROW_SEQUENCE),
                per_column.sequences,
            ]
        )
        plain = ranks_of(self._pool)
        ranks = np.where(plain < 0, plain, 2 * plain)  # a delete by hand comes between two
        place = np.concatenate(
            [
                np.arange(count),
                np.full(len(truncates), count),
                np.arange(stored + len(known.tombstones)) + count + len(known.truncated),
            ]
        )
        rank = ranks[place]
        self._is_by_hand = np.zeros(len(key), bool)
        kinds = known.tombstones.column(KIND).to_numpy()
        self._is_by_hand[self._tombs :] = kinds == BY_HAND
        rank[self._is_by_hand] += 1
        self._tomb_of = self._greatest_tombs(key, rank)
        is_upsert = np.zeros(len(key), bool)
        is_upsert[:count] = events.kind == UPSERT
        is_upsert[self._stored : self._tombs] = True
        self._place = place
        """For each entry, where its sequence is in the pool."""
        self._rank = ranks
        self._places, columns = self._of_columns(per_column, key, rank)
        self._entries = Entries(key=key, rank=rank, is_upsert=is_upsert, columns=columns)
        self._content_at, self._content = self._loaded(per_column)

    def _greatest_tombs(self, key: np.ndarray, rank: np.ndarray) -> np.ndarray:
        """Return for each key its greatest tombstone, or `NONE`."""
        found = np.full(int(key.max()) + 1 if len(key) else 0, NONE)
        at = self._tombs + np.argsort(rank[self._tombs :], kind="stable")
        found[key[at]] = at
        return found

    def _nulled_by_hand(self, key: np.ndarray, ranks: np.ndarray, rank: np.ndarray) -> np.ndarray:
        """Return which values, given at these ranks to rows of these keys, are from a tombstone.

        A row that came back in part after a delete by hand has the tombstone beside it.
        """
        tomb = self._tomb_of[key]
        found: np.ndarray = (tomb != NONE) & self._is_by_hand[tomb] & (rank[tomb] == ranks + 1)
        return found

    def _of_columns(
        self, per_column: _PerColumn, key: np.ndarray, rank: np.ndarray
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return the places in the pool, and the ranks, of what the entries give each column."""
        places, columns = [], []
        first = len(self._pool) - len(per_column.sequences)
        for column in self._fitted.data.columns:
            own_place, own = self._place, rank
            unset = self._events.unset.get(column.name)
            if unset is not None and column.id not in self._fitted.key:
                own = own.copy()
                own[: len(unset)][unset] = NOT_GIVEN
            of_column = np.flatnonzero(per_column.columns == column.id)
            if len(of_column):
                own, own_place = own.copy(), own_place.copy()
                at = self._stored + per_column.rows[of_column]
                own_place[at] = first + of_column
                own[at] = self._rank[first + of_column]  # UNKNOWN: older than all events
                own[at] += self._nulled_by_hand(key[at], own[at], rank)
            places.append(own_place)
            columns.append(own)
        return places, columns

    def _loaded(self, per_column: _PerColumn) -> tuple[np.ndarray, pa.Table]:
        """Return the visible columns of events and of the stored rows that may be needed."""
        entries, count = self._entries, len(self._events)
        groups = entries.key_count
        is_partial = np.zeros(groups, bool)
        for mask in self._events.unset.values():
            is_partial[entries.key[:count][mask]] = True
        is_partial[entries.key[self._stored + per_column.rows]] = True
        of_stored = np.full(groups, NONE)
        rows = np.arange(self._stored, self._tombs)
        of_stored[entries.key[rows]] = rows
        twin = of_stored[entries.key[:count]]
        equal = (twin != NONE) & (entries.rank[twin] == entries.rank[:count])
        is_partial[entries.key[:count][equal]] = True
        wanted = np.flatnonzero(is_partial[entries.key[rows]] | ~self._known.is_shown)
        content_at = np.full(len(entries.key), NONE)
        content_at[:count] = np.arange(count)
        content_at[self._stored + wanted] = count + np.arange(len(wanted))
        content = [self._events.rows]
        if len(wanted):
            content.append(self._known.load(wanted))
        self._of_stored = of_stored
        return content_at, pa.concat_tables(content)

    def _values(self, number: int, at: np.ndarray) -> np.ndarray:
        """Return numbers in the order of the values that entries have in a column."""
        taken = self._content.column(number).take(pa.array(self._content_at[at]))
        return ranks_of(taken.combine_chunks())

    def settle(self) -> Settled:
        entries = self._entries
        outcome = latest(entries, self._values)
        stored = self._of_stored
        tombs = self._tomb_of
        is_changed = outcome.upsert != stored
        for winner in outcome.columns:
            is_changed |= (winner != stored) & (winner != NONE)
        writes = np.flatnonzero(outcome.is_there & is_changed)
        goes = ~outcome.is_there & (stored != NONE)
        is_new_tomb = (outcome.delete >= 0) & (outcome.delete < len(self._events))
        at = np.arange(self._tombs, len(entries.key))
        drops = at[(at != tombs[entries.key[at]]) | is_new_tomb[entries.key[at]]]
        effective = np.zeros(len(entries.key), bool)
        effective[outcome.delete[is_new_tomb & ~outcome.is_there]] = True
        effective[outcome.upsert[writes]] = True
        for winner in outcome.columns:
            effective[winner[writes][winner[writes] != NONE]] = True
        written = self._written(outcome, writes)
        lacks = find_lacks(written, self._fitted.schema)
        is_whole = lacks == None  # noqa: E711 - of each item
        whole, replaced = pa.array(is_whole), stored[writes]
        is_update = replaced != NONE
        is_update[is_update] = self._known.is_shown[replaced[is_update] - self._stored]
        updated, gone = replaced[is_whole & is_update], stored[goes]
        status, of_events = self._lacking(outcome, writes, lacks, self._status(effective, tombs))
        return Settled(
            status=status,
            lacks=of_events,
            written=written.filter(whole),
            is_update=is_update[is_whole],
            held=written.filter(pc.invert(whole)),
            updated=np.sort(updated) - self._stored,
            gone=np.sort(np.concatenate([replaced[replaced != NONE], gone])) - self._stored,
            tombstones=self._deleted(outcome.delete[is_new_tomb]),
            dropped=drops - self._tombs,
        )

    def _lacking(
        self, outcome: Latest, writes: np.ndarray, lacks: np.ndarray, status: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what became of events, and what rows lack for which they count.

        `lacks` says it of the new rows, which have the keys `writes`.
        """
        entries, count = self._entries, len(status)
        of_key = np.full(entries.key_count, None, object)
        stays = (self._of_stored != NONE) & outcome.is_there
        stays[writes] = False
        same = np.flatnonzero(stays)
        same = same[~self._known.is_shown[self._of_stored[same] - self._stored]]
        if len(same):
            of_key[same] = find_lacks(self._written(outcome, same), self._fitted.schema)
        of_key[writes] = lacks
        found = of_key[entries.key[:count]]
        counts = (status == APPLIED) | ((status == DUPLICATE) & entries.is_upsert[:count])
        is_lacking = (found != None) & counts  # noqa: E711 - of each item
        status[is_lacking], found[~is_lacking] = LACKING, None
        return status, found

    def _deleted(self, entries: np.ndarray) -> pa.Table:
        at = pa.array(entries)
        keys = self._fitted.keys_of(self._events.rows.take(at))
        sequence = self._pool.take(pa.array(self._place[entries]))
        return keys.append_column(ROW_SEQUENCE, sequence)

    def _written(self, outcome: Latest, keys: np.ndarray) -> pa.Table:
        """Return the new rows of some keys, in the visible columns and the hidden ones."""
        schema = arrow_schema(self._fitted.data)
        arrays = []
        for number, winner in enumerate(outcome.columns):
            entry = winner[keys]
            is_null = (entry == NONE) | ~self._entries.is_upsert[entry]
            content_at = self._content_at[entry]
            assert not ((content_at == NONE) & ~is_null).any(), "a row that is needed was not read"
            at = pa.array(content_at, mask=is_null)
            arrays.append(self._content.column(number).take(at))
        upserts = outcome.upsert[keys]
        rows = pa.table(arrays, schema=schema)
        sequence = self._pool.take(pa.array(self._place[upserts]))
        rows = rows.append_column(ROW_SEQUENCE, sequence)
        parts = self._column_sequences(outcome, keys, upserts)
        if parts is not None:
            rows = rows.append_column(COLUMN_SEQUENCES, parts)
        return with_last_column(rows, self._fitted.schema)

    def _column_sequences(
        self, outcome: Latest, keys: np.ndarray, upserts: np.ndarray
    ) -> pa.Array | None:
        """Return the sequences of columns that differ from their rows'; None if none is kept."""
        fields = {column.name: column for column in self._fitted.schema.columns}
        if COLUMN_SEQUENCES not in fields:
            return None
        rows, ids, places = [], [], []
        for number, column in enumerate(self._fitted.data.columns):
            entry = outcome.columns[number][keys]
            ranks = np.where(entry == NONE, NOT_GIVEN, self._entries.columns[number][entry])
            differs = np.flatnonzero(ranks != self._entries.rank[upserts])
            rows.append(differs)
            ids.append(np.full(len(differs), column.id, np.int32))
            own = self._places[number][entry[differs]]
            places.append(np.where(entry[differs] == NONE, NONE, own))
        row = np.concatenate(rows)
        order = np.argsort(row, kind="stable")
        place = np.concatenate(places)[order]
        items = self._pool.take(pa.array(place, mask=place == NONE))
        counts = np.bincount(row, minlength=len(keys))
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        made = pa.MapArray.from_arrays(
            pa.array(offsets), pa.array(np.concatenate(ids)[order]), items
        )
        return pc.if_else(pa.array(counts > 0), made, pa.nulls(len(keys), made.type))

    def _status(self, effective: np.ndarray, tombs: np.ndarray) -> np.ndarray:
        entries, count = self._entries, len(self._events)
        status = np.where(effective[:count], APPLIED, SUPERSEDED).astype(np.int8)
        key, rank, is_upsert = entries.key[:count], entries.rank[:count], entries.is_upsert[:count]
        tomb = tombs[key]
        meets = (tomb != NONE) & (entries.rank[tomb] == rank)
        status[meets & ~is_upsert] = DUPLICATE
        status[meets & is_upsert] = TIED
        stored = self._of_stored[key]
        meets = (stored != NONE) & (entries.rank[stored] == rank)
        status[meets & ~is_upsert] = TIED
        same = np.flatnonzero(meets & is_upsert)
        differs, is_new = np.zeros(len(same), bool), effective[same]
        for number, ranks in enumerate(entries.columns):
            compared = np.flatnonzero(
                (ranks[same] == rank[same]) & (ranks[stored[same]] == rank[same])
            )
            if len(compared):
                both = np.concatenate([same[compared], stored[same][compared]])
                values = self._values(number, both)
                differs[compared] |= values[: len(compared)] != values[len(compared) :]
        status[same[differs]] = TIED
        status[same[~differs & ~is_new]] = DUPLICATE
        order = np.lexsort((rank, key))
        is_double = ~begins(key[order], rank[order])
        if is_double.any():
            is_twin = is_double | np.append(is_double[1:], False)
            self._compare_twins(np.sort(order[is_twin]), status)
        return status

    def _compare_twins(self, twins: np.ndarray, status: np.ndarray) -> None:
        """Note which events are doubles of others; all have others of their key and sequence."""
        entries = self._entries
        is_upsert = entries.is_upsert[twins]
        columns = {"is_upsert": is_upsert.astype(np.int64)}
        for number, ranks in enumerate(entries.columns):
            is_given = is_upsert & (ranks[twins] != NOT_GIVEN)
            columns[f"c{number}"] = np.where(is_given, self._values(number, twins), NOT_GIVEN)
        content = codes_of(pa.table(columns))
        key, rank = entries.key[twins], entries.rank[twins]
        order = np.lexsort((status[twins], content, rank, key))
        is_first = begins(key[order], rank[order], content[order])
        status[twins[order[~is_first]]] = DUPLICATE
        order = order[is_first]
        order = order[np.lexsort((status[twins[order]], rank[order], key[order]))]
        status[twins[order[~begins(key[order], rank[order])]]] = TIED


@dataclass(frozen=True, slots=True, kw_only=True)
class _PerColumn:
    """The sequences of columns that differ from those of their rows."""

    rows: np.ndarray
    """The number of the stored row."""
    columns: np.ndarray
    """The id of the column."""
    sequences: pa.Array
    """Null if no event gave the column a value, which the row may have had before all events."""


def _per_column(fitted: FittedEvents, rows: pa.Table) -> _PerColumn:
    noted, last = _noted(rows), last_columns_of(rows, fitted.schema)
    later = [column.id for column in fitted.data.columns if (last < column.id).any()]
    newer = [np.flatnonzero(last < column) for column in later]
    count = sum(map(len, newer))
    return _PerColumn(
        rows=np.concatenate([noted.rows, *newer]),
        columns=np.concatenate([noted.columns, np.repeat(later, list(map(len, newer)))]).astype(
            np.int64
        ),
        sequences=joined([noted.sequences, pa.nulls(count, noted.sequences.type)]),
    )


def _noted(rows: pa.Table) -> _PerColumn:
    """Return what the rows say themselves."""
    sequence = rows.schema.field(ROW_SEQUENCE).type
    if COLUMN_SEQUENCES not in rows.column_names or not len(rows):
        nothing = np.zeros(0, np.int64)
        return _PerColumn(rows=nothing, columns=nothing, sequences=pa.nulls(0, sequence))
    maps = pa.concat_arrays(rows.column(COLUMN_SEQUENCES).chunks)
    own = pa.ListArray.from_arrays(
        maps.offsets, pa.array(np.arange(len(maps.keys))), mask=maps.is_null()
    )
    at = own.flatten()
    return _PerColumn(
        rows=pc.list_parent_indices(own).to_numpy(),
        columns=maps.keys.take(at).to_numpy().astype(np.int64),
        sequences=maps.items.take(at).cast(sequence),
    )
