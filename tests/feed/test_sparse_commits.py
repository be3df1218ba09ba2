"""Commits that change few rows of large blocks: each block is read once; images have kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest

from fuse_stream.feed import tasks
from fuse_stream.feed.changes import Piece, Unit
from fuse_stream.feed.offsets import Batch
from fuse_stream.feed.tasks import plan_tasks
from fuse_stream.format.layout import block_key
from fuse_stream.format.positions import Positions
from fuse_stream.reading.scan import select
from fuse_stream.table.handle import Table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryStore

Create = Callable[..., Table]
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


@pytest.fixture
def table(create: Create) -> Table:
    made = create(SCHEMA)
    made.append(pa.table([list(range(1000)), [0] * 1000], schema=SCHEMA))
    return made


def kinds(table: Table, first: int, last: int | None = None, **which: object) -> Counter[str]:
    found = table.changes(first, last, **which).read_all()  # type: ignore[arg-type]
    return Counter(found["_change_type"].to_pylist())


def test_a_block_is_read_once_however_many_commits_change_it(
    table: Table, store: MemoryStore
) -> None:
    for key in range(30):
        table.update(f"k = {key}", {"v": 1})
    old = block_key(table.blocks()[0].id)
    watched = FaultyStore(store)
    follower = open_table(watched, clock=ManualClock(seed=9), probe_store=False)

    assert kinds(follower, 2) == {"update_preimage": 30, "update_postimage": 30}
    assert sum(key == old for _, key in watched.calls) == 1


def test_commits_come_in_their_order(table: Table) -> None:
    table.delete("k < 3")
    table.append(pa.table([[5000], [0]], schema=SCHEMA))
    table.update("k = 4", {"v": 7})

    found = table.changes(2).read_all().select(["_commit_version", "_change_type", "k"]).to_pylist()

    assert [tuple(row.values()) for row in found] == [
        (2, "delete", 0),
        (2, "delete", 1),
        (2, "delete", 2),
        (3, "insert", 5000),
        (4, "update_preimage", 4),
        (4, "update_postimage", 4),
    ]


def test_an_update_whose_columns_are_not_read_is_not_delivered(table: Table) -> None:
    table.update("k < 10", {"v": 5})

    assert kinds(table, 2, columns=["k"]) == {}
    assert kinds(table, 2, columns=["k", "v"]) == {"update_preimage": 10, "update_postimage": 10}


def test_a_predicate_may_hold_for_one_image_only(table: Table) -> None:
    table.update("k < 10", {"v": 5})

    assert kinds(table, 2, where="v = 5") == {"update_postimage": 10}
    assert kinds(table, 2, where="v = 0") == {"update_preimage": 10}


def test_a_rewind_over_an_update_delivers_deletes_and_inserts(table: Table) -> None:
    table.update("k < 2", {"v": 5})
    table.revert(2)

    assert kinds(table, 3) == {"delete": 2, "insert": 2}


def test_sparse_units_of_a_batch_share_tasks_within_the_limit(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = table.blocks()[0]
    units = tuple(
        Unit(
            version=version,
            snapshot_id="s",
            base=version - 1,
            pieces=(
                Piece(
                    block=block.showing(Positions([version, version + 1])),
                    version=version,
                    timestamp_us=0,
                    removed_from=version - 1,
                ),
            ),
        )
        for version in range(2, 12)
    )
    batch = Batch(units=units, selection=select(table.head().schema))
    together = plan_tasks(batch)
    monkeypatch.setattr(tasks, "MOST_TASK_BYTES", 3 * units[0].pieces[0].block.live_size)

    assert [len(task.pieces) for task in together] == [10]
    assert [len(task.pieces) for task in plan_tasks(batch)] == [3, 3, 3, 1]
