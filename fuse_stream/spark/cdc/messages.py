"""Messages as Kafka's source gives them, and the rows of their events."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import types as spark_types
from pyspark.sql.functions import col, lit, struct, to_json

from fuse_stream.cdc.message import Message
from fuse_stream.cdc.rows import Reading
from fuse_stream.errors import InvalidInputError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.schema import Schema
from fuse_stream.spark.types import quoted, spark_schema

_MESSAGES = 2_000
"""Read at a time: as Python's objects they need several times their size."""
_JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd",
}


def rows_of(df: DataFrame, reading: Reading) -> DataFrame:
    """Return the rows of the events that a reader finds in messages.

    Raises:
        InvalidInputError: there is no column `value`, or a column has an unexpected type.
    """
    columns = columns_of_arrow(reading.arrow_schema)
    rows = Schema(id=0, last_column_id=len(columns), columns=columns)
    return messages_of(df).mapInArrow(_reads(reading), spark_schema(rows))


def _reads(reading: Reading) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for start in range(0, batch.num_rows, _MESSAGES):
                part = batch.slice(start, _MESSAGES)
                columns = (part.column(name).to_pylist() for name in Message._fields)
                yield reading.rows(map(Message, *columns))

    return read


def messages_of(df: DataFrame) -> DataFrame:
    """Return messages with the columns of `Message`.

    Raises:
        InvalidInputError: there is no column `value`, or a column has an unexpected type.
    """
    fields = {field.name.lower(): field for field in df.schema.fields}
    if "value" not in fields:
        raise InvalidInputError(
            "the DataFrame has no column value; pass the columns of Kafka's source as they are",
            columns=df.columns,
        )
    key = _in_bytes(fields["key"]) if "key" in fields else lit(None).cast("binary")
    return df.select(
        _in_bytes(fields["value"]).alias("value"),
        key.alias("key"),
        _position(fields, "topic", "string"),
        _position(fields, "partition", "int"),
        _position(fields, "offset", "bigint"),
    )


def _in_bytes(field: spark_types.StructField) -> Column:
    value = col(quoted(field.name))
    match field.dataType:
        case spark_types.StringType() | spark_types.BinaryType():
            return value.cast("binary")
        case spark_types.StructType():  # decoded by the user, as from_avro does
            return to_json(value, _JSON_OPTIONS).cast("binary")
        case other:
            raise InvalidInputError(
                "a message is text, binary, or a struct that was decoded before; cast the column",
                column=field.name,
                type=other.simpleString(),
            )


def _position(fields: dict[str, spark_types.StructField], name: str, type_name: str) -> Column:
    value = col(quoted(fields[name].name)) if name in fields else lit(None)
    return value.try_cast(type_name).alias(name)


def row_as_json(names: list[str]) -> Column:
    """Return a row's columns as an object in JSON."""
    return to_json(struct(*(col(quoted(name)) for name in names)), _JSON_OPTIONS)
