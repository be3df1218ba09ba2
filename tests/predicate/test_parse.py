"""SQL text becomes the tree that Spark would make of it, or a typed error that says why not."""

from __future__ import annotations

import contextlib
import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.errors import InvalidInputError
from fuse_stream.predicate.parse import MAX_TEXT_LENGTH, parse_where
from fuse_stream.predicate.tree import (
    FALSE,
    NULL,
    TRUE,
    And,
    Column,
    Compare,
    In,
    IsNull,
    Like,
    Literal,
    LiteralValue,
    Not,
    NullSafeEqual,
    Op,
    Or,
    Predicate,
)

A, B = Column(path=("a",)), Column(path=("b",))
ONE = Literal(value=1, type="integer")
TWO = Literal(value=2, type="integer")


def is_(op: Op, literal: Literal = ONE, column: Column = A) -> Compare:
    return Compare(column=column, op=op, literal=literal)


@pytest.mark.parametrize(
    ("text", "predicate"),
    [
        ("a = 1", is_(Op.EQ)),
        ("a == 1", is_(Op.EQ)),
        ("1 < a", is_(Op.GT)),
        ("a <= 1 -- a comment", is_(Op.LE)),
        ("a <> 1", Not(operand=is_(Op.EQ))),
        ("a != 1", Not(operand=is_(Op.EQ))),
        ("a <=> 1", NullSafeEqual(column=A, literal=ONE)),
        ("NULL <=> a", NullSafeEqual(column=A, literal=NULL)),
        ("a IS DISTINCT FROM 1", Not(operand=NullSafeEqual(column=A, literal=ONE))),
        ("a IS NOT DISTINCT FROM 1", NullSafeEqual(column=A, literal=ONE)),
        ("a IS NULL", IsNull(column=A)),
        ("a IS NOT NULL", Not(operand=IsNull(column=A))),
        ("a IS TRUE", NullSafeEqual(column=A, literal=TRUE)),
        ("a IN (1, 2, NULL)", In(column=A, literals=(ONE, TWO, NULL))),
        ("a NOT IN (1)", Not(operand=In(column=A, literals=(ONE,)))),
        ("a BETWEEN 1 AND 2", And(operands=(is_(Op.GE), is_(Op.LE, TWO)))),
        ("a LIKE 'x%'", Like(column=A, pattern="x%")),
        ("a NOT LIKE 'x!%' ESCAPE '!'", Not(operand=Like(column=A, pattern="x!%", escape="!"))),
        ("a", A),
        ("!a", Not(operand=A)),
        ("NOT a = 1 OR b AND a", Or(operands=(Not(operand=is_(Op.EQ)), And(operands=(B, A))))),
        ("(((a))) AND b AND a", And(operands=(A, B, A))),
        ("`odd name`.x.`y``z` = 1", is_(Op.EQ, column=Column(path=("odd name", "x", "y`z")))),
        ("p.q.r.s.t.u = 1", is_(Op.EQ, column=Column(path=("p", "q", "r", "s", "t", "u")))),
        ("TRUE", TRUE),
        ("NULL", NULL),
        ("1 = 1", TRUE),
        ("1 = 2", FALSE),
    ],
)
def test_sql_text_is_parsed_to_its_tree(text: str, predicate: Predicate) -> None:
    assert parse_where(text) == predicate


