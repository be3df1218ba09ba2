"""Publish a branch: as one snapshot, and without an unnoticed loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

from fuse_stream.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    SchemaMismatchError,
    StreamIdentityError,
)
from fuse_stream.format.records import Operation
from fuse_stream.recovery.target import Goal
from fuse_stream.storage.base import ObjectInfo
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.histories import keys, opened, rewind, rows
from tests.recovery.streams import CheckpointFiles, Query

Create = Callable[..., Table]
OLD = "11111111-2222-3333-4444-555555555555"


@dataclass(frozen=True)
class Rehearsed:
    """A query on main that has run five batches, and its fork, which runs on the branch `try`."""

    query: Query
    branch: Table
    fork: MemoryStore

    @property
    def main(self) -> Table:
        return self.query.table

    def on(self, table: Table) -> Query:
        """Return the fork's query as it is after a start, with a sink of its own."""
        name = table.committer.branch.name
        return Query(opened(table.metadata.store, name), self.fork, plus=100)


def rehearse(main: Table, store: MemoryStore, *, after_batch: int) -> Rehearsed:
    query = Query(main).begin(OLD)
    query.run(5)
    main.create_branch("try")
    branch = opened(store, "try")
    fork = MemoryStore()
    pairs = ((query.checkpoint, fork),)
    rewind(branch.committer, Goal(after_batch=after_batch), checkpoints=pairs)
    return Rehearsed(query=query, branch=branch, fork=fork)


@pytest.fixture
def forked(create: Create, store: MemoryStore) -> Rehearsed:
    """The fork has run no batch after batch 1."""
    return rehearse(create(), store, after_batch=1)


@pytest.fixture
def table(create: Create) -> Table:
    """Three commits, and a branch that forks off the second with one of its own."""
    table = create()
    for key in range(1, 4):
        table.append(rows(key))
    table.create_branch("fix")
    return table


def test_publish_replaces_the_head_that_the_branch_forked_from(
    table: Table, store: MemoryStore
) -> None:
    branch = opened(store, "fix")
    branch.append(rows(10))
    last = branch.overwrite(rows(11), message="mended")

    done = table.publish("fix", message="mended", author="anna")

    assert keys(table.to_arrow()) == [11]
    assert (done.snapshot.operation, done.snapshot.version) == (Operation.PUBLISH, 4)
    assert (done.snapshot.message, done.snapshot.author) == ("mended", "anna")
    assert (done.source, done.lost) == (last, ())
    assert done.snapshot.timestamp_us > last.timestamp_us
    table.append(rows(12))
    branch.append(rows(13))
    assert keys(table.to_arrow()) == [11, 12]
    assert keys(branch.to_arrow()) == [11, 13]


def test_a_branch_written_by_a_clock_that_is_ahead_is_published(
    table: Table, store: MemoryStore
) -> None:
    ahead = ManualClock(seed=77)
    ahead.advance(100)
    last = opened(store, "fix", ahead).append(rows(10))

    assert table.publish("fix").snapshot.timestamp_us == last.timestamp_us + 1


def test_a_head_with_new_commits_is_replaced_only_if_it_is_named(
    table: Table, store: MemoryStore
) -> None:
    opened(store, "fix").append(rows(10))
    lost = [table.append(rows(4)), table.append(rows(5))]

    with pytest.raises(ConflictError, match="both branches have moved") as caught:
        table.publish("fix")
    assert (caught.value.context["forked_at"], caught.value.context["lost_commits"]) == (3, 2)
    with pytest.raises(ConflictError, match="not the expected one"):
        table.publish("fix", expected_head=4)
    done = table.publish("fix", expected_head=5)

    assert done.lost == tuple(reversed(lost))
    assert keys(table.to_arrow()) == [1, 2, 3, 10]
    assert keys(table.to_arrow(version=5)) == [1, 2, 3, 4, 5]


def test_a_publish_without_new_commits_is_refused(table: Table) -> None:
    with pytest.raises(InvalidInputError, match="nothing to publish"):
        table.publish("fix")
    table.append(rows(4))
    with pytest.raises(InvalidInputError, match="nothing to publish"):
        table.publish("fix", expected_head=4)
    with pytest.raises(InvalidInputError, match="published to another"):
        table.publish("main")
    with pytest.raises(NotFoundError, match="no such branch"):
        table.publish("nope")


