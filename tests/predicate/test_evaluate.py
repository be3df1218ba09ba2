"""A mask keeps the rows that Spark's WHERE keeps (`tests/spark` compares both)."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from fuse_stream.errors import InvalidInputError
from fuse_stream.predicate.bind import bind
from fuse_stream.predicate.evaluate import filter_mask
from fuse_stream.predicate.parse import parse_where

NAN, INF = float("nan"), float("inf")


def kept(values: list[Any], arrow: pa.DataType, text: str) -> list[int]:
    """Return the indices of the rows that a predicate on column `c` keeps."""
    batch = pa.RecordBatch.from_arrays([pa.array(values, arrow)], names=["c"])
    mask = filter_mask(bind(parse_where(text), batch.schema), batch)

    assert mask.null_count == 0
    assert mask.type == pa.bool_()
    return [place for place, keep in enumerate(mask.to_pylist()) if keep]


@pytest.mark.parametrize("text", ["c = 1", "NOT c = 1", "c <> 1", "c IN (1)", "c NOT IN (2)"])
def test_a_null_never_matches(text: str) -> None:
    assert kept([None, None], pa.int32(), text) == []


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("c IN (1, NULL)", [0]),
        ("c NOT IN (1, NULL)", []),
        ("c NOT IN (1)", [1]),
        ("c = 1 OR NULL", [0]),
        ("c = 1 AND NULL", []),
        ("NOT (c = 1 AND NULL)", [1]),
        ("NULL", []),
        ("NOT NULL", []),
        ("c <=> NULL", [2]),
        ("NOT c <=> 1", [1, 2]),
        ("c IS NULL OR c = 2", [1, 2]),
        ("c < 99999999999", [0, 1]),
        ("NOT c < 99999999999", []),
        ("TRUE", [0, 1, 2]),
    ],
)
def test_logic_is_three_valued(text: str, places: list[int]) -> None:
    assert kept([1, 2, None], pa.int32(), text) == places


@pytest.mark.parametrize("arrow", [pa.float32(), pa.float64()])
@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("c = CAST('NaN' AS DOUBLE)", [0]),
        ("c > CAST('Infinity' AS DOUBLE)", [0]),
        ("c > 1", [0, 1]),
        ("c >= CAST('NaN' AS DOUBLE)", [0]),
        ("c < CAST('NaN' AS DOUBLE)", [1, 2, 3, 4]),
        ("c <= CAST('NaN' AS DOUBLE)", [0, 1, 2, 3, 4]),
        ("c > CAST('NaN' AS DOUBLE)", []),
        ("c = 0", [2, 3]),
        ("c = -0.0D", [2, 3]),
        ("c IN (-0.0D, CAST('NaN' AS DOUBLE))", [0, 2, 3]),
        ("c < 0", [4]),
        ("NOT c < 0", [0, 1, 2, 3]),
    ],
)
def test_nan_is_the_greatest_value_and_both_zeros_are_equal(
    arrow: pa.DataType, text: str, places: list[int]
) -> None:
    assert kept([NAN, INF, 0.0, -0.0, -1.0, None], arrow, text) == places


def test_a_decimal_beyond_every_long_is_compared_with_nulls_too() -> None:
    # Spark 4.3 decides this comparison while it plans, and so for null too.
    assert kept([1, None], pa.int64(), "c < 9223372036854775808") == [0, 1]
    assert kept([1, None], pa.int64(), "NOT c >= 9223372036854775808") == [0, 1]
    assert kept([1, None], pa.int64(), "c <> 9223372036854775808") == [0]
    assert kept([1, None], pa.int64(), "c > -9223372036854775809") == [0, 1]


def test_a_float_is_compared_as_a_double() -> None:
    assert kept([0.1], pa.float32(), "c = 0.1") == []
    assert kept([0.1], pa.float32(), "c = 0.1F") == [0]


def test_a_long_is_compared_with_a_double_as_a_double() -> None:
    values = [2**53, 2**53 + 1, 2**53 + 2]

    assert kept(values, pa.int64(), "c = 9007199254740992D") == [0, 1]
    assert kept(values, pa.int64(), "c = 9007199254740992") == [0]


def test_decimals_of_different_scales_are_compared_by_value() -> None:
    values = [Decimal("1.50"), Decimal("1.51"), Decimal("-1.50")]

    assert kept(values, pa.decimal128(10, 2), "c = 1.5") == [0]
    assert kept(values, pa.decimal128(10, 2), "c > 1.505") == [1]
    assert kept(values, pa.decimal128(10, 2), "c = 1.505") == []


def test_digits_beyond_the_largest_common_decimal_are_rounded() -> None:
    nines = Decimal("0." + "9" * 38)

    assert kept([nines, nines.copy_negate(), Decimal("0.9")], pa.decimal128(38, 38), "c = 1") == [0]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("c LIKE 'a%'", [0, 1, 2, 3]),
        ("c LIKE 'a_b'", [0, 1, 2]),
        (r"c LIKE 'a\%b'", [0]),
        ("c LIKE 'a!_b' ESCAPE '!'", [1]),
        ("c LIKE '%b'", [0, 1, 2]),
        ("c LIKE '_'", [4]),
        ("c LIKE 'a.b'", []),
        ("c LIKE '%a.b'", []),
        ("c NOT LIKE 'a%'", [4, 5]),
        ("c LIKE '%'", [0, 1, 2, 3, 4, 5]),
        ("c LIKE NULL", []),
        (r"c LIKE '(\\d+)*[^x]$' ESCAPE '!'", [5]),
    ],
)
def test_like_matches_the_whole_text_including_line_breaks(text: str, places: list[int]) -> None:
    values = ["a%b", "a_b", "a\nb", "abb\n", "😀", r"(\d+)*[^x]$", None]

    assert kept(values, pa.string(), text) == places


def test_text_and_bytes_are_in_the_order_of_unsigned_bytes() -> None:
    assert kept(["\uffff", "😀", "z"], pa.string(), r"c > '\uffff'") == [1]
    assert kept([b"\x7f", b"\x80", b"", b"\xff"], pa.binary(), "c > X'7f'") == [1, 3]


def test_times_are_compared_as_instants_or_as_local_times() -> None:
    noon = dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)

    assert kept([noon], pa.timestamp("us", tz="UTC"), "c = '2020-01-01 13:00:00+01:00'") == [0]
    assert kept([noon.replace(tzinfo=None)], pa.timestamp("us"), "c < '2020-01-01 12:00:01'") == [0]
    assert kept([noon.date()], pa.date32(), "c = '2020-01-01'") == [0]


def test_a_field_of_a_null_struct_is_null() -> None:
    arrow = pa.struct([("x", pa.int32())])

    assert kept([{"x": 1}, {"x": None}, None], arrow, "c.x IS NULL") == [1, 2]
    assert kept([{"x": 1}, {"x": None}, None], arrow, "c IS NULL") == [2]


@pytest.mark.parametrize("arrow", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_dictionary_and_large_types_are_evaluated_as_the_plain_type(arrow: pa.DataType) -> None:
    assert kept(["a", "b", None], arrow, "c = 'a' OR c LIKE '%a'") == [0]


def test_a_chunked_table_is_masked_as_a_whole() -> None:
    table = pa.concat_tables([pa.table({"c": [1, 2]}), pa.table({"c": [3]})])

    mask = filter_mask(bind(parse_where("c >= 2 OR NULL"), table.schema), table)

    assert table.filter(mask).column("c").to_pylist() == [2, 3]


def test_a_pattern_that_is_too_large_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="too long"):
        kept(["a"], pa.string(), f"c LIKE '{'_' * 5000}'")
    assert kept(["a"], pa.string(), f"c LIKE '{'_%' * 2000}'") == []
