"""What an update takes: values that fit their columns, nested ones and nulls among them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pytest

from fuse_stream.errors import InvalidInputError
from fuse_stream.table.handle import Table

Create = Callable[..., Table]
INNER = pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("small", pa.int8()),
        ("real", pa.float32()),
        ("price", pa.decimal128(6, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("text", pa.string()),
        ("inner", INNER),
        ("list", pa.list_(pa.int32())),
    ]
)
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


@pytest.fixture
def table(create: Create) -> Table:
    made = create(SCHEMA)
    made.append(pa.Table.from_pylist([{"id": 1}, {"id": 2}], schema=SCHEMA))
    return made


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("small", 5),
        ("small", None),
        ("real", 0.5),
        ("real", 3),
        ("price", Decimal("1.25")),
        ("price", 7),
        ("day", dt.date(2026, 1, 1)),
        ("at", NOON),
        ("text", "x"),
        ("inner", {"a": 1, "b": None}),
        ("list", [1, 2]),
        ("list", pa.scalar([3], pa.list_(pa.int64()))),
    ],
)
def test_a_value_that_fits_is_set(table: Table, column: str, value: object) -> None:
    table.update("id = 1", {column: value})

    plain = value.as_py() if isinstance(value, pa.Scalar) else value
    assert table.to_arrow(where="id = 1")[column].to_pylist() == [plain]
    assert table.to_arrow(where="id = 2")[column].to_pylist() == [None]


def test_a_struct_whose_part_must_not_be_null_can_be_null(table: Table) -> None:
    table.update("id = 1", {"inner": {"a": 1, "b": "x"}})
    table.update("true", {"inner": None})

    assert table.to_arrow()["inner"].to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("id", None),
        ("small", 300),
        ("small", 1.5),
        ("small", True),
        ("small", "5"),
        ("price", 1.5),
        ("price", Decimal("1.234")),
        ("day", NOON),
        ("at", dt.datetime(2026, 1, 1)),  # noqa: DTZ001 - without a zone
        ("at", 5),
        ("text", 5),
        ("text", b"x"),
        ("inner", {"a": None, "b": "x"}),
        ("inner", {"a": 1}),
        ("inner", {"c": 1}),
        ("list", [1.5]),
        ("nothing", 1),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_its_column(
    table: Table, column: str, value: object
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        table.update("id = 1", {column: value})

    assert caught.value.context["column"] in {column, "a"}
    assert table.head().version == 1


@pytest.mark.parametrize("values", [{}, None, [("id", 1)], "id = 1"])
def test_values_are_a_mapping_of_columns(table: Table, values: object) -> None:
    with pytest.raises(InvalidInputError, match="values names the columns"):
        table.update("id = 1", values)  # type: ignore[arg-type]


def test_rows_that_have_the_values_are_left_alone(table: Table) -> None:
    first = table.update("id = 1", {"text": "x", "real": float("nan")})
    again = table.update("true", {"text": "x", "real": float("nan")})

    assert (first.updated, again.updated) == (1, 1)
    assert table.update("true", {"text": "x", "real": float("nan")}).snapshot is None


def test_keys_that_python_cannot_hold_are_named_in_errors(create: Create) -> None:
    schema = pa.schema([("k", pa.timestamp("us"))])
    table = create(schema)
    table.append(pa.table([pa.array([2**62, 2**62]).cast(pa.timestamp("us"))], schema=schema))

    with pytest.raises(InvalidInputError, match="several rows") as caught:
        table.set_key(["k"])

    doubles = caught.value.context["doubles"]
    assert isinstance(doubles, list)
    assert len(doubles) == 1
