"""Publish a branch that forked off at a version which has expired since."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from fuse_stream.errors import (
    ConflictError,
    SchemaMismatchError,
    SnapshotExpiredError,
    StreamIdentityError,
)
from fuse_stream.expiry import vacuum
from fuse_stream.format import layout
from fuse_stream.format.layout import MAIN, slot_key
from fuse_stream.format.records import Operation
from fuse_stream.objects.slots import CACHED_SNAPSHOTS
from fuse_stream.recovery.publish import publish
from fuse_stream.recovery.target import Goal
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.histories import keys, opened, raise_floor, rewind, rows
from tests.recovery.streams import Query

Create = Callable[..., Table]
Expire = Callable[[Table], Table]
OLD = "11111111-2222-3333-4444-555555555555"
MONTH_S = 30 * 24 * 3600


@pytest.fixture
def expire(clock: ManualClock) -> Expire:
    """Return a function that expires and deletes all versions but the newest."""

    def expire(table: Table) -> Table:
        store, name = table.metadata.store, table.branch
        for _ in range(3):  # vacuum deletes files after two raises of the epoch
            clock.advance(MONTH_S)
            opened(store, name, clock).expire(keep_last=1)
            opened(store, name, clock).vacuum()
        return opened(store, name)

    return expire


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make vacuum delete the slots of expired versions two at a time."""
    for module in (layout, vacuum):
        monkeypatch.setattr(module, "CHUNK_VERSIONS", 2)


@pytest.fixture
def query(create: Create) -> Query:
    """Five batches on main, and a branch at the fifth, version 5."""
    query = Query(create()).begin(OLD)
    query.run(5)
    query.table.create_branch("fix")
    return query


def on_fix(query: Query) -> Query:
    return Query(opened(query.table.metadata.store, "fix"), query.checkpoint)


def test_maintenance_that_has_expired_is_not_lost_work(query: Query, expire: Expire) -> None:
    on_fix(query).run(3)
    query.table.compact()
    main = expire(query.table)
    before = main.head().version
    assert main.head().floor > 6

    done = main.publish("fix")

    assert keys(main.to_arrow()) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert [lost.version for lost in done.lost] == list(range(before, 5, -1))
    assert {lost.operation for lost in done.lost} == {Operation.COMPACT, Operation.EXPIRE}
    Query(main, query.checkpoint).run(1)
    assert keys(main.to_arrow()) == [0, 1, 2, 3, 4, 5, 6, 7, 8]


def test_rows_that_were_lost_with_expired_commits_are_replaced_only_by_name(
    create: Create, store: MemoryStore, expire: Expire
) -> None:
    table = create()
    table.append(rows(1))
    table.create_branch("fix")
    opened(store, "fix").append(rows(10))
    table.append(rows(2))
    main = expire(table)
    head = main.head().version

    with pytest.raises(ConflictError, match="both branches have moved") as caught:
        main.publish("fix")
    assert caught.value.context["forked_at"] == 1
    assert caught.value.context["lost_commits"] == head - 1
    done = main.publish("fix", expected_head=head)

    assert keys(main.to_arrow()) == [1, 10]
    assert [lost.version for lost in done.lost] == list(range(head, 1, -1))


def test_a_query_that_wrote_in_expired_commits_is_named(query: Query, expire: Expire) -> None:
    opened(query.table.metadata.store, "fix").append(rows(70))
    query.run(2)
    query.table.forget("default")
    main = expire(query.table)
    head = main.head().version
    assert not main.ledger()

    with pytest.raises(ConflictError, match="both branches have moved"):
        main.publish("fix")
    with pytest.raises(StreamIdentityError, match="would go back") as caught:
        main.publish("fix", expected_head=head)
    assert caught.value.context["queries"] == [OLD]
    main.publish("fix", expected_head=head, retire=["default"])

    assert keys(main.to_arrow()) == [0, 1, 2, 3, 4, 70]
    with pytest.raises(StreamIdentityError, match="retired"):
        Query(main, query.checkpoint).run(1)


