"""Make tables with a history, also with operations that this release does not make yet."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pyarrow as pa
from hypothesis import strategies as st

from fuse_stream.clock import Clock
from fuse_stream.commit.committer import Committer
from fuse_stream.commit.plan import parent_of
from fuse_stream.format.codec import encode_snapshot
from fuse_stream.format.layout import slot_key
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.recovery.result import Rewind
from fuse_stream.recovery.rewind import rewind_tables
from fuse_stream.recovery.target import Goal
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table, open_table
from fuse_stream.testing.clock import ManualClock

SEEDS = itertools.count(1000)

VALUES = st.tuples(
    st.none() | st.integers(0, 3), st.none() | st.sampled_from([0.5, 1.5, -0.0, math.nan])
)
"""A row of a number and a float, also null, -0.0 and NaN."""


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64())})


def keys(table: pa.Table) -> list[int]:
    return sorted(table["k"].to_pylist())


def opened(store: Store, branch: str = "main", clock: Clock | None = None) -> Table:
    clock = clock or ManualClock(seed=next(SEEDS))
    return open_table(store, branch=branch, clock=clock, probe_store=False)


def rewind(committer: Committer, goal: Goal, **options: object) -> Rewind:
    """Rewind one table; the options of `rewind_tables`."""
    return rewind_tables((committer,), goal, **options).alone()  # type: ignore[arg-type]


def put_next(table: Table, operation: Operation, **changes: object) -> Snapshot:
    """Store the next snapshot: the head with these changes, as a commit of any operation."""
    head = table.committer.head()
    old = head.snapshot
    plain: dict[str, object] = {
        "data_change": False,
        "added": (),
        "deletion_files_added": (),
        "target": None,
    }
    new = dataclasses.replace(
        old,
        branch_id=table.committer.branch_id,
        version=old.version + 1,
        snapshot_id=table.metadata.clock.new_id(),
        timestamp_us=old.timestamp_us + 1,
        prev_snapshot_id=old.snapshot_id,
        parent=parent_of(head),
        operation=operation,
        **{**plain, **changes},  # type: ignore[arg-type]
    )
    table.metadata.store.put_if_absent(slot_key(new.branch_id, new.version), encode_snapshot(new))
    return new


def raise_floor(table: Table, floor: int) -> Snapshot:
    """Commit a higher floor, as an expiry does."""
    return put_next(table, Operation.EXPIRE, floor=floor)
