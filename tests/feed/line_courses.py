"""Random histories of a table with branches, and a stream that reads it meanwhile."""

from __future__ import annotations

import contextlib
import random
from collections import Counter

import pyarrow as pa

from fuse_stream.errors import ConflictError, InvalidInputError
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


def run_course(seed: int) -> None:
    """Play a history, and check what the stream is sent: at each plan, batch and at the end."""
    course = Course(seed)
    course.play()
    course.drain()
    stream, store = course.stream, course.table.metadata.store
    assert +stream.rows == Counter(course.table.to_arrow()["k"].to_pylist())
    for start, end, feed in stream.batches:
        stream.restart()
        assert read_batch(store, stream.follower.read_between(start, end)).equals(feed)