@pytest.mark.parametrize("has_expired_since", [True, False])
def test_a_rehearsal_is_published_though_its_target_has_expired_on_main(
    create: Create,
    store: MemoryStore,
    expire: Expire,
    has_expired_since: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    query = Query(create()).begin(OLD)
    query.run(5)
    query.table.create_branch("rehearsal")
    branch, fork = opened(store, "rehearsal"), MemoryStore()
    rewind(branch.committer, Goal(after_batch=2), checkpoints=((query.checkpoint, fork),))
    Query(branch, fork, plus=100).run(3)
    if has_expired_since:
        query.run(3)
        query.table.compact()
        main = expire(query.table)
    else:
        raise_floor(query.table, 5)
        main = opened(store)

    if has_expired_since:
        with pytest.raises(ConflictError, match="both branches have moved"):
            main.publish("rehearsal")
    main.publish("rehearsal", expected_head=main.head().version)
    Query(main, fork, plus=100).run(2)

    assert keys(main.to_arrow()) == [0, 1, 2, 103, 104, 105, 106, 107]
    with pytest.raises(StreamIdentityError, match="retired"):
        Query(main, query.checkpoint).run(1)


def test_a_branch_takes_over_main_after_its_own_versions_have_expired(
    query: Query, expire: Expire
) -> None:
    fix = opened(query.table.metadata.store, "fix")
    fix.compact()
    query.run(2)
    fix = expire(fix)
    assert fix.head().floor > 5

    fix.publish("main")

    assert keys(fix.to_arrow()) == [0, 1, 2, 3, 4, 5, 6]


def test_the_fork_point_may_have_expired_on_both_branches(query: Query, expire: Expire) -> None:
    on_fix(query).run(2)
    expire(opened(query.table.metadata.store, "fix"))
    query.table.compact()
    main = expire(query.table)

    main.publish("fix")

    assert keys(main.to_arrow()) == [0, 1, 2, 3, 4, 5, 6]


# ---- slots that vacuum has freed


@pytest.mark.usefixtures("small_chunks")
def test_whether_freed_commits_were_maintenance_is_not_guessed_at(
    query: Query, expire: Expire
) -> None:
    on_fix(query).run(2)
    main = expire(query.table)
    head, floor = main.head().version, main.head().floor

    with pytest.raises(ConflictError, match="have expired, and cannot be listed") as caught:
        main.publish("fix")
    seen_from = caught.value.context["seen_from"]
    assert seen_from in range(7, floor + 1)
    done = main.publish("fix", expected_head=head)

    assert keys(main.to_arrow()) == [0, 1, 2, 3, 4, 5, 6]
    assert done.lost[0].version == head
    assert done.lost[-1].version == seen_from


@pytest.mark.usefixtures("small_chunks")
def test_unknown_writers_of_freed_commits_are_retired_with_all(
    query: Query, expire: Expire
) -> None:
    opened(query.table.metadata.store, "fix").append(rows(70))
    query.run(2)
    query.table.compact()
    query.table.forget("default")
    main = expire(query.table)
    head = main.head().version

    with pytest.raises(SnapshotExpiredError, match="in retire"):
        main.publish("fix", expected_head=head)
    assert keys(main.to_arrow()) == [0, 1, 2, 3, 4, 5, 6]
    main.publish("fix", expected_head=head, retire=["*"])
    assert keys(main.to_arrow()) == [0, 1, 2, 3, 4, 70]


def test_what_is_damaged_below_the_floor_is_not_seen(
    query: Query, store: MemoryStore, expire: Expire
) -> None:
    on_fix(query).run(2)
    main = expire(query.table)
    store.delete(slot_key(MAIN, 7))
    store.put(slot_key(MAIN, 7), b"{")
    main = opened(store)

    with pytest.raises(ConflictError, match="cannot be listed"):
        main.publish("fix")
    main.publish("fix", expected_head=main.head().version)
    assert keys(main.to_arrow()) == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("is_changed", [True, False])
def test_schemas_are_not_mixed_where_the_fork_is_gone(
    create: Create,
    store: MemoryStore,
    expire: Expire,
    is_changed: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    table = create()
    table.append(rows(1))
    table.create_branch("fix")
    fix = opened(store, "fix")
    if is_changed:
        fix.append(pa.table({"k": [10], "x": [0.5]}), merge_schema=True)
    else:
        fix.append(rows(10))
    expire(fix)
    main = expire(table)
    head = main.head().version

    with pytest.raises(ConflictError, match="cannot be listed"):
        main.publish("fix")
    if is_changed:
        with pytest.raises(SchemaMismatchError, match="make a new branch of this one's head"):
            main.publish("fix", expected_head=head)
    else:
        main.publish("fix", expected_head=head)
        assert keys(main.to_arrow()) == [1, 10]


def test_a_rewind_that_has_expired_may_lead_to_what_is_gone(
    create: Create, store: MemoryStore, expire: Expire
) -> None:
    """The slot of the rewind exists; its segments, and the version it went to, are deleted."""
    table = create()
    Query(table).begin(OLD).run(3)
    table.create_tag("old", 2)
    table.compact()
    raise_floor(table, 4)
    table.create_branch("fix")
    opened(store, "fix").append(rows(70))
    rewind(table.committer, Goal(version="old"), retire=["default"])
    table.delete_tag("old")
    table.overwrite(rows(80))
    main = expire(table)
    head = main.head().version

    with pytest.raises(SnapshotExpiredError, match="in retire"):
        main.publish("fix", expected_head=head)
    main.publish("fix", expected_head=head, retire=["*"])
    assert keys(main.to_arrow()) == [0, 1, 2, 70]


@pytest.mark.usefixtures("small_chunks")
def test_a_vacuum_beside_a_publish_does_not_make_it_fail(
    query: Query, store: MemoryStore, clock: ManualClock
) -> None:
    class Vacuumed(FaultyStore):
        def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
            super().put_if_absent(key, data)
            if key == slot_key(MAIN, head + 1):
                opened(store, clock=clock).vacuum()

    on_fix(query).run(2)
    for _ in range(CACHED_SNAPSHOTS + 20):
        raise_floor(query.table, 0)
    clock.advance(MONTH_S)
    query.table.expire(keep_last=1)
    head = query.table.head().version

    done = publish(opened(Vacuumed(store)).committer, "fix")

    assert done.snapshot.version == head + 1
    assert done.lost[0].version == head
    assert 6 < done.lost[-1].version < head
    assert keys(opened(store).to_arrow()) == [0, 1, 2, 3, 4, 5, 6]


# ---- what only compares


def test_a_diff_of_branches_is_exact_though_the_fork_has_expired(
    query: Query, expire: Expire
) -> None:
    on_fix(query).run(2)
    query.table.append(rows(9))
    query.table.compact()
    main = expire(query.table)

    found = main.diff("main@", "fix@").read_all().to_pylist()

    assert sorted((row["_change_type"], row["k"]) for row in found) == [
        ("delete", 9),
        ("insert", 5),
        ("insert", 6),
    ]
