"""Binding: columns are found as Spark finds them, literals become values of the column's domain."""

from __future__ import annotations

import pickle
from decimal import Decimal

import pyarrow as pa
import pytest

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.records import Value
from fuse_stream.predicate.bind import bind
from fuse_stream.predicate.bound import (
    BoundAnd,
    BoundColumn,
    BoundCompare,
    BoundConstant,
    BoundNot,
    BoundOneOf,
)
from fuse_stream.predicate.evaluate import filter_mask
from fuse_stream.predicate.parse import parse_where
from fuse_stream.predicate.tree import (
    FALSE,
    Column,
    In,
    Literal,
    Op,
)
from tests.kit.predicates import SCHEMA

NEVER = BoundOneOf(column=BoundColumn(path=("tiny",), type="byte"), values=())


def value_of(text: str, *, time_zone: str = "UTC") -> Value:
    bound = bind(parse_where(text), SCHEMA, time_zone=time_zone)
    assert isinstance(bound, BoundCompare)
    return bound.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("whole = '5'", 5),
        ("money = 1.5", Decimal("1.50")),
        ("single = 0.1", 0.1),
        ("double = '1e2'", 100.0),
        ("raw = 'é'", "é".encode()),
        ("name = X'61'", "a"),
        ("flag = 'yes'", True),
        ("day = '1970-01-03'", 2),
        ("at = '1970-01-01 00:00:01'", 1_000_000),
        ("at = DATE '1970-01-02'", 86_400_000_000),
        ("local = '1970-01-01 00:00:00.000001+05:00'", 1),
        ("big < 9223372036854775807.5D", 2**63 - 512),
        ("day > TIMESTAMP '1970-01-02 10:00:00'", 2),
    ],
)
def test_a_literal_is_converted_to_the_domain_of_its_column(text: str, value: Value) -> None:
    actual = value_of(text)

    assert actual == value
    assert type(actual) is type(value)


def test_a_time_without_a_zone_is_read_in_the_zone_of_the_session() -> None:
    in_new_york = value_of("at = TIMESTAMP '2020-07-01 00:00:00'", time_zone="America/New_York")

    assert in_new_york == value_of("at = TIMESTAMP '2020-07-01 00:00:00-04:00'")


def test_a_local_time_skipped_by_a_clock_change_is_shifted_by_the_gap() -> None:
    skipped = value_of("at = '2020-03-08 02:30:00'", time_zone="America/New_York")

    assert skipped == value_of("at = '2020-03-08 07:30:00Z'")


def test_a_local_time_that_occurs_twice_is_the_earlier_instant() -> None:
    twice = value_of("at = '2020-11-01 01:30:00'", time_zone="America/New_York")

    assert twice == value_of("at = '2020-11-01 05:30:00Z'")


@pytest.mark.parametrize("text", ["tiny < 1000", "tiny > -129", "tiny < 1e300", "1000 > tiny"])
def test_a_literal_above_the_columns_range_matches_all_but_nulls(text: str) -> None:
    assert bind(parse_where(text), SCHEMA) == BoundNot(operand=NEVER)


@pytest.mark.parametrize("text", ["tiny = 1000", "tiny > 127", "tiny = 1.5", "tiny < -128"])
def test_a_literal_that_the_column_cannot_hold_matches_nothing(text: str) -> None:
    assert bind(parse_where(text), SCHEMA) == NEVER


def test_a_double_literal_matches_every_long_that_rounds_to_it() -> None:
    bound = bind(parse_where("big = 9007199254740992D"), SCHEMA)

    assert isinstance(bound, BoundAnd)
    low, high = bound.operands
    assert isinstance(low, BoundCompare)
    assert isinstance(high, BoundCompare)
    assert (low.op, low.value) == (Op.GE, 2**53)
    assert (high.op, high.value) == (Op.LT, 2**53 + 2)


def test_all_values_of_a_list_are_compared_in_one_type() -> None:
    alone = bind(parse_where("big IN (9007199254740993)"), SCHEMA)
    beside_a_double = bind(parse_where("big IN (9007199254740993, 1.5D)"), SCHEMA)

    assert isinstance(alone, BoundOneOf)
    assert alone.values == (2**53 + 1,)
    assert not isinstance(beside_a_double, BoundOneOf)


def test_a_string_in_a_list_is_converted_before_the_numbers_are_widened() -> None:
    bound = bind(parse_where("big IN (9007199254740993.0, '5')"), SCHEMA)

    assert isinstance(bound, BoundOneOf)
    assert bound.values == (2**53 + 1, 5)


