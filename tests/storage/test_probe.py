"""A probe tells a store that keeps its promise from one that does not."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.errors import AlreadyExistsError, StorageError, UnsupportedStorageError
from fuse_stream.format.layout import probe_key
from fuse_stream.storage.base import ObjectInfo, Store
from fuse_stream.storage.local import LocalStore
from fuse_stream.storage.probe import CONTENDERS, probe
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import Fault, FaultyStore
from fuse_stream.testing.memory import MemoryObject, MemoryStore

KEY = probe_key("0" * 32)


def run_probe(store: Store) -> int:
    return probe(store, key=KEY, now_us=SYSTEM_CLOCK.now_us)


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

    offset_us = probe(store, key=KEY, now_us=ours.now_us)

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
