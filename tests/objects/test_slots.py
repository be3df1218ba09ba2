"""The head is found with `get` alone, whatever hints stand; what is loaded is checked."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow as pa
import pytest

from fuse_stream.errors import (
    CorruptObjectError,
    FuseError,
    NotFoundError,
    SnapshotExpiredError,
)
from fuse_stream.format import layout
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.codec import encode_snapshot
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.layout import floor_key, segment_key, slot_key
from fuse_stream.format.records import Parent, SourceOffsets
from fuse_stream.objects import slots as metadata_module
from fuse_stream.objects.slots import CACHED_SNAPSHOTS, HINT_EVERY, Metadata
from fuse_stream.objects.source_offsets import load_offsets, store_offsets
from fuse_stream.storage.local import LocalStore
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryStore

ROWS = pa.table({"k": [1]})
HINT = "_hint/main"


def made(*, seed: int = 0, store: MemoryStore | None = None) -> tuple[MemoryStore, Table]:
    store = store or MemoryStore(clock=ManualClock())
    schema = first_schema(columns_of_arrow(ROWS.schema))
    return store, create_table(store, schema, clock=ManualClock(seed=seed), probe_store=False)


def with_slots(*versions: int) -> MemoryStore:
    """Return a table whose slots are `versions`, whatever they build on."""
    store, table = made()
    head = table.head()
    store.delete(slot_key("main", 0))
    for version in versions:
        snapshot = dataclasses.replace(head, version=version, snapshot_id=f"{version:032x}")
        store.put(slot_key("main", version), encode_snapshot(snapshot))
    return store


def found(store: MemoryStore) -> int:
    return Metadata(store, ManualClock()).load_head("main").snapshot.version


@pytest.mark.parametrize("head", [0, 1, 2, 3, 7, 8, 9, 31, 32, 33, 100])
def test_the_head_is_found_without_a_hint(head: int) -> None:
    assert found(with_slots(*range(head + 1))) == head


@pytest.mark.parametrize(
    "hint",
    [
        b"0",
        b"5",
        b"40",
        b"41",
        b"900",
        b"-7",
        b"",
        b"x",
        b"\xff\xfe",
        b"1e3",
        b"9" * 20,
        b"9" * 400,
    ],
)
def test_a_wrong_hint_costs_time_and_nothing_else(hint: bytes) -> None:
    store = with_slots(*range(41))
    store.replace(HINT, hint)

    assert found(store) == 40


@pytest.mark.parametrize("hint", [b"9" * 20, b"9" * 21, b"9" * 400, b"9" * 5000])
def test_a_hint_that_no_file_name_holds_is_no_error(tmp_path: Path, hint: bytes) -> None:
    store = LocalStore(tmp_path / "t")
    create_table(
        store,
        first_schema(columns_of_arrow(ROWS.schema)),
        clock=ManualClock(),
        probe_store=False,
    )
    store.replace(HINT, hint)

    assert open_table(store, probe_store=False).head().version == 0


@pytest.mark.parametrize("head", [1000, 1001, 1999, 2000, 2500])
@pytest.mark.parametrize("hint", [None, 3, 500, 1000])
def test_the_head_is_found_past_chunks_whose_slots_were_freed(head: int, hint: int | None) -> None:
    expired = head // 1000
    store = with_slots(*range(expired * 1000, head + 1))
    for chunk in range(expired):
        store.put(floor_key("main", chunk * 1000), b"expired")
    if hint is not None:
        store.replace(HINT, str(hint).encode())

    assert found(store) == head


def test_finding_the_head_reads_logarithmically_and_lists_nothing() -> None:
    store = FaultyStore(with_slots(*range(3000)))
    head = Metadata(store, ManualClock()).load_head("main")

    assert head.snapshot.version == 2999
    assert len(store.calls) < 45
    assert {verb for verb, _ in store.calls} == {"get"}


@pytest.mark.parametrize("branch_id", ["g" * 32, "../../x", "b" * 31, "b" * 32])
def test_an_invalid_id_is_an_error_and_not_a_taken_version(branch_id: str) -> None:
    store, _ = made()
    faulty = FaultyStore(store)
    metadata = Metadata(faulty, ManualClock())
    if branch_id == "b" * 32:  # itself an id, on a line of one that is none
        metadata.learn_forks(branch_id, (Parent(branch_id="g" * 32, version=9, sha256="0" * 64),))
        store.replace(f"_hint/{branch_id}", b"7")

    with pytest.raises(CorruptObjectError, match="not an id"):
        metadata.load_head(branch_id)
    assert len(faulty.calls) < 10


def test_the_hint_is_read_once_without_a_known_head_and_not_with_one() -> None:
    store, _ = made()
    store.replace(HINT, b"0")
    faulty = FaultyStore(store)
    metadata = Metadata(faulty, ManualClock())
    known = metadata.load_head("main")
    assert faulty.calls.count(("get", HINT)) == 1
    faulty.calls.clear()
    metadata.load_head("main", known)
    metadata.check_not_set_back("main", known)

    assert ("get", HINT) not in faulty.calls


@pytest.mark.parametrize("is_late", [False, True])
def test_a_known_head_is_followed_in_two_reads_and_after_a_while_in_three(*, is_late: bool) -> None:
    store, _ = made()
    faulty, clock = FaultyStore(store), ManualClock()
    metadata = Metadata(faulty, clock)
    grace_s = metadata.load_table_file().grace_us / 1_000_000
    known = metadata.load_head("main")
    clock.advance(grace_s / 4 + (1 if is_late else -1))
    faulty.calls.clear()
    metadata.load_head("main", known)

    slots = [("get", slot_key("main", version)) for version in (0, 1)]
    assert faulty.calls == [*slots, *([("get", floor_key("main", 1))] if is_late else [])]


def test_a_snapshot_that_was_not_read_as_a_head_is_none() -> None:
    """A version that is kept among freed ones must not look like the newest one."""
    store, table = made()
    for _ in range(4):
        table.append(ROWS)
    metadata = Metadata(store, ManualClock())
    metadata.load_table_file()
    kept = metadata.load_snapshot("main", 1)
    store.delete(slot_key("main", 2))
    store.delete(slot_key("main", 3))
    store.put(floor_key("main", 0), b"expired")

    with pytest.raises(CorruptObjectError, match="there must be a later one"):
        metadata.load_head("main", kept)


def test_the_hint_is_written_every_few_versions() -> None:
    store, table = made()
    for _ in range(2 * HINT_EVERY + 3):
        table.append(ROWS)

    assert store.get(HINT) == str(2 * HINT_EVERY).encode()


def test_a_hint_that_cannot_be_written_is_no_error() -> None:
    store, table = made()
    for _ in range(HINT_EVERY - 1):
        table.append(ROWS)

    class NoHints(FaultyStore):
        def replace(self, key: str, data: bytes | memoryview) -> None:
            raise FuseError("no")

    table.metadata.store = NoHints(store)

    assert table.append(ROWS).version == HINT_EVERY


# ---- a kept handle


def test_a_table_that_was_removed_is_noticed() -> None:
    store, table = made()
    table.append(ROWS)
    store.objects.clear()

    for call in (table.head, lambda: table.append(ROWS), table.to_arrow, lambda: table.snapshot(0)):
        with pytest.raises(NotFoundError, match="moved or removed"):
            call()


def test_a_table_that_was_replaced_is_noticed() -> None:
    store, table = made()
    table.append(ROWS)
    store.objects.clear()
    _, other = made(seed=1, store=store)
    for _ in range(3):
        other.append(ROWS)
    before = dict(store.objects)

    for call in (table.head, lambda: table.append(ROWS), lambda: list(table.log())):
        with pytest.raises(NotFoundError, match="another table"):
            call()

    assert store.objects == before


def test_a_deleted_branch_without_commits_is_noticed() -> None:
    store, table = made()
    table.append(ROWS)
    table.create_branch("fix")
    handle = open_table(store, branch="fix", clock=ManualClock(), probe_store=False)
    table.delete_branch("fix")

    with pytest.raises(NotFoundError, match="it was deleted meanwhile"):
        handle.head()


def test_the_history_of_another_table_is_not_opened() -> None:
    store, _ = made()
    other, _ = made(seed=1)
    store.objects["_fuse.json"] = other.objects["_fuse.json"]

    with pytest.raises(CorruptObjectError, match="another table"):
        open_table(store, clock=ManualClock(), probe_store=False)


# ---- what stands in a slot


@pytest.mark.parametrize("data", [b"", b"{}", b"junk", b"[]"])
def test_a_damaged_slot_is_corrupt(data: bytes) -> None:
    store, table = made()
    table.append(ROWS)
    store.put(slot_key("main", 1), data)

    with pytest.raises(CorruptObjectError):
        open_table(store, clock=ManualClock(), probe_store=False)


def test_a_snapshot_in_the_wrong_slot_is_corrupt() -> None:
    store, table = made()
    for _ in range(3):
        table.append(ROWS)
    store.put(slot_key("main", 1), store.get(slot_key("main", 2)))
    store.replace(HINT, b"3")
    fresh = open_table(store, clock=ManualClock(), probe_store=False)

    with pytest.raises(CorruptObjectError, match="another slot's"):
        fresh.snapshot(1)

    assert fresh.snapshot(2).version == 2


def test_a_gap_in_the_history_is_corrupt_and_an_expired_version_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layout, "CHUNK_VERSIONS", 2)
    store, table = made()
    for _ in range(3):
        table.append(ROWS)
    store.delete(slot_key("main", 1))
    store.replace(HINT, b"3")
    fresh = open_table(store, clock=ManualClock(), probe_store=False)

    with pytest.raises(CorruptObjectError, match="missing"):
        fresh.snapshot(1)
    store.put(floor_key("main", 1), b"expired")
    with pytest.raises(SnapshotExpiredError):
        fresh.snapshot(1)


def test_a_missing_segment_is_corrupt() -> None:
    store, table = made()
    (ref,) = table.append(ROWS).segments
    store.delete(segment_key(ref.id))
    fresh = open_table(store, clock=ManualClock(), probe_store=False)

    with pytest.raises(CorruptObjectError, match="segment is missing"):
        fresh.to_arrow()


def test_ids_that_are_paths_out_of_the_folder_touch_nothing() -> None:
    store, table = made()
    head = table.append(ROWS)
    (ref,) = head.segments
    hostile = dataclasses.replace(head, segments=(dataclasses.replace(ref, id="../../secret"),))
    store.put(slot_key("main", 1), encode_snapshot(hostile))
    faulty = FaultyStore(store)
    fresh = open_table(faulty, clock=ManualClock(), probe_store=False)

    with pytest.raises(CorruptObjectError, match="not an id"):
        fresh.to_arrow()

    assert not any(".." in key for _, key in faulty.calls)


def test_a_slot_that_holds_another_slots_snapshot_is_damage_to_each_reader() -> None:
    store, table = made()
    table.append(ROWS)
    table.append(ROWS)
    store.replace(slot_key("main", 1), store.get(slot_key("main", 2)))

    fresh = Metadata(store, ManualClock())
    for read in (fresh.peek, fresh.load_snapshot):
        with pytest.raises(CorruptObjectError, match="another slot's snapshot"):
            read("main", 1)


# ---- memory


def test_snapshots_kept_in_memory_are_bounded() -> None:
    store, table = made()
    for _ in range(CACHED_SNAPSHOTS + 5):
        table.append(ROWS)
    faulty = table.metadata.store = FaultyStore(store)

    def reads_of(version: int) -> int:
        faulty.calls.clear()
        table.snapshot(version)
        return faulty.calls.count(("get", slot_key("main", version)))

    assert len(list(table.log())) == CACHED_SNAPSHOTS + 6
    assert reads_of(CACHED_SNAPSHOTS) == 1
    assert reads_of(0) == 0


def test_segments_kept_in_memory_are_bounded_by_their_statistics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata_module, "CACHED_STATISTICS", 10)
    store, table = made()
    for _ in range(9):
        table.append(ROWS)
    faulty = table.metadata.store = FaultyStore(store)
    table.blocks()
    faulty.calls.clear()
    table.blocks()

    reads = sum(key.startswith("_sg/") for _, key in faulty.calls)
    assert 0 < reads <= 9


# ---- long offsets


def test_offsets_in_an_object_are_verified() -> None:
    _, table = made()
    text = "x" * 5000
    offsets = SourceOffsets(batch_id=1, sha256="0" * 64, text=text)
    stored = store_offsets(table.metadata.store, offsets, "a" * 32)

    assert (stored.text, stored.id) == (None, "a" * 32)
    with pytest.raises(CorruptObjectError):
        load_offsets(table.metadata.store, stored)
