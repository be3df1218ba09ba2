"""States of blocks, merged in any way, give what a plain loop over the rows gives."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fuse_stream.errors import NumberOverflowError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.indexes.results import result_of
from fuse_stream.indexes.spec import Aggregate, bind
from fuse_stream.indexes.sql import parse_aggregate
from fuse_stream.indexes.states import merge_states, states_of_count, states_of_rows
from tests.kit.indexes import expected, group_of, grouped, is_close

NO_SHRINKING = [Phase.explicit, Phase.reuse, Phase.generate]
"""An example has many columns, of which shrinking one by one takes minutes."""
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "byte": (pa.int8(), st.integers(-128, 127)),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": (pa.int64(), st.integers(-(2**58), 2**58)),
    "float": (pa.float32(), st.floats(width=32, min_value=-1e6, max_value=1e6)),
    "double": (
        pa.float64(),
        st.sampled_from([0.0, -0.0, 1.5, -2.25, 1e9, float("nan"), float("inf")]),
    ),
    "dec": (pa.decimal128(12, 2), st.integers(-(10**11), 10**11)),
    "wide": (pa.decimal128(38, 3), st.integers(-(10**30), 10**30)),
    "text": (pa.string(), st.text("abü\U0001f600", max_size=3)),
    "bytes": (pa.binary(), st.binary(max_size=3)),
    "flag": (pa.bool_(), st.booleans()),
    "day": (pa.date32(), st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1))),
    "at": (
        pa.timestamp("us", "UTC"),
        st.integers(-(10**15), 10**15).map(lambda us: EPOCH + dt.timedelta(microseconds=us)),
    ),
}
SCHEMA = pa.schema([pa.field(name, arrow) for name, (arrow, _) in TYPES.items()])
NUMBERS = ["byte", "int", "long", "float", "double", "dec", "wide"]
OF_NUMBERS = ["sum", "avg", "stddev", "stddev_pop", "variance", "var_pop"]
OF_ALL = ["count", "min", "max"]


def aggregate(sql: str, schema: pa.Schema = SCHEMA) -> Aggregate:
    columns = first_schema(columns_of_arrow(schema))
    return bind(parse_aggregate(sql, columns), columns)


def wanted(bound: Aggregate, rows: pa.Table) -> pa.Table:
    return rows.select(list(bound.read.names()))


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    count = draw(st.integers(0, 14))
    arrays = []
    for name, (arrow, values) in TYPES.items():
        drawn = draw(st.lists(st.none() | values, min_size=count, max_size=count))
        if pa.types.is_decimal(arrow):
            drawn = [None if n is None else Decimal(n).scaleb(-arrow.scale) for n in drawn]
        arrays.append(pa.array(drawn, arrow))
        assert name
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


@given(
    st.lists(tables(), max_size=4),
    st.lists(st.sampled_from(list(TYPES)), max_size=2, unique=True),
    st.lists(st.tuples(st.sampled_from(OF_NUMBERS), st.sampled_from(NUMBERS)), max_size=4),
    st.lists(st.tuples(st.sampled_from(OF_ALL), st.sampled_from(list(TYPES))), max_size=3),
    st.data(),
)
@settings(max_examples=60, deadline=None, phases=NO_SHRINKING)
def test_merged_states_give_the_result_of_a_plain_loop(
    blocks: list[pa.Table],
    keys: list[str],
    of_numbers: list[tuple[str, str]],
    of_all: list[tuple[str, str]],
    data: st.DataObject,
) -> None:
    functions = [*of_numbers, *of_all]
    items = [f"{name} AS key{at}" for at, name in enumerate(keys)]
    items += [f"{function}({name}) AS f{at}" for at, (function, name) in enumerate(functions)]
    by = f" GROUP BY {', '.join(keys)}" if keys else ""
    bound = aggregate(f"SELECT {', '.join([*items, 'count(*) AS n'])} FROM t{by}")
    states = [states_of_rows(bound, wanted(bound, rows)) for rows in blocks]
    cut = data.draw(st.integers(0, len(states)))
    halves = [merge_states(bound, states[:cut]), merge_states(bound, states[cut:])]
    found = result_of(bound, merge_states(bound, halves)).to_pylist()

    rows = [row for table in blocks for row in table.to_pylist()]
    groups = grouped(rows, keys)
    if not keys:
        groups = {(): rows}
    assert len(found) == len(groups)
    for row in found:
        held = groups[tuple(group_of(row[f"key{at}"]) for at in range(len(keys)))]
        assert row["n"] == len(held)
        for at, (function, name) in enumerate(functions):
            values = [one[name] for one in held]
            right = expected(function, values)
            assert is_close(row[f"f{at}"], right), (function, name, values, row[f"f{at}"], right)


def test_moments_of_many_groups_are_those_of_their_groups() -> None:
    groups, values = [n * 7919 % 5_000 for n in range(20_000)], list(range(20_000))
    rows = pa.table({"g": groups, "h": [f"h{g % 3}" for g in groups], "x": values})
    bound = aggregate(
        "SELECT g, h, stddev(x) AS s, var_pop(x) AS v, count(*) AS n FROM t GROUP BY g, h",
        rows.schema,
    )
    parts = [states_of_rows(bound, rows.slice(at, 5_000)) for at in range(0, 20_000, 5_000)]
    found = result_of(bound, merge_states(bound, parts)).to_pylist()

    held = grouped(rows.to_pylist(), ["g", "h"])
    assert len(found) == len(held) == 5_000
    for row in found:
        numbers = [one["x"] for one in held[row["g"], row["h"]]]
        assert row["n"] == len(numbers)
        assert is_close(row["s"], expected("stddev", numbers))
        assert is_close(row["v"], expected("var_pop", numbers))


def test_sums_of_longs_do_not_wrap_and_raise_where_spark_does() -> None:
    top = 2**63 - 1
    rows = pa.table({"x": [top, top, -top, -top, 5]})
    bound = aggregate("SELECT sum(x), avg(x) AS a FROM t", rows.schema)
    whole = states_of_rows(bound, rows)
    first = states_of_rows(bound, rows.slice(0, 2))

    assert result_of(bound, whole).to_pylist() == [{"sum(x)": 5, "a": 1.0}]
    with pytest.raises(NumberOverflowError, match="too large") as caught:
        result_of(bound, first)
    assert isinstance(caught.value, OverflowError)
    assert caught.value.context == {"column": "sum(x)", "type": "long"}
    rest = states_of_rows(bound, rows.slice(2))
    assert result_of(bound, merge_states(bound, [first, rest])).to_pylist()[0]["sum(x)"] == 5


def test_sums_of_decimals_have_sparks_type_and_overflow() -> None:
    most = "9" * 38
    values = [Decimal(most), Decimal(most), Decimal(f"-{most}")]
    rows = pa.table({"x": pa.array(values, pa.decimal128(38, 0))})
    bound = aggregate("SELECT sum(x) AS s, avg(x) AS a, min(x) AS l FROM t", rows.schema)

    assert bound.result.field("s").type == pa.decimal128(38, 0)
    assert bound.result.field("a").type == pa.decimal128(38, 4)
    with pytest.raises(NumberOverflowError):
        result_of(bound, states_of_rows(bound, rows.slice(0, 2)))
    with pytest.raises(NumberOverflowError):  # an average of 38 digits has no place for four more
        result_of(bound, states_of_rows(bound, rows.slice(0, 1)))
    narrow = aggregate("SELECT sum(x) FROM t", pa.schema([("x", pa.decimal128(10, 2))]))
    assert narrow.result.field(0).type == pa.decimal128(20, 2)


def test_zeros_and_nans_are_one_group_each() -> None:
    nan, other_nan = float("nan"), -float("nan")
    values = [0.0, -0.0, nan, other_nan, None, 1.0]
    for arrow in (pa.float64(), pa.float32()):
        rows = pa.table({"x": pa.array(values, arrow)})
        bound = aggregate("SELECT x, count(*) AS n FROM t GROUP BY x", rows.schema)
        halves = [states_of_rows(bound, rows.slice(at, 1)) for at in range(6)]
        found = result_of(bound, merge_states(bound, halves)).to_pylist()

        assert [(group_of(row["x"]), row["n"]) for row in found] == [
            (0.0, 2),
            ("NaN", 2),
            (None, 1),
            (1.0, 1),
        ]


def test_nan_is_the_greatest_value() -> None:
    rows = pa.table({"g": [1, 1, 2, 3], "x": [float("nan"), 1.0, float("nan"), None]})
    bound = aggregate("SELECT g, min(x) AS l, max(x) AS m FROM t GROUP BY g", rows.schema)
    found = result_of(bound, states_of_rows(bound, rows)).to_pylist()

    assert [group_of(row["l"]) for row in found] == [1.0, "NaN", None]
    assert [group_of(row["m"]) for row in found] == ["NaN", "NaN", None]


def test_without_rows_there_is_one_row_if_there_is_no_group() -> None:
    nothing = SCHEMA.empty_table()
    alone = aggregate("SELECT count(*) AS n, sum(int) AS s, stddev(int) AS d FROM t")
    by_text = aggregate("SELECT text, count(*) AS n FROM t GROUP BY text")

    for states in (states_of_rows(alone, wanted(alone, nothing)), merge_states(alone, [])):
        assert result_of(alone, states).to_pylist() == [{"n": 0, "s": None, "d": None}]
    assert result_of(by_text, states_of_rows(by_text, wanted(by_text, nothing))).num_rows == 0


def test_a_mere_count_needs_no_column() -> None:
    bound = aggregate("SELECT count(*) AS a, count(*) AS b FROM t")
    states = merge_states(bound, [states_of_count(bound, 7), states_of_count(bound, 5)])

    assert bound.read.columns == ()
    assert result_of(bound, states).to_pylist() == [{"a": 12, "b": 12}]
