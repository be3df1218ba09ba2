"""Blame finds the commits that wrote the matching rows; the rows' column `origin` is the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuse_stream.errors import CorruptObjectError, InvalidInputError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.layout import (
    BLOCKS_PREFIX,
    block_key,
    segment_key,
    slot_key,
)
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.table.handle import Table, create_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.trace.blame import BlamedCommit
from tests.recovery.by_hand import (
    commit_blocks,
    compact,
    publish,
    revert_head,
    rewind,
)
from tests.recovery.histories import VALUES, opened, raise_floor, rows

Create = Callable[..., Table]
SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("origin", pa.int64())])
PREDICATES = [
    "k = 1",
    "k <> 1",
    "k >= 2",
    "k IS NULL",
    "NOT k < 2",
    "x IS NULL OR k = 0",
    "x > 1",
    "NOT (x <= 1.5)",
    "x = CAST('NaN' AS DOUBLE)",
    "k IN (0, 3) AND x < 2",
    "TRUE",
    "FALSE",
]

batches = st.lists(VALUES, max_size=4)
steps = st.one_of(
    st.tuples(st.just("append"), batches),
    st.tuples(st.just("append"), batches),
    st.tuples(st.just("overwrite"), batches),
    st.tuples(st.sampled_from(["compact", "recluster"]), st.integers(0, 63)),
    st.tuples(st.just("rewind"), st.integers(0, 99)),
    st.tuples(st.just("revert"), st.none()),
    st.tuples(st.just("alter"), st.none()),
    st.tuples(st.just("publish"), batches),
)


class History:
    """A table whose rows name the commit that wrote them."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        schema = first_schema(columns_of_arrow(SCHEMA))
        clock = ManualClock(seed=7)
        self.table = create_table(self.store, schema, clock=clock, probe_store=False)
        self.commits: list[tuple[str, int]] = []
        """Branch id and version of each commit, by the number in its rows."""

    def write(self, table: Table, operation: str, batch: list[tuple[object, object]]) -> None:
        number = len(self.commits)
        columns = {
            "k": [row[0] for row in batch],
            "x": [row[1] for row in batch],
            "origin": [number] * len(batch),
        }
        done = getattr(table, operation)(pa.table(columns, schema=SCHEMA))
        self.commits.append((done.branch_id, done.version))

    def do(self, step: str, value: object) -> None:
        table = self.table
        match step, value:
            case (("append" | "overwrite"), list(batch)):
                self.write(table, step, batch)
            case (("compact" | "recluster"), int(bits)):
                count = len(table.blocks())
                chosen = [at for at in range(count) if bits >> at & 1] or list(range(count))
                if count:
                    compact(table, *chosen, operation=Operation(step), block_rows=1 + bits % 4)
            case "rewind", int(number):
                rewind(table, number % (table.head().version + 1))
            case "revert", None:
                if table.head().version:
                    revert_head(table)
            case "alter", None:
                table.set_properties({"note": "n"})
            case "publish", list(batch):
                name = f"b-{len(self.commits)}"
                table.create_branch(name)
                branch = opened(self.store, name)
                self.write(branch, "append", batch)
                compact(branch) if branch.blocks() else None
                publish(table, branch)

    def expected(self, where: str) -> Counter[tuple[str, int]]:
        found = self.table.to_arrow(where=where, columns=["origin"])
        return Counter(self.commits[number] for number in found["origin"].to_pylist())


def counts(found: Iterable[BlamedCommit]) -> dict[tuple[str, int], int]:
    return {(one.branch_id, one.version): one.row_count for one in found}


def versions(found: Iterable[BlamedCommit]) -> dict[int, int]:
    return {one.version: one.row_count for one in found}


@given(history=st.lists(steps, max_size=9), where=st.sampled_from(PREDICATES))
@settings(max_examples=150)
def test_rows_are_counted_for_the_commits_that_wrote_them(
    history: list[tuple[str, object]], where: str
) -> None:
    made = History()
    for step, value in history:
        made.do(step, value)

    found = opened(made.store).blame(where)

    assert counts(found) == made.expected(where)
    assert len(found) == len(counts(found))
    assert all(one.is_exact for one in found)
    times = [one.timestamp_us for one in found]
    assert times == sorted(times, reverse=True)


# ---- fields of a result


