"""Pipelines of tables without Spark: queries that read feeds, keep state and write checkpoints.

A row is `10 * key + kind`: kind 0 is right, kind 1 comes from a bad deploy.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from fuse_stream.checkpoint.files import load_checkpoint, load_offsets
from fuse_stream.checkpoint.offsets import offset_value, parse_offsets
from fuse_stream.commit.committer import Committer, Outcome
from fuse_stream.commit.ledger import Batch, offsets_of
from fuse_stream.commit.plan import Intent
from fuse_stream.errors import InvalidInputError, NotFoundError
from fuse_stream.feed.consumer import open_follower
from fuse_stream.feed.views import NO_LIMITS, Limits, Request
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.records import Operation
from fuse_stream.format.source_offset import (
    Offset,
    SourcePosition,
    offset_from_json,
    offset_to_json,
)
from fuse_stream.storage.base import Store
from fuse_stream.storage.wrappers import StoreWrapper
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import Crash
from fuse_stream.testing.memory import MemoryStore
from tests.conftest import SCHEMA
from tests.feed.batches import read_batch
from tests.recovery.checkpoints import offsets_text, put
from tests.recovery.histories import SEEDS, keys, rows
from tests.recovery.streams import CheckpointFiles
from tests.recovery.test_rewind_sweep import Below

T = TypeVar("T")

Work = Callable[[list[int], set[int]], list[list[int]]]
"""Takes the rows of a batch and the state, which it may change; returns the rows for each table."""


class Beside(StoreWrapper):
    """Passes every call to `store`; before some of them, others do something."""

    overlaps = False  # so that the order of calls is fixed

    def __init__(self, store: Store, at_calls: Collection[int], others: Callable[[], None]) -> None:
        """Call `others` before the calls of these numbers, counted from 1."""
        super().__init__(store)
        self._at_calls, self._others = at_calls, others
        self._made = 0

    def call(self, verb: str, key: str, act: Callable[[Store, str], T]) -> T:
        self._made += 1
        if self._made in self._at_calls:
            self._others()
        return act(self.store, key)


class Death(BaseException):
    """The driver of a query dies."""


@dataclass
class Disk:
    """A store with the folders of tables and checkpoints."""

    store: Store = field(default_factory=MemoryStore)
    made: int = 0
    time: ManualClock | None = None
    """The clock of all tables, if the time matters."""

    def new_table(self, name: str) -> None:
        schema = first_schema(columns_of_arrow(SCHEMA))
        place = Below(self.store, f"{name}/")
        create_table(place, schema, clock=self.clock(), probe_store=False)

    def table(self, name: str, branch: str = "main") -> Table:
        place = Below(self.store, f"{name}/")
        return open_table(place, branch=branch, clock=self.clock(), probe_store=False)

    def clock(self) -> ManualClock:
        return self.time or ManualClock(seed=next(SEEDS))

    def checkpoint(self, name: str) -> Store:
        return Below(self.store, f"{name}/")

    def new_folder(self, name: str) -> str:
        self.made += 1
        return f"{name}-{self.made}"

    def begin(self, name: str) -> str:
        """Make the checkpoint of a new query; return its folder."""
        folder = self.new_folder(f"checkpoints/{name}")
        put(self.checkpoint(folder), {"metadata": json.dumps({"id": str(uuid.uuid4())})})
        return folder

    def content(self, name: str, branch: str = "main") -> list[int]:
        return keys(self.table(name, branch).to_arrow())


@dataclass
class Stage:
    """A query that reads tables, and a list of files, and writes tables.

    It is one run of the query: another one reads what the checkpoint holds.
    """

    disk: Disk
    name: str
    folder: str
    """The folder of the checkpoint."""
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    work: Work
    files: Mapping[int, list[int]] = field(default_factory=dict)
    """The rows of each entry of a file source."""
    has_state: bool = False
    limits: Limits = NO_LIMITS
    start: int | str | None = 0
    branch: str = "main"
    source_branch: str | None = None
    """The branch to read, if it is another one."""
    consumer: str | None = None

    def __post_init__(self) -> None:
        self.checkpoint = self.disk.checkpoint(self.folder)
        self.followers = [
            open_follower(
                self.disk.table(name).metadata.store,
                Request(
                    branch=self.source_branch or self.branch,
                    consumer=self.consumer,
                    feed="append",
                    starting_version=self.start,  # type: ignore[arg-type]
                    limits=self.limits,
                ),
                self.disk.table(name, self.source_branch or self.branch).head().schema.columns,
                clock=self.disk.clock(),
            )
            for name in self.sources
        ]

    def trigger(self, *, dies_after: int | None = None) -> bool:
        """Run the next batch; return False if there is nothing to read.

        `dies_after` is the number of steps after which the driver dies: the plan, a commit of each
        table, the state.
        """
        found = load_checkpoint(self.checkpoint)
        number = found.commits[-1] + 1 if found.commits else 0
        starts = self._offsets(number - 1)
        if found.offsets and found.offsets[-1] == number:
            ends = self._offsets(number)
        else:
            ends = self._plan(starts)
            if ends == starts:
                return False
            places = [
                offset_to_json(end) if isinstance(end, Offset) else {"logOffset": end}
                for end in ends
            ]
            put(self.checkpoint, {f"offsets/{number}": offsets_text(*places)})
        steps = iter(range(dies_after or 0, -1, -1)) if dies_after is not None else None
        self._live(steps)
        state = self._state(number)
        outputs = self.work(self._read(starts, ends), state)
        for name, values in zip(self.targets, outputs, strict=True):
            self._commit(name, number, values)
            self._live(steps)
        if self.has_state:
            version = {f"state/0/0/{number + 1}.snapshot": json.dumps(sorted(state))}
            put(self.checkpoint, version)
            self._live(steps)
        put(self.checkpoint, {f"commits/{number}": "v1\n{}"})
        return True

    def drain(self) -> None:
        while self.trigger():
            pass

    def _live(self, steps: Iterable[int] | None) -> None:
        if steps is not None and next(iter(steps)) == 0:
            raise Death

    def _plan(self, starts: list[Offset | int]) -> list[Offset | int]:
        ends: list[Offset | int] = []
        for follower, start in zip(self.followers, starts, strict=False):
            assert isinstance(start, Offset)
            ends.append(follower.next_offset(start, is_limited=True))
        if self.files:
            last = starts[-1]
            assert isinstance(last, int)
            ends.append(min(last + 1, max(self.files)))
        return ends

    def _offsets(self, number: int) -> list[Offset | int]:
        """Return the offsets of a batch; the first ones if there is none yet."""
        try:
            text = load_offsets(self.checkpoint, number)
        except NotFoundError:
            assert number == -1
            return [*(one.first_offset() for one in self.followers), *([-1] if self.files else [])]
        values = [offset_value(line) for line in parse_offsets(text).lines]
        found: list[Offset | int] = [offset_from_json(v) for v in values[: len(self.sources)]]
        return [*found, *(value["logOffset"] for value in values[len(self.sources) :])]

    def _read(self, starts: list[Offset | int], ends: list[Offset | int]) -> list[int]:
        found: list[int] = []
        for name, follower, start, end in zip(
            self.sources, self.followers, starts, ends, strict=False
        ):
            if start != end:
                assert isinstance(start, Offset)
                assert isinstance(end, Offset)
                batch = follower.read_between(start, end)
                feed = read_batch(self.disk.table(name).metadata.store, batch)
                if "delete" in feed["_change_type"].to_pylist():  # as feed=append
                    raise InvalidInputError("rows were removed", source=name)
                found += feed["k"].to_pylist()
        if self.files and starts[-1] != ends[-1]:
            assert isinstance(ends[-1], int)
            found += self.files.get(ends[-1], [])
        return found

    def _state(self, number: int) -> set[int]:
        if not self.has_state or number == 0:
            return set()
        return set(json.loads(self.checkpoint.get(f"state/0/0/{number}.snapshot")))

    def _commit(self, name: str, number: int, values: list[int]) -> None:
        table, text = self.disk.table(name, self.branch), load_offsets(self.checkpoint, number)
        positions = tuple(
            SourcePosition(offset=offset, path=f"memory:/{source}")
            for source, offset in zip(self.sources, self._offsets(number), strict=False)
            if isinstance(offset, Offset)
        )
        batch = Batch(
            application=self.name,
            query_id=load_checkpoint(self.checkpoint).query_id,
            batch_id=number,
            offsets=offsets_of(number, text),
            sources=positions or None,
            checkpoint=CheckpointFiles(self.checkpoint),
        )
        if values:
            intent = Intent(operation=Operation.APPEND, batch=batch)
            table.commit_rows(intent, rows(*values))
        else:
            table.committer.examine(batch)


@contextmanager
def dying_before(table: str) -> Iterator[None]:
    """Let the process that commits to several tables die before it commits to `table`."""
    commit = Committer.commit

    def die(self: Committer, *args: object, **options: object) -> Outcome:
        if table in self.metadata.store.url:
            raise Crash
        return commit(self, *args, **options)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch, suppress(Crash):
        patch.setattr(Committer, "commit", die)
        yield
        raise AssertionError("it has committed to all tables")


def keep_all(values: list[int], _state: set[int]) -> list[list[int]]:
    return [values]


def first_of_key(values: list[int], state: set[int]) -> list[list[int]]:
    """Keep the first row of each key; drop the bad ones, but remember their keys."""
    kept = []
    for value in values:
        if value // 10 not in state:
            state.add(value // 10)
            kept.append(value)
    return [[value for value in kept if value % 10 == 0]]


def every_third_beside(values: list[int], _state: set[int]) -> list[list[int]]:
    """Write all rows to one table, and few of them to another."""
    return [values, [value for value in values if value // 10 % 3 == 0]]
