"""Slots are lost, or a store answers wrongly: every verb ends, and a vacuum deletes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import orjson
import pytest

from fuse_stream.commit.create import finish_create
from fuse_stream.errors import (
    ConflictError,
    CorruptObjectError,
    FuseError,
    NotFoundError,
)
from fuse_stream.expiry import vacuum as vacuum_module
from fuse_stream.expiry.keepers import KeptVersions
from fuse_stream.expiry.mark import MissingError, Slot, places_of
from fuse_stream.format.layout import (
    BRANCHES_PREFIX,
    LAST_VERSION,
    SLOTS_PREFIX,
    branch_ref_key,
    floor_key,
    floor_of,
    segment_key,
    slot_key,
)
from fuse_stream.refs import create
from fuse_stream.testing.faults import FaultyStore
from tests.hostile.tables import with_hash_in_place
from tests.protocol.harms import MOST_CALLS, VERBS, Harm, ends, run_harm
from tests.protocol.worlds import CHUNK, World, small_chunks
from tests.recovery.histories import rows


@pytest.fixture
def world() -> World:
    world = World()
    for _ in range(3):
        world.append()
    return world


def data_of(world: World) -> set[str]:
    return {key for key in world.store.objects if key.startswith(("_b/", "_sg/", "_ss/"))}


# ---- vacuum


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_vacuum_ends_if_the_newest_slot_of_a_branch_is_lost(
    world: World, *, dry_run: bool
) -> None:
    world.opened().create_branch("fix", 2)
    world.store.delete(slot_key("main", 2))
    before = data_of(world)
    counted = FaultyStore(world.store)

    with pytest.raises(CorruptObjectError, match="newest slot of a branch is lost") as raised:
        world.opened(store=counted).vacuum(dry_run=dry_run)
    assert raised.value.context["branch"] == "fix"
    assert len(counted.calls) < MOST_CALLS
    assert before <= data_of(world)


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("version", [6, 10**5, 10**9, LAST_VERSION])
def test_a_slot_beyond_the_head_stops_a_vacuum_before_its_first_commit(
    world: World, version: int, *, dry_run: bool
) -> None:
    world.store.put(slot_key("main", version), world.store.get(slot_key("main", 3)))
    before = data_of(world)

    with pytest.raises(CorruptObjectError, match="stray object") as raised:
        world.opened().vacuum(dry_run=dry_run)
    assert raised.value.context["key"] == slot_key("main", version)
    assert data_of(world) == before


@pytest.mark.parametrize("prefix", ["_sg/", "_ss/main/"])
def test_a_vacuum_commits_its_fences_once_if_an_older_object_is_lost(
    world: World, prefix: str
) -> None:
    world.overwrite()
    head = world.opened().head()
    lost = (
        slot_key("main", 2) if prefix != "_sg/" else segment_key(world.opened().segments(2)[0].id)
    )
    world.overwrite()
    world.store.delete(lost)
    before = data_of(world)

    with pytest.raises(CorruptObjectError, match="is missing") as raised:
        world.opened().vacuum()
    assert raised.value.context["key"] == lost
    assert world.opened().head().version == head.version + 3  # the overwrite, and two fences
    assert before <= data_of(world)


def test_a_branch_with_many_unlisted_versions_is_refused_without_counting_them() -> None:
    slots = {"main": {0: Slot(modified_us=0, size=1), 10**19: Slot(modified_us=0, size=1)}}

    with pytest.raises(MissingError, match=slot_key("main", 1)):
        places_of(KeptVersions(branch_id="main", forks=(), first=0), slots)
    leased = KeptVersions(branch_id="main", forks=(), first=0, is_whole=False)
    assert places_of(leased, slots) == [("main", 0), ("main", 10**19)]


def test_a_changed_segment_id_in_a_newest_slot_stops_a_vacuum_before_its_first_commit(
    world: World,
) -> None:
    world.opened().create_branch("fix", 2)
    world.append("fix")
    branch_id = next(branch.branch_id for branch in world.opened().branches() if branch.forks)
    key = slot_key(branch_id, 3)
    whole = world.store.get(key)
    segment = orjson.loads(whole)["segments"][-1]["id"]
    changed = ("1" if segment[0] == "0" else "0") + segment[1:]
    forged = with_hash_in_place(whole.replace(segment.encode(), changed.encode()))
    world.store.replace(key, forged)
    before = data_of(world)

    with pytest.raises(CorruptObjectError, match="nothing was deleted") as raised:
        world.opened().vacuum()
    assert (raised.value.context["branch"], raised.value.context["slot"]) == ("fix", key)
    assert data_of(world) == before
    world.store.replace(key, whole)
    world.opened().vacuum()


def test_a_vacuum_ends_if_all_slots_of_main_are_lost(world: World) -> None:
    table = world.opened()
    for version in range(4):
        world.store.delete(slot_key("main", version))

    with pytest.raises(FuseError):
        table.vacuum()
    table = world.table
    table.committer._head = None  # noqa: SLF001 - as a handle that has seen nothing yet
    with pytest.raises(FuseError):
        table.vacuum()


def test_a_vacuum_skips_a_branch_that_is_deleted_during_it(world: World) -> None:
    world.opened().create_branch("fix", 2)
    world.append("fix")

    class Deleting(FaultyStore):
        def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
            world.store.delete(branch_ref_key("fix"))
            super().put_if_absent(key, data)

    report = world.opened(store=Deleting(world.store)).vacuum()

    assert report.object_count == 0


Naming = Callable[[World], object]
NAMINGS: dict[str, Naming] = {
    "tag": lambda world: world.opened().create_tag("good", 3),
    "branch": lambda world: world.opened().create_branch("fix", 3),
    "pin": lambda world: world.clone(3),
    "lease": lambda world: world.lease("nightly", 3),
}


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("naming", sorted(NAMINGS))
def test_a_vacuum_does_not_replace_a_lost_slot_that_a_ref_names(
    world: World, naming: str, *, dry_run: bool
) -> None:
    NAMINGS[naming](world)
    lost = world.store.get(slot_key("main", 3))
    world.store.delete(slot_key("main", 3))
    before = data_of(world)

    with pytest.raises(CorruptObjectError, match="nothing was deleted"):
        world.opened().vacuum(dry_run=dry_run)
    assert data_of(world) == before
    world.store.put(slot_key("main", 3), lost)
    world.opened().vacuum(dry_run=dry_run)


def test_a_vacuum_gives_up_if_branches_are_created_faster_than_it_fences_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacuum_module, "MOST_ROUNDS", 5)
    numbers = iter(range(1000))

    class Busy(FaultyStore):
        def list(self, prefix: str):  # type: ignore[no-untyped-def]
            if prefix == BRANCHES_PREFIX:
                world.opened().create_branch(f"new-{next(numbers)}")
            return super().list(prefix)

    before = data_of(world)

    with pytest.raises(ConflictError, match="try again later"):
        world.opened(store=Busy(world.store)).vacuum()
    assert before <= data_of(world)


def test_create_branch_gives_up_if_the_history_expires_at_every_attempt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(create, "ATTEMPTS", 3)

    class Busy(FaultyStore):
        def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
            super().put_if_absent(key, data)
            if key == branch_ref_key("fix"):
                world.append()
                world.append()
                world.expire(keep_last=5)

    with pytest.raises(ConflictError, match="try again"):
        world.opened(store=Busy(world.store)).create_branch("fix")
    assert branch_ref_key("fix") not in world.store.objects


# ---- the search for the head


class _Every(FaultyStore):
    """Answers for every slot with the bytes of an existing one."""

    def get(self, key: str) -> bytes:
        if key.startswith(f"{SLOTS_PREFIX}main/"):
            super().get(slot_key("main", 1))
            return super().get(slot_key("main", 1))
        return super().get(key)


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_ends_on_a_store_that_returns_every_slot(world: World, verb: str) -> None:
    ends(world, _Every(world.store), verb)


# ---- lost slots and markers


@pytest.fixture
def aged() -> Iterator[World]:
    """A table whose chunk of versions 0 to 3 has expired, but for the slot of a branch's fork."""
    with small_chunks():
        world = World()
        for _ in range(9):
            world.append()
        world.opened().create_tag("old", 2)
        world.expire(keep_last=2)
        world.vacuum_twice_aged()
        world.opened().create_branch("idle", "old")
        assert slot_key("main", 0) not in world.store.objects
        assert floor_key("main", 0) in world.store.objects
        yield world


