"""Vacuum keeps the deletion files that retained snapshots name, and deletes the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.codec import encode_snapshot
from fuse_stream.format.layout import deletions_key
from fuse_stream.format.reachable import read_snapshot_names
from fuse_stream.testing.faults import FaultyStore
from tests.protocol.worlds import LEASE_S, World, read_all, small_chunks
from tests.recovery.histories import keys, rows


@pytest.fixture(autouse=True)
def _small_chunks() -> Iterator[None]:
    with small_chunks():
        yield


@pytest.fixture
def world() -> World:
    """Keys 2 and 3: key 1 was deleted in version 2."""
    world = World()
    world.opened().append(rows(1, 2, 3))
    world.opened().delete("k = 1")
    return world


def deletion_files(world: World) -> set[str]:
    return {key for key in world.store.objects if key.startswith("_dv/")}


def test_the_names_of_a_snapshot_include_its_deletion_files(world: World) -> None:
    head = world.opened().head()
    (ref,) = head.deletion_files

    names = read_snapshot_names(encode_snapshot(head))
    assert names.deletion_files == ((ref.id, ref.sha256),)


def test_the_deletion_files_of_retained_versions_are_kept(world: World) -> None:
    world.opened().delete("k = 2")
    before = deletion_files(world)
    world.vacuum_twice_aged()

    assert deletion_files(world) == before
    assert keys(world.opened().to_arrow()) == [3]
    assert keys(world.opened().to_arrow(version=2)) == [2, 3]


def test_a_deletion_file_that_only_expired_versions_name_is_deleted(world: World) -> None:
    old = deletion_files(world)
    world.overwrite()
    world.opened().delete("k = 1")
    world.expire()
    world.vacuum_twice_aged()

    assert not deletion_files(world) & old
    assert keys(world.opened().to_arrow()) == []


def test_a_deletion_file_left_by_a_lost_attempt_is_counted_and_deleted_when_old(
    world: World,
) -> None:
    garbage = deletions_key("a" * 32)
    world.store.put(garbage, b"x" * 77)
    young = world.opened().vacuum()
    world.vacuum_twice_aged()

    assert young.waiting["deletion files"].object_count == 1
    assert young.deleted["deletion files"].object_count == 0
    assert garbage not in deletion_files(world)


def test_a_report_has_the_number_and_size_of_deleted_deletion_files(world: World) -> None:
    world.store.put(deletions_key("a" * 32), b"x" * 77)
    world.pass_time(61)
    world.opened().vacuum()
    world.pass_time(61)
    removed = world.opened().vacuum().deleted["deletion files"]

    assert (removed.object_count, removed.byte_size) == (1, 77)


@pytest.mark.parametrize("keeper", ["tag", "branch", "lease", "clone"])
def test_what_keeps_a_version_keeps_its_deletion_files(world: World, keeper: str) -> None:
    match keeper:
        case "tag":
            world.table.create_tag("good", 2)
        case "branch":
            world.table.create_branch("fix", 2)
        case "lease":
            world.lease("etl", 2)
        case _:
            world.clone(2)
    kept = deletion_files(world)
    world.overwrite()
    world.expire()
    before = read_all(world)
    for _ in range(3):
        world.pass_time(61)
        world.opened().vacuum()
    after = read_all(world)

    assert deletion_files(world) == kept
    assert {at: after[at] for at in before} == before


def test_a_lapsed_lease_keeps_no_deletion_file(world: World) -> None:
    world.lease("etl", 2)
    world.overwrite()
    world.expire()
    world.pass_time(LEASE_S)
    world.vacuum_twice_aged()

    assert deletion_files(world) == set()


def test_the_deletion_files_of_a_deleted_branch_are_deleted(world: World) -> None:
    kept = deletion_files(world)
    world.table.create_branch("fix")
    world.opened("fix").delete("k = 2")
    world.table.delete_branch("fix")
    world.vacuum_twice_aged()

    assert deletion_files(world) == kept


@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_a_lost_deletion_file_of_a_head_stops_a_vacuum_before_its_fence(
    world: World, harm: str
) -> None:
    (key,) = deletion_files(world)
    if harm == "missing":
        world.store.delete(key)
    else:
        world.store.put(key, world.store.get(key)[:-1] + b"?")
    version = world.opened().head().version

    with pytest.raises(CorruptObjectError, match="nothing was deleted") as caught:
        world.opened().vacuum()
    assert caught.value.context["key"] == key
    assert world.opened().head().version == version


def test_a_vacuum_reads_the_deletion_files_of_the_heads_once_and_no_others(world: World) -> None:
    world.table.create_branch("same")
    world.opened().delete("k = 2")
    world.overwrite()
    world.opened().delete("k = 1")
    of_heads = [
        deletions_key(ref.id)
        for name in ("main", "same")
        for ref in world.opened(name).head().deletion_files
    ]
    counted = FaultyStore(world.store)
    world.opened(store=counted).vacuum()
    read = [key for verb, key in counted.calls if verb == "get" and key.startswith("_dv/")]

    assert len(deletion_files(world)) == 3
    assert sorted(read) == sorted(of_heads)


def test_a_deletion_file_missing_from_a_listing_is_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = world.store.list
    monkeypatch.setattr(
        world.store,
        "list",
        lambda prefix: (i for i in everything(prefix) if not i.key.startswith("_dv/")),
    )
    world.vacuum_twice_aged()
    monkeypatch.undo()

    assert keys(world.opened().to_arrow()) == [2, 3]
