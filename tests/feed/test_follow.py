"""Following a branch without Spark: starts, ends, schemas, tables that are not what they were."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

from fuse_stream.errors import (
    InvalidInputError,
    NotFoundError,
    SchemaChangedError,
    SnapshotExpiredError,
    StreamIdentityError,
    UnsupportedFormatError,
)
from fuse_stream.feed.changes import feed_schema
from fuse_stream.feed.consumer import Consumer
from fuse_stream.feed.follow import Follower, head_selection
from fuse_stream.feed.tasks import BlockRange, iter_block_rows, plan_tasks, read_task
from fuse_stream.feed.views import Limits, Request
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.codec import encode_snapshot
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.layout import TABLE_KEY, slot_key
from fuse_stream.format.records import Operation, Parent
from fuse_stream.format.schema import Column
from fuse_stream.format.source_offset import Offset, offset_from_json, offset_to_json
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.feed.batches import BLOCKS_SCHEMA

SCHEMA = pa.schema([("k", pa.int64()), ("name", pa.string())])

Row = tuple[object, ...]


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": list(keys), "name": [f"n{key}" for key in keys]}, SCHEMA)


class Scene:
    """A table in memory, and streams that follow it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        self.table = self.create()

    def create(self) -> Table:
        schema = first_schema(columns_of_arrow(SCHEMA))
        return create_table(self.store, schema, clock=self.clock, probe_store=False)

    def append(self, *keys: int) -> None:
        self.clock.advance(1)
        self.table.append(rows(*keys))

    def append_wider(self, key: int) -> None:
        self.clock.advance(1)
        data = pa.table({"k": [key], "name": ["w"], "more": [1.5]})
        self.table.append(data, merge_schema=True)

    def overwrite(self, *keys: int) -> None:
        self.clock.advance(1)
        self.table.overwrite(rows(*keys))

    def expire(self, floor: int) -> None:
        """Publish an `expire` commit."""
        stored = self.table.committer.head()
        head = stored.snapshot
        snapshot = dataclasses.replace(
            head,
            parent=Parent(branch_id="main", version=head.version, sha256=stored.sha256),
            version=head.version + 1,
            snapshot_id=self.clock.new_id(),
            prev_snapshot_id=head.snapshot_id,
            timestamp_us=head.timestamp_us + 1,
            operation=Operation.EXPIRE,
            data_change=False,
            added=(),
            floor=floor,
        )
        self.store.put(slot_key("main", snapshot.version), encode_snapshot(snapshot))

    def load(self, *, request: Request | None = None) -> Stream:
        """Load a stream now: its schema is that of the head."""
        request = request or Request()
        selection = head_selection(self.store, request, clock=self.clock)
        columns = None if request.feed == "blocks" else selection.schema.columns
        return Stream(self, request, columns)


class Stream:
    """A stream as Spark sees it: its checkpoint is the last end, and all else can be lost."""

    def __init__(self, scene: Scene, request: Request, columns: tuple[Column, ...] | None) -> None:
        self.scene = scene
        self.request = request
        self.columns = columns
        self.start: Offset | None = None
        self.restart()

    def restart(self) -> None:
        self.follower: Follower | Consumer = Follower(
            self.scene.store,
            self.request,
            self.columns,
            clock=self.scene.clock,
        )

    def next_end(self) -> Offset:
        return self.follower.next_offset(self.written_start(), is_limited=True)

    def written_start(self) -> Offset:
        """Return where the next batch starts, as it comes back from the checkpoint."""
        start = self.start or self.follower.first_offset()
        return offset_from_json(json.loads(json.dumps(offset_to_json(start))))

    def read(self, end: Offset) -> list[Row]:
        batch = self.follower.read_between(self.written_start(), end)
        schema = feed_schema(batch.selection.schema)
        return [
            tuple(row.values())
            for task in plan_tasks(batch)
            for batches in read_task(self.scene.store, task, schema)
            for row in batches.to_pylist()
        ]

    def run(self) -> list[Row]:
        """Return the rows of one batch; none if there is nothing new."""
        end = self.next_end()
        if end == self.start:
            return []
        found = self.read(end)
        self.start = end
        return found

    def drain(self) -> list[Row]:
        return [row for batch in self.batches() for row in batch]

    def batches(self) -> Iterator[list[Row]]:
        while True:
            before = self.start
            batch = self.run()
            if self.start == before:
                return
            yield batch


@pytest.fixture
def scene() -> Scene:
    return Scene()


def short(batch: list[Row]) -> list[Row]:
    """Return (key, change type, version) of rows with two columns."""
    return [(row[0], row[-3], row[-2]) for row in batch]