def test_a_result_has_the_batch_and_the_message_of_its_commit(table: Table) -> None:
    table.append(rows(7), app_id="night", batch_id=4, writer="w", message="late", author="anna")
    head = table.head()

    (found,) = table.blame("k = 7")

    assert (found.version, found.snapshot_id) == (head.version, head.snapshot_id)
    assert (found.branch_id, found.timestamp_us) == ("main", head.timestamp_us)
    assert (found.operation, found.message, found.author) == (Operation.APPEND, "late", "anna")
    assert found.batch is not None
    assert (found.batch.key, found.batch.batch_id) == (("night", "w"), 4)
    assert found.batch.query_id is None
    assert found.row_count == 1


def test_a_commit_without_a_batch_id_has_no_batch(table: Table, store: MemoryStore) -> None:
    table.create_branch("fix")
    fix = opened(store, "fix")
    fix.append(rows(60))
    fix.append(rows(70), app_id="a", batch_id=1)  # version 7 there
    publish(table, fix)  # version 6 here, with that entry in its ledger
    table.append(rows(7))  # version 7 here

    assert [(one.version, one.batch) for one in table.blame("k = 7")] == [(7, None)]
    assert [one.batch is None for one in table.blame("k >= 60")] == [False, True]


def test_without_matching_rows_no_commit_is_returned(table: Table) -> None:
    assert table.blame("k = 99") == ()
    assert table.blame("NULL") == ()


def test_an_unknown_column_is_refused_by_name(table: Table) -> None:
    with pytest.raises(InvalidInputError) as caught:
        table.blame("kk = 1")

    assert caught.value.context["column"] == "kk"


def test_rows_older_than_a_column_are_counted_for_their_own_commits(table: Table) -> None:
    table.append(pa.table({"k": [6, 7], "new": [1, None]}), merge_schema=True)

    assert versions(table.blame("new IS NULL AND k > 4")) == {6: 1, 5: 1}
    assert versions(table.blame("new = 1")) == {6: 1}


# ---- rewrites


def test_rows_are_traced_through_two_compactions(table: Table) -> None:
    compact(table, 0, 1, 2)
    table.append(rows(1, 1))
    compact(table, operation=Operation.RECLUSTER, block_rows=3)

    assert versions(table.blame("k <= 3")) == {7: 2, 3: 1, 2: 1, 1: 1}


def test_equal_rows_of_several_inputs_are_counted_for_each_of_them(create: Create) -> None:
    table = create()
    for _ in range(3):
        table.append(rows(1, 1, 2))
    compact(table)

    assert versions(table.blame("k = 1")) == {1: 2, 2: 2, 3: 2}


def test_overwritten_rows_are_counted_for_the_overwrite(table: Table) -> None:
    table.overwrite(rows(1, 2))

    (found,) = table.blame("k = 1")

    assert (found.version, found.operation) == (6, Operation.OVERWRITE)


def test_an_update_is_counted_for_the_rows_that_it_rewrote_only(table: Table) -> None:
    table.update("k = 5", {"k": 3})

    assert versions(table.blame("k IN (3, 4, 5)")) == {6: 1, 4: 1, 3: 1}


def test_a_count_over_a_partly_deleted_rewrite_is_marked_as_inexact(table: Table) -> None:
    compact(table, 0, 1, 2, 3, block_rows=2)  # two blocks of versions 1 to 4
    table.delete("k = 3")

    (exact, vague) = table.blame("k > 0")

    assert (exact.version, exact.row_count, exact.is_exact) == (6, 3, False)
    assert (vague.version, vague.row_count, vague.is_exact) == (5, 1, True)


# ---- rewinds, publishes, reverts


def test_rows_are_traced_through_a_rewind_to_its_target(table: Table) -> None:
    table.overwrite(rows(3))
    rewind(table, 4)
    table.append(rows(3))

    assert versions(table.blame("k >= 3")) == {8: 1, 4: 1, 3: 1}


def test_published_rows_are_counted_for_the_commits_of_the_branch(
    table: Table, store: MemoryStore
) -> None:
    fork = table.create_branch("fix", 3)
    fix = opened(store, "fix")
    fix.append(rows(30), app_id="a", batch_id=8)
    publish(table, fix)
    table.delete_branch("fix")

    found = opened(store).blame("k > 1")

    assert counts(found) == {(fork.branch_id, 4): 1, ("main", 3): 1, ("main", 2): 1}
    assert found[0].batch is not None
    assert found[0].batch.batch_id == 8


