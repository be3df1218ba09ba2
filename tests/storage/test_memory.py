"""The in-memory store keeps the contract: tests of everything else rest on it."""

from __future__ import annotations

from typing import cast

import pytest

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.errors import InvalidInputError
from fuse_stream.storage.base import Store
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryObject, MemoryStore
from tests.storage.contract import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()

    def raw_get(self, store: Store, key: str) -> bytes:
        return cast(MemoryStore, store).objects[key].data

    def raw_put(self, store: Store, key: str, data: bytes) -> None:
        item = MemoryObject(data=data, modified_us=SYSTEM_CLOCK.now_us())
        cast(MemoryStore, store).objects[key] = item

    def raw_keys(self, store: Store) -> set[str]:
        return set(cast(MemoryStore, store).objects)


def test_the_store_has_a_clock_of_its_own() -> None:
    clock = ManualClock(wall_us=1_000)
    store = MemoryStore(clock=clock)
    store.put("_b/a", b"1")
    clock.advance(2)
    store.put("_b/b", b"1")

    times = [info.modified_us for info in store.list("_b/")]

    assert times == [1_000, 2_001_000]


def test_an_empty_creation_is_refused_as_some_services_would_let_two_win() -> None:
    with pytest.raises(InvalidInputError):
        MemoryStore().put_if_absent("_b/a", b"")
