"""Rewind, revert, publish and branches over commits that delete and update rows."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuse_stream.check.fsck import check_table
from fuse_stream.errors import ConflictError, InvalidInputError, SnapshotExpiredError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.records import Snapshot
from fuse_stream.recovery.target import Goal
from fuse_stream.table.handle import Table, create_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound
from tests.protocol.worlds import World
from tests.recovery.histories import keys, opened, raise_floor, rewind, rows

Create = Callable[..., Table]
Rows = Counter[tuple[int, int]]


@pytest.fixture
def table(create: Create) -> Table:
    """Version 1 appends keys 1 to 4, version 2 keys 5 and 6; nothing is deleted yet."""
    table = create()
    table.append(rows(1, 2, 3, 4))
    table.append(rows(5, 6))
    return table


def delete(table: Table, where: str) -> Snapshot:
    done = table.delete(where).snapshot
    assert done is not None
    return done


def update(table: Table, where: str, key: int) -> Snapshot:
    done = table.update(where, {"k": key}).snapshot
    assert done is not None
    return done


def changes(table: Table, version: int) -> list[tuple[str, int]]:
    found = table.changes(version, version).read_all()
    return sorted(zip(found["_change_type"].to_pylist(), found["k"].to_pylist(), strict=True))


# ---- rewind


def test_a_rewind_to_before_a_delete_shows_the_rows_again(table: Table, store: MemoryStore) -> None:
    delete(table, "k = 2")
    delete(table, "k > 4")
    done = rewind(table.committer, Goal(version=2))

    assert keys(opened(store).to_arrow()) == [1, 2, 3, 4, 5, 6]
    assert table.head().deletion_files == ()
    assert (done.deleted_rows, done.inserted_rows) == (0, 3)
    assert done.by_hand == (3, 4)
    assert changes(table, 5) == [("insert", 2), ("insert", 5), ("insert", 6)]
    assert_sound(store, opened(store))


def test_a_rewind_to_a_delete_hides_the_rows_again(table: Table, store: MemoryStore) -> None:
    deleted = delete(table, "k = 2")
    rewind(table.committer, Goal(version=2))
    rewind(table.committer, Goal(version=3))

    assert keys(opened(store).to_arrow()) == [1, 3, 4, 5, 6]
    assert table.head().deletion_files == deleted.deletion_files
    assert changes(table, 5) == [("delete", 2)]


def test_a_rewind_to_before_an_update_restores_the_old_values(
    table: Table, store: MemoryStore
) -> None:
    update(table, "k = 2", 20)
    rewind(table.committer, Goal(version=2))

    assert keys(opened(store).to_arrow()) == [1, 2, 3, 4, 5, 6]
    assert changes(table, 4) == [("delete", 20), ("insert", 2)]


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_rewind_over_a_compaction_shows_deleted_rows_again(
    table: Table, store: MemoryStore, *, is_compacted: bool
) -> None:
    delete(table, "k = 2")
    if is_compacted:
        assert table.compact().snapshot is not None
    delete(table, "k = 3")
    rewind(table.committer, Goal(version=2))

    assert keys(opened(store).to_arrow()) == [1, 2, 3, 4, 5, 6]
    followed = keys(table.changes(1, 3).read_all())
    assert followed == [1, 2, 2, 3, 4, 5, 6]


def test_a_delete_after_a_rewind_does_not_hide_a_row_twice(
    table: Table, store: MemoryStore
) -> None:
    delete(table, "k = 2")
    rewind(table.committer, Goal(version=2))
    again = delete(table, "k = 2")
    rewind(table.committer, Goal(version=3))

    assert again.hidden_rows == 1
    assert keys(opened(store).to_arrow()) == [1, 3, 4, 5, 6]
    assert opened(store).fsck().is_sound


def test_a_rewind_to_an_expired_delete_is_refused(table: Table) -> None:
    delete(table, "k = 2")
    table.append(rows(7))
    raise_floor(table, 4)

    with pytest.raises(SnapshotExpiredError):
        rewind(table.committer, Goal(version=3))


def test_a_tag_keeps_the_rows_hidden_and_shown_that_it_named() -> None:
    world = World()
    world.opened().append(rows(1, 2, 3))
    world.opened().delete("k = 1")
    world.table.create_tag("good", 2)
    world.opened().delete("k = 2")
    world.overwrite()
    world.expire()
    world.vacuum_twice_aged()
    rewind(world.opened().committer, Goal(version="good"))

    assert keys(world.opened().to_arrow()) == [2, 3]
    assert world.opened().fsck().is_sound


# ---- revert


def test_a_revert_of_a_delete_shows_the_rows_again(table: Table, store: MemoryStore) -> None:
    delete(table, "k = 2")
    delete(table, "k = 3")
    table.revert(3)

    assert keys(opened(store).to_arrow()) == [1, 2, 4, 5, 6]
    assert table.head().hidden_rows == 1
    assert changes(table, 5) == [("insert", 2)]
    assert_sound(store, opened(store))


def test_a_revert_of_a_delete_of_whole_blocks_shows_them_again(
    table: Table, store: MemoryStore
) -> None:
    delete(table, "k > 4")
    table.revert(3)

    assert keys(opened(store).to_arrow()) == [1, 2, 3, 4, 5, 6]
    assert table.head().deletion_files == ()


def test_a_revert_of_an_update_restores_the_old_values(table: Table, store: MemoryStore) -> None:
    update(table, "k = 2", 20)
    delete(table, "k = 3")
    table.revert(3)

    assert keys(opened(store).to_arrow()) == [1, 2, 4, 5, 6]
    assert changes(table, 5) == [("delete", 20), ("insert", 2)]
    assert_sound(store, opened(store))


def test_a_revert_of_a_revert_of_a_delete_hides_the_rows_again(
    table: Table, store: MemoryStore
) -> None:
    delete(table, "k = 2")
    table.revert(3)
    table.revert(4)

    assert keys(opened(store).to_arrow()) == [1, 3, 4, 5, 6]
    assert changes(table, 5) == [("delete", 2)]


def test_a_revert_of_a_delete_after_a_compaction_shows_its_rows_and_no_others(
    table: Table, store: MemoryStore
) -> None:
    delete(table, "k = 2")
    delete(table, "k = 3")
    assert table.compact().snapshot is not None
    table.revert(3)

    assert keys(opened(store).to_arrow()) == [1, 2, 4, 5, 6]
    assert changes(table, 6) == [("insert", 2)]
    assert_sound(store, opened(store))
    assert table.compact().snapshot is not None
    assert keys(opened(store).to_arrow()) == [1, 2, 4, 5, 6]


def test_a_revert_of_an_update_after_a_compaction_of_its_rows_names_the_compaction(
    table: Table,
) -> None:
    update(table, "k = 2", 20)
    compacted = table.compact().snapshot
    assert compacted is not None
    table.append(rows(7))

    with pytest.raises(ConflictError, match="a later commit") as caught:
        table.revert(3)
    assert caught.value.context["in_the_way"] == compacted.version
    assert caught.value.context["operation"] == "compact"


@pytest.mark.parametrize("verb", ["delete", "update"])
def test_a_revert_of_rows_that_a_later_commit_has_changed_names_that_commit(
    table: Table, verb: str
) -> None:
    update(table, "k = 2", 20)
    later = delete(table, "k = 20") if verb == "delete" else update(table, "k = 20", 21)
    table.append(rows(7))

    for version in (3, 2):
        if version == 2:
            delete(table, "k = 5")
        with pytest.raises(ConflictError, match="a later commit") as caught:
            table.revert(version)
        expected = later.version if version == 3 else table.head().version
        assert caught.value.context["in_the_way"] == expected


def test_a_revert_of_an_append_of_which_rows_were_deleted_names_the_delete(
    table: Table,
) -> None:
    deleted = delete(table, "k = 5")
    delete(table, "k = 1")

    with pytest.raises(ConflictError) as caught:
        table.revert(2)
    assert caught.value.context["in_the_way"] == deleted.version
    assert caught.value.context["operation"] == "delete"


def test_a_revert_of_a_delete_whose_rows_were_shown_again_names_that_commit(
    table: Table,
) -> None:
    delete(table, "k = 2")
    table.revert(3)

    with pytest.raises(ConflictError) as caught:
        table.revert(3)
    assert caught.value.context["in_the_way"] == 4


def test_a_revert_of_a_delete_whose_rows_a_compaction_has_moved_names_the_compaction(
    table: Table,
) -> None:
    delete(table, "k = 2")
    table.revert(3)
    compacted = table.compact().snapshot
    assert compacted is not None

    with pytest.raises(ConflictError):
        table.revert(3)


def test_a_revert_of_an_overwrite_brings_hidden_rows_back_hidden(
    table: Table, store: MemoryStore
) -> None:
    delete(table, "k = 2")
    table.overwrite(rows(9))
    table.revert(4)

    assert keys(opened(store).to_arrow()) == [1, 3, 4, 5, 6]
    assert table.head().hidden_rows == 1
    assert_sound(store, opened(store))


def test_an_expired_delete_is_not_reverted(table: Table) -> None:
    delete(table, "k = 2")
    raise_floor(table, 3)

    with pytest.raises(SnapshotExpiredError, match="cannot be undone"):
        table.revert(3)


# ---- branches and publish


def test_a_delete_on_a_branch_leaves_main_unchanged(table: Table, store: MemoryStore) -> None:
    delete(table, "k = 1")
    table.create_branch("fix")
    delete(opened(store, "fix"), "k = 2")
    delete(table, "k = 3")

    assert keys(opened(store, "fix").to_arrow()) == [3, 4, 5, 6]
    assert keys(opened(store).to_arrow()) == [2, 4, 5, 6]
    assert opened(store).fsck().is_sound


def test_a_publish_brings_the_deletes_and_updates_of_the_branch(
    table: Table, store: MemoryStore
) -> None:
    delete(table, "k = 1")
    table.create_branch("fix")
    fix = opened(store, "fix")
    delete(fix, "k = 2")
    update(fix, "k = 3", 30)
    table.publish("fix")

    assert keys(opened(store).to_arrow()) == [4, 5, 6, 30]
    assert table.head().deletion_files == fix.head().deletion_files
    assert changes(table, 4) == [("delete", 2), ("delete", 3), ("insert", 30)]
    assert_sound(store, opened(store))


def test_a_publish_after_a_compaction_of_main_feeds_only_what_the_branch_changed(
    table: Table, store: MemoryStore
) -> None:
    delete(table, "k = 1")
    table.create_branch("fix")
    delete(opened(store, "fix"), "k = 2")
    assert table.compact().snapshot is not None
    table.publish("fix")

    assert keys(opened(store).to_arrow()) == [3, 4, 5, 6]
    assert changes(table, 5) == [("delete", 2)]


def test_a_publish_over_deletes_of_main_is_refused_unless_the_head_is_named(
    table: Table, store: MemoryStore
) -> None:
    table.create_branch("fix")
    delete(opened(store, "fix"), "k = 2")
    deleted = delete(table, "k = 1")

    with pytest.raises(ConflictError, match="both branches have moved"):
        table.publish("fix")
    done = table.publish("fix", expected_head=deleted.version)
    assert done.lost == (deleted,)
    assert keys(opened(store).to_arrow()) == [1, 3, 4, 5, 6]
    assert changes(table, 4) == [("delete", 2), ("insert", 1)]


# ---- any history


STEPS = st.lists(
    st.tuples(
        st.sampled_from("append append delete delete update compact rewind revert publish".split()),
        st.integers(0, 14),
    ),
    min_size=3,
    max_size=14,
)


def content(table: Table) -> Rows:
    held = table.to_arrow()
    return Counter(zip(held["k"].to_pylist(), held["v"].to_pylist(), strict=True))


def do(store: MemoryStore, table: Table, verb: str, number: int, at: list[Rows]) -> Rows:
    """Do a step; return the rows that the table must have then."""
    now, version = at[-1], number % len(at)
    match verb:
        case "append":
            new = pa.table({"k": [number, number + 1, number + 2], "v": [0, 1, len(at)]})
            table.append(new)
            return now + Counter(zip(new["k"].to_pylist(), new["v"].to_pylist(), strict=True))
        case "delete":
            table.delete(f"k < {number // 2}" if number % 3 else f"v = {number % 4}")
            return Counter(
                {
                    (k, v): count
                    for (k, v), count in now.items()
                    if (k >= number // 2 if number % 3 else v != number % 4)
                }
            )
        case "update":
            table.update(f"k = {number}", {"v": number})
            changed: Rows = Counter()
            for (k, v), count in now.items():
                changed[k, number if k == number else v] += count
            return changed
        case "compact":
            table.compact()
            return now
        case "rewind":
            rewind(table.committer, Goal(version=version))
            return at[version]
        case "revert":
            table.revert(version)
            return now - (at[version] - at[version - 1]) + (at[version - 1] - at[version])
        case _:
            name = f"try-{len(table.branches())}"
            table.create_branch(name, version)
            branch = opened(store, name, table.metadata.clock)
            branch.delete(f"k = {number % 7}")
            branch.append(pa.table({"k": [number], "v": [9]}))
            found = {row: count for row, count in at[version].items() if row[0] != number % 7}
            table.publish(name, expected_head=table.head().version)
            return Counter(found) + Counter([(number, 9)])


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_after_any_history_each_version_has_its_rows_and_the_feed_sums_to_them(
    steps: list[tuple[str, int]],
) -> None:
    store, clock = MemoryStore(), ManualClock()
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    table = create_table(
        store, first_schema(columns_of_arrow(schema)), clock=clock, probe_store=False
    )
    at: list[Rows] = [Counter()]
    for verb, number in steps:
        clock.advance(1)
        expected = at[-1]
        with contextlib.suppress(ConflictError, InvalidInputError):
            expected = do(store, table, verb, number, at)
        if table.head().version == len(at):
            at.append(expected)
        assert content(opened(store)) == at[-1], (verb, number)
    assert check_table(store, clock).is_sound
    feed = table.changes(1).read_all().to_pylist() if len(at) > 1 else []
    held: Rows = Counter()
    for version in range(1, len(at)):
        assert content_at(table, version) == at[version]
        for event in feed:
            if event["_commit_version"] == version:
                sign = 1 if event["_change_type"] in {"insert", "update_postimage"} else -1
                held[event["k"], event["v"]] += sign
        assert held == at[version], table.snapshot(version).operation


def content_at(table: Table, version: int) -> Rows:
    held = table.to_arrow(version=version)
    return Counter(zip(held["k"].to_pylist(), held["v"].to_pylist(), strict=True))
