"""fsck finds objects that can be decoded and yet are wrong, and accepts what is right."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, cast

import orjson
import pyarrow as pa
import pytest

from fuse_stream.check.findings import FindingKind, FsckReport, VersionRange
from fuse_stream.check.fsck import check_table
from fuse_stream.check.slots import MOST_MISSED
from fuse_stream.errors import NotFoundError, StorageError
from fuse_stream.format.codec import (
    encode_ref,
    encode_segment,
    encode_snapshot,
    encode_table_file,
    sha256_hex,
)
from fuse_stream.format.jsonio import dump_canonical
from fuse_stream.format.layout import (
    SLOTS_PREFIX,
    block_key,
    branch_ref_key,
    clone_ref_key,
    floor_key,
    lease_key,
    probe_key,
    segment_key,
    slot_key,
    tag_ref_key,
)
from fuse_stream.format.records import (
    ClusterStats,
    ColumnMeta,
    ColumnStats,
    KeyRange,
    LedgerEntry,
    Parent,
    Segment,
    Snapshot,
)
from fuse_stream.format.refs import BranchRef, Lease, TagRef
from fuse_stream.objects.slots import HINT_EVERY, Metadata
from fuse_stream.refs.clone import clone
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.histories import opened, raise_floor, rows

Create = Callable[..., Table]
SnapshotChange = Callable[[Snapshot], Snapshot]


@pytest.fixture
def table(create: Create) -> Table:
    """Three commits, key n at version n, in the order of the cluster key."""
    table = create(cluster_by=("k",))
    for key in range(1, 4):
        table.append(rows(key, key + 10), app_id="app", batch_id=key)
    return table


def check(store: MemoryStore, *, deep: bool = False) -> FsckReport:
    return check_table(store, ManualClock(), deep=deep)


def damage(report: FsckReport) -> list[tuple[FindingKind, str, str]]:
    return [
        (finding.kind, finding.key, finding.wrong)
        for finding in report.findings
        if finding.kind is not FindingKind.NOTE
    ]


def rewrite(table: Table, version: int, change: SnapshotChange) -> None:
    """Replace a slot's snapshot, and adjust the hashes in all later ones."""
    store = table.metadata.store
    last = table.head().version
    snapshots = [table.snapshot(number) for number in range(version, last + 1)]
    snapshots[0] = change(snapshots[0])
    sha256 = None
    for snapshot in snapshots:
        if sha256 is not None and snapshot.parent is not None:
            parent = dataclasses.replace(snapshot.parent, sha256=sha256)
            snapshot = dataclasses.replace(snapshot, parent=parent)  # noqa: PLW2901
        data = encode_snapshot(snapshot)
        sha256 = sha256_hex(data)
        store.replace(slot_key("main", snapshot.version), data)


def rewrite_segment(
    table: Table, version: int, change: Callable[[Segment, Snapshot], Segment]
) -> None:
    """Replace a segment that a version added, and adjust the hashes."""
    snapshot = table.snapshot(version)
    (name,) = snapshot.added
    at = [ref.id for ref in snapshot.segments].index(name)
    segment = table.metadata.load_segment(snapshot.segments[at], snapshot.schema.leaf_types)
    data, sha256 = encode_segment(change(segment, snapshot), snapshot.schema.leaf_types)
    table.metadata.store.replace(segment_key(name), data)

    def renamed(old: Snapshot) -> Snapshot:
        refs = tuple(
            dataclasses.replace(ref, sha256=sha256, byte_size=len(data)) if ref.id == name else ref
            for ref in old.segments
        )
        return dataclasses.replace(old, segments=refs)

    for number in range(version, table.head().version + 1):
        rewrite(opened(table.metadata.store), number, renamed)


