"""Dates and timestamps from the texts and numbers of events.

Rules:
- A text is a date or a timestamp only in its full form: Spark's own cast takes `2020` for a date
  and `12:00` for a time of today.
- A text without a zone has the zone that the caller states, never the session's.
- A value that would lose its time, or whose unit is not known, is refused (null).
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql.functions import abs as absolute
from pyspark.sql.functions import (
    coalesce,
    concat,
    date_from_unix_date,
    floor,
    lit,
    make_dt_interval,
    pmod,
    regexp_replace,
    timestamp_micros,
    when,
)

DAYS, MILLIS, MICROS, NANOS = "days", "ms", "us", "ns"

UNIT_OF = {
    "io.debezium.time.Date": DAYS,
    "org.apache.kafka.connect.data.Date": DAYS,
    "io.debezium.time.Timestamp": MILLIS,
    "org.apache.kafka.connect.data.Timestamp": MILLIS,
    "io.debezium.time.MicroTimestamp": MICROS,
    "io.debezium.time.NanoTimestamp": NANOS,
}
"""What a number counts, by the name that Kafka Connect's schema gives it."""

_INSTANT = "timestamp_ltz"  # a setting says what `timestamp` means
_DAY_US = 86_400_000_000
_INTEGER = r"^[+-]?\d{1,19}$"
_DATE = r"^[+-]?\d{4,6}-\d{2}-\d{2}"
_CLOCK = r"[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?"
_MIDNIGHT = r"[T ]00:00(:00(\.0{1,9})?)?Z?"
_ZONE = r" ?(Z|UTC|GMT|[+-]\d{2}(:?\d{2})?)"
_UTC = r" ?(Z|UTC|GMT|[+-]00(:?00)?)$"
_LAST_DAY = 3_000_000
"""Days since the epoch count up to the year 9999; greater numbers are no days."""

# Where neither a schema nor the caller states the unit, a number is taken if it can mean only one
# time that a table may hold: within 130 years of 1970 in one unit, and within weeks in the next
# one, as seconds and years are if they are taken for milliseconds.
_CLEAR = (
    (MILLIS, 0, 0),
    (MILLIS, 10_000_000_000, 4_102_444_800_000),
    (MICROS, 253_402_300_800_000, 4_102_444_800_000_000),
)
_CLEAR_NANOS = 253_402_300_800_000_000


def date_of(text: Column, unit: Column, fallback: Column) -> Column:
    """Return the date of a text, or of a number in a unit; null if it is neither, or has a time.

    A number without a unit counts days, or in the unit `fallback` if it is too great for days.
    """
    number = _integer(text)
    micros = micros_of(text, coalesce(unit, fallback))
    is_days = (unit == DAYS) | (unit.isNull() & (absolute(number) <= _LAST_DAY))
    from_micros = when(pmod(micros, lit(_DAY_US)) == 0, floor(_divided(micros, _DAY_US)))
    is_date = text.rlike(f"{_DATE}({_MIDNIGHT})?$")
    return (
        when(is_date, regexp_replace(text, r"[T ].*$", "").try_cast("date"))
        .when(is_days, date_from_unix_date(text.try_cast("int")))
        .otherwise(date_from_unix_date(from_micros.try_cast("int")))
    )


def timestamp_of(text: Column, unit: Column, zone: str) -> Column:
    """Return the instant of a text, or of a number in a unit; null if it is neither."""
    return (
        when(text.rlike(f"{_DATE}{_CLOCK}{_ZONE}$"), text.try_cast(_INSTANT))
        .when(text.rlike(f"{_DATE}({_CLOCK})?$"), _in_zone(text, zone))
        .otherwise(timestamp_micros(micros_of(text, unit)))
    )


def local_timestamp_of(text: Column, unit: Column) -> Column:
    """Return the timestamp without zone of a text, or of a number in a unit; null if neither.

    A text with another zone than UTC is refused.
    """
    local = regexp_replace(text, _UTC, "")
    return when(local.rlike(f"{_DATE}({_CLOCK})?$"), local.try_cast("timestamp_ntz")).otherwise(
        _local_time(micros_of(text, unit))
    )


def micros_of(text: Column, unit: Column) -> Column:
    """Return the microseconds since 1970 of a number in a unit; null if either is missing."""
    number = _integer(text)
    wide = number.cast("decimal(19,0)")
    return (
        when(unit == DAYS, (wide * lit(_DAY_US).cast("decimal(11,0)")).try_cast("bigint"))
        .when(unit == MILLIS, (wide * lit(1000).cast("decimal(4,0)")).try_cast("bigint"))
        .when(unit == MICROS, number)
        .when(unit == NANOS, floor(_divided(number, 1000)).try_cast("bigint"))
    )


def clear_unit(text: Column) -> Column:
    """Return the unit of a number of which only one makes sense; null if several do."""
    size = absolute(_integer(text).cast("decimal(19,0)"))
    unit = when(size >= _CLEAR_NANOS, lit(NANOS))
    for name, least, most in _CLEAR:
        unit = unit.when((size >= least) & (size <= most), lit(name))
    return unit


def unit_of(logical: Column) -> Column:
    """Return what a number counts by the name of its schema; null if the name says nothing."""
    unit = lit(None).cast("string")
    for name, counted in UNIT_OF.items():
        unit = when(logical == name, lit(counted)).otherwise(unit)
    return unit


def _integer(text: Column) -> Column:
    return when(text.rlike(_INTEGER), text.try_cast("bigint"))


def _divided(number: Column, by: int) -> Column:
    return number.cast("decimal(19,0)") / lit(by).cast("decimal(11,0)")


def _in_zone(text: Column, zone: str) -> Column:
    # Spark takes a zone only after a time.
    full = when(text.rlike(f"{_DATE}$"), concat(text, lit(" 00:00:00"))).otherwise(text)
    return concat(full, lit(f" {zone}")).try_cast(_INSTANT)


def _local_time(micros: Column) -> Column:
    days = floor(_divided(micros, _DAY_US)).cast("int")
    rest = pmod(micros, lit(_DAY_US)).cast("decimal(18,0)") / lit(1_000_000).cast("decimal(7,0)")
    epoch = lit("1970-01-01 00:00:00").cast("timestamp_ntz")
    return epoch + make_dt_interval(days=days, secs=rest.cast("decimal(18,6)"))
