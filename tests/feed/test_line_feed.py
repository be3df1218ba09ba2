"""A stream along the line: what was undone before it came is never delivered."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import pytest

from fuse_stream.errors import InvalidInputError, SnapshotExpiredError, StreamIdentityError
from fuse_stream.feed.changes import load_diff
from fuse_stream.feed.diff import NetDiff
from fuse_stream.feed.offsets import steps_ahead
from fuse_stream.feed.tasks import iter_block_rows, plan_block_tasks
from fuse_stream.feed.views import Limits
from fuse_stream.format.records import Snapshot
from fuse_stream.format.source_offset import Offset
from fuse_stream.objects.slots import Stored
from fuse_stream.reading.history import History
from fuse_stream.reading.line import Line, Run, Step, load_line
from fuse_stream.table.handle import Table
from tests.feed.batches import BLOCKS_SCHEMA, read_batch
from tests.feed.line_courses import Stream, back, new_table, run_course
from tests.kit.strides import seeds
from tests.recovery.histories import opened, raise_floor, rows

Ahead = tuple[int | None, Iterator[Step]]

COURSES = 60


@seeds(20, COURSES)
def test_a_stream_is_never_sent_what_was_undone_before_it_came(seed: int) -> None:
    run_course(seed)


def by_number(history: History, start: int, end: Stored) -> Line:
    last = end.snapshot.version
    runs = (Run(start, start + 1, last),) if last > start else ()
    return Line(start=start, runs=runs)


def of_the_head(history: History, start: int, _end: Stored) -> Line:
    return load_line(history, start, history.head)


def from_the_parent(history: History, snapshot: Snapshot, *, base: int | None) -> NetDiff:
    return load_diff(history, snapshot, base=None if base is None else snapshot.version - 1)


def without_what_was_begun(start: Offset, line: Line, last: int) -> Ahead:
    is_within = start.index > 0 and not start.is_undecided
    settled = dataclasses.replace(start, index=0) if is_within else start
    return steps_ahead(settled, line, last)


RULES: dict[str, tuple[str, Callable[..., object]]] = {
    "a new end is on the line": ("follow.load_line", by_number),
    "a batch is read along the line of its end": ("follow.load_line", of_the_head),
    "a rewind is the difference from its base": ("changes.load_diff", from_the_parent),
    "what was begun is finished": ("follow.steps_ahead", without_what_was_begun),
}


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_of_the_line_some_stream_is_wrong(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, instead = RULES[rule]
    monkeypatch.setattr(f"fuse_stream.feed.{place}", instead)

    assert any(is_wrong(seed) for seed in range(COURSES))


def is_wrong(seed: int) -> bool:
    try:
        run_course(seed)
    except (AssertionError, StreamIdentityError):
        return True
    return False


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


def test_history_leaves_nothing_out(table: Table) -> None:
    table.append(rows(1))
    table.append(rows(2))
    back(table, 1)

    stream = Stream(table, is_history=True)
    feed = stream.read(stream.plan())
    assert feed.equals(table.changes(1).read_all())
    assert feed["_commit_version"].to_pylist() == [1, 2, 3]


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
    (found,) = iter_block_rows(table.metadata, "main", task.ranges, BLOCKS_SCHEMA)
    planned = [(p.change_type, p.block.id) for unit in batch.units for p in unit.pieces]
    assert planned == list(
        zip(found["_change_type"].to_pylist(), found["block_id"].to_pylist(), strict=True)
    )
    assert [kind for kind, _ in planned] == ["delete"]


@pytest.fixture
def table() -> Table:
    return new_table()
