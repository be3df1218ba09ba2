"""The Arrow schema of a table's schema, and the conversion of Arrow tables to it.

Arrow has several types for one type of the format (large strings, dictionaries, other time units
and zones). An incoming table may have any of them, a block has one. A conversion that would lose a
value is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.errors import InvalidInputError, UnsupportedTypeError
from fuse_stream.format.schema import ARRAY, MAP, MAX_DEPTH, STRUCT, Column, Schema, decimal_of

FIELD_ID = b"PARQUET:field_id"

PRIMITIVES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_FORMAT_TYPES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "byte"),
    (pa.types.is_int16, "short"),
    (pa.types.is_int32, "integer"),
    (pa.types.is_int64, "long"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_string, "string"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_string_view, "string"),
    (pa.types.is_binary, "binary"),
    (pa.types.is_large_binary, "binary"),
    (pa.types.is_binary_view, "binary"),
    (pa.types.is_fixed_size_binary, "binary"),
    (pa.types.is_date, "date"),
)


@lru_cache(maxsize=256)
def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of a block of `schema`, with column ids in the field metadata."""
    return pa.schema([_field(column) for column in schema.columns])


def columns_of_arrow(schema: pa.Schema) -> tuple[Column, ...]:
    """Return the columns of an Arrow schema, with ids from 1 on, depth first.

    Raises:
        UnsupportedTypeError: the format has no such column type; the error names the column.
    """
    ids = iter(range(1, 1_000_000_000))
    return tuple(_column(field, ids.__next__, (field.name,)) for field in schema)


def adapt(table: pa.Table, columns: tuple[Column, ...], target: Schema) -> pa.Table:
    """Return `table`, whose columns are `columns`, converted to the schema `target`.

    Columns match by id. They are reordered and widened; a column that `table` lacks is null.

    Raises:
        InvalidInputError: a column that is not nullable has a null, or a value does not fit.
    """
    wanted = arrow_schema(target)
    at = {column.id: index for index, column in enumerate(columns)}
    arrays = []
    for column, field in zip(target.columns, wanted, strict=True):
        index = at.get(column.id)
        if index is None:
            chunked = pa.chunked_array([pa.nulls(len(table), field.type)], type=field.type)
        else:
            chunked = _adapt_chunks(table.column(index), columns[index], column, field.type)
        _require_values(column, chunked.null_count)
        arrays.append(chunked)
    return pa.Table.from_arrays(arrays, schema=wanted)


def child_fields(arrow: pa.DataType) -> list[pa.Field]:
    """Return the child fields of a type, named as in the format; none for a primitive type."""
    if pa.types.is_struct(arrow):
        return list(arrow)
    if pa.types.is_map(arrow):
        return [arrow.key_field.with_name("key"), arrow.item_field.with_name("value")]
    return [arrow.value_field.with_name("element")] if pa.types.is_nested(arrow) else []


def _field(column: Column) -> pa.Field:
    return pa.field(
        column.name, _type(column), column.nullable, metadata={FIELD_ID: str(column.id).encode()}
    )


def _type(column: Column) -> pa.DataType:
    if column.type == STRUCT:
        return pa.struct([_field(child) for child in column.children])
    if column.type == ARRAY:
        return pa.list_(_field(column.children[0]))
    if column.type == MAP:
        return pa.map_(*(_field(child) for child in column.children))
    if decimal := decimal_of(column.type):
        return pa.decimal128(*decimal)
    return PRIMITIVES[column.type]


def _column(field: pa.Field, new_id: Callable[[], int], path: tuple[str, ...]) -> Column:
    column_id = new_id()
    if len(path) > MAX_DEPTH:
        raise UnsupportedTypeError(
            f"a column has more than {MAX_DEPTH} levels of nested types; flatten the column",
            column=path[0],
        )
    type_name, children = _format_type(field.type, ".".join(path))
    return Column(
        id=column_id,
        name=field.name,
        type=type_name,
        nullable=field.nullable,
        children=tuple(_column(child, new_id, (*path, child.name)) for child in children),
    )


