"""A stream along the line: what was undone before it came is never delivered."""

from __future__ import annotations

import contextlib
import random
from collections import Counter

import pyarrow as pa
import pytest

from fuse_stream.errors import ConflictError, InvalidInputError, SnapshotExpiredError
from fuse_stream.feed.follow import Follower
from fuse_stream.feed.tasks import iter_block_rows, plan_block_tasks
from fuse_stream.feed.views import NO_LIMITS, Limits, Request
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.source_offset import Offset
from fuse_stream.recovery.target import Goal
from fuse_stream.table.handle import Table, create_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from tests.conftest import SCHEMA
from tests.feed.batches import read_batch
from tests.reading.test_line import history_of, walked
from tests.recovery.by_hand import compact
from tests.recovery.histories import opened, raise_floor, rewind, rows

LIMITS = (NO_LIMITS, Limits(rows=1), Limits(rows=3), Limits(commits=1), Limits(commits=2))


def new_table() -> Table:
    schema = first_schema(columns_of_arrow(SCHEMA))
    properties = {"fuse.block.rows": "2"}
    store, clock = MemoryStore(), ManualClock()
    return create_table(store, schema, properties=properties, clock=clock, probe_store=False)


def back(table: Table, version: int) -> None:
    rewind(table.committer, Goal(version=version))


def sums(feed: pa.Table) -> Counter[int]:
    total: Counter[int] = Counter()
    for key, kind in zip(feed["k"].to_pylist(), feed["_change_type"].to_pylist(), strict=True):
        total[key] += 1 if kind == "insert" else -1
    return total


class Stream:
    """A stream with what it was sent so far."""

    def __init__(self, table: Table, **options: object) -> None:
        self.table = table
        self.request = Request(**{"starting_version": 0, **options})  # type: ignore[arg-type]
        self.restart()
        self.at = self.follower.first_offset()
        self.rows: Counter[int] = Counter()
        self.batches: list[tuple[Offset, Offset, pa.Table]] = []

    def restart(self) -> None:
        columns = self.table.head().schema.columns
        store = self.table.metadata.store
        self.follower = Follower(store, self.request, columns, clock=ManualClock(seed=5))

    def plan(self) -> Offset:
        return self.follower.next_offset(self.at, is_limited=True)

    def read(self, end: Offset) -> pa.Table:
        """Deliver the batch up to `end`, and check what holds at the end of each batch."""
        feed = read_batch(self.table.metadata.store, self.follower.read_between(self.at, end))
        self.batches.append((self.at, end, feed))
        self.rows.update(sums(feed))
        self.at = end
        if end.index == 0:
            table = self.table.to_arrow(version=end.version)
            assert +self.rows == Counter(table["k"].to_pylist())
            assert not -self.rows
        return feed

    def run(self) -> list[tuple[str, int]]:
        feed = self.read(self.plan())
        return sorted(zip(feed["_change_type"].to_pylist(), feed["k"].to_pylist(), strict=True))


