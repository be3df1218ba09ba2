"""What comes in, in any spelling, becomes the one that the format has; nothing is lost silently."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.arrow import (
    FIELD_ID,
    adapt,
    arrow_schema,
    columns_of_arrow,
)
from fuse_stream.format.evolve import first_schema, resolve
from fuse_stream.format.schema import Schema

DAY = dt.date(2020, 2, 29)
TIME = dt.datetime(2020, 2, 29, 12, 30)  # noqa: DTZ001 - a timestamp_ntz has no zone
SPELLINGS: list[tuple[pa.DataType, pa.DataType, object]] = [
    (pa.large_string(), pa.string(), "x" * 40),
    (pa.string_view(), pa.string(), "x" * 40),
    (pa.large_binary(), pa.binary(), b"\x00"),
    (pa.binary_view(), pa.binary(), b"\x00"),
    (pa.binary(3), pa.binary(), b"abc"),
    (pa.dictionary(pa.int8(), pa.string()), pa.string(), "x"),
    (pa.dictionary(pa.int32(), pa.large_string()), pa.string(), "x"),
    (pa.dictionary(pa.int8(), pa.float64()), pa.float64(), 1.5),
    (pa.date64(), pa.date32(), DAY),
    (pa.timestamp("s"), pa.timestamp("us"), TIME),
    (pa.timestamp("ns"), pa.timestamp("us"), TIME),
    (pa.timestamp("ms", tz="UTC"), pa.timestamp("us", tz="UTC"), TIME.replace(tzinfo=dt.UTC)),
    (
        pa.timestamp("ns", tz="Asia/Tokyo"),
        pa.timestamp("us", tz="UTC"),
        TIME.replace(tzinfo=dt.UTC),
    ),
    (pa.decimal32(5, 2), pa.decimal128(5, 2), 1),
    (pa.decimal64(9, 2), pa.decimal128(9, 2), 1),
    (pa.decimal256(20, 2), pa.decimal128(20, 2), 1),
    (pa.large_list(pa.int8()), pa.list_(pa.int8()), [1, None]),
    (pa.list_(pa.int8(), 2), pa.list_(pa.int8()), [1, 2]),
    (pa.list_(pa.dictionary(pa.int8(), pa.string())), pa.list_(pa.string()), ["x"]),
]

inner = st.fixed_dictionaries({"x": st.none() | st.integers(-9, 9), "y": st.none() | st.text("ab")})
rows = st.lists(
    st.fixed_dictionaries(
        {
            "l": st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=3),
            "m": st.none() | st.lists(st.tuples(st.text("ab"), st.none() | inner), max_size=3),
            "s": st.none() | inner,
            "d": st.none() | st.lists(st.none() | st.lists(inner, max_size=2), max_size=2),
        }
    ),
    max_size=8,
)
STRUCT = pa.struct([("x", pa.int32()), ("y", pa.string())])
NESTED = pa.schema(
    [
        ("l", pa.list_(pa.int32())),
        ("m", pa.map_(pa.string(), STRUCT)),
        ("s", STRUCT),
        ("d", pa.list_(pa.list_(STRUCT))),
    ]
)


def adapted(table: pa.Table, target: Schema | None = None) -> pa.Table:
    arriving = columns_of_arrow(table.schema)
    if target is None:
        return adapt(table, arriving, first_schema(arriving))
    schema, columns = resolve(target, arriving, merge_schema=True)
    return adapt(table, columns, schema)


def schema_of(schema: pa.Schema) -> Schema:
    return first_schema(columns_of_arrow(schema))


@pytest.mark.parametrize(("arrives", "stands", "value"), SPELLINGS, ids=lambda item: str(item)[:30])
def test_every_arrow_type_becomes_its_type_in_the_format(
    arrives: pa.DataType, stands: pa.DataType, value: object
) -> None:
    table = pa.table({"c": pa.array([value, None, value], arrives)})
    out = adapted(table)

    assert out.schema.field("c").type == stands
    assert out.column("c").null_count == 1
    if not pa.types.is_decimal(stands) and not (pa.types.is_timestamp(stands) and stands.tz):
        assert out.column("c").to_pylist() == [value, None, value]


@given(rows=rows, start=st.integers(0, 4), length=st.integers(0, 8))
def test_slices_of_nested_columns_keep_their_values(
    rows: list[dict[str, object]], start: int, length: int
) -> None:
    table = pa.Table.from_pylist(rows, schema=NESTED).slice(start, length)
    wide = pa.struct([("y", pa.string()), ("x", pa.int64()), ("z", pa.int8())])
    target = schema_of(
        pa.schema([("s", wide), ("l", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), wide))])
    )

    assert adapted(table).to_pylist() == table.to_pylist()
    adapted(table).validate(full=True)
    moved = adapted(table.select(["l", "m", "s"]), target)
    assert moved.column("l").to_pylist() == table.column("l").to_pylist()
    for out, row in zip(moved.column("s").to_pylist(), table.column("s").to_pylist(), strict=True):
        assert out == (None if row is None else {**row, "z": None})
    moved.validate(full=True)


def test_the_schema_carries_every_id() -> None:
    schema = arrow_schema(schema_of(NESTED))
    map_type = schema.field("m").type

    assert schema.field("l").metadata == {FIELD_ID: b"1"}
    assert schema.field("l").type.value_field.metadata == {FIELD_ID: b"2"}
    assert map_type.key_field.metadata == {FIELD_ID: b"4"}
    assert map_type.item_type.field("y").metadata == {FIELD_ID: b"7"}


@pytest.mark.parametrize(
    ("arrow", "value"),
    [
        (pa.timestamp("ns"), 1),
        (pa.timestamp("s"), 2**62),
        (pa.timestamp("s", tz="UTC"), 2**62),
        (pa.list_(pa.timestamp("ns")), [1]),
        (pa.struct([("x", pa.timestamp("ns"))]), {"x": 1}),
    ],
    ids=str,
)
def test_a_value_that_would_lose_something_is_refused(arrow: pa.DataType, value: object) -> None:
    with pytest.raises(InvalidInputError, match="without loss"):
        adapted(pa.table({"c": pa.array([value], arrow)}))


REQUIRED = pa.field("x", pa.int64(), nullable=False)
LACKS: list[tuple[pa.Field, pa.Array]] = [
    (pa.field("c", pa.int64(), nullable=False), pa.array([1, None], pa.int64())),
    (pa.field("c", pa.struct([REQUIRED])), pa.array([{"x": None}], pa.struct([("x", pa.int64())]))),
    (pa.field("c", pa.list_(REQUIRED)), pa.array([[1], [None]], pa.list_(pa.int64()))),
    (
        pa.field("c", pa.map_(pa.string(), REQUIRED)),
        pa.array([[("k", None)]], pa.map_(pa.string(), pa.int64())),
    ),
]


@pytest.mark.parametrize(("field", "array"), LACKS, ids=lambda item: str(item)[:20])
def test_a_null_where_none_may_be_is_refused(field: pa.Field, array: pa.Array) -> None:
    target = schema_of(pa.schema([field]))

    with pytest.raises(InvalidInputError, match="not nullable"):
        adapted(pa.table({"c": array}), target)


def test_a_null_is_refused_where_the_types_and_ids_are_the_tables_own() -> None:
    target = schema_of(pa.schema([pa.field("c", pa.struct([REQUIRED]))]))
    own = arrow_schema(target)
    array = pa.StructArray.from_arrays(
        [pa.array([None], pa.int64())], fields=list(own.field("c").type)
    )

    with pytest.raises(InvalidInputError, match="not nullable"):
        adapt(pa.Table.from_arrays([array], schema=own), target.columns, target)


def test_a_required_part_of_a_null_is_no_lack() -> None:
    fields = [
        pa.field("s", pa.struct([REQUIRED])),
        pa.field("l", pa.list_(REQUIRED)),
        pa.field("m", pa.map_(pa.string(), REQUIRED)),
    ]
    table = pa.table(
        {
            "s": pa.array([None, {"x": 1}], fields[0].type),
            "l": pa.array([None, [1]], fields[1].type),
            "m": pa.array([None, [("k", 1)]], fields[2].type),
        },
        schema=pa.schema(fields),
    )

    assert adapted(table).to_pylist() == table.to_pylist()


def test_nulls_outside_of_a_slice_are_no_lack() -> None:
    target = schema_of(pa.schema([pa.field("c", pa.list_(REQUIRED))]))
    table = pa.table({"c": pa.array([[None], [1], [2]], pa.list_(pa.int64()))}).slice(1)

    assert adapted(table, target).column("c").to_pylist() == [[1], [2]]


def test_columns_that_are_missing_are_null_and_others_move() -> None:
    target = schema_of(
        pa.schema([("a", pa.int64()), ("b", pa.string()), ("l", NESTED.field("l").type)])
    )
    out = adapted(pa.table({"b": ["x"], "a": pa.array([1], pa.int8())}), target)

    assert out.to_pylist() == [{"a": 1, "b": "x", "l": None}]
    assert out.schema == arrow_schema(target)


def test_an_empty_batch_has_a_shape() -> None:
    assert len(adapted(NESTED.empty_table())) == 0
