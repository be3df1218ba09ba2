"""Writers of one table on a store with the latency of an object store, in simulated time."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from benchmarks.measure import Result, percentile
from benchmarks.virtual_time import VirtualClock, VirtualTime
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.storage.base import Store
from fuse_stream.storage.wrappers import StoreWrapper
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.memory import MemoryStore

P50_S, P99_S = 0.030, 0.200
"""Of a request."""

_SPREAD = math.log(P99_S / P50_S) / statistics.NormalDist().inv_cdf(0.99)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """What the writers saw."""

    commit_s: list[float]
    """The simulated seconds of each commit."""
    per_second: float
    """Commits of all writers together in a simulated second."""
    requests: int

    @property
    def p50_s(self) -> float:
        return statistics.median(self.commit_s)

    @property
    def p99_s(self) -> float:
        return percentile(self.commit_s, 99)


class SlowStore(StoreWrapper):
    """A store whose requests take as long as those of an object store, one after the other.

    It does its work in the middle of that time.
    """

    overlaps = False  # a thread of a pool would not be in virtual time

    def __init__(self, store: Store, time: VirtualTime, seed: int) -> None:
        super().__init__(store)
        self.requests = 0
        self._time = time
        self._random = random.Random(seed)

    def call(self, verb: str, key: str, act: Callable[[Store, str], T]) -> T:  # noqa: ARG002 - as in the base
        self.requests += 1
        half_s = self._random.lognormvariate(math.log(P50_S), _SPREAD) / 2
        self._time.sleep(half_s)
        try:
            return act(self.store, key)
        finally:
            self._time.sleep(half_s)


def contend(*, writers: int, commits: int, seed: int = 0) -> Contention:
    """Let writers append to one table, each without a pause; every commit must land, once."""
    time = VirtualTime()
    server = MemoryStore(clock=VirtualClock(time, seed))
    rows = pa.table({"k": [0]})
    create_table(
        server, first_schema(columns_of_arrow(rows.schema)), clock=server.clock, probe_store=False
    )
    stores = [SlowStore(server, time, seed * 1000 + number) for number in range(writers)]
    took_s: list[float] = []

    def write(number: int) -> None:
        clock = VirtualClock(time, seed * 1000 + number + 500)
        table = open_table(stores[number], clock=clock, probe_store=False)
        for at in range(commits):
            began_s = time.now_s
            _append(table, writers * at + number)
            took_s.append(time.now_s - began_s)

    time.run([lambda number=number: write(number) for number in range(writers)])  # type: ignore[misc]  # a default binds the number
    reader = open_table(server, clock=server.clock, probe_store=False)
    if sorted(reader.to_arrow()["k"].to_pylist()) != list(range(writers * commits)):
        raise AssertionError("a commit was lost or doubled")
    return Contention(
        commit_s=took_s,
        per_second=writers * commits / time.now_s,
        requests=sum(store.requests for store in stores),
    )


def _append(table: Table, key: int) -> None:
    table.append(pa.table({"k": [key]}))


def contention(*, commits: int) -> list[Result]:
    """Measure commits by 1, 4 and 16 writers; the p99 of 4 may be five times their p50."""
    results = []
    for writers in (1, 4, 16):
        seen = contend(writers=writers, commits=max(commits // writers, 20))
        results.append(
            Result(
                work=f"commit, {writers} writer{'s' * (writers > 1)} of one table, "
                "simulated latency: p99",
                against="p50",
                ours=[seen.p99_s * 1000],
                theirs=[seen.p50_s * 1000],
                limit=5.0 if writers == 4 else None,
                unit="ms",
                note=f"{seen.per_second:.1f} commits a second, "
                f"{seen.requests / len(seen.commit_s):.1f} requests each",
            )
        )
    return results
