"""Events of Maxwell's daemon: `from_maxwell`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import types as spark_types

from fuse_stream.cdc import maxwell
from fuse_stream.cdc import sequence as order
from fuse_stream.cdc.rows import Reading
from fuse_stream.cdc.values import Form
from fuse_stream.predicate.times import zone_of
from fuse_stream.spark.cdc.messages import rows_of
from fuse_stream.spark.cdc.options import names_of
from fuse_stream.spark.cdc.schema import check_keys, read_schema, table_columns


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
    key = check_keys(columns, keys)
    by_offset = sequence == order.OFFSET
    reading = Reading(
        read=partial(maxwell.events_of, keys=key, table=table, by_offset=by_offset),
        columns=table_columns(columns),
        form=Form(zone=time_zone, ignore_fields=ignore_fields),
        keys=key,
        ignore=names_of("ignore", ignore),
    )
    return rows_of(df, reading)
