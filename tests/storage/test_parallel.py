"""Calls in threads: many in the order of their items, and puts beside the work of the caller."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest

from fuse_stream.errors import InvalidInputError, StorageError
from fuse_stream.storage import parallel
from fuse_stream.storage.parallel import AHEAD, PUTS, background_puts, each
from fuse_stream.testing.memory import MemoryStore

PATIENCE_S = 10.0


class _SlowStore(MemoryStore):
    """Its puts wait until they are let go on."""

    overlaps = True

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = threading.Event()

    def put(self, key: str, data: bytes | memoryview) -> None:
        if not self.may_go_on.wait(PATIENCE_S):
            raise StorageError("nobody let this put go on", key=key)
        super().put(key, data)


class _FullStore(MemoryStore):
    overlaps = True

    def put(self, key: str, data: bytes | memoryview) -> None:
        raise StorageError("the disk is full", key=key)


def test_a_put_runs_in_the_background_and_is_awaited_at_the_end() -> None:
    store = _SlowStore()

    with background_puts(store) as puts:
        puts.put("_b/a", b"1")
        assert list(store.list("_b/")) == []
        store.may_go_on.set()

    assert store.get("_b/a") == b"1"


def test_a_put_waits_for_the_one_before_it() -> None:
    store = _SlowStore()
    timer = threading.Timer(0.2, store.may_go_on.set)

    with background_puts(store) as puts:
        puts.put("_b/a", b"1")
        timer.start()
        puts.put("_b/b", b"2")
        assert store.get("_b/a") == b"1"

    assert store.get("_b/b") == b"2"


class _RemoteStore(MemoryStore):
    """Each put waits until it is let go on; `most_bytes` ran at one time."""

    overlaps = is_remote = True

    def __init__(self) -> None:
        super().__init__()
        self.running: list[int] = []
        self.most = self.most_bytes = 0
        self._mutex = threading.Lock()

    def put(self, key: str, data: bytes | memoryview) -> None:
        with self._mutex:
            self.running.append(len(data))
            self.most = max(self.most, len(self.running))
            self.most_bytes = max(self.most_bytes, sum(self.running))
        time.sleep(0.05)
        super().put(key, data)
        with self._mutex:
            self.running.remove(len(data))


def test_a_remote_store_gets_eight_puts_at_once() -> None:
    store = _RemoteStore()
    with background_puts(store) as puts:
        for number in range(20):
            puts.put(f"_b/{number}", b"1")

    assert store.most == PUTS == 8
    assert len(store.objects) == 20


@pytest.mark.parametrize(("size", "most"), [(30, 3), (60, 1), (250, 1)])
def test_puts_that_run_at_once_are_bounded_by_their_bytes(
    monkeypatch: pytest.MonkeyPatch, size: int, most: int
) -> None:
    monkeypatch.setattr(parallel, "PUT_BYTES", 100)
    store = _RemoteStore()
    with background_puts(store) as puts:
        for number in range(8):
            puts.put(f"_b/{number}", b"1" * size)

    assert store.most == most
    assert len(store.objects) == 8


def test_a_failed_put_is_raised_at_the_end() -> None:
    with pytest.raises(StorageError, match="full"), background_puts(_FullStore()) as puts:
        puts.put("_b/a", b"1")


def put_two(store: MemoryStore, reached: list[str]) -> None:
    with background_puts(store) as puts:
        puts.put("_b/a", b"1")
        puts.put("_b/b", b"2")
        reached.append("the end")


def test_a_failed_put_is_raised_by_the_next_put() -> None:
    reached: list[str] = []

    with pytest.raises(StorageError, match="_b/a"):
        put_two(_FullStore(), reached)

    assert reached == []


def put_and_fail(store: MemoryStore) -> None:
    with background_puts(store) as puts:
        puts.put("_b/a", b"1")
        raise InvalidInputError("these rows do not fit")


def test_the_error_of_the_block_itself_is_raised() -> None:
    with pytest.raises(InvalidInputError):
        put_and_fail(_FullStore())


def test_a_store_whose_calls_do_not_overlap_is_called_from_the_same_thread() -> None:
    callers = []

    class Store(MemoryStore):
        def put(self, key: str, data: bytes | memoryview) -> None:
            callers.append(threading.current_thread())
            super().put(key, data)

    with background_puts(Store()) as puts:
        puts.put("_b/a", b"1")

    assert callers == [threading.current_thread()]


# ---- each


class _Overlapping(MemoryStore):
    overlaps = True


class _Calls:
    """Notes which calls began, by whom, and how many ran at one time."""

    def __init__(self, *, failing: Sequence[int] = ()) -> None:
        self.begun: list[int] = []
        self.threads: set[threading.Thread] = set()
        self.running = self.most_running = 0
        self._failing = failing
        self._lock = threading.Lock()

    def run(self, item: int) -> int:
        with self._lock:
            self.begun.append(item)
            self.threads.add(threading.current_thread())
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        time.sleep(0.001 * (item % 3))
        with self._lock:
            self.running -= 1
        if item in self._failing:
            raise StorageError("this call fails", item=item)
        return -item


def test_results_come_in_the_order_of_their_items() -> None:
    found = list(each(_Calls().run, range(100), _Overlapping(), at_once=8))

    assert found == [-item for item in range(100)]


def test_some_calls_run_at_a_time_and_no_more() -> None:
    calls = _Calls()
    list(each(calls.run, range(100), _Overlapping(), at_once=3))

    assert 1 < calls.most_running <= 3


def test_calls_are_not_far_ahead_of_the_results_that_were_taken() -> None:
    calls = _Calls()
    found = each(calls.run, range(1000), _Overlapping(), at_once=2)
    next(found)
    time.sleep(0.1)

    assert len(calls.begun) <= 2 * AHEAD
    assert [next(found) for _ in range(20)] == [-item for item in range(1, 21)]


def test_the_first_error_by_order_is_raised_and_what_has_not_begun_is_cancelled() -> None:
    calls = _Calls(failing=[5, 7])
    with pytest.raises(StorageError, match="item=5"):
        list(each(calls.run, range(1000), _Overlapping(), at_once=2))

    assert calls.running == 0
    assert len(calls.begun) <= 5 + 2 * AHEAD + 1


def test_a_closed_iterator_cancels_the_calls_that_have_not_begun() -> None:
    calls = _Calls()
    found = each(calls.run, range(1000), _Overlapping(), at_once=2)
    next(found)
    found.close()

    assert calls.running == 0
    assert len(calls.begun) <= 2 * AHEAD


@pytest.mark.parametrize(
    "stores", [(MemoryStore(),), (_Overlapping(), MemoryStore())], ids=["one", "one of two"]
)
def test_where_calls_may_not_overlap_each_runs_when_its_result_is_wanted(
    stores: tuple[MemoryStore, ...],
) -> None:
    calls = _Calls()
    found = each(calls.run, range(10), *stores, at_once=8)

    assert next(found) == 0
    assert calls.begun == [0]
    assert list(found) == [-item for item in range(1, 10)]
    assert calls.threads == {threading.current_thread()}
