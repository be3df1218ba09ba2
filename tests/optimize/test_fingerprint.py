"""A fingerprint is that of the multiset of rows: order and cuts do not count, every value does."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.format.arrow import adapt, columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.optimize import fingerprint as module
from fuse_stream.optimize.fingerprint import Fingerprint, fingerprint

SCHEMA = pa.schema(
    {
        "flag": pa.bool_(),
        "small": pa.int8(),
        "number": pa.int64(),
        "other": pa.int64(),
        "half": pa.float32(),
        "real": pa.float64(),
        "price": pa.decimal128(38, 2),
        "text": pa.string(),
        "bytes": pa.binary(),
        "day": pa.date32(),
        "time": pa.timestamp("us", tz="UTC"),
        "list": pa.list_(pa.string()),
        "map": pa.map_(pa.string(), pa.int32()),
        "struct": pa.struct({"x": pa.int32(), "y": pa.list_(pa.int64())}),
    }
)
TEXTS = st.text(max_size=4) | st.sampled_from(["", "a", "b" * 256, "b" * 257, "b" * 300])
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "flag": st.none() | st.booleans(),
            "small": st.none() | st.integers(-2, 2),
            "number": st.none() | st.integers(-(2**63), 2**63 - 1),
            "other": st.none() | st.integers(-1, 1),
            "half": st.none() | st.sampled_from([0.0, 1.5]),
            "real": st.none() | st.floats(),
            "price": st.none() | st.sampled_from([Decimal("0.00"), Decimal(f"1{'0' * 30}.25")]),
            "text": st.none() | TEXTS,
            "bytes": st.none() | st.binary(max_size=3),
            "day": st.none() | st.dates(),
            "time": st.none() | st.datetimes(timezones=st.just(dt.UTC)),
            "list": st.none() | st.lists(st.none() | TEXTS, max_size=3),
            "map": st.none() | st.dictionaries(TEXTS, st.none() | st.integers(0, 3), max_size=2),
            "struct": st.none()
            | st.fixed_dictionaries(
                {
                    "x": st.none() | st.integers(0, 2),
                    "y": st.none() | st.lists(st.integers(0, 2), max_size=2),
                }
            ),
        }
    ),
    max_size=6,
)


def table_of(rows: Sequence[dict[str, object]]) -> pa.Table:
    plain = [
        row | {"map": None if row["map"] is None else list(row["map"].items())}  # type: ignore[attr-defined]
        for row in rows
    ]
    return pa.Table.from_pylist(plain, schema=SCHEMA)


def of(table: pa.Table) -> Fingerprint:
    columns = columns_of_arrow(table.schema)
    schema = first_schema(columns)
    return fingerprint(adapt(table, columns, schema), schema)


def one(**columns: object) -> Fingerprint:
    """Return the fingerprint of one row of these columns, and nulls."""
    return of(pa.Table.from_pylist([columns], schema=SCHEMA))


@given(ROWS, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_count(rows: list[dict[str, object]], chance: object) -> None:
    shuffled = list(rows)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]

    assert of(table_of(shuffled)) == of(table_of(rows))


@given(ROWS, st.lists(st.integers(0, 6), max_size=3))
def test_how_rows_are_cut_does_not_count(rows: list[dict[str, object]], cuts: list[int]) -> None:
    table = table_of(rows)
    at = sorted({0, len(table), *(cut for cut in cuts if cut < len(table))})
    parts = [table.slice(a, b - a) for a, b in itertools.pairwise(at)]

    assert sum(map(of, parts), Fingerprint()) == of(table)
    assert of(pa.concat_tables([*parts, table.slice(0, 0)])) == of(table)


@given(ROWS)
def test_long_pieces_are_looked_at_one_by_one(rows: list[dict[str, object]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        whole = of(table_of(rows))
        patch.setattr(module, "_PIECE", 2)
        patch.setattr(module, "CHUNK_ROWS", 2)

        assert of(table_of(rows)) == whole


@given(ROWS, ROWS)
def test_other_rows_have_another_fingerprint(
    some: list[dict[str, object]], others: list[dict[str, object]]
) -> None:
    def plain(rows: list[dict[str, object]]) -> list[str]:  # NaN equals itself, -0.0 is not 0.0
        return sorted(repr(row) for row in table_of(rows).to_pylist())

    assert (of(table_of(some)) == of(table_of(others))) == (plain(some) == plain(others))


@given(ROWS.filter(len), st.data())
def test_a_lost_a_doubled_and_a_changed_row_show(
    rows: list[dict[str, object]], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    column = data.draw(st.sampled_from(SCHEMA.names))
    value = {"flag": True, "number": 7, "text": "?"}.get(column, rows[at][column])
    changed = [*rows[:at], rows[at] | {column: None if value == rows[at][column] else value}]
    whole = of(table_of(rows))

    assert of(table_of(rows[:at] + rows[at + 1 :])) != whole
    assert of(table_of([*rows, rows[at]])) != whole
    if rows[at][column] is not None:
        assert of(table_of(changed + rows[at + 1 :])) != whole


def test_a_value_counts_with_its_column_and_its_row() -> None:
    straight = of(pa.table({"a": [1, 2], "b": [3, 4]}))

    assert of(pa.table({"a": [3, 2], "b": [1, 4]})) != straight
    assert of(pa.table({"a": [1, 2], "b": [4, 3]})) != straight
    assert one(number=1) != one(other=1)
    assert one(struct={"x": 1}) != one(struct={"y": [1]})


def test_what_looks_alike_is_told_apart() -> None:
    distinct = [
        one(),
        one(number=0),
        one(real=0.0),
        one(real=-0.0),
        one(real=math.nan),
        one(text=""),
        one(text="\0"),
        one(text="\0\0"),
        one(text="ab"),
        one(text="ba"),
        one(bytes=b"ab"),
        one(list=[]),
        one(list=[None]),
        one(list=[""]),
        one(list=["a", "b"]),
        one(list=["ab"]),
        one(list=["b", "a"]),
        one(map=[("a", 1)]),
        one(map=[("a", None)]),
        one(struct={"x": None, "y": None}),
        one(struct={"x": None, "y": []}),
    ]

    assert len({(item.first, item.second) for item in distinct}) == len(distinct)


def test_what_stands_beneath_a_null_does_not_count() -> None:
    values = pa.array([1, 2], pa.int64())
    hidden = pa.Array.from_buffers(
        pa.int64(), 2, [pa.py_buffer(bytes([1])), values.buffers()[1]], null_count=1
    )

    assert of(pa.table({"a": hidden})) == of(pa.table({"a": pa.array([1, None], pa.int64())}))


@given(ROWS)
def test_dictionaries_count_as_what_they_stand_for(rows: list[dict[str, object]]) -> None:
    columns = columns_of_arrow(SCHEMA)
    schema = first_schema(columns)
    table = adapt(table_of(rows), columns, schema)
    encoded = table
    for name in ("text", "bytes"):
        at = table.schema.get_field_index(name)
        encoded = encoded.set_column(at, name, table.column(at).dictionary_encode())

    assert fingerprint(encoded, schema) == fingerprint(table, schema)