@pytest.mark.parametrize("deep", [False, True])
def test_an_undamaged_table_is_sound(table: Table, store: MemoryStore, *, deep: bool) -> None:
    table.create_branch("fix", 2)
    opened(store, "fix").append(rows(9))
    table.create_tag("good", 1)
    table.append(pa.table({"k": [7], "more": ["x"]}), merge_schema=True)
    before = dict(store.objects)
    report = table.fsck(deep=deep)

    assert report.findings == ()
    assert report.is_sound
    assert (report.snapshot_count, report.segment_count, report.block_count) == (6, 5, 5)
    assert [(b.name, b.floor, b.head, b.last_good) for b in report.branches] == [
        ("main", 0, 4, 4),
        ("fix", 0, 3, 3),
    ]
    assert all(left.object_count == 0 for left in report.unreachable.values())
    assert store.objects == before


def test_a_check_reads_each_object_once(table: Table, store: MemoryStore) -> None:
    for key in range(4, 40):
        table.append(rows(key))
    counted = FaultyStore(store)
    check_table(counted, ManualClock(), deep=True)
    read = [
        key
        for verb, key in counted.calls
        if verb in {"get", "open_input"} and key.startswith(("_b/", "_sg/"))
    ]

    assert len(read) == len(set(read))
    assert len([key for key in read if key.startswith("_b/")]) == 39
    assert [key for verb, key in counted.calls if verb == "list" and key == "_b/"] == ["_b/"]


def test_without_deep_no_block_is_read(table: Table, store: MemoryStore) -> None:
    counted = FaultyStore(store)
    check_table(counted, ManualClock())

    assert not [key for verb, key in counted.calls if verb != "list" and key.startswith("_b/")]


def test_progress_counts_slots_and_blocks(table: Table) -> None:
    steps: list[tuple[int, int]] = []
    table.fsck(deep=True, progress=lambda done, total: steps.append((done, total)))

    assert steps == [(done, 7) for done in range(1, 8)]


# ---- rules between snapshots


def went_back(snapshot: Snapshot) -> Snapshot:
    (entry,) = snapshot.ledger.entries.values()
    entries: dict[tuple[str, str], LedgerEntry] = {
        ("app", ""): dataclasses.replace(entry, batch_id=1)
    }
    return dataclasses.replace(
        snapshot, ledger=dataclasses.replace(snapshot.ledger, entries=entries)
    )


BREACHES: list[tuple[str, SnapshotChange]] = [
    ("went back", went_back),
    ("timestamp", lambda s: dataclasses.replace(s, timestamp_us=1)),
    ("prev_snapshot_id", lambda s: dataclasses.replace(s, prev_snapshot_id="0" * 32)),
    (
        "summary says otherwise",
        lambda s: dataclasses.replace(s, summary=dataclasses.replace(s.summary, row_count=1)),
    ),
    ("added", lambda s: dataclasses.replace(s, added=("0" * 32,))),
]


@pytest.mark.parametrize(("said", "change"), BREACHES)
def test_a_snapshot_that_breaks_a_rule_is_named(
    table: Table, store: MemoryStore, said: str, change: SnapshotChange
) -> None:
    rewrite(table, 3, change)
    found = damage(check(store))

    assert {(kind, key) for kind, key, _ in found} == {(FindingKind.BROKEN, slot_key("main", 3))}
    assert any(said in wrong for _, _, wrong in found)


def test_a_snapshot_of_another_history_in_a_slot_is_damage(
    table: Table, store: MemoryStore
) -> None:
    other = encode_snapshot(dataclasses.replace(table.snapshot(2), message="another"))
    store.replace(slot_key("main", 2), other)

    assert damage(check(store)) == [
        (
            FindingKind.DAMAGED,
            slot_key("main", 2),
            "it is not the snapshot that version 3 was built on",
        )
    ]