def test_main_can_be_published_to_a_branch(table: Table, store: MemoryStore) -> None:
    table.append(rows(4))
    branch = opened(store, "fix")

    branch.publish("main")

    assert keys(branch.to_arrow()) == [1, 2, 3, 4]
    assert keys(opened(store, "fix").to_arrow(version=3)) == [1, 2, 3]


def test_a_fixed_query_moves_to_main_with_its_branch(forked: Rehearsed) -> None:
    forked.on(forked.branch).run(4)

    forked.main.publish("try")
    forked.on(forked.main).run(1)

    assert keys(forked.main.to_arrow()) == [0, 1, 102, 103, 104, 105, 106]
    with pytest.raises(StreamIdentityError, match="retired"):
        forked.query.run(1)


def test_the_error_for_a_batch_published_with_later_ones_names_branch_and_choices(
    forked: Rehearsed,
) -> None:
    main, pairs = forked.main, ((forked.fork, MemoryStore()),)
    forked.on(forked.branch).run(3)
    main.publish("try")
    forked.on(main).run(1)

    with pytest.raises(
        InvalidInputError, match="batch 1 or an earlier one, or batch 4 or"
    ) as caught:
        rewind(main.committer, Goal(after_batch=3), checkpoints=pairs)
    assert caught.value.context["found_in"] == "try@8"
    main.delete_branch("try")
    with pytest.raises(InvalidInputError) as caught:
        rewind(main.committer, Goal(after_batch=3), checkpoints=pairs)
    assert str(caught.value.context["found_in"]).endswith("@8")
    found = [
        rewind(main.committer, Goal(after_batch=batch), checkpoints=pairs, dry_run=True)
        for batch in (1, 4)
    ]
    assert [(one.obstacles, one.target and one.target.version) for one in found] == [
        ((), 2),
        ((), 6),
    ]


def test_a_rewind_of_a_published_branch_is_not_taken_for_a_rewind_of_main(
    forked: Rehearsed,
) -> None:
    forked.on(forked.branch).run(1)
    forked.main.publish("try")

    with pytest.raises(AlreadyExistsError, match="name a new one"):
        rewind(
            forked.main.committer,
            Goal(version=3),
            checkpoints=((forked.query.checkpoint, forked.fork),),
        )
    assert forked.main.head().operation is Operation.PUBLISH


def test_queries_that_would_go_back_are_named_before_anything_is_written(
    create: Create, store: MemoryStore
) -> None:
    query = Query(create()).begin(OLD)
    query.run(2)
    query.table.create_branch("try")
    query.run(2)
    opened(store, "try").append(rows(50))

    with pytest.raises(StreamIdentityError, match="would go back") as caught:
        query.table.publish("try", expected_head=4)
    assert caught.value.context["applications"] == ["default"]
    assert query.table.head().version == 4
    query.table.publish("try", expected_head=4, retire=["default"])

    assert keys(query.table.to_arrow()) == [0, 1, 50]
    with pytest.raises(StreamIdentityError, match="retired"):
        query.run(1)


def test_a_rival_commit_is_a_conflict_although_publish_plans_again(
    table: Table, store: MemoryStore
) -> None:
    class Overtaken(FaultyStore):
        def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
            if key == "_ss/main/00000000000000000004_v1.json":
                opened(store).append(rows(4))
            super().put_if_absent(key, data)

    opened(store, "fix").append(rows(10))

    for on_conflict, match in (("error", "committed first"), ("replan", "both branches")):
        fresh = opened(Overtaken(store)) if on_conflict == "error" else opened(store)
        with pytest.raises(ConflictError, match=match):
            fresh.publish("fix", on_conflict=on_conflict)
    assert keys(table.to_arrow()) == [1, 2, 3, 4]


def test_a_branch_deleted_before_the_commit_is_not_published(
    table: Table, store: MemoryStore
) -> None:
    class Overtaken(FaultyStore):
        def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
            if key.startswith("_ss/main/") and opened(store).branches()[1:]:
                opened(store).delete_branch("fix")
                opened(store).vacuum()
            super().put_if_absent(key, data)

    opened(store, "fix").append(rows(10))

    with pytest.raises(NotFoundError, match="no such branch"):
        opened(Overtaken(store)).publish("fix", on_conflict="replan")
    assert keys(table.to_arrow()) == [1, 2, 3]


