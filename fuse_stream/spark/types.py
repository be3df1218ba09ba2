"""Conversion of types and names between Spark and the format."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as spark

from fuse_stream.errors import UnsupportedTypeError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.schema import ARRAY, MAP, STRUCT, Column, Schema, decimal_of

_PRIMITIVES: dict[type[spark.DataType], str] = {
    spark.BooleanType: "boolean",
    spark.ByteType: "byte",
    spark.ShortType: "short",
    spark.IntegerType: "integer",
    spark.LongType: "long",
    spark.FloatType: "float",
    spark.DoubleType: "double",
    spark.StringType: "string",
    spark.VarcharType: "string",
    spark.CharType: "string",
    spark.BinaryType: "binary",
    spark.DateType: "date",
    spark.TimestampType: "timestamp",
    spark.TimestampNTZType: "timestamp_ntz",
}
_SPARK_PRIMITIVES = {name: cls() for cls, name in _PRIMITIVES.items() if name != "string"} | {
    "string": spark.StringType()
}
_BINARY_COLLATION = "UTF8_BINARY"


def columns_of_spark(schema: spark.StructType) -> tuple[Column, ...]:
    """Return a Spark schema as columns; the ids count from 1, depth first.

    Raises:
        UnsupportedTypeError: a column's type is not one of the format's; names the column.
    """
    ids = iter(range(1, 1_000_000_000))
    return tuple(_column(field, ids.__next__, field.name) for field in schema.fields)


def spark_schema(schema: Schema, *, has_comments: bool = False) -> spark.StructType:
    """Return the schema of a table in Spark's types, without column ids."""
    return spark.StructType([_field(column, has_comments) for column in schema.columns])


def spark_schema_of(schema: pa.Schema) -> spark.StructType:
    """Return an Arrow schema in Spark's types.

    Raises:
        UnsupportedTypeError: a column's type is not one of the format's.
    """
    return spark_schema(first_schema(columns_of_arrow(schema)))


def _column(field: spark.StructField, new_id: Callable[[], int], path: str) -> Column:
    column_id = new_id()
    type_name, parts = _described(field.dataType, path)
    return Column(
        id=column_id,
        name=field.name,
        type=type_name,
        nullable=field.nullable,
        children=tuple(_column(part, new_id, f"{path}.{part.name}") for part in parts),
    )


def _described(data_type: spark.DataType, path: str) -> tuple[str, list[spark.StructField]]:
    if isinstance(data_type, spark.UserDefinedType):
        raise _unsupported(data_type, path)
    if isinstance(data_type, spark.StructType) and data_type.fields:
        return STRUCT, data_type.fields
    if isinstance(data_type, spark.ArrayType):
        element = spark.StructField("element", data_type.elementType, data_type.containsNull)
        return ARRAY, [element]
    if isinstance(data_type, spark.MapType):
        key = spark.StructField("key", data_type.keyType, nullable=False)
        value = spark.StructField("value", data_type.valueType, data_type.valueContainsNull)
        return MAP, [key, value]
    if isinstance(data_type, spark.DecimalType) and 0 <= data_type.scale <= data_type.precision:
        return f"decimal({data_type.precision},{data_type.scale})", []
    name = _PRIMITIVES.get(type(data_type))
    collation = getattr(data_type, "collation", _BINARY_COLLATION)
    if name is None or collation != _BINARY_COLLATION:
        raise _unsupported(data_type, path)
    return name, []


def _field(column: Column, has_comments: bool) -> spark.StructField:  # noqa: FBT001 - private
    is_told = has_comments and column.comment is not None
    metadata = {"comment": column.comment} if is_told else None
    data_type = _data_type(column, has_comments)
    return spark.StructField(column.name, data_type, column.nullable, metadata)


def _data_type(column: Column, has_comments: bool) -> spark.DataType:  # noqa: FBT001 - private
    if column.type == STRUCT:
        return spark.StructType([_field(child, has_comments) for child in column.children])
    if column.type == ARRAY:
        element = column.children[0]
        return spark.ArrayType(_data_type(element, has_comments), element.nullable)
    if column.type == MAP:
        key, value = (_data_type(child, has_comments) for child in column.children)
        return spark.MapType(key, value, column.children[1].nullable)
    if decimal := decimal_of(column.type):
        return spark.DecimalType(*decimal)
    return _SPARK_PRIMITIVES[column.type]


def _unsupported(data_type: spark.DataType, path: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        "the format does not support this column type; cast the column, or leave it out",
        column=path,
        type=data_type.simpleString(),
    )


def is_case_sensitive(session: SparkSession) -> bool:
    """True if names that differ only in case are different names in `session`."""
    # A setting keeps the case in which it was given, such as "TRUE".
    return str(session.conf.get("spark.sql.caseSensitive", "false")).strip().lower() == "true"


def quoted(name: str) -> str:
    """Return a column's name quoted for SQL; any characters are allowed."""
    return "`" + name.replace("`", "``") + "`"


def unused_name(name: str, names: Collection[str]) -> str:
    """Return `name`, with underscores appended until it is none of `names`."""
    while name in names:
        name += "_"
    return name
