"""A candidate that breaks a rule is refused before it is published, by the name of the rule."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from fuse_stream.commit.invariants import RULES, check, parent_hash_is_heads
from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.indexes import IndexListRef
from fuse_stream.format.records import (
    ColumnStats,
    DeletionFileRef,
    LedgerEntry,
    Operation,
    Parent,
    Retirement,
    Side,
    Snapshot,
    Summary,
)
from fuse_stream.objects.slots import Stored
from fuse_stream.table.handle import Table
from tests.kit.sides import commit_sides, side_rows

Create = Callable[..., Table]
Break = Callable[[Snapshot], Snapshot]
replace = dataclasses.replace


@pytest.fixture
def pair(create: Create) -> tuple[Stored, Snapshot]:
    """Return a head and the append that follows it."""
    table = create(cluster_by=["k"])
    table.append(pa.table({"k": [5, 9]}), app_id="a", batch_id=0)
    table.append(pa.table({"k": [1, None, 2]}), app_id="a", batch_id=1)
    table.delete("k = 2")
    commit_sides(table, {"tombstones": side_rows("a", "b", "c")})
    commit_sides(table, {}, hides={"tombstones": {"b"}})
    head = table.committer.head()
    table.append(pa.table({"k": [3, 20]}), app_id="a", batch_id=2)
    return head, table.head()


def with_stats(new: Snapshot, **changes: Any) -> Snapshot:
    stats = {1: replace(new.summary.col_stats[1], **changes)}
    return replace(new, summary=replace(new.summary, col_stats=stats))


def with_entry(new: Snapshot, **changes: Any) -> Snapshot:
    entries = {("a", ""): replace(new.ledger.entries["a", ""], **changes)}
    return replace(new, ledger=replace(new.ledger, entries=entries))


def without_entries(new: Snapshot) -> Snapshot:
    return replace(new, ledger=replace(new.ledger, entries={}))


def with_parent_hash_of_nothing(new: Snapshot) -> Snapshot:
    assert new.parent is not None
    return replace(new, parent=replace(new.parent, sha256="0" * 64))


def doubled(new: Snapshot) -> Snapshot:
    """Name a segment twice, with counts that add up."""
    twice = (*new.segments, new.segments[-1])
    rows = sum(ref.row_count for ref in twice) - new.hidden_rows
    summary = replace(new.summary, row_count=rows, block_count=len(twice))
    return replace(new, segments=twice, summary=summary)


def hiding(new: Snapshot, files: tuple[DeletionFileRef, ...]) -> Snapshot:
    """Hide other rows, with counts that add up."""
    changed = replace(new, deletion_files=files)
    rows = changed.stored_rows - changed.hidden_rows
    return replace(changed, summary=replace(changed.summary, row_count=rows))


def hiding_no_row(new: Snapshot) -> Snapshot:
    return hiding(new, ())


def with_side(new: Snapshot, **changes: Any) -> Snapshot:
    side = replace(new.sides["tombstones"], **changes)
    return replace(new, sides={"tombstones": side})


def with_side_schema(new: Snapshot, **changes: Any) -> Snapshot:
    return with_side(new, schema=replace(new.sides["tombstones"].schema, **changes))


def of_main(new: Snapshot) -> dict[str, Any]:
    """The fields of a side that names the table's own segments."""
    return {"segments": new.segments, "deletion_files": (), "summary": summary_of_blocks(new)}


def summary_of_blocks(new: Snapshot) -> Summary:
    return replace(new.summary, row_count=new.stored_rows)


def quarantine_of(new: Snapshot) -> dict[str, Side]:
    ref = replace(new.sides["tombstones"].segments[0], id="e" * 32)
    summary = Summary(row_count=ref.row_count, block_count=ref.block_count)
    schema = new.sides["tombstones"].schema
    return {"quarantine": Side(schema=schema, segments=(ref,), summary=summary)}


def compacted(new: Snapshot, head_rows: int, **changes: Any) -> Snapshot:
    """A compaction of the head, which has this number of rows."""
    summary = replace(new.summary, row_count=head_rows)
    segments = tuple(ref for ref in new.segments if ref.id not in new.added)
    summary = replace(summary, block_count=len(segments))
    return replace(
        new, operation=Operation.COMPACT, added=(), segments=segments, summary=summary, **changes
    )


