"""Tables with a history, and commits that this release does not make yet."""

from __future__ import annotations

import dataclasses
import itertools

import pyarrow as pa

from fuse_stream.clock import Clock
from fuse_stream.commit.stage import TableRows, stage_rows
from fuse_stream.format.codec import encode_snapshot
from fuse_stream.format.layout import slot_key
from fuse_stream.format.records import Operation, Parent, Snapshot
from fuse_stream.storage.base import Store
from fuse_stream.table import Table, open_table
from fuse_stream.testing.clock import ManualClock

SEEDS = itertools.count(1000)


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64())})


def keys(table: pa.Table) -> list[int]:
    return sorted(table["k"].to_pylist())


def opened(store: Store, branch: str = "main", clock: Clock | None = None) -> Table:
    clock = clock or ManualClock(seed=next(SEEDS))
    return open_table(store, branch=branch, clock=clock, probe_store=False)


def raise_floor(table: Table, floor: int) -> Snapshot:
    """Commit what an expiry does, by hand."""
    head = table.committer.head()
    old = head.snapshot
    new = dataclasses.replace(
        old,
        version=old.version + 1,
        snapshot_id=table.metadata.clock.new_id(),
        timestamp_us=old.timestamp_us + 1,
        prev_snapshot_id=old.snapshot_id,
        parent=Parent(branch_id=old.branch_id, version=old.version, sha256=head.sha256),
        operation=Operation.EXPIRE,
        data_change=False,
        added=(),
        target=None,
        floor=floor,
    )
    table.metadata.store.put_if_absent(slot_key(new.branch_id, new.version), encode_snapshot(new))
    return new


def compact(table: Table) -> Snapshot:
    """Commit what a compaction of all blocks does, by hand: one block, the same rows."""
    head = table.committer.head()
    old = head.snapshot
    data = TableRows(table.to_arrow())
    staged = stage_rows(table.metadata, head, None, data)
    assert staged.ref is not None
    new = dataclasses.replace(
        old,
        version=old.version + 1,
        snapshot_id=table.metadata.clock.new_id(),
        timestamp_us=old.timestamp_us + 1,
        prev_snapshot_id=old.snapshot_id,
        parent=Parent(branch_id=old.branch_id, version=old.version, sha256=head.sha256),
        operation=Operation.COMPACT,
        data_change=False,
        segments=(staged.ref,),
        summary=staged.summary,
        added=(staged.ref.id,),
        target=None,
    )
    table.metadata.store.put_if_absent(slot_key(new.branch_id, new.version), encode_snapshot(new))
    return new
