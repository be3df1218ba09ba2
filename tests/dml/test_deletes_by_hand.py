"""Rows that come from events, and that somebody deletes: what was delivered brings none back."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

import pyarrow as pa
import pytest

from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound
from tests.dml.event_model import SCHEMA, Event, batches_of, log_of, state_of
from tests.dml.test_event_courses import rows_by_feed
from tests.dml.test_events import NEEDED, WHOLE, send, side, state
from tests.kit.strides import seeds

Create = Callable[..., Table]


def delete(table: Table, key: int) -> list[Event]:
    """Delete the row of a key; return the event that does the same: right after the row's."""
    rows = table.to_arrow(where=f"k = {key}", columns=["_fuse_seq"]).to_pylist()
    table.delete(f"k = {key}")
    return [Event(key, row["_fuse_seq"] + 1, "d") for row in rows]


@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
@pytest.mark.parametrize("seqs", [5, 1000], ids=["equal sequences", "different sequences"])
@seeds(4, 12)
def test_deleted_rows_do_not_come_back_by_events_that_are_delivered_again(
    create: Create,
    store: MemoryStore,
    seed: int,
    seqs: int,
    partial: bool,  # noqa: FBT001 - a parameter
) -> None:
    chance = random.Random(f"{seed} {seqs} {partial}")
    log = log_of(chance, 40, keys=4, seqs=seqs, partial=partial, truncates=chance.random() < 0.5)
    log = [dataclasses.replace(event, seq=2 * event.seq) for event in log]  # room for deletes
    table = create(SCHEMA)
    sent: list[Event] = []
    by_hand: list[Event] = []

    for batch in batches_of(chance, log):
        send(table, batch, partial=partial)
        sent += batch
        for key in range(4):
            if chance.random() < 0.4:
                by_hand += delete(table, key)
        assert state(table) == state_of([*sent, *by_hand])
        if chance.random() < 0.3:
            table.compact()
        before = rows_by_feed(table)
        version = table.head().version
        send(table, chance.sample(sent, len(sent)), partial=partial)

        assert state(table) == state_of([*sent, *by_hand])
        assert rows_by_feed(table) == before
        if table.head().version > version:
            changes = table.changes(version + 1).read_all()
            assert len(changes) == 0
    assert_sound(store, table)


def test_a_later_event_brings_a_deleted_row_back_with_what_it_gives(create: Create) -> None:
    table = create(SCHEMA)
    send(table, [Event(1, 5, "u", WHOLE)], partial=True)
    assert table.delete("k = 1").deleted == 1
    send(table, [Event(1, 5, "u", WHOLE)], partial=True)
    assert state(table) == {}

    send(table, [Event(1, 6, "u", (("b", 7),))], partial=True)
    send(table, [Event(1, 5, "u", WHOLE)], partial=True)
    assert state(table) == {1: (None, 7, None)}
    assert table.delete("true").deleted == 1
    send(table, [Event(1, 6, "u", (("b", 7),)), Event(1, 5, "u", WHOLE)], partial=True)
    assert state(table) == {}
    assert [row["_fuse_seq"] for row in tombstones(table)] == [6]


def tombstones(table: Table) -> list[dict[str, object]]:
    names = ["k", "_fuse_seq", "_fuse_kind"]
    rows: list[dict[str, object]] = table.to_arrow(side="tombstones", columns=names).to_pylist()
    return rows


def test_a_value_set_by_hand_in_a_row_that_came_back_stays_beside_older_events(
    create: Create,
) -> None:
    table = create(SCHEMA)
    send(table, [Event(1, 5, "u", WHOLE)], partial=True)
    table.delete("k = 1")
    send(table, [Event(1, 6, "u", (("b", 7),))], partial=True)
    table.update("k = 1", {"a": 8})
    send(table, [Event(1, 5, "u", WHOLE)], partial=True)

    assert state(table) == {1: (8, 7, None)}


@pytest.mark.parametrize("needed", [False, True], ids=["", "needed"])
def test_a_delete_by_hand_of_a_row_that_came_back_outlasts_other_tombstones(
    create: Create,
    clock: ManualClock,
    needed: bool,  # noqa: FBT001 - a parameter
) -> None:
    table = create(NEEDED if needed else SCHEMA)
    send(table, [Event(1, 5, "u", WHOLE), Event(3, 5, "u", WHOLE)], partial=True)
    table.delete("k IN (1, 3)")
    send(table, [Event(1, 6, "u", (("b", 7),))], partial=True)
    clock.advance(2 * 86_400)
    for key in (2, 4):
        send(table, [Event(key, 6, "u", WHOLE)], partial=True, tombstones="1d")
    send(table, [Event(1, 5, "u", WHOLE)], partial=True, tombstones="1d")

    assert state(table).get(1) == (None if needed else (None, 7, None))
    assert [row["k"] for row in tombstones(table)] == [1, None]
    send(table, [Event(1, 7, "u", WHOLE)], partial=True, tombstones="1d")
    send(table, [Event(5, 7, "u", WHOLE)], partial=True, tombstones="1d")
    assert state(table)[1] == (1, 1, 1)
    assert [row["k"] for row in tombstones(table)] == [1, None]


def test_a_delete_that_is_undone_leaves_no_tombstone(create: Create) -> None:
    table = create(SCHEMA)
    send(table, [Event(1, 5, "u", WHOLE)])
    table.delete("k = 1")
    table.revert(table.head().version)
    send(table, [Event(1, 5, "u", WHOLE)])

    assert set(state(table)) == {1}
    assert side(table, "tombstones") == []


def test_a_deleted_row_that_is_older_than_all_events_leaves_no_tombstone(create: Create) -> None:
    table = create(SCHEMA)
    table.append(pa.Table.from_pylist([{"k": 1, "a": 1}], schema=SCHEMA))
    send(table, [Event(2, 5, "u", WHOLE)])
    table.delete("k = 1")

    assert side(table, "tombstones") == []
    send(table, [Event(1, 1, "u", WHOLE)])
    assert set(state(table)) == {1, 2}
