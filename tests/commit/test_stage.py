"""The objects of one commit are put side by side, and all are there before the slot is."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from fuse_stream.errors import StorageError
from fuse_stream.table import Table
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