def _format_type(arrow: pa.DataType, path: str) -> tuple[str, list[pa.Field]]:
    types = pa.types
    for matches, type_name in _FORMAT_TYPES:
        if matches(arrow):
            return type_name, []
    if types.is_dictionary(arrow):
        return _format_type(arrow.value_type, path)
    if types.is_timestamp(arrow):
        return ("timestamp" if arrow.tz else "timestamp_ntz"), []
    if types.is_decimal(arrow) and arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return f"decimal({arrow.precision},{arrow.scale})", []
    if types.is_struct(arrow) and arrow.num_fields:
        return STRUCT, child_fields(arrow)
    if types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow):
        return ARRAY, child_fields(arrow)
    if types.is_map(arrow):
        return MAP, child_fields(arrow)
    raise UnsupportedTypeError(
        "the format has no such column type; cast the column, or leave it out",
        column=path,
        type=str(arrow),
    )


def _require_values(column: Column, null_count: int) -> None:
    if null_count and not column.nullable:
        raise InvalidInputError(
            "a column that is not nullable holds nulls; remove them, or create the table "
            "with the column nullable",
            column=column.name,
            null_count=null_count,
        )


def _adapt_chunks(
    chunked: pa.ChunkedArray, column: Column, target: Column, wanted: pa.DataType
) -> pa.ChunkedArray:
    if chunked.type.equals(wanted) and not target.children:
        return chunked
    return pa.chunked_array(
        [_adapt_array(chunk, column, target, wanted) for chunk in chunked.chunks], type=wanted
    )


def _adapt_array(array: pa.Array, column: Column, target: Column, wanted: pa.DataType) -> pa.Array:
    if array.type.equals(wanted) and not target.children:
        return array
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    if target.type == STRUCT:
        return _adapt_struct(array, column, target, wanted)
    if target.type == ARRAY:
        if not pa.types.is_list(array.type):
            array = array.cast(pa.list_(array.type.value_field))
        return _adapt_list(array, column, target, wanted)
    if target.type == MAP:
        return _adapt_map(array, column, target, wanted)
    try:
        return pc.cast(array, wanted)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            "a value does not fit the column's type without loss; cast the column yourself",
            column=target.name,
            type=target.type,
            reason=str(error),
        ) from error


def _adapt_list(array: pa.Array, column: Column, target: Column, wanted: pa.DataType) -> pa.Array:
    offsets, mask = _offsets_and_mask(array)
    (child,) = target.children
    element = _adapt_array(array.values, column.children[0], child, wanted.value_type)
    adapted = pa.ListArray.from_arrays(offsets, element, type=wanted, mask=mask)
    if not child.nullable:
        _require_values(child, adapted.flatten().null_count)
    return adapted


def _adapt_map(array: pa.Array, column: Column, target: Column, wanted: pa.DataType) -> pa.Array:
    offsets, mask = _offsets_and_mask(array)
    key, value = (
        _adapt_array(part, child, target_child, part_type)
        for part, child, target_child, part_type in zip(
            (array.keys, array.items),
            column.children,
            target.children,
            (wanted.key_type, wanted.item_type),
            strict=True,
        )
    )
    for child, part in zip(target.children, (key, value), strict=True):
        if not child.nullable:
            seen = pa.ListArray.from_arrays(offsets, part, mask=mask).flatten()
            _require_values(child, seen.null_count)
    return pa.MapArray.from_arrays(offsets, key, value, type=wanted, mask=mask)


def _offsets_and_mask(array: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    # Arrow rejects a mask together with sliced offsets, so these are copied.
    offsets = pc.add(array.offsets, 0) if array.offset else array.offsets
    return offsets, array.is_null() if array.null_count else None


def _adapt_struct(
    array: pa.StructArray, column: Column, target: Column, wanted: pa.DataType
) -> pa.Array:
    at = {child.id: index for index, child in enumerate(column.children)}
    parts = []
    for child, field in zip(target.children, wanted, strict=True):
        index = at.get(child.id)
        part = (
            pa.nulls(len(array), field.type)
            if index is None
            else _adapt_array(array.field(index), column.children[index], child, field.type)
        )
        if not child.nullable:  # the children of a null struct are null, which is allowed
            _require_values(child, part.filter(array.is_valid()).null_count)
        parts.append(part)
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=mask)
