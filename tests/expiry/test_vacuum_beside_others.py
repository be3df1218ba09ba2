"""Vacuum while others sleep between any two store calls, and with a crash at every call."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from fuse_stream.check.findings import FsckReport
from fuse_stream.cli.history import Names, load_names
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
from fuse_stream.recovery.target import Goal
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table
from fuse_stream.testing.faults import AT_ANY_CALL, Crash, Fault, FaultyStore
from fuse_stream.testing.memory import MemoryObject
from tests.kit.interleave import run_interleaved
from tests.kit.strides import every_nth, strided
from tests.protocol.worlds import AGE_S, GRACE_S, World, read_all, small_chunks
from tests.recovery.histories import keys, rewind, rows

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
    """Let `act` sleep at each store call while `others` run; yield its result or exception."""
    before = dict(world.store.objects)
    clocks = [world.clock, world.store.clock]
    times = [clock.now_us() for clock in clocks]

    def later(store: Store) -> object:
        next(store.list("_refs/"), None)  # everything after this call is one turn of the schedule
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


def test_a_writer_with_a_batch_id_that_slept_loses_and_doubles_no_row(world: World) -> None:
    overwritten(world)

    def act(table: Table) -> object:
        return table.append(rows(1000), app_id="a", batch_id=0)

    for outcome in each_place(world, act, expired_and_vacuumed(world, appends=True)):
        assert not isinstance(outcome, BaseException)
        assert keys(world.opened().to_arrow()).count(1000) == 1


def test_a_writer_without_a_batch_id_that_slept_commits_or_gets_an_unknown_state_error(
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


def test_rows_of_a_one_time_reader_are_written_or_refused(world: World) -> None:
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


def test_a_tag_created_during_a_vacuum_is_whole_or_undone(world: World) -> None:
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


def test_a_branch_created_during_a_vacuum_is_whole_or_undone(world: World) -> None:
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


def test_a_branch_is_created_although_some_of_its_versions_expire_meanwhile(world: World) -> None:
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
    """Rewind; the expired commits after a tag hide who wrote in them, so every query is retired."""
    return rewind(table.committer, Goal(**goal), retire=["*"], replan=True)  # type: ignore[arg-type]


def test_a_rewind_that_slept_commits_readable_rows_or_is_refused(world: World) -> None:
    overwritten(world)
    seen = set()

    for outcome in each_place(
        world, lambda table: go_back(table, version=4), expired_and_vacuumed(world)
    ):
        seen.add(type(outcome))
        if isinstance(outcome, BaseException):
            # Before it commits, it reads for longer than the grace.
            assert isinstance(
                outcome, SnapshotExpiredError | CorruptObjectError | CommitStateUnknownError
            )
    assert len(seen) == 4


def test_a_rewind_to_a_tag_deleted_during_it_commits_or_is_refused(world: World) -> None:
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


def test_a_publish_of_a_branch_deleted_during_it_commits_or_is_refused(world: World) -> None:
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


def test_a_tag_of_a_branch_deleted_during_its_creation_is_whole_or_undone(world: World) -> None:
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
    """Leave garbage of every kind, old enough for the next vacuum."""
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
@pytest.mark.parametrize("fault", AT_ANY_CALL)
@every_nth(3)
def test_whatever_call_fails_the_next_run_finishes_the_work(
    world: World, verb: str, fault: Fault, stride: int
) -> None:
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
    at_calls = range(1, len(counted.calls) + 1)
    for at_call in strided(at_calls, stride, AT_ANY_CALL.index(fault)):
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


def test_a_listing_that_lacks_a_ref_or_a_lease_once_lets_nothing_be_deleted(world: World) -> None:
    world.append()
    world.opened().create_tag("good")
    world.overwrite()
    world.opened().create_branch("side")
    world.overwrite()
    world.clone(world.opened().head().version)
    world.overwrite()
    world.lease("reader", world.opened().head().version)
    world.overwrite()
    world.expire()
    for _ in range(2):  # all objects are old enough to go
        world.pass_time(AGE_S + 1)
        world.opened().vacuum()
    world.pass_time(AGE_S - GRACE_S)
    world.lease("reader", world.opened().head().version - 3)
    before, kept = dict(world.store.objects), read_all(world)
    counted = FaultyStore(world.store)
    world.opened(store=counted).vacuum()
    lists = [at for at, (verb, _) in enumerate(counted.calls, 1) if verb == "list"]

    assert len(kept) > 3
    for at_call in lists:
        world.store.objects = dict(before)
        with contextlib.suppress(FuseError):
            faulty = FaultyStore(world.store, at_call=at_call, fault=Fault.STALE_LIST)
            world.opened(store=faulty).vacuum()
        assert world.opened().fsck().is_sound, counted.calls[at_call - 1]
        assert kept.items() <= read_all(world).items()


@pytest.mark.long
def test_two_concurrent_vacuums_delete_no_retained_object(world: World) -> None:
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


def test_a_writer_that_slept_through_one_epoch_raise_keeps_its_objects(world: World) -> None:
    world.append()
    world.vacuum_twice_aged()

    def others(_: Store) -> None:
        world.pass_time(AGE_S + 1)
        world.opened().vacuum()
        world.opened().vacuum()  # does not raise the epoch

    for outcome in each_place(world, lambda table: table.append(rows(1000)), others):
        assert not isinstance(outcome, BaseException)
        assert keys(world.opened().to_arrow()) == [1, 1000]


@pytest.mark.parametrize("name", ["tag", "branch"])
def test_what_is_made_from_a_name_deleted_behind_the_fence_is_readable_or_refused(
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


@pytest.mark.long
def test_two_concurrent_vacuums_mark_the_chunk_in_which_a_branch_began(world: World) -> None:
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
def test_a_name_whose_creation_raised_an_error_does_not_exist(world: World, kind: str) -> None:
    """A remaining name would stop every later vacuum once its version has expired."""
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


def test_the_error_for_a_name_that_cannot_be_undone_names_it(world: World) -> None:
    overwritten(world)
    put = calls_to_put(
        world, lambda store: world.opened(store=store).create_tag("good", 5), "_refs/tags/"
    )

    store = FaultyStore(world.store, at_call=put + 1, keep_failing=True)
    with pytest.raises(StorageError, match="a name that was not finished may stand"):
        world.opened(store=store).create_tag("good", 5)
    world.opened().delete_tag("good")
    world.opened().create_tag("good", 5)


def test_a_name_left_by_a_crashed_process_stops_vacuum_until_it_is_deleted(world: World) -> None:
    """No row is lost: no caller was told that the name exists."""
    overwritten(world)
    put = calls_to_put(
        world, lambda store: world.opened(store=store).create_tag("good", 2), "_refs/tags/"
    )

    def make(store: Store) -> None:
        dying = FaultyStore(store, at_call=put, fault=Fault.CRASH_AFTER)
        with contextlib.suppress(Crash):
            world.opened(store=dying).create_tag("good", 2)

    def clean(store: Store) -> None:
        next(store.list("_refs/"), None)  # everything after this call is one turn of the schedule
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


def test_expiring_a_branch_deleted_during_the_run_raises_a_typed_error_or_does_nothing(
    world: World,
) -> None:
    overwritten(world)
    world.table.create_branch("fix")
    for branch in ("fix", "main"):
        for _ in range(6):
            world.overwrite(branch)
        world.expire(branch=branch)
    world.vacuum_twice_aged()  # nothing from before the fork is left

    def others(_: Store) -> None:
        world.opened().delete_branch("fix")
        world.vacuum_twice_aged()

    def act(table: Table) -> object:
        return table.expire(keep_last=1)

    for outcome in each_place(world, act, others, branch="fix"):
        assert not isinstance(outcome, BaseException) or isinstance(outcome, FuseError), outcome


def branch_deleted_and_vacuumed(world: World) -> Callable[[Store], object]:
    """Make the branch `fix` with old commits; return what deletes it, its tag and its slots."""
    world.append()
    main = world.opened()
    main.create_branch("fix")
    fix = world.opened("fix")
    for number in range(2):
        fix.append(rows(500 + number))
    fix.create_tag("fixed")
    for _ in range(3):
        world.pass_time(AGE_S + 1)
        main.vacuum()

    def others(_: Store) -> None:
        world.opened().delete_branch("fix")
        world.opened().delete_tag("fixed")
        assert world.opened().vacuum().deleted["snapshots"].object_count

    return others


def read_branch(table: Table) -> object:
    return keys(table.to_arrow())


def read_feed(table: Table) -> object:
    return keys(table.changes(0).read_all())


@pytest.mark.parametrize("act", [read_branch, read_feed])
def test_a_reader_of_a_branch_deleted_meanwhile_gets_all_its_rows_or_no_branch(
    world: World, act: Act
) -> None:
    others = branch_deleted_and_vacuumed(world)
    whole = act(world.opened("fix"))

    for outcome in each_place(world, act, others, branch="fix"):
        if isinstance(outcome, BaseException):
            is_gone = isinstance(outcome, NotFoundError) and "no such branch" in str(outcome)
            assert is_gone or isinstance(outcome, CorruptObjectError), outcome  # once it was read
        else:
            assert outcome == whole


def test_an_open_handle_of_a_branch_deleted_meanwhile_finds_no_branch(world: World) -> None:
    others = branch_deleted_and_vacuumed(world)
    fix = world.opened("fix")
    fix.head()
    others(world.store)

    with pytest.raises(NotFoundError, match="no such branch"):
        fix.to_arrow()


def test_a_branch_of_the_same_name_is_not_the_deleted_one(world: World) -> None:
    others = branch_deleted_and_vacuumed(world)
    fix = world.opened("fix")
    others(world.store)
    world.opened().create_branch("fix")

    with pytest.raises(NotFoundError, match="no such branch"):
        fix.to_arrow()


def test_a_publish_of_a_branch_deleted_and_vacuumed_meanwhile_finds_no_branch(
    world: World,
) -> None:
    others = branch_deleted_and_vacuumed(world)
    head = world.opened().head().version

    def act(table: Table) -> object:
        return table.publish("fix", expected_head=head)

    for outcome in each_place(world, act, others):
        if isinstance(outcome, NotFoundError):
            assert "no such branch" in str(outcome)
        elif isinstance(outcome, BaseException):
            assert isinstance(outcome, ConflictError)


@pytest.mark.long
def test_a_vacuum_passes_over_a_branch_deleted_and_vacuumed_meanwhile(world: World) -> None:
    others = branch_deleted_and_vacuumed(world)

    for outcome in each_place(world, Table.vacuum, others):
        assert not isinstance(outcome, BaseException), outcome


def test_fsck_finds_no_damage_in_a_branch_deleted_meanwhile(world: World) -> None:
    others = branch_deleted_and_vacuumed(world)

    for outcome in each_place(world, Table.fsck, others):
        assert isinstance(outcome, FsckReport)
        assert outcome.is_sound, outcome.findings


def test_lists_with_heads_leave_out_a_branch_deleted_meanwhile(world: World) -> None:
    others = branch_deleted_and_vacuumed(world)

    for outcome in each_place(world, load_names, others):
        assert isinstance(outcome, Names)
        assert {branch.ref.name for branch in outcome.branches} in ({"main"}, {"main", "fix"})
