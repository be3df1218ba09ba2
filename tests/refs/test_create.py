"""Branches and tags: what they share, what is separate, and what concurrent changes do to them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest

from fuse_stream.errors import (
    AlreadyExistsError,
    CorruptObjectError,
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
    StorageError,
)
from fuse_stream.format.layout import branch_ref_key, slot_key, tag_ref_key
from fuse_stream.format.refs import BranchRef, TagRef
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.histories import keys, opened, raise_floor, rows

Create = Callable[..., Table]


# ---- branches


def test_main_was_created_with_its_table(create: Create, clock: ManualClock) -> None:
    table = create()
    clock.advance(60)
    table.create_branch("fix")

    main, fix = table.branches()
    assert main.created_us == table.metadata.load_table_file().created_us > 0
    assert fix.created_us >= main.created_us + 60_000_000


def test_a_new_branch_equals_the_snapshot_it_forked_from(table: Table, store: MemoryStore) -> None:
    ref = table.create_branch("fix", 3)
    branch = opened(store, "fix")

    assert branch.head() == table.snapshot(3)
    assert keys(branch.to_arrow()) == [1, 2, 3]
    assert [snapshot.version for snapshot in branch.log()] == [3, 2, 1, 0]
    assert table.branches() == (*table.branches()[:1], ref)
    assert [one.name for one in table.branches()] == ["main", "fix"]


def test_commits_on_a_branch_and_on_main_do_not_affect_each_other(
    table: Table, store: MemoryStore
) -> None:
    ref = table.create_branch("fix", 3)
    branch = opened(store, "fix")

    mine = branch.append(rows(30))
    theirs = table.append(rows(6))

    assert (mine.branch_id, mine.version) == (ref.branch_id, 4)
    assert (theirs.branch_id, theirs.version) == ("main", 6)
    assert keys(branch.to_arrow()) == [1, 2, 3, 30]
    assert keys(opened(store, "fix").to_arrow()) == [1, 2, 3, 30]
    assert keys(opened(store).to_arrow()) == [1, 2, 3, 4, 5, 6]
    assert keys(branch.to_arrow(version=2)) == [1, 2]
    changes = branch.changes(2).read_all()
    assert list(zip(changes["k"].to_pylist(), changes["_commit_version"].to_pylist())) == [  # noqa: B905
        (2, 2),
        (3, 3),
        (30, 4),
    ]


def test_each_branch_has_its_own_ledger(table: Table, store: MemoryStore) -> None:
    table.append(rows(6), app_id="a", batch_id=1)
    table.create_branch("fix")
    branch = opened(store, "fix")

    branch.append(rows(7), app_id="a", batch_id=2)
    again = branch.append(rows(7), app_id="a", batch_id=2)
    table.append(rows(8), app_id="a", batch_id=2)

    assert again.version == branch.head().version == 7
    assert keys(branch.to_arrow()) == [1, 2, 3, 4, 5, 6, 7]
    assert keys(table.to_arrow()) == [1, 2, 3, 4, 5, 6, 8]


def test_a_branch_of_a_branch_remains_readable_after_that_branch_is_deleted(
    table: Table, store: MemoryStore
) -> None:
    table.create_branch("one", 3)
    one = opened(store, "one")
    one.append(rows(30))
    one.create_branch("two")
    one.create_branch("early", 2)  # a version that it shares with main
    two = opened(store, "two")
    two.append(rows(300))

    table.delete_branch("one")
    fresh = opened(store, "two")

    assert keys(fresh.to_arrow()) == [1, 2, 3, 30, 300]
    assert [snapshot.version for snapshot in fresh.log()] == [5, 4, 3, 2, 1, 0]
    assert [fork.version for fork in fresh.committer.branch.forks] == [3, 4]
    assert keys(opened(store, "early").to_arrow()) == [1, 2]
    assert [fork.branch_id for fork in opened(store, "early").committer.branch.forks] == ["main"]


def test_a_branch_with_a_reused_name_has_none_of_the_old_commits(
    table: Table, store: MemoryStore
) -> None:
    table.create_branch("fix", 3)
    old = opened(store, "fix")
    old.append(rows(30))
    table.delete_branch("fix")
    with pytest.raises(NotFoundError, match="no such branch"):
        old.append(rows(31))

    table.create_branch("fix", 3)

    assert keys(opened(store, "fix").to_arrow()) == [1, 2, 3]
    with pytest.raises(NotFoundError, match="deleted while in use"):
        old.append(rows(31))


def test_commits_are_found_by_time_and_by_id_on_a_branch(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    clock.advance(60)
    table.create_branch("fix", 3)
    branch = opened(store, "fix", clock)
    mine = branch.append(rows(30))
    at = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=mine.timestamp_us)

    assert branch.snapshot(timestamp=at) == mine
    assert branch.snapshot(timestamp=at - dt.timedelta(microseconds=1)).version == 3
    assert branch.snapshot(mine.snapshot_id[:9]) == mine
    assert table.snapshot(f"fix@{mine.snapshot_id[:9]}") == mine
    assert table.snapshot("fix@") == mine
    assert table.snapshot("fix@2") == table.snapshot(2)
    assert branch.snapshot("main@") == table.head()


def test_changes_refuses_a_version_of_another_branch(table: Table, store: MemoryStore) -> None:
    table.create_branch("fix", 3)
    opened(store, "fix").append(rows(30))

    with pytest.raises(InvalidInputError, match="not in the history of this branch"):
        table.changes(1, "fix@")
    assert table.changes("fix@2", 3).read_all()["k"].to_pylist() == [2, 3]


def test_a_branch_costs_one_write_and_a_few_reads(table: Table, store: MemoryStore) -> None:
    counted = FaultyStore(store)
    handle = opened(counted)
    counted.calls.clear()

    handle.create_branch("fix")
    reads = [key for verb, key in counted.calls if verb in {"get", "open_input", "list"}]
    writes = [key for verb, key in counted.calls if verb not in {"get", "open_input", "list"}]

    assert writes == ["_refs/branches/fix.json"]
    assert len(reads) <= 6


# ---- tags


def test_a_tag_names_the_same_snapshot_after_later_commits(
    table: Table, store: MemoryStore
) -> None:
    tag = table.create_tag("good", 3)
    table.append(rows(6))

    assert table.snapshot("good") == table.snapshot(3)
    assert keys(opened(store).to_arrow(version="good")) == [1, 2, 3]
    assert table.tags() == (tag,)
    assert tag.snapshot_id == table.snapshot(3).snapshot_id
    with pytest.raises(AlreadyExistsError, match="name is taken"):
        table.create_tag("good", 4)


def test_a_tag_outlives_the_branch_of_its_snapshot(table: Table, store: MemoryStore) -> None:
    table.create_branch("fix", 3)
    opened(store, "fix").append(rows(30))
    table.create_tag("tried", "fix@")
    table.delete_branch("fix")
    fresh = opened(store)

    assert keys(fresh.to_arrow(version="tried")) == [1, 2, 3, 30]
    fresh.create_branch("again", "tried")
    assert keys(opened(store, "again").to_arrow()) == [1, 2, 3, 30]
    with pytest.raises(SnapshotExpiredError):  # the tag kept its own snapshot and no other
        opened(store, "again").to_arrow(version=2)


def test_a_tag_with_an_expiry_time_is_not_found_after_it(
    create: Create, clock: ManualClock
) -> None:
    table = create()
    table.append(rows(1))
    table.create_tag("soon", retain="1h")
    table.create_tag("later", retain=dt.timedelta(hours=2))
    clock.advance(3600)

    assert [tag.name for tag in table.tags()] == ["later"]
    with pytest.raises(NotFoundError, match="retention time"):
        table.snapshot("soon")
    table.append(rows(2))
    table.create_tag("soon")  # the name is free again
    assert table.snapshot("soon").version == 2


@pytest.mark.parametrize("retain", ["soon", "0s", dt.timedelta(0), dt.timedelta(days=-1), 5])
def test_a_tag_may_be_kept_for_a_duration(table: Table, retain: object) -> None:
    with pytest.raises(InvalidInputError, match="duration"):
        table.create_tag("x", retain=retain)  # type: ignore[arg-type]


def test_a_deleted_tag_is_not_found(table: Table) -> None:
    table.create_tag("good")
    table.delete_tag("good")

    assert table.tags() == ()
    with pytest.raises(NotFoundError, match="no such tag") as caught:
        table.snapshot("good")
    assert caught.value.context["tag"] == "good"
    with pytest.raises(NotFoundError):
        table.delete_tag("good")


# ---- names that are refused


@pytest.mark.parametrize("name", ["main", "12", "beef", "a/b", "a@b", ""])
def test_a_bad_name_is_refused_before_anything_is_written(
    table: Table, store: MemoryStore, name: str
) -> None:
    for make in (table.create_branch, table.create_tag):
        with pytest.raises(InvalidInputError):
            make(name)

    assert list(store.list("_refs/")) == []
    with pytest.raises(InvalidInputError):
        table.delete_branch("main")


@pytest.mark.parametrize("version", [9, "nope", "fix@"])
def test_a_name_for_a_missing_version_is_refused(table: Table, version: int | str) -> None:
    with pytest.raises(NotFoundError):
        table.create_tag("x", version)

    assert table.tags() == ()


# ---- what goes wrong


def test_a_lost_reply_does_not_make_the_name_appear_taken(
    create: Create, store: MemoryStore
) -> None:
    create().append(rows(1))

    class Lossy(FaultyStore):
        def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
            super().put_if_absent(key, data)
            raise StorageError("the reply was lost")

    table = opened(Lossy(store))

    assert isinstance(table.create_branch("fix"), BranchRef)
    assert isinstance(table.create_tag("good"), TagRef)
    assert [one.name for one in opened(store).branches()] == ["main", "fix"]


@pytest.mark.parametrize("kind", ["branch", "tag"])
def test_a_name_is_undone_if_its_version_expires_during_the_call(
    table: Table, store: MemoryStore, kind: str
) -> None:
    class Overtaken(FaultyStore):
        def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
            super().put_if_absent(key, data)
            raise_floor(table, 4)

    late = opened(Overtaken(store))
    make = late.create_branch if kind == "branch" else late.create_tag

    with pytest.raises(SnapshotExpiredError, match="taken back"):
        make("old", 3)

    assert list(store.list("_refs/")) == []
    with pytest.raises(SnapshotExpiredError):
        opened(store).create_tag("old", 3)
    assert opened(store).create_tag("new", 4).target.version == 4


def test_an_expired_version_that_a_tag_keeps_can_be_named_again(
    table: Table, store: MemoryStore
) -> None:
    table.create_tag("good", 2)
    raise_floor(table, 4)

    opened(store).create_branch("from-good", "good")

    assert keys(opened(store, "from-good").to_arrow()) == [1, 2]


def test_a_ref_copied_to_another_name_is_corrupt(table: Table, store: MemoryStore) -> None:
    table.create_branch("fix")
    table.create_tag("good")
    store.replace(branch_ref_key("other"), store.get(branch_ref_key("fix")))
    store.replace(tag_ref_key("other"), store.get(tag_ref_key("good")))

    for version in ("other", "other@"):
        with pytest.raises(CorruptObjectError, match="another name"):
            table.snapshot(version)


def test_a_tag_whose_snapshot_was_replaced_is_corrupt(table: Table, store: MemoryStore) -> None:
    table.create_tag("good", 2)
    store.replace(slot_key("main", 2), store.get(slot_key("main", 2)) + b" ")

    with pytest.raises(CorruptObjectError):
        opened(store).snapshot("good")
    store.delete(slot_key("main", 2))
    with pytest.raises(CorruptObjectError, match="missing"):
        opened(store).snapshot("good")
