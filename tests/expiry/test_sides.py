"""Vacuum keeps what the sides of retained snapshots name, and deletes what only expired ones do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.layout import segment_key
from fuse_stream.testing.model import assert_sound
from tests.kit.sides import commit_sides, keys_of, side_rows
from tests.protocol.worlds import World, small_chunks
from tests.recovery.histories import opened, rows


@pytest.fixture(autouse=True)
def _small_chunks() -> Iterator[None]:
    with small_chunks():
        yield


@pytest.fixture
def world() -> World:
    """Version 2 hides tombstone a."""
    world = World()
    commit_sides(world.opened(), {"tombstones": side_rows("a", "b")}, rows=rows(1))
    commit_sides(world.opened(), {"quarantine": side_rows("x")}, hides={"tombstones": {"a"}})
    return world


def objects(world: World) -> set[str]:
    return {key for key in world.store.objects if key[:3] in {"_b/", "_sg", "_dv"}}


def test_what_sides_of_retained_versions_name_is_kept(world: World) -> None:
    before = objects(world)
    world.vacuum_twice_aged()
    table = opened(world.store)

    assert objects(world) == before
    assert keys_of(table, "tombstones") == {"b": 1}
    assert keys_of(table, "tombstones", table.snapshot(1)) == {"a": 1, "b": 1}


def test_what_only_sides_of_expired_versions_name_is_deleted(world: World) -> None:
    commit_sides(world.opened(), {"tombstones": side_rows("c")})
    world.opened().compact()
    old = objects(world)
    world.expire()
    world.vacuum_twice_aged()
    table = opened(world.store)
    left = objects(world)

    assert len(left) < len(old)
    assert left == {key for key in left if key in old}
    assert {name: len(side.segments) for name, side in table.head().sides.items()} == {
        "quarantine": 1,
        "tombstones": 1,
    }
    assert sum(key.startswith("_b/") for key in left) == 3
    assert not any(key.startswith("_dv/") for key in left)
    assert keys_of(table, "tombstones") == {"b": 1, "c": 1}
    assert_sound(world.store, table, since=table.head().floor)


def test_a_lost_segment_of_a_side_stops_a_vacuum(world: World) -> None:
    ref = world.opened().head().sides["tombstones"].segments[0]
    del world.store.objects[segment_key(ref.id)]
    before = objects(world)

    with pytest.raises(CorruptObjectError, match="fsck"):
        world.opened().vacuum()
    assert objects(world) == before


def test_a_clone_keeps_the_blocks_of_sides(world: World) -> None:
    world.clone(2)
    world.opened().compact()
    commit_sides(world.opened(), {}, hides={"tombstones": {"b"}})
    world.expire()
    world.vacuum_twice_aged()
    (clone_id,) = world.clones
    clone = world.opened_clone(clone_id)

    assert keys_of(clone, "tombstones") == {"b": 1}
    assert keys_of(clone, "quarantine") == {"x": 1}
