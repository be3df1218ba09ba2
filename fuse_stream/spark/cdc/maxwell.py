"""Events of Maxwell's daemon: `from_maxwell`.

Source: docs/dataformat.md of zendesk/maxwell.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import types as spark_types
from pyspark.sql.functions import (
    array,
    coalesce,
    col,
    concat,
    explode,
    lit,
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
    UNKNOWN_OP,
    UNREADABLE,
    UPSERT,
    WHOLE,
    Reading,
    rows_of,
)
from fuse_stream.spark.cdc.messages import OBJECT, member
from fuse_stream.spark.cdc.options import is_of_table, names_of
from fuse_stream.spark.cdc.schema import check_keys, read_schema

_UPSERTS = ("insert", "update", "bootstrap-insert")
_NO_EVENT = r"^(bootstrap-(start|complete)|heartbeat|(table|database)-(create|alter|drop))$"


def from_maxwell(
    df: DataFrame,
    schema: spark_types.StructType | str,
    *,
    keys: Iterable[str],
    table: str | None = None,
    sequence: str = order.AUTO,
    ignore_fields: bool = False,
    ignore: Iterable[str] = (),
    time_zone: str = "UTC",
) -> DataFrame:
    """Return the events of a topic of Maxwell's daemon as rows, like `from_debezium`.

    An update that changes the key (`old` has one of its columns) is two rows: a delete of the old
    key and an upsert.

    Args:
        df: the columns of Kafka's source, batch or streaming: `value`, and `topic`, `partition` and
            `offset` if there.
        schema: the columns of the table, as a StructType or as text.
        keys: the columns of the key.
        table: `database.table` or `table`: events of other tables are passed over. None if the
            topic has one table only.
        sequence: `auto`, the position in the binlog (run Maxwell with `output_binlog_position`), or
            `offset`, the place in Kafka's topic.
        ignore_fields: leave out fields that `schema` does not have; else such an event is an error.
        ignore: names of fields to leave out.
        time_zone: the zone of timestamps: Maxwell writes none.

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
        form=Form(zone=time_zone, ignore_fields=ignore_fields),
        keys=check_keys(columns, keys),
        ignore=names_of("ignore", ignore),
    )
    read = _messages(messages.messages_of(df), table)
    return rows_of(_events(read, reading.keys, sequence), reading)


def _messages(read: DataFrame, table: str | None) -> DataFrame:
    kept = (messages.RAW, messages.SOURCE, messages.OFFSET)
    parsed = read.select(
        *kept,
        col(messages.TEXT).isNull().alias("is_null"),
        messages.parse_message(col(messages.TEXT)).alias("parsed"),
    )
    root = col("parsed")
    found = parsed.select(
        *(*kept, "is_null", "parsed"),
        member(root, "$.event.type").alias("code"),
        member(root, "$.event.data", OBJECT).alias("data"),
        member(root, "$.event.old", OBJECT).alias("old"),
    )
    is_no_event = col("code").rlike(_NO_EVENT)
    if table is not None:
        names = (member(root, "$.event.database"), member(root, "$.event.table"))
        is_no_event = is_no_event | ~is_of_table(table, *names)
    no = lit(False)  # noqa: FBT003 - a literal
    return kept_where(found, ~col("is_null") & ~coalesce(is_no_event, no))


def _events(found: DataFrame, keys: tuple[str, ...], sequence: str) -> DataFrame:
    root, offset = col("parsed"), col(messages.OFFSET)
    seq = (
        order.by_offset(offset)
        if sequence == order.OFFSET
        else order.of_maxwell(
            member(root, "$.event.position"),
            member(root, "$.event.xoffset"),
            member(root, "$.event.commit") == "true",
            offset,
        )
    )
    op = when(col("code").isin(*_UPSERTS), lit(UPSERT)).when(col("code") == "delete", lit(DELETE))
    is_changed = (col("code") == "update") & has_other_key(col("old"), col("data"), keys)
    ops = when(is_changed, array(lit(DELETE), lit(UPSERT))).otherwise(array(op))
    each = found.select(
        *(messages.RAW, messages.SOURCE, "code", "data", "old"),
        seq.alias(SEQ),
        op.isNull().alias("is_unknown"),
        root.isNull().alias("is_unreadable"),
        explode(ops).alias(OP),
    )
    is_old = (col("code") == "update") & (col(OP) == DELETE)
    fault = (
        when(col("is_unreadable"), lit(UNREADABLE))
        .when(col("code").isNull(), lit(UNKNOWN_OP))
        .when(col("is_unknown"), concat(lit(f"{UNKNOWN_OP}: "), col("code")))
        .when(col("data").isNull(), lit(UNREADABLE))
    )
    return each.select(
        *(messages.RAW, messages.SOURCE, OP, SEQ),
        fault.alias(FAULT),
        when(is_old, row_before(col("data"), col("old"))).otherwise(col("data")).alias(IMAGE),
        lit(False).alias(WHOLE),  # noqa: FBT003 - a literal
    )