def test_an_empty_list_is_false() -> None:
    assert bind(In(column=Column(path=("tiny",)), literals=()), SCHEMA) == bind(FALSE, SCHEMA)


def test_a_comparison_with_null_is_null() -> None:
    assert bind(parse_where("tiny = NULL"), SCHEMA) == BoundConstant(value=None)


def test_names_are_matched_in_any_case_unless_the_session_is_case_sensitive() -> None:
    bound = bind(parse_where("PART.Whole = 1"), SCHEMA)

    assert isinstance(bound, BoundCompare)
    assert bound.column == BoundColumn(path=("part", "whole"), type="integer")
    with pytest.raises(InvalidInputError, match="no such column"):
        bind(parse_where("PART.Whole = 1"), SCHEMA, case_sensitive=True)


def test_an_ambiguous_name_is_refused() -> None:
    schema = pa.schema([("a", pa.int32()), ("A", pa.int32())])

    with pytest.raises(InvalidInputError, match=r"differ only in case.*fuse\.read.*DataFrame"):
        bind(parse_where("a = 1"), schema)

    bound = bind(parse_where("A = 1"), schema, case_sensitive=True)
    assert isinstance(bound, BoundCompare)
    assert bound.column.path == ("A",)


def test_an_unknown_column_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidInputError) as caught:
        bind(parse_where("moneyy = 1"), SCHEMA)

    assert caught.value.context["column"] == "moneyy"
    assert "money" in str(caught.value.context["nearest"])


@pytest.mark.parametrize(
    "text",
    [
        "whole = 'x'", "whole = '5.0'", "whole = '99999999999999999999'", "double = 'one'",
        "flag = 'maybe'", "day = '2020-02-30'", "at = '2020-01-01T'", "at = '10:00'",
        "at = '2020-01-01 00:00:00 Mars/Base'", "at = '2020-01-01 24:00:00'",
        "flag = 1", "whole = TRUE", "day = 1", "raw = 5", "at = 5",
        "name = 5", "name = TRUE", "name", "whole", "NOT name",
        "part = 1", "part IN (1)", "part.whole.deeper = 1", "whole LIKE '5'",
        r"name LIKE 'a\\b'", r"name LIKE 'a\\'", "name LIKE 'a' ESCAPE 'xy'", "name = X'ff'",
    ],
)  # fmt: skip
def test_comparisons_that_spark_refuses_or_bounds_cannot_decide_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        bind(parse_where(text), SCHEMA)


def test_local_times_at_a_clock_change_are_not_compared_with_an_instant() -> None:
    predicate = parse_where("local < TIMESTAMP '2020-03-08 03:30:00'")

    with pytest.raises(InvalidInputError, match="TIMESTAMP_NTZ"):
        bind(predicate, SCHEMA, time_zone="America/New_York")

    assert isinstance(bind(predicate, SCHEMA, time_zone="UTC"), BoundCompare)


@pytest.mark.parametrize("zone", ["Mars/Base", "../../etc/passwd", "+99:00", "", "\0"])
def test_an_unknown_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidInputError, match="time zone"):
        bind(parse_where("tiny = 1"), SCHEMA, time_zone=zone)


def test_trees_pickle() -> None:
    predicate = parse_where("a = 1.5 AND (b IN (1, NULL) OR NOT c LIKE 'x%') AND d IS NULL")

    assert pickle.loads(pickle.dumps(predicate)) == predicate
    assert hash(predicate) == hash(pickle.loads(pickle.dumps(predicate)))


def test_only_a_boolean_column_is_a_predicate_by_itself() -> None:
    with pytest.raises(InvalidInputError, match="TRUE, FALSE or NULL"):
        bind(Literal(value=5, type="integer"), SCHEMA)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("s LIKE '%a'", [b"\xffa", b"ba"]),
        ("s LIKE '_a'", [b"\xffa", b"ba"]),
        ("s NOT LIKE '%a'", [b"\xc3"]),
        ("s LIKE '\ufffd%a'", []),  # by bytes
        ("s LIKE '\ufffd_'", [b"\xffa"]),  # decoded
        ("s = '\ufffda'", []),
    ],
)
def test_text_that_is_not_utf8_is_matched(where: str, expected: list[bytes]) -> None:
    raw = pa.array([b"\xffa", b"ba", b"\xc3", None], pa.binary())
    table = pa.table({"s": pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())})

    mask = filter_mask(bind(parse_where(where), table.schema), table)

    assert raw.filter(mask.combine_chunks()).to_pylist() == expected
