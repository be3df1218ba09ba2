"""The feed over histories whose columns come, go and come again: it still adds up to the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from decimal import Decimal

import pyarrow as pa
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fuse_stream.errors import FuseError, SchemaChangedError, SchemaMismatchError
from fuse_stream.feed.follow import Follower
from fuse_stream.feed.views import Limits, Request
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.operations import KEEPS_ROWS
from fuse_stream.format.schema import Column, flaw_of
from fuse_stream.format.source_offset import Offset
from fuse_stream.reading.history import History
from fuse_stream.reading.line import Step as LineStep
from fuse_stream.reading.line import load_line
from fuse_stream.recovery.target import Goal
from fuse_stream.table.handle import Table, create_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound
from tests.feed.batches import read_batch
from tests.recovery.by_hand import compact
from tests.recovery.histories import opened, rewind

Rows = Counter[object]

FIRST = pa.schema([("k", pa.int16())])
COLUMNS: tuple[tuple[str, pa.DataType, object], ...] = (
    ("a", pa.int32(), 7),
    ("a", pa.int64(), 2**40),
    ("a", pa.string(), "x"),
    ("A", pa.int32(), 5),
    ("d", pa.decimal128(4, 1), Decimal("1.5")),
    ("d", pa.decimal128(6, 1), Decimal("10000.5")),
    ("d", pa.decimal128(6, 3), Decimal("1.125")),
    ("s", pa.struct([("x", pa.int32())]), {"x": 1}),
    ("s", pa.struct([("x", pa.int64()), ("y", pa.string())]), {"x": 2, "y": "z"}),
    ("s", pa.struct([("x", pa.int32()), ("y", pa.int32())]), {"x": 3, "y": 4}),
)
KEYS = (pa.int16(), pa.int16(), pa.int32(), pa.int64())

Step = tuple[str, list[int], pa.DataType, set[int], float]


def histories(*kinds: str) -> st.SearchStrategy[list[Step]]:
    step = st.tuples(
        st.sampled_from(kinds),
        st.lists(st.integers(0, 2), min_size=1, max_size=3),
        st.sampled_from(KEYS),
        st.sets(st.integers(0, len(COLUMNS) - 1), max_size=2),
        st.floats(0, 1),
    )
    return st.lists(step, min_size=2, max_size=10)


ANY = histories(
    *["append"] * 5, "overwrite", "compact", "rewind", "rewind", "rewind", "revert", "publish"
)
UNDONE = histories("append", "overwrite", "overwrite", "rewind", "rewind", "revert", "revert")
LIMITS = st.sampled_from([Limits(), Limits(rows=1), Limits(rows=3), Limits(commits=1)])


def batch_of(keys: list[int], key: pa.DataType, chosen: set[int]) -> pa.Table:
    columns = {"k": pa.array(keys, key)}
    for at in sorted(chosen):
        name, arrow, value = COLUMNS[at]
        columns[name] = pa.array([value] * len(keys), arrow)
    return pa.table(columns)


def take(table: Table, step: Step) -> None:
    """Do a step of a history; what the table refuses with an error of its own is left out."""
    kind, keys, key, chosen, place = step
    head = table.head()
    version = int(place * head.version)
    data = batch_of(keys, key, chosen)
    try:
        match kind:
            case "append":
                table.append(data, merge_schema=True)
            case "overwrite":
                table.overwrite(data, merge_schema=True)
            case "compact" if head.segments:
                compact(table)
            case "rewind" if version < head.version:
                rewind(table.committer, Goal(version=version))
            case "revert":
                table.revert(version)
            case "publish":
                name = f"b{head.version}"
                table.create_branch(name, version)
                opened(table.metadata.store, name).append(data, merge_schema=True)
                table.publish(name, expected_head=head.version)
    except FuseError:
        return


def new_table() -> Table:
    schema = first_schema(columns_of_arrow(FIRST))
    return create_table(MemoryStore(), schema, clock=ManualClock(), probe_store=False)


def known(value: object) -> object:
    """Return a value that is equal for rows that differ only in columns that are null."""
    if isinstance(value, Mapping):
        parts = ((name, known(part)) for name, part in value.items())
        return frozenset(item for item in parts if item[1] is not None)
    return value


def rows_of(table: pa.Table) -> Rows:
    return Counter(known(row) for row in table.to_pylist())


def sum_of(feed: pa.Table) -> Rows:
    total: Rows = Counter()
    for row in feed.to_pylist():
        kind = row.pop("_change_type")
        row.pop("_commit_version", None)
        row.pop("_commit_timestamp", None)
        total[known(row)] += 1 if kind == "insert" else -1
    return total


def plus(rows: Rows, change: Rows) -> Rows:
    total = Counter(rows)
    total.update(change)
    return Counter({row: count for row, count in total.items() if count})


def fits(columns: tuple[Column, ...], target: tuple[Column, ...]) -> bool:
    """Whether no column of `columns` is lost or narrowed in `target`; told by hand."""
    order = {"short": 0, "integer": 1, "long": 2, "decimal(4,1)": 10, "decimal(6,1)": 11}
    wanted = {column.name: column for column in target}
    for column in columns:
        other = wanted.get(column.name)
        if other is None or not fits(column.children, other.children):
            return False
        if column.type == other.type:
            continue
        low, high = order.get(column.type, 50), order.get(other.type, -50)
        if not (low < high and (high < 10) is (low < 10)) and (column.type, other.type) != (
            "decimal(4,1)",
            "decimal(6,3)",
        ):
            return False
    return True


def clash(columns: tuple[Column, ...], others: tuple[Column, ...]) -> bool:
    """Whether both have a name for different columns, or a column in types that do not fit."""
    pairs = [(a, b) for a in columns for b in others if a.name.casefold() == b.name.casefold()]
    return any(
        a.id != b.id
        or clash(a.children, b.children)
        or not (fits((a,), (b,)) or fits((b,), (a,)) or a.children)
        for a, b in pairs
    )


class Reader:
    """A stream that is loaded anew where its schema ends, and what it has delivered in all."""

    def __init__(self, table: Table, limits: Limits) -> None:
        self.table = table
        self.request = Request(starting_version=0, limits=limits)
        self.batches: list[tuple[tuple[Column, ...], Offset, Offset, pa.Table]] = []
        self.rows: Rows = Counter()
        self.at: Offset | None = None
        self.is_stuck = False
        self.load()

    def load(self) -> None:
        self.columns = self.table.head().schema.columns
        self.follower = self.opened(self.columns)

    def opened(self, columns: tuple[Column, ...]) -> Follower:
        store = self.table.metadata.store
        return Follower(store, self.request, columns, clock=ManualClock(seed=5))

    def run(self) -> None:
        """Read all there is; load the stream anew once where its schema ends."""
        try:
            self.read_on()
        except SchemaChangedError:
            self.load()
            try:
                self.read_on()
            except SchemaChangedError as error:
                self.assert_cannot_hold(error.context["version"])
                self.is_stuck = True

    def read_on(self) -> None:
        start = self.at or self.follower.first_offset()
        while (end := self.follower.next_offset(start, is_limited=True)) != start:
            feed = self.read(self.follower, start, end)
            self.batches.append((self.columns, start, end, feed))
            self.rows = plus(self.rows, sum_of(feed))
            self.at = start = end
            if end.index == 0:
                assert self.rows == rows_of(self.table.to_arrow(version=end.version))

    def read(self, follower: Follower, start: Offset, end: Offset) -> pa.Table:
        return read_batch(self.table.metadata.store, follower.read_between(start, end))

    def assert_cannot_hold(self, version: object) -> None:
        assert isinstance(version, int)
        assert self.at is not None
        base = next(step.base for step in self.steps(self.at, version) if step.version == version)
        snapshot, before = (self.table.snapshot(at) for at in (version, base))
        sides = [snapshot.schema.columns]
        if snapshot.operation not in KEEPS_ROWS | {"append"}:
            sides.append(before.schema.columns)
        assert not all(fits(side, self.columns) for side in sides)

    def steps(self, start: Offset, last: int) -> list[LineStep]:
        committer = self.table.committer
        history = History(committer.metadata, committer.head())
        line = load_line(history, start.version, history.load(last))
        return list(line.iter_steps(last))

    def check_again(self) -> None:
        """Check that every batch is the same for a stream with the same columns, if it finds them.

        It finds them in a version that is on the line of the head or of the batch.
        """
        for columns, start, end, feed in self.batches:
            try:
                again = self.read(self.opened(columns), start, end)
            except SchemaChangedError:
                lasts = self.table.head().version, end.version
                steps = [step for last in lasts for step in self.steps(start, last)]
                seen = {start.version, *(step.version for step in steps)}
                schemas = [self.table.snapshot(version).schema for version in seen]
                assert all(schema.columns != columns for schema in schemas)
            else:
                assert again.equals(feed)


@settings(max_examples=120)
@given(ANY | UNDONE, LIMITS, st.integers(1, 4))
def test_a_stream_adds_up_to_the_table_and_its_batches_stay_the_same(
    history: list[Step], limits: Limits, every: int
) -> None:
    table = new_table()
    reader = Reader(table, limits)
    for number, step in enumerate(history, start=1):
        take(table, step)
        if number % every == 0 and not reader.is_stuck:
            reader.run()

    reader.check_again()


@settings(max_examples=150)
@given(ANY | UNDONE)
def test_every_commit_adds_up_in_changes_and_in_diff(history: list[Step]) -> None:
    table = new_table()
    for step in history:
        take(table, step)
    content = [rows_of(table.to_arrow(version=at)) for at in range(table.head().version + 1)]

    for version in range(1, table.head().version + 1):
        snapshot, before = table.snapshot(version), table.snapshot(version - 1)
        assert flaw_of(snapshot.schema) is None
        try:
            feed = table.changes(version, version).read_all()
        except SchemaChangedError:
            assert not fits(before.schema.columns, snapshot.schema.columns)
        else:
            assert plus(content[version - 1], sum_of(feed)) == content[version]
        try:
            feed = table.diff(version - 1, version).read_all()
        except SchemaMismatchError:
            assert not fits(before.schema.columns, snapshot.schema.columns)
        else:
            assert plus(content[version - 1], sum_of(feed)) == content[version]
        if snapshot.operation == "revert":
            assert snapshot.target is not None
            was, undone = content[snapshot.target.version - 1], content[snapshot.target.version]
            gone, back = undone - was, was - undone
            assert plus(content[version - 1], Counter(back)) == plus(content[version], gone)


DATA = st.tuples(
    st.lists(st.integers(0, 2), min_size=1, max_size=3),
    st.sampled_from(KEYS),
    st.sets(st.integers(0, len(COLUMNS) - 1), max_size=2),
)


@settings(max_examples=150)
@given(st.lists(DATA, min_size=1, max_size=2), st.lists(DATA, max_size=2), DATA)
def test_a_revert_after_a_rewind_brings_the_rows_back_with_their_columns(
    before: list[tuple[list[int], pa.DataType, set[int]]],
    after: list[tuple[list[int], pa.DataType, set[int]]],
    last: tuple[list[int], pa.DataType, set[int]],
) -> None:
    table = new_table()
    for data in before:
        take(table, ("append", *data, 0))
    was, undone = table.snapshot(), table.head().version + 1
    assume(undone > 1)
    table.overwrite(table.schema.empty_table())
    rewind(table.committer, Goal(version=0))
    for data in after:
        take(table, ("append", *data, 0))
    head, held = table.head(), rows_of(table.to_arrow())
    try:
        table.revert(undone)
    except SchemaMismatchError:
        assert clash(was.schema.columns, head.schema.columns)
        assert table.head() == head
        return

    now = plus(held, rows_of(table.to_arrow(version=was.version)))
    assert rows_of(table.to_arrow()) == now
    assert flaw_of(table.head().schema) is None
    assert_sound(table.metadata.store, table)
    assert plus(held, sum_of(table.changes(head.version + 1).read_all())) == now
    version = table.head().version
    take(table, ("append", *last, 0))
    change: Rows = Counter(sum_of(table.diff(version, table.head().version).read_all()))
    compact(table)
    assert rows_of(table.to_arrow()) == plus(now, change)
