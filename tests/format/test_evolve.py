"""How a batch's columns meet the table's: they fit, they differ readably, or the table widens."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from fuse_stream.errors import InvalidInputError, SchemaMismatchError, UnsupportedTypeError
from fuse_stream.format.arrow import arrow_schema, columns_of_arrow
from fuse_stream.format.evolve import (
    check_names,
    differences,
    first_schema,
    is_widening,
    resolve,
)
from fuse_stream.format.schema import PRIMITIVES, Column, Schema


def schema_of(**fields: pa.DataType) -> Schema:
    return first_schema(columns_of(**fields))


def columns_of(**fields: pa.DataType) -> tuple[Column, ...]:
    return columns_of_arrow(pa.schema(list(fields.items())))


def merged(table: Schema, **fields: pa.DataType) -> Schema:
    return resolve(table, columns_of(**fields), merge_schema=True)[0]


def ids_of(schema: Schema) -> dict[str, int]:
    def walk(columns: tuple[Column, ...], path: str) -> dict[str, int]:
        found = {}
        for column in columns:
            found[path + column.name] = column.id
            found |= walk(column.children, f"{path}{column.name}.")
        return found

    return walk(schema.columns, "")


POINT = pa.struct([("x", pa.int32()), ("y", pa.int32())])


def test_columns_that_fit_take_the_tables_ids_in_any_order() -> None:
    table = schema_of(a=pa.int64(), p=POINT, s=pa.string())
    schema, columns = resolve(table, columns_of(s=pa.string(), p=POINT, a=pa.int64()))

    assert schema is table
    assert [(column.name, column.id) for column in columns] == [("s", 5), ("p", 2), ("a", 1)]
    assert [child.id for child in columns[1].children] == [3, 4]


def test_each_difference_is_one_line() -> None:
    table = schema_of(a=pa.int32(), b=pa.string(), p=POINT, l=pa.list_(pa.date32()))
    batch = columns_of(
        a=pa.int64(),
        p=pa.struct([("x", pa.int32()), ("z", pa.bool_())]),
        l=pa.list_(pa.string()),
        new=pa.decimal128(5, 2),
    )

    assert differences(table, batch) == [
        "~ a: the table has integer, the batch long",
        "- b string: the table has it, the batch does not",
        "- p.y integer: the table has it, the batch does not",
        "+ p.z boolean: the batch has it, the table does not",
        "~ l.element: the table has date, the batch string",
        "+ new decimal(5,2): the batch has it, the table does not",
    ]


def test_a_mismatch_names_every_difference_and_the_remedy() -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        resolve(schema_of(a=pa.int64()), columns_of(b=pa.int64()))

    text = str(caught.value)
    assert "- a long" in text
    assert "+ b long" in text
    assert "merge_schema=True" in text


def test_narrower_types_fit_at_every_depth() -> None:
    def fields(number: pa.DataType, price: pa.DataType) -> dict[str, pa.DataType]:
        point = pa.struct([("x", number), ("tags", pa.list_(number))])
        return {"a": number, "m": pa.map_(pa.string(), point), "price": price}

    table = schema_of(**fields(pa.int64(), pa.decimal128(9, 4)))
    narrow = columns_of(**fields(pa.int16(), pa.decimal128(5, 2)))
    schema, columns = resolve(table, narrow)

    assert differences(table, narrow) == []
    assert schema is table
    assert [column.type for column in columns] == ["short", "map", "decimal(5,2)"]


@pytest.mark.parametrize(
    ("batch", "remedy"),
    [
        ({"a": pa.int64(), "b": pa.string()}, "cast its columns, or pass merge_schema=True"),
        ({"a": pa.int32(), "b": pa.string(), "new": POINT}, "or pass merge_schema=True"),
        ({"a": pa.int32()}, "cast its columns, or pass merge_schema=True"),
        ({"a": pa.string(), "b": pa.string()}, "select or cast its columns:"),
        ({"a": pa.float64(), "b": pa.string()}, "select or cast its columns:"),
        ({"a": pa.string(), "b": pa.string(), "new": POINT}, "select or cast its columns:"),
    ],
    ids=str,
)
def test_merge_schema_is_advised_only_where_it_helps(
    batch: dict[str, pa.DataType], remedy: str
) -> None:
    with pytest.raises(SchemaMismatchError, match=remedy):
        resolve(schema_of(a=pa.int32(), b=pa.string()), columns_of(**batch))


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        *(("byte", other) for other in ("short", "integer", "long")),
        *(("short", other) for other in ("integer", "long")),
        ("integer", "long"),
        ("float", "double"),
        ("decimal(5,2)", "decimal(6,2)"),
        ("decimal(5,2)", "decimal(6,3)"),
        ("decimal(5,2)", "decimal(38,10)"),
    ],
)
def test_every_widening_and_none_back(narrow: str, wide: str) -> None:
    assert is_widening(narrow, wide)
    assert not is_widening(wide, narrow)


def test_nothing_else_is_a_widening() -> None:
    allowed = {
        (narrow, wide)
        for narrow, wide in itertools.permutations(PRIMITIVES, 2)
        if is_widening(narrow, wide)
    }

    assert len(allowed) == 7
    assert not is_widening("decimal(5,2)", "decimal(6,4)")
    assert not is_widening("decimal(5,2)", "decimal(5,3)")
    assert not is_widening("integer", "decimal(20,0)")
    assert not is_widening("long", "double")


@pytest.mark.parametrize(
    ("first", "second", "type_name"),
    [
        (pa.int8(), pa.int16(), "short"),
        (pa.int32(), pa.int64(), "long"),
        (pa.int64(), pa.int32(), "long"),
        (pa.float32(), pa.float64(), "double"),
        (pa.decimal128(5, 2), pa.decimal128(9, 4), "decimal(9,4)"),
        (pa.decimal128(9, 4), pa.decimal128(5, 2), "decimal(9,4)"),
    ],
)
def test_merging_keeps_the_wider_type_and_the_id(
    first: pa.DataType, second: pa.DataType, type_name: str
) -> None:
    table = schema_of(a=first, l=pa.list_(first))
    schema = merged(table, a=second, l=pa.list_(second))

    assert [column.type for column in schema.columns] == [type_name, "array"]
    assert schema.columns[1].children[0].type == type_name
    assert ids_of(schema) == ids_of(table)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.int64(), pa.string()),
        (pa.int64(), pa.float64()),
        (pa.timestamp("us"), pa.timestamp("us", tz="UTC")),
        (pa.date32(), pa.timestamp("us")),
        (pa.decimal128(5, 2), pa.decimal128(5, 3)),
        (pa.list_(pa.int32()), pa.int32()),
        (pa.list_(pa.int32()), pa.map_(pa.int32(), pa.int32())),
        (POINT, pa.string()),
        (pa.list_(pa.string()), pa.list_(pa.binary())),
    ],
    ids=str,
)
def test_other_changes_are_refused_by_column(first: pa.DataType, second: pa.DataType) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        merged(schema_of(a=first), a=second)

    assert str(caught.value.context["column"]).startswith("a")


def test_added_columns_are_nullable_at_every_depth_and_have_new_ids() -> None:
    table = schema_of(a=pa.int64(), p=POINT)
    inner = pa.struct([pa.field("u", pa.int8(), nullable=False)])
    batch = pa.schema(
        [
            pa.field("p", pa.struct([*POINT, pa.field("z", inner, nullable=False)])),
            pa.field("a", pa.int64()),
            pa.field("m", pa.map_(pa.string(), pa.int8()), nullable=False),
        ]
    )
    schema, _ = resolve(table, columns_of_arrow(batch), merge_schema=True)

    assert ids_of(schema) == {
        **ids_of(table),
        "p.z": 5,
        "p.z.u": 6,
        "m": 7,
        "m.key": 8,
        "m.value": 9,
    }
    assert schema.last_column_id == 9
    added = arrow_schema(schema)
    assert added.field("p").type.field("z").nullable
    assert added.field("p").type.field("z").type.field("u").nullable
    assert added.field("m").nullable
    assert not added.field("m").type.key_field.nullable


def test_ids_are_never_given_again() -> None:
    table = Schema(id=4, last_column_id=80, columns=schema_of(a=pa.int64()).columns)
    schema = merged(table, a=pa.int64(), b=pa.int64())

    assert ids_of(schema) == {"a": 1, "b": 81}
    assert (schema.id, schema.last_column_id) == (5, 81)
    assert merged(table, a=pa.int32()) == table


def test_a_widening_alone_does_not_lower_the_last_id() -> None:
    table = Schema(id=4, last_column_id=80, columns=schema_of(a=pa.int32()).columns)

    assert merged(table, a=pa.int64()).last_column_id == 80


def test_a_batch_may_leave_out_nullable_columns_only() -> None:
    required = first_schema(
        columns_of_arrow(pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.int64())]))
    )

    assert merged(required, a=pa.int64()) == required
    with pytest.raises(SchemaMismatchError) as caught:
        merged(required, b=pa.int64())

    assert caught.value.context["column"] == "a"


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({}, "empty"),
        ({"": pa.int8()}, "no name"),
        ({"a": pa.int8(), "A": pa.int8()}, "differ only in case.*option `caseSensitive`"),
        ({"p": pa.struct([("x", pa.int8()), ("X", pa.int8())])}, "differ only in case"),
        ({"l": pa.list_(pa.struct([("", pa.int8())]))}, "no name"),
        ({"_change_type": pa.int8()}, "change feed.*rename the column"),
        ({"_commit_version": pa.int8()}, "change feed"),
        ({"_commit_anything": pa.int8()}, "change feed"),
        ({"_Change_Type": pa.int8()}, "change feed"),
        ({"_COMMIT_x": pa.int8()}, "change feed"),
        ({"a\0b": pa.int8()}, "null character"),
        ({"p": pa.struct([("\0", pa.int8())])}, "null character"),
    ],
    ids=str,
)
def test_invalid_column_names_are_refused(columns: dict[str, pa.DataType], says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        first_schema(columns_of_arrow(pa.schema(list(columns.items()))))


def test_a_name_given_twice_is_refused_even_where_case_counts() -> None:
    twice = columns_of_arrow(pa.schema([("a", pa.int8()), ("a", pa.int8())]))
    cases = columns_of(a=pa.int8(), A=pa.int8())

    check_names(cases, case_sensitive=True)
    with pytest.raises(InvalidInputError):
        check_names(twice, case_sensitive=True)


def test_only_what_is_added_is_judged_against_the_rest() -> None:
    point = pa.struct([("x", pa.int8()), ("X", pa.int8())])
    names = {"a": pa.int8(), "A": pa.int8(), "_Change_Type": pa.int8(), "\0": pa.int8(), "p": point}
    table = Schema(id=0, last_column_id=7, columns=columns_of(**names))

    for fields in (names, {"c": pa.int8()}, {**names, "c": pa.int8()}):
        columns = columns_of(**fields)
        check_names(columns, table=table.columns)
        resolve(table, columns, merge_schema=True)
    wider = pa.struct([("x", pa.int8()), ("Y", pa.int8()), ("y", pa.int8())])
    for fields in ({"P": point}, {"p": wider}, {"c": pa.int8(), "C": pa.int8()}):
        with pytest.raises(InvalidInputError, match="differ only in case"):
            check_names(columns_of(**fields), table=table.columns)
        with pytest.raises(InvalidInputError, match="differ only in case"):
            resolve(table, columns_of(**fields), merge_schema=True)


def test_reserved_names_are_allowed_inside_a_struct() -> None:
    schema = schema_of(p=pa.struct([("_change_type", pa.int8())]))

    assert ids_of(schema) == {"p": 1, "p._change_type": 2}


@pytest.mark.parametrize(
    "fields",
    [{"A": pa.int64()}, {"a": pa.int64(), "P": POINT}, {"p": pa.struct([("X", pa.int8())])}],
    ids=str,
)
def test_merging_adds_no_column_that_differs_in_case_only(fields: dict[str, pa.DataType]) -> None:
    table = schema_of(a=pa.int64(), p=POINT)

    with pytest.raises(InvalidInputError, match="differ only in case"):
        merged(table, **fields)
    resolve(table, columns_of(**fields), merge_schema=True, case_sensitive=True)


@pytest.mark.parametrize(
    ("arrow", "path"),
    [
        (pa.uint8(), "c"),
        (pa.null(), "c"),
        (pa.time64("us"), "c"),
        (pa.duration("s"), "c"),
        (pa.float16(), "c"),
        (pa.struct([]), "c"),
        (pa.decimal256(39, 2), "c"),
        (pa.decimal128(10, -2), "c"),
        (pa.list_(pa.uint8()), "c.element"),
        (pa.struct([("x", pa.list_(pa.time32("s")))]), "c.x.element"),
        (pa.map_(pa.string(), pa.month_day_nano_interval()), "c.value"),
        (pa.map_(pa.uint16(), pa.string()), "c.key"),
        (pa.dictionary(pa.int8(), pa.uint8()), "c"),
        (pa.uuid(), "c"),
    ],
    ids=str,
)
def test_an_unsupported_type_names_its_column(arrow: pa.DataType, path: str) -> None:
    with pytest.raises(UnsupportedTypeError) as caught:
        columns_of_arrow(pa.schema([("good", pa.int8()), ("c", arrow)]))

    assert caught.value.context["column"] == path


def test_types_that_go_too_deep_are_unsupported() -> None:
    arrow = pa.int8()
    for _ in range(500):
        arrow = pa.list_(arrow)

    with pytest.raises(UnsupportedTypeError, match="levels of nested types"):
        columns_of_arrow(pa.schema([("c", arrow)]))
