"""Offsets and limits: any way of cutting the feed delivers each block once, in order."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.errors import StreamIdentityError
from fuse_stream.feed.changes import Piece, Unit
from fuse_stream.feed.offsets import (
    Batch,
    plan_end,
    plan_slices,
    steps_ahead,
)
from fuse_stream.feed.tasks import plan_tasks
from fuse_stream.feed.views import NO_LIMITS, Limits
from fuse_stream.format.records import Block
from fuse_stream.format.schema import Schema
from fuse_stream.format.source_offset import (
    FIRST_READ,
    FROM_NOW,
    Offset,
    offset_from_json,
    offset_to_json,
)
from fuse_stream.reading.line import Line, Run
from fuse_stream.reading.scan import Selection
from fuse_stream.reading.tasks import MOST_TASK_BYTES, OPEN_BYTES


def offset(version: int, index: int = 0) -> Offset:
    return Offset(
        table_id="t", branch_id="main", version=version, snapshot_id=f"s{version}", index=index
    )


def piece(block_id: str, rows: int = 1, size: int = 1, *, is_wanted: bool = True) -> Piece:
    block = Block(
        id=block_id,
        row_count=rows,
        block_size=size,
        file_size=size,
        sha256="",
        schema_id=0,
        col_stats={},
        col_metas={},
        compression="zstd",
    )
    return Piece(block=block, version=0, timestamp_us=0, is_wanted=is_wanted)


def commit(version: int, *pieces: Piece, is_table: bool = False) -> Unit:
    return Unit(
        version=version,
        snapshot_id=f"s{version}",
        base=None if is_table else version - 1,
        pieces=pieces,
    )


@dataclasses.dataclass(frozen=True)
class Feed:
    """A table's history: what was in it at one version, and the commits around it."""

    table: Unit
    commits: dict[int, Unit]

    @property
    def head(self) -> int:
        return max(self.commits)

    def ahead(self, start: Offset, last: int) -> Iterator[Unit]:
        table_version, commits = versions_ahead(start, last)
        if table_version is not None:
            assert table_version == self.table.version
            yield self.table
        for version in commits:
            yield self.commits[version]


def versions_ahead(start: Offset, last: int) -> tuple[int | None, range]:
    """Return what `steps_ahead` yields on a line without a rewind, as (table, versions)."""
    runs = () if last <= start.version else (Run(start.version, start.version + 1, last),)
    table_version, steps = steps_ahead(start, Line(start=start.version, runs=runs), last)
    found = list(steps)
    assert [step.base + 1 for step in found] == [step.version for step in found]
    return table_version, range(found[0].version, last + 1) if found else range(0)


sizes = st.integers(0, 20)


@st.composite
def feeds(draw: st.DrawFn) -> Feed:
    def blocks(prefix: str, most: int) -> tuple[Piece, ...]:
        return tuple(
            piece(f"{prefix}.{place}", draw(sizes), draw(sizes), is_wanted=draw(st.booleans()))
            for place in range(draw(st.integers(0, most)))
        )

    first = draw(st.integers(1, 3))
    commits = {n: commit(n, *blocks(str(n), 4)) for n in range(1, first + draw(st.integers(1, 8)))}
    return Feed(table=commit(first, *blocks("table", 8), is_table=True), commits=commits)


some_limits = st.builds(
    Limits,
    rows=st.none() | st.integers(1, 30),
    bytes=st.none() | st.integers(1, 30),
    commits=st.none() | st.integers(1, 4),
)


def ids(units: Iterator[Unit] | list[Unit]) -> list[str]:
    return [piece.block.id for unit in units for piece in unit.pieces]


def tasks_of(units: Iterator[Unit]) -> list[tuple[Piece, ...]]:
    schema = Schema(id=0, last_column_id=0, columns=())
    batch = Batch(selection=Selection(schema=schema, read=schema), units=tuple(units))
    return [task.pieces for task in plan_tasks(batch)]


def follow(feed: Feed, start: Offset, limits: Iterator[Limits]) -> Iterator[tuple[Offset, Offset]]:
    """Yield the batches of a stream that runs to the head, each under the next limits."""
    last = feed.table.version if start.index == FIRST_READ and start.is_undecided else feed.head
    while True:
        end = plan_end(start, feed.ahead(start, last), next(limits))
        last = feed.head
        if end == start:
            return
        yield start, end
        start = end


@given(feed=feeds(), data=st.data(), from_table=st.booleans())
def test_every_block_is_delivered_once_and_in_order_under_any_limits(
    feed: Feed, data: st.DataObject, *, from_table: bool
) -> None:
    start = offset(0, FIRST_READ) if from_table else offset(0)
    limits = iter(lambda: data.draw(some_limits), None)

    delivered = [
        piece.block.id
        for first, last in follow(feed, start, limits)
        for part in plan_slices(first, last, feed.ahead(first, last.version))
        for piece in part.pieces
    ]

    later = [unit for n, unit in feed.commits.items() if n > feed.table.version or not from_table]
    assert delivered == ids(([feed.table] if from_table else []) + later)


@given(feed=feeds(), limits=some_limits, from_table=st.booleans())
def test_a_batch_is_whole_commits_within_the_limits_or_a_part_of_one(
    feed: Feed, limits: Limits, *, from_table: bool
) -> None:
    start = offset(0, FIRST_READ) if from_table else offset(0)

    for first, last in follow(feed, start, iter(lambda: limits, None)):
        parts = list(plan_slices(first, last, feed.ahead(first, last.version)))
        taken = [[piece.block for piece in part.pieces if piece.is_wanted] for part in parts]
        blocks = [block for part in taken for block in part]
        within = (limits.rows is None or sum(b.row_count for b in blocks) <= limits.rows) and (
            limits.bytes is None or sum(b.file_size for b in blocks) <= limits.bytes
        )
        assert within or len(blocks) == 1
        assert limits.commits is None or len([part for part in taken if part]) <= limits.commits
        assert last.index == 0 or len([part for part in taken if part]) == 1


