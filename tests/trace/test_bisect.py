"""Bisect finds the first snapshot with a matching row, with few tests and few block reads."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuse_stream.errors import InvalidInputError, NotFoundError, SnapshotExpiredError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.layout import BLOCKS_PREFIX
from fuse_stream.table.handle import Table, create_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.trace.bisect import BisectResult
from tests.recovery.by_hand import compact, publish, rewind
from tests.recovery.histories import VALUES, opened, raise_floor, rows

Create = Callable[..., Table]
SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.float64())])
PREDICATES = [
    "k = 1",
    "k > 2",
    "k IS NULL",
    "NOT k < 2",
    "x > 1 AND k <> 0",
    "x = CAST('NaN' AS DOUBLE)",
    "k = 9",
    "TRUE",
    "NULL",
]
batches = st.lists(VALUES, max_size=4)
steps = st.one_of(
    st.tuples(st.just("append"), batches),
    st.tuples(st.just("append"), batches),
    st.tuples(st.just("append"), batches),
    st.tuples(st.just("overwrite"), batches),
    st.tuples(st.just("compact"), st.integers(0, 63)),
)


def build(store: MemoryStore, history: list[tuple[str, object]]) -> Table:
    schema = first_schema(columns_of_arrow(SCHEMA))
    table = create_table(store, schema, clock=ManualClock(), probe_store=False)
    for step, value in history:
        if isinstance(value, list):
            columns = {"k": [row[0] for row in value], "x": [row[1] for row in value]}
            getattr(table, step)(pa.table(columns, schema=SCHEMA))
        elif isinstance(value, int) and (count := len(table.blocks())):
            compact(table, *(at for at in range(count) if value >> at & 1), block_rows=3)
    return table


def matching(table: Table, where: str) -> list[bool]:
    """Return for every version whether a row matches."""
    versions = range(table.head().version + 1)
    return [bool(len(table.to_arrow(version=version, where=where))) for version in versions]


def found_at(result: BisectResult) -> int | None:
    return result.snapshot.version if result.snapshot else None


def opened_blocks(store: FaultyStore) -> Counter[str]:
    return Counter(key for _, key in store.calls if key.startswith(BLOCKS_PREFIX))


def most_tests(count: int) -> int:
    return int(math.log2(count)) + 1


@pytest.mark.long
@given(history=st.lists(steps, max_size=12), where=st.sampled_from(PREDICATES))
@settings(max_examples=150)
def test_bisect_finds_the_first_snapshot_that_matches(
    history: list[tuple[str, object]], where: str
) -> None:
    store = MemoryStore()
    truth = matching(build(store, history), where)
    counted = FaultyStore(store)

    result = opened(counted).bisect(where)

    at = found_at(result)
    if truth == sorted(truth):  # matching rows never go
        assert at == (truth.index(True) if truth[-1] else None)
    assert at is not None or not truth[-1]
    assert at is None or (truth[at] and not any(truth[at - 1 : at]))
    assert [(step.version, step.matches) for step in result.tested] == [
        (step.version, truth[step.version]) for step in result.tested
    ]
    assert len(result.tested) <= most_tests(len(truth))
    assert set(opened_blocks(counted).values()) <= {1}
    assert result.blocks_read == opened_blocks(counted).total()


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 9, 31, 32, 33])
def test_bisect_tests_about_log2_of_the_versions(create: Create, count: int) -> None:
    table = create()
    for key in range(1, count):
        table.append(rows(key))

    results = [table.bisect(f"k = {key}") for key in range(1, count + 1)]

    assert [found_at(result) for result in results] == [*range(1, count), None]
    assert max(len(result.tested) for result in results) <= most_tests(count)


# ---- the range


def test_bisect_searches_the_given_range_of_versions(table: Table) -> None:
    table.overwrite(rows(9))

    assert found_at(table.bisect("k = 3", first=4)) == 4
    assert found_at(table.bisect("k = 3", first=6)) is None  # the head no longer has it
    assert found_at(table.bisect("k = 3", first=2, last=3)) == 3
    assert found_at(table.bisect("k = 3", last=2)) is None


def test_a_match_at_the_start_of_the_range_is_reported_as_possibly_older(table: Table) -> None:
    late, right = table.bisect("k = 2", first=4), table.bisect("k = 2")

    assert (found_at(late), late.may_be_older) == (4, True)
    assert (found_at(right), right.may_be_older) == (2, False)


def test_a_match_at_the_floor_is_reported_as_possibly_older(table: Table) -> None:
    raise_floor(table, 3)

    result = table.bisect("k = 1")

    assert (found_at(result), result.first, result.may_be_older) == (3, 3, True)
    assert not table.bisect("k = 4").may_be_older


def test_a_range_may_be_given_by_tags_and_branch_versions(table: Table, store: MemoryStore) -> None:
    table.create_tag("good", 2)
    table.create_branch("fix", 3)
    opened(store, "fix").append(rows(4))

    assert found_at(table.bisect("k >= 2", first="good")) == 2
    with pytest.raises(InvalidInputError, match="not in the history"):
        table.bisect("k = 4", last="fix@")


def test_a_search_of_a_branch_includes_the_versions_before_its_fork(
    table: Table, store: MemoryStore
) -> None:
    table.create_branch("fix", 3)
    fix = opened(store, "fix")
    fix.append(rows(40))

    assert found_at(fix.bisect("k = 2")) == 2
    assert found_at(fix.bisect("k = 40")) == 4
    assert found_at(fix.bisect("k = 5")) is None


def test_an_impossible_range_is_refused(table: Table) -> None:
    with pytest.raises(InvalidInputError, match="past the last"):
        table.bisect("k = 1", first=3, last=2)
    with pytest.raises(NotFoundError):
        table.bisect("k = 1", last=9)
    raise_floor(table, 3)
    with pytest.raises(SnapshotExpiredError) as caught:
        table.bisect("k = 99", first=2)
    assert caught.value.context["first"] == 3


# ---- columns that are added or change


def test_a_column_is_null_in_versions_before_it_was_added(table: Table) -> None:
    table.append(pa.table({"k": [6], "new": [1]}), merge_schema=True)
    table.append(pa.table({"k": [7], "new": [2]}))

    assert found_at(table.bisect("new = 2")) == 7
    assert found_at(table.bisect("new > 0")) == 6
    assert found_at(table.bisect("new IS NULL AND k = 3")) == 3
    assert found_at(table.bisect("new IS NULL")) == 1


def test_a_field_of_a_struct_is_null_in_versions_before_it_was_added(create: Create) -> None:
    table = create(pa.schema([("p", pa.struct([("a", pa.int64())]))]))
    table.append(pa.table({"p": [{"a": 1}]}))
    table.append(pa.table({"p": [{"a": 2, "b": 5}]}), merge_schema=True)

    assert found_at(table.bisect("p.b = 5")) == 2
    assert found_at(table.bisect("p.b IS NULL")) == 1
    assert found_at(table.bisect("p.a = 1")) == 1


def test_a_widened_column_is_one_column_and_its_blocks_are_read_once(
    create: Create, store: MemoryStore
) -> None:
    table = create(pa.schema([("k", pa.int32())]))
    for key in range(4):
        table.append(pa.table({"k": pa.array([key, 50, 100], pa.int32())}))
    table.append(rows(2**40), merge_schema=True)
    table.append(rows(60))
    counted = FaultyStore(store)

    result = opened(counted).bisect("k IN (60, 3000000000, 49)")

    assert found_at(result) == 6
    assert found_at(table.bisect("k > 3000000000")) == 5
    assert set(opened_blocks(counted).values()) <= {1}


def test_blocks_are_read_once_although_other_columns_changed(
    create: Create, store: MemoryStore
) -> None:
    table = create()
    for _ in range(4):
        table.append(rows(1, 50, 100))
    table.append(pa.table({"k": [1, 100], "new": [1, 1]}), merge_schema=True)
    table.append(pa.table({"k": [60], "new": [1]}))
    counted = FaultyStore(store)

    assert found_at(opened(counted).bisect("k IN (60, 49)")) == 6
    assert set(opened_blocks(counted).values()) == {1}


def test_a_column_that_had_another_type_in_the_range_is_refused_by_name(create: Create) -> None:
    table = create()
    for _ in range(3):
        table.append(pa.table({"k": [1], "x": [1]}), merge_schema=True)
    rewind(table, 0)
    table.append(pa.table({"k": [2], "x": ["a"]}), merge_schema=True)

    with pytest.raises(InvalidInputError, match="another type") as caught:
        table.bisect("x = 'a'", first=1)

    assert caught.value.context["version"] == 3
    assert found_at(table.bisect("k = 2")) == 5
    assert found_at(table.bisect("x = 'a'", first=4)) == 5


def test_two_columns_with_the_same_id_on_different_branches_are_not_confused(
    create: Create, store: MemoryStore
) -> None:
    table = create()
    table.create_branch("fix")
    fix = opened(store, "fix")
    fix.append(pa.table({"k": [2], "y": [8]}), merge_schema=True)
    table.append(pa.table({"k": [1], "x": [7]}), merge_schema=True)
    publish(table, fix)
    table.append(pa.table({"k": [3], "y": [7]}))

    x, y = (table.snapshot(version).schema.columns[1] for version in (1, 2))
    assert (x.name, y.name, x.id) == ("x", "y", y.id)
    assert found_at(table.bisect("y = 7")) == 3
    assert found_at(table.bisect("y IS NULL", first=2, last=2)) is None


def test_an_unknown_column_is_refused_by_name(table: Table) -> None:
    with pytest.raises(InvalidInputError) as caught:
        table.bisect("kk = 1")

    assert caught.value.context["column"] == "kk"


# ---- what it costs


def test_no_block_is_opened_if_statistics_decide(table: Table, store: MemoryStore) -> None:
    counted = FaultyStore(store)

    result = opened(counted).bisect("k >= 3")

    assert found_at(result) == 3
    assert result.blocks_read == opened_blocks(counted).total() == 0


def test_the_cheapest_block_is_read_first(create: Create, store: MemoryStore) -> None:
    table = create()
    table.append(rows(*range(0, 100_000, 3)))
    table.append(rows(0, 30, 60))
    counted = FaultyStore(store)

    result = opened(counted).bisect("k = 30", first=2)

    small = min(table.blocks(), key=lambda block: block.file_size)
    assert set(opened_blocks(counted)) == {f"{BLOCKS_PREFIX}{small.id}_v1.parquet"}
    assert result.blocks_read == 1


def test_blocks_read_for_one_test_are_not_read_for_the_next(
    create: Create, store: MemoryStore
) -> None:
    table = create()
    for _ in range(16):
        table.append(rows(1, 3))
    table.append(rows(1, 2, 3))
    counted = FaultyStore(store)

    result = opened(counted).bisect("k = 2")

    assert found_at(result) == 17
    assert [(step.version, step.blocks_read) for step in result.tested] == [
        (9, 9),
        (14, 5),
        (16, 2),
        (17, 1),
    ]
    assert result.blocks_read == opened_blocks(counted).total() == 17


def test_a_result_prints_its_versions_and_counts(table: Table) -> None:
    assert repr(table.bisect("k = 4")) == (
        "BisectResult(version 4 of 0..5, tested: 3 no, 5 yes, 4 yes, blocks_read=0)"
    )
    assert repr(table.bisect("k = 9")) == (
        "BisectResult(no version of 0..5, tested: 3 no, 5 no, blocks_read=0)"
    )
    assert "version 4 or before of 4..5" in repr(table.bisect("k = 2", first=4))
