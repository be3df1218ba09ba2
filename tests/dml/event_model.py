"""What a set of events leaves, computed one event at a time; and logs to try it with."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tests.kit.envelopes import envelope_of

COLUMNS = ("a", "b", "c")
SCHEMA = pa.schema([("k", pa.int64()), *((name, pa.int64()) for name in COLUMNS)])
EVENT_SCHEMA = pa.schema([*SCHEMA, ("_op", pa.string()), ("_seq", pa.int64())])
DELETED = "_op = 'd'"
TRUNCATED = "_op = 't'"

State = dict[int, tuple[int | None, ...]]


@dataclass(frozen=True)
class Event:
    """One event; `values` has None for a null, and lacks the columns that it does not give."""

    key: int | None
    seq: int
    op: str
    values: tuple[tuple[str, int | None], ...] = ()


def state_of(events: Iterable[Event]) -> State:
    """Return the rows that a set of events leaves, by key."""
    known = list(events)
    truncates = [event.seq for event in known if event.op == "t"]
    found: State = {}
    for key in {event.key for event in known if event.key is not None}:
        own = [event for event in known if event.key == key]
        upserts = [event.seq for event in own if event.op == "u"]
        deletes = [event.seq for event in own if event.op == "d"] + truncates
        if not upserts or max(upserts) < max(deletes, default=-1):
            continue
        row: list[int | None] = []
        for name in COLUMNS:
            given: list[tuple[int, int, int, int | None]] = [(seq, 0, 0, None) for seq in deletes]
            for event in own:
                values = dict(event.values)
                if event.op == "u" and name in values:
                    value = values[name]
                    given.append((event.seq, 1, -1 if value is None else value, value))
            row.append(max(given, key=lambda one: one[:3])[3] if given else None)
        found[key] = tuple(row)
    return found


History = dict[int, list[tuple[int, int | None, tuple[int | None, ...]]]]
"""By key: the sequences of start and end, and the values of the columns."""


def history_of(events: Iterable[Event], tracked: tuple[str, ...] = COLUMNS) -> History:
    """Return the rows of the histories that a set of events leaves."""
    known = list(events)
    truncates = {event.seq for event in known if event.op == "t"}
    found: History = {}
    for key in {event.key for event in known if event.key is not None}:
        own = [event for event in known if event.key == key]
        deletes = {event.seq for event in own if event.op == "d"} | truncates
        if rows := _rows_of(deletes, _upserts_of(own), tracked):
            found[key] = rows
    return found


def _upserts_of(events: list[Event]) -> dict[int, dict[str, int | None]]:
    """Return what is given at each sequence: of several values the greatest."""
    upserts: dict[int, dict[str, int | None]] = {}
    for event in events:
        if event.op == "u":
            given = upserts.setdefault(event.seq, {})
            for name, value in event.values:
                if name not in given or _order(value) > _order(given[name]):
                    given[name] = value
    return upserts


def _rows_of(
    deletes: set[int], upserts: dict[int, dict[str, int | None]], tracked: tuple[str, ...]
) -> list[tuple[int, int | None, tuple[int | None, ...]]]:
    rows: list[list[Any]] = []
    state: dict[str, int | None] | None = None
    for seq, is_upsert in sorted([(at, False) for at in deletes] + [(at, True) for at in upserts]):
        before = state
        state = {**(state or dict.fromkeys(COLUMNS)), **upserts[seq]} if is_upsert else None
        goes_on = before is not None and state is not None
        if goes_on and all(before[name] == state[name] for name in tracked):  # type: ignore[index]
            rows[-1][2] = state
            continue
        if rows and rows[-1][1] is None:
            rows[-1][1] = seq
        if is_upsert:
            rows.append([seq, None, state])
    return [(start, end, tuple(values[name] for name in COLUMNS)) for start, end, values in rows]


def _order(value: int | None) -> int:
    return -1 if value is None else value


def log_of(
    chance: random.Random, count: int, *, keys: int, seqs: int, partial: bool, truncates: bool
) -> list[Event]:
    """Return random events; with few sequences many of a key have the same."""
    found = []
    for _ in range(count):
        op = chance.choices("udt", weights=[6, 2, 0.3 if truncates else 0])[0]
        seq = chance.randrange(seqs)
        if op == "t":
            found.append(Event(None, seq, op))
            continue
        key = chance.randrange(keys)
        values = [(name, chance.choice([None, 1, 2, 3])) for name in COLUMNS]
        if partial and chance.random() < 0.5:
            values = [pair for pair in values if chance.random() < 0.5]
        found.append(Event(key, seq, op, tuple(values) if op == "u" else ()))
    return found


def tables_of(events: list[Event], *, partial: bool) -> list[pa.Table]:
    """Return events as rows that have only columns to which one of them gives a value."""
    groups: dict[frozenset[str], list[Event]] = {}
    for event in events:
        names = frozenset(name for name, _ in event.values)
        groups.setdefault(frozenset() if partial else names, []).append(event)
    found = []
    for group in groups.values():
        given = {name for event in group for name, _ in event.values}
        lacking = [name for name in COLUMNS if name not in given]
        found.append(table_of(group, partial=partial).drop_columns(lacking))
    return found


def table_of(events: list[Event], *, partial: bool) -> pa.Table:
    """Return events as rows; with `partial`, as `from_debezium` and its siblings make them."""
    rows: list[dict[str, Any]] = []
    for event in events:
        values = dict(event.values)
        row: dict[str, Any] = {"k": event.key, **values, "_op": event.op, "_seq": event.seq}
        if partial:
            lacks = [name for name in COLUMNS if name not in values and event.op == "u"]
            row |= {"_unset": lacks, "_error": None, "_raw": None, "_source": None}
        rows.append(row)
    schema = envelope_of(SCHEMA) if partial else EVENT_SCHEMA
    return pa.Table.from_pylist(rows, schema=schema)


def batches_of(chance: random.Random, events: list[Event]) -> Iterator[list[Event]]:
    """Yield the events in any order, some of them twice, cut into batches."""
    order = events + [event for event in events if chance.random() < 0.2]
    chance.shuffle(order)
    while order:
        count = chance.randint(1, max(1, len(order)))
        yield order[:count]
        order = order[count:]
