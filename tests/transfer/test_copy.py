"""A whole copy of a table: with its history, and of one snapshot."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest

import fuse_stream as fuse
from fuse_stream.errors import (
    AlreadyExistsError,
    CommitStateUnknownError,
    CorruptObjectError,
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
    StorageError,
)
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.codec import encode_fields
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.jsonio import load_json
from fuse_stream.format.layout import (
    BLOCKS_PREFIX,
    COPY_KEY,
    LEASES_PREFIX,
    SLOTS_PREFIX,
    TABLE_KEY,
    block_key,
    slot_key,
)
from fuse_stream.objects.slots import Metadata
from fuse_stream.storage.base import Store, find_object
from fuse_stream.storage.local import LocalStore
from fuse_stream.storage.wrappers import READS, StoreWrapper
from fuse_stream.table.handle import Table, create_table
from fuse_stream.testing.faults import AT_ANY_CALL, Crash, Fault, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.transfer.claim import CopyClaim, put_claim
from fuse_stream.transfer.copy import TableCopy, copy_table
from tests.recovery.histories import opened

T = TypeVar("T")

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "name": [f"n{one}" for one in ids]}, schema=SCHEMA)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table with a key, deletes, a side branch, a tag and a roll-up's worth of commits."""
    table = Table.create(tmp_path / "t", SCHEMA, properties={"fuse.grace": "0s"})
    for number in range(3):
        table.append(rows(number), app_id="a", batch_id=number)
    table.delete("id = 1")
    table.create_tag("monday", 2)
    table.create_branch("fix", 3)
    Table.open(tmp_path / "t", branch="fix").append(rows(70))
    return str(tmp_path / "t")


def ids(table: Table, **where: object) -> list[int]:
    return sorted(table.to_arrow(**where)["id"].to_pylist())  # type: ignore[arg-type]


def made(table: Table, place: Store, *, history: bool = True) -> TableCopy:
    return copy_table(
        table.committer,
        Metadata(place, table.metadata.clock),
        history=history,
        report=lambda *_: None,
        probe_place=False,
    )


def test_a_copy_has_all_versions_branches_and_tags(path: str, tmp_path: Path) -> None:
    done = fuse.copy(path, tmp_path / "copy")
    copy = Table.open(tmp_path / "copy")

    assert (done.table_id, done.has_history) == (Table.open(path).table_id, True)
    assert [one.snapshot_id for one in copy.log()] == [
        one.snapshot_id for one in Table.open(path).log()
    ]
    assert ids(copy) == [0, 2]
    assert ids(copy, version="monday") == [0, 1]
    assert ids(Table.open(tmp_path / "copy", branch="fix")) == [0, 1, 2, 70]
    assert copy.fsck(deep=True).is_sound


def test_a_copy_of_the_head_is_a_table_of_its_own(path: str, tmp_path: Path) -> None:
    done = fuse.copy(path, tmp_path / "copy", history=False)
    copy = Table.open(tmp_path / "copy")

    assert done.table_id == copy.table_id != Table.open(path).table_id
    assert [one.version for one in copy.log()] == [1, 0]
    assert ids(copy) == [0, 2]
    assert copy.ledger()["a", ""].batch_id == 2
    assert copy.fsck(deep=True).is_sound
    assert not Table.open(path).clones()


def test_the_head_of_a_branch_is_copied(path: str, tmp_path: Path) -> None:
    fuse.copy(path, tmp_path / "copy", history=False, branch="fix")

    assert ids(Table.open(tmp_path / "copy")) == [0, 1, 2, 70]


@pytest.mark.parametrize("history", [True, False])
def test_a_second_call_copies_nothing(path: str, tmp_path: Path, *, history: bool) -> None:
    first = fuse.copy(path, tmp_path / "copy", history=history)
    again = fuse.copy(path, tmp_path / "copy", history=history)

    assert first.object_count > 0
    assert again.object_count == 0
    assert again.table_id == first.table_id
    assert again.snapshot == first.snapshot


