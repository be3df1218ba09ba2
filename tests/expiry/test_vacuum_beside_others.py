"""Vacuum beside those who sleep between any two of their calls, and over crashes at every call."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from fuse_stream.errors import (
    CommitStateUnknownError,
    ConflictError,
    CorruptObjectError,
    FuseError,
    NotFoundError,
    SnapshotExpiredError,
    StorageError,
)
from fuse_stream.format.layout import (
    floor_key,
    offsets_key,
    probe_key,
    service_key,
)
from fuse_stream.recovery.rewind import rewind
from fuse_stream.recovery.target import Goal
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table
from fuse_stream.testing.faults import Crash, Fault, FaultyStore
from fuse_stream.testing.memory import MemoryObject
from tests.kit.interleave import run_interleaved
from tests.protocol.worlds import AGE_S, GRACE_S, World, read_all, small_chunks
from tests.recovery.histories import keys, rows

Act = Callable[[Table], object]
Outcome = object | BaseException


@pytest.fixture(autouse=True)
def _small_chunks() -> Iterator[None]:
    with small_chunks():
        yield


@pytest.fixture
def world() -> World:
    return World()


def each_place(
    world: World, act: Act, others: Callable[[Store], object], *, branch: str = "main"
) -> Iterator[Outcome]:
    """Let `act` sleep at each of its calls while `others` run; yield what it came to."""
    before = dict(world.store.objects)
    clocks = [world.clock, world.store.clock]
    times = [clock.now_us() for clock in clocks]

    def later(store: Store) -> object:
        next(store.list("_refs/"), None)  # all that comes after this call is one turn
        return others(store)

    counted = FaultyStore(world.store)
    act(world.opened(branch, store=counted))
    for calls in range(len(counted.calls) + 1):
        world.store.objects = dict(before)
        for clock, time_us in zip(clocks, times, strict=True):
            clock.wall_us = time_us  # type: ignore[attr-defined]
        done = run_interleaved(
            world.store,
            [lambda store: act(world.opened(branch, store=store)), later],
            [0] * calls + [1],
        )
        if isinstance(done[1], BaseException):
            raise done[1]
        yield done[0]
        assert world.opened().fsck().is_sound
        read_all(world)


def overwritten(world: World) -> None:
    for _ in range(6):
        world.overwrite()


def expired_and_vacuumed(world: World, *, appends: bool = False) -> Callable[[Store], object]:
    def others(_: Store) -> None:
        for _round in range(4):
            world.append() if appends else world.overwrite()
            world.expire()
            world.pass_time(AGE_S + 1)
            world.opened().vacuum()

    return others


def test_a_writer_that_slept_loses_no_row_and_doubles_none(world: World) -> None:
    overwritten(world)

    def act(table: Table) -> object:
        return table.append(rows(1000), app_id="a", batch_id=0)

    for outcome in each_place(world, act, expired_and_vacuumed(world, appends=True)):
        assert not isinstance(outcome, BaseException)
        assert keys(world.opened().to_arrow()).count(1000) == 1


def test_a_writer_that_slept_is_told_where_no_ledger_entry_says_that_it_landed(
    world: World,
) -> None:
    overwritten(world)
    seen = set()

    for outcome in each_place(
        world, lambda table: table.append(rows(1000)), expired_and_vacuumed(world, appends=True)
    ):
        times = keys(world.opened().to_arrow()).count(1000)
        if isinstance(outcome, BaseException):
            assert isinstance(outcome, CommitStateUnknownError)
            assert times == 0
        else:
            assert times == 1
        seen.add(type(outcome))
    assert len(seen) == 2


def test_rows_that_flow_by_once_are_written_or_refused(world: World) -> None:
    overwritten(world)

    def act(table: Table) -> object:
        return table.append(
            pa.RecordBatchReader.from_batches(rows(1).schema, rows(1000).to_batches())
        )

    outcomes = list(each_place(world, act, expired_and_vacuumed(world, appends=True)))

    assert {type(item) for item in outcomes if isinstance(item, BaseException)} == {
        CommitStateUnknownError,
        ConflictError,
    }


def test_a_tag_in_the_making_is_whole_or_taken_back(world: World) -> None:
    overwritten(world)
    seen = set()

    for outcome in each_place(
        world, lambda table: table.create_tag("good", 5), expired_and_vacuumed(world)
    ):
        seen.add(type(outcome))
        if isinstance(outcome, BaseException):
            assert isinstance(outcome, SnapshotExpiredError)
            assert world.table.tags() == ()
        else:
            assert keys(world.opened().to_arrow(version="good")) == [5]
    assert len(seen) == 2


def test_a_branch_in_the_making_is_whole_or_taken_back(world: World) -> None:
    overwritten(world)
    seen = set()

    for outcome in each_place(
        world, lambda table: table.create_branch("fix", 5), expired_and_vacuumed(world)
    ):
        seen.add(type(outcome))
        if isinstance(outcome, BaseException):
            assert isinstance(outcome, SnapshotExpiredError)
            assert len(world.table.branches()) == 1
        else:
            assert keys(world.opened("fix").to_arrow()) == [5]
    assert len(seen) == 2


def test_a_branch_of_which_a_part_expires_in_the_making_claims_what_stands(world: World) -> None:
    overwritten(world)

    def others(_: Store) -> None:
        world.expire(keep_last=4)
        world.pass_time(AGE_S + 1)
        world.opened().vacuum()
        world.pass_time(AGE_S + 1)
        world.opened().vacuum()

    for outcome in each_place(world, lambda table: table.create_branch("fix", 6), others):
        assert not isinstance(outcome, BaseException)


def go_back(table: Table, **goal: object) -> object:
    """Rewind; commits after a tag may have expired, so that nobody sees who wrote in them."""
    return rewind(table.committer, Goal(**goal), retire=["*"], replan=True)  # type: ignore[arg-type]


def test_a_rewind_that_slept_lands_on_what_stands_or_is_refused(world: World) -> None:
    overwritten(world)
    seen = set()

    for outcome in each_place(
        world, lambda table: go_back(table, version=4), expired_and_vacuumed(world)
    ):
        seen.add(type(outcome))
        if isinstance(outcome, BaseException):
            # It reads for longer than it was promised, before it commits.
            assert isinstance(
                outcome, SnapshotExpiredError | CorruptObjectError | CommitStateUnknownError
            )
    assert len(seen) == 4


def test_a_rewind_to_a_tag_that_is_deleted_lands_or_is_refused(world: World) -> None:
    overwritten(world)
    world.table.create_tag("good", 3)
    world.expire()

    def others(_: Store) -> None:
        world.opened().delete_tag("good")
        for _round in range(3):
            world.pass_time(AGE_S + 1)
            world.opened().vacuum()

    for outcome in each_place(world, lambda table: go_back(table, version="good"), others):
        if isinstance(outcome, BaseException):
            assert isinstance(outcome, NotFoundError | SnapshotExpiredError | CorruptObjectError)
        else:
            assert keys(world.opened().to_arrow()) == [3]


def test_a_publish_of_a_branch_that_is_deleted_lands_or_is_refused(world: World) -> None:
    world.append()
    world.table.create_branch("fix")
    world.append("fix")
    world.pass_time(3 * AGE_S)
    world.opened().vacuum()
    world.pass_time(AGE_S + 1)
    world.opened().vacuum()

    def others(_: Store) -> None:
        world.opened().delete_branch("fix")
        for _round in range(3):
            world.pass_time(AGE_S + 1)
            world.opened().vacuum()

    for outcome in each_place(
        world, lambda table: table.publish("fix", on_conflict="replan"), others
    ):
        if isinstance(outcome, BaseException):
            assert isinstance(outcome, FuseError)
        else:
            assert keys(world.opened().to_arrow()) == [1, 2]


def test_a_tag_of_a_branch_that_is_deleted_is_whole_or_taken_back(world: World) -> None:
    world.append()
    world.table.create_branch("fix")
    world.append("fix")
    world.pass_time(3 * AGE_S)

    def others(_: Store) -> None:
        world.opened().delete_branch("fix")
        for _round in range(3):
            world.pass_time(AGE_S + 1)
            world.opened().vacuum()

    for outcome in each_place(world, lambda table: table.create_tag("good"), others, branch="fix"):
        if not isinstance(outcome, BaseException):
            assert keys(world.opened().to_arrow(version="good")) == [1, 2]


def garbage(world: World) -> None:
    """Leave some of every kind, old enough to go with the next vacuum."""
    overwritten(world)
    world.table.create_branch("fix", 3)
    world.append("fix")
    world.table.create_tag("good", 4)
    world.table.delete_branch("fix")
    world.lease("etl", 5)
    old = MemoryObject(data=b"x", modified_us=world.store.clock.now_us())
    world.store.objects[probe_key("a" * 32)] = old
    world.store.objects[offsets_key("b" * 32)] = old
    world.store.objects["_hint/" + "c" * 32] = old
    world.store.objects[service_key("c" * 32)] = old
    world.store.objects[service_key("main")] = old
    world.expire()
    world.pass_time(AGE_S + 1)
    world.opened().vacuum()
    world.pass_time(100 * 86_400)


@pytest.mark.parametrize("verb", ["vacuum", "expire"])
@pytest.mark.parametrize("fault", list(Fault))
def test_whatever_call_fails_another_run_finishes(world: World, verb: str, fault: Fault) -> None:
    garbage(world)
    world.overwrite()
    world.pass_time(GRACE_S + 1)

    def run(store: Store) -> object:
        table = world.opened(store=store)
        return table.vacuum() if verb == "vacuum" else table.expire(keep_last=1)

    before, kept = dict(world.store.objects), read_all(world)
    counted = FaultyStore(world.store)
    run(counted)
    assert len(counted.calls) > 10
    for at_call in range(1, len(counted.calls) + 1):
        world.store.objects = dict(before)
        with contextlib.suppress(Crash, FuseError):
            run(FaultyStore(world.store, at_call=at_call, fault=fault))
        assert world.opened().fsck().is_sound
        if verb == "vacuum":
            assert kept.items() <= read_all(world).items()
        run(world.store)
        world.opened().expire(keep_last=1)
        world.vacuum_twice_aged()
        report = world.opened().fsck()

        assert report.is_sound
        assert {kind for kind, left in report.unreachable.items() if left.object_count} <= {
            "snapshots"
        }
        assert world.count("_leases/") == 0
        assert world.count("_hint/") <= 1
        assert world.count("_service/") == 1
        assert world.count("_probe/") == 0


def test_two_vacuums_at_once_delete_what_neither_needs(world: World) -> None:
    garbage(world)
    world.overwrite()

    def act(table: Table) -> object:
        return table.vacuum()

    for outcome in each_place(world, act, lambda _: world.vacuum_twice_aged()):
        assert not isinstance(outcome, BaseException), outcome
        assert keys(world.opened().to_arrow(version="good")) == [4]
    for outcome in each_place(world, act, expired_and_vacuumed(world)):
        assert not isinstance(outcome, BaseException), outcome
        assert keys(world.opened().to_arrow(version="good")) == [4]


def test_a_writer_that_slept_through_one_raise_keeps_its_objects(world: World) -> None:
    world.append()
    world.vacuum_twice_aged()

    def others(_: Store) -> None:
        world.pass_time(AGE_S + 1)
        world.opened().vacuum()
        world.opened().vacuum()  # raises nothing

    for outcome in each_place(world, lambda table: table.append(rows(1000)), others):
        assert not isinstance(outcome, BaseException)
        assert keys(world.opened().to_arrow()) == [1, 1000]


@pytest.mark.parametrize("name", ["tag", "branch"])
def test_what_is_built_of_a_name_that_goes_behind_the_fence_stands_or_is_refused(
    world: World, name: str
) -> None:
    overwritten(world)
    if name == "tag":
        world.table.create_tag("good", 3)
        world.expire()
    else:
        world.table.create_branch("fix")
        world.append("fix")
    for _ in range(3):
        world.pass_time(AGE_S + 1)
        world.opened().vacuum()
    before = dict(world.store.objects)

    def build(store: Store) -> object:
        table = world.opened(store=store)
        if name == "tag":
            return go_back(table, version="good")
        return table.publish("fix", on_conflict="replan")

    def drop(store: Store) -> None:
        table = world.opened(store=store)
        if name == "tag":
            table.delete_tag("good")
        else:
            table.delete_branch("fix")

    fenced = calls_to_put(world, lambda store: world.opened(store=store).vacuum(), "_ss/main/")
    with pytest.raises(Crash):
        world.opened(
            store=FaultyStore(world.store, at_call=fenced, fault=Fault.CRASH_AFTER)
        ).vacuum()
    built = calls_to_put(world, build, "_ss/main/")
    seen = set()
    for left in range(1, 6):
        world.store.objects = dict(before)
        done = run_interleaved(
            world.store,
            [lambda store: world.opened(store=store).vacuum(), build, drop],
            [0] * fenced + [1] * (built - left) + [2] * 100 + [0] * 2000,
        )
        seen.add(type(done[1]))

        assert not isinstance(done[0], BaseException), done[0]
        assert world.opened().fsck().is_sound
        read_all(world)
    assert seen == {SnapshotExpiredError if name == "tag" else NotFoundError}


def calls_to_put(world: World, act: Callable[[Store], object], prefix: str) -> int:
    """Return how many calls `act` makes up to its first put below `prefix`; all are undone."""
    before = dict(world.store.objects)
    counted = FaultyStore(world.store)
    act(counted)
    world.store.objects = before
    puts = (
        number
        for number, (verb, key) in enumerate(counted.calls, 1)
        if verb == "put_if_absent" and key.startswith(prefix)
    )
    return next(puts)


def test_the_chunk_in_which_a_branch_began_is_marked_by_two_vacuums_at_once(world: World) -> None:
    overwritten(world)
    world.table.create_branch("fix", 5)
    for _ in range(6):
        world.overwrite("fix")
    world.expire(branch="fix")
    marker = floor_key(world.opened("fix").committer.branch.branch_id, 6)

    def act(table: Table) -> object:
        return table.vacuum()

    for outcome in each_place(world, act, lambda _: world.opened().vacuum()):
        assert not isinstance(outcome, BaseException), outcome
        assert marker in world.store.objects
        assert keys(world.opened("fix").to_arrow()) == [12]


@pytest.mark.parametrize("kind", ["tag", "branch"])
def test_a_name_whose_maker_is_told_an_error_does_not_stand(world: World, kind: str) -> None:
    """It would stop every later vacuum if what it names expires just then."""
    overwritten(world)
    prefix = f"_refs/{'tags' if kind == 'tag' else 'branches'}/"

    def make(store: Store) -> None:
        table = world.opened(store=store)
        table.create_tag("good", 5) if kind == "tag" else table.create_branch("good", 5)

    before = dict(world.store.objects)
    put = calls_to_put(world, make, prefix)
    failures = 0
    for at_call in itertools.count(put + 1):
        world.store.objects = dict(before)
        store = FaultyStore(world.store, at_call=at_call)
        try:
            make(store)
        except FuseError:
            failures += 1
            assert world.count(prefix) == 0
        if len(store.calls) < at_call:
            break
    assert failures > 1


def test_a_name_that_cannot_be_taken_back_is_named(world: World) -> None:
    overwritten(world)
    put = calls_to_put(
        world, lambda store: world.opened(store=store).create_tag("good", 5), "_refs/tags/"
    )

    store = FaultyStore(world.store, at_call=put + 1, keep_failing=True)
    with pytest.raises(StorageError, match="a name that was not finished may stand"):
        world.opened(store=store).create_tag("good", 5)
    world.opened().delete_tag("good")
    world.opened().create_tag("good", 5)


def test_a_name_that_a_dead_maker_left_stops_vacuum_until_it_is_deleted(world: World) -> None:
    """No row is lost: nobody was told that it stands."""
    overwritten(world)
    put = calls_to_put(
        world, lambda store: world.opened(store=store).create_tag("good", 2), "_refs/tags/"
    )

    def make(store: Store) -> None:
        dying = FaultyStore(store, at_call=put, fault=Fault.CRASH_AFTER)
        with contextlib.suppress(Crash):
            world.opened(store=dying).create_tag("good", 2)

    def clean(store: Store) -> None:
        next(store.list("_refs/"), None)  # all that comes after this call is one turn
        overwritten(world)
        world.expire()
        world.vacuum_twice_aged()

    run_interleaved(world.store, [make, clean], [0] * (put - 1) + [1])
    assert not world.opened().fsck().is_sound
    with pytest.raises(CorruptObjectError, match="if the call that made that never returned"):
        world.opened().vacuum()
    world.opened().delete_tag("good")
    assert world.opened().fsck().is_sound
    world.opened().vacuum()


def test_an_expiry_of_a_branch_that_goes_meanwhile_is_told_or_does_nothing(world: World) -> None:
    overwritten(world)
    world.table.create_branch("fix")
    for branch in ("fix", "main"):
        for _ in range(6):
            world.overwrite(branch)
        world.expire(branch=branch)
    world.vacuum_twice_aged()  # nothing of before the fork stands

    def others(_: Store) -> None:
        world.opened().delete_branch("fix")
        world.vacuum_twice_aged()

    def act(table: Table) -> object:
        return table.expire(keep_last=1)

    for outcome in each_place(world, act, others, branch="fix"):
        assert not isinstance(outcome, BaseException) or isinstance(outcome, FuseError), outcome
