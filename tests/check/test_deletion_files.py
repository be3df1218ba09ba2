"""fsck reads each deletion file, and compares what it hides with the blocks of its snapshots."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from fuse_stream.check import deletion_files
from fuse_stream.check.findings import Finding, FindingKind, FsckReport, VersionRange
from fuse_stream.check.fsck import check_table
from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.codec import encode_ref, sha256_hex
from fuse_stream.format.deletions import DeletionFile
from fuse_stream.format.features import DELETION_FILES
from fuse_stream.format.layout import deletions_key, lease_key, segment_key, slot_key
from fuse_stream.format.positions import Positions
from fuse_stream.format.records import DeletionFileRef, Operation, Snapshot
from fuse_stream.format.refs import Lease
from fuse_stream.recovery.rewind import rewind_tables
from fuse_stream.recovery.target import Goal
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.by_hand import rewind
from tests.recovery.histories import opened, put_next, raise_floor, rows

Create = Callable[..., Table]


@pytest.fixture
def table(create: Create) -> Table:
    """Versions 1 and 2 append keys; version 3 deletes key 2 of the first block."""
    table = create()
    table.append(rows(1, 2, 3))
    table.append(rows(4, 5))
    table.delete("k = 2")
    return table


def check(store: MemoryStore) -> FsckReport:
    return check_table(store, ManualClock())


def the_file(table: Table) -> DeletionFileRef:
    (ref,) = table.head().deletion_files
    return ref


def only(report: FsckReport) -> Finding:
    (finding,) = report.findings
    return finding


def versions(*numbers: int) -> tuple[VersionRange, ...]:
    return tuple(VersionRange(branch="main", first=one, last=one) for one in numbers)


def put_file(
    table: Table, hidden: dict[str, list[int]], **changes: object
) -> tuple[DeletionFileRef, int]:
    """Store a deletion file; return its reference, and the number of rows that it hides."""
    file = DeletionFile(hidden={name: Positions(rows) for name, rows in hidden.items()})
    metadata = table.metadata
    ref = metadata.deletions.put(file, file_id=metadata.clock.new_id(), level=0, since_us=1)
    return dataclasses.replace(ref, **changes), file.row_count  # type: ignore[arg-type]


def commit(table: Table, *refs: DeletionFileRef, **changes: object) -> Snapshot:
    """Commit a snapshot that names these deletion files; its count of rows agrees with them."""
    head = table.head()
    listed = changes.get("segments", head.segments)
    assert isinstance(listed, tuple)
    hidden = sum(ref.row_count for ref in refs)
    summary = dataclasses.replace(
        head.summary,
        row_count=sum(ref.row_count for ref in listed) - hidden,
        block_count=sum(ref.block_count for ref in listed),
    )
    return put_next(
        table,
        Operation.OVERWRITE,
        deletion_files=refs,
        deletion_files_added=(),
        summary=summary,
        required_features=tuple(sorted({*head.required_features, DELETION_FILES})),
        **changes,
    )


@pytest.mark.parametrize("deep", [False, True])
def test_a_table_with_deletes_updates_and_compactions_is_sound(
    table: Table, store: MemoryStore, *, deep: bool
) -> None:
    table.create_branch("fix", 3)
    table.create_tag("good", 3)
    opened(store, "fix").delete("k = 3")
    table.update("k = 5", {"k": 50})
    assert table.compact().snapshot is not None
    table.delete("k = 1")
    rewind(table, 3)
    table.delete("k = 4")
    before = dict(store.objects)
    report = table.fsck(deep=deep)

    assert report.findings == ()
    assert report.deletion_file_count == len([key for key in before if key.startswith("_dv/")])
    assert report.unreachable["deletion files"].object_count == 0
    assert store.objects == before


def test_a_check_reads_each_deletion_file_once(table: Table, store: MemoryStore) -> None:
    table.create_branch("fix", 3)
    for key in (1, 3, 4, 5):
        table.delete(f"k = {key}")
    rewind(table, 4)
    opened(store, "fix").delete("k = 5")
    counted = FaultyStore(store)
    report = check_table(counted, ManualClock())
    read = [key for verb, key in counted.calls if verb == "get" and key.startswith("_dv/")]

    assert len(read) == len(set(read)) == report.deletion_file_count == 6


def test_a_check_with_little_memory_reads_files_again_and_finds_the_same(
    table: Table, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in (1, 3, 4):
        table.delete(f"k = {key}")
    wrong, _ = put_file(table, {table.blocks(1)[0].id: [0]})
    commit(table, *table.head().deletion_files, wrong)
    whole = check(store)
    monkeypatch.setattr(deletion_files, "KEPT_BYTES", 1)

    assert not whole.is_sound
    assert check(store) == whole


def test_a_lost_deletion_file_is_named_with_the_versions_that_need_it(
    table: Table, store: MemoryStore
) -> None:
    ref = the_file(table)
    table.append(rows(6))
    table.overwrite(rows(7))
    store.delete(deletions_key(ref.id))
    report = check(store)
    finding = only(report)

    assert (finding.kind, finding.key) == (FindingKind.MISSING, deletions_key(ref.id))
    assert finding.versions == (VersionRange(branch="main", first=3, last=4),)
    assert "which 1 rows of 1 blocks are deleted" in finding.lost
    assert "put it back from a copy" in finding.lost
    assert finding.row_count == 0
    assert report.branches[0].last_good == 5
    assert report.branches[0].takes_commits


def test_a_table_whose_deletion_file_is_lost_can_be_read_after_a_rewind(
    table: Table, store: MemoryStore
) -> None:
    store.delete(deletions_key(the_file(table).id))
    good = check(store).branches[0].last_good
    again = opened(store)
    with pytest.raises(CorruptObjectError, match="deletion file is missing"):
        again.to_arrow()
    assert good == 2
    rewind_tables((again.committer,), Goal(version=good))

    assert opened(store).to_arrow()["k"].to_pylist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("said", "change"),
    [
        ("it has 2 bytes, its snapshot says", lambda data: data[:2]),
        ("do not have the recorded hash", lambda data: data[:40] + b"?" + data[41:]),
    ],
)
def test_a_deletion_file_with_other_bytes_is_damaged(
    table: Table, store: MemoryStore, said: str, change: Callable[[bytes], bytes]
) -> None:
    key = deletions_key(the_file(table).id)
    store.replace(key, change(store.get(key)))
    finding = only(check(store))

    assert (finding.kind, finding.key) == (FindingKind.DAMAGED, key)
    assert said in finding.wrong
    assert finding.versions == versions(3)


def test_a_deletion_file_that_is_no_puffin_file_is_damaged(
    table: Table, store: MemoryStore
) -> None:
    ref, _ = put_file(table, {table.blocks(2)[1].id: [0]})
    data = b"PFA2" + store.get(deletions_key(ref.id))[4:]
    store.replace(deletions_key(ref.id), data)
    commit(table, dataclasses.replace(ref, sha256=sha256_hex(data)))
    finding = only(check(store))

    assert (finding.kind, finding.versions) == (FindingKind.DAMAGED, versions(4))
    assert "not in the format of deletion files: the file is not in Puffin's format" in (
        finding.wrong
    )


@pytest.mark.parametrize("field", ["row_count", "block_count"])
def test_a_deletion_file_with_other_counts_than_recorded_is_damaged(
    table: Table, store: MemoryStore, field: str
) -> None:
    ref, _ = put_file(table, {table.blocks(2)[1].id: [0]}, **{field: 2})
    commit(table, ref)
    finding = only(check(store))

    assert (finding.kind, finding.versions) == (FindingKind.DAMAGED, versions(4))
    assert "it hides 1 rows of 1 blocks, its snapshot says" in finding.wrong


def test_two_snapshots_that_say_different_things_of_a_deletion_file_are_broken(
    table: Table, store: MemoryStore
) -> None:
    commit(table, dataclasses.replace(the_file(table), level=3))
    finding = only(check(store))

    assert (finding.kind, finding.key) == (FindingKind.BROKEN, slot_key("main", 3))
    assert "its record of deletion file" in finding.wrong


def test_a_deletion_file_that_names_an_unknown_block_is_broken(
    table: Table, store: MemoryStore
) -> None:
    ref, _ = put_file(table, {"a" * 32: [0]})
    commit(table, ref)
    finding = only(check(store))

    assert (finding.kind, finding.key) == (FindingKind.BROKEN, deletions_key(ref.id))
    assert f"block {'a' * 32}, which no segment of the version lists" in finding.wrong
    assert "state too few" in finding.lost
    assert finding.versions == versions(4)


def test_a_deletion_file_is_broken_in_the_versions_that_lack_its_block(
    table: Table, store: MemoryStore
) -> None:
    second = table.head().segments[1:]
    ref = the_file(table)
    before = table.head()
    commit(table, ref, segments=second)
    commit(table, ref, segments=second)
    commit(table, ref, segments=before.segments)
    commit(table, ref, segments=second)
    report = check(store)
    finding = only(report)

    assert (finding.kind, finding.key) == (FindingKind.BROKEN, deletions_key(ref.id))
    assert finding.versions == (
        VersionRange(branch="main", first=4, last=5),
        VersionRange(branch="main", first=7, last=7),
    )
    assert report.branches[0].last_good == 6


def test_a_block_is_not_said_to_be_missing_while_a_segment_cannot_be_read(
    table: Table, store: MemoryStore
) -> None:
    key = segment_key(table.snapshot(1).added[0])
    store.delete(key)

    assert [finding.key for finding in check(store).findings] == [key]


def test_a_position_past_the_end_of_a_block_is_broken(table: Table, store: MemoryStore) -> None:
    block = table.blocks(2)[1]
    ref, _ = put_file(table, {block.id: [1, 2]})
    commit(table, ref)
    finding = only(check(store))

    assert (finding.kind, finding.key) == (FindingKind.BROKEN, deletions_key(ref.id))
    assert f"it hides row 2 of block {block.id}, whose rows are numbered 0 to 1" in finding.wrong
    assert finding.versions == versions(4)


def test_a_row_that_two_deletion_files_hide_is_broken(table: Table, store: MemoryStore) -> None:
    block = table.blocks(1)[0]
    ref, _ = put_file(table, {block.id: [0, 1]})
    commit(table, the_file(table), ref)
    finding = only(check(store))

    assert (finding.kind, finding.key) == (FindingKind.BROKEN, deletions_key(ref.id))
    assert f"another deletion file hides row 1 of block {block.id}, too" in finding.wrong
    assert finding.versions == versions(4)


def test_deletion_files_that_no_version_names_are_counted(table: Table, store: MemoryStore) -> None:
    store.put(deletions_key("a" * 32), b"12345")
    left = check(store).unreachable["deletion files"]

    assert (left.object_count, left.byte_size) == (1, 5)


def test_the_deletion_files_that_a_lease_keeps_are_not_counted(
    table: Table, store: MemoryStore
) -> None:
    table.overwrite(rows(9))
    raise_floor(table, 4)
    assert check(store).unreachable["deletion files"].object_count == 1
    lease = Lease(
        consumer="nightly", owner_id="a" * 32, branch_id="main", version=3, lease_us=60_000_000
    )
    store.replace(lease_key("nightly"), encode_ref(lease))

    assert check(store).unreachable["deletion files"].object_count == 0
