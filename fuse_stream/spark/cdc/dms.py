"""Events of AWS Database Migration Service: `from_dms`.

Source: "Using Apache Kafka as a target" of the AWS DMS user guide.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as spark_types
from pyspark.sql.functions import (
    array,
    coalesce,
    col,
    concat,
    explode,
    lit,
    try_element_at,
    when,
)

from fuse_stream.predicate.times import zone_of
from fuse_stream.spark.cdc import messages
from fuse_stream.spark.cdc import sequence as order
from fuse_stream.spark.cdc.binding import kept_where
from fuse_stream.spark.cdc.casts import Form
from fuse_stream.spark.cdc.changed_keys import has_other_key, row_before
from fuse_stream.spark.cdc.events import (
    DELETE,
    FAULT,
    IMAGE,
    OP,
    SEQ,
    TRUNCATE,
    UNKNOWN_OP,
    UNREADABLE,
    UPSERT,
    WHOLE,
    Reading,
    rows_of,
)
from fuse_stream.spark.cdc.messages import OBJECT, member
from fuse_stream.spark.cdc.options import (
    BINARY_FORMATS,
    MISSING,
    check_choice,
    is_of_table,
    names_of,
)
from fuse_stream.spark.cdc.schema import check_keys, read_schema

_UPSERTS = ("load", "insert", "update")
_CONTROL = "control"
_TRUNCATES = ("truncate-table", "TruncateTable")


def from_dms(
    df: DataFrame,
    schema: spark_types.StructType | str,
    *,
    keys: Iterable[str],
    table: str | None = None,
    sequence: str = order.AUTO,
    missing: str = "unset",
    before_image: str = "before-image",
    ignore_fields: bool = False,
    ignore: Iterable[str] = (),
    binary: str = "base64",
    time_zone: str = "UTC",
) -> DataFrame:
    """Return the events of a task of AWS DMS with Kafka as target as rows, like `from_debezium`.

    An update that changes the key (`before-image` has one of its columns) is two rows: a delete of
    the old key and an upsert. The task needs `BeforeImageSettings`, or the old row stays.

    Args:
        df: the columns of Kafka's source, batch or streaming: `value` and `offset`, and `topic` and
            `partition` if there.
        schema: the columns of the table, as a StructType or as text.
        keys: the columns of the key.
        table: `schema.table` or `table`: events of other tables are passed over. None if the topic
            has one table only.
        sequence: `auto` or `offset`, which are one: the place in Kafka's topic.
        missing: what a column that is not in the event is: `unset`, so it keeps its value, or
            `null`. DMS leaves nulls out unless the endpoint has `IncludeNullAndEmpty`: set that, or
            state `null`.
        before_image: the field that has old values (`FieldName` of `BeforeImageSettings`).
        ignore_fields: leave out fields that `schema` does not have; else such an event is an error.
        ignore: names of fields to leave out.
        binary: how bytes are written: `base64`, `base64-url-safe` or `hex`.
        time_zone: the zone of timestamps that have none.

    Returns:
        The columns of `schema`, then `_op`, `_seq`, `_unset`, `_error`, `_raw` and `_source`.

    Raises:
        InvalidInputError: `df` has no column `value`, or an argument is wrong.
        UnsupportedTypeError: a table cannot have a column's type.
    """
    columns = read_schema(df, schema)
    order.check_sequence(sequence)
    zone_of(time_zone)
    reading = Reading(
        schema=columns,
        form=Form(
            zone=time_zone,
            binary=BINARY_FORMATS[check_choice("binary", binary, BINARY_FORMATS)],
            ignore_fields=ignore_fields,
        ),
        keys=check_keys(columns, keys),
        ignore=names_of("ignore", ignore),
    )
    is_whole = check_choice("missing", missing, MISSING) == "null"
    read = _messages(messages.messages_of(df), table, before_image)
    return rows_of(_events(read, reading.keys, is_whole=is_whole), reading)


def _messages(read: DataFrame, table: str | None, before_image: str) -> DataFrame:
    kept = (messages.RAW, messages.SOURCE, messages.OFFSET)
    parsed = read.select(
        *kept,
        col(messages.TEXT).isNull().alias("is_null"),
        messages.parse_message(col(messages.TEXT)).alias("parsed"),
    )
    root = col("parsed")
    found = parsed.select(
        *(*kept, "is_null"),
        root.isNull().alias("is_unreadable"),
        member(root, "$.event", OBJECT).alias("parts"),
        member(root, "$.event.metadata", OBJECT).alias("metadata"),
        member(root, "$.event.data", OBJECT).alias("data"),
    )
    operation, no = _metadata("operation"), lit(False)  # noqa: FBT003 - a literal
    is_truncate = coalesce(operation.isin(*_TRUNCATES), no)
    is_no_event = coalesce((_metadata("record-type") == _CONTROL) & ~is_truncate, no)
    if table is not None:
        is_of = is_of_table(table, _metadata("schema-name"), _metadata("table-name"))
        is_no_event = is_no_event | coalesce(~is_of, no)
    old = messages.nested_object_of(try_element_at(col("parts"), lit(before_image)))
    return kept_where(found, ~col("is_null") & ~is_no_event).select(
        *kept, "is_unreadable", "data", operation.alias("code"), old.alias("old")
    )


def _metadata(name: str) -> Column:
    return try_element_at(col("metadata"), lit(name))


def _events(found: DataFrame, keys: tuple[str, ...], *, is_whole: bool) -> DataFrame:
    op = (
        when(col("code").isin(*_UPSERTS), lit(UPSERT))
        .when(col("code") == "delete", lit(DELETE))
        .when(col("code").isin(*_TRUNCATES), lit(TRUNCATE))
    )
    is_changed = (col("code") == "update") & has_other_key(col("old"), col("data"), keys)
    ops = when(is_changed, array(lit(DELETE), lit(UPSERT))).otherwise(array(op))
    each = found.select("*", op.isNull().alias("is_unknown"), explode(ops).alias(OP))
    is_old = (col("code") == "update") & (col(OP) == DELETE)
    fault = (
        when(col("is_unreadable"), lit(UNREADABLE))
        .when(col("code").isNull(), lit(UNKNOWN_OP))
        .when(col("is_unknown"), concat(lit(f"{UNKNOWN_OP}: "), col("code")))
        .when((col(OP) != TRUNCATE) & col("data").isNull(), lit(UNREADABLE))
    )
    return each.select(
        *(messages.RAW, messages.SOURCE, OP),
        order.by_offset(col(messages.OFFSET)).alias(SEQ),
        fault.alias(FAULT),
        when(is_old, row_before(col("data"), col("old"))).otherwise(col("data")).alias(IMAGE),
        lit(is_whole).alias(WHOLE),
    )
