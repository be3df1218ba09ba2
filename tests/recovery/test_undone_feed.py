"""The feed of undone commits: exactly the rows that differ; its sum is the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuse_stream.errors import NotFoundError, StreamIdentityError
from fuse_stream.feed.changes import feed_schema
from fuse_stream.feed.follow import Follower
from fuse_stream.feed.tasks import plan_tasks, read_task
from fuse_stream.feed.views import NO_LIMITS, Limits, Request
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.source_offset import FIRST_READ, Offset
from fuse_stream.recovery.target import Goal
from fuse_stream.table.handle import Table, create_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from tests.conftest import SCHEMA
from tests.recovery.by_hand import compact
from tests.recovery.histories import keys, opened, raise_floor, rewind, rows

Create = Callable[..., Table]
Fold = Counter[int]


def back(table: Table, version: int | str) -> None:
    rewind(table.committer, Goal(version=version))


def folded(feed: pa.Table) -> Fold:
    total: Fold = Counter()
    for key, kind in zip(feed["k"].to_pylist(), feed["_change_type"].to_pylist(), strict=True):
        total[key] += 1 if kind == "insert" else -1
    return Counter({key: count for key, count in total.items() if count})


def sent(table: Table, version: int) -> list[tuple[str, int]]:
    feed = table.changes(version, version).read_all()
    return sorted(zip(feed["_change_type"].to_pylist(), feed["k"].to_pylist(), strict=True))


def followed(table: Table, limits: Limits = NO_LIMITS, *, first: int = 0) -> Iterator[pa.Table]:
    """Yield the batches of a stream that reads the commits from `first` on."""
    request = Request(limits=limits, starting_version=first)
    columns = table.head().schema.columns
    follower = Follower(table.metadata.store, request, columns, clock=ManualClock(seed=5))
    schema = feed_schema(table.head().schema)
    at = follower.first_offset()
    while (end := follower.next_offset(at, is_limited=True)) != at:
        batch = follower.read_between(at, end)
        found = [
            part
            for task in plan_tasks(batch)
            for part in read_task(table.metadata.store, task, schema)
        ]
        yield pa.Table.from_batches(found, schema)
        at = end


def test_the_feed_of_a_rewind_deletes_the_undone_rows(create: Create) -> None:
    table = create()
    for key in range(1, 6):
        table.append(rows(key))
    back(table, 2)

    assert sent(table, 6) == [("delete", 3), ("delete", 4), ("delete", 5)]
    back(table, 5)
    assert sent(table, 7) == [("insert", 3), ("insert", 4), ("insert", 5)]


def test_the_feed_leaves_out_a_compaction_between(create: Create) -> None:
    table = create()
    for key in range(1, 6):
        table.append(rows(key))
    compact(table)
    table.append(rows(6))
    back(table, 3)

    assert sent(table, 8) == [("delete", 4), ("delete", 5), ("delete", 6)]
    assert [block.row_count for block in table.block_diff(7, 8).removed] == [1, 1, 1]
    assert table.block_diff(7, 8).inserted == ()


def test_the_feed_leaves_out_rows_that_are_there_before_and_after(create: Create) -> None:
    table = create()
    table.append(rows(1, 2, 3))
    compact(table)
    table.overwrite(rows(2, 3, 4))
    back(table, 1)

    assert sent(table, 4) == [("delete", 4), ("insert", 1)]
    assert sorted(table.diff(3, 1).read_all()["k"].to_pylist()) == [1, 4]


def test_the_feed_of_a_revert_holds_the_rows_that_differ(create: Create) -> None:
    table = create()
    table.append(rows(1, 2, 3))
    table.overwrite(rows(2, 3, 4))
    table.append(rows(5))
    table.revert(2)

    assert sent(table, 4) == [("delete", 4), ("insert", 1)]


def test_the_feed_of_a_publish_holds_the_changes_of_the_branch(
    create: Create, store: MemoryStore
) -> None:
    table = create()
    table.append(rows(1, 2))
    table.create_branch("x")
    branch = opened(store, "x")
    branch.append(rows(3))
    compact(branch)
    branch.append(rows(4))
    table.append(rows(9))
    table.publish("x", expected_head=2)

    assert sent(table, 3) == [("delete", 9), ("insert", 3), ("insert", 4)]
    assert sorted(table.diff("x@", 2).read_all()["k"].to_pylist()) == [3, 4, 9]


def test_blocks_are_compared_if_the_history_has_expired(create: Create) -> None:
    table = create()
    for key in range(1, 6):
        table.append(rows(key))
    compact(table)
    table.create_tag("good", 3)
    back(table, "good")
    raise_floor(table, 6)

    assert sent(table, 7) == [("delete", 4), ("delete", 5)]
    assert {block.row_count for block in table.block_diff(6, 7).removed} == {5}


@pytest.mark.parametrize("limits", [Limits(), Limits(rows=1), Limits(commits=1)])
def test_a_rewind_is_never_split(create: Create, limits: Limits) -> None:
    table = create()
    for key in range(1, 6):
        table.append(rows(key))
    back(table, 1)
    table.overwrite(rows(1, 7))
    back(table, 1)
    follower = Follower(
        table.metadata.store,
        Request(limits=limits),
        table.head().schema.columns,
        clock=ManualClock(seed=5),
    )
    ends: list[Offset] = []
    at = Offset(
        table_id=table.table_id,
        branch_id="main",
        version=5,
        snapshot_id=table.snapshot(5).snapshot_id,
        index=0,
    )
    while (end := follower.next_offset(at, is_limited=True)) != at:
        ends.append(end)
        at = end

    assert at.version == 8
    assert {end.index for end in ends if end.version in {6, 8}} == {0}
    assert FIRST_READ not in {end.index for end in ends}


HISTORY = st.lists(
    st.tuples(
        st.sampled_from(["append"] * 4 + ["overwrite", "compact", "rewind", "rewind", "revert"]),
        st.lists(st.integers(0, 4), min_size=1, max_size=3),
        st.floats(0, 1),
    ),
    min_size=1,
    max_size=14,
)


def lived(history: list[tuple[str, list[int], float]]) -> Table:
    """Return a table with that history; operations that are refused are left out."""
    table = create_table(
        MemoryStore(),
        first_schema(columns_of_arrow(SCHEMA)),
        clock=ManualClock(),
        probe_store=False,
    )
    for kind, values, place in history:
        version = int(place * table.head().version)
        match kind:
            case "append":
                table.append(rows(*values))
            case "overwrite":
                table.overwrite(rows(*values))
            case "compact" if table.head().segments:
                compact(table)
                table.committer.head()
            case "rewind" if version < table.head().version:
                back(table, version)
            case "revert":
                try:
                    table.revert(version)
                except (ValueError, RuntimeError):
                    continue
    return table


@settings(max_examples=150)
@given(HISTORY)
def test_the_sum_of_the_feed_is_the_table(history: list[tuple[str, list[int], float]]) -> None:
    table = lived(history)
    before: Fold = Counter()

    for version in range(table.head().version + 1):
        feed = table.changes(version, version).read_all()
        operation = table.snapshot(version).operation
        now = Counter(keys(table.to_arrow(version=version)))
        change = Counter(now)
        change.subtract(before)
        assert folded(feed) == {key: count for key, count in change.items() if count}
        if operation in {"rewind", "revert"}:  # and no row on both sides
            assert feed.num_rows == sum(map(abs, change.values()))
        before = now


@settings(max_examples=100)
@given(HISTORY, st.sampled_from([Limits(), Limits(rows=2), Limits(commits=1)]))
def test_a_follower_stays_equal_to_the_table(
    history: list[tuple[str, list[int], float]], limits: Limits
) -> None:
    table = lived(history)
    total: Fold = Counter()

    for batch in followed(table, limits):
        total.update(folded(batch))
    assert +total == Counter(keys(table.to_arrow()))
    assert -total == Counter()


@settings(max_examples=100)
@given(HISTORY, st.floats(0, 1), st.floats(0, 1))
def test_a_diff_over_any_history_is_the_difference(
    history: list[tuple[str, list[int], float]], a: float, b: float
) -> None:
    table = lived(history)
    old, new = int(a * table.head().version), int(b * table.head().version)
    found = table.diff(old, new).read_all()
    was, now = (Counter(keys(table.to_arrow(version=version))) for version in (old, new))
    change = Counter(now)
    change.subtract(was)

    assert folded(found) == {key: count for key, count in change.items() if count}
    assert found.num_rows == sum(map(abs, change.values()))


def test_the_parts_of_a_large_net_commit_hold_every_row_once(
    create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuse_stream.feed.changes.MOST_TASK_BYTES", 50_000)
    table = create()
    for start in range(0, 40, 10):
        table.append(rows(*range(start, start + 10)))
    compact(table)
    table.overwrite(rows(*range(5, 50)))
    (before,) = followed(table)
    back(table, 4)

    (net,) = followed(table, first=7)

    assert folded(pa.concat_tables([before, net])) == Counter(range(40))
    assert net.num_rows == 15


def test_a_stream_on_a_branch_reads_it_and_fails_after_its_deletion(
    create: Create, store: MemoryStore
) -> None:
    table = create()
    table.append(rows(1))
    table.create_branch("x")
    branch = opened(store, "x")
    branch.append(rows(2))
    table.append(rows(3))
    request = Request(branch="x", starting_version=0)
    follower = Follower(store, request, table.head().schema.columns, clock=ManualClock(seed=5))
    end = follower.next_offset(follower.first_offset(), is_limited=True)

    assert (end.version, end.branch_id) == (2, branch.head().branch_id)
    table.delete_branch("x")
    with pytest.raises(NotFoundError, match="no such branch"):
        follower.next_offset(end, is_limited=True)
    table.create_branch("x")
    with pytest.raises(StreamIdentityError, match="deleted while the stream ran"):
        follower.next_offset(end, is_limited=True)
