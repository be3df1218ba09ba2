"""Rewinds and publishes over entries that have left the ledger: their rows are still there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuse_stream.errors import NotFoundError, SnapshotExpiredError, StreamIdentityError
from fuse_stream.recovery.publish import publish
from fuse_stream.recovery.result import Rewind
from fuse_stream.recovery.target import Goal
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.checkpoints import put
from tests.recovery.histories import keys, opened, rewind, rows
from tests.recovery.streams import Query

Create = Callable[..., Table]
OLD = "11111111-2222-3333-4444-555555555555"
OTHER = "22222222-2222-3333-4444-555555555555"

Leave = Callable[[Table], None]


@pytest.fixture
def table(create: Create, clock: ManualClock) -> Table:
    return create(at=MemoryStore(clock=clock), properties={"fuse.ledger.retain": "7d"})


@pytest.fixture(params=["forget", "expire"])
def leave(request: pytest.FixtureRequest, clock: ManualClock) -> Leave:
    """Make the entries of a table leave its ledger, by a commit of its own."""

    def do(table: Table) -> None:
        if request.param == "forget":
            for application in {application for application, _ in table.ledger()}:
                table.forget(application)
        else:
            clock.advance(10 * 86_400)
            table.append(rows(90))
            table.expire(keep_last=100)
            clock.advance(1)
        assert not table.ledger()

    return do


def back(
    table: Table, goal: Goal, old: Store | None = None, new: Store | None = None, **options: object
) -> Rewind:
    pairs = () if old is None else ((old, new),)
    return rewind(table.committer, goal, checkpoints=pairs, **options)


def content(table: Table) -> list[int]:
    return [key for key in keys(table.to_arrow()) if key != 90]


# ---- where a batch ends


def test_a_rewind_may_target_a_batch_from_before_the_entry_left(table: Table, leave: Leave) -> None:
    query = Query(table).begin(OLD)
    query.run(4)
    leave(table)
    query.run(3)
    new = MemoryStore()

    done = back(table, Goal(after_batch=1), query.checkpoint, new)
    assert content(table) == [0, 1]
    assert done.target is not None
    assert done.target.version == 2
    Query(table, new, plus=100).run(2)
    assert content(table) == [0, 1, 102, 103]


def test_a_retired_query_is_set_back_to_before_its_entry_left(table: Table, leave: Leave) -> None:
    query = Query(table).begin(OLD)
    query.run(4)
    leave(table)
    query.run(3)

    back(table, Goal(after_batch=1), retire=["default"])

    assert content(table) == [0, 1]
    with pytest.raises(StreamIdentityError, match="retired"):
        query.run(1)


def test_a_batch_from_before_the_entry_left_is_found_after_the_query_ended(
    table: Table, leave: Leave
) -> None:
    query = Query(table).begin(OLD)
    query.run(4)
    leave(table)
    new = MemoryStore()

    back(table, Goal(after_batch=1), query.checkpoint, new)

    assert content(table) == [0, 1]
    Query(table, new, plus=100).run(1)
    assert content(table) == [0, 1, 102]


def test_the_error_for_an_application_that_never_wrote_names_those_that_did(
    table: Table, leave: Leave
) -> None:
    query = Query(table, application="night").begin(OLD)
    query.run(2)
    leave(table)

    with pytest.raises(NotFoundError, match="has committed to this table") as caught:
        back(table, Goal(after_batch=0, application="other"))
    assert caught.value.context["known"] == ["night"]


def test_a_batch_whose_versions_have_expired_is_refused(table: Table, clock: ManualClock) -> None:
    query = Query(table).begin(OLD)
    query.run(3)
    table.forget("default")
    clock.advance(90_000)
    query.run(1)
    clock.advance(90_000)
    query.run(2)
    table.expire(keep_last=4)  # keeps the commit of `forget` and later ones

    with pytest.raises(SnapshotExpiredError):
        back(table, Goal(after_batch=1), query.checkpoint, MemoryStore())
    new = MemoryStore()
    back(table, Goal(after_batch=2), query.checkpoint, new)  # batch 3 is the first one seen
    assert content(table) == [0, 1, 2]
    Query(table, new, plus=100).run(1)
    assert content(table) == [0, 1, 2, 103]


# ---- versions


def test_a_fork_continues_after_the_batches_that_the_version_holds(
    table: Table, leave: Leave
) -> None:
    query = Query(table).begin(OLD)
    query.run(4)
    leave(table)
    without = table.head().version
    query.run(3)
    new = MemoryStore()

    back(table, Goal(version=without), query.checkpoint, new)

    assert content(table) == [0, 1, 2, 3]
    Query(table, new, plus=100).run(2)
    assert content(table) == [0, 1, 2, 3, 104, 105]


def test_a_version_whose_last_batch_is_unknown_is_refused(table: Table, clock: ManualClock) -> None:
    query = Query(table).begin(OLD)
    query.run(3)
    table.forget("default")
    without = table.head().version
    clock.advance(90_000)
    query.run(1)
    clock.advance(90_000)
    query.run(1)
    table.expire(keep_last=3)

    new = MemoryStore()
    with pytest.raises(SnapshotExpiredError, match=r"may (hold|have held) batches"):
        back(table, Goal(version=without), query.checkpoint, new)
    assert not list(new.list(""))


def test_a_fork_from_before_the_first_batch_starts_empty_though_history_expired(
    table: Table, clock: ManualClock
) -> None:
    for number in range(4):
        clock.advance(90_000)
        table.append(rows(80 + number))
    table.expire(keep_last=2)
    before = table.head().version
    query = Query(table).begin(OLD)
    query.run(2)
    new = MemoryStore()

    back(table, Goal(version=before), query.checkpoint, new)
    Query(table, new, plus=100).begin(load_id(new)).run(2)

    assert content(table) == [80, 81, 82, 83, 100, 101]


def load_id(checkpoint: Store) -> str:
    return Query(None, checkpoint).query_id  # type: ignore[arg-type]


@pytest.mark.parametrize("adopt", [None, OLD])
@pytest.mark.parametrize("goal", [Goal(version=0), Goal(version=1)])
def test_rows_of_another_query_of_the_application_are_not_undone_unasked(
    table: Table, leave: Leave, adopt: str | None, goal: Goal
) -> None:
    Query(table).begin(OLD).run(3)
    leave(table)
    query = Query(table, plus=100, adopt=adopt).begin(OTHER)
    query.run(2)
    new = MemoryStore()

    with pytest.raises(StreamIdentityError, match="retire") as caught:
        back(table, goal, query.checkpoint, new)
    assert caught.value.context["former"] == OLD
    assert content(table) == [0, 1, 2, 100, 101]
    assert not list(new.list(""))


def test_numbered_batches_are_not_undone_with_a_query_that_was_retired_before(table: Table) -> None:
    query = Query(table).begin(OLD)
    query.run(2)
    back(table, Goal(version=0), retire=["default"])
    table.append(rows(50), app_id="default", batch_id=0)
    new = MemoryStore()

    with pytest.raises(StreamIdentityError, match="retire"):
        back(table, Goal(version=1), query.checkpoint, new)
    assert content(table) == [50]
    back(table, Goal(version=1), query.checkpoint, new, retire=["default"])
    assert content(table) == [0]


def test_rows_of_another_query_of_the_application_are_undone_with_retire(
    table: Table, leave: Leave
) -> None:
    former, query = Query(table).begin(OLD), Query(table, plus=100).begin(OTHER)
    former.run(3)
    leave(table)
    query.run(2)

    back(table, Goal(version=1), retire=["default"])

    assert content(table) == [0]
    for retired in (former, query):
        with pytest.raises(StreamIdentityError):
            retired.run(1)


def test_a_fork_of_a_second_rewind_continues_after_the_batches_that_the_version_holds(
    table: Table, leave: Leave
) -> None:
    query = Query(table).begin(OLD)
    query.run(3)
    leave(table)
    without = table.head().version
    query.run(2)
    first, second = MemoryStore(), MemoryStore()
    back(table, Goal(version=2), query.checkpoint, first)
    Query(table, first, plus=100).run(1)
    assert content(table) == [0, 1, 102]

    done = back(table, Goal(version=without), query.checkpoint, second)  # of the first query

    assert done.forks[0].batches == (0, 1, 2)
    Query(table, second, plus=200).run(2)
    assert content(table) == [0, 1, 2, 203, 204]


# ---- rows of queries that no ledger shows


def test_an_application_whose_entry_left_the_ledger_prevents_a_rewind(
    table: Table, leave: Leave
) -> None:
    query = Query(table, application="night").begin(OLD)
    query.run(4)
    leave(table)

    with pytest.raises(StreamIdentityError, match="would go back") as caught:
        back(table, Goal(version=2))
    assert caught.value.context["applications"] == ["night"]
    assert content(table) == [0, 1, 2, 3]


@pytest.mark.parametrize("target", [0, 2])
def test_an_application_whose_entry_left_can_be_retired_and_is_then_refused(
    table: Table, leave: Leave, target: int
) -> None:
    query = Query(table, application="night").begin(OLD)
    query.run(4)
    leave(table)

    back(table, Goal(version=target), retire=["night"])

    assert content(table) == list(range(target))
    with pytest.raises(StreamIdentityError, match="retired"):
        query.run(1)


@pytest.mark.parametrize("target", [0, 2])
def test_an_application_whose_entry_left_continues_from_a_fork(
    table: Table, leave: Leave, target: int
) -> None:
    query = Query(table, application="night").begin(OLD)
    query.run(4)
    leave(table)
    new = MemoryStore()

    back(table, Goal(version=target), query.checkpoint, new)
    Query(table, new, application="night", plus=100).run(2)

    assert content(table) == [*range(target), *range(100 + target, 102 + target)]
    with pytest.raises(StreamIdentityError, match="retired"):
        query.run(1)


def test_a_rewind_retires_the_forgotten_query_with_the_one_that_followed_it(
    table: Table, leave: Leave
) -> None:
    query = Query(table).begin(OLD)
    query.run(4)
    leave(table)
    heir = Query(table, plus=50).begin(OTHER)
    heir.run(2)

    back(table, Goal(version=0), heir.checkpoint, MemoryStore(), retire=["default"])

    assert content(table) == []
    with pytest.raises(StreamIdentityError, match="retired"):
        query.run(1)


def test_numbered_batches_whose_entry_left_the_ledger_prevent_a_rewind(
    table: Table, leave: Leave
) -> None:
    table.append(rows(1), app_id="job", batch_id=1)
    table.append(rows(2), app_id="job", batch_id=2)
    leave(table)

    with pytest.raises(StreamIdentityError, match="delivered again"):
        back(table, Goal(version=1))
    back(table, Goal(version=1), retire=["job"])
    assert content(table) == [1]


def test_an_entry_that_left_before_the_target_does_not_prevent_a_rewind(
    table: Table, leave: Leave
) -> None:
    query = Query(table).begin(OLD)
    query.run(4)
    leave(table)
    without = table.head().version
    table.append(rows(70))

    back(table, Goal(version=without))

    query.run(1)
    assert content(table) == [0, 1, 2, 3, 4]


def test_a_query_undone_by_an_earlier_rewind_does_not_prevent_the_next_one(
    table: Table, leave: Leave
) -> None:
    query = Query(table).begin(OLD)
    query.run(4)
    new = MemoryStore()
    back(table, Goal(version=2), query.checkpoint, new)
    fork = Query(table, new, plus=100)
    fork.run(1)
    leave(table)
    without = table.head().version
    table.append(rows(70))

    back(table, Goal(version=without))
    fork.run(1)
    assert content(table) == [0, 1, 102, 103]


# ---- publish


def test_a_publish_over_an_entry_that_left_is_refused(table: Table, leave: Leave) -> None:
    query = Query(table).begin(OLD)
    query.run(2)
    table.create_branch("fix")
    trial = opened(table.metadata.store, "fix", clock=table.metadata.clock)
    trial.append(rows(60))
    query.run(2)
    leave(table)
    head = table.head().version

    with pytest.raises(StreamIdentityError, match="would go back"):
        publish(table.committer, "fix", expected_head=head)
    publish(table.committer, "fix", expected_head=head, retire=["default"])
    assert content(table) == [0, 1, 60]
    with pytest.raises(StreamIdentityError, match="retired"):
        query.run(1)


def test_a_branch_that_has_all_rows_of_an_entry_that_left_is_published(
    table: Table, leave: Leave
) -> None:
    query = Query(table).begin(OLD)
    query.run(2)
    leave(table)
    table.create_branch("fix")
    trial = opened(table.metadata.store, "fix", clock=table.metadata.clock)
    trial.append(rows(60))
    table.append(rows(70))

    publish(table.committer, "fix", expected_head=table.head().version)
    query.run(1)
    assert content(table) == [0, 1, 2, 60]


# ---- queries that took another's place


def test_a_query_that_adopted_another_is_not_rewound_to_before_the_other_began(
    table: Table,
) -> None:
    table.append(rows(80))
    query = Query(table).begin(OLD)
    query.run(2)
    heir = Query(table, plus=100, adopt=OLD).begin(OTHER)
    heir.run_batch(2)
    heir.run_batch(3)

    for goal in (Goal(version=1), Goal(version=0)):
        new = MemoryStore()
        with pytest.raises(StreamIdentityError, match="replaced later"):
            back(table, goal, heir.checkpoint, new)
        assert not list(new.list(""))
    back(table, Goal(version=1), retire=["default"])
    assert content(table) == [80]


def test_a_fork_is_rewound_to_before_its_query_began(table: Table) -> None:
    table.append(rows(80))
    query = Query(table).begin(OLD)
    query.run(2)
    new, newer = MemoryStore(), MemoryStore()
    back(table, Goal(after_batch=0), query.checkpoint, new)
    fork = Query(table, new, plus=100)
    fork.run(2)

    back(table, Goal(version=1), new, newer)
    put(newer, {})
    Query(table, newer, plus=200).run(1)
    assert content(table) == [80, 200]
