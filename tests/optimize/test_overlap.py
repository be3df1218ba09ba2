"""How blocks overlap: the sweep against counting pair by pair, and what a key may hold."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.format.records import (
    Block,
    ClusterStats,
    ColumnStats,
    KeyRange,
)
from fuse_stream.optimize.overlap import (
    Extent,
    Span,
    depths_of,
    extent_of,
    is_sorted_by,
    mean,
    overlaps_of,
    spans_of,
)
from tests.protocol.keyed import KEY, Row, block_of

NAN = float("nan")

spans = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)).map(sorted))
keys = st.one_of(st.none(), st.just(NAN), st.floats(-5, 5).map(round).map(float))


@given(spans)
def test_depth_and_overlap_are_what_counting_pair_by_pair_says(ends: list[list[int]]) -> None:
    found: list[Span] = [(low, high) for low, high in ends]

    assert depths_of(found) == [
        max(sum(a <= place <= b for a, b in found) for place in range(low, high + 1))
        for low, high in found
    ]
    assert overlaps_of(found) == [
        sum(a <= high and low <= b for a, b in found) - 1 for low, high in found
    ]


def _holds(extent: Extent, row: Row) -> bool:
    key = extent_of(block_of([row]), KEY).low
    return extent.low <= key <= extent.high


@given(st.lists(keys, min_size=1), st.lists(keys, min_size=1))
def test_blocks_that_share_a_key_overlap(left: list[Row], right: list[Row]) -> None:
    both = [extent_of(block_of(rows), KEY) for rows in (left, right)]
    shared = {str(row) for row in left} & {str(row) for row in right}

    assert all(_holds(both[0], row) for row in left)
    if shared:
        assert overlaps_of(spans_of(both)) == [1, 1]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([1, 2], [3, 4]),
        ([1.0, 2.0], [NAN]),
        ([1.0, NAN], [None]),
        ([float("inf")], [NAN, None]),
        (["a", "b"], ["c", None]),
        ([Decimal("1.10")], [Decimal("1.2")]),
        ([b"\x00"], [b"\x00\x01"]),
        ([False], [True]),
        ([-(2**63)], [2**63 - 1]),
    ],
)
def test_values_come_before_nan_and_nan_before_null(left: list[Row], right: list[Row]) -> None:
    extents = [extent_of(block_of(rows), KEY) for rows in (left, right)]

    assert extents[0].high < extents[1].low
    assert depths_of(spans_of(extents)) == [1, 1]


def test_columns_of_a_key_count_in_their_order() -> None:
    first = _of_two((1, 9), (2, 1))
    second = _of_two((2, 2), (3, 0))
    third = _of_two((0, 0), (9, 9))
    extents = [extent_of(block, (1, 2)) for block in (first, second, third)]

    assert overlaps_of(spans_of(extents[:2])) == [0, 0]
    assert depths_of(spans_of(extents)) == [2, 2, 2]


def test_a_bound_that_is_not_known_is_before_or_after_everything() -> None:
    known, other = block_of(["a"]), block_of(["z", None])
    stats = dataclasses.replace(known.col_stats[1], min=None, max=None)
    unknown = dataclasses.replace(known, col_stats={1: stats})
    extents = [extent_of(block, KEY) for block in (known, other, unknown)]

    assert overlaps_of(spans_of(extents)) == [1, 1, 2]


def test_a_block_of_another_key_or_of_none_overlaps_all() -> None:
    blocks = [
        block_of([1]),
        block_of([5]),
        block_of([3], key=(2,)),
        dataclasses.replace(block_of([3]), cluster_stats=None),
    ]

    assert [is_sorted_by(block, KEY) for block in blocks] == [True, True, False, False]
    spans = spans_of(extent_of(block, KEY) for block in blocks)
    assert overlaps_of(spans) == [2, 2, 3, 3]
    assert mean(depths_of(spans)) == 3


def test_of_no_blocks_there_is_nothing_to_measure() -> None:
    assert spans_of([]) == []
    assert depths_of([]) == []
    assert mean([]) == 0


@given(st.lists(st.integers(1, 9)))
def test_the_mean_is_the_mean(counts: list[int]) -> None:
    assert mean(counts) == pytest.approx(fmean(counts) if counts else 0)


def _of_two(low: tuple[int, int], high: tuple[int, int]) -> Block:
    block = block_of([1, 2], key=(1, 2))
    stats = [
        ColumnStats(min=least, max=greatest, null_count=0, in_memory_size=16)
        for least, greatest in zip(low, high, strict=True)
    ]
    key_range = KeyRange(columns=(1, 2), min=low, max=high)
    return dataclasses.replace(
        block,
        col_stats=dict(enumerate(stats, 1)),
        cluster_stats=ClusterStats(range=key_range),
    )
