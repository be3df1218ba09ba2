"""The columns of Kafka that carry events, and JSON as Spark's variants.

Rules:
- JSON goes through `try_parse_json`: numbers keep all digits, and text that is no JSON, or has a
  name twice in one object, is null. No setting of the session changes what a message means.
- Variants are taken apart by constant paths; names of columns are only ever keys of maps.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as spark_types
from pyspark.sql.functions import (
    base64,
    col,
    concat,
    is_valid_utf8,
    lit,
    struct,
    to_json,
    translate,
    try_parse_json,
    try_variant_get,
    when,
)

from fuse_stream.errors import InvalidInputError
from fuse_stream.spark.types import quoted

TEXT, KEY, RAW, SOURCE, OFFSET = "text", "key", "raw", "source", "offset"
"""Columns of `messages_of`."""

OBJECT = "map<string,string>"
"""An object's fields as text: strings unquoted, other values as JSON, a JSON null as null."""

_END = "$.end"
_JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd",
}
_BINARY_PREFIX = "base64:"


def messages_of(df: DataFrame) -> DataFrame:
    """Return messages as `text`, `key`, `raw`, `source` and `offset`.

    `text` is null where the value is null, and empty where it is no UTF-8.

    Raises:
        InvalidInputError: there is no column `value`, or a column has an unexpected type.
    """
    fields = {field.name.lower(): field for field in df.schema.fields}
    if "value" not in fields:
        raise InvalidInputError(
            "the DataFrame has no column value; pass the columns of Kafka's source as they are",
            columns=df.columns,
        )
    value = _as_text(fields["value"])
    key = _as_text(fields["key"]) if "key" in fields else lit(None).cast("string")
    is_text = is_valid_utf8(value)
    raw = when(is_text, value).otherwise(concat(lit(_BINARY_PREFIX), one_line_base64(value)))
    offset = _position(fields, "offset", "bigint")
    source = struct(
        _position(fields, "topic", "string").alias("topic"),
        _position(fields, "partition", "int").alias("partition"),
        offset.alias("offset"),
    )
    return df.select(
        when(is_text, value).when(value.isNotNull(), lit("")).alias(TEXT),
        when(is_valid_utf8(key), key).alias(KEY),
        raw.alias(RAW),
        source.alias(SOURCE),
        offset.alias(OFFSET),
    )


def _as_text(field: spark_types.StructField) -> Column:
    value = col(field.name)
    match field.dataType:
        case spark_types.StringType():
            return value
        case spark_types.BinaryType():
            return value.cast("string")
        case spark_types.StructType():  # decoded by the user, as from_avro does
            return to_json(value, _JSON_OPTIONS)
        case other:
            raise InvalidInputError(
                "a message is text, binary, or a struct that was decoded before; cast the column",
                column=field.name,
                type=other.simpleString(),
            )


def _position(fields: dict[str, spark_types.StructField], name: str, type_name: str) -> Column:
    value = col(fields[name].name) if name in fields else lit(None)
    return value.try_cast(type_name)


def one_line_base64(text: Column) -> Column:
    """Return the bytes of a text in base64, without the line breaks that a setting may ask for."""
    return translate(base64(text.cast("binary")), "\r\n", "")


def parse_message(text: Column) -> Column:
    """Return a whole text as a variant in `$.event`; null if it is not one JSON value.

    The parser stops after the first value and does not look at what follows. So the text stands
    inside of an object that ends with a mark, which must be found.
    """
    parsed = try_parse_json(concat(lit('{"event":'), text, lit(',"end":1}')))
    return when(try_variant_get(parsed, _END, "int") == 1, parsed)


def member(variant: Column, path: str, type_name: str = "string") -> Column:
    """Return a part of a variant in a type; null if it is missing, null, or of another type."""
    return try_variant_get(variant, path, type_name)


def object_of(text: Column) -> Column:
    """Return the fields of a JSON object; null if the text is none."""
    return member(parse_message(text), "$.event", OBJECT)


def nested_object_of(text: Column) -> Column:
    """Return the fields of an object within JSON that was read before; null if it is none."""
    return member(try_parse_json(text), "$", OBJECT)


def row_as_json(names: list[str]) -> Column:
    """Return a row's columns as an object in JSON."""
    return to_json(struct(*(col(quoted(name)) for name in names)), _JSON_OPTIONS)
