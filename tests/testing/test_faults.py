"""The testing kit injects faults, controls time and interleaves actors exactly as requested."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from fuse_stream.errors import AlreadyExistsError, NotFoundError, StorageError
from fuse_stream.storage.base import Store
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import AT_ANY_CALL, Crash, Fault, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.kit.interleave import iter_schedules, run_interleaved

CALLS: dict[str, Callable[[Store], object]] = {
    "get": lambda store: store.get("_b/old"),
    "open_input": lambda store: store.open_input("_b/old"),
    "put": lambda store: store.put("_b/new", b"1"),
    "put_if_absent": lambda store: store.put_if_absent("_b/new", b"1"),
    "replace": lambda store: store.replace("_b/new", b"1"),
    "list": lambda store: list(store.list("_b/")),
    "delete": lambda store: store.delete("_b/old"),
}
CRASHES = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)
LANDS = (Fault.CRASH_AFTER, Fault.LOST_REPLY)


@pytest.fixture
def memory() -> MemoryStore:
    store = MemoryStore()
    store.put("_b/old", b"0")
    return store


@pytest.mark.parametrize("verb", CALLS)
def test_every_call_is_counted_and_passed_on(memory: MemoryStore, verb: str) -> None:
    store = FaultyStore(memory)

    CALLS[verb](store)

    ((logged, key),) = store.calls
    assert logged == verb
    assert key == {"list": "_b/"}.get(verb, key)


@pytest.mark.parametrize("fault", AT_ANY_CALL)
@pytest.mark.parametrize("verb", CALLS)
def test_the_chosen_call_gets_its_fault(memory: MemoryStore, verb: str, fault: Fault) -> None:
    store = FaultyStore(memory, at_call=2, fault=fault)
    store.get("_b/old")
    before = dict(memory.objects)

    with pytest.raises(Crash if fault in CRASHES else StorageError):
        CALLS[verb](store)

    writes = verb not in {"get", "open_input", "list"}
    assert (memory.objects != before) == (writes and fault in LANDS)


@pytest.mark.parametrize("fault", [Fault.FAILURE, Fault.LOST_REPLY])
def test_later_calls_succeed_unless_the_failure_lasts(memory: MemoryStore, fault: Fault) -> None:
    passing = FaultyStore(memory, at_call=1, fault=fault)
    lasting = FaultyStore(memory, at_call=1, fault=fault, keep_failing=True)
    for store in (passing, lasting):
        with pytest.raises(StorageError):
            store.get("_b/old")

    assert passing.get("_b/old") == b"0"
    with pytest.raises(StorageError):
        lasting.get("_b/old")


@pytest.mark.parametrize("fault", CRASHES, ids=lambda fault: str(fault.name))
def test_a_crashed_process_does_not_clean_up(memory: MemoryStore, fault: Fault) -> None:
    store = FaultyStore(memory, at_call=1, fault=fault)
    with pytest.raises(Crash):
        store.put("_b/new", b"1")
    before = dict(memory.objects)

    with pytest.raises(Crash):
        store.delete("_b/old")

    assert memory.objects == before


@pytest.mark.parametrize("fault", LANDS, ids=lambda fault: str(fault.name))
def test_a_lost_reply_hides_that_the_name_was_taken(memory: MemoryStore, fault: Fault) -> None:
    store = FaultyStore(memory, at_call=1, fault=fault)

    with pytest.raises(Crash if fault in CRASHES else StorageError):
        store.put_if_absent("_b/old", b"1")


@pytest.mark.parametrize("verb", ["put", "put_if_absent", "replace"])
def test_a_torn_write_leaves_a_part_under_a_staged_name(memory: MemoryStore, verb: str) -> None:
    store = FaultyStore(memory, at_call=1, fault=Fault.TORN_WRITE)

    with pytest.raises(Crash):
        getattr(store, verb)("_b/torn", b"0123")

    assert [(info.key, info.size) for info in memory.leftovers()] == [("_b/.tmp-torn", 2)]
    assert [info.key for info in memory.list("_b/")] == ["_b/old"]
    assert memory.names("_b/") == ["old"]


def test_a_late_write_lands_behind_later_calls(memory: MemoryStore) -> None:
    store = FaultyStore(memory, at_call=1, fault=Fault.LATE_LANDING, land_after=2)
    with pytest.raises(StorageError, match="reply was lost"):
        store.put_if_absent("_b/new", b"1")

    for _ in range(2):
        with pytest.raises(NotFoundError):
            store.get("_b/new")
    assert store.get("_b/new") == b"1"


def test_a_late_creation_does_not_replace_what_came_before_it(memory: MemoryStore) -> None:
    store = FaultyStore(memory, at_call=1, fault=Fault.LATE_LANDING)
    with pytest.raises(StorageError):
        store.put_if_absent("_b/new", b"1")
    store.put_if_absent("_b/new", b"2")

    store.land()
    assert memory.get("_b/new") == b"2"


def test_a_stale_listing_lacks_the_object_written_last() -> None:
    memory = MemoryStore(clock=(clock := ManualClock()))
    for name in ("new", "older"):
        memory.put(f"_b/{name}", b"1")
    clock.advance(1)
    memory.replace("_b/new", b"2")
    store = FaultyStore(memory, at_call=1, fault=Fault.STALE_LIST)

    assert [info.key for info in store.list("_b/")] == ["_b/older"]
    assert [info.key for info in store.list("_b/")] == ["_b/new", "_b/older"]
    assert not list(FaultyStore(MemoryStore(), at_call=1, fault=Fault.STALE_LIST).list("_b/"))


@pytest.mark.parametrize(
    ("verb", "faults"),
    [
        ("get", {Fault.CRASH_BEFORE, Fault.FAILURE}),
        ("list", {Fault.CRASH_BEFORE, Fault.FAILURE, Fault.STALE_LIST}),
        ("delete", {*AT_ANY_CALL, Fault.LATE_LANDING}),
        ("put_if_absent", set(Fault) - {Fault.STALE_LIST}),
    ],
)
def test_each_method_meets_the_faults_that_it_can_show(verb: str, faults: set[Fault]) -> None:
    assert {fault for fault in Fault if fault.applies_to(verb)} == faults


def test_a_crash_is_not_caught_by_except_exception() -> None:
    assert not issubclass(Crash, Exception)


# Interleaving


def increment_twice(store: Store) -> int:
    value = 0
    for _ in range(2):
        value = int(store.get("_hint/n")) + 1
        store.replace("_hint/n", f"{value}".encode())
    return value


@pytest.mark.parametrize(
    ("schedule", "final", "returned"),
    [
        ([0, 0, 0, 0, 1, 1, 1, 1], b"4", [2, 4]),
        ([1, 1, 1, 1], b"4", [4, 2]),
        ([], b"4", [2, 4]),
        ([0, 1, 0, 1, 0, 1, 0, 1], b"2", [2, 2]),
        ([0, 1, 1, 1, 1, 0], b"2", [2, 2]),
        ([0, 0, 0, 1], b"3", [2, 3]),
    ],
)
def test_a_schedule_determines_the_order_of_events(
    schedule: list[int], final: bytes, returned: list[int]
) -> None:
    for _ in range(5):
        memory = MemoryStore()
        memory.put("_hint/n", b"0")

        results = run_interleaved(memory, [increment_twice, increment_twice], schedule)

        assert memory.get("_hint/n") == final
        assert results == returned


def test_the_outcome_of_an_actor_that_raises_is_its_exception() -> None:
    def crash(store: Store) -> int:
        store.put_if_absent("_b/a", b"1")
        raise Crash

    results = run_interleaved(
        MemoryStore(), [crash, lambda store: len(store.get("_b/none"))], [1, 0]
    )

    assert [type(result) for result in results] == [Crash, NotFoundError]


def test_only_the_scheduled_actor_runs() -> None:
    running = threading.Semaphore(1)
    overlaps = []

    def act(store: Store) -> None:
        for number in range(20):
            store.replace("_hint/n", f"{number}".encode())
            if not running.acquire(blocking=False):
                overlaps.append(number)
                continue
            sum(range(2000))
            running.release()

    run_interleaved(MemoryStore(), [act, act, act], [0, 1, 2] * 20)

    assert overlaps == []


def test_the_schedules_cover_every_pair_of_calls() -> None:
    winners = set()
    for schedule in iter_schedules(2):

        def create(name: bytes) -> Callable[[Store], bool]:
            def act(store: Store) -> bool:
                list(store.list("_ss/"))
                try:
                    store.put_if_absent("_ss/main/1", name)
                except AlreadyExistsError:
                    return False
                return True

            return act

        won_a, won_b = run_interleaved(MemoryStore(), [create(b"a"), create(b"b")], schedule)
        assert won_a != won_b
        winners.add((won_a, won_b))

    assert winners == {(True, False), (False, True)}
    assert len(list(iter_schedules(2))) == 9


# Clock


def test_a_manual_clock_advances_only_on_request_and_by_sleep() -> None:
    clock = ManualClock(wall_us=5)
    clock.sleep(1.5)
    clock.advance(2)
    after = (clock.now_us(), clock.monotonic_s())
    clock.wall_us = 0

    assert after == (3_500_005, 3.5)
    assert (clock.now_us(), clock.monotonic_s()) == (0, 3.5)
    assert clock.slept == [1.5]


def test_ids_repeat_for_a_seed_and_differ_between_seeds() -> None:
    first, again, other = (ManualClock(seed=seed) for seed in (1, 1, 2))
    ids = [first.new_id() for _ in range(3)]

    assert ids == [again.new_id() for _ in range(3)]
    assert other.new_id() not in ids
    assert all(len(identity) == 32 for identity in ids)
    assert len(set(ids)) == 3