def test_a_segment_that_two_snapshots_describe_differently_is_named(
    table: Table, store: MemoryStore
) -> None:
    def relevelled(snapshot: Snapshot) -> Snapshot:
        first, *others = snapshot.segments
        segments = (dataclasses.replace(first, level=1), *others)
        return dataclasses.replace(snapshot, segments=segments)

    rewrite(table, 2, relevelled)

    said = [(kind, key) for kind, key, wrong in damage(check(store)) if "others say" in wrong]

    assert said == [(FindingKind.BROKEN, slot_key("main", 2))]


def test_bounds_of_a_snapshot_that_do_not_contain_a_segments_are_named(
    table: Table, store: MemoryStore
) -> None:
    def narrowed(snapshot: Snapshot) -> Snapshot:
        stats = {1: dataclasses.replace(snapshot.summary.col_stats[1], min=2)}
        summary = dataclasses.replace(snapshot.summary, col_stats=stats)
        return dataclasses.replace(snapshot, summary=summary)

    first = table.snapshot(2).segments[0]
    rewrite(table, 3, narrowed)

    assert f"the bounds of column 1 do not contain those of a part, segment {first.id}" in [
        wrong for _, _, wrong in damage(check(store))
    ]


def test_a_tag_that_names_another_snapshots_id_is_damaged(table: Table, store: MemoryStore) -> None:
    tag = table.create_tag("good", 2)
    store.replace(tag_ref_key("good"), encode_ref(dataclasses.replace(tag, snapshot_id="0" * 32)))

    assert [(kind, key) for kind, key, _ in damage(check(store))] == [
        (FindingKind.DAMAGED, tag_ref_key("good"))
    ]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("grace_us", 1, "grace"),
        ("table_id", "0" * 32, "another table"),
        ("created_us", 1, "with version 0"),
    ],
)
def test_a_table_file_that_was_changed_is_damaged(
    table: Table, store: MemoryStore, field: str, value: object, said: str
) -> None:
    changed = dataclasses.replace(
        table.metadata.load_table_file(),
        **{field: value},  # type: ignore[arg-type]
    )
    store.replace("_fuse.json", encode_table_file(changed))

    assert said in damage(check(store))[0][2]


def test_a_target_whose_hash_differs_from_the_stored_snapshot_is_named(
    table: Table, store: MemoryStore
) -> None:
    target = Parent(branch_id="main", version=1, sha256="0" * 64)
    rewrite(table, 3, lambda s: dataclasses.replace(s, target=target))

    assert [key for _, key, wrong in damage(check(store)) if "goes back to" in wrong] == [
        slot_key("main", 3)
    ]


# ---- segments and blocks


def test_a_segment_whose_bounds_do_not_contain_its_blocks_is_named(
    table: Table, store: MemoryStore
) -> None:
    def narrowed(segment: Segment, _: Snapshot) -> Segment:
        stats = {1: dataclasses.replace(segment.summary.col_stats[1], max=5)}
        return dataclasses.replace(
            segment, summary=dataclasses.replace(segment.summary, col_stats=stats)
        )

    name = table.snapshot(3).added[0]
    rewrite_segment(table, 3, narrowed)
    ((kind, key, wrong),) = damage(check(store))

    assert (kind, key) == (FindingKind.DAMAGED, segment_key(name))
    assert "bounds of column 1" in wrong


@pytest.mark.parametrize(
    "damaged",
    [
        {"col_metas": {1: ColumnMeta(offset=cast("int", "x"), len=1, num_values=1)}},
        {"cluster_stats": ClusterStats(range=KeyRange(columns=(), min=(), max=()), level=True)},
        {"col_stats": {1: ColumnStats(null_count=True, in_memory_size=0)}},
    ],
    ids=lambda damaged: next(iter(damaged)),
)
def test_damage_in_fields_that_no_scan_reads_is_found(
    table: Table, store: MemoryStore, damaged: dict[str, Any]
) -> None:
    def changed(segment: Segment, _: Snapshot) -> Segment:
        (block,) = segment.blocks
        return dataclasses.replace(segment, blocks=(dataclasses.replace(block, **damaged),))

    name = table.snapshot(3).added[0]
    rewrite_segment(table, 3, changed)
    ((kind, key, _),) = damage(check(store))

    assert (kind, key) == (FindingKind.DAMAGED, segment_key(name))


