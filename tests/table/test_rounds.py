"""How often an act waits for a remote store: the calls that cannot be made together."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fuse_stream.feed.changes import feed_schema
from fuse_stream.feed.follow import Follower
from fuse_stream.feed.tasks import plan_tasks, read_task
from fuse_stream.feed.views import Request
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.memory import MemoryStore
from tests.kit.rounds import LateStore

COMMITS = 106
SCHEMA = first_schema(columns_of_arrow(pa.schema([("k", pa.int64())])))


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64())})


@pytest.fixture(scope="module")
def objects() -> MemoryStore:
    store = MemoryStore()
    table = create_table(store, SCHEMA, probe_store=False)
    for key in range(COMMITS):
        table.append(rows(key))
    return store


@pytest.fixture
def late(objects: MemoryStore) -> LateStore:
    """A remote copy of the table."""
    copy = MemoryStore()
    copy.objects = dict(objects.objects)
    return LateStore(copy)


@pytest.fixture
def table(late: LateStore) -> Table:
    return counted_from_now(late, open_table(late, probe_store=False))


def counted_from_now(late: LateStore, table: Table) -> Table:
    late.calls.clear()
    return table


def test_a_table_is_opened_in_three_rounds(late: LateStore) -> None:
    assert open_table(late, probe_store=False).head().version == COMMITS

    assert late.rounds == 3 + 1  # and one for `head`
    assert late.counts() == {"get": 16 + 2}


def test_a_young_table_is_opened_in_three_rounds() -> None:
    late = LateStore(MemoryStore())
    create_table(late.store, SCHEMA, probe_store=False).append(rows(1))

    open_table(late, probe_store=False)

    assert late.rounds == 3
    assert late.counts()["get"] <= 16


def test_a_branch_without_commits_is_opened_in_five_rounds(late: LateStore) -> None:
    main = open_table(late.store, probe_store=False)
    main.create_branch("fix")
    late.calls.clear()

    open_table(late, branch="fix", probe_store=False)

    assert late.rounds <= 5


def test_an_idle_poll_is_one_round_of_two(late: LateStore, table: Table) -> None:
    table.head()

    assert late.rounds == 1
    assert late.counts() == {"get": 2}


def test_an_idle_poll_of_a_stream_is_one_round_of_two(late: LateStore) -> None:
    columns = open_table(late.store, probe_store=False).head().schema.columns
    follower = Follower(late, Request(), columns)
    end = follower.next_offset(follower.first_offset(), is_limited=False)
    late.calls.clear()

    assert follower.next_offset(end, is_limited=False) == end

    assert late.rounds == 1
    assert late.counts() == {"get": 2}


def test_a_scan_is_planned_in_two_rounds(late: LateStore, table: Table) -> None:
    assert len(table.blocks()) == COMMITS

    assert late.rounds == 2


def test_small_blocks_are_read_eight_at_once(late: LateStore, table: Table) -> None:
    table.blocks()
    late.calls.clear()

    assert table.to_arrow()["k"].to_pylist() == list(range(COMMITS))

    assert late.most_at_once == 8
    assert late.rounds <= COMMITS / 8 + 3


def test_a_task_of_the_feed_reads_small_blocks_eight_at_once(late: LateStore) -> None:
    columns = open_table(late.store, probe_store=False).head().schema.columns
    follower = Follower(late, Request(), columns)
    start = follower.first_offset()
    batch = follower.read_between(start, follower.next_offset(start, is_limited=False))
    (task,) = plan_tasks(batch)
    late.calls.clear()

    found = pa.Table.from_batches(read_task(late, task, feed_schema(batch.selection.schema)))

    assert found["k"].to_pylist() == list(range(COMMITS))
    assert late.rounds <= COMMITS / 8 + 3


def test_a_small_commit_is_three_rounds(late: LateStore, table: Table) -> None:
    table.append(rows(1))

    assert late.rounds == 3
    assert late.counts() == {"get": 1, "put": 2, "put_if_absent": 1}


def test_the_blocks_of_a_commit_are_put_eight_at_once_before_the_slot(
    late: LateStore, table: Table
) -> None:
    open_table(late.store, probe_store=False).set_properties({"fuse.block.rows": "1000"})
    table.head()
    late.calls.clear()
    table.append(rows(*range(16_000)))

    (slot,) = (call for call in late.calls if call.verb == "put_if_absent")
    puts = [call for call in late.calls if call.verb == "put"]
    assert len(puts) == 16 + 1  # and the segment
    assert late.most_at_once in {8, 9}  # the segment is put beside the last blocks
    assert all(call.ended_s <= slot.began_s for call in puts)


def test_the_log_asks_for_more_and_more_versions_at_once(late: LateStore, table: Table) -> None:
    assert [item.version for item in table.log()] == list(range(COMMITS, -1, -1))

    assert late.rounds <= 12


def test_fsck_reads_ahead(late: LateStore, table: Table) -> None:
    report = table.fsck()

    assert report.is_sound
    assert report.snapshot_count == COMMITS + 1
    assert late.most_at_once == 16
    assert late.rounds <= 60  # 250 calls, 12 of them listings


def test_a_vacuum_reads_sixteen_at_once(late: LateStore, table: Table) -> None:
    table.vacuum()

    assert late.most_at_once == 16
    assert late.rounds <= 90  # 330 calls, 20 of them listings
