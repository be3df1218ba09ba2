"""Values as text for people: times, counts, bounds, cells. Pure.

Text from a table (messages, names, rows) never reaches a reader unchanged: `printable` shows
control characters as escapes.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal

from fuse_stream import errors
from fuse_stream.format.records import Value

printable = errors.printable

UNKNOWN = "?"
NULL = "null"

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LENGTHS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def iso(time_us: int, *, exact: bool = False) -> str:
    """Return UTC microseconds as ISO text, rounded down to seconds unless `exact`.

    A time that no calendar has (the bound of a column may be any number) is shown as the number.
    """
    try:
        time = _EPOCH + dt.timedelta(microseconds=time_us)
    except OverflowError:
        return f"{time_us} us"
    return time.replace(tzinfo=None).isoformat(timespec="auto" if exact else "seconds") + "Z"


def count(number: int) -> str:
    """Return a number with commas between its thousands."""
    return f"{number:,}"


def plural(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 block" or "2 blocks"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(microseconds: int) -> str:
    """Return a duration as text in its two largest units, such as "2h 5m"."""
    seconds = microseconds // 1_000_000
    parts = []
    for length, name in _LENGTHS:
        if seconds >= length:
            parts.append(f"{seconds // length}{name}")
            seconds %= length
    return " ".join(parts[:2]) or "0s"


def brief(microseconds: int) -> str:
    """Return a duration as `duration` does, but one below a second in milliseconds."""
    if microseconds >= 1_000_000:
        return duration(microseconds)
    return f"{microseconds / 1000:,.0f} ms"


def first_line(text: str) -> str:
    """Return the first line of `text`, with an ellipsis if there are more."""
    line, _, rest = text.strip().partition("\n")
    return printable(line.rstrip()) + (" …" if rest else "")


def bound(value: Value | None, type_name: str) -> str:
    """Return the bound of a column of `type_name` as text."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, int) and not isinstance(value, bool):
        return _whole_number(value, type_name)
    return cell(value)


def cell(value: object) -> str:
    """Return a value of a row, as Arrow gives it, as text on one line."""
    match value:
        case None:
            return NULL
        case bool():
            return str(value).lower()
        case float() if value != value:  # noqa: PLR0124 - only NaN is not itself
            return "NaN"
        case str():
            return printable(value)
        case bytes():
            return value.hex()
        case Decimal():
            return format(value, "f")
        case dt.datetime():
            return timestamp(value)
        case Mapping():
            return "{" + ", ".join(f"{cell(k)}: {cell(v)}" for k, v in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(cell(item) for item in value) + "]"
    return printable(str(value))


def timestamp(value: dt.datetime) -> str:
    """Return a time as ISO text: with a Z if it is an instant, without one if it has no zone."""
    if value.tzinfo is None:
        return value.isoformat()
    return value.astimezone(dt.UTC).replace(tzinfo=None).isoformat() + "Z"


def _whole_number(value: int, type_name: str) -> str:
    try:
        if type_name == "date":
            return (_EPOCH.date() + dt.timedelta(days=value)).isoformat()
    except OverflowError:
        return f"{value} d"
    if type_name == "timestamp":
        return iso(value, exact=True)
    if type_name == "timestamp_ntz":
        return iso(value, exact=True).removesuffix("Z")
    return str(value)