# ---- where a stream starts


def test_the_table_comes_first_with_the_version_of_its_head(scene: Scene) -> None:
    scene.append(1)
    scene.append(2)

    assert short(scene.load().drain()) == [(1, "insert", 2), (2, "insert", 2)]


def test_then_every_commit_comes_with_its_own_version_and_time(scene: Scene) -> None:
    scene.append(1)
    stream = scene.load()
    stream.drain()
    scene.append(2)
    scene.append(3)

    found = stream.drain()

    assert short(found) == [(2, "insert", 2), (3, "insert", 3)]
    times = [scene.table.snapshot(version).timestamp_us for version in (2, 3)]
    assert [row[-1].timestamp() * 1_000_000 for row in found] == times  # type: ignore[attr-defined]


def test_a_stream_on_an_empty_table_gets_each_commit_on_its_own(scene: Scene) -> None:
    stream = scene.load()
    stream.drain()
    scene.append(1)
    scene.overwrite(2)

    assert short(stream.drain()) == [(1, "insert", 1), (1, "delete", 2), (2, "insert", 2)]


def test_the_first_offset_does_not_depend_on_the_head(scene: Scene) -> None:
    follower = scene.load().follower
    before = follower.first_offset()
    scene.append(1)

    assert follower.first_offset() == before


@pytest.mark.parametrize("keys", [(), (1, 2)])
def test_a_first_batch_that_runs_again_later_has_the_same_rows(
    scene: Scene, keys: tuple[int, ...]
) -> None:
    for key in keys:
        scene.append(key)
    stream = scene.load()
    end = stream.next_end()
    before = stream.read(end)
    scene.overwrite(3)
    scene.append(4)
    stream.restart()

    assert stream.read(end) == before


def test_a_stream_from_latest_gets_what_comes_after_its_first_batch(scene: Scene) -> None:
    scene.append(1)
    stream = scene.load(request=Request(starting_version="latest"))
    assert stream.run() == []
    scene.append(2)

    assert short(stream.drain()) == [(2, "insert", 2)]


def test_a_first_batch_from_latest_is_the_same_wherever_the_head_has_moved(scene: Scene) -> None:
    follower = scene.load(request=Request(starting_version="latest")).follower
    start = follower.first_offset()
    scene.append(1)
    end = follower.next_offset(start, is_limited=True)
    scene.append(2)

    assert follower.read_between(start, end) == follower.read_between(follower.first_offset(), end)


def test_a_first_batch_from_latest_that_runs_again_skips_nothing(scene: Scene) -> None:
    scene.append(1)
    stream = scene.load(request=Request(starting_version="latest"))
    end = stream.next_end()
    scene.append(2)
    stream.restart()
    assert stream.read(end) == []
    stream.start = end

    assert short(stream.drain()) == [(2, "insert", 2)]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_stream_from_a_version_starts_with_that_commit(scene: Scene, version: int) -> None:
    for key in (1, 2, 3):
        scene.append(key)
    stream = scene.load(request=Request(starting_version=version))

    assert [row[0] for row in stream.drain()] == list(range(max(version, 1), 4))


def test_a_start_past_the_head_is_refused(scene: Scene) -> None:
    with pytest.raises(NotFoundError, match=r"past the head.*latest"):
        scene.load(request=Request(starting_version=1)).run()


def test_a_stream_from_a_time_starts_with_the_first_commit_at_or_after_it(scene: Scene) -> None:
    start_us = scene.clock.wall_us
    for key in (1, 2, 3):
        scene.append(key)
    text = pa.scalar(start_us + 1_500_000, pa.timestamp("us", tz="UTC")).as_py().isoformat()

    found = scene.load(request=Request(starting_timestamp=text)).drain()

    assert [row[0] for row in found] == [2, 3]


def test_a_start_at_a_time_past_the_head_is_refused(scene: Scene) -> None:
    scene.append(1)

    with pytest.raises(NotFoundError, match="past the head"):
        scene.load(request=Request(starting_timestamp="2100-01-01T00:00:00Z")).run()


# ---- where it ends


def test_the_ending_version_is_the_last_that_comes(scene: Scene) -> None:
    for key in (1, 2, 3):
        scene.append(key)
    stream = scene.load(request=Request(starting_version=1, ending_version=2))

    assert short(stream.drain()) == [(1, "insert", 1), (2, "insert", 2)]
    assert stream.next_end() == stream.start


