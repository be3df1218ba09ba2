"""Whatever storage call of a compaction fails, the rows stay, and a second run ends it.

A history with compactions in it runs over a store in memory whose calls are numbered; see
`tests/commit/test_crash_sweep.py`.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from fuse_stream.errors import FuseError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import Crash, Fault, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound, rows_of
from tests.commit.test_crash_sweep import READS, WAYS, WAYS_OF_READS, copy_of

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
BEFORE = 18
"""Batches before the sweep: a roll-up was folded, and another hint is not far."""


def rows(number: int) -> pa.Table:
    return pa.table({"k": [number, -number], "v": [f"row {number}", None]}, schema=SCHEMA)


def opened(store: Store, seed: int) -> Table:
    return open_table(store, clock=ManualClock(seed=seed), probe_store=False)


@pytest.fixture(scope="module")
def base() -> MemoryStore:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    table = create_table(
        store,
        first_schema(columns_of_arrow(SCHEMA)),
        properties={"fuse.block.rows": "12"},
        clock=clock,
        probe_store=False,
    )
    for number in range(BEFORE):
        table.append(rows(number), app_id="pipe", batch_id=number)
    return store


def work(store: Store) -> None:
    """Compact, append, compact, in one process."""
    table = opened(store, 5)
    table.compact(9)
    table.append(rows(BEFORE), app_id="pipe", batch_id=BEFORE)
    table.compact()


@pytest.mark.long
def test_whatever_call_fails_the_rows_stay_and_the_next_run_ends_it(base: MemoryStore) -> None:
    counted = FaultyStore(copy_of(base))
    opened(counted, 5)
    start = len(counted.calls)
    counted = FaultyStore(copy_of(base))
    work(counted)
    expected = Counter[object]()
    for number in range(BEFORE + 1):
        expected += rows_of(rows(number))

    assert {verb for verb, _ in counted.calls} >= {"get", "put", "put_if_absent"}
    for at_call in range(start + 1, len(counted.calls) + 1):
        verb = counted.calls[at_call - 1][0]
        for fault, keep_failing in WAYS_OF_READS if verb in READS else WAYS:
            store = copy_of(base)
            faulty = FaultyStore(store, at_call=at_call, fault=fault, keep_failing=keep_failing)
            try:
                work(faulty)
            except (Crash, FuseError):
                assert fault is not Fault.LOST_REPLY or keep_failing or verb == "put"
            table = opened(store, 7)
            table.append(rows(BEFORE), app_id="pipe", batch_id=BEFORE)
            table.compact()
            where = (counted.calls[at_call - 1], fault, keep_failing)

            assert (where, rows_of(table.to_arrow())) == (where, expected)
            assert len(table.blocks()) == 3
            assert table.compact().snapshot is None
            assert_sound(store, table)
            feed = table.changes(1).read_all()
            assert (where, feed.num_rows) == (where, 2 * (BEFORE + 1))