def test_a_later_call_brings_a_copy_up_to_date(path: str, tmp_path: Path) -> None:
    fuse.copy(path, tmp_path / "copy")
    table = Table.open(path)
    table.append(rows(9))
    table.delete_tag("monday")
    table.create_tag("monday", 1)
    table.delete_branch("fix")
    done = fuse.copy(path, tmp_path / "copy")
    copy = Table.open(tmp_path / "copy")

    assert ids(copy) == [0, 2, 9]
    assert ids(copy, version="monday") == [0]
    assert [one.name for one in copy.branches()] == ["main"]
    assert done.object_count == 4  # a block, a segment, a slot and a tag
    assert copy.fsck(deep=True).is_sound


def test_a_copy_with_commits_of_its_own_is_left_alone(path: str, tmp_path: Path) -> None:
    fuse.copy(path, tmp_path / "copy")
    Table.open(tmp_path / "copy").append(rows(50))
    with pytest.raises(AlreadyExistsError, match="commits of its own"):
        fuse.copy(path, tmp_path / "copy")
    Table.open(path).append(rows(51))
    with pytest.raises(AlreadyExistsError, match="commits of its own"):
        fuse.copy(path, tmp_path / "copy")

    assert ids(Table.open(tmp_path / "copy")) == [0, 2, 50]


def test_a_table_or_other_files_in_the_place_are_left_alone(path: str, tmp_path: Path) -> None:
    Table.create(tmp_path / "other", SCHEMA)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.csv").write_text("a")
    for history in (True, False):
        for place in ("other", "files"):
            with pytest.raises(AlreadyExistsError):
                fuse.copy(path, tmp_path / place, history=history)

    assert not (tmp_path / "other" / COPY_KEY).exists()
    assert [one.name for one in (tmp_path / "files").iterdir()] == ["a.csv"]


@pytest.mark.parametrize("where", ["", "/inside"])
def test_a_copy_needs_a_folder_of_its_own(path: str, where: str) -> None:
    with pytest.raises(InvalidInputError, match="folder of its own"):
        fuse.copy(path, path + where)


def test_a_branch_is_named_for_the_head_alone(path: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="all branches"):
        fuse.copy(path, tmp_path / "copy", branch="fix")


def test_hints_leases_and_claims_are_not_copied(path: str, tmp_path: Path) -> None:
    table = Table.open(path)
    table.metadata.store.put(f"{LEASES_PREFIX}x.json", b"damaged")
    table.metadata.store.put("_hint/main", b"4")
    fuse.copy(path, tmp_path / "copy")

    names = {one.name for one in (tmp_path / "copy").iterdir()}
    assert names == {TABLE_KEY, "_b", "_dv", "_sg", "_ss", "_refs"} | {
        one for one in names if one == "_probe"
    }


@pytest.mark.parametrize("fault", AT_ANY_CALL)
@pytest.mark.parametrize("history", [True, False])
def test_a_copy_that_dies_anywhere_is_no_table_until_it_is_finished(
    path: str, fault: Fault, *, history: bool
) -> None:
    source = Table.open(path)
    calls = FaultyStore(MemoryStore())
    made(source, calls, history=history)
    writes = [at for at, (verb, key) in enumerate(calls.calls, 1) if verb not in READS]

    for at in writes:
        memory = MemoryStore()
        with suppress(StorageError, CommitStateUnknownError, Crash):
            made(source, FaultyStore(memory, at_call=at, fault=fault), history=history)
        if find_object(memory, TABLE_KEY) is None:
            with pytest.raises(NotFoundError):
                opened(memory)
            if find_object(memory, COPY_KEY) is not None:
                with pytest.raises(AlreadyExistsError, match="not finished"):
                    create_table(memory, first_schema(columns_of_arrow(SCHEMA)), probe_store=False)
        made(source, memory, history=history)
        copy = opened(memory)
        assert ids(copy) == [0, 2]
        assert copy.fsck(deep=True).is_sound
        assert find_object(memory, COPY_KEY) is None


