"""Events with sequences: a table depends on the set of its events alone."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from fuse_stream.table.handle import Table
from tests.dml.event_model import (
    COLUMNS,
    DELETED,
    SCHEMA,
    TRUNCATED,
    Event,
    History,
    State,
    batches_of,
    history_of,
    log_of,
    state_of,
    table_of,
)

Create = Callable[..., Table]


def send(table: Table, events: list[Event], *, partial: bool = False, **more: object) -> None:
    table.upsert(
        table_of(events, partial=partial),
        keys=["k"],
        sequence_by="_seq",
        apply_as_deletes=DELETED,
        apply_as_truncates=TRUNCATED,
        except_column_list=[] if partial else ["_op", "_seq"],
        **more,  # type: ignore[arg-type]
    )


def state(table: Table, **which: object) -> State:
    rows = table.to_arrow(columns=["k", *COLUMNS], **which).to_pylist()  # type: ignore[arg-type]
    found = {row["k"]: tuple(row[name] for name in COLUMNS) for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
@pytest.mark.parametrize("seqs", [4, 1000], ids=["equal sequences", "different sequences"])
@pytest.mark.parametrize("seed", range(12))
def test_a_table_depends_on_the_set_of_events_alone(
    create: Create,
    seed: int,
    seqs: int,
    partial: bool,  # noqa: FBT001 - a parameter
) -> None:
    chance = random.Random(f"{seed} {seqs} {partial}")
    log = log_of(chance, 40, keys=5, seqs=seqs, partial=partial, truncates=chance.random() < 0.5)
    table = create(SCHEMA)
    sent: list[Event] = []

    for batch in batches_of(chance, log):
        before = table.head().version
        send(table, batch, partial=partial)
        sent += batch

        assert state(table) == state_of(sent)
        counts = table.head().counts
        if table.head().version > before:
            assert counts is not None
            assert counts.events == len(batch)
    assert state(table) == state_of(log)


@pytest.mark.parametrize("tracked", [None, ["a"]], ids=["all tracked", "one tracked"])
@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
@pytest.mark.parametrize("seqs", [8, 1000], ids=["equal sequences", "different sequences"])
@pytest.mark.parametrize("seed", range(8))
def test_a_history_depends_on_the_set_of_events_alone(
    create: Create,
    seed: int,
    seqs: int,
    partial: bool,  # noqa: FBT001 - a parameter
    tracked: list[str] | None,
) -> None:
    chance = random.Random(f"{seed} {seqs} {partial} {tracked}")
    log = log_of(chance, 40, keys=4, seqs=seqs, partial=partial, truncates=chance.random() < 0.5)
    table = create(SCHEMA)
    sent: list[Event] = []

    for batch in batches_of(chance, log):
        send(table, batch, partial=partial, stored_as_scd_type=2, track_history_column_list=tracked)
        sent += batch

        assert histories(table) == history_of(sent, tuple(tracked or COLUMNS))


def histories(table: Table) -> History:
    names = ["k", "__START_AT", "__END_AT", *COLUMNS]
    found: History = {}
    for row in sorted(table.to_arrow(columns=names).to_pylist(), key=lambda row: row["__START_AT"]):
        values = tuple(row[name] for name in COLUMNS)
        found.setdefault(row["k"], []).append((row["__START_AT"], row["__END_AT"], values))
    return found
