"""Columns, their leaves and what no stored schema may be."""

from __future__ import annotations

import pytest

from fuse_stream.format.schema import (
    MAX_DEPTH,
    Column,
    Leaf,
    Schema,
    decimal_of,
    flaw_of,
)

LONG = Column(id=1, name="a", type="long")


def schema(*columns: Column, last: int = 99) -> Schema:
    return Schema(id=0, last_column_id=last, columns=columns)


def nested(kind: str, *children: Column, number: int = 50) -> Column:
    return Column(id=number, name="n", type=kind, children=children)


def test_leaves_are_yielded_depth_first_with_their_path() -> None:
    inner = Column(id=3, name="x", type="string")
    key, value = Column(id=5, name="key", type="date"), nested("struct", inner, number=6)
    found = list(schema(LONG, nested("map", key, value)).leaves())

    assert found == [
        Leaf(path=("a",), stored_path=("a",), column=LONG, repeated=False),
        Leaf(path=("n", "key"), stored_path=("n", "key"), column=key, repeated=True),
        Leaf(path=("n", "n", "x"), stored_path=("n", "n", "x"), column=inner, repeated=True),
    ]


def test_leaf_types_are_by_id() -> None:
    point = nested("struct", Column(id=7, name="x", type="double"))

    assert schema(LONG, point).leaf_types == {1: "long", 7: "double"}


@pytest.mark.parametrize(
    ("type_name", "expected"),
    [
        ("decimal(10,2)", (10, 2)),
        ("decimal(38,0)", (38, 0)),
        ("decimal(10, 2)", None),
        ("decimal", None),
        ("xdecimal(1,1)", None),
    ],
)
def test_a_decimal_has_one_encoding(type_name: str, expected: tuple[int, int] | None) -> None:
    assert decimal_of(type_name) == expected


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (schema(), "no columns"),
        (schema(Column(id=1, name="a", type="variant")), "no type variant"),
        (schema(Column(id=1, name="a", type="decimal(39,0)")), "no type"),
        (schema(Column(id=1, name="a", type="decimal(0,0)")), "no type"),
        (schema(Column(id=1, name="a", type="decimal(2,3)")), "no type"),
        (schema(LONG, Column(id=1, name="b", type="long")), "the same id"),
        (schema(LONG, Column(id=2, name="a", type="long")), "same name"),
        (schema(Column(id=0, name="a", type="long")), "out of range"),
        (schema(LONG, last=0), "out of range"),
        (schema(Column(id=1, name="a", type="long", children=(LONG,))), "1 parts"),
        (schema(nested("struct")), "0 parts"),
        (schema(nested("array")), "0 parts"),
        (schema(nested("map", LONG)), "1 parts"),
        (schema(nested("struct", LONG, Column(id=1, name="b", type="long"))), "the same id"),
    ],
)
def test_the_flaw_of_a_schema_is_named(broken: Schema, says: str) -> None:
    assert says in (flaw_of(broken) or "")


def test_nesting_has_an_end() -> None:
    column = LONG
    for number in range(2, MAX_DEPTH + 2):
        column = Column(id=number, name="n", type="struct", children=(column,))

    assert flaw_of(schema(*column.children)) is None
    assert "levels of nested types" in (flaw_of(schema(nested("struct", column))) or "")
