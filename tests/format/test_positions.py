"""Sets of positions are sets, and every way to leave hidden rows out leaves the same rows."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fuse_stream.format.positions import (
    FEW_SHARE,
    MOST_SLICES,
    Positions,
    all_rows,
    common,
    each_without_hidden,
    minus,
    others,
    positions_of,
    to_numpy,
    union,
    without_hidden,
)

Named = dict[str, frozenset[int]]

few = st.frozensets(st.integers(0, 40), min_size=1)
named = st.dictionaries(st.sampled_from("abcd"), few)


def as_positions(rows: Named) -> dict[str, Positions]:
    return {name: Positions(sorted(each)) for name, each in rows.items()}


def as_sets(rows: dict[str, Positions]) -> Named:
    return {name: frozenset(each) for name, each in rows.items()}


def not_empty(rows: Named) -> Named:
    return {name: each for name, each in rows.items() if each}


# ---- sets of several blocks


@given(left=named, right=named)
def test_the_rows_of_two_sets_are_joined(left: Named, right: Named) -> None:
    found = union(as_positions(left), as_positions(right))
    expected = {
        name: left.get(name, frozenset()) | right.get(name, frozenset()) for name in left | right
    }

    assert as_sets(found) == expected


@given(left=named, right=named)
def test_common_rows_are_those_of_both_and_no_empty_set_stays(left: Named, right: Named) -> None:
    found = common(as_positions(left), as_positions(right))

    assert as_sets(found) == not_empty({n: left[n] & right[n] for n in left.keys() & right.keys()})


@given(left=named, right=named)
def test_what_is_left_is_not_in_the_other_set_and_no_empty_set_stays(
    left: Named, right: Named
) -> None:
    found = minus(as_positions(left), as_positions(right))

    assert as_sets(found) == not_empty(
        {name: rows - right.get(name, frozenset()) for name, rows in left.items()}
    )


@given(left=named, right=named)
def test_no_function_changes_what_it_is_given(left: Named, right: Named) -> None:
    first, second = as_positions(left), as_positions(right)
    for function in (union, common, minus):
        function(first, second)

    assert (as_sets(first), as_sets(second)) == (left, right)


# ---- sets of one block


@given(rows=st.frozensets(st.integers(0, 99)), count=st.sampled_from([100, 128, 65_536, 70_000]))
def test_others_are_all_rows_of_the_block_but_these(rows: frozenset[int], count: int) -> None:
    found = others(Positions(sorted(rows)), count)

    assert frozenset(found) == frozenset(range(count)) - rows
    assert others(found, count) == Positions(sorted(rows))


def test_others_of_none_are_all_rows() -> None:
    assert others(None, 5) == others(Positions(), 5) == all_rows(5) == Positions([0, 1, 2, 3, 4])
    assert others(all_rows(5), 5) == all_rows(0) == Positions()


@given(rows=st.lists(st.integers(0, 200_000), max_size=50))
def test_positions_come_back_from_numbers_in_any_order(rows: list[int]) -> None:
    found = positions_of(np.array(rows, np.int64))

    assert list(found) == sorted(set(rows))
    assert to_numpy(found).tolist() == sorted(set(rows))
    assert to_numpy(found).dtype == np.int64


def test_positions_travel_to_another_process() -> None:
    rows = Positions([1, 2, 70_000])

    assert pickle.loads(pickle.dumps(rows)) == rows


# ---- the rows of a block


def block(count: int) -> pa.Table:
    """Return rows whose columns are a number, a text that repeats, and a list."""
    numbers = range(count)
    texts = pa.array([None if at % 5 == 0 else f"t{at % 3}" for at in numbers], pa.string())
    return pa.table(
        {
            "k": pa.array(numbers, pa.int64()),
            "text": texts,
            "word": texts.dictionary_encode(),
            "items": pa.array([[at] * (at % 3) for at in numbers], pa.list_(pa.int64())),
        }
    )


@given(data=st.data(), count=st.integers(1, 300))
def test_hidden_rows_are_left_out_and_the_others_keep_their_order(
    data: st.DataObject, count: int
) -> None:
    rows = block(count)
    hidden = data.draw(st.frozensets(st.integers(0, count - 1)))
    left = [row for at, row in enumerate(rows.to_pylist()) if at not in hidden]
    chunked = pa.concat_tables([rows.slice(0, count // 2), rows.slice(count // 2)])

    for table in (rows, chunked):
        found = without_hidden(table, Positions(sorted(hidden)))
        assert found.to_pylist() == left
        assert found.schema == rows.schema
        found.validate(full=True)


@given(
    parts=st.lists(st.one_of(st.none(), st.frozensets(st.integers(0, 39)))),
    few=st.lists(st.frozensets(st.integers(0, 39), max_size=5), max_size=20),
)
def test_several_parts_of_a_block_are_those_that_are_read_one_by_one(
    parts: list[frozenset[int] | None], few: list[frozenset[int]]
) -> None:
    rows = block(40)
    hidden = [part if part is None else Positions(sorted(part)) for part in parts]
    hidden += [Positions(sorted(set(range(40)) - part)) for part in few]
    hidden += hidden[: len(parts)]

    found = list(each_without_hidden(rows, hidden))

    assert found == [without_hidden(rows, part) for part in hidden]


ROADS = {
    "slices": range(0, 2_000, 40),
    "slices at both ends": [0, 1, 1_998, 1_999],
    "filter": range(0, 2_000, 3),
    "take": [at for at in range(2_000) if at % 9],
    "one row is shown": range(1, 2_000),
    "no row is shown": range(2_000),
}


@pytest.mark.parametrize("road", ROADS)
def test_every_road_leaves_the_same_rows(road: str) -> None:
    rows, hidden = block(2_000), Positions(ROADS[road])
    found = without_hidden(rows, hidden)

    assert found["k"].to_pylist() == [at for at in range(2_000) if at not in hidden]
    assert found.schema == rows.schema


def test_each_road_is_taken() -> None:
    taken = set()
    for numbers in ROADS.values():
        shown = 2_000 - len(numbers)
        is_few = shown * FEW_SHARE <= 2_000
        taken.add("take" if is_few else "filter" if len(numbers) > MOST_SLICES else "slices")

    assert taken == {"take", "filter", "slices"}


@example(hidden=None)
@given(hidden=st.just(Positions()))
def test_nothing_hidden_returns_the_rows_themselves(hidden: Positions | None) -> None:
    rows = block(3)

    assert without_hidden(rows, hidden) is rows
