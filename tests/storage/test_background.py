"""A put goes on beside its caller, and is done, or told to have failed, at the end."""

from __future__ import annotations

import threading

import pytest

from fuse_stream.errors import InvalidInputError, StorageError
from fuse_stream.storage.parallel import background_puts
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


def test_a_put_goes_on_beside_its_caller_who_waits_at_the_end() -> None:
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


def test_a_failure_is_told_at_the_end() -> None:
    with pytest.raises(StorageError, match="full"), background_puts(_FullStore()) as puts:
        puts.put("_b/a", b"1")


def put_two(store: MemoryStore, reached: list[str]) -> None:
    with background_puts(store) as puts:
        puts.put("_b/a", b"1")
        puts.put("_b/b", b"2")
        reached.append("the end")


def test_a_failure_is_told_by_the_next_put() -> None:
    reached: list[str] = []

    with pytest.raises(StorageError, match="_b/a"):
        put_two(_FullStore(), reached)

    assert reached == []


def put_and_fail(store: MemoryStore) -> None:
    with background_puts(store) as puts:
        puts.put("_b/a", b"1")
        raise InvalidInputError("these rows do not fit")


def test_the_error_of_the_work_itself_comes_first() -> None:
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