def test_the_blocks_of_a_clone_and_its_clone_are_copied(path: str, tmp_path: Path) -> None:
    fuse.clone(path, tmp_path / "clone")
    clone = Table.open(tmp_path / "clone", origins=[path])
    clone.append(rows(5))
    clone.create_tag("friday", 2)
    clone.create_branch("late", 1)
    Table.open(tmp_path / "clone", branch="late", origins=[path]).append(rows(6))
    clone.append(rows(7))
    fuse.clone(tmp_path / "clone", tmp_path / "last", origins=[path])
    clone.revert(2)
    with pytest.raises(InvalidInputError, match="origins="):
        fuse.copy(tmp_path / "clone", tmp_path / "copy")
    for history in (True, False):
        place = tmp_path / f"copy {history}"
        fuse.copy(tmp_path / "clone", place, history=history, origins=[path])
        copy = Table.open(place)

        assert ids(copy) == [0, 2, 7]
        report = copy.fsck(deep=True)
        assert (report.is_sound, report.origins) == (True, ())
    copy = Table.open(tmp_path / "copy True")
    assert [one.snapshot_id for one in copy.log()] == [one.snapshot_id for one in clone.log()]
    assert ids(copy, version="friday") == [0, 2, 5]
    assert ids(Table.open(tmp_path / "copy True", branch="late")) == [0, 2, 6]
    assert len(copy.clones()) == 1
    clone.append(rows(8))
    fuse.copy(tmp_path / "clone", tmp_path / "copy True", origins=[path])
    assert ids(copy) == [0, 2, 7, 8]
    assert copy.fsck(deep=True).is_sound


def test_a_damaged_object_is_not_copied(path: str, tmp_path: Path) -> None:
    block = Table.open(path).blocks()[0]
    file = Path(path) / block_key(block.id)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptObjectError, match="differs from its hash"):
        fuse.copy(path, tmp_path / "copy")
    file.unlink()
    with pytest.raises(CorruptObjectError, match="missing"):
        fuse.copy(path, tmp_path / "copy")
    with pytest.raises(NotFoundError, match="not finished"):
        Table.open(tmp_path / "copy")


def test_a_changed_snapshot_is_not_copied(path: str, tmp_path: Path) -> None:
    slots = sorted((Path(path) / SLOTS_PREFIX / "main").iterdir())
    data = slots[1].read_bytes()
    slots[1].write_bytes(data.replace(b'"message":""', b'"message":"x"', 1))
    with pytest.raises(CorruptObjectError):
        fuse.copy(path, tmp_path / "copy")


def test_a_forged_snapshot_is_not_copied(path: str, tmp_path: Path) -> None:
    """Its own hash is right, but the next version names another."""
    slot = sorted((Path(path) / SLOTS_PREFIX / "main").iterdir())[1]
    fields = load_json(slot.read_bytes())
    slot.write_bytes(encode_fields({**fields, "message": "forged"}))
    with pytest.raises(CorruptObjectError, match="not the one that the next version"):
        fuse.copy(path, tmp_path / "copy")


def test_a_clones_copy_with_commits_of_its_own_is_left_alone(path: str, tmp_path: Path) -> None:
    fuse.clone(path, tmp_path / "clone")
    fuse.copy(tmp_path / "clone", tmp_path / "copy", origins=[path])
    Table.open(tmp_path / "copy").append(rows(50))
    with pytest.raises(AlreadyExistsError, match="commits of its own"):
        fuse.copy(tmp_path / "clone", tmp_path / "copy", origins=[path])


def test_expired_versions_are_not_copied_but_their_slots_that_stand(
    path: str, tmp_path: Path
) -> None:
    table = Table.open(path)
    table.delete_branch("fix")
    table.append(rows(9))
    table.expire(keep_last=1)
    table.vacuum()
    fuse.copy(path, tmp_path / "copy")
    copy = Table.open(tmp_path / "copy")

    assert ids(copy) == [0, 2, 9]
    assert ids(copy, version="monday") == [0, 1]
    with pytest.raises(SnapshotExpiredError):
        copy.snapshot(1)
    assert copy.fsck(deep=True).is_sound


