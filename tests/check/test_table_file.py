"""`_fuse.json` is lost or belongs to another table: no call relies on it, and it can be rebuilt."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from fuse_stream.check.findings import FindingKind
from fuse_stream.check.fsck import check_table
from fuse_stream.check.table_file import restore_table_file
from fuse_stream.commit.version_0 import create_snapshot
from fuse_stream.errors import (
    AlreadyExistsError,
    CorruptObjectError,
    InvalidInputError,
    NotFoundError,
)
from fuse_stream.feed.follow import Follower, head_selection
from fuse_stream.feed.views import Request
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.codec import encode_snapshot
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.layout import (
    CHUNK_VERSIONS,
    TABLE_KEY,
    floor_key,
    hint_key,
    slot_key,
)
from fuse_stream.objects.origins import StoreWithOrigins
from fuse_stream.objects.slots import Metadata
from fuse_stream.refs.clone import clone
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table, create_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.histories import SEEDS, keys, opened, rows

SCHEMA = first_schema(columns_of_arrow(rows(1).schema))
COMMITS = 33
"""One more version than the search from a hint passes."""
SLOT_0 = slot_key("main", 0)


def created(store: Store) -> Table:
    """Create a table as a new process does."""
    clock = ManualClock(seed=next(SEEDS))
    return create_table(
        store,
        SCHEMA,
        cluster_by=["k"],
        properties={"fuse.grace": "2h"},
        clock=clock,
        probe_store=False,
    )


def made() -> MemoryStore:
    store = MemoryStore(clock=ManualClock())
    table = created(store)
    for number in range(COMMITS):
        table.append(rows(number))
    return store


def expired(store: MemoryStore) -> None:
    """Make version 1000 the head; all before it have expired and their slots are deleted."""
    head = opened(store).committer.head().snapshot
    assert head.parent is not None
    for version in range(COMMITS + 1):
        store.delete(slot_key("main", version))
    later = dataclasses.replace(
        head,
        version=CHUNK_VERSIONS,
        floor=CHUNK_VERSIONS,
        parent=dataclasses.replace(head.parent, version=CHUNK_VERSIONS - 1),
    )
    store.put(slot_key("main", CHUNK_VERSIONS), encode_snapshot(later))
    store.put_if_absent(floor_key("main", 0), b"1")


def version_0_lost(store: MemoryStore) -> None:
    store.delete(SLOT_0)


def hint_lost(store: MemoryStore) -> None:
    store.delete(hint_key("main"))


def nothing_else(_: MemoryStore) -> None:
    pass


@pytest.mark.parametrize("harm", [nothing_else, version_0_lost, hint_lost, expired])
def test_no_table_is_created_over_a_history_without_its_file(
    harm: Callable[[MemoryStore], None],
) -> None:
    store, other = made(), MemoryStore(clock=ManualClock())
    created(other)
    harm(store)
    store.delete(TABLE_KEY)
    before = dict(store.objects)

    calls: list[Callable[[], object]] = [
        lambda: created(store),
        lambda: opened(store),
        lambda: clone(
            opened(other).committer,
            Metadata(store, ManualClock()),
            origin_of=lambda _: other,
            probe_place=False,
        ),
    ]
    for call in calls:
        with pytest.raises(CorruptObjectError, match=r"_fuse\.json.*restore-table-file"):
            call()
    assert store.objects == before
    assert list(other.list("_refs/")) == []


def test_a_folder_without_objects_of_a_table_is_not_found() -> None:
    with pytest.raises(NotFoundError, match="create the table"):
        opened(MemoryStore())


def test_looking_for_a_history_takes_a_bounded_number_of_calls() -> None:
    place = FaultyStore(MemoryStore(clock=ManualClock()))
    with pytest.raises(NotFoundError):
        opened(place)
    looked = [key for _, key in place.calls]
    created(place)
    verbs = [verb for verb, _ in place.calls[len(looked) :]]

    what_is_there = ""  # one listing, for the error
    assert looked == [TABLE_KEY, SLOT_0, floor_key("main", 0), hint_key("main"), what_is_there]
    assert verbs == ["names"] + ["get"] * 4 + ["put_if_absent"] * 2


class Rivalled(MemoryStore):
    """Creates another table just before one of the calls."""

    def __init__(self, at_call: int) -> None:
        super().__init__(clock=ManualClock())
        self._left = at_call

    def get(self, key: str) -> bytes:
        self._step()
        return super().get(key)

    def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
        self._step()
        super().put_if_absent(key, data)

    def _step(self) -> None:
        self._left -= 1
        if self._left == 0:
            created(self)


@pytest.mark.parametrize("at_call", range(1, 6))
def test_of_two_concurrent_creates_the_first_succeeds(at_call: int) -> None:
    store = Rivalled(at_call)
    with pytest.raises(AlreadyExistsError):
        created(store)

    assert opened(store).append(rows(1)).version == 1
    assert check_table(store, ManualClock()).is_sound


class Late(FaultyStore):
    """Puts another table's version 0 just before a put of one, as restoring a folder may."""

    def __init__(self, store: MemoryStore, slot: bytes) -> None:
        super().__init__(store)
        self._slot = slot

    def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
        if key == SLOT_0:
            self.store.put(key, self._slot)
        super().put_if_absent(key, data)


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_create_over_a_version_0_of_another_table_fails(*, is_begun: bool) -> None:
    store, other = MemoryStore(clock=ManualClock()), MemoryStore(clock=ManualClock())
    created(other)
    standing = other.get(SLOT_0)
    if is_begun:
        created(store)
        store.delete(SLOT_0)
    with pytest.raises(CorruptObjectError, match="version 0 is not the one"):
        (opened if is_begun else created)(Late(store, standing))

    assert store.get(SLOT_0) == standing