@pytest.mark.parametrize(
    ("text", "value", "type_name"),
    [
        ("5", 5, "integer"),
        ("-2147483649", -2147483649, "long"),
        ("9223372036854775808", Decimal(2**63), "decimal(19,0)"),
        ("-9223372036854775808L", -(2**63), "long"),
        ("3S", 3, "short"),
        ("-128Y", -128, "byte"),
        ("1.50", Decimal("1.50"), "decimal(3,2)"),
        (".001", Decimal("0.001"), "decimal(3,3)"),
        ("-(-1.5)", Decimal("1.5"), "decimal(2,1)"),
        ("1e3", 1000.0, "double"),
        ("1.5D", 1.5, "double"),
        ("0.1F", 0.10000000149011612, "float"),
        ("1.5e2BD", Decimal(150), "decimal(3,0)"),
        (r"'a\%b\n\'\u0041'", "a\\%b\n'A", "string"),
        (r"r'a\n'", "a\\n", "string"),
        ('"it"', "it", "string"),
        ("'it''s' ' on'", "it's on", "string"),
        ("X'5ff'", b"\x05\xff", "binary"),
        ("DATE '1970-01-02'", 1, "date"),
        ("TIMESTAMP '2020-01-01'", "2020-01-01", "timestamp"),
        ("TIMESTAMP_NTZ '1970-01-01 00:00:01'", 1_000_000, "timestamp_ntz"),
        ("CAST('5' AS TINYINT)", 5, "byte"),
        ("CAST(1.55 AS DECIMAL(3, 1))", Decimal("1.6"), "decimal(3,1)"),
        ("double('-Infinity')", float("-inf"), "double"),
    ],
)
def test_a_literal_has_the_type_it_has_in_spark(
    text: str, value: LiteralValue, type_name: str
) -> None:
    parsed = parse_where(f"a = {text}")

    assert isinstance(parsed, Compare)
    assert parsed.literal == Literal(value=value, type=type_name)
    assert type(parsed.literal.value) is type(value)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a + 1 = 2", "a + 1"),
        ("abs(a) = 1", "ABS(a)"),
        ("a IN (SELECT 1)", "SELECT 1"),
        ("EXISTS(SELECT 1)", "EXISTS"),
        ("a = b", "a = b"),
        ("a ILIKE 'x'", "ILIKE"),
        ("a RLIKE 'x'", "RLIKE"),
        ("a LIKE ANY ('x', 'y')", "ANY"),
        ("a[0] = 1", "a[0]"),
        ("CAST(a AS INT) = 1", "CAST(a AS INT)"),
        ("TRY_CAST('5' AS INT) = a", "TRY_CAST"),
        ("a = current_date", "CURRENT_DATE"),
        ("a = ?", "?"),
        ("a = 1 b", "AS b"),
        ("(a = 1) IS NULL", "IS NULL"),
        ("a = 1 = TRUE", "= TRUE"),
        ("CASE WHEN a THEN b END", "CASE"),
        ("SELECT 1", "SELECT"),
        ("DROP TABLE a", "DROP"),
        ("a = 0x10", "0x10"),
        ("a = 1 UNION SELECT 2", "UNION"),
        ("a || 'x' = 'y'", "||"),
        ("* = 1", "*"),
        ("5", "5"),
    ],
)
def test_an_unsupported_construct_is_refused_by_name(text: str, part: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_where(text)

    assert part in str(caught.value.context["part"])
    assert "IS [NOT] NULL" in str(caught.value.context["supported"])


@pytest.mark.parametrize(
    ("text", "line", "column"), [("a = 1 AND", 1, 9), ("a =\n b c d", 2, 6), ("(a = 1", 1, 6)]
)
def test_a_syntax_error_names_the_position(text: str, line: int, column: int) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_where(text)

    assert (caught.value.context["line"], caught.value.context["column"]) == (line, column)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason", "near"),
    [
        ("a = 1 AND AND b = 2", "is missing", "a = 1 AND «AND» b = 2"),
        ("a = ", "is missing", "a «=» "),
        ("(a = 1", ") is missing", "(a = «1»"),
        ("a 1", "not expected", "a «1»"),
        ("a = cast('x' as wibble)", "not expected", "a = cast('x' as «wibble»)"),
        (f"{'x' * 99} = 1 y {'z' * 99}", "not expected", f"…{'x' * 23} = 1 y «{'z' * 50}»"),
        (f"a ! {'z' * 99}", "not expected", f"a «!» {'z' * 29}…"),
        ("a = 'x", "quote is not closed", "a = «'»x"),
        ("`a", "quote is not closed", "«`»a"),
        ("b = 2 AND\n  a = X'zz'", "hexadecimal", "b = 2 AND\n  a = «X»'zz'"),
    ],
)
def test_a_syntax_error_says_what_is_wrong_where_and_what_is_allowed(
    text: str, reason: str, near: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_where(text)

    assert reason in str(caught.value.context["reason"])
    assert caught.value.context["near"] == near
    assert "IS [NOT] NULL" in str(caught.value.context["supported"])


@pytest.mark.parametrize(
    "text",
    [
        *("a = ", "a = 1 AND", "AND", "a BETWEEN 1", "a..b", "if(", "INSERT", "from", "CASE"),
        *("a = 1::", "a = cast(", "extract(", "a 1", "a = 1 /* x", "a = 'x", "a = X'zz'"),
    ],
)
def test_an_error_has_no_words_of_the_parser(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_where(text)

    leaked = "sqlglot|class|Token|keyword|Expect|string index|Invalid expression|[Mm]issing .* from"
    assert re.search(leaked, str(caught.value)) is None


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [("a = 'x", 1, 5), ("`a", 1, 1), ("a = X'zz'", 1, 5), ("b = 2 AND\n  a = 'x", 2, 7)],
)
def test_an_open_quote_is_an_error(text: str, line: int, column: int) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_where(text)

    assert (caught.value.context["line"], caught.value.context["column"]) == (line, column)


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("a = 1 OR b = c", 1, 10),
        ("a = 1\n AND 5 < b + 1", 2, 6),
        ("a = 1 AND b = 0x10", 1, 18),
        ("a = 1 AND b IN (SELECT 1)", 1, 11),
    ],
)
def test_an_unsupported_part_says_where_it_begins(text: str, line: int, column: int) -> None:
    with pytest.raises(InvalidInputError, match="not supported") as caught:
        parse_where(text)

    assert (caught.value.context["line"], caught.value.context["column"]) == (line, column)


