"""Vacuum deletes what nothing needs, and nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuse_stream.errors import (
    AlreadyExistsError,
    CorruptObjectError,
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
)
from fuse_stream.format.layout import slot_key, staged_prefix
from fuse_stream.storage.base import ObjectInfo
from fuse_stream.table.handle import Table
from tests.protocol.worlds import AGE_S, GRACE_S, LEASE_S, World, read_all, small_chunks
from tests.recovery.by_hand import rewind
from tests.recovery.histories import keys, rows


@pytest.fixture(autouse=True)
def _small_chunks() -> Iterator[None]:
    with small_chunks():
        yield


@pytest.fixture
def world() -> World:
    return World()


def test_overwritten_blocks_are_deleted_after_expiry_and_two_epoch_raises(world: World) -> None:
    world.append()
    world.overwrite()
    world.expire()
    world.vacuum_twice_aged()

    assert keys(world.opened().to_arrow()) == [2]
    assert world.count("_b/") == 1
    assert world.count("_sg/") == 1


def test_nothing_is_deleted_by_age_before_the_second_epoch_raise(world: World) -> None:
    world.append()
    world.overwrite()
    world.expire()
    world.pass_time(AGE_S + 1)
    first = world.opened().vacuum()

    assert first.raised == ("main",)
    assert first.object_count == 0
    assert first.waiting["blocks"].object_count == 1
    assert world.count("_b/") == 2


def test_a_vacuum_within_the_vacuum_age_fences_and_does_not_raise_the_epoch(world: World) -> None:
    world.append()
    report = world.opened().vacuum()

    assert report.raised == ()
    assert world.opened().head().operation == "expire"
    assert world.opened().head().epoch == 0


def test_slots_are_deleted_by_chunk_after_the_marker_is_written(world: World) -> None:
    for _ in range(10):
        world.append()
    world.expire()
    world.opened().vacuum()

    assert world.opened().head().floor == 10
    assert [key for key in world.store.objects if key.startswith("_floor/")] == [
        "_floor/main/0",
        "_floor/main/1",
    ]
    assert slot_key("main", 7) not in world.store.objects
    assert slot_key("main", 8) in world.store.objects
    assert keys(world.opened().to_arrow()) == list(range(1, 11))
    with pytest.raises(SnapshotExpiredError, match="first=10"):
        world.opened().to_arrow(version=5)


def test_the_head_is_found_without_the_hint_after_slots_were_deleted(world: World) -> None:
    for _ in range(40):
        world.append()
    world.expire()
    world.opened().vacuum()
    world.store.objects.pop("_hint/main")

    assert world.opened().head().version == 43
    assert world.opened().fsck().is_sound


READERS = {
    "scan": lambda table: table.scan(version=2),
    "dataset": lambda table: SimpleNamespace(read_all=table.scan(version=2).dataset().to_table),
    "changes": lambda table: table.changes(2, 3),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_read_that_outlasts_the_grace_raises_that_the_version_has_expired(
    world: World, read: Callable[[Table], Any]
) -> None:
    for _ in range(3):
        world.overwrite()
    rows = read(world.opened())
    world.expire()
    world.vacuum_twice_aged()

    with pytest.raises(SnapshotExpiredError, match=r"version=2, first=3"):
        rows.read_all()


def test_a_diff_that_outlasts_the_grace_raises_that_the_version_has_expired(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        world.overwrite()
    table, get = world.opened(), world.store.get

    def get_late(key: str) -> bytes:
        if key.startswith("_b/"):
            monkeypatch.undo()
            world.expire()
            world.vacuum_twice_aged()
        return get(key)

    monkeypatch.setattr(world.store, "get", get_late)

    with pytest.raises(SnapshotExpiredError, match=r"version=2, first=3"):
        table.diff(2, 3)


def test_a_block_lost_from_a_retained_version_is_corruption(world: World) -> None:
    world.append()
    rows = world.opened().scan()
    for key in [key for key in world.store.objects if key.startswith("_b/")]:
        world.store.objects.pop(key)

    with pytest.raises(CorruptObjectError, match="a block is missing"):
        rows.read_all()


def test_a_version_missing_from_a_listing_is_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        world.append()
    everything = world.store.list

    def without_the_second(prefix: str) -> Iterator[ObjectInfo]:
        return (info for info in everything(prefix) if info.key != slot_key("main", 2))

    monkeypatch.setattr(world.store, "list", without_the_second)
    world.vacuum_twice_aged()
    monkeypatch.undo()

    assert keys(world.opened().to_arrow(version=2)) == [1, 2]
    assert world.opened().fsck().is_sound


def test_a_dry_run_returns_what_would_be_deleted_and_writes_nothing(world: World) -> None:
    for _ in range(9):
        world.overwrite()
    world.expire()
    world.vacuum_twice_aged()
    for _ in range(9):
        world.overwrite()
    world.expire()
    world.pass_time(AGE_S + 1)
    world.opened().vacuum()
    world.pass_time(AGE_S + 1)
    before = dict(world.store.objects)
    world.clock.wall_us = world.store.clock.now_us()
    table = world.opened()
    planned = table.vacuum(dry_run=True)

    assert world.store.objects == before
    done = world.opened().vacuum()
    assert planned.deleted == done.deleted
    assert planned.waiting == done.waiting
    assert done.byte_size > 0


def test_files_that_a_statement_left_behind_are_deleted_by_age(world: World) -> None:
    world.append()
    world.opened().metadata.store.put(f"{staged_prefix('a' * 32)}part-0.parquet", b"rows")
    waiting = world.opened().vacuum().waiting["unfinished writes"]
    assert (waiting.object_count, world.count("_staged/")) == (1, 1)
    world.vacuum_twice_aged()

    assert world.count("_staged/") == 0
    assert keys(world.opened().to_arrow()) == [1]


def test_a_tag_keeps_its_snapshot_through_expiry(world: World) -> None:
    version = world.append()
    world.overwrite()
    world.table.create_tag("good", version)
    world.expire()
    world.vacuum_twice_aged()

    assert keys(world.opened().to_arrow(version="good")) == [1]


def test_a_tag_that_is_over_by_the_store_clock_keeps_nothing(world: World) -> None:
    version = world.append()
    world.clock.wall_us = world.store.clock.now_us()
    world.opened().create_tag("soon", version, retain="1m")
    world.overwrite()
    world.expire()
    world.pass_time(60)
    world.vacuum_twice_aged()

    assert world.count("_b/") == 1


def test_a_live_lease_keeps_every_version_from_its_position(world: World) -> None:
    world.overwrite()
    position = world.overwrite()
    for _ in range(8):
        world.overwrite()
    world.expire()
    world.lease("etl", position)
    world.vacuum_twice_aged()
    table = world.opened()

    assert world.count("_b/") == 9
    for version in range(position, 11):
        stored = table.metadata.load_snapshot("main", version)
        for ref in stored.snapshot.segments:
            table.metadata.load_segment(ref, stored.snapshot.schema.leaf_types)
    left = table.fsck().unreachable
    assert not left["segments"].object_count
    assert not left["blocks"].object_count
    world.pass_time(LEASE_S)
    world.vacuum_twice_aged()
    assert world.count("_b/") == 1


def test_a_lease_that_lapsed_long_ago_is_deleted(world: World) -> None:
    world.append()
    world.lease("etl", 1)
    world.pass_time(LEASE_S + 89 * 86_400)
    world.opened().vacuum()
    assert world.count("_leases/") == 1
    world.pass_time(86_400)
    world.opened().vacuum()

    assert world.count("_leases/") == 0


def test_all_objects_of_a_deleted_branch_are_deleted(world: World) -> None:
    world.append()
    world.table.create_branch("fix")
    for _ in range(3):
        world.append("fix")
    world.table.delete_branch("fix")
    world.vacuum_twice_aged()
    report = world.opened().fsck()

    assert world.count("_b/") == 1
    assert not [key for key in world.store.objects if key.startswith("_ss/") and "main" not in key]
    assert report.is_sound


def test_a_branch_keeps_the_blocks_that_it_shares_with_a_deleted_one(world: World) -> None:
    world.append()
    world.table.create_branch("one")
    world.append("one")
    world.opened("one").create_branch("two")
    world.append("two")
    world.table.delete_branch("one")
    world.overwrite()
    world.expire()
    world.vacuum_twice_aged()

    assert keys(world.opened("two").to_arrow()) == [1, 2, 3]
    assert keys(world.opened("two").to_arrow(version=2)) == [1, 2]


def test_the_history_of_a_branch_from_a_tag_below_the_floor_starts_at_the_tag(world: World) -> None:
    version = [world.append() for _ in range(6)][-2]
    world.table.create_tag("good", version)
    world.expire()
    world.opened().vacuum()
    world.opened().create_branch("fix", "good")
    world.table.delete_tag("good")
    world.vacuum_twice_aged()
    table = world.opened("fix")

    assert [snapshot.version for snapshot in table.log()][-1] == version
    assert keys(table.to_arrow(version=version)) == [1, 2, 3, 4, 5]
    assert table.fsck().is_sound


def test_a_branch_does_not_include_versions_that_had_expired_at_its_creation(world: World) -> None:
    for _ in range(6):
        world.append()
    world.expire(keep_last=3)
    world.opened().create_branch("fix", 5)
    world.vacuum_twice_aged()
    table = world.opened("fix")

    assert world.opened().snapshot(5).floor == 0
    assert [snapshot.version for snapshot in table.log()][-1] == 4
    assert table.head().floor == 4


def test_a_damaged_snapshot_stops_a_vacuum(world: World) -> None:
    world.append()
    world.append()
    key = slot_key("main", 1)
    before = world.store.objects[key]
    world.store.put(key, before.data.replace(b'"message":""', b'"message":"x"'))

    with pytest.raises(CorruptObjectError, match="nothing was deleted"):
        world.opened().vacuum()


def test_a_damaged_lease_stops_a_vacuum_and_fsck_says_what_to_do(world: World) -> None:
    world.append()
    world.lease("etl", 1)
    world.store.put("_leases/etl.json", b"{}")

    with pytest.raises(CorruptObjectError, match="release the consumer"):
        world.opened().vacuum()
    (finding,) = world.opened().fsck().findings
    assert "release the consumer" in finding.lost
    world.opened().release("etl")
    assert world.opened().fsck().is_sound


def test_a_lost_segment_stops_a_vacuum(world: World) -> None:
    world.append()
    world.append()
    segment = next(key for key in world.store.objects if key.startswith("_sg/"))
    world.store.delete(segment)

    with pytest.raises(CorruptObjectError, match="nothing was deleted"):
        world.opened().vacuum()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            (
                "append append hide change compact overwrite branch drop tag untag clone unpin "
                "lease rewind expire vacuum wait"
            ).split()
        ),
        st.sampled_from((0, 0, 0, 1, 2)),
        st.integers(0, 30),
    ),
    min_size=8,
    max_size=25,
)


REFUSALS = (AlreadyExistsError, InvalidInputError, NotFoundError, SnapshotExpiredError)
"""For example: no such branch, or the name is taken."""


def do(  # noqa: C901, PLR0912 - a table of verbs
    world: World, verb: str, which: int, number: int
) -> None:
    branch = ["main", "a", "b"][which]
    table = world.opened(branch)
    head = table.head()
    version = max(head.floor, head.version - number)
    match verb:
        case "append":
            world.append(branch)
        case "overwrite":
            world.overwrite(branch)
        case "hide":
            table.delete(f"k < {number // 2}")
        case "change":
            table.update(f"k = {number}", {"k": number + 1})
        case "compact":
            table.compact()
        case "branch":
            table.create_branch("a" if number % 2 else "b", version)
        case "drop":
            table.delete_branch(branch)
        case "tag":
            table.create_tag(f"t{number % 3}", version)
        case "untag":
            table.delete_tag(f"t{number % 3}")
        case "clone":
            world.clone(version, branch)
        case "unpin":
            for clone_id in list(world.clones)[: number % 2]:
                del world.clones[clone_id]
                table.unpin(clone_id)
        case "lease":
            world.lease(f"c{number % 2}", version, branch)
        case "rewind":
            rewind(table, version)
        case "expire":
            world.expire(keep_last=1 + number % 4, branch=branch)
        case "vacuum":
            table.vacuum()
            for clone_id in world.clones:
                world.opened_clone(clone_id).append(rows(next(world.keys)))
                world.opened_clone(clone_id).vacuum()
        case _:
            world.pass_time([GRACE_S, AGE_S + 1, LEASE_S][number % 3])


@pytest.mark.long
@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_after_any_history_all_retained_versions_read_as_before_and_no_garbage_remains(
    steps: list[tuple[str, int, int]],
) -> None:
    world = World()
    for verb, which, number in steps:
        before = read_all(world)
        with contextlib.suppress(*REFUSALS):
            do(world, verb, which, number)
        after = read_all(world)
        if verb in {"vacuum", "wait", "expire"}:
            assert {at: before[at] for at in after if at in before} == {
                at: after[at] for at in after if at in before
            }
        assert world.opened().fsck().is_sound
    for ref in world.table.branches():
        world.append(ref.name)
    before = read_all(world)
    world.pass_time(LEASE_S)
    world.vacuum_twice_aged()
    report = world.opened().fsck()

    assert before.items() <= read_all(world).items()
    assert report.is_sound
    kinds = ("segments", "blocks", "deletion files")
    assert {kind: report.unreachable[kind].object_count for kind in kinds} == dict.fromkeys(
        kinds, 0
    )