def test_an_ending_version_that_is_yet_to_come_is_waited_for(scene: Scene) -> None:
    scene.append(1)
    stream = scene.load(request=Request(ending_version=2))
    stream.drain()
    scene.append(2)
    scene.append(3)

    assert [row[0] for row in stream.drain()] == [2]


def test_a_first_read_is_of_the_ending_version_if_the_head_is_past_it(scene: Scene) -> None:
    scene.append(1)
    scene.overwrite(2)

    found = scene.load(request=Request(ending_version=1)).drain()

    assert short(found) == [(1, "insert", 1)]


def test_the_ending_time_is_inclusive(scene: Scene) -> None:
    for key in (1, 2, 3):
        scene.append(key)
    second = pa.scalar(scene.table.snapshot(2).timestamp_us, pa.timestamp("us", tz="UTC"))
    request = Request(starting_version=1, ending_timestamp=second.as_py().isoformat())

    assert [row[0] for row in scene.load(request=request).drain()] == [1, 2]


def test_a_stream_that_ends_before_it_starts_is_refused(scene: Scene) -> None:
    scene.append(1)
    scene.append(2)
    first = pa.scalar(scene.table.snapshot(1).timestamp_us, pa.timestamp("us", tz="UTC"))
    request = Request(starting_version=2, ending_timestamp=first.as_py().isoformat())

    with pytest.raises(InvalidInputError, match="ends before it starts"):
        scene.load(request=request).run()


def test_a_pinned_stream_ends_at_the_head_of_its_start(scene: Scene) -> None:
    scene.append(1)
    stream = scene.load()
    stream.follower.pin_head()
    scene.append(2)

    assert [row[0] for row in stream.drain()] == [1]


# ---- what comes


def test_a_stream_cut_small_and_restarted_at_every_batch_gets_every_row_once(scene: Scene) -> None:
    stream = scene.load(request=Request(limits=Limits(rows=2)))
    found: list[Row] = []
    for key in range(0, 40, 4):
        scene.append(key, key + 1)
        if key % 8:
            scene.append(key + 2, key + 3)
        if key % 12 == 8:
            scene.overwrite(key)
        stream.restart()
        found += stream.run()
    while batch := stream.run():
        found += batch
        stream.restart()

    total: Counter[object] = Counter()
    for row in found:
        total[row[0]] += 1 if row[-3] == "insert" else -1
    assert +total == Counter(scene.table.to_arrow()["k"].to_pylist())
    assert not -total


def test_a_batch_that_runs_again_in_another_process_has_the_same_rows(scene: Scene) -> None:
    scene.append(1)
    scene.append(2)
    stream = scene.load(request=Request(limits=Limits(commits=1)))
    for step in range(6):
        scene.append(10 + step)
        end = stream.next_end()
        before = stream.read(end)
        scene.overwrite(20 + step)
        stream.restart()
        assert stream.read(end) == before
        stream.start = end


def test_the_sum_of_the_feed_is_the_table_at_every_version(scene: Scene) -> None:
    scene.append(1, 1, 2)
    stream = scene.load()
    total: Counter[object] = Counter()
    for step in range(1, 7):
        for row in stream.drain():
            total[row[:2]] += 1 if row[-3] == "insert" else -1
        standing = scene.table.to_arrow().to_pylist()
        assert +total == Counter(tuple(row.values()) for row in standing)
        if step % 3:
            scene.append(step, 7)
        else:
            scene.overwrite(step, 1)


def test_commits_that_keep_the_rows_send_nothing_but_move_the_stream_on(scene: Scene) -> None:
    scene.append(1)
    stream = scene.load()
    stream.drain()
    scene.table.set_properties({"mine": "1"})

    assert stream.drain() == []
    assert stream.start is not None
    assert stream.start.version == 2


def test_columns_and_where_choose_from_every_commit(scene: Scene) -> None:
    scene.append(1, 2)
    stream = scene.load(request=Request(columns=("name",), where="k > 1"))
    found = stream.drain()
    scene.append(1)
    scene.append(3)

    assert [row[0] for row in found + stream.drain()] == ["n2", "n3"]


def test_a_unit_that_a_predicate_rules_out_is_not_opened(scene: Scene) -> None:
    scene.append(1)
    scene.append(5)
    stream = scene.load(request=Request(starting_version=1, where="k > 3"))

    batch = stream.follower.read_between(stream.follower.first_offset(), stream.next_end())

    assert [len(task.pieces) for task in plan_tasks(batch)] == [1]


def test_the_append_feed_delivers_all_before_a_commit_that_removes_rows(scene: Scene) -> None:
    stream = scene.load(request=Request(feed="append"))
    stream.drain()
    scene.append(1)
    scene.overwrite(2)

    assert [row[0] for row in stream.run()] == [1]
    with pytest.raises(InvalidInputError, match=r"feed=changes.*version=2"):
        stream.run()


