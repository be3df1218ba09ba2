"""Events that bring columns: a row, or a kept event, is older than columns that come later."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pyarrow as pa
import pytest

from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound
from tests.dml.event_model import (
    COLUMNS,
    DELETED,
    SCHEMA,
    TRUNCATED,
    Event,
    batches_of,
    history_of,
    log_of,
    state_of,
    tables_of,
)
from tests.dml.test_events import histories, side, state
from tests.kit.strides import seeds

Create = Callable[..., Table]
NARROW = pa.schema([SCHEMA.field("k"), SCHEMA.field("a")])


def send(table: Table, events: list[Event], *, partial: bool = True, **more: object) -> None:
    for rows in tables_of(events, partial=partial):
        table.upsert(
            rows,
            keys=["k"],
            sequence_by="_seq",
            apply_as_deletes=DELETED,
            apply_as_truncates=TRUNCATED,
            except_column_list=[] if partial else ["_op", "_seq"],
            merge_schema=True,
            **more,  # type: ignore[arg-type]
        )


@pytest.mark.parametrize("partial", [False, True], ids=["frames", "readers"])
@pytest.mark.parametrize("scd", [1, 2])
@seeds(6, 20)
def test_the_law_holds_for_columns_that_come_later(
    create: Create,
    store: MemoryStore,
    seed: int,
    scd: int,
    partial: bool,  # noqa: FBT001 - a parameter
) -> None:
    seqs = 8 if seed % 2 else 1000
    chance = random.Random(f"{seed} {scd} {seqs} {partial}")
    log = log_of(chance, 40, keys=4, seqs=seqs, partial=True, truncates=chance.random() < 0.5)
    table = create(NARROW, properties={"fuse.block.rows": "8", "fuse.deletes.rows": "1%"})
    sent: list[Event] = []

    batches = list(batches_of(chance, log))
    for number, batch in enumerate([*batches, log]):
        known = ("a", "b") if number < len(batches) // 2 else COLUMNS
        own = [event for event in batch if {name for name, _ in event.values} <= {*known}]
        send(table, own, partial=partial, stored_as_scd_type=scd)
        sent += own
        if chance.random() < 0.4:
            table.optimize()

        assert (state(table) if scd == 1 else histories(table)) == (
            state_of(sent) if scd == 1 else history_of(sent)
        )
    assert_sound(store, table)


OLD, LATE = Event(1, 5, "u", (("a", 1),)), Event(1, 3, "u", (("b", 9),))


@pytest.mark.parametrize("order", [[OLD, LATE], [LATE, OLD]], ids=["late last", "late first"])
def test_a_late_event_gives_a_column_that_is_newer_than_the_row(
    create: Create, order: list[Event]
) -> None:
    table = create(NARROW)
    for event in order:
        send(table, [event])
        table.compact()

    assert state(table) == {1: (1, 9, None)}


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_a_row_that_waits_for_a_value_is_given_columns_that_are_newer(
    create: Create, order: tuple[int, ...]
) -> None:
    other = Event(2, 5, "u", (("a", 1),))
    batches = [[Event(1, 5, "u"), other], [LATE, other], [Event(1, 6, "u", (("a", 4),)), other]]
    table = create(pa.schema([NARROW.field("k"), NARROW.field("a").with_nullable(nullable=False)]))
    for number in order:
        send(table, batches[number])

    assert state(table) == {1: (4, 9, None), 2: (1, None, None)}


@pytest.mark.parametrize("order", ["dul", "udl", "dlu", "uld"])
def test_a_delete_forgets_what_was_given_to_a_column_that_came_after_it(
    create: Create, order: str
) -> None:
    events = {"d": Event(1, 4, "d"), "u": OLD, "l": LATE}
    table = create(NARROW)
    for name in order:
        send(table, [events[name]])

    assert state(table) == {1: (1, None, None)}


def test_a_forgotten_delete_keeps_older_values_of_new_columns_apart(
    create: Create, clock: ManualClock
) -> None:
    table = create(NARROW)
    send(table, [Event(1, 4, "d"), OLD], tombstones="1d")
    clock.advance(2 * 86_400)
    send(table, [Event(2, 6, "u", (("a", 1),))], tombstones="1d")
    send(table, [LATE, Event(2, 7, "u", (("b", 2),))], tombstones="1d")

    assert state(table) == {1: (1, None, None), 2: (1, 2, None)}
    assert [row["reason"] for row in side(table, "quarantine")] == ["too late"]
    assert table.retry(too_late=True).quarantined == 0
    assert state(table) == {1: (1, 9, None), 2: (1, 2, None)}


def test_events_that_are_delivered_again_with_a_new_column_fill_it(create: Create) -> None:
    table = create(NARROW)
    send(table, [OLD, Event(2, 6, "u", (("a", 2),))])
    send(table, [Event(1, 5, "u", (("a", 1), ("b", 3))), Event(2, 6, "u", (("a", 2), ("b", 4)))])

    assert state(table) == {1: (1, 3, None), 2: (2, 4, None)}
    assert side(table, "quarantine") == []


def test_a_kept_event_gives_no_value_to_a_column_that_came_later(
    create: Create, clock: ManualClock
) -> None:
    table = create(NARROW)
    send(table, [Event(1, 8, "u", (("a", 1),)), Event(2, 8, "d")], tombstones="1d")
    clock.advance(2 * 86_400)
    send(table, [Event(1, 9, "u", (("a", 2),))], tombstones="1d")
    send(table, [Event(2, 7, "u", (("a", 3),))], tombstones="1d")
    send(table, [Event(2, 6, "u", (("b", 4),)), Event(1, 9, "u", (("b", 5),))], tombstones="1d")

    assert [row["given"] for row in side(table, "quarantine")] == [["k", "a"], ["k", "b"]]
    assert table.retry(too_late=True).quarantined == 0
    assert state(table) == {1: (2, 5, None), 2: (3, 4, None)}


def test_a_row_of_a_history_that_is_older_than_a_column_is_not_written_again(
    create: Create,
) -> None:
    table = create(NARROW)
    send(table, [OLD, Event(1, 6, "u", (("a", 2),))], stored_as_scd_type=2)
    send(table, [Event(1, 7, "u", (("b", 2),))], stored_as_scd_type=2)

    counts = table.head().counts
    assert counts is not None
    assert (counts.inserted, counts.updated) == (1, 1)


def test_a_table_without_later_columns_has_no_column_for_them(create: Create) -> None:
    table = create(NARROW)
    send(table, [OLD])
    assert "_fuse_last_column" not in table.head().schema.names()

    send(table, [LATE])
    assert "_fuse_last_column" in table.head().schema.names()
