"""The text of an aggregate: what it may be, and what an error says of anything else."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.indexes import IndexColumn
from fuse_stream.indexes.spec import bind
from fuse_stream.indexes.sql import FUNCTIONS, parse_aggregate

SCHEMA = first_schema(
    columns_of_arrow(
        pa.schema(
            [
                ("carrier", pa.string()),
                ("delay", pa.int64()),
                ("a b`c", pa.int32()),
                ("tags", pa.list_(pa.string())),
                ("from", pa.date32()),
            ]
        )
    )
)
IDS = {column.name: column.id for column in SCHEMA.columns}


def parsed(sql: str) -> tuple[tuple[str, str | None, int | None], ...]:
    return tuple((one.name, one.function, one.column) for one in parse_aggregate(sql, SCHEMA))


def test_an_aggregate_has_groups_and_functions_in_the_order_of_the_text() -> None:
    sql = "SELECT carrier, count(*) AS flights, sum(delay) AS delay FROM t GROUP BY carrier"

    assert parse_aggregate(sql, SCHEMA) == (
        IndexColumn(name="carrier", column=IDS["carrier"], stored="carrier"),
        IndexColumn(name="flights", function="count"),
        IndexColumn(name="delay", function="sum", column=IDS["delay"], stored="delay"),
    )


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_function_has_sparks_name_without_as(function: str) -> None:
    [(name, kept, column)] = parsed(f"select {function.upper()}(Delay) from x.y.t;")

    assert name == f"{function}(Delay)"
    assert kept == FUNCTIONS[function]
    assert column == IDS["delay"]


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT count(*) FROM t", ("count(1)",)),
        ("SELECT count(ALL delay) n FROM t AS f", ("n",)),
        ("SELECT f.carrier, min(f.delay) FROM flights f GROUP BY f.carrier", None),
        ("SELECT `a b``c`, count(*) AS `from` FROM t GROUP BY `A B``C`", ("a b`c", "from")),
        ("SELECT `from` AS d, count(*) FROM `t` GROUP BY `from`", ("d", "count(1)")),
    ],
)
def test_forms_of_the_text(sql: str, names: tuple[str, ...] | None) -> None:
    found = tuple(name for name, _, _ in parsed(sql))

    assert found == (names or ("carrier", "min(delay)"))


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("", "the end"),
        ("SELECT", "the end"),
        ("DROP TABLE t", "DROP"),
        ("SELECT carrier FROM t GROUP BY carrier", "no function"),
        ("SELECT carrier, count(*) FROM t", "has to be in its GROUP BY"),
        ("SELECT count(*) FROM t GROUP BY carrier", "selects each column of its GROUP BY"),
        ("SELECT count(*), carrier, carrier AS c FROM t GROUP BY carrier", "once"),
        ("SELECT count(*) AS n, sum(delay) AS N FROM t", "one name"),
        ("SELECT sum(*) FROM t", "no aggregate"),
        ("SELECT median(delay) FROM t", "no such function"),
        ("SELECT count(DISTINCT delay) FROM t", "DISTINCT"),
        ("SELECT sum(delay + 1) FROM t", "no aggregate"),
        ("SELECT count(*) FROM t WHERE delay = 1", "no aggregate"),
        ("SELECT count(*) FROM t JOIN u", "no aggregate"),
        ("SELECT count(*) FROM (SELECT 1)", "no aggregate"),
        ("SELECT sum(dely) FROM t", "'delay'"),
        ("SELECT sum(carrier) FROM t", "cannot use a column of this type"),
        ("SELECT max(tags) FROM t", "cannot use a column of this type"),
        ("SELECT tags, count(*) FROM t GROUP BY tags", "cannot use a column of this type"),
        ("SELECT max(u.delay) FROM t", "whole columns"),
        ("SELECT max(\ud800) FROM t", "sql is text"),
        ("SELECT count(*) FROM t " + " " * 70_000, "at most"),
        ("SELECT " + ", ".join(f"count(*) AS n{n}" for n in range(101)) + " FROM t", "too many"),
    ],
)
def test_anything_else_is_an_error_that_says_so(sql: str, said: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        bind(parse_aggregate(sql, SCHEMA), SCHEMA)

    assert said in str(caught.value)


@given(st.text("SELECTFROMcountGROUPBY(),.*`; \n\x00ü1", max_size=60))
def test_any_text_is_an_aggregate_or_a_typed_error(text: str) -> None:
    for sql in (text, f"SELECT {text} FROM t", f"SELECT count(*) FROM t {text}"):
        with suppress(InvalidInputError):
            parse_aggregate(sql, SCHEMA)
