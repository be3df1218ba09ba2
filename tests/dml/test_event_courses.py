"""Events beside all else that happens to a table: maintenance, rewinds, other writers, crashes."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest

from fuse_stream.errors import FuseError, InvalidInputError, SchemaMismatchError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.recovery.target import Goal
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import Crash, Fault, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound
from tests.dml import test_added_columns as added_columns
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
from tests.kit.strides import seeds
from tests.recovery.histories import rewind

Create = Callable[..., Table]
FEED = {"_change_type", "_commit_version", "_commit_timestamp"}
ACTS = ["compact", "recluster", "rewind", "fsck", "revert", "publish", "none"]
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


class Course:
    """A random log of events, and all that happens to the table that takes it."""

    def __init__(self, seed: str, create: Create, store: MemoryStore, *, needed: bool) -> None:
        self.chance = random.Random(seed)
        self.is_needed, self.scd = needed, self.chance.choice([1, 2])
        self.partial = self.chance.random() < 0.6
        self.grows = self.partial and self.chance.random() < 0.5
        self.log = log_of(self.chance, 60, keys=6, seqs=12, partial=self.partial, truncates=True)
        if needed:
            self.log = [event for event in self.log if ("a", None) not in event.values]
        schema = NEEDED if needed else SCHEMA
        first = pa.schema([schema.field("k"), schema.field("a")]) if self.grows else schema
        self.table = create(first, cluster_by=["a"], properties=SMALL)
        self.store = store
        self.sent: dict[int, list[Event]] = {0: []}
        """The events that each version has."""

    def run(self) -> None:
        for batch in [*batches_of(self.chance, self.log), self.log]:
            before = self.table.head().version
            events = self.deliver(self.table, batch)
            self.sent[self.table.head().version] = [*self.sent[before], *events]
            self.happen(self.chance.choice(ACTS))
            self.check()
        assert_sound(self.store, self.table)

    def deliver(self, table: Table, batch: list[Event]) -> list[Event]:
        """Send events to a table or branch; return them."""
        if not self.grows:
            send(table, batch, partial=self.partial, stored_as_scd_type=self.scd)
            return batch
        if not any(name == "a" for event in batch for name, _ in event.values):
            batch = [*batch, *self.log]  # a frame has the columns that take no null
        added_columns.send(table, batch, stored_as_scd_type=self.scd)
        return batch

    def happen(self, act: str) -> None:
        """Let something happen to the table, and note which events it has then."""
        table, sent = self.table, self.sent
        before = table.head().version
        known = sent[before]
        if act in {"compact", "recluster"}:
            table.optimize()
        elif act == "rewind":
            target = self.chance.choice(sorted(sent.keys() - {0}))
            with contextlib.suppress(InvalidInputError):  # it is at this target already
                rewind(table.committer, Goal(version=target))
            known = sent[target]
        elif act == "publish":
            known = self.publish(self.chance.choice(sorted(sent.keys() - {0})))
        elif act == "fsck":
            assert not table.fsck(deep=True).findings
        elif act == "revert" and before > 1:
            with contextlib.suppress(InvalidInputError):  # the commit changed no row
                table.revert(before)
                known = sent[max(version for version in sent if version < before)]
        for version in range(before + 1, table.head().version + 1):
            sent[version] = known

    def publish(self, at: int) -> list[Event]:
        """Send events to a branch off a version, and publish it; return what the table has then."""
        before, clock = self.table.head().version, self.table.metadata.clock
        name = f"try-{len(self.table.branches())}"
        self.table.create_branch(name, at)
        branch = open_table(self.store, branch=name, clock=clock, probe_store=False)
        events = [event for event in self.log if self.chance.random() < 0.3]
        events = self.deliver(branch, events)
        if self.chance.random() < 0.5:
            branch.optimize()
        try:
            self.table.publish(name, expected_head=before)
        except SchemaMismatchError:  # both got columns, which may have one id
            assert self.grows
            return self.sent[before]
        except InvalidInputError:  # the events changed nothing, and the branch is at the head
            return self.sent[before]
        return [*self.sent[at], *events]

    def check(self) -> None:
        table, known = self.table, self.sent[self.table.head().version]
        (check_whole if self.is_needed else check)(table, known, self.scd)
        rows = Counter(tuple(row.values()) for row in table.to_arrow().to_pylist())
        assert rows_by_feed(table) == rows


@pytest.mark.parametrize("needed", [False, True], ids=["", "needed"])
@seeds(8, 24)
def test_events_beside_maintenance_rewinds_and_branches(
    create: Create,
    store: MemoryStore,
    seed: int,
    needed: bool,  # noqa: FBT001 - a parameter
) -> None:
    Course(f"{seed} {needed}", create, store, needed=needed).run()


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