def test_a_lost_fork_slot_creates_no_version_0(aged: World) -> None:
    aged.store.delete(slot_key("main", 2))
    before = set(aged.store.objects)

    with pytest.raises((CorruptObjectError, NotFoundError), match="restore"):
        aged.opened("idle")
    assert set(aged.store.objects) == before


def test_a_branch_without_any_slot_creates_no_version_0(world: World) -> None:
    world.opened().create_branch("fix", 2)
    for version in range(4):
        world.store.delete(slot_key("main", version))
    before = set(world.store.objects)

    with pytest.raises(NotFoundError, match="restore the slot"):
        world.opened("fix")
    assert set(world.store.objects) == before


def test_a_version_0_that_has_expired_is_not_created_again(aged: World) -> None:
    metadata = aged.opened().metadata

    finish_create(metadata, metadata.load_table_file())

    assert slot_key("main", 0) not in aged.store.objects


@pytest.mark.parametrize("verb", ["open", "head", "append", "vacuum"])
def test_the_loss_of_all_slots_above_a_marker_is_not_taken_for_expiry(
    aged: World, verb: str
) -> None:
    table = aged.opened()
    verbs: dict[str, Callable[[], object]] = {
        "open": aged.opened,
        "head": table.head,
        "append": lambda: table.append(rows(1)),
        "vacuum": table.vacuum,
    }
    table.committer._head = None  # noqa: SLF001 - as a handle that has seen nothing yet
    table.metadata._snapshots.clear()  # noqa: SLF001
    for key in [key for key in aged.store.objects if key.startswith("_ss/main/")]:
        aged.store.delete(key)
    before = set(aged.store.objects)

    with pytest.raises(CorruptObjectError, match="newest slots of a branch are lost") as raised:
        verbs[verb]()
    newest = max(chunk for at in before if (found := floor_of(at)) for chunk in [found[1]])
    assert raised.value.context["key"] == slot_key("main", (newest + 1) * CHUNK)
    assert raised.value.context["marker"] == f"_floor/main/{newest}"
    assert set(aged.store.objects) == before


# ---- random histories


@pytest.fixture(scope="module")
def harms() -> list[Harm]:
    return [run_harm(seed) for seed in range(40)]


def test_after_any_random_loss_or_damage_every_verb_ends_and_vacuum_deletes_nothing(
    harms: list[Harm],
) -> None:
    assert [harm.losses for harm in harms if harm.losses] == []


def test_the_random_harms_include_some_that_stop_vacuum_and_some_that_do_not(
    harms: list[Harm],
) -> None:
    stopped = sum(harm.is_stopped for harm in harms)

    assert 5 < stopped < len(harms)
    assert len({kind for harm in harms for kind in harm.kinds}) == 5
