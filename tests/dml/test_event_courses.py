"""Events beside all else that happens to a table: maintenance, rewinds, other writers, crashes."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable

import pytest

from fuse_stream.errors import FuseError, InvalidInputError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.recovery.target import Goal
from fuse_stream.table.handle import Table, create_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import Crash, Fault, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound
from tests.dml.event_model import (
    SCHEMA,
    Event,
    batches_of,
    history_of,
    log_of,
    state_of,
)
from tests.dml.test_events import NEEDED, WHOLE, check_whole, histories, send, state
from tests.dml.two_writers import calls_of, copy_of, interleavings, opened
from tests.recovery.histories import rewind

Create = Callable[..., Table]
FEED = {"_change_type", "_commit_version", "_commit_timestamp"}
SMALL = {"fuse.block.rows": "8", "fuse.deletes.rows": "1%", "fuse.grace": "0s"}


def rows_by_feed(table: Table) -> Counter[tuple[object, ...]]:
    """Return the rows to which all changes of a table add up."""
    total: Counter[tuple[object, ...]] = Counter()
    for row in table.changes(1).read_all().to_pylist():
        sign = 1 if row["_change_type"] in {"insert", "update_postimage"} else -1
        values = tuple(value for name, value in row.items() if name not in FEED)
        total[values] += sign
    assert min(total.values(), default=0) >= 0
    return +total


@pytest.mark.parametrize("needed", [False, True], ids=["", "needed"])
@pytest.mark.parametrize("scd", [1, 2])
@pytest.mark.parametrize("seed", range(8))
def test_events_beside_maintenance_and_rewinds(
    create: Create,
    store: MemoryStore,
    seed: int,
    scd: int,
    needed: bool,  # noqa: FBT001 - a parameter
) -> None:
    chance = random.Random(f"{seed} {scd} {needed}")
    partial = chance.random() < 0.5
    log = log_of(chance, 60, keys=6, seqs=12, partial=partial, truncates=True)
    if needed:
        log = [event for event in log if ("a", None) not in event.values]
    table = create(NEEDED if needed else SCHEMA, cluster_by=["a"], properties=SMALL)
    sent: dict[int, list[Event]] = {0: []}

    for batch in [*batches_of(chance, log), log]:
        before = table.head().version
        send(table, batch, partial=partial, stored_as_scd_type=scd)
        sent[table.head().version] = [*sent[before], *batch]
        act = chance.choice(["compact", "recluster", "rewind", "fsck", "revert", "none"])
        happen(table, act, sent, chance)

        known = sent[table.head().version]
        (check_whole if needed else check)(table, known, scd)
        rows = Counter(tuple(row.values()) for row in table.to_arrow().to_pylist())
        assert rows_by_feed(table) == rows
    assert_sound(store, table)


def happen(table: Table, act: str, sent: dict[int, list[Event]], chance: random.Random) -> None:
    """Let something happen to a table, and note which events it has then."""
    before = table.head().version
    known = sent[before]
    if act in {"compact", "recluster"}:
        table.optimize()
    elif act == "rewind":
        target = chance.choice(sorted(sent.keys() - {0}))
        with contextlib.suppress(InvalidInputError):  # it is at this target already
            rewind(table.committer, Goal(version=target))
        known = sent[target]
    elif act == "fsck":
        assert not table.fsck(deep=True).findings
    elif act == "revert" and before > 1:
        with contextlib.suppress(InvalidInputError):  # the commit changed no row
            table.revert(before)
            known = sent[max(version for version in sent if version < before)]
    for version in range(before + 1, table.head().version + 1):
        sent[version] = known


def made(scd: int) -> MemoryStore:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    table = create_table(
        store, first_schema(columns_of_arrow(SCHEMA)), clock=clock, probe_store=False
    )
    send(table, [Event(1, 3, "u", WHOLE), Event(2, 4, "d")], stored_as_scd_type=scd)
    send(table, [Event(3, 2, "u", WHOLE), Event(1, 5, "u", WHOLE)], stored_as_scd_type=scd)
    return store


OLD = [Event(1, 3, "u", WHOLE), Event(2, 4, "d"), Event(3, 2, "u", WHOLE), Event(1, 5, "u", WHOLE)]
MINE = [Event(1, 9, "d"), Event(2, 3, "u", WHOLE), Event(4, 1, "u", WHOLE)]
THEIRS = [Event(1, 8, "u", (("a", 7),)), Event(2, 6, "u", WHOLE), Event(4, 2, "d")]
TRUNCATE = [Event(None, 7, "t"), Event(3, 8, "u", WHOLE)]


def sends(events: list[Event], scd: int) -> Callable[[Table], object]:
    return lambda table: send(table, events, partial=True, stored_as_scd_type=scd)


def check(table: Table, events: list[Event], scd: int) -> None:
    if scd == 1:
        assert state(table) == state_of(events)
    else:
        assert histories(table) == history_of(events)


@pytest.mark.parametrize("theirs", [THEIRS, TRUNCATE], ids=["events", "truncate"])
@pytest.mark.parametrize("scd", [1, 2])
def test_two_writers_of_events_end_as_the_set_says(scd: int, theirs: list[Event]) -> None:
    for end in interleavings(made(scd), sends(MINE, scd), sends(theirs, scd)):
        check(end.table, [*OLD, *MINE, *theirs], scd)


@pytest.mark.parametrize("scd", [1, 2])
def test_events_beside_a_compaction_end_as_the_set_says(scd: int) -> None:
    for end in interleavings(made(scd), sends(MINE, scd), lambda table: table.compact()):
        check(end.table, [*OLD, *MINE], scd)


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOST_REPLY])
@pytest.mark.parametrize("scd", [1, 2])
def test_events_are_delivered_again_after_a_fault_at_any_call(scd: int, fault: Fault) -> None:
    base = made(scd)
    act = sends(MINE, scd)
    counted = FaultyStore(copy_of(base))
    opened(counted, 1)
    opening = len(counted.calls)
    for at in range(len(calls_of(base, act))):
        store = copy_of(base)
        faulty = FaultyStore(store, at_call=opening + at + 1, fault=fault)
        with contextlib.suppress(Crash, FuseError):
            act(opened(faulty, 1))
        again = opened(store, 2)
        act(again)

        check(again, [*OLD, *MINE], scd)
        assert_sound(store, again)
