"""Events of Debezium: `from_debezium`.

Rules:
- A message is passed over only if its whole shape says what it is: a tombstone, a heartbeat, a
  message of the transaction or the schema-change topic, a logical message (`m`). Any other one
  comes out as a row.
- What a value means is taken from the schema in the message, if it has one.
- A document of MongoDB is whole: a field that it lacks is null. Updates without the document give
  the fields that they name, and the key is the message's.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable

import orjson
from pyspark.sql import Column, DataFrame
from pyspark.sql import types as spark_types
from pyspark.sql.functions import (
    array,
    array_contains,
    array_except,
    array_position,
    array_size,
    array_union,
    coalesce,
    col,
    concat,
    create_map,
    explode,
    get,
    is_variant_null,
    lit,
    map_concat,
    map_filter,
    map_from_arrays,
    map_keys,
    struct,
    transform,
    try_element_at,
    when,
)
from pyspark.sql.functions import filter as filter_array

from fuse_stream.predicate.times import zone_of
from fuse_stream.spark.cdc import messages
from fuse_stream.spark.cdc import sequence as order
from fuse_stream.spark.cdc.binding import kept_where, let
from fuse_stream.spark.cdc.casts import ADAPTIVE, Form
from fuse_stream.spark.cdc.changed_keys import has_other_key
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
from fuse_stream.spark.cdc.extended_json import plain_json
from fuse_stream.spark.cdc.messages import OBJECT, member, object_of
from fuse_stream.spark.cdc.options import (
    BINARY_FORMATS,
    DECIMALS,
    TIME_PRECISIONS,
    check_choice,
    names_of,
)
from fuse_stream.spark.cdc.schema import check_keys, read_schema

UNAVAILABLE = "__debezium_unavailable_value"

_UPSERTS = ("c", "u", "r")
_MESSAGE = "m"
_MONGO = "mongodb"
_MONGO_TIME = "io.debezium.time.Timestamp"
_ID = "_id"

_KIND = "type:string,name:string,parameters:map<string,string>"
_FIELD = f"struct<field:string,{_KIND},items:struct<{_KIND}>>"
_ENVELOPE_FIELDS = f"array<struct<field:string,fields:array<{_FIELD}>>>"
_SOURCE = "struct<" + ",".join(f"{name}:string" for name in order.SOURCE_FIELDS) + ">"


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
            numbers_as_times=check_choice("time_precision", time_precision, TIME_PRECISIONS),
            decimals=check_choice("decimals", decimals, DECIMALS),
            ignore_fields=ignore_fields,
        ),
        keys=() if keys is None else check_keys(columns, keys),
        ignore=names_of("ignore", ignore),
        unavailable=_placeholders(unavailable),
        kind_of=_kind_of,
    )
    read = _envelopes(messages.messages_of(df))
    return rows_of(_events(read, reading.keys, sequence), reading)


def _placeholders(text: str) -> tuple[str, ...]:
    """Return what stands for a value that is not known: a text, bytes, and lists and maps of them.

    Source: `UnchangedToastedPlaceholder` of Debezium's connector for PostgreSQL.
    """
    in_base64 = base64.b64encode(text.encode()).decode()
    urlsafe = base64.urlsafe_b64encode(text.encode()).decode()
    nested: list[object] = [[text], [in_base64], list(text.encode()), {text: text}]
    return (
        text,
        in_base64,
        urlsafe,
        text.encode().hex(),
        *(orjson.dumps(value).decode() for value in nested),
    )


def _envelopes(read: DataFrame) -> DataFrame:
    """Return the parts of each envelope, without the messages that are no events."""
    parsed = read.select(
        *(messages.RAW, messages.SOURCE, messages.OFFSET, messages.KEY),
        col(messages.TEXT).isNull().alias("is_null"),
        messages.parse_message(col(messages.TEXT)).alias("parsed"),
    )
    payload = member(col("parsed"), "$.event.payload", "variant")
    event = member(col("parsed"), "$.event", "variant")
    is_wrapped = payload.isNotNull() & member(col("parsed"), "$.event.op").isNull()
    of_rows = filter_array(
        member(col("parsed"), "$.event.schema.fields", _ENVELOPE_FIELDS),
        lambda part: part["field"].isin("after", "before"),
    )
    roots = parsed.select(
        *(messages.RAW, messages.SOURCE, messages.OFFSET, messages.KEY, "is_null"),
        is_wrapped.alias("is_wrapped"),
        when(is_wrapped, payload).otherwise(event).alias("root"),
        get(of_rows, lit(0))["fields"].alias("fields"),
    )
    root = col("root")
    op = member(root, "$.op")
    parts = roots.select(
        *(messages.RAW, messages.SOURCE, messages.OFFSET, messages.KEY, "is_null"),
        *("fields", "root", "is_wrapped"),
        op.alias("code"),
        member(root, "$.source", _SOURCE).alias("position"),
        when(op.isNull(), map_keys(member(root, "$", OBJECT))).alias("parts"),
        (member(root, "$.source.connector") == _MONGO).alias("is_mongo"),
    )
    is_tombstone = col("is_null") | (col("is_wrapped") & is_variant_null(root))
    no = lit(False)  # noqa: FBT003 - a literal
    return kept_where(parts, ~coalesce(is_tombstone, no) & ~coalesce(_is_no_event(), no))


def _is_no_event() -> Column:
    """Return true for heartbeats, transactions, changes of schemas and logical messages."""
    parts, root = col("parts"), col("root")
    times = lit(["ts_ms", "ts_us", "ts_ns"])
    is_heartbeat = array_contains(parts, "ts_ms") & (array_size(array_except(parts, times)) == 0)
    of_transaction = lit(["status", "id", "event_count", "data_collections"])
    is_transaction = member(root, "$.status").isin("BEGIN", "END") & (
        (array_size(array_except(parts, array_union(of_transaction, times))) == 0)
        & array_contains(parts, "data_collections")
    )
    is_schema_change = (
        array_contains(parts, "source")
        & array_contains(parts, "databaseName")
        & array_contains(parts, "ddl")
    )
    return (col("code") == _MESSAGE) | (
        col("code").isNull() & (is_heartbeat | is_transaction | is_schema_change)
    )


def _events(parts: DataFrame, keys: tuple[str, ...], sequence: str) -> DataFrame:
    """Return the events of envelopes, as `rows_of` takes them."""
    offset = col(messages.OFFSET)
    is_mongo = coalesce(col("is_mongo"), lit(False))  # noqa: FBT003 - a literal
    seq = (
        order.by_offset(offset)
        if sequence == order.OFFSET
        else let(col("position"), lambda source: order.of_debezium(source, offset))
    )
    images = parts.select(
        *(messages.RAW, messages.SOURCE, "fields", "code", "parts"),
        seq.alias(SEQ),
        is_mongo.alias("is_mongo"),
        _row(col("root"), "$.before", is_mongo).alias("before"),
        member(col("root"), "$.before").isNotNull().alias("has_before"),
        _row(col("root"), "$.after", is_mongo).alias("after"),
        when(is_mongo & (col("code") == "u"), _changed_fields(col("root"))).alias("changed"),
        _key_fields(is_mongo).alias("key_fields"),
    )
    is_upsert = col("code").isin(*_UPSERTS)
    op = (
        when(is_upsert, lit(UPSERT))
        .when(col("code") == "d", lit(DELETE))
        .when(col("code") == "t", lit(TRUNCATE))
    )
    each = images.withColumn(OP, explode(_ops(op, keys)) if keys else op)
    partial = map_concat(col("key_fields"), col("changed"))
    old = coalesce(col("before"), col("key_fields"))
    made = each.withColumn(
        IMAGE,
        when(col(OP) == UPSERT, coalesce(col("after"), partial)).when(col(OP) == DELETE, old),
    )
    is_broken = (col(OP) == UPSERT) & col(IMAGE).isNull()
    is_broken = is_broken | ((col(OP) == DELETE) & col("has_before") & col("before").isNull())
    unknown = concat(lit(f"{UNKNOWN_OP}: "), col("code"))
    fault = (
        when(col("code").isNull() & col("parts").isNull(), lit(UNREADABLE))
        .when(col("code").isNull(), lit(UNKNOWN_OP))
        .when(op.isNull(), unknown)
        .when(is_broken, lit(UNREADABLE))
    )
    is_whole = col("is_mongo") & col("after").isNotNull()
    return made.withColumn(FAULT, fault).withColumn(WHOLE, is_whole)


def _ops(op: Column, keys: tuple[str, ...]) -> Column:
    """Return the ops of an event: a delete and an upsert if its key has changed."""
    is_changed = (op == UPSERT) & has_other_key(col("before"), col("after"), keys)
    return when(is_changed, array(lit(DELETE), lit(UPSERT))).otherwise(array(op))


def _row(root: Column, path: str, is_mongo: Column) -> Column:
    """Return a row's fields as text; MongoDB's row is a text with a document."""
    document = when(is_mongo, object_of(plain_json(member(root, path))))
    return coalesce(member(root, path, OBJECT), document)


def _changed_fields(root: Column) -> Column:
    """Return what an update without its document sets, and as null what it removes.

    Null if it cuts lists off, which cannot be followed without the document.
    """
    described = member(root, "$.updateDescription", OBJECT)
    none = create_map().cast(OBJECT)
    updated = object_of(plain_json(member(root, "$.updateDescription.updatedFields")))
    updated = when(try_element_at(described, lit("updatedFields")).isNull(), none).otherwise(
        map_filter(updated, lambda name, _: name != _ID)
    )
    removed = coalesce(
        member(root, "$.updateDescription.removedFields", "array<string>"),
        array().cast("array<string>"),
    )
    # A name that is there twice would make the maps fail.
    removed = array_except(removed, array_union(map_keys(updated), array(lit(_ID))))
    nulls = map_from_arrays(removed, transform(removed, lambda _: lit(None).cast("string")))
    is_cut = member(root, "$.updateDescription.truncatedArrays[0]", "variant").isNotNull()
    return when(described.isNotNull() & ~is_cut, map_concat(updated, nulls))


def _key_fields(is_mongo: Column) -> Column:
    """Return the fields of the message's key; MongoDB's is the text of a document's id."""
    parsed = messages.parse_message(col(messages.KEY))
    fields = coalesce(member(parsed, "$.event.payload", OBJECT), member(parsed, "$.event", OBJECT))
    identity = messages.parse_message(plain_json(try_element_at(fields, lit("id"))))
    document = create_map(lit(_ID), member(identity, "$.event"))
    return when(is_mongo, when(identity.isNotNull(), document)).otherwise(fields)


def _kind_of(name: str) -> Column:
    """Return what the schema in a message says of a column."""
    fields = col("fields")
    field = get(fields, (array_position(fields["field"], lit(name)) - 1).cast("int"))
    return struct(
        *_parts(field, ""),
        *_parts(field["items"], "item_"),
    )


def _parts(part: Column, prefix: str) -> list[Column]:
    is_mongo = col("is_mongo")
    return [
        when(is_mongo, lit(_MONGO)).otherwise(part["type"]).alias(f"{prefix}type"),
        when(is_mongo, lit(_MONGO_TIME)).otherwise(part["name"]).alias(f"{prefix}logical"),
        try_element_at(part["parameters"], lit("scale")).alias(f"{prefix}scale"),
    ]
