"""Erasing rows: which blocks are rewritten, what the feed shows, and what still holds the rows."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest

from fuse_stream.clock import Clock
from fuse_stream.erasure.erase import ErasureReport
from fuse_stream.erasure.holders import Holder, HolderKind
from fuse_stream.errors import CorruptObjectError, InvalidInputError
from fuse_stream.format.properties import OWN_NAMES
from fuse_stream.objects.origins import StoreWithOrigins
from fuse_stream.objects.slots import Metadata
from fuse_stream.optimize import rewrite
from fuse_stream.refs.clone import clone
from fuse_stream.storage.wrappers import ReadOnlyStore
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.tables import open_table_in, temporary_table
from tests.cli.leases import put_lease
from tests.erasure.contents import all_rows, reachable_holding

SCHEMA = pa.schema([("id", pa.int64()), ("email", pa.string())])
ADA = "ada@example.org"
WHERE = f"email = '{ADA}'"
QUICK = {"fuse.grace": "1s", "fuse.vacuum.age": "1s"}


def rows(*ids: int, email: str | None = None) -> pa.Table:
    emails = [email or f"user{each}@example.org" for each in ids]
    return pa.table({"id": ids, "email": emails}, schema=SCHEMA)


def made(store: MemoryStore | None = None, clock: Clock | None = None, **options: object) -> Table:
    """Return a table of which rows 1, 4 and 6 are Ada's; 4 is deleted, and 3 of another's."""
    clock = clock or ManualClock()
    table = temporary_table(
        SCHEMA,
        store=store or MemoryStore(clock=clock),
        clock=clock,
        properties=QUICK,
        **options,  # type: ignore[arg-type]
    )
    table.append(pa.concat_tables([rows(1, email=ADA), rows(2, 3)]))
    table.append(pa.concat_tables([rows(4, email=ADA), rows(5)]))
    table.append(rows(6, email=ADA))
    table.append(rows(7, 8))
    table.delete("id IN (3, 4)")
    return table


def damage(store: MemoryStore, block_id: str) -> None:
    key = f"_b/{block_id}_v1.parquet"
    store.objects[key] = dataclasses.replace(store.objects[key], data=b"damaged")


def named(report: ErasureReport, kind: HolderKind) -> Holder:
    (found,) = (holder for holder in report.holders if holder.kind is kind)
    return found


def test_visible_and_deleted_rows_leave_every_block_of_the_head() -> None:
    table = made()
    untouched = table.blocks()[-1]
    report = table.erase(WHERE)

    (done,) = report.branches
    assert (done.row_count, done.hidden_count, done.block_count) == (2, 1, 3)
    assert sorted(table.to_arrow()["id"].to_pylist()) == [2, 5, 7, 8]
    assert ADA not in {row["email"] for row in all_rows(table)}
    assert untouched.id in {block.id for block in table.blocks()}
    assert table.head().operation == "erase"
    assert table.head().message == "3 rows erased from 3 blocks"
    assert table.fsck(deep=True).is_sound


def test_no_bound_of_the_new_version_is_a_value_of_the_rows() -> None:
    table = made(cluster_by=["email"])
    assert reachable_holding(table, ADA.encode())
    table.erase(WHERE)

    assert reachable_holding(table, ADA.encode()) == []


def test_a_bound_that_a_compaction_has_left_is_erased_too() -> None:
    table = made()
    table.delete(WHERE)
    table.set_properties({"fuse.deletes.rows": "1%"})
    table.compact()
    assert ADA not in {row["email"] for row in all_rows(table)}
    assert reachable_holding(table, ADA.encode())  # the snapshot's totals
    done = table.erase(WHERE).branches[0]

    assert (done.row_count, done.hidden_count) == (0, 0)
    assert done.snapshot is not None
    assert done.snapshot.data_change is False
    assert reachable_holding(table, ADA.encode()) == []
    assert table.erase(WHERE).branches[0].snapshot is None


def test_the_feed_deletes_the_rows_that_were_visible() -> None:
    table = made()
    before = table.head().version
    table.erase(WHERE)

    feed = table.changes(before + 1).read_all().to_pylist()
    assert [(row["_change_type"], row["id"]) for row in feed] == [("delete", 1), ("delete", 6)]


def test_an_erasure_of_deleted_rows_alone_feeds_nothing() -> None:
    table = made()
    table.erase("id = 4")

    head = table.head()
    assert (head.operation, head.data_change) == ("erase", False)
    assert table.changes(head.version).read_all().num_rows == 0
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 5, 6, 7, 8]


def test_other_deleted_rows_stay_deleted() -> None:
    table = made()
    table.delete("id = 8")  # in a block without the rows
    table.erase(WHERE)

    assert sorted(table.to_arrow()["id"].to_pylist()) == [2, 5, 7]
    assert table.head().hidden_rows == 1


def test_a_pattern_erases_the_messages_that_have_a_text() -> None:
    schema = pa.schema([("value", pa.string()), ("bytes", pa.binary())])
    texts = [
        f'{{"email": "{ADA}"}}',
        '{"email": "a_b@example.org"}',
        '{"email": "axb@example.org"}',
    ]
    table = temporary_table(schema, clock=ManualClock())
    table.append(pa.table({"value": texts, "bytes": [None] * 3}, schema=schema))

    assert table.erase(f"value LIKE '%{ADA}%'").row_count == 1
    assert table.erase(r"value LIKE '%a\_b%'").row_count == 1
    assert table.to_arrow()["value"].to_pylist() == texts[2:]
    with pytest.raises(InvalidInputError, match="string column"):
        table.erase("bytes LIKE '%a%'")


def test_all_rows_can_be_erased() -> None:
    table = made()
    table.erase("true")

    assert len(table.to_arrow()) == 0
    assert table.blocks() == ()
    assert table.head().summary.col_stats == {}
    assert table.fsck(deep=True).is_sound


def test_a_second_erasure_makes_no_version() -> None:
    table = made()
    table.erase(WHERE)
    version = table.head().version
    report = table.erase(WHERE)

    assert report.branches[0].snapshot is None
    assert table.head().version == version


def test_a_dry_run_writes_nothing() -> None:
    store = MemoryStore()
    made(store)
    report = open_table_in(ReadOnlyStore(store)).erase(WHERE, dry_run=True)

    assert (report.row_count, report.hidden_count) == (2, 1)
    assert named(report, HolderKind.VERSIONS).last_version == 5


def test_a_broken_predicate_writes_nothing() -> None:
    table = made()
    version = table.head().version
    with pytest.raises(InvalidInputError):
        table.erase("emial = 'x'")

    assert table.head().version == version


def test_every_branch_gets_a_commit() -> None:
    table = made()
    table.create_branch("fix", 3)
    table.create_branch("empty", 0)
    report = table.erase(WHERE)

    branches = {one.branch: one for one in report.branches}
    assert list(branches) == ["main", "empty", "fix"]
    assert (branches["fix"].row_count, branches["fix"].hidden_count) == (3, 0)
    assert branches["empty"].snapshot is None
    fix = open_table_in(table.metadata.store, branch="fix")
    assert sorted(fix.to_arrow()["id"].to_pylist()) == [2, 3, 5]
    assert reachable_holding(fix, ADA.encode()) == []


def test_a_branch_without_the_column_has_nulls_in_it() -> None:
    store = MemoryStore()
    table = temporary_table(pa.schema([("id", pa.int64())]), store=store)
    table.append(pa.table({"id": [1]}))
    table.create_branch("old")
    table.append(rows(2, email=ADA), merge_schema=True)
    old = open_table_in(store, branch="old")
    phones = pa.table({"id": [3], "phone": [ADA]})  # its column has the same id as `email`
    old.append(phones, merge_schema=True)
    report = table.erase(WHERE)

    assert [(one.branch, one.row_count) for one in report.branches] == [("main", 1), ("old", 0)]
    assert old.to_arrow()["phone"].to_pylist() == [None, ADA]
    report = table.erase("email IS NULL")
    assert [(one.branch, one.row_count) for one in report.branches] == [("main", 1), ("old", 2)]


def test_the_report_names_what_holds_the_rows_and_how_to_release_it() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    table = made(store, clock)
    table.create_tag("before", 2, retain="30d")
    table.create_branch("fix", 3)
    put_lease(table, "nightly", version=2)
    place = MemoryStore(clock=clock)
    made_clone = clone(
        table.committer,
        Metadata(place, clock),
        version=3,
        origin_of=lambda _: store,
        probe_place=False,
    )
    report = table.erase(WHERE)

    versions = [one for one in report.holders if one.kind is HolderKind.VERSIONS]
    assert [(one.name, one.first_version, one.last_version) for one in versions] == [
        ("main", 1, 5),
        ("fix", 1, 3),
    ]
    assert versions[0].row_count == 3
    assert versions[0].command == "fuse-stream expire memory-store --branch main --keep-last 1"
    assert versions[0].after_us is not None
    tag = named(report, HolderKind.TAG)
    assert (tag.name, tag.first_version, tag.row_count) == ("before", 2, 2)
    assert tag.until_us is not None
    assert tag.command == "fuse-stream tag memory-store --delete before"
    pin = named(report, HolderKind.CLONE)
    assert (pin.name, pin.last_version) == (made_clone.table_id, 3)
    consumer = named(report, HolderKind.CONSUMER)
    assert (consumer.name, consumer.first_version, consumer.last_version) == ("nightly", 2, 5)
    assert consumer.until_us is not None


def test_a_clone_names_the_table_that_has_its_blocks() -> None:
    clock = ManualClock()
    store, place = MemoryStore(clock=clock), MemoryStore(clock=clock)
    table = made(store, clock)
    clone(
        table.committer,
        Metadata(place, clock),
        version=None,
        origin_of=lambda _: store,
        probe_place=False,
    )
    copy = open_table_in(StoreWithOrigins(place, [store]), clock=clock)
    report = copy.erase(WHERE)

    assert sorted(copy.to_arrow()["id"].to_pylist()) == [2, 5, 7, 8]
    assert named(report, HolderKind.ORIGIN).name == table.table_id
    assert {block.origin for block in copy.blocks()} == {None, table.table_id}


def test_slots_of_expired_versions_are_named_until_their_chunk_has_expired() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    table = made(store, clock)
    table.erase(WHERE)
    clock.advance(10)
    table.expire(keep_last=1)
    report = table.erase(WHERE)

    expired = named(report, HolderKind.EXPIRED)
    assert (expired.first_version, expired.last_version, expired.row_count) == (1, 5, 0)
    assert "1000" in expired.remedy


def test_an_object_that_cannot_be_searched_is_named() -> None:
    store = MemoryStore()
    table = made(store)
    (block,) = (block for block in table.blocks() if block.row_count == 3)
    table.overwrite(rows(9))
    damage(store, block.id)
    report = open_table_in(store).erase(WHERE)

    assert report.unreadable == (f"_b/{block.id}_v1.parquet",)
    table = made(store := MemoryStore())
    (block,) = (block for block in table.blocks() if block.row_count == 3)
    damage(store, block.id)
    with pytest.raises(CorruptObjectError):
        open_table_in(store).erase(WHERE)


def test_a_large_block_keeps_no_value_in_its_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "CHUNK_ROWS", 100)  # from here on texts are read as dictionaries
    table = made()
    many = [ADA if each == 500 else f"user{each % 7}@example.org" for each in range(1000)]
    table.append(pa.table({"id": range(1000), "email": many}, schema=SCHEMA))
    table.erase(WHERE)

    assert len(table.to_arrow()) == 4 + 999
    assert reachable_holding(table, ADA.encode()) == []


def test_an_erasure_cannot_be_reverted() -> None:
    table = made()
    table.erase(WHERE)
    with pytest.raises(InvalidInputError):
        table.revert(table.head().version)


def test_a_snapshot_that_erases_needs_a_feature() -> None:
    table = made()
    table.erase(WHERE)

    assert "erasure" in table.head().required_features
    assert "erasure" not in table.append(rows(20)).required_features


def test_blame_finds_the_commits_of_rows_that_an_erasure_has_moved() -> None:
    table = made()
    table.erase(WHERE)

    found = table.blame("id IN (2, 5, 7)")
    assert sorted(commit.version for commit in found) == [1, 2, 4]


def test_an_erasure_keeps_the_ledger_and_the_key() -> None:
    table = temporary_table(SCHEMA)
    table.upsert(rows(1, 2), keys=["id"], app_id="a", batch_id=1)
    table.upsert(pa.concat_tables([rows(2, email=ADA), rows(3)]), app_id="a", batch_id=2)
    ledger, key = table.head().ledger, table.head().key
    table.erase(WHERE)

    assert (table.head().ledger, table.head().key) == (ledger, key)
    again = table.upsert(pa.concat_tables([rows(2, email=ADA), rows(3)]), app_id="a", batch_id=2)
    assert again.snapshot is not None
    assert again.snapshot.replayed
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 3]


def test_a_private_column_may_be_set_after_the_fact() -> None:
    assert "fuse.private" in OWN_NAMES
    table = made()
    table.set_properties({"fuse.private": "email"})
    table.erase("id = 1")

    assert sorted(table.to_arrow()["id"].to_pylist()) == [2, 5, 6, 7, 8]
    assert table.head().summary.col_stats[2].min is None
