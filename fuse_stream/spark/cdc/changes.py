"""Rows of a change feed as events: `from_changes`."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import types as spark_types
from pyspark.sql.functions import array, coalesce, col, concat, lit, struct, when

from fuse_stream.cdc import rows
from fuse_stream.cdc.message import DELETE, UNKNOWN_OP, UPSERT
from fuse_stream.errors import InvalidInputError
from fuse_stream.spark.cdc import messages, schema
from fuse_stream.spark.cdc.options import check_choice
from fuse_stream.spark.types import quoted

_TYPE, _VERSION, _TIME = "_change_type", "_commit_version", "_commit_timestamp"
_FEED = (_TYPE, _VERSION, _TIME)
_PREIMAGE = "update_preimage"
_UPSERTS = ("insert", "update_postimage")
_DELETES = ("delete", _PREIMAGE)

PREIMAGES = ("delete", "drop")


def from_changes(df: DataFrame, *, preimages: str = "delete") -> DataFrame:
    """Return a change feed as rows of events, like `from_debezium`.

    For the feed of a fuse table (`feed=changes` or `feed=upserts`), Delta's change data feed, and
    Spark's `CHANGES`: they have the same columns. `_seq` is the version, and within a version what
    goes is before what comes: so a table with a key that takes these events equals the source at
    each version.

    Args:
        df: the feed, batch or streaming: the table's columns, `_change_type` and `_commit_version`,
            and `_commit_timestamp` if there.
        preimages: what the old image of an updated row is: `delete`, for its key may be another one
            than the new image's, or `drop`, if no update changes a key, as in a fuse table that has
            one. The result in a table with a key is the same, with less work.

    Returns:
        The table's columns, then `_op`, `_seq`, `_unset`, `_error`, `_raw` (the row as JSON) and
        `_source` (nulls).

    Raises:
        InvalidInputError: `df` is no change feed, or an argument is wrong.
        UnsupportedTypeError: a table cannot have a column's type.
    """
    check_choice("preimages", preimages, PREIMAGES)
    lacking = [name for name in (_TYPE, _VERSION) if name not in df.columns]
    if lacking:
        raise InvalidInputError(
            "the DataFrame is no change feed; read the table with option feed=changes, or Delta's "
            "with readChangeFeed",
            lacking=lacking,
            columns=df.columns,
        )
    names = [name for name in df.columns if name not in _FEED]
    schema.read_schema(df, spark_types.StructType([df.schema[name] for name in names]))
    change, version = col(_TYPE).cast("string"), col(_VERSION).try_cast("bigint")
    op = when(change.isin(*_UPSERTS), lit(UPSERT)).when(change.isin(*_DELETES), lit(DELETE))
    unknown = concat(lit(f"{UNKNOWN_OP}: "), change)
    error = when(op.isNull(), coalesce(unknown, lit(UNKNOWN_OP))).when(
        version.isNull(), lit("no sequence")
    )
    sequence = struct(
        version.alias("version"), when(op == UPSERT, lit(1)).otherwise(lit(0)).alias("is_upsert")
    )
    is_good = error.isNull()
    kept = df.where(~change.eqNullSafe(lit(_PREIMAGE))) if preimages == "drop" else df
    nothing = lit(None)
    source = struct(
        nothing.cast("string").alias("topic"),
        nothing.cast("int").alias("partition"),
        nothing.cast("bigint").alias("offset"),
    )
    return kept.select(
        *(when(is_good, col(quoted(name))).alias(name) for name in names),
        when(is_good, op).alias(rows.OP),
        when(version.isNotNull(), sequence).alias(rows.SEQ),
        when(is_good & (op == UPSERT), array().cast("array<string>")).alias(rows.UNSET),
        error.alias(rows.ERROR),
        messages.row_as_json(df.columns).alias(rows.RAW),
        source.alias(rows.SOURCE),
    )
