"""Events of Debezium: `from_debezium`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import types as spark_types

from fuse_stream.cdc import debezium
from fuse_stream.cdc import sequence as order
from fuse_stream.cdc.rows import Reading
from fuse_stream.cdc.values import ADAPTIVE, Form
from fuse_stream.errors import InvalidInputError
from fuse_stream.predicate.times import zone_of
from fuse_stream.spark.cdc.messages import rows_of
from fuse_stream.spark.cdc.options import (
    BINARY_FORMATS,
    DECIMALS,
    TIME_PRECISIONS,
    check_choice,
    names_of,
)
from fuse_stream.spark.cdc.schema import check_keys, read_schema, table_columns

UNAVAILABLE = "__debezium_unavailable_value"


def from_debezium(
    df: DataFrame,
    schema: spark_types.StructType | str,
    *,
    sequence: str = order.AUTO,
    keys: Iterable[str] | None = None,
    ignore_fields: bool = False,
    ignore: Iterable[str] = (),
    time_precision: str = ADAPTIVE,
    time_zone: str = "UTC",
    decimals: str = ADAPTIVE,
    binary: str = "base64",
    unavailable: str = UNAVAILABLE,
) -> DataFrame:
    """Return the events of a Debezium topic as rows: columns of `schema`, `_op`, `_seq` and more.

    For the connectors of PostgreSQL, MySQL, MariaDB, SQL Server, Oracle and MongoDB, with JSON that
    has its schema (`schemas.enable=true`) or not, or decoded into a struct by you, as from_avro
    does. Messages that `ExtractNewRecordState` has flattened have lost what an event is: remove the
    transform. docs/cdc.md has the rules.

    Args:
        df: the columns of Kafka's source, batch or streaming: `value`, and `key`, `topic`,
            `partition` and `offset` if there.
        schema: the columns of the table, as a StructType or as text.
        sequence: `auto`, the position in the source's log, or `offset`, the place in Kafka's
            topic; for MySQL with GTIDs that may fail over to another server.
        keys: the columns of the key. Debezium sends a delete and an insert where a key changes;
            with `keys`, an update whose `before` has another key becomes these two as well, and of
            a deleted row only the key is read.
        ignore_fields: leave out fields that `schema` does not have; else such an event is an error.
        ignore: names of fields to leave out.
        time_precision: what a number for a timestamp counts where no schema says it: `ms`, `us`,
            `ns`, or `adaptive`, which refuses a number that may be several times.
        time_zone: the zone of timestamps in text that have none.
        decimals: how decimals are written where no schema says it: `precise`, bytes in base64 with
            the scale of the column; `string`, which is also for `double`; or `adaptive`, numbers
            and texts, which refuses a text that may be either.
        binary: how bytes are written: `base64`, `base64-url-safe` or `hex`.
        unavailable: Debezium's `unavailable.value.placeholder`.

    Returns:
        One row an event, two for a changed key: the columns of `schema`, then `_op`, `_seq`,
        `_unset`, `_error`, `_raw` and `_source`. Nothing is read before a query runs.

    Raises:
        InvalidInputError: `df` has no column `value`, or one that is a struct and no envelope, or
            lacks the offset that `sequence` needs; or an argument is wrong.
        UnsupportedTypeError: a table cannot have a column's type.
    """
    columns = read_schema(df, schema)
    order.check_sequence(sequence)
    by_offset = sequence == order.OFFSET
    _check_frame(df, by_offset=by_offset)
    zone_of(time_zone)
    key = () if keys is None else check_keys(columns, keys)
    reading = Reading(
        parse=debezium.payload_of,
        read=partial(debezium.events_of, keys=key, by_offset=by_offset),
        columns=table_columns(columns),
        form=Form(
            zone=time_zone,
            binary=BINARY_FORMATS[check_choice("binary", binary, BINARY_FORMATS)],
            numbers_as_times=check_choice("time_precision", time_precision, TIME_PRECISIONS),
            decimals=check_choice("decimals", decimals, DECIMALS),
            ignore_fields=ignore_fields,
        ),
        keys=key,
        ignore=names_of("ignore", ignore),
        unavailable=unavailable,
    )
    return rows_of(df, reading)


def _check_frame(df: DataFrame, *, by_offset: bool) -> None:
    """Raise InvalidInputError if no message in these columns can be an event."""
    types = {field.name.lower(): field.dataType for field in df.schema.fields}
    value = types.get("value")
    if isinstance(value, spark_types.StructType) and not {"op", "payload"} & set(value.names):
        raise InvalidInputError(
            "value is a struct, but not the envelope of Debezium, which has op, before and after: "
            "decode the whole message, and remove ExtractNewRecordState from the connector",
            columns=value.names,
        )
    if by_offset and "offset" not in types:
        raise InvalidInputError(
            'sequence="offset" needs the column offset; pass the columns of Kafka\'s source as '
            "they are",
            columns=df.columns,
        )
