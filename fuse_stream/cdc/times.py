"""Dates and timestamps from the texts and numbers of events.

Rules:
- A text is a date or a timestamp only in its full form, of the years 1 to 9999: Spark's own cast
  takes `2020` for a date and `12:00` for a time of today.
- A text without a zone has the zone that the caller states.
- A value that would lose its time, or whose unit is not known, is refused with `ValueError`.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, tzinfo

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

_DAY_US = 86_400_000_000
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_CLOCK = r"[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?"
_DATE = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[T ]00:00(?::00(?:\.0{1,9})?)?Z?)?", re.ASCII)
_TIMESTAMP = re.compile(
    rf"(\d{{4}}-\d{{2}}-\d{{2}}(?:{_CLOCK})?)(?: ?(Z|UTC|GMT|[+-]\d{{2}}(?::?\d{{2}})?))?", re.ASCII
)
_NO_OFFSET = re.compile(r"Z|UTC|GMT|[+-]00(:?00)?")
_LONG = 2**63
_LAST_DAY = 3_000_000
"""Days since the epoch count up to the year 9999; greater numbers are no days."""
_DATES = range(-(2**31), 2**31)

# Where neither a schema nor the caller states the unit, a number is taken if it can mean only one
# time that a table may hold: within 130 years of 1970 in one unit, and within weeks in the next
# one, as seconds and years are if they are taken for milliseconds.
_CLEAR = (
    (MILLIS, 0, 0),
    (MILLIS, 10_000_000_000, 4_102_444_800_000),
    (MICROS, 253_402_300_800_000, 4_102_444_800_000_000),
)
_CLEAR_NANOS = 253_402_300_800_000_000


def date_of(text: str, unit: str | None, stated: str | None) -> int:
    """Return the days since 1970 of a text, or of a number in a unit.

    A number without a unit counts days, or in the unit `stated` if it is too great for days;
    without `stated`, in the one unit that makes sense.
    """
    if match := _DATE.fullmatch(text):
        return date.fromisoformat(match[1]).toordinal() - _EPOCH_DAY
    number = _integer(text)
    if unit == DAYS or (unit is None and abs(number) <= _LAST_DAY):
        days = number
    else:
        days, rest = divmod(_micros(number, unit or stated), _DAY_US)
        if rest:
            raise ValueError("a date has no time")
    if days not in _DATES:
        raise ValueError("this is no date")
    return days


def timestamp_of(text: str, unit: str | None, zone: tzinfo) -> int:
    """Return the microseconds since 1970 of an instant: a text, or a number in a unit.

    Without a unit, a number counts in the one that makes sense.
    """
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return _micros(_integer(text), unit)
    local, offset = match.groups()
    if offset is None:
        moment = datetime.fromisoformat(local).replace(tzinfo=zone)
    elif len(local) == len("2024-02-29"):
        raise ValueError("a zone follows a time")
    else:
        moment = datetime.fromisoformat(local + ("Z" if offset in {"UTC", "GMT"} else offset))
    return (moment - _EPOCH) // _MICROSECOND


def local_timestamp_of(text: str, unit: str | None) -> int:
    """Return the microseconds since 1970 of a timestamp without zone: a text, or a number.

    A text with another zone than UTC is refused.
    """
    match = _TIMESTAMP.fullmatch(text)
    if match and match[2] and not _NO_OFFSET.fullmatch(match[2]):
        raise ValueError("a local timestamp has no zone")
    return timestamp_of(match[1] if match else text, unit, UTC)


def _micros(number: int, unit: str | None) -> int:
    match unit or _clear_unit(number):
        case "days":
            micros = number * _DAY_US
        case "ms":
            micros = number * 1000
        case "us":
            micros = number
        case _:
            micros = number // 1000
    if not -_LONG <= micros < _LONG:
        raise ValueError("this is no timestamp")
    return micros


def _clear_unit(number: int) -> str:
    """Return the unit of a number of which only one makes sense."""
    size = abs(number)
    if size >= _CLEAR_NANOS:
        return NANOS
    for name, least, most in _CLEAR:
        if least <= size <= most:
            return name
    raise ValueError("the number may be several times")


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError("this is no number")
    number = int(text)
    if not -_LONG <= number < _LONG:
        raise ValueError("the number is too great")
    return number
