"""Events of AWS Database Migration Service: `from_dms`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import types as spark_types

from fuse_stream.cdc import dms
from fuse_stream.cdc import sequence as order
from fuse_stream.cdc.rows import Reading
from fuse_stream.cdc.values import Form
from fuse_stream.predicate.times import zone_of
from fuse_stream.spark.cdc.messages import rows_of
from fuse_stream.spark.cdc.options import (
    BINARY_FORMATS,
    MISSING,
    check_choice,
    names_of,
)
from fuse_stream.spark.cdc.schema import check_keys, read_schema, table_columns


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
    key = check_keys(columns, keys)
    reading = Reading(
        read=partial(
            dms.events_of,
            keys=key,
            table=table,
            is_whole=check_choice("missing", missing, MISSING) == "null",
            before_image=before_image,
        ),
        columns=table_columns(columns),
        form=Form(
            zone=time_zone,
            binary=BINARY_FORMATS[check_choice("binary", binary, BINARY_FORMATS)],
            ignore_fields=ignore_fields,
        ),
        keys=key,
        ignore=names_of("ignore", ignore),
    )
    return rows_of(df, reading)
