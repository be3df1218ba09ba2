"""The schema of a table that events are read for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import types as spark_types

from fuse_stream.cdc.rows import RESERVED
from fuse_stream.errors import InvalidInputError
from fuse_stream.format.names import nearest
from fuse_stream.format.schema import MAP, Column
from fuse_stream.spark.collect import SPARK_ERRORS
from fuse_stream.spark.types import columns_of_spark, is_case_sensitive
from fuse_stream.spark.where import reason_of


def read_schema(df: DataFrame, schema: spark_types.StructType | str) -> spark_types.StructType:
    """Return the columns of the table.

    Raises:
        InvalidInputError: the text is no schema, or a name is reserved or there twice.
        UnsupportedTypeError: the format does not have a column's type.
    """
    if isinstance(schema, str):
        try:
            schema = df.sparkSession.createDataFrame([], schema).schema
        except SPARK_ERRORS as error:
            raise InvalidInputError(
                "schema is no list of columns such as 'id bigint, name string'",
                schema=schema,
                reason=reason_of(error),
            ) from error
    given: object = schema
    if not isinstance(given, spark_types.StructType) or not schema.fields:
        raise InvalidInputError(
            "schema is a StructType or a text such as 'id bigint, name string'", schema=schema
        )
    columns_of_spark(schema)
    check_names(df, schema.names)
    return schema


def check_names(df: DataFrame, names: Iterable[str]) -> None:
    """Raise `InvalidInputError` for a reserved name or one that is there twice."""
    is_exact = is_case_sensitive(df.sparkSession)
    seen: set[str] = set()
    for name in names:
        folded = name if is_exact else name.casefold()
        if folded in RESERVED or name.startswith("_fuse_"):
            raise InvalidInputError(
                "a column has a name that the events need; rename it", column=name
            )
        if folded in seen:
            raise InvalidInputError("schema names a column twice", column=name)
        seen.add(folded)


def check_keys(schema: spark_types.StructType, keys: Iterable[str] | None) -> tuple[str, ...]:
    """Return the key columns, in order.

    Raises:
        InvalidInputError: there is none, or one is not in the schema.
    """
    if isinstance(keys, str) or keys is None:
        raise InvalidInputError("keys is a list of column names, such as ['id']", keys=keys)
    found = tuple(keys)
    unknown = [key for key in found if key not in schema.names]
    if unknown or not found:
        raise InvalidInputError(
            "keys name columns of the schema, at least one",
            column=unknown[0] if unknown else None,
            nearest=nearest(unknown[0], schema.names) if unknown else None,
            keys=list(found),
            columns=schema.names,
        )
    return found


def table_columns(schema: spark_types.StructType) -> tuple[Column, ...]:
    """Return the columns of a table, as those of rows of events."""
    return _nullable(columns_of_spark(schema))


def _nullable(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return columns that may be null, at any depth: an event need not have a value for them."""
    return tuple(
        replace(
            column,
            nullable=True,
            children=column.children[:1] + _nullable(column.children[1:])
            if column.type == MAP  # its keys are never null
            else _nullable(column.children),
        )
        for column in columns
    )