def erasing_and_adding_a_side(new: Snapshot) -> Snapshot:
    done = compacted(new, 4, sides={**new.sides, **quarantine_of(new)})
    return replace(done, operation=Operation.ERASE)


def hiding_no_row_of_the_side(new: Snapshot) -> Snapshot:
    side = new.sides["tombstones"]
    summary = replace(side.summary, row_count=side.summary.row_count + 1)
    return with_side(new, deletion_files=(), summary=summary)


def hiding_twice_in_the_side(new: Snapshot) -> Snapshot:
    side = new.sides["tombstones"]
    summary = replace(side.summary, row_count=side.summary.row_count - 1)
    return with_side(new, deletion_files=side.deletion_files * 2, summary=summary)


BROKEN: list[tuple[str, Break]] = [
    ("version_follows", lambda new: replace(new, version=new.version + 1)),
    ("version_follows", lambda new: replace(new, version=new.version - 1)),
    ("version_follows", lambda new: replace(new, table_id="a" * 32)),
    ("parent_is_head", lambda new: replace(new, parent=None)),
    ("parent_is_head", lambda new: replace(new, prev_snapshot_id="a" * 32)),
    (
        "parent_is_head",
        lambda new: replace(new, parent=Parent(branch_id="main", version=0, sha256="")),
    ),
    ("parent_hash_is_heads", with_parent_hash_of_nothing),
    ("time_grows", lambda new: replace(new, timestamp_us=new.timestamp_us - 1)),
    ("counts_add_up", lambda new: replace(new, summary=replace(new.summary, row_count=7))),
    ("counts_add_up", lambda new: replace(new, summary=replace(new.summary, block_count=2))),
    ("counts_add_up", lambda new: replace(new, segments=new.segments[:-1], added=())),
    ("counts_add_up", lambda new: with_side(new, summary=Summary(row_count=9, block_count=1))),
    ("counts_add_up", lambda new: with_side(new, deletion_files=())),
    ("bounds_contain", lambda new: with_stats(new, min=2)),
    ("bounds_contain", lambda new: with_stats(new, max=8)),
    ("bounds_contain", lambda new: with_stats(new, max=19)),
    ("bounds_contain", lambda new: replace(new, summary=replace(new.summary, col_stats={}))),
    ("segments_are_unique", doubled),
    ("segments_are_unique", lambda new: with_side(new, **of_main(new))),
    ("added_are_new", lambda new: replace(new, added=("f" * 32,))),
    ("added_are_new", lambda new: replace(new, added=(new.segments[0].id,))),
    ("deletion_files_are_kept", hiding_no_row),
    ("deletion_files_are_kept", lambda new: hiding(new, new.deletion_files * 2)),
    ("deletion_files_are_kept", lambda new: replace(new, deletion_files_added=("f" * 32,))),
    (
        "deletion_files_are_kept",
        lambda new: replace(new, deletion_files_added=(new.deletion_files[0].id,)),
    ),
    ("deletion_files_are_kept", hiding_twice_in_the_side),
    ("sides_are_kept", lambda new: replace(new, sides={})),
    ("sides_are_kept", hiding_no_row_of_the_side),
    ("sides_are_kept", lambda new: compacted(new, 4, sides={})),
    ("sides_are_kept", lambda new: compacted(new, 4, sides={**new.sides, **quarantine_of(new)})),
    ("rows_are_kept", lambda new: replace(new, operation=Operation.COMPACT)),
    ("rows_are_kept", lambda new: replace(new, operation=Operation.ALTER)),
    ("erasure_adds_no_row", lambda new: replace(new, operation=Operation.ERASE)),
    ("erasure_adds_no_row", erasing_and_adding_a_side),
    (
        "indexes_are_kept",
        lambda new: replace(new, index_list=IndexListRef(id="a" * 32, sha256="b" * 64)),
    ),
    ("floor_and_epoch_do_not_fall", lambda new: replace(new, floor=-1)),
    ("floor_and_epoch_do_not_fall", lambda new: replace(new, epoch=-1)),
    ("column_ids_are_kept", lambda new: replace(new, schema=replace(new.schema, last_column_id=0))),
    ("column_ids_are_kept", lambda new: replace(new, schema=replace(new.schema, columns=()))),
    ("column_ids_are_kept", lambda new: with_side_schema(new, last_column_id=1)),
    ("column_ids_are_kept", lambda new: with_side_schema(new, columns=())),
    ("column_ids_are_kept", lambda new: with_side_schema(new, id=1, columns=())),
    ("ledger_is_kept", without_entries),
    ("ledger_is_kept", lambda new: with_entry(new, batch_id=0)),
    ("ledger_is_kept", lambda new: with_entry(new, version=0)),
    ("ledger_is_kept", lambda new: with_entry(new, query_id="q")),
]


