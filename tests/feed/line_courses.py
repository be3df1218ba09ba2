"""Random histories of a table with branches, and a stream that reads it meanwhile.

In some of them a column comes, goes with a rewind, and comes again.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from fuse_stream.errors import (
    ConflictError,
    InvalidInputError,
    SchemaChangedError,
    SchemaMismatchError,
)
from fuse_stream.feed.follow import Follower
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
from tests.recovery.histories import opened, rewind, rows

T = TypeVar("T")

LIMITS = (NO_LIMITS, Limits(rows=1), Limits(rows=3), Limits(commits=1), Limits(commits=2))


def new_table() -> Table:
    schema = first_schema(columns_of_arrow(SCHEMA))
    properties = {"fuse.block.rows": "2"}
    store, clock = MemoryStore(), ManualClock()
    return create_table(store, schema, properties=properties, clock=clock, probe_store=False)


def back(table: Table, version: int) -> None:
    rewind(table.committer, Goal(version=version))


Rows = Counter[tuple[int, int | None]]
"""How often there is a key, with the value that it has in the column that may come and go."""


def rows_of(table: pa.Table) -> Rows:
    return Counter((row["k"], row.get("n")) for row in table.to_pylist())


def sums(feed: pa.Table) -> Rows:
    total: Rows = Counter()
    for row in feed.to_pylist():
        total[row["k"], row.get("n")] += 1 if row["_change_type"] == "insert" else -1
    return total


class Stream:
    """A stream with what it was sent so far."""

    def __init__(self, table: Table, **options: object) -> None:
        self.table = table
        self.request = Request(**{"starting_version": 0, **options})  # type: ignore[arg-type]
        self.restart()
        self.at = self.follower.first_offset()
        self.rows: Rows = Counter()
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
            assert +self.rows == rows_of(self.table.to_arrow(version=end.version))
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
        self.is_widened = seed % 4 == 3
        self.is_stuck = False
        """True if no schema that the stream may start with has all that it must deliver."""

    def play(self) -> None:
        for number in range(30):
            moves = "append append append overwrite compact rewind branch publish".split()
            move = self.draw.choice([*moves, "trigger", "trigger", "trigger", "restart"])
            if move == "trigger":
                self.trigger()
            elif move == "restart":
                self.stream.restart()
            else:
                with contextlib.suppress(ConflictError, InvalidInputError, SchemaMismatchError):
                    self.change(move, number)

    def change(self, move: str, number: int) -> None:
        """Change the table, unless it refuses the change."""
        on = opened(self.table.metadata.store, self.draw.choice(["main", "main", *self.names[-2:]]))
        head, kept = on.head().version, on.to_arrow()["k"].to_pylist()
        match move:
            case "append":
                data = self.with_column(rows(*self.keys(self.draw.randint(1, 5))))
                on.append(data, merge_schema=True)
            case "overwrite":
                data = rows(*self.draw.sample(kept, len(kept) // 2), *self.keys(2))
                on.overwrite(self.with_column(data), merge_schema=True)
            case "compact" if kept:
                compact(on)
            case "rewind":
                back(on, self.draw.randint(0, head))
            case "branch":
                on.create_branch(f"fix{number}", self.draw.randint(0, head))
                self.names.append(f"fix{number}")
            case "publish":
                on.publish(self.draw.choice(self.names), expected_head=head)

    def with_column(self, data: pa.Table) -> pa.Table:
        """Return the rows, some with one column more."""
        if not self.is_widened or self.draw.random() < 0.7:
            return data
        return data.append_column("n", data["k"].cast(pa.int64()))

    def keys(self, count: int) -> range:
        self.next_key += count
        return range(self.next_key - count, self.next_key)

    def trigger(self) -> None:
        """Plan a batch and deliver it; now and then the driver dies in between."""
        if self.planned is None:
            self.planned = self.restarted(self.plan)
            if self.draw.random() < 0.4:
                return
        if self.planned is not None:
            self.restarted(self.read)

    def plan(self) -> Offset:
        end = self.stream.plan()
        self.check_plan(end)
        return end

    def read(self) -> None:
        assert self.planned is not None
        self.stream.read(self.planned)
        self.planned = None

    def restarted(self, act: Callable[[], T]) -> T | None:
        """Do something; restart the stream if its schema ends; give up if that does not help."""
        if self.is_stuck:
            return None
        try:
            return act()
        except SchemaChangedError:
            self.stream.restart()
        try:
            return act()
        except SchemaChangedError:
            self.is_stuck = True
            return None

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
            self.restarted(self.read)
        while not self.is_stuck:
            self.planned = self.restarted(self.plan)
            if self.planned is None or self.planned == self.stream.at:
                return
            self.restarted(self.read)


def run_course(seed: int) -> Course:
    """Play a history, and check what the stream is sent: at each plan, batch and at the end."""
    course = Course(seed)
    course.play()
    course.drain()
    stream, store = course.stream, course.table.metadata.store
    assert course.is_stuck or +stream.rows == rows_of(course.table.to_arrow())
    for start, end, feed in stream.batches:
        stream.restart()
        try:
            again = read_batch(store, stream.follower.read_between(start, end))
        except SchemaChangedError:
            assert course.is_widened
            continue
        assert sums(again) == sums(feed)
        assert course.is_widened or again.equals(feed)
    return course
