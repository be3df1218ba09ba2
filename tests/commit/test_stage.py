"""The objects of one commit are put side by side, and all are there before the slot is."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from fuse_stream.commit.ledger import Batch, offsets_of
from fuse_stream.commit.plan import Intent, Staged
from fuse_stream.commit.stage import stage_blocks, stage_rows
from fuse_stream.errors import ConflictError, StorageError, StreamIdentityError
from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.properties import block_target
from fuse_stream.format.records import Operation
from fuse_stream.objects.blocks import store_blocks
from fuse_stream.objects.slots import Stored
from fuse_stream.objects.source_offsets import load_offsets
from fuse_stream.table.handle import Table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore

Create = Callable[..., Table]


class _MeetingStore(MemoryStore):
    """A block's put ends only when that of its segment has begun."""

    overlaps = True

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []
        self._meeting = threading.Barrier(2, timeout=10)

    def put(self, key: str, data: bytes | memoryview) -> None:
        self._meeting.wait()
        super().put(key, data)
        self.events.append("object")

    def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
        super().put_if_absent(key, data)
        self.events.append("slot")


class _NoBlocksStore(MemoryStore):
    overlaps = True

    def put(self, key: str, data: bytes | memoryview) -> None:
        if key.startswith("_b/"):
            raise StorageError("the disk is full", key=key)
        super().put(key, data)


def test_block_and_segment_are_put_at_the_same_time_and_before_the_slot(create: Create) -> None:
    store = _MeetingStore()
    table = create(at=store)
    store.events.clear()

    table.append(pa.table({"k": [1, 2]}))

    assert store.events == ["object", "object", "slot"]
    assert table.to_arrow().num_rows == 2


def test_a_block_that_cannot_be_put_leaves_no_commit(create: Create) -> None:
    table = create(at=_NoBlocksStore())

    with pytest.raises(StorageError, match="full"):
        table.append(pa.table({"k": [1, 2]}))

    assert table.head().version == 0


def test_blocks_that_were_put_for_a_head_two_epochs_ago_are_not_committed(
    create: Create, clock: ManualClock
) -> None:
    """Also where the commit itself begins on a newer head: it cannot know when they were put."""
    table = create(properties={"fuse.vacuum.age": "1s"})
    other = open_table(table.metadata.store, clock=clock, probe_store=False)
    table.append(pa.table({"k": [1]}), app_id="a", batch_id=7)
    batch = Batch(application="a", query_id="q", batch_id=0)
    with pytest.raises(StreamIdentityError):
        table.committer.examine(batch)
    clock.advance(10)
    other.forget("a")
    _, head = table.committer.examine(batch)
    schema, base = head.snapshot.schema, head.snapshot.epoch
    blocks = tuple(
        store_blocks(
            table.metadata.store,
            [pa.table({"k": [2, 3]}, arrow_schema(schema))],
            schema,
            (),
            target=block_target({}),
            clock=clock,
        )
    )
    for _ in range(3):
        clock.advance(10)
        other.vacuum()

    with pytest.raises(ConflictError, match="write the rows again"):
        table.committer.commit(
            Intent(operation=Operation.APPEND, batch=batch),
            lambda on, _: stage_blocks(table.metadata, on.snapshot, schema, blocks, epoch=base),
        )

    assert other.to_arrow()["k"].to_pylist() == [1]


def test_long_source_offsets_that_vacuum_may_have_deleted_are_put_again(
    create: Create, clock: ManualClock
) -> None:
    table = create(properties={"fuse.vacuum.age": "1s"})
    other = open_table(table.metadata.store, clock=clock, probe_store=False)
    offsets = offsets_of(0, "x" * 5000)
    intent = Intent(
        operation=Operation.APPEND, batch=Batch(query_id="q", batch_id=0, offsets=offsets)
    )

    def stage(on: Stored, before: Staged | None) -> Staged:
        if before is None:  # time passes between the put of the offsets and that of the slot
            for _ in range(3):
                clock.advance(10)
                other.vacuum()
        return stage_rows(table.metadata, on, before, pa.table({"k": [1]}))

    table.committer.commit(intent, stage)

    (entry,) = table.ledger().values()
    assert load_offsets(table.metadata.store, entry.offsets[-1]) == "x" * 5000
