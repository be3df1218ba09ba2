"""A probe tells a store that keeps its promise from one that does not."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.errors import AlreadyExistsError, StorageError, UnsupportedStorageError
from fuse_stream.format.layout import PROBE_PREFIX, probe_key
from fuse_stream.storage.base import ObjectInfo, Store
from fuse_stream.storage.local import LocalStore
from fuse_stream.storage.probe import CONTENDERS, probe
from fuse_stream.storage.wrappers import StoreWrapper
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import Fault, FaultyStore
from fuse_stream.testing.memory import MemoryObject, MemoryStore

T = TypeVar("T")
KEY = probe_key("0" * 32)


def run_probe(store: Store) -> int:
    return probe(store, new_key=lambda: KEY, now_us=SYSTEM_CLOCK.now_us)


def test_a_good_store_passes_and_is_left_clean(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)

    offset_us = run_probe(store)

    assert abs(offset_us) < 10_000_000
    assert list(store.list("")) == []


@pytest.mark.parametrize("ahead_s", [-3600, 0, 3600])
def test_the_offset_of_the_stores_clock_is_learned(ahead_s: int) -> None:
    ours, theirs = ManualClock(), ManualClock()
    theirs.advance(ahead_s)
    theirs.advance(0.25)

    store = MemoryStore(clock=theirs)
    for name in ("0", "f" * 32):
        store.objects[f"_probe/{name}"] = MemoryObject(data=b"1", modified_us=1)

    offset_us = probe(store, new_key=lambda: KEY, now_us=ours.now_us)

    assert offset_us == ahead_s * 1_000_000 + 250_000


class _IgnoresCondition(MemoryStore):
    def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
        self.replace(key, data)


class _OverwritesLater(MemoryStore):
    """Has one winner in a race; later it refuses a taken name, but has overwritten it."""

    def __init__(self) -> None:
        super().__init__()
        self._creations = itertools.count(1)

    def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
        if next(self._creations) > CONTENDERS:
            self.replace(key, data)
            raise AlreadyExistsError("the name is taken")
        super().put_if_absent(key, data)


class _LooksFirst(MemoryStore):
    """Refuses a name that has stood for a while, but not one that is just being written."""

    def __init__(self) -> None:
        super().__init__()
        self._everyone = threading.Barrier(CONTENDERS)

    def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
        if key in self.objects:
            raise AlreadyExistsError("the name is taken")
        self._everyone.wait(timeout=10)
        self.replace(key, data)


class _SaysYesToAll(MemoryStore):
    """Keeps the first object, but tells every writer that it was theirs."""

    def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
        try:
            super().put_if_absent(key, data)
        except AlreadyExistsError:
            return


@pytest.mark.parametrize("kind", [_IgnoresCondition, _OverwritesLater, _LooksFirst, _SaysYesToAll])
def test_a_store_where_a_second_creation_wins_is_refused(kind: type[MemoryStore]) -> None:
    store = kind()

    with pytest.raises(UnsupportedStorageError, match="second writer"):
        run_probe(store)

    assert store.objects == {}


class _ListsLate(MemoryStore):
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return iter(())


class _SweptBefore(StoreWrapper):
    """Before the calls of these numbers the caller sleeps for `asleep_s`, and a vacuum deletes."""

    def __init__(self, store: MemoryStore, clock: ManualClock, calls: range, asleep_s: int) -> None:
        super().__init__(store)
        self._objects, self._clock = store.objects, clock
        self._calls, self._asleep_s = calls, asleep_s
        self.keys: list[str] = []
        """The key of each call."""
        self._lock = threading.Lock()

    def call(self, verb: str, key: str, act: Callable[[Store, str], T]) -> T:
        with self._lock:
            self.keys.append(key)
            if len(self.keys) in self._calls:
                self._clock.advance(self._asleep_s)
                self._objects.clear()
            return act(self.store, key)


@pytest.mark.parametrize("call", range(1, CONTENDERS + 6))
def test_a_probe_whose_object_a_vacuum_deletes_meanwhile_is_made_again(call: int) -> None:
    clock = ManualClock()
    store = _SweptBefore(MemoryStore(clock=clock), clock, range(call, call + 1), asleep_s=5)

    offset_us = probe(store, new_key=lambda: probe_key(clock.new_id()), now_us=clock.now_us)

    assert abs(offset_us) < 5_000_000
    assert len({key for key in store.keys if key != PROBE_PREFIX}) <= 2


@pytest.mark.parametrize("asleep_s", [0, 5])
def test_a_store_that_always_loses_the_object_is_refused(asleep_s: int) -> None:
    clock = ManualClock()
    store = _SweptBefore(MemoryStore(clock=clock), clock, range(10_000), asleep_s)

    with pytest.raises(UnsupportedStorageError):
        probe(store, new_key=lambda: probe_key(clock.new_id()), now_us=clock.now_us)

    assert len(store.keys) < 100


def test_a_store_that_lists_late_is_refused() -> None:
    with pytest.raises(UnsupportedStorageError, match="listing"):
        run_probe(_ListsLate())


class _LosesRepliesOfCreations(MemoryStore):
    def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
        super().put_if_absent(key, data)
        raise AlreadyExistsError("a retry met its own object")


def test_a_winner_that_hears_of_its_own_object_is_no_broken_promise() -> None:
    run_probe(_LosesRepliesOfCreations())


def test_a_store_that_fails_is_not_called_unsafe() -> None:
    store = FaultyStore(MemoryStore(), at_call=1, fault=Fault.FAILURE, keep_failing=True)

    with pytest.raises(StorageError, match="the call failed on cue"):
        run_probe(store)