def test_rows_that_a_revert_restored_are_counted_for_their_first_commits(table: Table) -> None:
    table.overwrite(rows(9))
    revert_head(table)

    assert versions(table.blame("k >= 4")) == {5: 1, 4: 1}


def test_rows_are_traced_through_the_revert_of_a_rewind(table: Table) -> None:
    rewind(table, 2)  # version 6
    revert_head(table)  # restores version 5, which is not an ancestor of version 2

    assert versions(table.blame("k >= 2")) == {5: 1, 4: 1, 3: 1, 2: 1}


def test_a_commit_that_is_reached_on_two_paths_is_returned_once(table: Table) -> None:
    before = table.blocks()
    table.overwrite(rows(9))
    undone = table.committer.head()
    rewind(table, 5)
    compact(table)
    # The rewind and this revert both restore the rows: each is there twice.
    commit_blocks(
        table, Operation.REVERT, [*table.blocks(), *before], data_change=True, target=undone
    )

    found = table.blame("k >= 4")

    assert [(one.version, one.row_count) for one in found] == [(5, 2), (4, 2)]


# ---- expired and lost objects


def test_rows_from_before_the_floor_are_counted_for_the_oldest_version(create: Create) -> None:
    table = create()
    for key in range(1, 6):
        table.append(rows(key), app_id="a", batch_id=key)
    raise_floor(table, 3)

    found = table.blame("k > 0")

    assert [(one.version, one.row_count, one.is_exact) for one in found] == [
        (5, 1, True),
        (4, 1, True),
        (3, 1, True),
        (3, 2, False),
    ]
    assert [one.batch is None for one in found] == [False, False, False, True]


def test_a_lost_slot_is_an_error_and_not_taken_for_expired(
    create: Create, store: MemoryStore
) -> None:
    table = create()
    for key in range(1, 7):
        table.append(rows(key))
    raise_floor(table, 3)
    table.create_branch("fix")
    fix = opened(store, "fix")
    store.delete(slot_key("main", 2))

    assert len(opened(store).blame("k > 0")) == 5  # below the floor
    store.delete(slot_key("main", 4))
    for branch in ("main", "fix"):
        with pytest.raises(CorruptObjectError, match="missing from the table's history") as raised:
            opened(store, branch).blame("k > 0")
        assert raised.value.context["key"] == slot_key("main", 4)
    assert fix.blame("k > 5")[0].version == 6


def test_rows_that_a_compaction_at_the_floor_rewrote_are_counted_for_it_inexactly(
    table: Table,
) -> None:
    compact(table)
    table.append(rows(3))
    raise_floor(table, 6)

    found = table.blame("k = 3")

    assert [(one.version, one.row_count, one.is_exact) for one in found] == [
        (7, 1, True),
        (6, 1, False),
    ]


@pytest.fixture
def rewritten(table: Table) -> str:
    """The key of the segment of version 5, which version 7, a compaction, has rewritten."""
    table.append(rows(6))
    (added,) = table.snapshot(5).added
    compact(table)
    return segment_key(added)


def test_a_lost_segment_is_an_error_and_not_taken_for_expired(
    table: Table, store: MemoryStore, rewritten: str
) -> None:
    raise_floor(table, 4)
    store.delete(rewritten)

    with pytest.raises(CorruptObjectError, match="a segment is missing"):
        opened(store).blame("k = 5")


def test_a_segment_of_a_version_that_expires_meanwhile_makes_the_count_inexact(
    store: MemoryStore, rewritten: str
) -> None:
    history = opened(store)

    def expire(snapshot: Snapshot) -> None:
        if snapshot.operation is Operation.COMPACT:
            raise_floor(opened(store), 7)
            store.delete(rewritten)

    assert [one.is_exact for one in history.blame("k = 5", progress=expire)] == [False]


def test_a_lost_input_of_a_compaction_is_an_error_if_it_has_to_be_read(
    create: Create, store: MemoryStore
) -> None:
    table = create()
    table.append(rows(1, 5))
    table.append(rows(2, 6))
    gone = table.blocks()[1]
    compact(table)
    store.delete(block_key(gone.id))

    with pytest.raises(CorruptObjectError, match="a block is missing"):
        table.blame("k >= 5")
    assert versions(table.blame("k > 0")) == {1: 2, 2: 2}  # by statistics alone