def test_a_block_that_is_listed_twice_is_named(table: Table, store: MemoryStore) -> None:
    block = table.blocks(2)[0]
    name = table.snapshot(3).added[0]

    def doubled(segment: Segment, _: Snapshot) -> Segment:
        # With the other block's id, all sums are still right.
        (own,) = segment.blocks
        return dataclasses.replace(segment, blocks=(dataclasses.replace(own, id=block.id),))

    rewrite_segment(table, 3, doubled)
    found = damage(check(store))

    wrong = f"block {block.id} is in it twice"
    assert (FindingKind.BROKEN, slot_key("main", 3), wrong) in found
    wrong = f"its record of block {block.id} is not what another segment says"
    assert (FindingKind.BROKEN, segment_key(name), wrong) in found


def test_only_a_deep_check_compares_rows_with_their_bounds(
    table: Table, store: MemoryStore
) -> None:
    block = table.blocks(3)[-1]

    def narrowed(segment: Segment, _: Snapshot) -> Segment:
        stats: dict[int, ColumnStats] = {1: dataclasses.replace(block.col_stats[1], max=5)}
        return dataclasses.replace(
            segment,
            blocks=(dataclasses.replace(segment.blocks[0], col_stats=stats),),
        )

    rewrite_segment(table, 3, narrowed)
    ((kind, key, wrong),) = damage(check(store, deep=True))

    assert check(store).is_sound
    assert (kind, key) == (FindingKind.DAMAGED, block_key(block.id))
    assert "bounds of column 1" in wrong


def test_a_block_of_another_size_is_reported_without_reading_it(
    table: Table, store: MemoryStore
) -> None:
    key = block_key(table.blocks(1)[0].id)
    store.replace(key, store.get(key) + b"x")
    (finding,) = check(store).findings

    assert (finding.kind, finding.key, finding.row_count) == (FindingKind.DAMAGED, key, 2)
    assert finding.versions == (VersionRange(branch="main", first=1, last=3),)


def test_a_store_error_on_an_object_is_not_reported_as_damage(
    table: Table, store: MemoryStore
) -> None:
    key = segment_key(table.snapshot(2).added[0])

    class Failing(FaultyStore):
        def get(self, asked: str) -> bytes:
            if asked == key:
                raise StorageError("the disk has a bad sector")
            return super().get(asked)

    report = check_table(Failing(store), ManualClock())

    assert damage(report) == [(FindingKind.UNREADABLE, key, "the disk has a bad sector")]
    assert report.branches[0].last_good == 1
    assert report.branches[0].takes_commits


def test_a_block_missing_from_a_listing_is_looked_up_before_it_is_reported(
    table: Table, store: MemoryStore
) -> None:
    class Lagging(FaultyStore):
        def list(self, prefix: str):  # type: ignore[no-untyped-def]
            return iter([] if prefix == "_b/" else super().list(prefix))

    assert check_table(Lagging(store), ManualClock()).is_sound


# ---- floors, refs, unreachable objects


def test_expired_objects_are_not_reported_as_missing(table: Table, store: MemoryStore) -> None:
    raise_floor(table, 2)
    for version in (0, 1):
        store.delete(slot_key("main", version))
    report = check(store)

    assert report.is_sound
    assert report.branches[0].floor == 2


def test_lost_objects_that_a_tag_or_branch_keeps_below_a_floor_are_missing(
    table: Table, store: MemoryStore
) -> None:
    table.create_tag("good", 1)
    table.create_branch("old", 0)
    raise_floor(table, 3)
    for version in (0, 1, 2):
        store.delete(slot_key("main", version))

    assert {key for _, key, _ in damage(check(store))} >= {
        slot_key("main", version) for version in (0, 1)
    }
    assert slot_key("main", 2) not in {key for _, key, _ in damage(check(store))}