# ---- rebuilding the table file


@pytest.mark.parametrize("harm", [nothing_else, hint_lost])
def test_a_lost_table_file_is_rebuilt_byte_for_byte(harm: Callable[[MemoryStore], None]) -> None:
    store = made()
    whole = store.get(TABLE_KEY)
    harm(store)
    store.delete(TABLE_KEY)
    restored = restore_table_file(store, ManualClock())

    assert store.get(TABLE_KEY) == whole
    assert restored.version == 0
    assert check_table(store, ManualClock()).is_sound
    assert opened(store).append(rows(7)).version == COMMITS + 1


def test_a_lost_table_file_is_rebuilt_although_version_0_has_expired() -> None:
    store = made()
    expired(store)
    old = opened(store)
    store.delete(TABLE_KEY)
    restored = restore_table_file(store, ManualClock())

    assert restored.version == CHUNK_VERSIONS
    table = opened(store)
    assert (table.table_id, table.append(rows(7)).version) == (old.table_id, CHUNK_VERSIONS + 1)
    assert table.metadata.load_table_file().grace_us == 2 * 3600 * 1_000_000
    assert SLOT_0 not in store.objects
    assert check_table(store, ManualClock()).is_sound


def test_an_existing_table_file_is_not_replaced() -> None:
    store = made()
    before = dict(store.objects)
    with pytest.raises(AlreadyExistsError, match="move it away"):
        restore_table_file(store, ManualClock())

    assert store.objects == before


def damaged_0(store: MemoryStore) -> None:
    """Change version 0 so that it can be decoded: only the hash in version 1 shows it."""
    changed = dataclasses.replace(
        create_snapshot(opened(store).metadata.load_table_file()), message="x"
    )
    store.replace(SLOT_0, encode_snapshot(changed))


@pytest.mark.parametrize("harm", [version_0_lost, damaged_0])
def test_a_table_file_is_not_rebuilt_from_a_lost_or_changed_version_0(
    harm: Callable[[MemoryStore], None],
) -> None:
    store = made()
    harm(store)
    store.delete(TABLE_KEY)
    with pytest.raises(CorruptObjectError, match="one of the two"):
        restore_table_file(store, ManualClock())

    assert TABLE_KEY not in store.objects


def test_no_table_file_is_made_in_a_folder_without_a_table() -> None:
    with pytest.raises(NotFoundError):
        restore_table_file(MemoryStore(), ManualClock())


def test_rebuilding_the_file_of_a_clone_needs_its_origins_as_arguments() -> None:
    source, place = made(), MemoryStore(clock=ManualClock())
    clone(
        opened(source).committer,
        Metadata(place, ManualClock(seed=next(SEEDS))),
        origin_of=lambda _: source,
        probe_place=False,
    )
    whole = place.get(TABLE_KEY)
    place.delete(TABLE_KEY)
    with pytest.raises(InvalidInputError, match="--origin"):
        restore_table_file(place, ManualClock())
    assert TABLE_KEY not in place.objects
    restore_table_file(place, ManualClock(), origins=[source])

    assert place.get(TABLE_KEY) == whole
    table = opened(StoreWithOrigins(place, [source]))
    assert keys(table.to_arrow()) == list(range(COMMITS))


# ---- a table file of another table


def with_anothers_file() -> tuple[MemoryStore, bytes]:
    """Return a table with the table file of another one, and its right table file."""
    store, other = made(), MemoryStore(clock=ManualClock())
    created(other)
    whole = store.get(TABLE_KEY)
    store.replace(TABLE_KEY, other.get(TABLE_KEY))
    return store, whole


def test_the_table_file_of_another_table_is_named_as_the_damaged_object() -> None:
    store, _ = with_anothers_file()
    report = check_table(store, ManualClock())

    assert [(one.kind, one.key) for one in report.findings] == [(FindingKind.DAMAGED, TABLE_KEY)]
    assert "another table" in report.findings[0].wrong
    assert "restore-table-file" in report.findings[0].lost
    assert not report.branches[0].takes_commits


def test_no_reader_or_follower_uses_a_history_with_another_tables_file() -> None:
    store, _ = with_anothers_file()
    calls: list[Callable[[], object]] = [
        lambda: opened(store),
        lambda: Follower(store, Request(), None).first_offset(),
        lambda: head_selection(store, Request()),
    ]
    for call in calls:
        with pytest.raises(CorruptObjectError, match=r"_fuse\.json.*another table.*fsck"):
            call()


def test_the_advice_for_another_tables_file_works() -> None:
    store, whole = with_anothers_file()
    store.delete(TABLE_KEY)
    restore_table_file(store, ManualClock())

    assert store.get(TABLE_KEY) == whole
    assert keys(opened(store).to_arrow()) == list(range(COMMITS))


def test_a_version_0_that_was_created_over_expired_versions_is_ignored() -> None:
    store, other = made(), MemoryStore(clock=ManualClock())
    created(other)
    expired(store)
    whole = opened(store)
    for key in (TABLE_KEY, SLOT_0):
        store.put(key, other.get(key))
    found = [one.key for one in check_table(store, ManualClock()).findings if one.kind != "note"]
    store.delete(TABLE_KEY)
    restore_table_file(store, ManualClock())

    assert found == [TABLE_KEY]
    assert opened(store).table_id == whole.table_id


def test_a_single_snapshot_of_another_table_is_named_as_the_damaged_object() -> None:
    store = made()
    head = opened(store).committer.head().snapshot
    changed = dataclasses.replace(head, table_id="0" * 32)
    store.replace(slot_key("main", COMMITS), encode_snapshot(changed))
    report = check_table(store, ManualClock())

    assert [one.key for one in report.findings] == [slot_key("main", COMMITS)]
