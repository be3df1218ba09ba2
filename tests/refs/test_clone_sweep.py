"""A clone whose process dies, fails or loses a reply at any store call; two clones at once."""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest

from fuse_stream.errors import AlreadyExistsError, FuseError, NotFoundError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.objects.origins import StoreWithOrigins
from fuse_stream.objects.slots import Metadata
from fuse_stream.refs.clone import Clone
from fuse_stream.refs.clone import clone as clone_branch
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import AT_ANY_CALL, Crash, Fault, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.conftest import SCHEMA
from tests.kit.interleave import run_interleaved
from tests.kit.strides import every_nth, strided
from tests.recovery.histories import SEEDS, keys, opened, rows
from tests.recovery.test_rewind_sweep import Below

Step = tuple[str, str, tuple[str, ...]]

FIRST: Step = ("a/", "b/", ())
SECOND: Step = ("b/", "c/", ("a/",))
"""For each clone: the source folder, the target folder, and the allowed origins."""


def prepared(step: Step) -> MemoryStore:
    """Return a machine with a table of which a row was deleted; for the second step, its clone."""
    disk = MemoryStore()
    table = create_table(
        Below(disk, "a/"),
        first_schema(columns_of_arrow(SCHEMA)),
        clock=ManualClock(),
        probe_store=False,
    )
    for key in range(1, 4):
        table.append(rows(key), app_id="x", batch_id=key)
    table.append(rows(9))
    table.delete("k = 9")
    if step is SECOND:
        make(disk, FIRST)
        table_in(disk, "b/", "a/").append(rows(4), app_id="x", batch_id=4)
    return disk


def table_in(disk: Store, folder: str, *allowed: str) -> Table:
    return opened(StoreWithOrigins(Below(disk, folder), [Below(disk, one) for one in allowed]))


def make(disk: Store, step: Step) -> Clone:
    """Clone as a new process does."""
    source, place, allowed = step
    store = StoreWithOrigins(Below(disk, source), [Below(disk, one) for one in allowed])
    clock = ManualClock(seed=next(SEEDS))
    committer = open_table(store, clock=clock, probe_store=False).committer
    return clone_branch(
        committer,
        Metadata(Below(disk, place), clock),
        origin_of=store.origin,
        probe_place=False,
    )


def pins_in(disk: Store, folder: str) -> set[str]:
    return {pin.table_id for pin in opened(Below(disk, folder)).clones()}


def begun_id(disk: Store, folder: str) -> str | None:
    """Return the id of the table in a folder, finished or not."""
    try:
        return Metadata(Below(disk, folder), ManualClock()).load_table_file().table_id
    except NotFoundError:
        return None


@pytest.mark.parametrize("step", [FIRST, SECOND], ids=["of a table", "of a clone"])
@pytest.mark.parametrize("fault", AT_ANY_CALL)
@every_nth(3)
def test_after_any_fault_the_clone_is_whole_or_absent_and_the_same_call_finishes_it(
    fault: Fault, step: Step, stride: int
) -> None:
    source, place, others = step
    expected = [1, 2, 3, 4][: 3 if step is FIRST else 4]
    counted = FaultyStore(prepared(step))
    make(counted, step)
    at_calls, landed = strided(range(1, len(counted.calls) + 1), stride), 0
    for at_call in at_calls:
        disk = prepared(step)
        before = {folder: pins_in(disk, folder) for folder in (source, *others)}
        failed: BaseException | None = None
        try:
            make(FaultyStore(disk, at_call=at_call, fault=fault), step)
        except (Crash, FuseError) as error:
            failed = error

        # Anyone who opens the folder finds a whole clone or none, and all that it needs is kept.
        found = begun_id(disk, place)
        with suppress(NotFoundError):
            assert keys(table_in(disk, place, source, *others).to_arrow()) == expected
            landed += 1
        left = {folder: pins_in(disk, folder) - before[folder] for folder in before}
        if found is not None:
            assert all(found in pins for pins in left.values())
        if isinstance(failed, FuseError) and any(left.values()):
            (clone_id,) = {one for pins in left.values() for one in pins}
            assert failed.context["clone_id"] == clone_id
            assert "unpin" in failed.message

        done = make(disk, step)
        clone = table_in(disk, place, source, *others)
        assert found in {None, done.table_id}
        assert keys(clone.to_arrow()) == expected
        assert keys(clone.changes(0).read_all()) == expected
        assert clone.append(rows(len(expected)), app_id="x", batch_id=len(expected)).version == 1
        assert all(done.table_id in pins_in(disk, folder) for folder in before)
    # The last call makes the clone visible.
    assert (landed > 0) is (fault is not Fault.CRASH_BEFORE)
    assert landed < len(at_calls)


@pytest.mark.long
@every_nth(3)
def test_two_calls_at_the_same_time_make_one_clone(stride: int) -> None:
    counted = FaultyStore(prepared(FIRST))
    make(counted, FIRST)
    writes = [at for at, (verb, _) in enumerate(counted.calls) if verb.startswith("put")]
    moments = sorted({0, *writes, *(at + 1 for at in writes)})
    for first, second in strided(list(itertools.product(moments, repeat=2)), stride):
        disk = prepared(FIRST)
        schedule = [0] * first + [1] * second
        results = run_interleaved(disk, [lambda store: make(store, FIRST)] * 2, schedule)
        made = [result for result in results if isinstance(result, Clone)]

        assert made[0] == made[1]
        assert pins_in(disk, "a/") == {made[0].table_id}
        assert keys(table_in(disk, "b/", "a/").changes(0).read_all()) == [1, 2, 3]


@pytest.mark.long
def test_a_clone_and_a_create_at_the_same_time_leave_one_of_the_two_tables() -> None:
    counted = FaultyStore(prepared(FIRST))
    make(counted, FIRST)

    def create(store: Store) -> object:
        return create_table(
            Below(store, "b/"),
            first_schema(columns_of_arrow(SCHEMA)),
            clock=ManualClock(seed=7),
            probe_store=False,
        )

    for clone_calls in range(len(counted.calls)):
        for create_calls in range(4):
            disk = prepared(FIRST)
            schedule = [0] * clone_calls + [1] * create_calls
            actors = [lambda store: make(store, FIRST), create]
            made, created = run_interleaved(disk, actors, schedule)

            assert isinstance(made, Clone) is isinstance(created, AlreadyExistsError)
            assert isinstance(created, Table) is isinstance(made, AlreadyExistsError)
            assert len(pins_in(disk, "a/")) == isinstance(made, Clone)
