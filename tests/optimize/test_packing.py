"""Which neighbours are packed: in order, to one to two targets, and then no more."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.format.properties import BlockTarget
from fuse_stream.format.records import Block
from fuse_stream.optimize.packing import plan_packing

TARGET = BlockTarget(rows=100, bytes=1000)


def block(number: int, rows: int, size: int) -> Block:
    return Block(
        id=f"{number:032x}",
        row_count=rows,
        block_size=size,
        file_size=size,
        sha256="",
        schema_id=0,
        col_stats={},
        col_metas={},
        compression="zstd",
    )


def of_rows(*counts: int) -> list[Block]:
    return [block(number, rows, rows) for number, rows in enumerate(counts)]


BLOCKS = st.lists(
    st.tuples(st.integers(1, 130), st.integers(1, 1300)) | st.tuples(st.integers(1, 9), st.just(9)),
    max_size=40,
).map(lambda sizes: [block(number, *size) for number, size in enumerate(sizes)])
LIMITS = st.none() | st.integers(2, 20)


def rows(groups: list[tuple[Block, ...]]) -> list[list[int]]:
    return [[item.row_count for item in group] for group in groups]


def packed(blocks: Sequence[Block], groups: Sequence[tuple[Block, ...]]) -> list[Block]:
    """Return the blocks once each group is one."""
    first = {group[0].id: group for group in groups}
    gone = {item.id for group in groups for item in group}
    found = []
    for item in blocks:
        if group := first.get(item.id):
            size = sum(part.block_size for part in group)
            count = sum(part.row_count for part in group)
            found.append(dataclasses.replace(item, row_count=count, block_size=size))
        elif item.id not in gone:
            found.append(item)
    return found


@given(blocks=BLOCKS, limit=LIMITS, tiered=st.booleans())
def test_a_group_is_of_neighbours_in_order(
    blocks: list[Block], limit: int | None, *, tiered: bool
) -> None:
    at = {item.id: place for place, item in enumerate(blocks)}
    groups = plan_packing(blocks, TARGET, limit=limit, tiered=tiered)
    places = [[at[item.id] for item in group] for group in groups]
    flat = [place for group in places for place in group]

    assert all(group == list(range(group[0], group[-1] + 1)) for group in places)
    assert flat == sorted(set(flat))
    assert all(len(group) >= 2 for group in places)


@given(blocks=BLOCKS, limit=LIMITS, tiered=st.booleans())
def test_perfect_blocks_are_left_alone_and_no_group_reaches_two_targets(
    blocks: list[Block], limit: int | None, *, tiered: bool
) -> None:
    for group in plan_packing(blocks, TARGET, limit=limit, tiered=tiered):
        assert not any(TARGET.is_perfect(item) for item in group)
        assert sum(item.row_count for item in group) < 2 * TARGET.rows
        assert sum(item.block_size for item in group) < 2 * TARGET.bytes


@given(blocks=BLOCKS, limit=LIMITS, tiered=st.booleans())
def test_no_run_reads_more_than_its_limit(
    blocks: list[Block], limit: int | None, *, tiered: bool
) -> None:
    groups = plan_packing(blocks, TARGET, limit=limit, tiered=tiered)

    assert sum(map(len, groups)) <= (len(blocks) if limit is None else limit)


@given(BLOCKS)
def test_once_packed_there_is_nothing_to_pack(blocks: list[Block]) -> None:
    after = packed(blocks, plan_packing(blocks, TARGET))

    assert plan_packing(after, TARGET) == []
    assert all(
        TARGET.is_perfect(one) or TARGET.is_perfect(other)
        for one, other in itertools.pairwise(after)
    )


@given(BLOCKS, st.integers(2, 5))
def test_limited_runs_come_to_an_end(blocks: list[Block], limit: int) -> None:
    for _ in range(len(blocks) + 1):
        groups = plan_packing(blocks, TARGET, limit=limit)
        blocks = packed(blocks, groups)

    assert plan_packing(blocks, TARGET, limit=limit) == []


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((), []),
        ((10,), []),
        ((10, 80, 10), []),
        ((10, 10), [[10, 10]]),
        ((79, 79), [[79, 79]]),
        ((50, 50, 50, 50), [[50, 50], [50, 50]]),
        ((50, 50, 50), [[50, 50, 50]]),
        ((79, 79, 79), [[79, 79]]),
        ((79, 79, 21, 22), [[79, 79], [21, 22]]),
        ((10, 10, 80, 10, 10), [[10, 10], [10, 10]]),
    ],
)
def test_neighbours_are_packed_until_they_reach_the_target(
    counts: tuple[int, ...], expected: list[list[int]]
) -> None:
    assert rows(plan_packing(of_rows(*counts), TARGET)) == expected


def test_bytes_count_as_well_as_rows() -> None:
    blocks = [block(number, 1, 500) for number in range(4)]

    assert [len(group) for group in plan_packing(blocks, TARGET)] == [2, 2]


def test_a_large_start_is_left_alone_until_as_much_stands_behind_it() -> None:
    assert rows(plan_packing(of_rows(50, 1, 1, 1), TARGET, tiered=True)) == [[1, 1, 1]]
    assert rows(plan_packing(of_rows(50, 3, 1), TARGET, tiered=True)) == []
    assert rows(plan_packing(of_rows(6, 3, 3), TARGET, tiered=True)) == [[6, 3, 3]]


def test_frequent_runs_rewrite_a_row_a_few_times_only() -> None:
    target = BlockTarget(rows=10_000, bytes=1 << 40)
    blocks: list[Block] = []
    rewritten = 0
    for number in range(7_000):
        blocks.append(block(number, 1, 1))
        if number % 25 == 24:
            groups = plan_packing(blocks, target, tiered=True)
            rewritten += sum(item.row_count for group in groups for item in group)
            blocks = packed(blocks, groups)

    assert rewritten / 7_000 < 10
    assert len(blocks) < 15