def test_branches_that_both_changed_the_schema_are_not_published(
    table: Table, store: MemoryStore
) -> None:
    opened(store, "fix").append(pa.table({"k": [10], "x": [0.5]}), merge_schema=True)
    table.append(pa.table({"k": [4], "y": ["a"]}), merge_schema=True)

    with pytest.raises(SchemaMismatchError, match="both branches have changed the schema"):
        table.publish("fix", expected_head=4)
    found = table.diff("main@", "fix@").read_all()
    assert sorted(found.column_names) == ["_change_type", "k", "x", "y"]
    assert (
        sorted(found.to_pylist(), key=str)
        == [
            {"_change_type": "delete", "k": 4, "x": None, "y": "a"},
            {"_change_type": "insert", "k": 10, "x": 0.5, "y": None},
        ]
        or found.num_rows == 2
    )


@pytest.mark.parametrize("rewound", ["main", "fix", "neither"])
def test_rows_of_a_branch_with_another_schema_are_published_through_a_new_branch(
    table: Table, store: MemoryStore, rewound: str
) -> None:
    fork = table.head().version
    fix = opened(store, "fix")
    fix.append(pa.table({"k": [10], "x": [0.5]}), merge_schema=True)
    table.append(pa.table({"k": [4], "y": ["a"]}), merge_schema=True)
    if rewound != "neither":
        line = table if rewound == "main" else fix
        rewind(line.committer, Goal(version=fork))
        line.append(rows(11))

    with pytest.raises(SchemaMismatchError, match="make a new branch of this one's head"):
        table.publish("fix", expected_head=table.head().version)
    wanted = fix.to_arrow()
    table.create_branch("again")
    opened(store, "again").overwrite(wanted, merge_schema=True)
    table.publish("again")

    assert table.to_arrow().select(wanted.schema.names).sort_by("k") == wanted.sort_by("k")


def test_a_schema_changed_on_one_branch_is_published(table: Table, store: MemoryStore) -> None:
    opened(store, "fix").append(pa.table({"k": [10], "x": [0.5]}), merge_schema=True)

    table.publish("fix")
    table.append(pa.table({"k": [11], "x": [0.7]}))
    table.append(pa.table({"k": [12], "x": [0.7], "y": ["a"]}), merge_schema=True)

    assert table.schema.names == ["k", "x", "y"]
    assert table.to_arrow(where="k > 9").to_pylist()[0] == {"k": 10, "x": 0.5, "y": None}
    ids = [column.id for column in table.head().schema.columns]
    assert len(set(ids)) == 3


# ---- a query that moves between branches


class AnotherRun(CheckpointFiles):
    """The same checkpoint, read by another run of the query."""


@pytest.fixture
def rehearsed(create: Create, store: MemoryStore) -> Rehearsed:
    """The fork has run three batches after batch 2, and the branch was published."""
    found = rehearse(create(), store, after_batch=2)
    found.on(found.branch).run(3)
    found.main.publish("try")
    return found


def test_a_query_with_later_batches_on_the_branch_is_refused_on_main(rehearsed: Rehearsed) -> None:
    main = rehearsed.main
    rehearsed.on(rehearsed.branch).run(2)

    with pytest.raises(StreamIdentityError, match="Publish that branch") as caught:
        rehearsed.on(main).run(2)
    assert keys(main.to_arrow()) == [0, 1, 2, 103, 104, 105]
    assert caught.value.context["branch"] == "try"
    assert caught.value.context["committed_here"] == 5
    assert caught.value.context["committed_there"] == 7
    rehearsed.on(rehearsed.branch).run(1)
    main.publish("try", expected_head=main.head().version)
    rehearsed.on(main).run(2)

    assert keys(main.to_arrow()) == [0, 1, 2, *range(103, 111)]


def test_an_empty_batch_does_not_hide_batches_left_on_a_branch(
    rehearsed: Rehearsed,
) -> None:
    rehearsed.on(rehearsed.branch).run(1)
    query = rehearsed.on(rehearsed.main)

    for _ in range(2):
        with pytest.raises(StreamIdentityError, match="Publish that branch"):
            query.run_batch(7, empty=True)
    rehearsed.main.delete_branch("try")
    query.run_batch(7, empty=True)
    query.run_batch(8)

    assert keys(rehearsed.main.to_arrow()) == [0, 1, 2, 103, 104, 105, 108]


