"""Tables whose store has its own clock, and all their retained versions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fuse_stream.check import fsck as fsck_module
from fuse_stream.expiry import vacuum as vacuum_module
from fuse_stream.format import layout
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.refs import Lease
from fuse_stream.objects.leases import store_lease
from fuse_stream.objects.origins import StoreWithOrigins
from fuse_stream.objects.slots import Metadata
from fuse_stream.refs.clone import clone
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.histories import keys, rows

GRACE_S, AGE_S, LEASE_S = 10, 60, 300
CHUNK = 4
PROPERTIES = {"fuse.grace": f"{GRACE_S}s", "fuse.vacuum.age": f"{AGE_S}s"}


@contextmanager
def small_chunks() -> Iterator[None]:
    """Let chunks have few versions."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (layout, vacuum_module, fsck_module):
            patch.setattr(module, "CHUNK_VERSIONS", CHUNK)
        yield


class _Shared(ManualClock):
    """The time of a world, in a process that draws its own ids."""

    def __init__(self, world: World) -> None:
        super().__init__(seed=next(world.seeds))
        self._world = world
        self.ahead_us = 0

    def now_us(self) -> int:
        return self._world.clock.now_us() + self.ahead_us

    def monotonic_s(self) -> float:
        return self._world.clock.monotonic_s()

    def sleep(self, seconds: float) -> None:
        self._world.pass_time(seconds)


class World:
    """A table in a store whose clock is a year ahead of the writers' (a machine may be behind)."""

    def __init__(self) -> None:
        self.store = MemoryStore(clock=ManualClock(wall_us=1_731_000_000_000_000, seed=1))
        self.seeds = itertools.count(2)
        self.clock = ManualClock(seed=next(self.seeds))
        self.table = create_table(
            self.store,
            first_schema(columns_of_arrow(rows(1).schema)),
            properties=PROPERTIES,
            clock=self.clock,
            probe_store=False,
        )
        self.keys = itertools.count(1)
        self.clones: dict[str, MemoryStore] = {}
        """The stores of the clones that have a pin, by table id."""

    def pass_time(self, seconds: float) -> None:
        assert isinstance(self.store.clock, ManualClock)
        self.store.clock.advance(seconds)
        self.clock.advance(seconds)

    def opened(self, branch: str = "main", store: Store | None = None) -> Table:
        clock = _Shared(self)
        return open_table(store or self.store, branch=branch, clock=clock, probe_store=False)

    def append(self, branch: str = "main") -> int:
        self.pass_time(1)
        return self.opened(branch).append(rows(next(self.keys))).version

    def overwrite(self, branch: str = "main") -> int:
        self.pass_time(1)
        return self.opened(branch).overwrite(rows(next(self.keys))).version

    def expire(self, keep_last: int = 1, branch: str = "main") -> None:
        self.pass_time(GRACE_S + 1)
        self.opened(branch).expire(keep_last=keep_last)

    def vacuum_twice_aged(self) -> None:
        """Vacuum until all garbage of the start is old enough to be deleted."""
        for _ in range(3):
            self.pass_time(AGE_S + 1)
            self.opened().vacuum()

    def lease(self, consumer: str, version: int, branch: str = "main") -> None:
        table = self.opened(branch)
        ref = table.committer.branch
        lease = Lease(
            consumer=consumer,
            owner_id=table.metadata.clock.new_id(),
            branch_id=ref.branch_id,
            forks=ref.forks,
            version=version,
            lease_us=LEASE_S * 1_000_000,
        )
        store_lease(table.metadata, lease)

    def clone(self, version: int, branch: str = "main") -> None:
        place = MemoryStore(clock=self.store.clock)
        metadata = Metadata(place, _Shared(self))
        committer = self.opened(branch).committer
        clone(committer, metadata, version=version, origin_of=self.store_of, probe_place=False)
        clone_id = metadata.load_table_file().table_id
        self.clones[clone_id] = place

    def opened_clone(self, clone_id: str) -> Table:
        return self.opened(store=StoreWithOrigins(self.clones[clone_id], [self.store]))

    def store_of(self, _table_id: str) -> Store:
        return self.store

    def count(self, prefix: str) -> int:
        return sum(key.startswith(prefix) for key in self.store.objects)


def read_all(world: World) -> dict[tuple[str, int], list[int]]:
    """Return the keys of every retained version, by branch and version, without caches."""
    found = {}
    for ref in world.table.branches():
        table = world.opened(ref.name)
        for snapshot in table.log():
            found[ref.name, snapshot.version] = keys(table.to_arrow(version=snapshot.version))
    for tag in world.table.tags():
        found[f"tag {tag.name}", tag.target.version] = keys(
            world.opened().to_arrow(version=tag.name)
        )
    for clone_id in world.clones:
        table = world.opened_clone(clone_id)
        found[f"clone {clone_id}", table.head().version] = keys(table.to_arrow())
    return found
