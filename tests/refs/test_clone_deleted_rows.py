"""A clone of a snapshot with deleted rows has the same rows, and changes only its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.layout import deletions_key
from fuse_stream.table.handle import Table
from fuse_stream.testing.memory import MemoryStore
from tests.protocol.worlds import World
from tests.recovery.histories import keys, opened, rows
from tests.refs.test_clone import made, of

Create = Callable[..., Table]


@pytest.fixture
def place() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def table(create: Create) -> Table:
    """Keys 1, 3, 5 and 60 at version 4: 2 and 4 are deleted, and 6 became 60."""
    table = create()
    table.append(rows(1, 2, 3, 4, 5, 6))
    table.delete("k = 2")
    table.delete("k = 4")
    table.update("k = 6", {"k": 60})
    return table


def bytes_of(store: MemoryStore, table: Table) -> list[bytes]:
    return [store.get(deletions_key(ref.id)) for ref in table.head().deletion_files]


def test_a_clone_shows_the_rows_of_its_source_and_no_deleted_ones(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    done = made(store, place)
    clone = of(place, store)
    head = clone.head()

    assert keys(clone.to_arrow()) == [1, 3, 5, 60]
    assert head.summary.row_count == 4
    assert (head.hidden_rows, head.stored_rows) == (3, 7)
    assert head.summary == done.source.summary
    assert clone.fsck().is_sound


def test_a_clone_has_its_own_deletion_files_with_the_same_bytes(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    made(store, place)
    clone = of(place, store)
    own, others = clone.head().deletion_files, table.head().deletion_files

    assert bytes_of(place, clone) == bytes_of(store, table)
    assert not {ref.id for ref in own} & {ref.id for ref in others}
    assert [(ref.level, ref.since_us) for ref in own] == [
        (ref.level, ref.since_us) for ref in others
    ]
    assert len(list(place.list("_dv/"))) == 3


def test_the_feed_of_a_clone_starts_with_the_visible_rows_as_insertions(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    made(store, place)
    clone = of(place, store)
    clone.delete("k = 1")
    feed = clone.changes(0).read_all().select(["k", "_change_type", "_commit_version"]).to_pydict()
    events = zip(feed["_commit_version"], feed["_change_type"], feed["k"], strict=True)

    assert sorted(events) == [
        (1, "insert", 1),
        (1, "insert", 3),
        (1, "insert", 5),
        (1, "insert", 60),
        (2, "delete", 1),
    ]


def test_a_clone_deletes_and_updates_rows_of_its_origins_blocks(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    before = dict(store.objects)
    made(store, place)
    clone = of(place, store)
    clone.delete("k = 1")
    clone.update("k = 3", {"k": 30})

    assert keys(of(place, store).to_arrow()) == [5, 30, 60]
    assert keys(opened(store).to_arrow()) == [1, 3, 5, 60]
    assert keys(clone.to_arrow(version=1)) == [1, 3, 5, 60]
    assert {key for key in store.objects if not key.startswith("_refs/")} == before.keys()
    assert clone.fsck().is_sound


def test_a_compaction_of_a_clone_leaves_deleted_rows_out(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    made(store, place)
    clone = of(place, store)
    clone.delete("k = 1")
    assert clone.compact().snapshot is not None

    assert keys(of(place).to_arrow()) == [3, 5, 60]
    assert clone.head().deletion_files == ()
    assert clone.fsck().is_sound


def test_a_clone_of_a_clone_shows_the_same_rows(table: Table, store: MemoryStore) -> None:
    middle, last = MemoryStore(), MemoryStore()
    made(store, middle)
    of(middle, store).delete("k = 1")
    made(middle, last, store)
    clone = of(last, middle, store)
    clone.delete("k = 5")

    assert keys(of(last, middle, store).to_arrow()) == [3, 60]
    assert keys(of(middle, store).to_arrow()) == [3, 5, 60]
    assert len(list(last.list("_dv/"))) == 5
    assert clone.fsck().is_sound


def test_a_revert_of_a_delete_of_a_clone_shows_rows_of_its_origin(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    made(store, place)
    clone = of(place, store)
    deleted = clone.delete("k = 1").snapshot
    assert deleted is not None
    clone.revert(deleted.version)

    assert keys(of(place, store).to_arrow()) == [1, 3, 5, 60]


def test_a_clone_of_a_source_with_a_lost_deletion_file_is_refused(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    store.delete(deletions_key(table.head().deletion_files[1].id))

    with pytest.raises(CorruptObjectError, match="a deletion file is missing"):
        made(store, place)


def test_vacuum_of_the_origin_keeps_what_a_clone_shows() -> None:
    world = World()
    world.opened().append(rows(1, 2, 3))
    world.opened().delete("k = 1")
    world.clone(2)
    (clone_id,) = world.clones
    world.opened_clone(clone_id).delete("k = 2")
    world.opened().compact()
    world.overwrite()
    world.expire()
    world.vacuum_twice_aged()
    clone = world.opened_clone(clone_id)

    assert keys(clone.to_arrow()) == [3]
    assert keys(clone.to_arrow(version=1)) == [2, 3]
    assert clone.fsck().is_sound


def test_vacuum_of_a_clone_keeps_its_deletion_files() -> None:
    world = World()
    world.opened().append(rows(1, 2, 3))
    world.opened().delete("k = 1")
    world.clone(2)
    (clone_id,) = world.clones
    world.opened_clone(clone_id).delete("k = 2")
    for _ in range(3):
        world.pass_time(61)
        world.opened_clone(clone_id).vacuum()

    assert keys(world.opened_clone(clone_id).to_arrow()) == [3]
    assert len(list(world.clones[clone_id].list("_dv/"))) == 2