@given(feeds(), some_limits)
def test_the_end_of_the_first_batch_alone_tells_what_it_holds(feed: Feed, limits: Limits) -> None:
    start = offset(0, FIRST_READ)
    end = plan_end(start, feed.ahead(start, feed.table.version), limits)

    assert end.version == feed.table.version
    assert end != start
    assert versions_ahead(start, end.version) == (feed.table.version, range(0))


def test_a_stream_from_now_on_starts_with_nothing() -> None:
    assert versions_ahead(offset(0, FROM_NOW), 7) == (None, range(0))


def test_index_zero_is_the_end_of_its_commit() -> None:
    assert versions_ahead(offset(3), 5) == (None, range(4, 6))


def test_a_positive_index_lies_inside_its_commit() -> None:
    assert versions_ahead(offset(3, 1), 5) == (None, range(3, 6))


def test_a_negative_index_counts_what_is_left_of_the_table() -> None:
    table = commit(3, *(piece(name) for name in "abcde"), is_table=True)

    end = plan_end(offset(0, FIRST_READ), [table], Limits(rows=2))

    assert end == offset(3, -3)
    assert versions_ahead(end, 5) == (3, range(4, 6))


def test_a_first_full_read_ends_its_batch() -> None:
    table = commit(3, piece("a"), piece("b"), is_table=True)

    assert plan_end(offset(3, -1), [table, commit(4, piece("c"))], NO_LIMITS) == offset(3)


def test_a_commit_is_split_only_if_it_alone_is_over_the_limit() -> None:
    huge = commit(2, *(piece(name) for name in "bcdef"))
    units = [commit(1, piece("a")), huge]

    before = plan_end(offset(0), units, Limits(rows=3))
    inside = plan_end(before, [huge], Limits(rows=3))
    after = plan_end(inside, [huge], Limits(rows=3))

    assert [before, inside, after] == [offset(1), offset(2, 3), offset(2)]


def test_a_commit_that_changes_no_row_costs_nothing() -> None:
    units = [commit(1), commit(2, piece("a")), commit(3), commit(4, piece("b"))]

    assert plan_end(offset(0), units, Limits(commits=1)) == offset(3)


def test_units_beyond_the_limit_are_not_made() -> None:
    made = []

    def units() -> Iterator[Unit]:
        for version in range(1, 1000):
            made.append(version)
            yield commit(version, piece(str(version)))

    plan_end(offset(0), units(), Limits(commits=2))

    assert made == [1, 2, 3]


def test_the_text_of_an_offset_is_fixed() -> None:
    text = json.dumps(offset_to_json(offset(7, -2)))

    assert text == (
        '{"table_id": "t", "branch_id": "main", "version": 7, "snapshot_id": "s7", "index": -2}'
    )


def test_an_offset_survives_its_text() -> None:
    item = json.loads(json.dumps(offset_to_json(offset(7, 3))))

    assert offset_from_json(item) == offset(7, 3)


@pytest.mark.parametrize(
    "item",
    [
        {},
        {"version": 7},
        {**offset_to_json(offset(7)), "more": 1},
        {**offset_to_json(offset(7)), "version": "7"},
        {**offset_to_json(offset(7)), "version": -1},
    ],
)
def test_an_offset_of_another_source_is_refused(item: dict[str, object]) -> None:
    with pytest.raises(StreamIdentityError, match="another kind of source"):
        offset_from_json(item)


@pytest.mark.parametrize("index", [3, -3, -1])
def test_an_offset_that_counts_blocks_that_are_not_there_is_refused(index: int) -> None:
    two_blocks = commit(3, piece("a"), piece("b"))

    with pytest.raises(StreamIdentityError, match="counts blocks"):
        list(plan_slices(offset(3, index), offset(3), [two_blocks]))


def test_many_small_blocks_are_few_tasks() -> None:
    units = [commit(n, piece(str(n), 2000, 50_000)) for n in range(1, 1001)]

    tasks = tasks_of(plan_slices(offset(0), offset(1000), units))

    assert len(tasks) == 4
    assert max(map(len, tasks)) - min(map(len, tasks)) <= 1
    assert [piece.block.id for task in tasks for piece in task] == ids(units)


def test_a_few_small_blocks_are_one_task() -> None:
    units = [commit(n, piece(str(n))) for n in range(1, 20)]

    assert len(tasks_of(plan_slices(offset(0), offset(19), units))) == 1


def test_big_blocks_are_a_task_each() -> None:
    size = MOST_TASK_BYTES - OPEN_BYTES
    units = [commit(1, *(piece(name, size=size) for name in "abc"))]

    assert [len(task) for task in tasks_of(plan_slices(offset(0), offset(1), units))] == [1, 1, 1]


def test_blocks_that_hold_no_wanted_row_are_not_read() -> None:
    units = [commit(1, piece("a", is_wanted=False), piece("b"))]

    (task,) = tasks_of(plan_slices(offset(0), offset(1), units))

    assert [piece.block.id for piece in task] == ["b"]


def test_without_limits_a_batch_goes_to_the_head() -> None:
    units = [commit(n, piece(str(n))) for n in range(1, 20)]

    assert plan_end(offset(0), units, NO_LIMITS) == offset(19)
