"""fsck checks the sides of snapshots as it checks the table's rows, and names them."""

from __future__ import annotations

import dataclasses

import orjson
import pytest

from fuse_stream.check.findings import Finding, FindingKind, FsckReport
from fuse_stream.check.fsck import check_table
from fuse_stream.format.jsonio import dump_canonical
from fuse_stream.format.layout import block_key, deletions_key, segment_key, slot_key
from fuse_stream.format.records import Operation, Side
from fuse_stream.objects.snapshot_blocks import iter_blocks
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from tests.conftest import Create
from tests.kit.sides import commit_sides, side_rows
from tests.recovery.histories import put_next, rows

SIDE = "tombstones"


@pytest.fixture
def table(create: Create) -> Table:
    """Version 3 hides b."""
    table = create()
    commit_sides(table, {SIDE: side_rows("a", "b")}, rows=rows(1, 2))
    commit_sides(table, {SIDE: side_rows("c"), "quarantine": side_rows("x")})
    commit_sides(table, {}, hides={SIDE: {"b"}})
    return table


def check(store: MemoryStore, *, deep: bool = False) -> FsckReport:
    return check_table(store, ManualClock(), deep=deep)


def only(report: FsckReport) -> Finding:
    (finding,) = report.findings
    return finding


def side_of(table: Table) -> Side:
    return table.head().sides[SIDE]


def put_side(table: Table, **changes: object) -> None:
    """Store a snapshot whose side has these changes, and a count of rows that agrees with them."""
    side = dataclasses.replace(side_of(table), **changes)  # type: ignore[arg-type]
    rows = sum(ref.row_count for ref in side.segments)
    hidden = sum(ref.row_count for ref in side.deletion_files)
    summary = dataclasses.replace(
        side.summary,
        row_count=rows - hidden,
        block_count=sum(ref.block_count for ref in side.segments),
    )
    side = dataclasses.replace(side, summary=summary)
    put_next(table, Operation.REVERT, sides={**table.head().sides, SIDE: side})


@pytest.mark.parametrize("deep", [False, True])
def test_a_table_with_sides_is_sound(table: Table, store: MemoryStore, *, deep: bool) -> None:
    table.compact()
    commit_sides(table, {}, hides={SIDE: {"a", "c"}})
    table.compact()
    report = check(store, deep=deep)

    assert report.findings == ()
    assert SIDE not in table.head().sides
    assert report.unreachable["blocks"].object_count == 0
    assert report.unreachable["segments"].object_count == 0
    assert report.unreachable["deletion files"].object_count == 0
    assert report.block_count == sum(key.startswith("_b/") for key in store.objects)


def test_a_lost_segment_of_a_side_is_found(table: Table, store: MemoryStore) -> None:
    key = segment_key(side_of(table).segments[0].id)
    del store.objects[key]
    finding = only(check(store))

    assert (finding.kind, finding.key, finding.row_count) == (FindingKind.MISSING, key, 2)
    assert "of side tombstones" in finding.lost
    assert (finding.versions[0].first, finding.versions[0].last) == (1, 3)


def test_a_lost_block_of_a_side_is_found(table: Table, store: MemoryStore) -> None:
    block = next(iter_blocks(table.metadata, table.head().side(SIDE)))
    del store.objects[block_key(block.id)]
    finding = only(check(store))

    assert (finding.kind, finding.key) == (FindingKind.MISSING, block_key(block.id))
    assert finding.lost == "its rows of side tombstones, 2 of them"


def test_a_changed_byte_of_a_side_s_block_is_found_by_a_deep_check(
    table: Table, store: MemoryStore
) -> None:
    block = next(iter_blocks(table.metadata, table.head().side("quarantine")))
    data = bytearray(store.get(block_key(block.id)))
    data[len(data) // 2] ^= 1
    store.put(block_key(block.id), bytes(data))

    assert check(store).findings == ()
    assert "of side quarantine" in only(check(store, deep=True)).lost


def test_a_lost_deletion_file_of_a_side_is_found(table: Table, store: MemoryStore) -> None:
    (ref,) = side_of(table).deletion_files
    del store.objects[deletions_key(ref.id)]
    finding = only(check(store))

    assert finding.kind is FindingKind.MISSING
    assert "1 rows of 1 blocks of side tombstones" in finding.lost


def test_a_deletion_file_of_a_side_that_names_no_block_of_it_is_found(
    table: Table, store: MemoryStore
) -> None:
    put_side(table, segments=side_of(table).segments[1:])
    finding = only(check(store))

    assert finding.kind is FindingKind.BROKEN
    assert "which no segment of the version lists of side tombstones" in finding.wrong


def test_a_row_of_a_side_that_is_hidden_twice_is_found(table: Table, store: MemoryStore) -> None:
    (ref,) = side_of(table).deletion_files
    data = store.objects[deletions_key(ref.id)]
    store.objects[deletions_key("f" * 32)] = data
    put_side(table, deletion_files=(ref, dataclasses.replace(ref, id="f" * 32)))

    assert "hides row 1 of block" in only(check(store)).wrong


def test_a_block_that_is_in_the_table_and_in_a_side_is_found(
    table: Table, store: MemoryStore
) -> None:
    side = table.head().sides["quarantine"]
    put_side(table, segments=(*side_of(table).segments, *side.segments))
    report = check(store)
    found = {finding.wrong for finding in report.findings}

    assert report.branches[0].last_good == 3
    assert any("is in two of its lists of rows" in wrong for wrong in found)
    assert "a segment is listed twice" in found


def test_a_commit_that_lost_rows_of_a_side_is_found(table: Table, store: MemoryStore) -> None:
    sides = {"tombstones": table.head().sides["tombstones"]}
    put_next(table, Operation.ALTER, sides=sides)

    assert "of side quarantine" in only(check(store)).wrong


def test_totals_of_a_side_that_are_wrong_are_found(table: Table, store: MemoryStore) -> None:
    side = side_of(table)
    summary = dataclasses.replace(side.summary, row_count=9)
    sides = {**table.head().sides, SIDE: dataclasses.replace(side, summary=summary)}
    put_next(table, Operation.REVERT, sides=sides)

    assert "the summary says otherwise" in only(check(store)).wrong


def test_a_side_that_was_away_is_checked_as_a_whole(table: Table, store: MemoryStore) -> None:
    whole = side_of(table)
    put_side(table, segments=whole.segments[1:])
    put_next(table, Operation.REVERT, sides={})
    put_next(table, Operation.REVERT, sides={SIDE: whole})
    finding = only(check(store))

    assert "which no segment of the version lists" in finding.wrong
    assert [(found.first, found.last) for found in finding.versions] == [(4, 4)]


def test_a_damaged_bound_of_a_side_is_found(table: Table, store: MemoryStore) -> None:
    key = slot_key("main", 3)
    fields = orjson.loads(store.get(key))
    fields["sides"][SIDE]["summary"]["col_stats"]["2"]["max"] = 1.5
    store.put(key, dump_canonical(fields))
    finding = only(check(store))

    assert (finding.kind, finding.key) == (FindingKind.DAMAGED, key)
