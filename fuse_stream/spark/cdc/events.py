"""Rows of events: the columns of a table, what to do with them, their order, and their faults.

Rules:
- A reader passes one row an event, with the columns of `EVENT`. What it passes comes out: nothing
  is filtered here.
- A row with a fault has no values. Its reason begins with the first fault found, in the order
  `unreadable`, `unknown op`, `no sequence`, `unknown field`, `failed cast`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as spark_types
from pyspark.sql.functions import (
    array,
    array_compact,
    array_contains,
    array_except,
    array_join,
    array_size,
    array_union,
    coalesce,
    col,
    concat,
    get,
    lit,
    map_keys,
    substring,
    transform,
    try_element_at,
    when,
)

from fuse_stream.spark.cdc import messages, schema
from fuse_stream.spark.cdc.binding import let
from fuse_stream.spark.cdc.casts import Form, kinds_of, unknown_fields, value_of

UPSERT, DELETE, TRUNCATE = "u", "d", "t"

UNREADABLE, UNKNOWN_OP = "unreadable", "unknown op"

FAULT, OP, SEQ, IMAGE, WHOLE = "fault", "op", "seq", "image", "whole"

EVENT = (messages.RAW, messages.SOURCE, FAULT, OP, SEQ, IMAGE, WHOLE)
"""The columns that a reader passes: the message and its place in Kafka; a fault, or null; `u`, `d`,
`t` or null; the sequence; the fields of the row as text; true if a missing field is null."""

_SHOWN = 100
"""Characters of a text that a reason shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How rows of a table are made of events."""

    schema: spark_types.StructType
    form: Form
    keys: tuple[str, ...] = ()
    """Without keys, all columns of a deleted row are read; else these."""
    ignore: tuple[str, ...] = ()
    """Fields that are left out."""
    unavailable: tuple[str, ...] = ()
    """Texts that say that a value is not known."""
    kind_of: Callable[[str], Column] | None = None
    """Returns what a message says of a column, as a struct that `kinds_of` reads."""


def rows_of(events: DataFrame, reading: Reading) -> DataFrame:
    """Return the rows of events, in the columns that sinks take."""
    names = reading.schema.names
    # Each step is one projection, so that the next one uses its columns and does not repeat them.
    texts = [_text(reading, name).alias(f"text_{index}") for index, name in enumerate(names)]
    kinds = []
    if reading.kind_of is not None:
        kinds = [reading.kind_of(name).alias(f"kind_{index}") for index, name in enumerate(names)]
    split = events.select(*EVENT, *texts, *kinds)
    values = [
        value_of(
            col(f"text_{index}"),
            field.dataType,
            reading.form,
            None if reading.kind_of is None else kinds_of(col(f"kind_{index}")),
        ).alias(f"value_{index}")
        for index, field in enumerate(reading.schema.fields)
    ]
    read = split.select(*EVENT, *(f"text_{index}" for index in range(len(names))), *values)
    checked = read.select(
        *(messages.RAW, messages.SOURCE, OP, SEQ),
        *(f"value_{index}" for index in range(len(names))),
        coalesce(
            col(FAULT),
            when(col(SEQ).isNull(), lit("no sequence")),
            when(col(OP) == UPSERT, _unknown(reading)),
            when(col(OP) != TRUNCATE, _failed(reading)),
        ).alias("error"),
        when(col(OP) == UPSERT, _unset(reading)).alias("unset"),
    )
    is_good = col("error").isNull()
    has_values = is_good & (col(OP) != TRUNCATE)
    columns = [
        when(has_values, col(f"value_{index}")).alias(name) for index, name in enumerate(names)
    ]
    return checked.select(
        *columns,
        when(is_good, col(OP)).alias(schema.OP),
        col(SEQ).alias(schema.SEQ),
        when(is_good, col("unset")).alias(schema.UNSET),
        col("error").alias(schema.ERROR),
        col(messages.RAW).alias(schema.RAW),
        col(messages.SOURCE).alias(schema.SOURCE),
    )


def _text(reading: Reading, name: str) -> Column:
    text = try_element_at(col(IMAGE), lit(name))
    if not reading.unavailable:
        return text
    return let(text, lambda known: when(~known.isin(*reading.unavailable), known))


def _unknown(reading: Reading) -> Column:
    if reading.form.ignore_fields:
        return lit(None).cast("string")
    extra = unknown_fields(col(IMAGE), [*reading.schema.names, *reading.ignore])
    return let(
        extra,
        lambda names: when(
            array_size(names) > 0, concat(lit("unknown field: "), array_join(names, ", "))
        ),
    )


def _failed(reading: Reading) -> Column:
    """Return the reason that names the columns whose text is no value."""
    names = reading.schema.names
    flags = []
    for index, name in enumerate(names):
        is_failed = col(f"text_{index}").isNotNull() & col(f"value_{index}").isNull()
        if reading.keys and name not in reading.keys:  # a delete needs its key only
            is_failed = is_failed & (col(OP) == UPSERT)
        flags.append(is_failed)
    failed = array(*flags)
    texts = array(*(col(f"text_{index}") for index in range(len(names))))

    def told(name: Column, index: Column) -> Column:
        text = substring(get(texts, index), 1, _SHOWN)
        return when(get(failed, index), concat(name, lit('="'), text, lit('"')))

    reasons = array_compact(transform(lit(names), told))
    reason = concat(lit("failed cast: "), array_join(reasons, ", "))
    return when(array_contains(failed, lit(True)), reason)  # noqa: FBT003 - a literal


def _unset(reading: Reading) -> Column:
    """Return the names of the columns for which the event has no value."""
    names = lit(reading.schema.names)
    nothing = array().cast("array<string>")
    missing = when(col(WHOLE), nothing).otherwise(array_except(names, map_keys(col(IMAGE))))
    if not reading.unavailable:
        return missing
    texts = array(*(col(f"text_{index}") for index in range(len(reading.schema.names))))
    # Of what is in the event, a text was taken away where it says that the value is not known.
    hidden = transform(
        names,
        lambda name, index: when(
            get(texts, index).isNull() & try_element_at(col(IMAGE), name).isNotNull(), name
        ),
    )
    return array_union(missing, array_compact(hidden))