def test_a_floor_marker_above_the_floor_is_broken(table: Table, store: MemoryStore) -> None:
    store.put(floor_key("main", 0), b"expired")

    report = check(store)

    assert (FindingKind.BROKEN, floor_key("main", 0)) in [found[:2] for found in damage(report)]
    assert not report.branches[0].takes_commits  # for other processes, version 999 exists


def test_a_ref_copied_to_another_name_is_damaged(table: Table, store: MemoryStore) -> None:
    table.create_branch("fix")
    store.replace(branch_ref_key("other"), store.get(branch_ref_key("fix")))
    report = check(store)

    assert [(kind, key) for kind, key, _ in damage(report)] == [
        (FindingKind.DAMAGED, branch_ref_key("other"))
    ]
    assert [(b.name, b.takes_commits) for b in report.branches] == [
        ("main", True),
        ("fix", True),
        ("other", False),
    ]


@pytest.mark.parametrize("hint", [b"junk", b"", b"-1", b"9" * 21])
def test_a_wrong_hint_is_reported_as_a_note(table: Table, store: MemoryStore, hint: bytes) -> None:
    store.replace("_hint/main", hint)
    report = check(store)

    assert report.is_sound
    assert [(f.kind, f.key) for f in report.findings] == [(FindingKind.NOTE, "_hint/main")]


@pytest.mark.parametrize("hint", [b"4", b"99", b"9" * 20])
def test_a_hint_ahead_of_the_newest_slot_shows_that_a_slot_is_lost(
    table: Table, store: MemoryStore, hint: bytes
) -> None:
    store.replace("_hint/main", hint)
    report = check(store)
    (found,) = report.findings

    assert (found.kind, found.key) == (FindingKind.MISSING, slot_key("main", int(hint)))
    assert "delete _hint/main" in found.lost
    assert not report.branches[0].takes_commits
    store.delete("_hint/main")
    assert check(store).is_sound
    assert check(store).branches[0].takes_commits


def test_a_hint_of_a_version_committed_after_the_listing_is_not_a_loss(
    table: Table, store: MemoryStore
) -> None:
    class Busy(FaultyStore):
        def list(self, prefix: str):  # type: ignore[no-untyped-def]
            found = super().list(prefix)
            if prefix == SLOTS_PREFIX:
                for _ in range(HINT_EVERY):
                    table.append(rows(1))
            return found

    assert check_table(Busy(store), ManualClock()).is_sound


def test_a_lease_ahead_of_the_newest_slot_shows_that_a_slot_is_lost(
    table: Table, store: MemoryStore
) -> None:
    lease = Lease(
        consumer="nightly", owner_id="a" * 32, branch_id="main", version=3, lease_us=60_000_000
    )
    store.replace(lease_key("nightly"), encode_ref(lease))
    assert check(store).findings == ()
    store.delete(slot_key("main", 3))
    found, *notes = check(store).findings

    assert (found.kind, found.key) == (FindingKind.MISSING, slot_key("main", 3))
    assert "release the consumer nightly" in found.lost
    assert all(note.kind is FindingKind.NOTE for note in notes)
    store.delete(lease_key("nightly"))
    assert check(store).is_sound


def test_blocks_that_are_younger_than_every_slot_are_noted(
    store: MemoryStore, clock: ManualClock, create: Create
) -> None:
    table = create()
    for key in range(2):
        clock.advance(1)
        table.append(rows(key))
    assert check(store).findings == ()
    block = table.blocks()[-1]
    store.delete(slot_key("main", 2))
    (note,) = check(store).findings

    assert (note.kind, note.key) == (FindingKind.NOTE, block_key(block.id))
    assert "newest version of a branch is lost" in note.lost