@pytest.mark.parametrize("text", ["", ";", "a; b", "-- nothing"])
def test_text_that_is_not_one_condition_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="not one condition"):
        parse_where(text)


@pytest.mark.parametrize(
    "text",
    [
        "5e", "a = 5e", "a = 1e400", f"a = {'9' * 39}", f"a = {'9' * 5000}", "a = 128Y",
        "a = 9223372036854775808L", "a = 1e40F", "a = DATE 'soon'", "a = TIMESTAMP '2020-13-01'",
        "a = CAST(1000 AS TINYINT)", "a = CAST(DATE '2020-01-01' AS TIMESTAMP)", "a = '\ud800'",
        "a = CAST(5 AS DECIMAL(99, 2))", "a = -'x'", "a = CAST('1e999999999' AS DECIMAL(5, 0))",
    ],
)  # fmt: skip
def test_a_literal_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_where(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "a" + ")" * 5000,
        "NOT " * 5000 + "a",
        "- " * 5000 + "1 = a",
        "a = " + "f(" * 5000 + ")" * 5000,
        "CASE WHEN " * 5000,
        "a" + "[0]" * 50 + "[" * 5000,
        "a = CAST(" * 5000,
        "date " * 5000 + "'x' = a",
        "x -> " * 3000 + "1",
        "a = 1 AND " * 40_000,
    ],
    ids=lambda text: text[:12],
)
def test_hostile_text_is_a_typed_error(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_where(text)


MANY = 2_000


@pytest.mark.parametrize(
    "text", ["(" * 40 + "a" + ")" * 40, "NOT " * 40 + "a", "- " * 40 + "1 = a"]
)
def test_the_depth_limit_is_checked_before_parsing(text: str) -> None:
    with pytest.raises(InvalidInputError, match="nested too deeply"):
        parse_where(text)


@pytest.mark.parametrize(
    "text",
    [
        *("(" * MANY + "a" + ")" * MANY, "NOT " * MANY + "a", "NOT(" * MANY + "a" + ")" * MANY),
        *("a = 1" + "::INT" * MANY, "a" + "::INT" * MANY + " = 1", "a IN (1" + "::INT" * 40 + ")"),
        *("a = " + "CAST(" * MANY + "1" + " AS INT)" * MANY, "a = " + "- " * MANY + "1"),
        *("a = " + "+".join("1" * MANY), "a = " + "||".join(["'x'"] * MANY), "~" * MANY + "1 = a"),
        *(
            "CASE WHEN a THEN " * MANY + "b" + " END" * MANY,
            "CASE" + " WHEN a THEN b" * MANY + " END",
        ),
        *("f(" * MANY + "a" + ")" * MANY, "a" + "[0]" * MANY + " = 1", "a = " + "[" * MANY),
        *("a" + " = a" * MANY, "a" + " IS NULL" * MANY, "a" + " BETWEEN 1 AND 2" * MANY),
        *("a LIKE 'x'" + " ESCAPE 'y'" * MANY, "a IN (" * MANY, "a IN (SELECT " * MANY),
        *("CAST(a AS " + "ARRAY<" * MANY + "INT" + ">" * MANY + ") = 1", "DATE " * MANY + "'x'"),
        *("INTERVAL " * MANY + "1 day", "a IS DISTINCT FROM " * MANY + "1", "a" + "->b" * MANY),
    ],
    ids=lambda text: text[:12],
)
def test_excessive_nesting_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_where(text)


def test_long_flat_predicates_are_parsed() -> None:
    tests = [f"a <> {item}" for item in range(MANY)]

    flat = parse_where(" AND ".join(tests))
    listed = parse_where(f"a IN ({', '.join(map(str, range(MANY)))})")
    cast = parse_where(" OR ".join(f"a = {item}::BIGINT" for item in range(1000)))

    assert isinstance(flat, And)
    assert len(flat.operands) == MANY
    assert isinstance(listed, In)
    assert len(listed.literals) == MANY
    assert isinstance(cast, Or)
    assert len(cast.operands) == 1000


def test_text_above_the_length_limit_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="too long"):
        parse_where("a = 1" + " " * MAX_TEXT_LENGTH)


def test_many_conditions_on_one_level_are_parsed() -> None:
    predicate = parse_where(" OR ".join(f"a = {item}" for item in range(3000)))

    assert isinstance(predicate, Or)
    assert len(predicate.operands) == 3000


@given(
    text=st.text(alphabet=st.sampled_from("ab01.'`\"()=<>! -,ANDORTINLKEUSX%_\\\n;"), max_size=40)
)
def test_any_text_is_a_predicate_or_a_typed_error(text: str) -> None:
    with contextlib.suppress(InvalidInputError):
        parse_where(text)


@given(text=st.text(st.characters(codec="utf-8"), max_size=20))
def test_a_quoted_string_is_parsed_to_its_text(text: str) -> None:
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")

    parsed = parse_where(f"a = '{quoted}'")

    assert parsed == is_(Op.EQ, Literal(value=text, type="string"))
