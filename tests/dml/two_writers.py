"""Two writers on one small table, interleaved at every pair of their storage calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.records import Snapshot
from fuse_stream.storage.base import Store
from fuse_stream.storage.wrappers import StoreWrapper
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import Rows, assert_sound, rows_of
from tests.kit.commuting import Equivalents
from tests.kit.interleave import Call, run_interleaved

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
Act = Callable[[Table], object]


def rows(*keys: int, v: str = "a") -> pa.Table:
    return pa.table({"k": keys, "v": [v] * len(keys)}, schema=SCHEMA)


def made(*, cluster_by: Sequence[str] = ()) -> MemoryStore:
    """Return a table of three small blocks, with a hidden row in the first and the second.

    Version 4 has keys 1 to 6 but 2; version 5 also lacks 3.
    """
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    table = create_table(
        store,
        first_schema(columns_of_arrow(SCHEMA)),
        cluster_by=cluster_by,
        clock=clock,
        probe_store=False,
    )
    table.append(rows(6, 2, 1))
    table.append(rows(4, 3))
    table.append(rows(5))
    table.delete("k = 2")
    table.delete("k = 3")
    return store


def opened(store: Store, seed: int) -> Table:
    table = open_table(store, clock=ManualClock(seed=seed), probe_store=False)
    table.blocks()  # what a handle that is open for long has in memory
    return table


def copy_of(store: MemoryStore) -> MemoryStore:
    copy = MemoryStore(clock=store.clock)
    copy.objects = dict(store.objects)
    return copy


def calls_of(base: MemoryStore, act: Act) -> list[tuple[str, str]]:
    """Return the storage calls of an act that runs alone."""
    store = FaultyStore(copy_of(base))
    table = opened(store, 1)
    opening = len(store.calls)
    act(table)
    return store.calls[opening:]


def content(store: MemoryStore) -> Rows:
    return rows_of(opened(store, 21).to_arrow())


def serial(base: MemoryStore, *acts: Act) -> Rows:
    """Return the rows after the acts, one after the other."""
    store = copy_of(base)
    for seed, act in enumerate(acts, 31):
        act(opened(store, seed))
    return content(store)


@dataclass(frozen=True)
class End:
    """How an interleaving ended."""

    schedule: list[int]
    table: Table
    results: list[object]

    @property
    def rows(self) -> Rows:
        return rows_of(self.table.to_arrow())

    @property
    def order(self) -> list[int]:
        """The writers that committed, in the order of their (last) versions."""
        versions = {at: _version_of(result) for at, result in enumerate(self.results)}
        done = {at: version for at, version in versions.items() if version is not None}
        return sorted(done, key=lambda at: done[at])


def every_pair(first: int, second: int) -> Iterator[list[int]]:
    """Yield all schedules: the first makes some calls, the second some, then each runs out.

    `first` and `second` are the numbers of their calls, alone. Beside the first, the second may
    need more of them.
    """
    for at_first in range(first + 1):
        for at_second in range(first + second + 1):
            yield [0] * at_first + [1] * at_second


def _version_of(result: object) -> int | None:
    """Return the version of the commit that a verb reports, if it reports one."""
    found = result if isinstance(result, Snapshot) else getattr(result, "snapshot", None)
    return found.version if isinstance(found, Snapshot) else None


def interleavings(base: MemoryStore, first: Act, second: Act) -> Iterator[End]:
    """Yield how the table ends for each schedule of the two writers.

    Of several schedules that end alike, the first is run; see `tests/kit/commuting.py`.
    """
    start = opened(base, 21).head().version
    counts = len(calls_of(base, first)), len(calls_of(base, second))
    equivalents = Equivalents(counts[0], sum(counts))
    for schedule in every_pair(*counts):
        pair = schedule.count(0), schedule.count(1)
        if equivalents.find(pair) is not None:
            continue
        run = run_schedule(base, first, second, schedule)
        equivalents.note(pair, run.trace)
        table = opened(run.store, 21)
        assert_sound(run.store, table, since=table.head().floor)
        check_feed(table, since=start)
        for handle in run.handles:
            assert rows_of(handle.to_arrow()) == rows_of(table.to_arrow())
        yield End(schedule, table, run.results)


@dataclass(frozen=True)
class Run:
    """What one schedule of two writers did."""

    store: MemoryStore
    handles: list[Table]
    results: list[object]
    trace: list[Call]


def run_schedule(base: MemoryStore, first: Act, second: Act, schedule: list[int]) -> Run:
    """Run two writers on a copy of a table; their handles make no turns any more."""
    store = copy_of(base)
    relays = [StoreWrapper(store), StoreWrapper(store)]  # so that opening takes no turns
    tables = [opened(relay, seed) for seed, relay in enumerate(relays, 11)]
    actors = [
        _actor(relay, table, act)
        for relay, table, act in zip(relays, tables, (first, second), strict=True)
    ]
    trace: list[Call] = []
    results: list[object] = list(run_interleaved(store, actors, schedule, trace))
    for relay in relays:
        relay.store = store
    return Run(store, tables, results, trace)


def _actor(relay: StoreWrapper, table: Table, act: Act) -> Callable[[Store], object]:
    def run(turns: Store) -> object:
        relay.store = turns
        return act(table)

    return run


def check_feed(table: Table, *, since: int) -> None:
    """Assert that the changes sum to the rows at every retained version from `since` on."""
    first, names = max(table.head().floor, since), table.schema.names
    feed = table.changes(first + 1).read_all().to_pylist() if table.head().version > first else []
    total = Counter(rows_of(table.to_arrow(version=first)))
    for version in range(first + 1, table.head().version + 1):
        for row in feed:
            if row["_commit_version"] == version:
                adds = row["_change_type"] in {"insert", "update_postimage"}
                total[tuple(row[name] for name in names)] += 1 if adds else -1
        assert +total == rows_of(table.to_arrow(version=version))
        assert not -total
