"""Commits of other schemas than the reader's: each is read with its own, columns found by id."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pytest

from fuse_stream.commit.plan import Intent, Staged
from fuse_stream.commit.stage import stage_rows
from fuse_stream.errors import SchemaChangedError
from fuse_stream.feed.follow import Follower, head_selection
from fuse_stream.feed.tasks import BlockRange, iter_block_rows
from fuse_stream.feed.views import Request
from fuse_stream.format.records import Operation
from fuse_stream.format.source_offset import Offset
from fuse_stream.objects.slots import Stored
from fuse_stream.recovery.target import Goal
from fuse_stream.table.handle import Table
from fuse_stream.testing.memory import MemoryStore
from tests.feed.batches import BLOCKS_SCHEMA, read_batch
from tests.recovery.histories import opened, rewind

Create = Callable[..., Table]
Row = tuple[object, ...]


def add(table: Table, **columns: Sequence[object] | pa.Array) -> None:
    table.append(pa.table(columns), merge_schema=True)


def back(table: Table, version: int) -> None:
    rewind(table.committer, Goal(version=version))


def short(feed: pa.Table) -> list[Row]:
    """Return (change, version, columns…) of each row, in order."""
    names = [name for name in feed.column_names if not name.startswith("_")]
    return sorted(
        (
            (row["_change_type"], row["_commit_version"], *(row[name] for name in names))
            for row in feed.to_pylist()
        ),
        key=lambda row: (row[1], repr(row)),
    )


class Stream:
    """A stream as Spark sees it, loaded when it is made."""

    def __init__(self, table: Table, **wanted: object) -> None:
        self.table = table
        self.store = table.metadata.store
        request = Request(**{"starting_version": 0, **wanted})  # type: ignore[arg-type]
        self.request = request
        selection = head_selection(self.store, request)
        self.columns = None if request.feed == "blocks" else selection.schema.columns
        self.at: Offset | None = None
        self.restart()

    def restart(self) -> None:
        self.follower = Follower(self.store, self.request, self.columns)

    def plan(self) -> tuple[Offset, Offset]:
        start = self.at or self.follower.first_offset()
        return start, self.follower.next_offset(start, is_limited=True)

    def read(self, start: Offset, end: Offset) -> list[Row]:
        return short(read_batch(self.store, self.follower.read_between(start, end)))

    def run(self) -> list[Row]:
        """Read up to the head, as a stream that came to each commit before the next was made."""
        rows: list[Row] = []
        for start, end in self.iter_commits():
            try:
                rows += self.read(start, end)
            except SchemaChangedError:
                if not rows:
                    raise
                break
            self.at = end
        return rows

    def iter_commits(self) -> Iterator[tuple[Offset, Offset]]:
        """Yield the offsets before and after each commit up to the head."""
        start = self.at or self.follower.first_offset()
        for version in range(start.version + 1, self.table.head().version + 1):
            snapshot_id = self.table.snapshot(version).snapshot_id
            end = dataclasses.replace(start, version=version, snapshot_id=snapshot_id)
            yield start, end
            start = end


def wanted_blocks(stream: Stream) -> list[tuple[int, str]]:
    """Return (version, change) of each block that a stream of blocks delivers."""
    return [
        (piece.version, piece.change_type)
        for start, end in stream.iter_commits()
        for unit in stream.follower.read_between(start, end).units
        for piece in unit.pieces
        if piece.is_wanted
    ]


@pytest.fixture
def table(create: Create) -> Table:
    """Row 1 at version 1, and row 2 at version 2 with the column b."""
    table = create()
    add(table, k=[1])
    add(table, k=[2], b=["x"])
    return table


def test_a_batch_is_the_same_before_and_after_its_column_went_and_came_again(table: Table) -> None:
    stream = Stream(table, starting_version=2)
    start, end = stream.plan()
    before = stream.read(start, end)
    back(table, 1)
    add(table, k=[3], b=["y"])
    stream.restart()

    assert before == stream.read(start, end) == [("insert", 2, 2, "x")]
    stream.at = end
    assert stream.run() == [("delete", 3, 2, "x"), ("insert", 4, 3, "y")]


def test_changes_and_diff_read_every_commit_with_its_own_columns(table: Table) -> None:
    back(table, 1)
    add(table, k=[3], b=["y"])

    assert short(table.changes(2).read_all()) == [
        ("insert", 2, 2, "x"),
        ("delete", 3, 2, "x"),
        ("insert", 4, 3, "y"),
    ]
    found = table.diff(2, 4).read_all().sort_by("k").to_pylist()
    assert [(row["_change_type"], row["k"], row["b"]) for row in found] == [
        ("delete", 2, "x"),
        ("insert", 3, "y"),
    ]


@pytest.mark.parametrize("columns", [None, ("k",)])
def test_a_predicate_is_bound_to_the_columns_of_each_commit(
    table: Table, columns: tuple[str, ...] | None
) -> None:
    back(table, 1)
    add(table, k=[3], b=["y"])
    stream = Stream(table, columns=columns, where="b = 'x'")
    last = ("x",) if columns is None else ()

    assert stream.run() == [("insert", 2, 2, *last), ("delete", 3, 2, *last)]
    feed = table.changes(1, where="b = 'x'", columns=columns).read_all()
    assert [row[:3] for row in short(feed)] == [("insert", 2, 2), ("delete", 3, 2)]
    nulls = Stream(table, columns=("k",), where="b IS NULL")
    assert nulls.run() == [("insert", 1, 1)]


def test_a_column_that_only_the_predicate_looks_at_may_have_been_of_another_type(
    create: Create,
) -> None:
    table = create()
    add(table, k=[1], b=[7])
    stream = Stream(table, columns=("k",), where="b = '7'")
    start, end = stream.plan()
    before = stream.read(start, end)
    back(table, 0)
    add(table, k=[2], b=["7"])
    stream.restart()

    assert stream.read(start, end) == before == [("insert", 1, 1)]
    stream.at = end
    assert stream.run() == [("delete", 2, 1), ("insert", 3, 2)]


@pytest.fixture
def of_structs(create: Create) -> Table:
    """Row 1 at version 1, and row 2 at version 2 with the fields s.y and s.z."""
    table = create(pa.schema([("k", pa.int64()), ("s", pa.struct([("x", pa.int64())]))]))
    add(table, k=[1], s=[{"x": 1}])
    add(table, k=[2], s=[{"x": 2, "y": "a", "z": [{"v": 7}]}])
    return table


@pytest.mark.parametrize("columns", [None, ("k",), ("k", "s")])
def test_a_field_that_a_commit_lacks_is_null_for_the_predicate(
    of_structs: Table, columns: tuple[str, ...] | None
) -> None:
    def versions(where: str) -> list[object]:
        found = Stream(of_structs, columns=columns, where=where).run()
        feed = of_structs.changes(1, where=where, columns=columns).read_all()
        assert short(feed) == found
        return [row[1] for row in found]

    assert versions("s.y = 'a'") == [2]
    assert versions("s.y IS NULL") == [1]
    assert versions("s.x = 1") == [1]
    back(of_structs, 0)
    add(of_structs, k=[3], s=[{"x": 3, "y": "a", "z": [{"v": 8}]}])
    assert versions("s.y = 'a'") == [2, 3, 4]


def test_the_blocks_feed_goes_past_commits_that_lack_a_field_of_the_predicate(
    of_structs: Table,
) -> None:
    stream = Stream(of_structs, feed="blocks", where="s.y = 'a'")

    assert wanted_blocks(stream) == [(2, "insert")]


def test_a_commit_with_a_column_that_the_stream_has_not_ends_it(table: Table) -> None:
    back(table, 1)
    stream = Stream(table)

    assert stream.run() == [("insert", 1, 1)]
    with pytest.raises(
        SchemaChangedError, match=r"option `columns`.*version=2, difference=\['\+ b string'\]"
    ):
        stream.run()
    back(table, 2)
    again = Stream(table)
    again.at = stream.at
    assert again.run() == [
        ("insert", 2, 2, "x"),
        ("delete", 3, 2, "x"),
        ("insert", 4, 2, "x"),
    ]


def test_with_columns_those_that_are_not_named_are_left_out_of_every_commit(table: Table) -> None:
    back(table, 1)

    assert Stream(table, columns=("k",)).run() == [
        ("insert", 1, 1),
        ("insert", 2, 2),
        ("delete", 3, 2),
    ]
    assert table.changes(2, columns=["k"]).read_all().num_rows == 2
    with pytest.raises(SchemaChangedError, match="version=2"):
        table.changes(2).read_all()


def test_a_rewind_that_takes_a_column_away_is_delivered_with_it(table: Table) -> None:
    stream = Stream(table)
    stream.run()
    back(table, 1)

    assert stream.run() == [("delete", 3, 2, "x")]
    add(table, k=[3])
    with pytest.raises(SchemaChangedError, match=r"version=4, difference=\['- b string'\]"):
        stream.run()
    anew = Stream(table)
    anew.at = stream.at
    assert anew.run() == [("insert", 4, 3)]


def test_the_append_feed_reads_old_commits_with_their_own_columns(table: Table) -> None:
    back(table, 1)
    add(table, k=[3], b=["y"])

    stream = Stream(table, feed="append", skip_change_commits=True)
    assert stream.run() == [
        ("insert", 1, 1, None),
        ("insert", 2, 2, "x"),
        ("insert", 4, 3, "y"),
    ]


def test_the_blocks_feed_names_the_columns_of_the_rows_that_went(table: Table) -> None:
    back(table, 1)
    ranges = [BlockRange(version=3, base=2, floor=0, first=0, stop=1)]

    (batch,) = iter_block_rows(table.metadata, "main", ranges, BLOCKS_SCHEMA)

    (row,) = batch.to_pylist()
    assert row["_change_type"] == "delete"
    assert json.loads(row["col_stats"])["b"]["max"] == "x"


def test_the_blocks_feed_prunes_each_commit_by_its_own_columns(table: Table) -> None:
    back(table, 1)
    add(table, k=[3], b=["y"])
    stream = Stream(table, feed="blocks", where="b = 'x'")

    assert wanted_blocks(stream) == [(2, "insert"), (3, "delete")]


def test_a_type_that_was_widened_and_later_otherwise_is_read_as_each_commit_has_it(
    create: Create,
) -> None:
    table = create(pa.schema([("k", pa.int8())]))
    add(table, k=pa.array([1], pa.int8()))
    add(table, k=pa.array([300], pa.int16()))
    back(table, 1)
    add(table, k=pa.array([2**40], pa.int64()))
    stream = Stream(table)

    assert stream.run() == [
        ("insert", 1, 1),
        ("insert", 2, 300),
        ("delete", 3, 300),
        ("insert", 4, 2**40),
    ]


def test_a_type_that_the_streams_cannot_hold_ends_it(create: Create) -> None:
    table = create()
    add(table, k=[1], d=pa.array([1], pa.int32()))
    add(table, k=[2], d=pa.array([2**40], pa.int64()))
    back(table, 1)
    stream = Stream(table)

    assert stream.run() == [("insert", 1, 1, 1)]
    with pytest.raises(SchemaChangedError, match=r"version=2.*~ d: long, not integer"):
        stream.run()


def test_a_stream_that_a_narrowed_type_ended_continues_after_the_type_is_widened_again(
    create: Create,
) -> None:
    table = create()
    add(table, k=[1], d=pa.array([1], pa.int32()))
    add(table, k=[2], d=pa.array([2**40], pa.int64()))
    back(table, 1)
    stream = Stream(table)
    stream.run()
    with pytest.raises(SchemaChangedError, match=r"widen it .*merge_schema"):
        stream.run()

    without = Stream(table, columns=("k",))
    without.at = stream.at
    assert without.run() == [("insert", 2, 2), ("delete", 3, 2)]
    add(table, k=pa.array([], pa.int64()), d=pa.array([], pa.int64()))
    again = Stream(table)
    again.at = stream.at
    assert again.run() == [("insert", 2, 2, 2**40), ("delete", 3, 2, 2**40)]


def test_a_field_of_a_struct_that_came_again_is_another_field(create: Create) -> None:
    table = create(pa.schema([("s", pa.struct([("x", pa.int64())]))]))
    add(table, s=[{"x": 1, "y": "old"}])
    back(table, 0)
    add(table, s=[{"x": 2, "y": "new"}])

    assert Stream(table).run() == [
        ("insert", 1, {"x": 1, "y": "old"}),
        ("delete", 2, {"x": 1, "y": "old"}),
        ("insert", 3, {"x": 2, "y": "new"}),
    ]


def test_a_name_in_another_case_is_another_column(table: Table) -> None:
    back(table, 1)
    add(table, k=[3], B=["y"])

    with pytest.raises(SchemaChangedError, match=r"version=2, difference=\['\+ b string'\]"):
        Stream(table, starting_version=2).run()
    with pytest.raises(SchemaChangedError, match="version=2"):
        Stream(table, starting_version=2, columns=("k",), where="B = 'x'").run()
    assert Stream(table, starting_version=2, columns=("k",)).run()[0] == ("insert", 2, 2)


def test_a_named_column_is_followed_past_commits_with_another_case_of_it_only(
    create: Create, store: MemoryStore
) -> None:
    table = create(pa.schema([("k", pa.int64()), ("a", pa.int64())]))
    add(table, k=[1], a=[10])
    both = pa.table({"k": [2], "a": [20], "A": [200]})

    def stage(head: Stored, before: Staged | None) -> Staged:
        return stage_rows(
            table.metadata, head, before, both, merge_schema=True, case_sensitive=True
        )

    table.committer.commit(Intent(operation=Operation.APPEND), stage)

    assert Stream(table, columns=("k", "A")).run() == [
        ("insert", 1, 1, None),
        ("insert", 2, 2, 200),
    ]
    assert Stream(table, columns=("k", "a")).run() == [("insert", 1, 1, 10), ("insert", 2, 2, 20)]
    assert Stream(table, columns=("K", "A")).run() == [
        ("insert", 1, 1, None),
        ("insert", 2, 2, 200),
    ]
    assert short(table.changes(1, columns=["k", "A"]).read_all()) == [
        ("insert", 1, 1, None),
        ("insert", 2, 2, 200),
    ]


def test_a_resync_compares_rows_by_the_columns_of_both_ends(table: Table) -> None:
    stream = Stream(table)
    stream.run()
    assert stream.at is not None
    back(table, 1)
    add(table, k=[2, 3], b=["x", "y"])
    stream.restart()
    end = stream.follower.resync_offset(stream.at)

    assert stream.read(stream.at, end) == [("insert", 4, 3, "y")]


def test_a_publish_sends_each_side_with_its_own_columns(create: Create, store: MemoryStore) -> None:
    table = create()
    add(table, k=[1])
    table.create_branch("x")
    branch = opened(store, "x")
    add(branch, k=[2], b=["x"])
    table.publish("x")
    table.create_branch("y", 1)
    other = opened(store, "y")
    add(other, k=[2], b=["x"])
    add(other, k=[3], c=[1.5])
    with pytest.raises(ValueError, match="changed the schema"):
        table.publish("y", expected_head=2)
    back(table, 1)

    assert short(table.changes(2, columns=["k"]).read_all()) == [
        ("insert", 2, 2),
        ("delete", 3, 2),
    ]


def test_pieces_of_the_streams_own_schema_carry_no_selection(table: Table) -> None:
    stream = Stream(table)
    batch = stream.follower.read_between(*stream.plan())

    carried = [piece.selection for unit in batch.units for piece in unit.pieces]
    assert carried[1] is None
    assert carried[0] is not None
    assert carried[0].schema.names() == ("k", "b")


def test_a_batch_whose_end_dropped_a_column_and_was_undone_is_read_again(create: Create) -> None:
    table = create()
    add(table, k=[1], b=[7])
    back(table, 0)
    add(table, k=[2], b=["x"])
    stream = Stream(table, starting_version=3)
    stream.run()
    back(table, 0)
    (planned,) = stream.iter_commits()
    back(table, 1)

    stream.restart()
    assert stream.read(*planned) == [("delete", 4, 2, "x")]