def test_what_the_planner_makes_breaks_no_rule(pair: tuple[Stored, Snapshot]) -> None:
    head, new = pair

    check(head.snapshot, head.sha256, new)


@pytest.mark.parametrize(
    ("rule", "breaks"), BROKEN, ids=[f"{n}-{rule}" for n, (rule, _) in enumerate(BROKEN)]
)
def test_a_broken_candidate_is_refused_by_its_rule(
    pair: tuple[Stored, Snapshot], rule: str, breaks: Break
) -> None:
    head, new = pair

    with pytest.raises(CorruptObjectError) as caught:
        check(head.snapshot, head.sha256, breaks(new))

    assert caught.value.context["rule"] == rule


def test_every_rule_has_a_candidate_that_breaks_it() -> None:
    names = {rule.__name__ for rule in RULES} | {parent_hash_is_heads.__name__}

    assert names == {rule for rule, _ in BROKEN}


def test_only_main_forks_off_nothing(pair: tuple[Stored, Snapshot]) -> None:
    head, new = pair
    other = "a" * 32

    parent = Parent(branch_id=other, version=head.snapshot.version, sha256=head.sha256)
    on_main = replace(new, parent=parent)
    on_other = replace(head.snapshot, branch_id=other)

    check(head.snapshot, head.sha256, replace(new, branch_id=other))
    with pytest.raises(CorruptObjectError, match="main does not fork off"):
        check(on_other, head.sha256, on_main)


def test_a_retired_query_stays_retired(pair: tuple[Stored, Snapshot]) -> None:
    head, new = pair
    retired = {"q": Retirement(application="a", version=1)}
    before = replace(head.snapshot, ledger=replace(head.snapshot.ledger, retired=retired))

    with pytest.raises(CorruptObjectError, match="retired queries vanished"):
        check(before, head.sha256, new)


@pytest.mark.parametrize("operation", [Operation.REWIND, Operation.PUBLISH])
def test_a_rewind_and_a_publish_may_set_the_ledger_back(
    pair: tuple[Stored, Snapshot], operation: Operation
) -> None:
    head, new = pair

    check(head.snapshot, head.sha256, replace(with_entry(new, batch_id=0), operation=operation))


def test_an_entry_may_pass_to_a_query_that_retires_the_one_before(
    pair: tuple[Stored, Snapshot],
) -> None:
    head, new = pair
    old = LedgerEntry(query_id="old", batch_id=4, rows=1, version=1, timestamp_us=1)
    before = replace(head.snapshot, ledger=replace(head.snapshot.ledger, entries={("a", ""): old}))
    passed = with_entry(new, query_id="new", batch_id=0)
    retired = {"old": Retirement(application="a", version=new.version, fork="new")}

    check(before, head.sha256, replace(passed, ledger=replace(passed.ledger, retired=retired)))


def test_an_unknown_bound_may_not_become_known(pair: tuple[Stored, Snapshot]) -> None:
    head, new = pair
    unknown = {1: ColumnStats(null_count=0, in_memory_size=0)}
    summary = replace(head.snapshot.summary, col_stats=unknown)

    with pytest.raises(CorruptObjectError, match="bounds"):
        check(replace(head.snapshot, summary=summary), head.sha256, new)
