"""A rewind that dies, fails or loses a reply at any of its calls, and is then run again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO

import pytest

from fuse_stream.checkpoint.files import load_checkpoint
from fuse_stream.errors import FuseError, InvalidInputError, StreamIdentityError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.records import Operation
from fuse_stream.recovery.rewind import Rewind, rewind
from fuse_stream.recovery.target import Goal
from fuse_stream.storage.base import ObjectInfo, Store
from fuse_stream.table.handle import create_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import Crash, Fault, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.conftest import SCHEMA
from tests.recovery.histories import keys, opened
from tests.recovery.streams import Query

OLD = "11111111-2222-3333-4444-555555555555"


class Below:
    """A folder of a store, so that one count goes over the table and its checkpoints."""

    def __init__(self, store: Store, folder: str) -> None:
        self._store, self._folder = store, folder
        self.url = f"{store.url}/{folder}"
        self.overlaps = False

    def get(self, key: str) -> bytes:
        return self._store.get(self._folder + key)

    def open_input(self, key: str) -> BinaryIO:
        return self._store.open_input(self._folder + key)

    def put(self, key: str, data: bytes | memoryview) -> None:
        self._store.put(self._folder + key, data)

    def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
        self._store.put_if_absent(self._folder + key, data)

    def replace(self, key: str, data: bytes | memoryview) -> None:
        self._store.replace(self._folder + key, data)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        for info in self._store.list(self._folder + prefix):
            key = info.key.removeprefix(self._folder)
            yield ObjectInfo(key=key, size=info.size, modified_us=info.modified_us)

    def delete(self, key: str) -> None:
        self._store.delete(self._folder + key)

    def delete_all(self, keys: Sequence[str]) -> None:
        self._store.delete_all([self._folder + key for key in keys])

    def location(self, key: str) -> str:
        return self._store.location(self._folder + key)


def prepared() -> MemoryStore:
    """Return a machine with a table, five batches in it, and the query's checkpoint."""
    disk = MemoryStore()
    table = create_table(
        Below(disk, "t/"),
        first_schema(columns_of_arrow(SCHEMA)),
        clock=ManualClock(),
        probe_store=False,
    )
    Query(table, Below(disk, "old/")).begin(OLD).run(5)
    return disk


def set_back(disk: Store) -> Rewind:
    """Run the command, as a new process does."""
    table = opened(Below(disk, "t/"))
    pairs = ((Below(disk, "old/"), Below(disk, "new/")),)
    return rewind(table.committer, Goal(after_batch=1), checkpoints=pairs)


def calls_of_a_rewind() -> int:
    counted = FaultyStore(prepared())
    set_back(counted)
    return len(counted.calls)


def is_inert(fork: Store) -> bool:
    """Whether Spark would refuse to start a query there."""
    try:
        load_checkpoint(fork)
    except (InvalidInputError, FuseError):
        return True
    return False


@pytest.mark.parametrize("fault", list(Fault))
def test_it_is_made_or_not_and_the_same_call_ends_it(fault: Fault) -> None:
    total = calls_of_a_rewind()
    landed = 0
    for at_call in range(1, total + 1):
        disk = prepared()
        with suppress(Crash, FuseError):
            set_back(FaultyStore(disk, at_call=at_call, fault=fault))
        old, fork = Below(disk, "old/"), Below(disk, "new/")
        table = opened(Below(disk, "t/"))
        is_made = table.head().operation is Operation.REWIND
        landed += is_made

        if is_made:
            with pytest.raises(StreamIdentityError, match="retired"):
                Query(table, old).commit(5)
        else:
            assert is_inert(fork)
        set_back(disk)
        Query(table, fork, plus=100).run(2)

        assert keys(table.to_arrow()) == [0, 1, 102, 103]
        assert sum(one.operation is Operation.REWIND for one in table.log()) == 1
    assert 0 < landed < total


def test_the_old_query_goes_on_while_nothing_is_made() -> None:
    for at_call in range(1, calls_of_a_rewind() + 1):
        disk = prepared()
        with pytest.raises(Crash):
            set_back(FaultyStore(disk, at_call=at_call, fault=Fault.CRASH_BEFORE))
        table = opened(Below(disk, "t/"))
        if table.head().operation is Operation.REWIND:
            break

        Query(table, Below(disk, "old/")).run(1)
        assert keys(table.to_arrow()) == [0, 1, 2, 3, 4, 5]
    else:
        pytest.fail("no crash came after the rewind was made")
