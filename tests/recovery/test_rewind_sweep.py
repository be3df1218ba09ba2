"""A rewind dies, fails or loses a reply at any of its calls, and is run again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import pytest

from fuse_stream.checkpoint.files import load_checkpoint
from fuse_stream.errors import FuseError, InvalidInputError, StreamIdentityError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.records import Operation
from fuse_stream.recovery.result import Rewind
from fuse_stream.recovery.target import Goal
from fuse_stream.storage.base import ObjectInfo, Store
from fuse_stream.storage.wrappers import StoreWrapper
from fuse_stream.table.handle import create_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import AT_ANY_CALL, Crash, Fault, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.conftest import SCHEMA
from tests.recovery.histories import keys, opened, rewind
from tests.recovery.streams import Query

T = TypeVar("T")

OLD = "11111111-2222-3333-4444-555555555555"


class Below(StoreWrapper):
    """A folder of a store, so that one count goes over the table and its checkpoints."""

    overlaps = False

    def __init__(self, store: Store, folder: str) -> None:
        super().__init__(store)
        self._folder = folder

    @property
    def url(self) -> str:
        return f"{self.store.url}/{self._folder}"

    def call(self, verb: str, key: str, act: Callable[[Store, str], T]) -> T:
        return super().call(verb, self._folder + key, act)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        for info in super().list(prefix):
            yield replace(info, key=info.key.removeprefix(self._folder))

    def location(self, key: str) -> str:
        return self.store.location(self._folder + key)


def prepared() -> MemoryStore:
    """Return a store with a table, five batches in it, and the query's checkpoint."""
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
    """True if Spark would refuse to start a query on the fork."""
    try:
        load_checkpoint(fork)
    except (InvalidInputError, FuseError):
        return True
    return False


@pytest.mark.parametrize("fault", AT_ANY_CALL)
def test_after_any_fault_a_rewind_is_done_or_not_and_the_same_call_finishes_it(
    fault: Fault,
) -> None:
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


def test_the_old_query_continues_if_the_rewind_was_not_committed() -> None:
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
