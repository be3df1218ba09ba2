"""Queries that move between branches: no branch misses batches that only another one has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuse_stream.errors import InvalidInputError, SnapshotExpiredError, StreamIdentityError
from fuse_stream.recovery.rewind import rewind_tables
from fuse_stream.recovery.target import Goal
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import Crash, Fault, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.histories import keys, opened, rewind, rows
from tests.recovery.streams import Fanout, Query

Create = Callable[..., Table]
QUERY = "11111111-2222-3333-4444-555555555555"
OTHER = "22222222-2222-3333-4444-555555555555"


def copy_of(checkpoint: Store) -> MemoryStore:
    copy = MemoryStore()
    for info in checkpoint.list(""):
        copy.put(info.key, checkpoint.get(info.key))
    return copy


@pytest.fixture
def query(create: Create) -> Query:
    """A query whose batches 0 to 2 are on main and on `fix`; 3 and 4 are only on `fix`."""
    query = Query(create()).begin(QUERY)
    query.run(3)
    query.table.create_branch("fix")
    Query(opened(query.table.metadata.store, "fix"), query.checkpoint).run(2)
    return query


def on(query: Query, branch: str = "main", *, application: str = "default") -> Query:
    """Start the query again, in another process."""
    table = opened(query.table.metadata.store, branch)
    return Query(table, query.checkpoint, application=application)


def go_on_with_a_copy(query: Query) -> None:
    store = query.table.metadata.store
    Query(opened(store, "fix"), copy_of(query.checkpoint), start=50, plus=100).run(2)
    on(query, "fix").table.forget("default")  # the copy's entry would stop what comes next


def rewind_the_branch(query: Query) -> None:
    branch = on(query, "fix").table.committer
    rewind(branch, Goal(after_batch=2), checkpoints=((query.checkpoint, MemoryStore()),))


def retire_it_there(query: Query) -> None:
    rewind(on(query, "fix").table.committer, Goal(after_batch=2), retire=["default"])


def forget_it_there(query: Query) -> None:
    on(query, "fix").table.forget("default")


def give_its_place_away(query: Query) -> None:
    table = on(query, "fix").table
    Query(table, start=5, plus=50, adopt=QUERY).begin(OTHER).run(1)


@pytest.mark.parametrize("one_by_one", [1000, 0])
@pytest.mark.parametrize(
    "hide",
    [
        go_on_with_a_copy,
        rewind_the_branch,
        retire_it_there,
        forget_it_there,
        give_its_place_away,
    ],
)
def test_batches_on_another_branch_are_found_though_its_ledger_no_longer_has_them(
    query: Query,
    monkeypatch: pytest.MonkeyPatch,
    hide: Callable[[Query], None],
    one_by_one: int,
) -> None:
    monkeypatch.setattr("fuse_stream.commit.missing_batches.EVERY_VERSION", one_by_one)
    hide(query)
    on(query, "fix").table.append(rows(50))

    with pytest.raises(StreamIdentityError, match="to another branch") as caught:
        on(query).run(1)
    assert caught.value.context["branch"] == "fix"
    assert caught.value.context["committed_here"] == 2
    assert keys(on(query).table.to_arrow()) == [0, 1, 2]


def test_batches_under_an_application_that_was_forgotten_are_found_beside_an_older_one(
    create: Create,
) -> None:
    query = Query(create()).begin(QUERY)
    query.run(3)
    query.table.create_branch("fix")
    moved = on(query, "fix", application="second")
    moved.run(2)
    moved.table.forget("second")

    with pytest.raises(StreamIdentityError, match="to another branch") as caught:
        on(query).run(1)
    assert caught.value.context["committed_there"] == 4


def test_a_copy_is_not_taken_for_the_query_whose_place_it_hides(query: Query) -> None:
    """The copy planned batch 5 itself: it is ahead of the branch by 3 and 4, not by 5."""
    copy = copy_of(query.checkpoint)
    on(query, "fix").run(2)

    with pytest.raises(StreamIdentityError, match="to another branch") as caught:
        Query(on(query).table, copy, start=50, plus=100).run(1)
    assert caught.value.context["committed_there"] == 4


def test_the_batches_of_another_sink_on_a_branch_are_not_missed(create: Create) -> None:
    query = Query(create()).begin(QUERY)
    query.run(3)
    query.table.create_branch("fix")
    branch = Query(on(query, "fix").table, query.checkpoint, writers=("other",))
    for number in range(3, 6):
        branch.run_batch(number)

    again = on(query)
    again.run(1)

    assert keys(again.table.to_arrow()) == [0, 1, 2, 6]


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_fork_does_not_continue_where_the_query_before_it_is_missing(
    create: Create,
    clock: ManualClock,
    is_forgotten: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    """The query writes two tables; one was rewound alone, and its fork moves to a branch."""
    tables = create(), create(at=MemoryStore(clock=clock))
    for table in tables:
        table.create_branch("fix")
    query, fork = Fanout(tables).begin(QUERY), MemoryStore()
    query.run(4)
    if is_forgotten:
        tables[0].forget("default")
    rewind(tables[1].committer, Goal(after_batch=1), checkpoints=((query.checkpoint, fork),))
    moved = Query(opened(tables[0].metadata.store, "fix"), fork)

    with pytest.raises(StreamIdentityError, match="to another branch") as caught:
        moved.run(1)

    assert caught.value.context["committed_there"] == 1


def test_what_a_rewind_undid_of_an_ancestor_does_not_hide_a_batch_of_the_fork(
    create: Create,
) -> None:
    query, fork = Query(create()).begin(QUERY), MemoryStore()
    query.run_batch(0, empty=True)
    for number in range(1, 4):
        query.run_batch(number)
    main = query.table
    rewind(main.committer, Goal(after_batch=0), checkpoints=((query.checkpoint, fork),))
    main.create_branch("fix")
    Query(main, fork).run(1)

    with pytest.raises(StreamIdentityError, match="to another branch"):
        Query(opened(main.metadata.store, "fix"), fork).run(1)


def test_a_fork_continues_on_a_branch_that_has_what_the_query_before_it_ended(
    create: Create, store: MemoryStore
) -> None:
    query, fork = Query(create()).begin(QUERY), MemoryStore()
    query.run(4)
    query.table.create_branch("fix")
    branch = on(query, "fix").table
    rewind(branch.committer, Goal(after_batch=1), checkpoints=((query.checkpoint, fork),))
    on(query).run(2)
    Query(branch, fork).run_batch(2, empty=True)

    Query(opened(store, "fix"), fork).run(2)

    assert keys(opened(store, "fix").to_arrow()) == [0, 1, 3, 4]


def test_what_both_branches_had_when_they_parted_is_not_missed(create: Create) -> None:
    query = Query(create()).begin(QUERY)
    query.run(3)
    query.table.create_branch("fix")
    other = Query(on(query, "fix").table, plus=50, application="other").begin(OTHER)
    other.run(3)
    query.run_batch(3, empty=True)

    again = on(query)
    again.run(1)

    assert keys(again.table.to_arrow()) == [0, 1, 2, 4]


@pytest.mark.parametrize("how", ["forgotten", "idle"])
def test_a_query_that_left_the_ledger_is_compared_with_what_its_branch_held(
    query: Query, clock: ManualClock, how: str
) -> None:
    main = on(query)
    main.table.publish("fix")
    on(query).run(2)
    if how == "forgotten":
        main.table.forget("default")
    else:
        clock.advance(100 * 24 * 3600)
        later = opened(main.table.metadata.store, clock=clock)
        later.append(rows(777))
        later.expire(keep_last=5)
    assert on(query).table.ledger() == {}

    on(query).run(1)

    found = keys(on(query).table.to_arrow())
    assert [key for key in found if key != 777] == [*range(8)]


def test_a_query_that_was_forgotten_long_ago_is_not_asked_for_what_a_branch_took_over(
    create: Create, store: MemoryStore, clock: ManualClock
) -> None:
    query = Query(create()).begin(QUERY)
    query.run(3)
    query.table.create_branch("kept")
    opened(store, "kept").append(rows(50))
    query.table.forget("default")
    clock.advance(10 * 24 * 3600)
    query.table.append(rows(777))
    clock.advance(10 * 24 * 3600)
    query.table.expire(keep_last=1)

    on(query).run(1)

    assert keys(opened(store).to_arrow()) == [0, 1, 2, 3, 777]


@pytest.mark.parametrize("after_batch", [3, 4])
def test_a_fork_of_several_tables_takes_no_batch_for_done_that_only_a_branch_has(
    create: Create, clock: ManualClock, after_batch: int
) -> None:
    tables = create(), create(at=MemoryStore(clock=clock))
    query = Fanout(tables).begin(QUERY)
    query.run(3)
    for table in tables:
        table.create_branch("fix")
    branches = tuple(opened(table.metadata.store, "fix") for table in tables)
    Fanout(branches, query.checkpoint).run(2)
    tables[0].publish("fix")  # and the other one is not published
    committers = [opened(table.metadata.store).committer for table in tables]

    def go_back(batch: int) -> MemoryStore:
        fork = MemoryStore()
        paths = ((query.checkpoint, fork),)
        rewind_tables(committers, Goal(after_batch=batch), checkpoints=paths)
        return fork

    with pytest.raises((StreamIdentityError, InvalidInputError)) as caught:
        go_back(after_batch)
    if after_batch == 4:  # batch 3 ends no version of the table that was published
        assert caught.value.context["branch"] == "fix"
        assert caught.value.context["committed_here"] == 2
    Fanout(tables, go_back(2)).run(3)

    for table in tables:
        assert keys(table.to_arrow()) == [0, 1, 2, 3, 4, 5]


def test_a_sink_that_always_wrote_to_another_branch_does_not_prevent_a_rewind(
    create: Create, store: MemoryStore
) -> None:
    """Writer `a` writes to main and writer `b` to a branch; batch 1 has no rows for main."""
    main = create()
    main.create_branch("fix")
    query = Query(main, writers=("a",)).begin(QUERY)
    for number in range(3):
        query.run_batch(number, empty=number == 1)
    branch = Query(opened(store, "fix"), query.checkpoint, writers=("b",))
    for number in range(3):
        branch.commit(number, "b")
    fork = MemoryStore()

    rewind(opened(store).committer, Goal(after_batch=1), checkpoints=((query.checkpoint, fork),))
    Query(opened(store), fork, writers=("a",)).run(2)

    assert keys(opened(store).to_arrow()) == [0, 2, 3]


@pytest.mark.parametrize("is_branch_kept", [True, False])
def test_a_checkpoint_that_is_ahead_of_its_table_goes_back_to_it(
    query: Query,
    is_branch_kept: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    main = on(query).table
    if not is_branch_kept:
        main.delete_branch("fix")
    fork = MemoryStore()
    for later in (3, 4):
        with pytest.raises(InvalidInputError, match="nothing to undo"):
            rewind(main.committer, Goal(after_batch=later), checkpoints=((query.checkpoint, fork),))

    paths = ((query.checkpoint, fork),)
    done = [rewind(on(query).table.committer, Goal(after_batch=2), checkpoints=paths)]
    done.append(rewind(on(query).table.committer, Goal(after_batch=2), checkpoints=paths))
    with pytest.raises(StreamIdentityError, match="retired"):
        on(query).run(1)
    Query(on(query).table, fork).run(3)

    assert [rewound.deleted_rows for rewound in done] == [0, 0]
    assert keys(on(query).table.to_arrow()) == [0, 1, 2, 3, 4, 5]


def test_a_checkpoint_that_is_where_its_table_is_does_not_go_back(create: Create) -> None:
    query = Query(create()).begin(QUERY)
    query.run(3)

    paths = ((query.checkpoint, MemoryStore()),)
    with pytest.raises(InvalidInputError, match="nothing to undo"):
        rewind(query.table.committer, Goal(after_batch=2), checkpoints=paths)


@pytest.mark.parametrize("is_expired", [False, True])
def test_a_branch_is_not_rewound_past_what_another_branch_may_have_had(
    create: Create,
    clock: ManualClock,
    is_expired: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    """One branch is older than the query; batch 0, which it lacks, may have expired on main."""
    tables = create(), create(at=MemoryStore(clock=clock))
    tables[1].create_branch("trial")
    query = Fanout(tables).begin(QUERY)
    query.run(1)
    tables[0].create_branch("trial")
    query.run(5)
    if is_expired:
        clock.advance(10 * 24 * 3600)
        opened(tables[1].metadata.store, clock=clock).expire(keep_last=2)
    trials = [opened(table.metadata.store, "trial").committer for table in tables]
    paths = ((query.checkpoint, MemoryStore()),)

    with pytest.raises((StreamIdentityError, SnapshotExpiredError)) as caught:
        rewind_tables(trials, Goal(after_batch=0), checkpoints=paths)

    assert isinstance(caught.value, SnapshotExpiredError) is is_expired
    assert caught.value.context["branch"] == "main"


def test_a_query_does_not_leave_what_it_may_have_committed_in_commits_that_have_expired(
    query: Query, clock: ManualClock
) -> None:
    """Batches 3 and 4 have expired on `fix`; batch 5 is there, and did not end."""
    store = query.table.metadata.store
    query.plan(5)
    on(query, "fix").commit(5)
    clock.advance(10 * 24 * 3600)
    opened(store, "fix", clock=clock).expire(keep_last=1)

    with pytest.raises(StreamIdentityError, match="may lack batches") as caught:
        on(query).commit(5)
    assert caught.value.context["branch"] == "fix"
    assert caught.value.context["committed_here"] == 2
    fork = MemoryStore()
    rewind(on(query).table.committer, Goal(after_batch=2), checkpoints=((query.checkpoint, fork),))
    Query(on(query).table, fork).run(3)
    assert keys(on(query).table.to_arrow()) == [0, 1, 2, 3, 4, 5]


def test_a_fork_is_rewound_to_a_branch_that_ends_before_it_began(create: Create) -> None:
    query, fork, newer = Query(create()).begin(QUERY), MemoryStore(), MemoryStore()
    query.run(1)
    query.table.create_branch("old")
    query.run(4)
    rewind(query.table.committer, Goal(after_batch=3), checkpoints=((query.checkpoint, fork),))
    store = query.table.metadata.store

    with pytest.raises(StreamIdentityError, match="ends before") as caught:
        Query(opened(store, "old"), fork).run(1)
    written = caught.value.context["written_batch"]
    assert isinstance(written, int)
    old = opened(store, "old").committer
    rewind(old, Goal(after_batch=written), checkpoints=((fork, newer),))
    Query(opened(store, "old"), newer).run(3)

    assert keys(opened(store, "old").to_arrow()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("goal", "expected"), [(Goal(version=0), [0, 1, 2]), (Goal(after_batch=0), [0, 1, 2, 3])]
)
def test_a_rewind_by_a_forks_checkpoint_is_repeated_where_only_its_ancestor_wrote(
    create: Create, goal: Goal, expected: list[int]
) -> None:
    query, fork, newer = Query(create()).begin(QUERY), MemoryStore(), MemoryStore()
    query.run(2)
    query.table.create_branch("trial")
    query.run(1)
    rewind(query.table.committer, Goal(after_batch=1), checkpoints=((query.checkpoint, fork),))
    trial = on(query, "trial").table.committer
    store = FaultyStore(newer, at_call=11, fault=Fault.CRASH_BEFORE)
    with pytest.raises(Crash):
        rewind(trial, goal, checkpoints=((fork, store),))

    done = [rewind(trial, goal, checkpoints=((fork, newer),)) for _ in range(2)]
    Query(on(query, "trial").table, newer).run(3)

    assert (
        done[0].snapshot
        == done[1].snapshot
        == trial.metadata.load_snapshot(trial.branch_id, 3).snapshot
    )
    assert keys(on(query, "trial").table.to_arrow()) == expected
    with pytest.raises(StreamIdentityError, match="retired"):
        Query(on(query, "trial").table, fork).run(1)


def test_an_empty_tagged_version_is_no_proof_of_a_batch(create: Create, clock: ManualClock) -> None:
    """Its query's entry has left the ledger, and what it wrote after the tag has expired."""
    tables = create(), create(at=MemoryStore(clock=clock))
    tables[1].set_properties({"note": "x"})
    tables[1].create_tag("start")
    query = Fanout(tables).begin(QUERY)
    query.run(2)
    tables[1].forget("default")
    clock.advance(10 * 24 * 3600)
    opened(tables[1].metadata.store, clock=clock).expire(keep_last=2)
    committers = [opened(table.metadata.store, clock=clock).committer for table in tables]
    paths = ((query.checkpoint, MemoryStore()),)

    with pytest.raises(SnapshotExpiredError):
        rewind_tables(committers, Goal(after_batch=0), checkpoints=paths)
