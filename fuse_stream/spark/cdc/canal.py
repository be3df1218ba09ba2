"""Events of Canal: `from_canal`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import types as spark_types

from fuse_stream.cdc import canal
from fuse_stream.cdc import sequence as order
from fuse_stream.cdc.binary import LATIN_1
from fuse_stream.cdc.rows import Reading
from fuse_stream.cdc.values import Form
from fuse_stream.predicate.times import zone_of
from fuse_stream.spark.cdc.messages import rows_of
from fuse_stream.spark.cdc.options import names_of
from fuse_stream.spark.cdc.schema import check_keys, read_schema, table_columns


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
    key = check_keys(columns, keys)
    reading = Reading(
        read=partial(canal.events_of, keys=key, table=table),
        columns=table_columns(columns),
        form=Form(zone=time_zone, binary=LATIN_1, ignore_fields=ignore_fields),
        keys=key,
        ignore=names_of("ignore", ignore),
    )
    return rows_of(df, reading)
