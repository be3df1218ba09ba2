"""Which blocks are sorted together: the plan by itself, and where runs of it lead to."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from fuse_stream.format.properties import BlockTarget
from fuse_stream.format.records import Block
from fuse_stream.optimize.overlap import (
    depths_of,
    extent_of,
    mean,
    spans_of,
)
from fuse_stream.optimize.plan_recluster import (
    GROUP_TARGETS,
    LAST_LEVEL,
    depth_between,
    plan_recluster,
)
from fuse_stream.optimize.rewrite import Group
from tests.protocol.keyed import KEY, ROW_BYTES, Blocks, Row, block_of, in_order

NAN = float("nan")
TARGET = BlockTarget(rows=10, bytes=10 * ROW_BYTES)
DEPTH = 4

rows = st.lists(
    st.one_of(st.none(), st.just(NAN), st.integers(0, 40).map(float)), min_size=1, max_size=20
)


def plan(
    blocks: Sequence[Block], *, depth: int = DEPTH, limit: int | None = None
) -> tuple[Group, ...]:
    return plan_recluster(blocks, KEY, depth=depth, target=TARGET, limit=limit)


def average_depth(blocks: Sequence[Block]) -> float:
    return mean(depths_of(spans_of(extent_of(block, KEY) for block in blocks)))


def level_of(block: Block) -> int:
    return block.cluster_stats.level if block.cluster_stats else 0


def carry_out(blocks: Sequence[Block], groups: Sequence[Group], held: Blocks) -> list[Block]:
    gone = {block.id for group in groups for block in group.inputs}
    new = [block for group in groups for block in held.rewrite(group, TARGET)]
    return [block for block in blocks if block.id not in gone] + new


def settled(
    blocks: list[Block], held: Blocks, *, depth: int = DEPTH, limit: int | None = None
) -> list[Block]:
    """Return what the blocks have become when no run finds anything to do."""
    for _ in range(500):
        groups = plan(blocks, depth=depth, limit=limit)
        if not groups:
            return blocks
        blocks = carry_out(blocks, groups, held)
    raise AssertionError("runs do not come to an end")


@settings(max_examples=300)
@given(st.lists(rows, max_size=30), st.integers(1, 5), st.one_of(st.none(), st.integers(2, 9)))
def test_runs_end_where_depth_is_under_the_threshold_or_sorting_cannot_lower_it(
    tables: list[list[Row]], depth: int, limit: int | None
) -> None:
    held = Blocks()
    blocks = settled([held.make(some) for some in tables], held, depth=depth, limit=limit)

    before = sorted((row for some in tables for row in some), key=in_order)
    after = sorted((row for block in blocks for row in held.rows[block.id]), key=in_order)
    assert list(map(in_order, after)) == list(map(in_order, before))
    wide = [block for block in blocks if len(set(map(in_order, held.rows[block.id]))) > 1]
    by_level = {
        level_of(block): [each for each in blocks if level_of(each) == level_of(block)]
        for block in blocks
    }
    assert average_depth(wide) <= depth or all(
        depth_between(level, KEY) <= 1 for level in by_level.values()
    )


@given(st.lists(rows, max_size=30), st.integers(2, 40))
def test_a_run_is_bounded_and_takes_no_block_twice(tables: list[list[Row]], limit: int) -> None:
    groups = plan([block_of(some) for some in tables], limit=limit)

    inputs = [block.id for group in groups for block in group.inputs]
    assert len(inputs) == len(set(inputs)) <= limit
    assert all(len(group.inputs) > 1 for group in groups)
    assert all(
        len(group.inputs) == 2
        or sum(block.block_size for block in group.inputs) <= GROUP_TARGETS * TARGET.bytes
        for group in groups
    )


@given(st.lists(rows, min_size=2, max_size=30))
def test_a_group_comes_out_with_no_two_blocks_over_one_another(tables: list[list[Row]]) -> None:
    held = Blocks()
    for group in plan([held.make(some) for some in tables], depth=1):
        outputs = held.rewrite(group, TARGET)

        assert depth_between(outputs, KEY) <= 1 < depth_between(group.inputs, KEY)


def test_a_table_in_order_is_left_alone() -> None:
    assert plan([block_of([at, at + 1]) for at in range(0, 100, 2)], depth=1) == ()
    assert plan([block_of([at, at + 1]) for at in range(100)], depth=1) == ()
    assert plan([block_of([1, 9])]) == ()
    assert plan([]) == ()


def test_up_to_the_threshold_blocks_may_overlap() -> None:
    blocks = [block_of([0, 9]) for _ in range(5)]

    assert plan(blocks[:4]) == ()
    assert [group.inputs for group in plan(blocks)] == [tuple(blocks)]


def test_the_deepest_overlap_comes_first() -> None:
    shallow = [block_of([0, 9]) for _ in range(5)]
    deep = [block_of([20, 29]) for _ in range(7)]

    assert [set(map(_id, group.inputs)) for group in plan([*shallow, *deep])] == [
        set(map(_id, deep)),
        set(map(_id, shallow)),
    ]
    assert [set(map(_id, group.inputs)) for group in plan([*shallow, *deep], limit=7)] == [
        set(map(_id, deep))
    ]


def test_levels_are_sorted_apart_and_rise() -> None:
    low = [block_of([0, 9]) for _ in range(5)]
    high = [block_of([0, 9], level=3) for _ in range(6)]

    groups = plan([*high, *low])

    assert [(set(map(_id, group.inputs)), group.level) for group in groups] == [
        (set(map(_id, low)), 1),
        (set(map(_id, high)), 4),
    ]


def test_where_no_level_is_too_deep_by_itself_the_lowest_goes_first() -> None:
    low = [block_of([0, 9]) for _ in range(2)]
    high = [block_of([0, 9], level=1) for _ in range(3)]

    assert [(group.inputs, group.level) for group in plan([*high, *low])] == [(tuple(low), 1)]


def test_levels_that_do_not_overlap_in_themselves_are_not_joined() -> None:
    assert plan([block_of([0, 9], level=level) for level in range(9)]) == ()


def test_blocks_of_one_key_are_left_in_peace() -> None:
    assert plan([block_of([5, 5]) for _ in range(50)], depth=1) == ()
    assert plan([block_of([None]) for _ in range(50)], depth=1) == ()


def test_a_heap_of_one_key_does_not_make_the_rest_too_deep() -> None:
    heap = [block_of([5, 5]) for _ in range(50)]

    assert plan([*heap, *(block_of([0, 9]) for _ in range(DEPTH))]) == ()


def test_a_block_that_meets_a_pile_at_one_key_is_not_of_it() -> None:
    meeting = [block_of([0, 3]), block_of([9, 12])]
    pile = [block_of([3, 9]) for _ in range(5)]

    assert [group.inputs for group in plan([*meeting, *pile], depth=3)] == [tuple(pile)]


def test_blocks_that_were_not_written_for_the_key_go_first_and_the_oldest_of_them() -> None:
    size = 2 * TARGET.rows
    unsorted = [block_of([1] * size, key=(2,), level=7) for _ in range(3)]
    blocks = [unsorted[0], *(block_of([0, 9]) for _ in range(5)), *unsorted[1:]]

    groups = plan(blocks)

    assert [(group.inputs, group.level) for group in groups[:2]] == [
        (tuple(unsorted[:2]), 1),
        (tuple(unsorted[2:]), 1),
    ]
    assert len(groups) == 3
    assert [group.inputs for group in plan(blocks, limit=2)] == [tuple(unsorted[:2])]


def test_blocks_of_the_last_level_stay() -> None:
    assert plan([block_of([0, 9], level=LAST_LEVEL) for _ in range(50)], depth=1) == ()


def test_shuffled_blocks_come_under_the_threshold_with_few_rewrites_of_each() -> None:
    chance = random.Random(7)
    held = Blocks()
    blocks = [held.make(chance.random() for _ in range(TARGET.rows)) for _ in range(200)]
    before = average_depth(blocks)
    blocks = settled(blocks, held)

    assert average_depth(blocks) <= DEPTH < 190 < before
    assert max(held.rewritten(blocks)) <= 5  # blocks are sorted by fours: log4(200) is 3.8


def test_a_stream_rewrites_a_row_seldom() -> None:
    chance = random.Random(7)
    held = Blocks()
    blocks: list[Block] = []
    for _ in range(300):
        blocks.append(held.make(chance.random() for _ in range(TARGET.rows)))
        blocks = carry_out(blocks, plan(blocks), held)

    assert max(held.rewritten(blocks)) <= 7
    assert all(max(held.rewrites[block.id]) <= level_of(block) for block in blocks)
    assert average_depth(blocks) <= DEPTH * max(map(level_of, blocks))


def test_a_heap_of_one_key_does_not_make_each_run_sort_the_rest() -> None:
    chance = random.Random(7)
    held = Blocks()
    blocks = [held.make([0.5] * TARGET.rows) for _ in range(50)]
    for _ in range(100):
        blocks.append(held.make(chance.random() for _ in range(TARGET.rows)))
        blocks = carry_out(blocks, plan(blocks), held)

    assert max(held.rewritten(blocks)) <= 6


def _id(block: Block) -> str:
    return block.id