def test_rows_of_a_lost_branch_are_counted_for_the_publish_inexactly(
    table: Table, store: MemoryStore
) -> None:
    table.create_branch("fix")
    fix = opened(store, "fix")
    fix.append(rows(30))
    publish(table, fix)
    table.append(rows(31))
    store.delete(slot_key(fix.head().branch_id, 6))

    found = opened(store).blame("k >= 5")

    assert [(one.version, one.row_count, one.is_exact) for one in found] == [
        (7, 1, True),
        (6, 2, False),
    ]
    assert found[1].branch_id == "main"


def test_rows_of_a_lost_segment_are_counted_for_the_compaction_inexactly(
    table: Table, store: MemoryStore
) -> None:
    table.create_branch("fix")
    fix = opened(store, "fix")
    lost = fix.append(rows(30)).added[0]
    compact(fix)
    publish(table, fix)
    store.delete(segment_key(lost))

    found = opened(store).blame("k >= 5")

    assert counts(found) == {(fix.head().branch_id, 7): 2}
    assert not found[0].is_exact


def test_a_damaged_slot_is_an_error(table: Table, store: MemoryStore) -> None:
    store.replace(slot_key("main", 3), store.get(slot_key("main", 2)))

    with pytest.raises(CorruptObjectError):
        opened(store).blame("k = 1")


# ---- what it costs


def test_no_block_is_opened_if_statistics_decide(table: Table, store: MemoryStore) -> None:
    compact(table, 0, 1)
    table.append(rows(8, 9))
    counted = FaultyStore(store)

    found = opened(counted).blame("k >= 3")

    assert versions(found) == {7: 2, 5: 1, 4: 1, 3: 1}
    assert [key for _, key in counted.calls if key.startswith(BLOCKS_PREFIX)] == []


def test_blame_stops_at_the_oldest_writer_and_opens_at_most_one_segment_per_commit(
    create: Create, store: MemoryStore
) -> None:
    table = create()
    for key in range(40):
        table.append(rows(key))
    counted = FaultyStore(store)
    seen: list[int] = []

    found = opened(counted).blame("k = 29", progress=lambda snapshot: seen.append(snapshot.version))

    assert versions(found) == {30: 1}
    assert seen == list(range(40, 29, -1))
    segments = [key for _, key in counted.calls if key.startswith("_sg/")]
    assert len(segments) == len(set(segments)) <= len(table.segments()) + len(seen)
    assert ("get", slot_key("main", 29)) not in counted.calls


def test_a_segment_whose_cluster_key_range_cannot_match_is_not_opened(
    create: Create, store: MemoryStore
) -> None:
    table = create(cluster_by=["k"])
    for key in range(40):
        table.append(rows(key))
    counted = FaultyStore(store)

    assert versions(opened(counted).blame("k = 1")) == {2: 1}
    assert len([key for _, key in counted.calls if key.startswith("_sg/")]) <= 2


def test_inputs_of_a_rewrite_without_matching_rows_are_not_read(
    create: Create, store: MemoryStore
) -> None:
    table = create()
    table.append(rows(1, 50, 100))
    table.append(rows(1, 100))
    table.append(rows(2, 99))
    compact(table, 1, 2)
    counted = FaultyStore(store)

    assert versions(opened(counted).blame("k = 50")) == {1: 1}
    opens = [key for _, key in counted.calls if key.startswith(BLOCKS_PREFIX)]
    assert opens == [block_key(block.id) for block in table.blocks()]


def test_inputs_of_a_rewrite_are_read_only_if_statistics_do_not_decide(
    table: Table, store: MemoryStore
) -> None:
    compact(table)
    counted = FaultyStore(store)

    assert versions(opened(counted).blame("k >= 3")) == {5: 1, 4: 1, 3: 1}
    (block,) = table.blocks()
    opens = [key for _, key in counted.calls if key.startswith(BLOCKS_PREFIX)]
    assert opens == [block_key(block.id)]


def test_a_block_is_read_once_over_many_rewrites(create: Create, store: MemoryStore) -> None:
    table = create()
    for key in range(4):
        table.append(rows(key, 50, 100))
    compact(table)
    compact(table, block_rows=5)
    counted = FaultyStore(store)

    assert sum(one.row_count for one in opened(counted).blame("k = 50")) == 4
    opens = Counter(key for _, key in counted.calls if key.startswith(BLOCKS_PREFIX))
    assert set(opens.values()) == {1}
