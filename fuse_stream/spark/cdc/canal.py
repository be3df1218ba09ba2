"""Events of Canal: `from_canal`.

Source: FlatMessage.java and MQMessageUtils.java of alibaba/canal. A message has the rows of one
event of the binlog, all values as text, and no position in the binlog.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import types as spark_types
from pyspark.sql.functions import (
    array,
    array_size,
    coalesce,
    col,
    concat,
    explode,
    get,
    lit,
    posexplode,
    when,
)

from fuse_stream.predicate.times import zone_of
from fuse_stream.spark.cdc import messages
from fuse_stream.spark.cdc import sequence as order
from fuse_stream.spark.cdc.binding import kept_where
from fuse_stream.spark.cdc.casts import LATIN_1, Form
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
from fuse_stream.spark.cdc.options import is_of_table, names_of
from fuse_stream.spark.cdc.schema import check_keys, read_schema

_UPSERTS = ("INSERT", "UPDATE")
_DDL = ("CREATE", "ALTER", "ERASE", "QUERY", "RENAME", "CINDEX", "DINDEX")
"""Canal's types of events that change a schema (`EventType` of its protocol)."""
_WATERMARK = "TIDB_WATERMARK"


def from_canal(
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
    """Return the events of a topic of Canal (flat messages in JSON) as rows, like `from_debezium`.

    A message has several rows; an update that changes the key (`old` has one of its columns) is two
    rows: a delete of the old key and an upsert. Also for TiCDC's `canal-json`.

    Args:
        df: the columns of Kafka's source, batch or streaming: `value` and `offset`, and `topic` and
            `partition` if there.
        schema: the columns of the table, as a StructType or as text.
        keys: the columns of the key.
        table: `database.table` or `table`: events of other tables are passed over. None if the
            topic has one table only.
        sequence: `auto` or `offset`, which are one: the place in Kafka's topic, for Canal's
            messages have no position.
        ignore_fields: leave out fields that `schema` does not have; else such an event is an error.
        ignore: names of fields to leave out.
        time_zone: the zone of timestamps: Canal writes none.

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
        form=Form(zone=time_zone, binary=LATIN_1, ignore_fields=ignore_fields),
        keys=check_keys(columns, keys),
        ignore=names_of("ignore", ignore),
    )
    read = _messages(messages.messages_of(df), table)
    return rows_of(_events(read, reading.keys), reading)


def _messages(read: DataFrame, table: str | None) -> DataFrame:
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
        member(root, "$.event.type").alias("code"),
        member(root, "$.event.isDdl").alias("is_ddl"),
        member(root, "$.event.data", f"array<{OBJECT}>").alias("data"),
        member(root, "$.event.old", f"array<{OBJECT}>").alias("old"),
        member(root, "$.event.database").alias("database"),
        member(root, "$.event.table").alias("table"),
    )
    is_no_event = col("code").isin(*_DDL) & (col("is_ddl") == "true")
    is_no_event = is_no_event | (col("code") == _WATERMARK)
    if table is not None:
        is_no_event = is_no_event | ~is_of_table(table, col("database"), col("table"))
    no = lit(False)  # noqa: FBT003 - a literal
    return kept_where(found, ~col("is_null") & ~coalesce(is_no_event, no))


def _events(found: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    op = (
        when(col("code").isin(*_UPSERTS), lit(UPSERT))
        .when(col("code") == "DELETE", lit(DELETE))
        .when(col("code") == "TRUNCATE", lit(TRUNCATE))
    )
    # Canal leaves old values out where nothing changed: then it is not known whose the others are.
    is_mismatch = array_size(col("old")).between(1, array_size(col("data")) - 1)
    is_clear = (col("code") != "UPDATE") | ~coalesce(is_mismatch, lit(False))  # noqa: FBT003
    has_rows = op.isin(UPSERT, DELETE) & (array_size(col("data")) > 0) & is_clear
    no_row = array(lit(None).cast(OBJECT))
    kept = (messages.RAW, messages.SOURCE, messages.OFFSET, "code", "is_unreadable")
    rows = found.select(
        *kept,
        "old",
        op.alias("op_of_message"),
        posexplode(when(has_rows, col("data")).otherwise(no_row)).alias("row", "data"),
    )
    with_old = rows.withColumn("old", get(col("old"), col("row")))
    is_changed = (col("code") == "UPDATE") & has_other_key(col("old"), col("data"), keys)
    ops = when(is_changed, array(lit(DELETE), lit(UPSERT))).otherwise(array(col("op_of_message")))
    each = with_old.select(*kept, "row", "data", "old", "op_of_message", explode(ops).alias(OP))
    is_old = (col("code") == "UPDATE") & (col(OP) == DELETE)
    fault = (
        when(col("is_unreadable"), lit(UNREADABLE))
        .when(col("code").isNull(), lit(UNKNOWN_OP))
        .when(col("op_of_message").isNull(), concat(lit(f"{UNKNOWN_OP}: "), col("code")))
        .when((col("op_of_message") != TRUNCATE) & col("data").isNull(), lit(UNREADABLE))
    )
    return each.select(
        *(messages.RAW, messages.SOURCE, OP),
        order.by_offset(col(messages.OFFSET), col("row").cast("bigint")).alias(SEQ),
        fault.alias(FAULT),
        when(is_old, row_before(col("data"), col("old"))).otherwise(col("data")).alias(IMAGE),
        lit(False).alias(WHOLE),  # noqa: FBT003 - a literal
    )