def test_what_vacuum_deletes_meanwhile_is_planned_anew(path: str) -> None:
    """Between the plan and the blocks all old versions expire and their blocks go."""
    source = Table.open(path)
    place = MemoryStore()

    class Meanwhile(StoreWrapper):
        is_done = False

        def call(self, verb: str, key: str, act: Callable[[Store, str], T]) -> T:
            if verb == "put" and key.startswith(BLOCKS_PREFIX) and not self.is_done:
                self.is_done = True
                source.delete_tag("monday")
                source.delete_branch("fix")
                source.overwrite(rows(100))
                source.expire(keep_last=1)
                head = {one.id for one in source.blocks()}
                for info in list(source.metadata.store.list(BLOCKS_PREFIX)):
                    if not any(one in info.key for one in head):
                        source.metadata.store.delete(info.key)
            return super().call(verb, key, act)

    made(Table.open(path), Meanwhile(place))
    copy = opened(place)

    assert ids(copy) == [100]
    assert copy.fsck(deep=True).is_sound


def test_a_copy_made_while_commits_run_is_one_of_the_states(path: str) -> None:
    place = MemoryStore()
    source = Table.open(path)

    class Busy(StoreWrapper):
        count = 0

        def call(self, verb: str, key: str, act: Callable[[Store, str], T]) -> T:
            if verb.startswith("put") and self.count < 20:
                self.count += 1
                source.append(rows(1000 + self.count))
            return super().call(verb, key, act)

    made(Table.open(path), Busy(place))
    copy = opened(place)
    head = copy.head()

    assert head == source.snapshot(head.version)
    assert ids(copy) == ids(source, version=head.version)
    assert copy.fsck(deep=True).is_sound


def test_a_copy_with_history_of_more_than_a_chunk(tmp_path: Path) -> None:
    """Markers stand for the slots that vacuum has freed."""
    store = MemoryStore()
    table = create_table(
        store,
        first_schema(columns_of_arrow(SCHEMA)),
        properties={"fuse.grace": "0s", "fuse.vacuum.age": "0s"},
        probe_store=False,
    )
    for _ in range(1010):
        table.set_properties({"a": "b"})
    table.append(rows(1))
    table.expire(keep_last=1)
    table.vacuum()
    assert find_object(store, slot_key("main", 5)) is None
    place = MemoryStore()
    made(table, place)
    copy = opened(place)

    assert ids(copy) == [1]
    assert copy.fsck(deep=True).is_sound
    table.append(rows(2))
    made(table, place)
    assert ids(opened(place)) == [1, 2]


def test_a_stream_position_of_the_table_is_one_of_the_copy(path: str, tmp_path: Path) -> None:
    fuse.copy(path, tmp_path / "copy")
    old, new = Table.open(path), Table.open(tmp_path / "copy")

    assert new.table_id == old.table_id
    assert new.head().snapshot_id == old.head().snapshot_id
    new.append(rows(40))
    feed = new.changes(old.head().version + 1).read_all()
    assert feed["id"].to_pylist() == [40]


def test_progress_is_told(path: str, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    fuse.copy(path, tmp_path / "copy", progress=lambda *step: told.append(step))

    assert {what for what, _, _ in told} >= {"reading snapshots", "copying blocks"}
    assert all(done <= total for _, done, total in told)


def test_another_copy_in_the_folder_is_not_mixed_up(path: str, tmp_path: Path) -> None:
    place = tmp_path / "copy"
    fuse.copy(path, place)
    (place / TABLE_KEY).rename(tmp_path / "kept")
    with pytest.raises(CorruptObjectError):  # a table that has lost its file, and no copy
        fuse.copy(path, place)
    other = Table.create(tmp_path / "other", SCHEMA)
    put_claim(
        LocalStore(place),
        CopyClaim(table_file=other.metadata.load_table_file(), source_id=other.table_id),
    )
    for history in (True, False):
        with pytest.raises(AlreadyExistsError, match="was begun in this folder"):
            fuse.copy(path, place, history=history)
    (place / COPY_KEY).write_bytes(b"{}")
    with pytest.raises(CorruptObjectError, match="claim of a copy"):
        fuse.copy(path, place)