def test_the_append_feed_may_pass_over_commits_that_remove_rows(scene: Scene) -> None:
    stream = scene.load(request=Request(feed="append", skip_change_commits=True))
    stream.drain()
    scene.append(1)
    scene.overwrite(2)
    scene.append(3)

    assert [row[0] for row in stream.drain()] == [1, 3]


def test_the_blocks_feed_tells_of_every_block_with_its_statistics(scene: Scene) -> None:
    scene.append(1, 2)
    scene.overwrite(3)
    ranges = [BlockRange(version=2, base=1, floor=0, first=0, stop=2)]

    (batch,) = iter_block_rows(scene.table.metadata, "main", ranges, BLOCKS_SCHEMA)

    found = batch.to_pylist()
    assert [(row["_change_type"], row["row_count"]) for row in found] == [
        ("delete", 2),
        ("insert", 1),
    ]
    assert '"k":{' in found[1]["col_stats"]
    assert '"min":"3"' in found[1]["col_stats"]
    assert found[1]["block_id"] == scene.table.blocks()[0].id


# ---- schemas


def test_all_before_another_schema_is_delivered_then_the_stream_stops(scene: Scene) -> None:
    scene.append(1)
    stream = scene.load()
    stream.drain()
    scene.append(2)
    scene.append_wider(3)
    scene.append_wider(4)

    assert [row[0] for row in stream.run()] == [2]
    with pytest.raises(SchemaChangedError, match=r"version=3, difference=\['\+ more double'\]"):
        stream.run()


def test_a_stream_loaded_anew_goes_on_with_the_new_schema(scene: Scene) -> None:
    scene.append(1)
    old = scene.load()
    old.drain()
    scene.append(2)
    scene.append_wider(3)
    new = scene.load()
    new.start = old.start

    assert [row[:3] for row in new.drain()] == [(2, "n2", None), (3, "w", 1.5)]


def test_a_stream_that_was_loaded_before_the_change_starts_and_stops_at_it(scene: Scene) -> None:
    scene.append(1)
    stream = scene.load()
    scene.append_wider(2)

    assert short(stream.run()) == [(1, "insert", 1)]
    with pytest.raises(SchemaChangedError):
        stream.run()


def test_a_stopped_stream_that_is_started_again_as_it_was_stops_again(scene: Scene) -> None:
    scene.append(1)
    stream = scene.load()
    stream.drain()
    scene.append_wider(2)
    stream.restart()

    with pytest.raises(SchemaChangedError):
        stream.run()


def test_a_batch_before_the_change_runs_again_under_the_new_schema(scene: Scene) -> None:
    scene.append(1)
    old = scene.load()
    old.drain()
    scene.append(2)
    end = old.next_end()
    scene.append_wider(3)
    new = scene.load()
    new.start = old.start

    assert [row[:3] for row in new.read(end)] == [(2, "n2", None)]


def test_a_batch_after_the_change_does_not_run_again_under_the_old_schema(scene: Scene) -> None:
    scene.append(1)
    old = scene.load()
    old.drain()
    scene.append_wider(2)
    new = scene.load()
    new.start = old.start

    with pytest.raises(SchemaChangedError):
        old.read(new.next_end())


def test_with_columns_only_those_count(scene: Scene) -> None:
    scene.append(1)
    stream = scene.load(request=Request(columns=("k",)))
    stream.drain()
    scene.append_wider(2)

    assert [row[0] for row in stream.drain()] == [2]


# ---- a table that is not what it was


def test_where_there_is_no_table_the_message_says_so(scene: Scene) -> None:
    scene.store.objects.clear()

    with pytest.raises(NotFoundError, match="no fuse_stream table here"):
        scene.load()


def test_a_table_of_a_newer_release_is_refused(scene: Scene) -> None:
    data = scene.store.get(TABLE_KEY).replace(b'"format_version":1', b'"format_version":2')
    scene.store.replace(TABLE_KEY, data)

    with pytest.raises(UnsupportedFormatError, match="upgrade"):
        scene.load()


def test_there_is_no_other_branch_yet(scene: Scene) -> None:
    with pytest.raises(NotFoundError, match="no such branch"):
        scene.load(request=Request(branch="dev"))


def test_another_table_at_the_same_path_is_refused_at_a_restart(scene: Scene) -> None:
    scene.append(1)
    stream = scene.load()
    stream.drain()
    scene.store.objects.clear()
    scene.table = scene.create()
    scene.append(1)
    stream.restart()

    with pytest.raises(StreamIdentityError, match="another table"):
        stream.run()