class Course:
    """A random history of a table with branches, and a stream that reads it meanwhile."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.table = new_table()
        self.names = ["main"]
        self.next_key = 0
        limits = self.draw.choice(LIMITS)
        start = None if seed % 3 else 0
        self.stream = Stream(self.table, limits=limits, starting_version=start)
        self.planned: Offset | None = None

    def play(self) -> None:
        for number in range(30):
            moves = "append append append overwrite compact rewind branch publish".split()
            move = self.draw.choice([*moves, "trigger", "trigger", "trigger", "restart"])
            if move == "trigger":
                self.trigger()
            elif move == "restart":
                self.stream.restart()
            else:
                with contextlib.suppress(ConflictError, InvalidInputError):
                    self.change(move, number)

    def change(self, move: str, number: int) -> None:
        """Change the table, unless it refuses the change."""
        on = opened(self.table.metadata.store, self.draw.choice(["main", "main", *self.names[-2:]]))
        head, kept = on.head().version, on.to_arrow()["k"].to_pylist()
        match move:
            case "append":
                on.append(rows(*self.keys(self.draw.randint(1, 5))))
            case "overwrite":
                on.overwrite(rows(*self.draw.sample(kept, len(kept) // 2), *self.keys(2)))
            case "compact" if kept:
                compact(on)
            case "rewind":
                back(on, self.draw.randint(0, head))
            case "branch":
                on.create_branch(f"fix{number}", self.draw.randint(0, head))
                self.names.append(f"fix{number}")
            case "publish":
                on.publish(self.draw.choice(self.names), expected_head=head)

    def keys(self, count: int) -> range:
        self.next_key += count
        return range(self.next_key - count, self.next_key)

    def trigger(self) -> None:
        """Plan a batch and deliver it; now and then the driver dies in between."""
        stream = self.stream
        if self.planned is None:
            self.planned = stream.plan()
            self.check_plan(self.planned)
            if self.draw.random() < 0.4:
                return
        stream.read(self.planned)
        self.planned = None

    def check_plan(self, end: Offset) -> None:
        """Check that a new end is on the line of the head; it may also end what was begun."""
        history, start = history_of(self.table), self.stream.at
        line = walked(history, history.head.snapshot)
        begun = start.version if start.index else None
        assert end == start or end.version in {*line, begun}
        batch = self.stream.follower.read_between(start, end)
        assert {unit.version for unit in batch.units} <= {*line, begun}

    def drain(self) -> None:
        if self.planned is not None:
            self.stream.read(self.planned)
        while (end := self.stream.plan()) != self.stream.at:
            self.check_plan(end)
            self.stream.read(end)


@pytest.mark.parametrize("seed", range(60))
def test_a_stream_is_never_sent_what_was_undone_before_it_came(seed: int) -> None:
    course = Course(seed)
    course.play()
    course.drain()
    stream = course.stream

    assert +stream.rows == Counter(course.table.to_arrow()["k"].to_pylist())
    batches = stream.batches.copy()
    for start, end, feed in batches:
        stream.restart()
        again = stream.follower.read_between(start, end)
        assert read_batch(course.table.metadata.store, again).equals(feed)


def test_rows_that_a_rewind_took_back_are_not_sent(table: Table) -> None:
    table.append(rows(1))
    stream = Stream(table)
    stream.run()
    table.append(rows(2))
    back(table, 1)
    table.append(rows(3))

    assert stream.run() == [("insert", 3)]


def test_rows_that_were_sent_are_taken_back_by_the_difference_from_them(table: Table) -> None:
    table.append(rows(1))
    table.append(rows(2))
    stream = Stream(table)
    stream.run()
    table.append(rows(3))
    back(table, 1)

    assert stream.run() == [("delete", 2)]


def test_a_rewind_between_two_reads_that_changes_nothing_sends_nothing(table: Table) -> None:
    table.append(rows(1))
    stream = Stream(table)
    stream.run()
    table.append(rows(2))
    back(table, 1)

    assert stream.run() == []
    assert stream.plan() == stream.at


def test_a_commit_that_was_sent_in_part_is_sent_to_its_end(table: Table) -> None:
    table.append(rows(1, 2, 3, 4, 5, 6))
    stream = Stream(table, limits=Limits(rows=2))
    assert stream.run() == [("insert", 1), ("insert", 2)]
    back(table, 0)

    assert stream.run() == [("insert", 3), ("insert", 4)]
    assert stream.run() == [("insert", 5), ("insert", 6)]
    assert stream.run() == [("delete", key) for key in range(1, 7)]


def test_a_batch_that_was_planned_is_the_same_after_it_was_undone(table: Table) -> None:
    table.append(rows(1))
    table.append(rows(2))
    stream = Stream(table)
    end = stream.plan()
    back(table, 0)
    stream.restart()

    assert stream.read(end)["k"].to_pylist() == [1, 2]
    assert stream.run() == [("delete", 1), ("delete", 2)]


def test_a_publish_sends_the_difference_from_where_the_branch_began(table: Table) -> None:
    table.append(rows(1))
    table.create_branch("fix")
    opened(table.metadata.store, "fix").append(rows(2))
    stream = Stream(table)
    stream.run()
    table.append(rows(3))
    table.publish("fix", expected_head=2)

    assert stream.run() == [("insert", 2)]


def test_the_end_of_a_stream_has_a_line_of_its_own(table: Table) -> None:
    table.append(rows(1))
    table.append(rows(2))
    back(table, 1)

    assert Stream(table, ending_version=2).run() == [("insert", 1), ("insert", 2)]
    assert Stream(table, ending_version=3).run() == [("insert", 1)]


def test_a_version_that_is_undone_and_has_expired_is_told(table: Table) -> None:
    for key in range(1, 4):
        table.append(rows(key))
    stream = Stream(table)
    stream.run()
    back(table, 1)
    raise_floor(table, 4)

    with pytest.raises(SnapshotExpiredError, match="start a new checkpoint"):
        stream.run()


def test_the_append_feed_goes_on_where_a_rewind_takes_back_no_row_that_it_sent(
    table: Table,
) -> None:
    table.append(rows(1))
    stream = Stream(table, feed="append")
    stream.read(stream.plan())
    table.append(rows(2))
    table.overwrite(rows(1))
    back(table, 2)
    table.overwrite(rows(1, 2, 3))

    found = read_batch_of_rows(stream)
    assert found == [2, 3]


def read_batch_of_rows(stream: Stream) -> list[int]:
    feed = read_batch(
        stream.table.metadata.store, stream.follower.read_between(stream.at, stream.plan())
    )
    assert set(feed["_change_type"].to_pylist()) <= {"insert"}
    return sorted(feed["k"].to_pylist())


def test_the_append_feed_refuses_rows_that_are_taken_back(table: Table) -> None:
    table.append(rows(1))
    table.append(rows(2))
    stream = Stream(table, feed="append")
    stream.read(stream.plan())
    back(table, 1)

    with pytest.raises(InvalidInputError, match=r"feed=changes.*version=3") as raised:
        stream.plan()
    assert "skip" not in str(raised.value)
    kept = Stream(table, feed="append", where="k = 1")
    kept.at = stream.at
    assert read_batch_of_rows(kept) == []


def test_the_blocks_feed_describes_the_same_blocks_as_were_planned(table: Table) -> None:
    table.append(rows(1))
    table.append(rows(2))
    stream = Stream(table, feed="blocks")
    start = stream.at = stream.plan()
    table.append(rows(3))
    back(table, 1)
    batch = stream.follower.read_between(start, stream.plan())

    (task,) = plan_block_tasks(batch)
    schema = pa.schema(
        [
            ("_change_type", pa.string()),
            ("block_id", pa.string()),
            ("row_count", pa.int64()),
            ("file_size", pa.int64()),
            ("col_stats", pa.string()),
            ("_commit_version", pa.int64()),
            ("_commit_timestamp", pa.timestamp("us", tz="UTC")),
        ]
    )
    (found,) = iter_block_rows(table.metadata, "main", task.ranges, schema)
    planned = [(p.change_type, p.block.id) for unit in batch.units for p in unit.pieces]
    assert planned == list(
        zip(found["_change_type"].to_pylist(), found["block_id"].to_pylist(), strict=True)
    )
    assert [kind for kind, _ in planned] == ["delete"]


@pytest.fixture
def table() -> Table:
    return new_table()