@pytest.mark.parametrize("version", [10**12, 2**63])
def test_a_check_ends_if_the_version_in_a_ref_of_an_older_release_is_damaged(
    table: Table, store: MemoryStore, version: int
) -> None:
    fork = Parent(branch_id="main", version=version, sha256="0" * 64)
    for ref, key in (
        (BranchRef(name="fix", branch_id="b" * 32, created_us=1, forks=(fork,)), "branches/fix"),
        (TagRef(name="good", created_us=1, forks=(fork,), snapshot_id="2" * 32), "tags/good"),
    ):
        fields = {**orjson.loads(encode_ref(ref)), "format_version": 1}
        del fields["sha256"]
        store.put(f"_refs/{key}.json", dump_canonical(fields))
    counted = FaultyStore(store)
    report = check_table(counted, ManualClock())

    assert len(counted.calls) < 3 * MOST_MISSED
    assert [(b.name, b.last_good) for b in report.branches] == [("main", 3), ("fix", 3)]
    assert slot_key("main", version) in {key for _, key, _ in damage(report)}


def test_unreachable_objects_are_counted_and_are_not_damage(
    table: Table, store: MemoryStore
) -> None:
    store.put(block_key("a" * 32), b"12345")
    store.put(segment_key("b" * 32), b"123")
    store.put(probe_key("c" * 32), b"1")
    report = check(store)

    assert report.is_sound
    assert {
        kind: (left.object_count, left.byte_size) for kind, left in report.unreachable.items()
    } == {
        "snapshots": (0, 0),
        "segments": (1, 3),
        "blocks": (1, 5),
        "deletion files": (0, 0),
        "source offsets": (0, 0),
        "lists of indexes": (0, 0),
        "parts of indexes": (0, 0),
        "probes": (1, 1),
    }


def test_a_table_without_its_table_file_is_checked(table: Table, store: MemoryStore) -> None:
    store.delete("_fuse.json")
    report = check(store)

    assert [(kind, key) for kind, key, _ in damage(report)] == [(FindingKind.MISSING, "_fuse.json")]
    assert (report.branches[0].last_good, report.branches[0].takes_commits) == (3, False)


def test_a_folder_without_a_table_is_an_error() -> None:
    with pytest.raises(NotFoundError):
        check(MemoryStore())


def test_the_first_snapshot_of_a_branch_is_compared_with_its_fork_point(
    table: Table, store: MemoryStore
) -> None:
    ref = table.create_branch("fix", 2)
    snapshot = opened(store, "fix").append(rows(9))
    assert snapshot.parent is not None
    parent = dataclasses.replace(snapshot.parent, sha256="0" * 64)
    key = slot_key(ref.branch_id, 3)
    store.replace(key, encode_snapshot(dataclasses.replace(snapshot, parent=parent)))

    assert (FindingKind.BROKEN, key, "the parent's hash is not the head's") in damage(check(store))


def test_a_clone_and_its_origin_are_sound_and_the_pin_keeps_its_snapshot(
    table: Table, store: MemoryStore
) -> None:
    place = MemoryStore()
    metadata = Metadata(place, ManualClock(seed=9))
    clone(table.committer, metadata, version=2, origin_of=lambda _: store, probe_place=False)
    raise_floor(table, 3)
    origin, copy = check(store, deep=True), check(place, deep=True)

    assert (origin.is_sound, copy.is_sound) == (True, True)
    assert [finding.wrong for finding in copy.findings] == [
        f"2 blocks are in table {table.table_id}, and were not checked"
    ]
    store.delete(slot_key("main", 2))
    assert [(kind, key) for kind, key, _ in damage(check(store))] == [
        (FindingKind.MISSING, slot_key("main", 2))
    ]
    store.replace(clone_ref_key("a" * 32), store.get(next(iter(pins(store)))))
    assert (FindingKind.DAMAGED, clone_ref_key("a" * 32)) in {
        (kind, key) for kind, key, _ in damage(check(store))
    }


def pins(store: MemoryStore) -> list[str]:
    return [info.key for info in store.list("_refs/clones/")]
