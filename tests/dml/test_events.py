"""Events with sequences: a table depends on the set of its events alone."""

from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa
import pytest

from fuse_stream.table.handle import Table
from tests.dml.event_model import (
    COLUMNS,
    DELETED,
    SCHEMA,
    TRUNCATED,
    Event,
    State,
    batches_of,
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
    create: Create, seed: int, seqs: int, partial: bool
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
            assert counts is not None and counts.events == len(batch)
    assert state(table) == state_of(log)


def test_nothing(create: Create) -> None:
    table = create(SCHEMA)
    send(table, [Event(1, 5, "u", (("a", 1), ("b", 1), ("c", 1)))])
    send(table, [Event(1, 7, "d")])
    send(table, [Event(1, 6, "u", (("a", 1), ("b", 1), ("c", 1)))])

    assert state(table) == {}
