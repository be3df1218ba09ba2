"""Draw from a seed a course of a table whose rows are changed in every way, beside a model.

The model is a multiset of rows for each version of each branch. Several handles are open all the
time, and most of them are behind. A delete, an update or a rewrite may meet another commit after it
has read its blocks and before it commits.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from fuse_stream.commit import rollup
from fuse_stream.errors import (
    ConflictError,
    CorruptObjectError,
    InvalidInputError,
    SchemaChangedError,
    SchemaMismatchError,
    SnapshotExpiredError,
)
from fuse_stream.feed.follow import Follower
from fuse_stream.feed.views import NO_LIMITS, Limits, Request
from fuse_stream.format import positions
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.records import Snapshot
from fuse_stream.format.source_offset import Offset
from fuse_stream.objects.origins import StoreWithOrigins
from fuse_stream.objects.slots import Metadata
from fuse_stream.recovery.target import Goal
from fuse_stream.refs.clone import clone
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound
from tests.dml.row_model import (
    BOTH,
    HISTORY,
    ROWS,
    Row,
    Rows,
    Where,
    matching,
    plus,
    rows_of,
    sums,
    updated,
)
from tests.feed.batches import read_batch
from tests.protocol.worlds import small_chunks
from tests.recovery.histories import rewind

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
WIDE = pa.schema([*SCHEMA, ("n", pa.int32())])
KEYS, TEXTS = range(12), ("a", "b", "c", None)
GRACE_S, AGE_S = 10, 60
REFUSALS = (ConflictError, InvalidInputError, SchemaMismatchError, SnapshotExpiredError)
"""Errors of operations on the history: none of them changes the table."""


@contextlib.contextmanager
def small_limits(*, fan_in: int) -> Iterator[None]:
    """Let roll-ups, filters and expiry come early."""
    with pytest.MonkeyPatch.context() as patch, small_chunks():
        patch.setattr(rollup, "FAN_IN", fan_in)
        patch.setattr(rollup, "FORCED_AT", 2 * fan_in)
        patch.setattr(positions, "MOST_SLICES", 2)
        yield


class Stream:
    """A stream on one branch with what it was sent so far."""

    def __init__(self, course: Course, limits: Limits) -> None:
        self.course = course
        self.limits = limits
        self.begin()

    def begin(self) -> None:
        self.rows: Rows = Counter()
        self.restart()
        self.at: Offset = self.follower.first_offset()

    def restart(self) -> None:
        table = self.course.opened("main")
        request = Request(limits=self.limits)
        self.follower = Follower(
            self.course.store, request, table.head().schema.columns, clock=self.course.clock
        )

    def trigger(self) -> None:
        """Deliver one batch; start again if what the stream has to read next has expired."""
        try:
            try:
                self.deliver()
            except SchemaChangedError:
                self.restart()
                self.deliver()
        except (SnapshotExpiredError, SchemaChangedError):
            self.begin()
        except CorruptObjectError as error:
            needed = error.context.get("version")
            if not isinstance(needed, int) or needed >= self.course.opened("main").head().floor:
                raise
            self.begin()  # a unit that it had planned has lost its blocks to vacuum

    def deliver(self) -> None:
        end = self.follower.next_offset(self.at, is_limited=True)
        feed = read_batch(self.course.store, self.follower.read_between(self.at, end))
        self.rows.update(sums(feed))
        self.at = end
        if end.index == 0:
            assert not -self.rows
            assert +self.rows == self.course.versions["main"][end.version]


class Course:
    """A random course of one table."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.clock = ManualClock(seed=seed)
        self.store = MemoryStore(clock=self.clock)
        self.is_wide = seed % 3 == 0
        shares = self.draw.choice([ROWS, HISTORY, BOTH])
        self.moves = [move for count, moves in shares.items() for move in moves.split() * count]
        create_table(
            self.store,
            first_schema(columns_of_arrow(SCHEMA)),
            cluster_by=self.draw.choice([(), ("k",), ("v", "k")]),
            properties={
                "fuse.block.rows": str(self.draw.choice([4, 20, 1000])),
                "fuse.cluster.depth": "1",
                "fuse.grace": f"{GRACE_S}s",
                "fuse.vacuum.age": f"{AGE_S}s",
            },
            clock=self.clock,
            probe_store=False,
        )
        self.rows: dict[str, Rows] = {"main": Counter()}
        """What each branch has now."""
        self.versions: dict[str, dict[int, Rows]] = {"main": {0: Counter()}}
        self.tags: dict[str, Rows] = {}
        self.handles: list[Table] = [self.opened("main") for _ in range(3)]
        self.trace: list[str] = []
        self.clones: list[tuple[StoreWithOrigins, Rows]] = []
        limits = [NO_LIMITS, Limits(rows=1), Limits(rows=3), Limits(commits=1)]
        self.streams = [Stream(self, self.draw.choice(limits)) for _ in range(2)]

    def opened(self, branch: str) -> Table:
        return open_table(self.store, branch=branch, clock=self.clock, probe_store=False)

    def any_handle(self, branch: str | None = None) -> Table:
        """Return an open handle, mostly one that is behind, or now and then a new one."""
        known = [each for each in self.handles if branch in {None, each.branch}]
        if not known or self.draw.random() < 0.2:
            names = list(self.rows) if branch is None else [branch]
            self.handles = self.handles[-6:]
            self.handles.append(self.opened(self.draw.choice(names)))
            return self.handles[-1]
        return self.draw.choice(known)

    def any_rows(self, most: int = 4) -> list[Row]:
        wide = self.is_wide and self.draw.random() < 0.4
        return [
            (
                self.draw.choice(KEYS),
                self.draw.choice(TEXTS),
                self.draw.choice([None, 1, 2]) if wide else None,
            )
            for _ in range(self.draw.randint(1, most))
        ]

    def as_data(self, table: Table, rows: list[Row]) -> pa.Table:
        has_n = "n" in table.schema.names or any(row[2] is not None for row in rows)
        schema = WIDE if has_n else SCHEMA
        columns = list(zip(*rows, strict=True))
        arrays = [pa.array(columns[at], field.type) for at, field in enumerate(schema)]
        return pa.table(arrays, schema=schema)

    def any_where(self, table: Table) -> Where:
        low, high, text = *sorted(self.draw.sample(KEYS, 2)), self.draw.choice("abc")
        found = [
            Where(f"k = {low}", lambda row: row[0] == low),
            Where(f"k < {low}", lambda row: row[0] < low),
            Where(f"k >= {low} AND k < {high}", lambda row: low <= row[0] < high),
            Where(f"k IN ({low}, {high})", lambda row: row[0] in {low, high}),
            Where(f"v = '{text}'", lambda row: row[1] == text),
            Where(f"v <> '{text}'", lambda row: row[1] not in {text, None}),
            Where("v IS NULL", lambda row: row[1] is None),
            Where(
                f"NOT (v = '{text}' OR k < {low})",
                lambda row: row[1] not in {text, None} and row[0] >= low,
            ),
        ]
        if self.draw.random() < 0.05:
            return Where("true", lambda row: True)
        if "n" in table.schema.names:
            found += [
                Where("n = 1", lambda row: row[2] == 1, names_n=True),
                Where("n IS NULL", lambda row: row[2] is None, names_n=True),
            ]
        return self.draw.choice(found)

    def any_values(self, table: Table) -> dict[str, object]:
        names = ["k", "v", *(["n"] if "n" in table.schema.names else [])]
        values = {
            "k": self.draw.choice(KEYS),
            "v": self.draw.choice(TEXTS),
            "n": self.draw.choice([None, 1, 2, 3]),
        }
        chosen = self.draw.sample(names, self.draw.choice([1, 1, 2]))
        return {name: values[name] for name in chosen}

    # ---- operations

    def play(self, steps: int) -> None:
        for _ in range(steps):
            self.clock.advance(self.draw.choice([0.001, 1, GRACE_S]))
            self.step()
            self.check()

    def step(self) -> None:
        table = self.any_handle()
        self.run(self.draw.choice(self.moves), table)
        self.settle(table.branch)

    def run(self, move: str, table: Table) -> None:
        self.trace.append(f"{table.branch}: {move}")
        getattr(self, f"do_{move}")(table)

    def settle(self, branch: str) -> Snapshot:
        """Note the rows of the versions that came."""
        head = self.opened(branch).head()
        known = self.versions[branch]
        for version in range(max(known) + 1, head.version + 1):
            known[version] = self.rows[branch]
        return head

    def meanwhile(self, table: Table) -> Callable[[int, int], None]:
        """Return a `progress` in which another handle commits, once, in some of the runs."""
        left = [self.draw.choice("append delete update overwrite compact rewind revert".split())]
        if self.draw.random() < 0.5:
            left.clear()

        def progress(_done: int, _total: int) -> None:
            if left and self.draw.random() < 0.5:
                self.settle(table.branch)
                move = left.pop()
                self.run(move, self.opened(table.branch))
                self.settle(table.branch)

        return progress

    def do_append(self, table: Table) -> None:
        rows = self.any_rows(self.draw.choice([3, 10]))
        table.append(self.as_data(table, rows), merge_schema=True)
        self.rows[table.branch] = plus(self.rows[table.branch], Counter(rows))

    def do_overwrite(self, table: Table) -> None:
        rows = self.any_rows(12)
        table.overwrite(self.as_data(table, rows), merge_schema=True)
        self.rows[table.branch] = Counter(rows)

    def do_delete(self, table: Table) -> None:
        where, first = self.any_where(table), self.rows[table.branch]
        try:
            result = table.delete(where.sql, progress=self.meanwhile(table))
        except InvalidInputError:
            assert where.names_n
            assert "n" not in table.schema.names
            return
        last = self.rows[table.branch]
        gone = matching(last, where)
        if result.snapshot is None:
            assert not gone or not matching(first, where)
            return
        assert result.deleted == gone.total() > 0
        self.rows[table.branch] = last - gone

    def do_update(self, table: Table) -> None:
        where, values = self.any_where(table), self.any_values(table)
        first = self.rows[table.branch]
        try:
            result = table.update(where.sql, values, progress=self.meanwhile(table))
        except InvalidInputError:
            assert where.names_n or "n" in values
            assert "n" not in table.schema.names
            return
        last = self.rows[table.branch]
        old, new = updated(last, where, values)
        if result.snapshot is None:
            assert not old or not updated(first, where, values)[0]
            return
        assert result.updated == old.total() > 0
        self.rows[table.branch] = last - old + new

    def do_compact(self, table: Table) -> None:
        limit = self.draw.choice([None, None, 2, 3])
        tiered = self.draw.random() < 0.3
        table.compact(limit, tiered=tiered, progress=self.meanwhile(table))

    def do_recluster(self, table: Table) -> None:
        if not table.head().cluster_key:
            return
        with contextlib.suppress(InvalidInputError):  # a rewind took the key back meanwhile
            table.recluster(self.draw.choice([None, 2, 4]), progress=self.meanwhile(table))

    def do_cluster(self, table: Table) -> None:
        table.cluster_by(self.draw.choice([(), ("k",), ("v", "k")]), on_conflict="replan")

    def do_rewind(self, table: Table) -> None:
        version = self.draw.choice(list(self.versions[table.branch]))
        with contextlib.suppress(*REFUSALS):
            rewind(table.committer, Goal(version=version))
            self.rows[table.branch] = self.versions[table.branch][version]

    def do_revert(self, table: Table) -> None:
        version = self.draw.choice(list(self.versions[table.branch])[-6:])
        known = self.versions[table.branch]
        if version - 1 not in known:
            return
        with contextlib.suppress(*REFUSALS):
            table.revert(version, on_conflict="replan")
            changes = Counter(known[version - 1])
            changes.subtract(known[version])
            self.rows[table.branch] = plus(self.rows[table.branch], changes)

    def do_branch(self, table: Table) -> None:
        if len(self.rows) > 3:
            return
        name, known = f"fix{len(self.rows)}", self.versions[table.branch]
        version = self.draw.choice(list(known)[-4:])
        with contextlib.suppress(*REFUSALS):
            table.create_branch(name, version)
            self.versions[name] = {at: rows for at, rows in known.items() if at <= version}
            self.rows[name] = known[version]

    def do_publish(self, table: Table) -> None:
        other = self.draw.choice(list(self.rows))
        with contextlib.suppress(*REFUSALS):
            table.publish(other, expected_head=table.head().version)
            self.rows[table.branch] = self.rows[other]

    def do_tag(self, table: Table) -> None:
        name, known = f"tag{len(self.tags)}", self.versions[table.branch]
        version = self.draw.choice(list(known)[-4:])
        with contextlib.suppress(*REFUSALS):
            table.create_tag(name, version)
            self.tags[name] = known[version]

    def do_expire(self, table: Table) -> None:
        table.expire(keep_last=self.draw.randint(1, 8))

    def do_vacuum(self, table: Table) -> None:
        for _ in range(self.draw.randint(1, 3)):
            self.clock.advance(AGE_S + 1)
            table.vacuum()
            for branch in self.rows:  # it commits fences on all branches
                self.settle(branch)

    def do_clone(self, table: Table) -> None:
        """Clone a version, and change a clone."""
        version = self.draw.choice(self.retained(table.branch))
        place = MemoryStore(clock=self.clock)
        clone(
            table.committer,
            Metadata(place, self.clock),
            version=version,
            origin_of=lambda _: self.store,
            probe_place=False,
        )
        rows = self.versions[table.branch][version]
        self.clones.append((StoreWithOrigins(place, [self.store]), rows))
        self.change_clone(self.draw.randrange(len(self.clones)))

    def change_clone(self, at: int) -> None:
        """Change the rows of a clone, and compare it with the model; vacuum keeps its blocks."""
        store, rows = self.clones[at]
        copy = open_table(store, clock=self.clock, probe_store=False)
        where, values = self.any_where(copy), self.any_values(copy)
        gone = matching(rows, where)
        assert copy.delete(where.sql).deleted == gone.total()
        where, left = self.any_where(copy), rows - gone
        old, new = updated(left, where, values)
        assert copy.update(where.sql, values).updated == old.total()
        if self.draw.random() < 0.5:
            copy.compact()
        rows = left - old + new
        again = open_table(store, clock=self.clock, probe_store=False)
        assert rows_of(copy.to_arrow()) == rows_of(again.to_arrow()) == rows
        assert plus(Counter(), sums(copy.changes(1).read_all())) == rows
        assert copy.fsck(deep=True).is_sound
        self.clones[at] = store, rows

    def do_fsck(self, table: Table) -> None:
        assert table.fsck(deep=True).is_sound

    def do_stream(self, _table: Table) -> None:
        self.draw.choice(self.streams).trigger()

    # ---- what must hold

    def check(self) -> None:
        """Compare the heads, and some versions, differences and changes, with the model."""
        for branch in self.rows:
            self.check_head(branch)
        branch, other = (self.draw.choice(list(self.rows)) for _ in range(2))
        kept, others = self.retained(branch), self.retained(other)
        self.check_version(branch, self.draw.choice(kept))
        self.check_change(branch, kept[-1])
        self.check_diff(branch, self.draw.choice(kept), other, self.draw.choice(others))

    def check_head(self, branch: str) -> None:
        table = self.any_handle(branch) if self.draw.random() < 0.5 else self.opened(branch)
        head, rows = table.head(), table.to_arrow()
        assert rows_of(rows) == self.rows[branch]
        assert len(rows) == head.summary.row_count == head.stored_rows - head.hidden_rows
        if branch == "main":
            assert_sound(self.store, table, since=head.floor)
        blocks = table.blocks()
        hidden = table.metadata.deletions.hidden_by(head.deletion_files)
        assert hidden == {block.id: block.hidden for block in blocks if block.hidden}
        assert ("deletion_files" in head.required_features) == bool(head.deletion_files)

    def retained(self, branch: str) -> list[int]:
        floor = self.opened(branch).head().floor
        return [version for version in self.versions[branch] if version >= floor]

    def check_version(self, branch: str, version: int) -> None:
        table = self.any_handle(branch)
        assert rows_of(table.to_arrow(version=version)) == self.versions[branch][version]

    def check_change(self, branch: str, version: int) -> None:
        """Check that what one commit delivers makes its version of the one before."""
        if version - 1 not in self.retained(branch):
            return
        known = self.versions[branch]
        try:
            feed = self.any_handle(branch).changes(version, version).read_all()
        except SchemaChangedError:
            assert self.is_wide
            return
        assert plus(known[version - 1], sums(feed)) == known[version]

    def check_diff(self, branch: str, a: int, other: str, b: int) -> None:
        found = self.any_handle().diff(f"{branch}@{a}", f"{other}@{b}").read_all()
        total = sums(found)
        assert plus(self.versions[branch][a], total) == self.versions[other][b]
        assert len(found) == sum(map(abs, total.values()))  # no row is in both

    def check_all(self) -> None:
        """Compare every retained version, tag and change with the model; look for damage."""
        for branch, known in self.versions.items():
            kept = self.retained(branch)
            for version in kept:
                self.check_version(branch, version)
            if kept[0] == kept[-1]:
                continue
            try:
                feed = self.opened(branch).changes(kept[0] + 1).read_all()
            except SchemaChangedError:
                assert self.is_wide
                for version in kept[1:]:
                    self.check_change(branch, version)
                continue
            for version in kept:
                upto = feed.filter(pa.compute.less_equal(feed["_commit_version"], version))
                assert plus(known[kept[0]], sums(upto)) == known[version]
        for name, rows in self.tags.items():
            assert rows_of(self.opened("main").to_arrow(version=name)) == rows
        for stream in self.streams:
            self.drain(stream)
        for at in range(len(self.clones)):
            self.change_clone(at)
        self.do_fsck(self.opened("main"))

    def drain(self, stream: Stream) -> None:
        for _ in range(500):
            before = stream.at
            stream.trigger()
            if stream.at == before:
                return
        raise AssertionError("a stream does not end")


def run_course(seed: int, *, steps: int = 25) -> Course:
    """Play a course, and check it after each step and at the end."""
    with small_limits(fan_in=2 + seed % 3):
        course = Course(seed)
        course.play(steps)
        course.check_all()
    return course
