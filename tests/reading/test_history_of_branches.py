"""A history holds a branch's snapshots up to one head: its own, and those from before its fork."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuse_stream.errors import (
    CorruptObjectError,
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
)
from fuse_stream.format.layout import MAIN, floor_key, slot_key
from fuse_stream.objects.slots import Metadata
from fuse_stream.reading.history import History, load_history
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.by_hand import publish, rewind
from tests.recovery.histories import opened, raise_floor, rows

Create = Callable[..., Table]
Numbers = list[int]


@pytest.fixture
def table(create: Create) -> Table:
    """`main` with versions 0 to 4; branch `fix` from version 2 with one commit of its own,

    and branch `idle` from version 2 without a commit.
    """
    table = create()
    for key in range(1, 5):
        table.append(rows(key))
    table.create_branch("fix", 2)
    table.create_branch("idle", 2)
    opened(table.metadata.store, "fix").append(rows(9))
    return table


def history_of(table: Table, branch: str = MAIN) -> History:
    metadata = Metadata(table.metadata.store, ManualClock(seed=9))
    metadata.load_table_file()
    return load_history(metadata, branch)


def versions(found: object) -> Numbers:
    return [stored.snapshot.version for stored in found]  # type: ignore[attr-defined]


def test_a_branch_contains_versions_up_to_its_fork_and_none_after_it(
    table: Table,
) -> None:
    main, fix = history_of(table), history_of(table, "fix")
    shared, beyond = main.load(2).snapshot, main.load(3).snapshot
    own = fix.head.snapshot

    assert own.version == beyond.version == 3
    assert [main.contains(one) for one in (shared, beyond, own)] == [True, True, False]
    assert [fix.contains(one) for one in (shared, beyond, own)] == [True, False, True]


def test_a_history_of_an_older_head_contains_no_later_version(table: Table) -> None:
    main = history_of(table)
    before = main.as_of(2)

    assert not before.contains(main.load(3).snapshot)
    with pytest.raises(NotFoundError, match="past the head"):
        before.load(3)


def test_a_snapshot_below_the_floor_has_expired_on_that_branch_only(table: Table) -> None:
    raise_floor(table, 4)
    main, fix, idle = (history_of(table, name) for name in (MAIN, "fix", "idle"))
    first = fix.load(1).snapshot

    assert (main.floor, fix.floor, idle.floor) == (4, 0, 0)
    assert main.has_expired(first)
    assert not main.keeps(first)
    assert not fix.has_expired(first)
    assert fix.keeps(first)
    # A snapshot outside a history is neither expired there nor kept by it.
    own = fix.head.snapshot
    assert not main.has_expired(own)
    assert not main.keeps(own)
    with pytest.raises(SnapshotExpiredError):
        main.load(1)


def test_a_history_with_a_lower_floor_contains_versions_below_the_branch_floor(
    table: Table,
) -> None:
    raise_floor(table, 3)
    main = history_of(table)
    kept = main.with_floor(1)

    assert (main.floor, kept.floor) == (3, 1)
    assert kept.load(1).snapshot.version == 1
    assert versions(kept.iter_back()) == [5, 4, 3, 2, 1]
    assert kept.get_first_from(0).snapshot.version == 1
    assert main.head.snapshot.floor == 3


def test_snapshots_are_iterated_newest_first_or_oldest_first(table: Table) -> None:
    main, idle = history_of(table), history_of(table, "idle")

    assert versions(main.iter_back()) == [4, 3, 2, 1, 0]
    assert versions(main.iter_back(3)) == [4, 3]
    assert versions(main.iter_back(5)) == []
    assert versions(main.iter_between(1, 3)) == [1, 2, 3]
    assert versions(main.iter_between(3, 2)) == []
    assert versions(idle.iter_back()) == [2, 1, 0]


def test_a_snapshot_of_another_branch_is_found_but_refused_as_own(table: Table) -> None:
    main, fix = history_of(table), history_of(table, "fix")

    assert main.get_snapshot("fix@") == fix.head
    assert main.get_own(4, branch=MAIN).snapshot.version == 4
    with pytest.raises(InvalidInputError, match="not in the history"):
        main.get_own("fix@", branch=MAIN)


def test_the_sources_of_a_snapshot_leave_out_what_a_rewind_undid(table: Table) -> None:
    rewind(table, 2)
    table.append(rows(6))
    main = history_of(table)

    assert versions(main.iter_sources(main.head)) == [6, 5, 2, 1, 0]
    raise_floor(table, 2)
    expired = history_of(table)
    assert versions(expired.iter_sources(expired.head)) == [7, 6, 5, 2]


def test_the_sources_of_a_published_snapshot_lie_on_the_other_branch(table: Table) -> None:
    fix = opened(table.metadata.store, "fix")
    publish(table, fix)
    main = history_of(table)
    names = [
        (stored.snapshot.branch_id == MAIN, stored.snapshot.version)
        for stored in main.iter_sources(main.head)
    ]

    assert names == [(True, 5), (False, 3), (True, 2), (True, 1), (True, 0)]


def test_a_lost_snapshot_that_another_names_is_an_error_unless_allowed(
    table: Table, store: MemoryStore
) -> None:
    store.delete(slot_key(MAIN, 2))
    main = history_of(table)
    third = main.metadata.load_snapshot(MAIN, 3).snapshot

    assert main.find_named(third.parent, by=third, may_be_lost=True) is None
    assert versions(main.iter_sources(main.head, may_be_lost=True)) == [4, 3]
    with pytest.raises(CorruptObjectError, match="missing from the table's history") as caught:
        main.find_named(third.parent, by=third)
    assert caught.value.context["key"] == slot_key(MAIN, 2)
    with pytest.raises(CorruptObjectError, match="missing from the table's history"):
        list(main.iter_sources(main.head))


def test_a_named_snapshot_that_expired_or_whose_branch_was_deleted_is_not_found(
    table: Table, store: MemoryStore
) -> None:
    published = publish(table, opened(store, "fix"))
    assert published.target is not None
    main = history_of(table)
    first, origin = main.load(1).snapshot, main.load(0).snapshot
    uncached = History(Metadata(store, ManualClock(seed=9)), main.head)
    store.put(floor_key(MAIN, 0), b"expired")
    store.delete(slot_key(MAIN, 0))
    store.delete(slot_key(published.target.branch_id, published.target.version))

    assert uncached.find_named(first.parent, by=first) is None  # the floor was read before that
    assert uncached.find_named(published.target, by=published) is None
    assert uncached.find_named(origin.parent, by=origin) is None


def test_a_snapshot_in_the_slot_of_another_is_an_error(table: Table, store: MemoryStore) -> None:
    main = history_of(table)
    third, other = main.load(3).snapshot, main.load(1)
    assert third.parent is not None

    with pytest.raises(CorruptObjectError, match="not the one") as caught:
        main.find_named(type(third.parent)(branch_id=MAIN, version=1, sha256="0" * 64), by=third)
    assert caught.value.context == {"version": other.snapshot.version, "named_by": 3}