def test_a_reused_sink_notices_that_its_query_ran_on_a_branch(
    rehearsed: Rehearsed,
) -> None:
    kept = rehearsed.on(rehearsed.main)
    kept.run(1)
    rehearsed.main.create_branch("later")
    later = rehearsed.on(opened(rehearsed.main.metadata.store, "later"))
    later.run(2)

    with pytest.raises(StreamIdentityError, match="Publish that branch") as caught:
        kept.run(1)
    assert caught.value.context["branch"] == "later"
    rehearsed.main.publish("later")
    kept.run(1)

    assert keys(rehearsed.main.to_arrow()) == [0, 1, 2, *range(103, 110)]


def test_a_sink_that_failed_is_not_taken_to_have_committed_its_batch(
    rehearsed: Rehearsed, store: MemoryStore
) -> None:
    """Each start of a query has its own checkpoint value, even if the sink is reused."""
    kept = rehearsed.on(rehearsed.main)
    kept.run(1)
    kept.table.committer.examine(kept.plan(7))
    rehearsed.main.create_branch("later")
    rehearsed.on(opened(store, "later")).run(1)

    again = dataclasses.replace(kept.plan(8), checkpoint=AnotherRun(rehearsed.fork))
    with pytest.raises(StreamIdentityError, match="Publish that branch"):
        kept.table.committer.examine(again)


def test_a_query_that_moves_to_a_branch_does_not_leave_batches_on_main(
    create: Create, store: MemoryStore
) -> None:
    query = Query(create()).begin(OLD)
    query.run(2)
    query.table.create_branch("old")
    query.run(2)

    moved = Query(opened(store, "old"), query.checkpoint)
    with pytest.raises(StreamIdentityError, match="Publish that branch") as caught:
        moved.run(1)
    assert caught.value.context["branch"] == "main"
    moved.table.publish("main")
    moved.run(1)

    assert keys(moved.table.to_arrow()) == [0, 1, 2, 3, 4]


def test_a_copy_of_a_checkpoint_may_run_on_a_branch(create: Create, store: MemoryStore) -> None:
    query = Query(create()).begin(OLD)
    query.run(2)
    query.table.create_branch("try")
    copy = MemoryStore()
    for info in query.checkpoint.list(""):
        copy.put(info.key, query.checkpoint.get(info.key))
    Query(opened(store, "try"), copy, start=50).run(3)
    query.run_batch(2, empty=True)
    query.run_batch(3, empty=True)
    query.run_batch(4, empty=True)

    again = Query(opened(store), query.checkpoint)
    again.run_batch(5)

    assert keys(again.table.to_arrow()) == [0, 1, 5]


def test_a_forgotten_query_is_not_refused_for_its_batches_on_a_branch(
    create: Create, store: MemoryStore
) -> None:
    query = Query(create()).begin(OLD)
    query.run(2)
    query.table.create_branch("kept")
    query.table.forget("default")

    again = Query(opened(store), query.checkpoint)
    again.run(1)

    assert keys(again.table.to_arrow()) == [0, 1, 2]


@pytest.mark.parametrize("damage", ["ref", "slot"])
def test_a_damaged_branch_does_not_stop_a_query_and_is_logged(
    rehearsed: Rehearsed, store: MemoryStore, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    rehearsed.on(rehearsed.branch).run(1)
    place = (
        "_refs/branches/try" if damage == "ref" else f"_ss/{rehearsed.branch.committer.branch_id}/"
    )
    for info in store.list(place):
        store.delete(info.key)
        store.put(info.key, b"{")

    rehearsed.on(rehearsed.main).run(1)

    assert keys(rehearsed.main.to_arrow())[-1] == 107
    (said,) = [text for text in caplog.messages if "branch try cannot be read" in text]
    assert "batches 6 to 6" in said


def test_other_branches_are_read_only_after_a_gap_unknown_to_the_sink(
    create: Create, store: MemoryStore
) -> None:
    class Listing(FaultyStore):
        listed = 0

        def list(self, prefix: str) -> Iterator[ObjectInfo]:
            self.listed += prefix == "_refs/branches/"
            return super().list(prefix)

    query = Query(create()).begin(OLD)
    query.run(2)
    query.table.create_branch("other")
    counting = Listing(store)
    running = Query(opened(counting), query.checkpoint)

    running.run(2)
    running.run_batch(4, empty=True)
    running.run_batch(5)
    running.run_batch(6, empty=True)
    running.run_batch(7, empty=True)
    running.run_batch(8)
    assert counting.listed == 0
    running.run_batch(9, empty=True)
    Query(opened(counting), query.checkpoint).run(2)
    assert counting.listed == 1