def test_a_table_that_goes_away_under_a_stream_is_noticed(scene: Scene) -> None:
    scene.append(1)
    stream = scene.load()
    stream.drain()
    scene.store.objects.clear()

    with pytest.raises(NotFoundError, match="moved or removed"):
        stream.run()


def test_a_table_that_is_replaced_under_a_stream_is_noticed(scene: Scene) -> None:
    scene.append(1)
    stream = scene.load()
    stream.drain()
    scene.store.objects.clear()
    scene.table = scene.create()
    scene.append(2)

    with pytest.raises(NotFoundError, match="another table"):
        stream.run()


def test_an_older_copy_of_the_table_is_refused(scene: Scene) -> None:
    scene.append(1)
    copy = dict(scene.store.objects)
    scene.append(2)
    stream = scene.load()
    stream.drain()
    scene.store.objects = copy
    stream.restart()

    with pytest.raises(StreamIdentityError, match="an older copy"):
        stream.run()


@pytest.mark.parametrize("further", [1, 3])
def test_an_older_copy_that_went_on_is_refused(scene: Scene, further: int) -> None:
    scene.append(1)
    copy = dict(scene.store.objects)
    scene.append(2)
    stream = scene.load()
    stream.drain()
    scene.store.objects = copy
    scene.table = open_table(scene.store, clock=scene.clock, probe_store=False)
    for key in range(further):
        scene.append(key)
    stream.restart()

    with pytest.raises(StreamIdentityError, match="another snapshot"):
        stream.run()


def test_a_stream_whose_next_commit_has_expired_is_told_the_first_there_is(scene: Scene) -> None:
    scene.append(1)
    stream = scene.load()
    stream.drain()
    for key in (2, 3, 4):
        scene.append(key)
    scene.expire(floor=3)
    stream.restart()

    with pytest.raises(SnapshotExpiredError, match="version=2, first=3"):
        stream.run()


def test_a_stream_whose_own_version_alone_has_expired_reads_on(scene: Scene) -> None:
    scene.append(1)
    scene.append(2)
    stream = scene.load()
    stream.drain()
    for key in (3, 4):
        scene.append(key)
    scene.expire(floor=3)
    stream.restart()

    assert [row[0] for row in stream.drain()] == [3, 4]


def test_a_start_below_the_floor_is_refused(scene: Scene) -> None:
    for key in (1, 2, 3):
        scene.append(key)
    scene.expire(floor=2)

    with pytest.raises(SnapshotExpiredError, match="first=2"):
        scene.load(request=Request(starting_version=1)).run()
    assert [row[0] for row in scene.load(request=Request(starting_version=2)).drain()] == [2, 3]


def test_a_commit_at_the_floor_that_removed_rows_has_lost_them(scene: Scene) -> None:
    scene.append(1)
    scene.overwrite(2)
    scene.append(3)
    scene.expire(floor=2)

    with pytest.raises(SnapshotExpiredError, match="first=3"):
        scene.load(request=Request(starting_version=2)).run()


def test_a_start_at_a_time_before_the_floor_is_refused(scene: Scene) -> None:
    for key in (1, 2, 3):
        scene.append(key)
    scene.expire(floor=2)

    with pytest.raises(SnapshotExpiredError, match="first=2"):
        scene.load(request=Request(starting_timestamp="2020-01-01T00:00:00Z")).run()


# ---- cost


def test_an_idle_trigger_costs_two_reads(scene: Scene) -> None:
    scene.append(1)
    selection = head_selection(scene.store, Request(), clock=scene.clock)
    store = FaultyStore(scene.store)
    follower = Follower(store, Request(), selection.schema.columns, clock=scene.clock)
    start = follower.next_offset(follower.first_offset(), is_limited=True)
    store.calls.clear()

    assert follower.next_offset(start, is_limited=True) == start
    assert follower.head_offset() == start
    assert len(store.calls) == 2


def test_a_new_commit_costs_its_snapshot_and_its_segment(scene: Scene) -> None:
    scene.append(1)
    selection = head_selection(scene.store, Request(), clock=scene.clock)
    store = FaultyStore(scene.store)
    follower = Follower(store, Request(), selection.schema.columns, clock=scene.clock)
    start = follower.next_offset(follower.first_offset(), is_limited=True)
    follower.read_between(follower.first_offset(), start)
    scene.append(2)
    store.calls.clear()
    end = follower.next_offset(start, is_limited=True)
    follower.read_between(start, end)

    assert len(store.calls) <= 5
