"""Table properties: which there are, what they may be, and what is fixed at create."""

from __future__ import annotations

import pytest

from fuse_stream.errors import CorruptObjectError, InvalidInputError
from fuse_stream.format.properties import (
    CLUSTER_DEPTH,
    block_target,
    check_properties,
    count_property,
    duration_property_us,
    duration_us,
    grace_us,
)


def test_names_outside_of_fuse_are_free() -> None:
    assert check_properties({"owner": "me", "": "x", "n": 5}, creating=False) == {  # type: ignore[dict-item]
        "owner": "me",
        "": "x",
        "n": "5",
    }


def test_an_unknown_name_below_fuse_names_the_nearest() -> None:
    with pytest.raises(InvalidInputError) as caught:
        check_properties({"fuse.block.row": "5"}, creating=True)

    assert caught.value.context["nearest"] == "fuse.block.rows"


@pytest.mark.parametrize(
    "value", ["0", "-1", "x", "1.5", "", "\u0661", "1_000", "9" * 40, "9" * 5000]
)
def test_a_count_is_a_whole_number_from_1(value: str) -> None:
    with pytest.raises(InvalidInputError):
        check_properties({"fuse.block.rows": value}, creating=True)
    with pytest.raises(CorruptObjectError):
        block_target({"fuse.block.rows": value})


def test_a_block_is_perfect_from_four_fifths_of_its_target() -> None:
    target = block_target({"fuse.block.rows": "10", "fuse.block.bytes": "1000"})

    assert (target.rows, target.bytes) == (10, 1000)
    assert (target.perfect_rows, target.perfect_bytes) == (8, 800)
    assert block_target({}).rows == 1_000_000


@pytest.mark.parametrize(
    ("text", "us"),
    [("90s", 90_000_000), ("30 m", 1_800_000_000), ("1H", 3_600_000_000), ("7d", 604_800_000_000)],
)
def test_durations(text: str, us: int) -> None:
    assert duration_us(text) == us
    assert grace_us({"fuse.grace": text}) == us


@pytest.mark.parametrize(
    "text", ["", "5", "d", "-1d", "1.5h", "1w", "9" * 9 + "d", "9" * 5000 + "d"]
)
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        duration_us(text)


def test_the_grace_is_fixed_at_create() -> None:
    assert check_properties({"fuse.grace": "2h"}, creating=True) == {"fuse.grace": "2h"}
    with pytest.raises(InvalidInputError, match="fixed"):
        check_properties({"fuse.grace": "2h"}, creating=False)


@pytest.mark.parametrize(
    "properties",
    [
        None,
        ["a"],
        {"a": "\ud800"},
        {"\udfff": "a"},
        {1: "a"},
        {None: "a"},
        {b"a": "a"},
        {"a": None},
        {"a": b"a"},
        {"a": 0.5},
        {"a": ["b"]},
    ],
    ids=repr,
)
def test_what_is_no_mapping_of_texts_is_refused(properties: object) -> None:
    with pytest.raises(InvalidInputError):
        check_properties(properties, creating=False)  # type: ignore[arg-type]


def test_an_invalid_duration_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        check_properties({"fuse.vacuum.age": "soon"}, creating=False)
    with pytest.raises(CorruptObjectError):
        duration_property_us({"fuse.vacuum.age": "soon"}, "fuse.vacuum.age")


def test_a_depth_that_is_no_number_is_refused_and_never_believed() -> None:
    with pytest.raises(InvalidInputError):
        check_properties({"fuse.cluster.depth": "0"}, creating=False)
    with pytest.raises(CorruptObjectError):
        count_property({"fuse.cluster.depth": "deep"}, CLUSTER_DEPTH)

    assert count_property({}, CLUSTER_DEPTH) == 4
    assert count_property({"fuse.cluster.depth": "12"}, CLUSTER_DEPTH) == 12
