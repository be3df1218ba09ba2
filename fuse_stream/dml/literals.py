"""New values of columns, written as SQL literals."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from decimal import Decimal

import pyarrow as pa

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.schema import NESTED, Column, Schema
from fuse_stream.predicate.casts import cast_literal
from fuse_stream.predicate.parse import parse_literal
from fuse_stream.predicate.times import zone_of
from fuse_stream.reading.scan import project

_FORMS = "1, 2.5, 'text', TRUE, NULL, DATE '2026-01-31', TIMESTAMP '2026-01-31 09:00:00', X'1F'"


def read_values(
    schema: Schema, texts: Mapping[str, str], *, time_zone: str = "UTC"
) -> dict[str, pa.Scalar]:
    """Return the value of each SQL literal in the type of its column, by the name given.

    A text in quotes may also be a date, a time, a number or a boolean, if the column is one.

    Raises:
        InvalidInputError: there is no such column, the text is not a literal, or its value does not
            fit the column.
    """
    zone = zone_of(time_zone)
    return {name: _read(schema, name, text, zone) for name, text in texts.items()}


def _read(schema: Schema, name: str, text: str, zone: tzinfo) -> pa.Scalar:
    chosen = project(schema, [name])
    (column,), (field,) = chosen.columns, arrow_schema(chosen)
    try:
        literal = parse_literal(text)
    except InvalidInputError as error:
        raise InvalidInputError(
            "the new value of a column is not a SQL literal; a text needs quotes around it",
            column=name,
            value=text[:100],
            literals=_FORMS,
        ) from error
    if literal.value is None:
        return pa.scalar(None, field.type)
    if column.type in NESTED:
        raise InvalidInputError(
            "a list, map or struct has no SQL literal but NULL; set it with Table.update",
            column=name,
            type=column.type,
        )
    try:
        value = cast_literal(literal, column.type, zone)
    except InvalidInputError as error:
        raise _misfit(column, text) from error
    is_exact = isinstance(literal.value, Decimal | int) and isinstance(value, Decimal | int)
    if is_exact and value != literal.value:  # a decimal would be rounded
        raise _misfit(column, text)
    return pa.scalar(value, field.type)


def _misfit(column: Column, text: str) -> InvalidInputError:
    return InvalidInputError(
        "the new value does not fit its column; write a literal of the column's type",
        column=column.name,
        type=column.type,
        value=text[:100],
        literals=_FORMS,
    )
