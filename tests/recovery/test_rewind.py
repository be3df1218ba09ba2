"""Rewind a table, its ledger and the checkpoints; and what is refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest

from fuse_stream.checkpoint.files import load_checkpoint
from fuse_stream.commit.ledger import Verdict
from fuse_stream.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptObjectError,
    FuseError,
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
    StreamIdentityError,
)
from fuse_stream.format.codec import encode_snapshot
from fuse_stream.format.layout import slot_key
from fuse_stream.format.records import Operation
from fuse_stream.recovery.result import Rewind
from fuse_stream.recovery.target import Goal
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table
from fuse_stream.testing.faults import Crash, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.checkpoints import batch_files, put
from tests.recovery.histories import keys, opened, raise_floor, rewind, rows
from tests.recovery.streams import Query

Create = Callable[..., Table]
OLD = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def query(create: Create) -> Query:
    """Six batches of one row, batch b at version b + 1."""
    query = Query(create()).begin(OLD)
    query.run(6)
    return query


def back(query: Query, goal: Goal, new: Store | None = None, **options: object) -> Rewind:
    pairs = () if new is None else ((query.checkpoint, new),)
    return rewind(query.table.committer, goal, checkpoints=pairs, **options)


# ---- the course of a rewind


def test_a_changed_slot_does_not_lead_the_search_for_a_batch_in_a_circle(query: Query) -> None:
    store = query.table.metadata.store
    head = query.table.head()
    assert head.parent is not None
    changed = dataclasses.replace(
        query.table.snapshot(head.version - 1),
        operation=Operation.REWIND,
        target=dataclasses.replace(head.parent, version=head.version),
    )
    store.replace(slot_key("main", changed.version), encode_snapshot(changed))
    fresh = opened(store)

    with pytest.raises(CorruptObjectError, match="was made from"):
        rewind(fresh.committer, Goal(after_batch=0))


def test_a_query_continues_from_the_fork_with_every_batch_once(query: Query) -> None:
    new = MemoryStore()
    done = back(query, Goal(after_batch=2), new, message="bad deploy", author="anna")
    fork = Query(query.table, new, plus=100)
    again = fork.run(3)

    assert done.snapshot is not None
    assert done.target is not None
    assert (done.snapshot.version, done.target.version) == (7, 3)
    assert done.snapshot.operation is Operation.REWIND
    assert (done.snapshot.message, done.snapshot.author) == ("bad deploy", "anna")
    assert done.snapshot.target is not None
    assert done.snapshot.target.version == 3
    assert again == [8, 9, 10]
    assert keys(query.table.to_arrow()) == [0, 1, 2, 103, 104, 105]
    assert fork.query_id != OLD
    assert keys(query.table.to_arrow(version=6)) == [0, 1, 2, 3, 4, 5]  # history is kept


def test_the_old_query_is_refused_and_the_error_names_its_fork(query: Query) -> None:
    new = MemoryStore()
    done = back(query, Goal(version=3), new)

    with pytest.raises(StreamIdentityError, match="retired") as caught:
        query.run(1)
    assert caught.value.context["fork"] == done.forks[0].query_id
    assert load_checkpoint(query.checkpoint).query_id == OLD  # untouched


def test_the_last_kept_batch_is_recognised_as_a_replay(query: Query) -> None:
    new = MemoryStore()
    back(query, Goal(version=3), new)
    fork = Query(query.table, new)

    assert fork.commit(2) is Verdict.REPLAY
    with pytest.raises(StreamIdentityError):
        fork.commit(1)


def test_a_rewind_can_be_rewound(query: Query) -> None:
    first, second = MemoryStore(), MemoryStore()
    back(query, Goal(after_batch=2), first)
    Query(query.table, first, plus=100).run(2)

    back(query, Goal(version=6), second)
    fork = Query(query.table, second)

    assert keys(query.table.to_arrow()) == [0, 1, 2, 3, 4, 5]
    fork.run(1)
    assert keys(query.table.to_arrow()) == [0, 1, 2, 3, 4, 5, 6]
    with pytest.raises(StreamIdentityError, match="retired"):
        Query(query.table, first).run(1)


def test_batch_numbers_of_a_second_rewind_are_those_of_the_fork(query: Query) -> None:
    first, second = MemoryStore(), MemoryStore()
    back(query, Goal(after_batch=2), first)
    fork = Query(query.table, first, plus=100)
    fork.run(3)

    back(fork, Goal(after_batch=4), second)

    assert keys(query.table.to_arrow()) == [0, 1, 2, 103, 104]


def test_an_empty_batch_is_kept_in_the_fork(create: Create) -> None:
    query = Query(create()).begin(OLD)
    query.run(2)
    query.run_batch(2, empty=True)
    query.run_batch(3, empty=True)
    query.run(2)
    new = MemoryStore()

    done = back(query, Goal(after_batch=3), new)

    assert done.target is not None
    assert done.target.version == 2
    assert load_checkpoint(new).commits == (0, 1, 2, 3)
    assert Query(query.table, new).run(1) == [6]
    assert keys(query.table.to_arrow()) == [0, 1, 4]


def test_a_batch_that_the_target_holds_in_part_runs_again(create: Create) -> None:
    query = Query(create(), writers=("one", "two")).begin(OLD)
    query.run(3)  # batch 1 is at versions 3 and 4
    new = MemoryStore()

    done = back(query, Goal(version=3), new)
    fork = Query(query.table, new, writers=("one", "two"))

    assert done.forks[0].reruns == 1
    assert load_checkpoint(new).offsets == (0, 1)
    assert load_checkpoint(new).commits == (0,)
    fork.run(1)
    assert keys(query.table.to_arrow()) == [0, 0, 1, 1]


def test_a_batch_without_an_end_in_the_checkpoint_runs_again(query: Query) -> None:
    query.checkpoint.delete("commits/5")
    query.table.append(rows(77))
    new = MemoryStore()
    # Only a later commit of another kind is undone, yet the query's last batch stays in doubt.
    done = back(query, Goal(version=5), new)
    assert done.forks[0].reruns is None

    first = MemoryStore()
    fork = Query(query.table, new, plus=100)
    fork.run(1)
    new.delete("commits/5")
    fork.table.append(rows(78))
    fork.run_batch(6)
    done = back(fork, Goal(after_batch=5), first)

    assert done.forks[0].reruns == 5
    assert load_checkpoint(first).commits == (0, 1, 2, 3, 4)
    assert Query(query.table, first).commit(5) is Verdict.REPLAY


def test_one_application_is_forked_and_another_retired_by_one_rewind(create: Create) -> None:
    day = Query(create(), application="day").begin(OLD)
    night = Query(day.table, application="night", plus=1000).begin(OLD.replace("1", "9"))
    day.run(2)
    night.run(2)
    day.run(2)
    night.run(1)

    with pytest.raises(StreamIdentityError, match="would go back") as caught:
        back(day, Goal(version=4), MemoryStore())
    assert caught.value.context["applications"] == ["night"]
    new = MemoryStore()
    done = back(day, Goal(version=4), new, retire=["night"])

    assert done.retired == ("night",)
    Query(day.table, new, application="day", plus=100).run(1)
    assert keys(day.table.to_arrow()) == [0, 1, 102, 1000, 1001]
    with pytest.raises(StreamIdentityError, match="retired"):
        night.run(1)


def test_a_table_without_streams_is_rewound_without_checkpoints(create: Create) -> None:
    table = create()
    for key in range(4):
        table.append(rows(key))
    done = rewind(table.committer, Goal(version=2))
    again = rewind(table.committer, Goal(version=2))

    assert keys(table.to_arrow()) == [0, 1]
    assert again.snapshot == done.snapshot  # the same call returns the result
    table.append(rows(9))
    assert keys(table.to_arrow()) == [0, 1, 9]


def test_a_rewind_of_a_branch_leaves_main_unchanged(query: Query, store: MemoryStore) -> None:
    query.table.create_branch("try", 4)
    branch = opened(store, "try")
    new = MemoryStore()

    rewind(branch.committer, Goal(after_batch=1), checkpoints=((query.checkpoint, new),))
    Query(branch, new, plus=100).run(2)

    assert keys(branch.to_arrow()) == [0, 1, 102, 103]
    assert keys(query.table.to_arrow()) == [0, 1, 2, 3, 4, 5]
    assert query.run(1) == [7]  # on main the old query continues


# ---- targets


def test_a_tag_below_the_floor_is_a_target(query: Query) -> None:
    query.table.create_tag("good", 2)
    raise_floor(query.table, 4)

    done = back(query, Goal(version="good"), MemoryStore())

    assert done.target is not None
    assert done.target.version == 2
    with pytest.raises(SnapshotExpiredError):
        back(query, Goal(version=3), retire=["default"])


def test_no_target_two_targets_and_the_head_as_target_are_refused(
    query: Query, store: MemoryStore
) -> None:
    for goal in (Goal(), Goal(version=1, after_batch=1), Goal(timestamp="x", version=1)):
        with pytest.raises(InvalidInputError, match="where to go back to"):
            back(query, goal)
    for goal in (Goal(version=6), Goal(after_batch=5), Goal(after_batch=99)):
        with pytest.raises(InvalidInputError, match="there is nothing to undo"):
            back(query, goal)
    with pytest.raises(NotFoundError, match="no writer of this application") as caught:
        back(query, Goal(application="nihgt", after_batch=1))
    assert caught.value.context["known"] == ["default"]
    query.table.create_branch("try", 4)
    opened(store, "try").append(rows(9))
    with pytest.raises(InvalidInputError, match="not in the history"):
        back(query, Goal(version="try@"))


def test_the_error_for_a_batch_after_the_last_one_names_the_last_one(query: Query) -> None:
    with pytest.raises(InvalidInputError, match="last batch is number 5") as caught:
        back(query, Goal(after_batch=77))
    assert caught.value.context == {"version": 6, "last_batch": 5}
    query.table.forget("default")
    with pytest.raises(InvalidInputError, match="nothing to undo"):
        back(query, Goal(after_batch=77))


def test_a_batch_whose_versions_have_expired_is_refused_as_target(query: Query) -> None:
    raise_floor(query.table, 4)

    with pytest.raises(SnapshotExpiredError, match="before this batch"):
        back(query, Goal(after_batch=1), MemoryStore())


# ---- refusals


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_refused_rewind_writes_nothing(
    query: Query,
    store: MemoryStore,
    dry_run: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    before = {info.key for info in store.list("")}
    stranger, used, new = MemoryStore(), MemoryStore(), MemoryStore()
    Query(query.table, stranger).begin("9" + OLD[1:])
    used.put("a-file", b"x")
    cases: list[tuple[Store, Store, type[FuseError]]] = [
        (stranger, new, StreamIdentityError),
        (MemoryStore(), new, NotFoundError),
        (query.checkpoint, used, AlreadyExistsError),
    ]

    for old, fork, error in cases:
        options = {"checkpoints": ((old, fork),), "dry_run": dry_run}
        if dry_run:
            found = rewind(query.table.committer, Goal(version=2), **options)
            assert error in {type(obstacle) for obstacle in found.obstacles}
        else:
            with pytest.raises(error):
                rewind(query.table.committer, Goal(version=2), **options)
    with pytest.raises(StreamIdentityError, match="would go back"):
        back(query, Goal(version=2))

    assert {info.key for info in store.list("")} == before
    assert list(new.list("")) == []


def test_a_checkpoint_that_read_other_data_is_refused(query: Query) -> None:
    query.checkpoint.replace("offsets/2", b"v1\n{}\nother")

    with pytest.raises(StreamIdentityError, match="read other data"):
        back(query, Goal(version=3), MemoryStore())


def test_a_checkpoint_that_spark_has_cleaned_up_is_refused(query: Query) -> None:
    for batch in range(4):
        query.checkpoint.delete(f"offsets/{batch}")
        query.checkpoint.delete(f"commits/{batch}")

    with pytest.raises(NotFoundError, match="has deleted"):
        back(query, Goal(version=3), MemoryStore())


def test_a_rival_commit_is_a_conflict_or_the_rewind_is_planned_again(
    query: Query, store: MemoryStore
) -> None:
    class Overtaken(MemoryStore):
        def replace(self, key: str, data: bytes | memoryview) -> None:
            super().replace(key, data)
            if key == "offsets/0":
                opened(store).append(rows(77))

    with pytest.raises(ConflictError):
        back(query, Goal(version=3), Overtaken())
    assert keys(query.table.to_arrow()) == [0, 1, 2, 3, 4, 5, 77]
    new = Overtaken()
    done = back(query, Goal(version=3), new, replan=True)

    assert done.snapshot is not None
    assert done.snapshot.version == 9
    assert keys(query.table.to_arrow()) == [0, 1, 2]
    assert Query(query.table, new).run(1) == [10]


# ---- a dry run


def test_a_dry_run_returns_what_would_be_done(query: Query, store: MemoryStore) -> None:
    before = {info.key for info in store.list("")}
    new = MemoryStore()
    found = back(query, Goal(after_batch=2), new, dry_run=True)

    assert found.snapshot is None
    assert found.obstacles == ()
    (dropped,) = found.dropped
    assert (dropped.application, dropped.first_batch, dropped.last_batch) == ("default", 3, 5)
    assert dropped.rows == 3
    assert (found.deleted_rows, found.inserted_rows) == (3, 0)
    (fork,) = found.forks
    assert (fork.batches, fork.reruns, fork.state) == ((0, 1, 2), None, "absent")
    assert fork.applications == ("default",)
    assert {info.key for info in store.list("")} == before
    assert list(new.list("")) == []


# ---- crashes


def test_the_same_call_finishes_a_rewind_that_crashed(query: Query) -> None:
    new = MemoryStore()

    class Dies(FaultyStore):
        """Dies before the last step: the fork is not finished."""

        def replace(self, key: str, data: bytes | memoryview) -> None:
            if key == "metadata":
                raise Crash
            super().replace(key, data)

    with pytest.raises(Crash):
        back(query, Goal(version=3), Dies(new))
    assert query.table.head().operation is Operation.REWIND
    with pytest.raises(InvalidInputError, match="not finished"):
        load_checkpoint(new)
    with pytest.raises(StreamIdentityError, match="retired"):
        query.run(1)

    looked = back(query, Goal(version=3), new, dry_run=True)
    assert looked.snapshot == query.table.head()
    with pytest.raises(InvalidInputError, match="not finished"):
        load_checkpoint(new)
    done = back(query, Goal(version=3), new)

    assert done.snapshot == query.table.head()
    assert query.table.head().version == 7
    assert Query(query.table, new).run(1) == [8]
    again = back(query, Goal(version=3), new)  # and once more, when all is done
    assert again.snapshot is not None
    assert again.snapshot.version == 7


def test_forks_of_different_rewinds_are_distinguished(query: Query) -> None:
    first = MemoryStore()
    back(query, Goal(version=3), first)

    with pytest.raises(InvalidInputError, match="some of these checkpoints"):
        rewind(
            query.table.committer,
            Goal(version=2),
            checkpoints=((query.checkpoint, first), (query.checkpoint, MemoryStore())),
        )


def test_the_metadata_file_of_a_fork_has_its_query_id(query: Query) -> None:
    new = MemoryStore()
    done = back(query, Goal(version=3), new)

    assert json.loads(new.get("metadata"))["id"] == done.forks[0].query_id


def test_a_query_of_two_applications_is_rewound_to_one_batch_of_both(create: Create) -> None:
    table = create()
    one, two = (Query(table, application=name, plus=plus) for name, plus in (("x", 0), ("y", 100)))
    one.begin(OLD)
    two.checkpoint = one.checkpoint
    for number in range(5):
        files = batch_files([number])
        put(one.checkpoint, {f"offsets/{number}": files[f"offsets/{number}"]})
        (two if number in {0, 2, 3} else one).commit(number)
        put(one.checkpoint, {f"commits/{number}": files[f"commits/{number}"]})
    new = MemoryStore()

    done = back(one, Goal(application="x", after_batch=2), new)

    assert done.target is not None
    assert done.target.version == 3  # version 4 has batch 3 of the other one
    assert keys(table.to_arrow()) == [1, 100, 102]
    mended = Query(table, new, application="y", plus=500)
    assert mended.commit(3) is Verdict.NEW
    assert keys(table.to_arrow()) == [1, 100, 102, 503]


class CountingStore(MemoryStore):
    """Counts what is read of the history."""

    reads = 0

    def get(self, key: str) -> bytes:
        self.reads += key.startswith("_ss/")
        return super().get(key)


@pytest.mark.parametrize("is_forked", [False, True])
def test_a_rewind_reads_only_the_versions_that_it_undoes(
    create: Create, *, is_forked: bool
) -> None:
    store = CountingStore()
    table = create(at=store)
    query = Query(table).begin(OLD)
    for number in range(60):
        if is_forked:
            query.run_batch(number)
        else:
            table.append(rows(number))
    store.reads = 0
    late = Query(opened(store), query.checkpoint)

    back(late, Goal(version=57), MemoryStore() if is_forked else None)

    assert keys(late.table.to_arrow()) == list(range(57))
    assert store.reads < 20


@pytest.mark.parametrize("first", ["fork", "retire"])
def test_a_rewind_of_a_rewind_to_the_middle_of_a_batch_runs_it_again(
    create: Create, first: str
) -> None:
    query = Query(create(), writers=("w1", "w2")).begin(OLD)
    query.run(3)
    table = query.table
    if first == "fork":
        rewind(table.committer, Goal(version=0), checkpoints=((query.checkpoint, MemoryStore()),))
    else:
        rewind(table.committer, Goal(version=0), retire=["default"])
    new = MemoryStore()
    done = rewind(table.committer, Goal(version=1), checkpoints=((query.checkpoint, new),))

    assert [fork.reruns for fork in done.forks] == [0]
    Query(table, new, writers=("w1", "w2")).run(3)
    assert keys(table.to_arrow()) == [0, 0, 1, 1, 2, 2]
