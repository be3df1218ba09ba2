"""An aggregate over a table with one schema: its columns, and the types of its result. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.indexes import IndexColumn
from fuse_stream.format.schema import NESTED, Column, Schema, decimal_of

INTEGERS = frozenset({"byte", "short", "integer", "long"})
FLOATS = frozenset({"float", "double"})
MOMENTS = frozenset({"stddev_samp", "stddev_pop", "var_samp", "var_pop"})
_LONGEST = 38
"""Digits of the longest decimal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundColumn:
    """A column of the result of an aggregate."""

    shown: IndexColumn
    column: Column | None
    """The table's column; None for `count(*)`."""
    result: Column

    @property
    def is_key(self) -> bool:
        """True for a column by which rows are grouped."""
        return self.shown.function is None

    @property
    def source_type(self) -> str:
        """The type of the table's column."""
        return "long" if self.column is None else self.column.type


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """An aggregate over a table with one schema."""

    columns: tuple[BoundColumn, ...]
    """Those of the result, in order."""
    read: Schema
    """The columns of the table that it needs."""
    types: tuple[str, ...]
    """Their types, in the order of `IndexDefinition.column_ids`."""

    @property
    def result(self) -> pa.Schema:
        """The Arrow schema of the result, without ids of columns."""
        return pa.schema(
            [
                pa.field(one.shown.name, arrow_type(one.result), one.result.nullable)
                for one in self.columns
            ]
        )

    @property
    def keys(self) -> tuple[BoundColumn, ...]:
        """The columns by which rows are grouped."""
        return tuple(one for one in self.columns if one.is_key)

    @property
    def key_schema(self) -> Schema:
        """These columns under their names in the result, with the ids of the table's columns."""
        columns = tuple(
            replace(one.column, name=one.shown.name) for one in self.keys if one.column is not None
        )
        return Schema(id=self.read.id, last_column_id=self.read.last_column_id, columns=columns)


def bind(columns: Sequence[IndexColumn], schema: Schema) -> Aggregate:
    """Return the aggregate with these columns over a table with `schema`.

    Raises:
        InvalidInputError: the table has no such column, in this version; or a function takes no
            column of this type.
    """
    known = {column.id: column for column in schema.columns}
    bound = []
    for at, shown in enumerate(columns, 1):
        column = None if shown.column is None else known.get(shown.column)
        if shown.column is not None and (column is None or column.stored_name != shown.stored):
            raise InvalidInputError(
                "this version of the table lacks a column of the aggregate; name a version that "
                "has it, or drop the index",
                column=shown.name,
                columns=list(schema.visible.names()),
            )
        result = Column(
            id=at,
            name=shown.name,
            type=result_type(shown.function, column),
            nullable=_is_nullable(shown.function, column),
        )
        bound.append(BoundColumn(shown=shown, column=column, result=result))
    ids = dict.fromkeys(one.column.id for one in bound if one.column is not None)
    return Aggregate(
        columns=tuple(bound),
        read=Schema(
            id=schema.id,
            last_column_id=schema.last_column_id,
            columns=tuple(column for column in schema.columns if column.id in ids),
        ),
        types=tuple(known[column].type for column in ids),
    )


def result_type(function: str | None, column: Column | None) -> str:
    """Return the type of a column of the result, which is Spark's.

    Raises:
        InvalidInputError: the function takes no column of this type.
    """
    if function == "count" or column is None:
        return "long"
    decimal = decimal_of(column.type)
    is_number = column.type in INTEGERS | FLOATS or decimal is not None
    found = None
    if function in {None, "min", "max"} and column.type not in NESTED:
        found = column.type
    elif function in MOMENTS and is_number:
        found = "double"
    elif function == "sum" and is_number:
        found = _sum_type(column.type, decimal)
    elif function == "avg" and is_number:
        found = "double" if decimal is None else _decimal(decimal[0] + 4, decimal[1] + 4)
    if found is None:
        raise InvalidInputError(
            "an aggregate cannot use a column of this type so: sums, averages and deviations are "
            "of numbers, and nothing but a count is of structs, arrays and maps",
            column=column.name,
            type=column.type,
            function=function or "GROUP BY",
        )
    return found


def arrow_type(column: Column) -> pa.DataType:
    """Return the Arrow type of a column."""
    one = Schema(id=0, last_column_id=column.id, columns=(column,))
    return arrow_schema(one).field(0).type


def _sum_type(name: str, decimal: tuple[int, int] | None) -> str:
    if decimal is not None:
        return _decimal(decimal[0] + 10, decimal[1])
    return "double" if name in FLOATS else "long"


def _decimal(digits: int, scale: int) -> str:
    return f"decimal({min(_LONGEST, digits)},{min(_LONGEST, scale)})"


def _is_nullable(function: str | None, column: Column | None) -> bool:
    if function is None:
        return column is None or column.nullable
    return function != "count"
