"""Parse dates, timestamps and time zones as Spark does, to days or microseconds since 1970.

Only for the years 1 to 9999: Python has no time zone rules for others.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fuse_stream.errors import InvalidInputError

DAY_US = 86_400_000_000
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - local times have no zone
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_FIRST_US = (datetime.min - _EPOCH) // _MICROSECOND  # noqa: DTZ901 - the same
_LAST_US = (datetime.max - _EPOCH) // _MICROSECOND  # noqa: DTZ901 - the same

BLANK = "".join(map(chr, range(0x21))) + "\x7f"
"""The characters that Spark trims from text before it parses it."""

_DATE = r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})"
_DATE_TEXT = re.compile(_DATE + r"(?:[ T].*)?)?)?", re.DOTALL | re.ASCII)
_TIME = r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?(.*))?)?"  # a zone needs seconds
_TIMESTAMP_TEXT = re.compile(_DATE + rf"(?:[ T]{_TIME})?)?)?", re.DOTALL | re.ASCII)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{1,2}))?", re.ASCII)


def zone_of(name: object) -> tzinfo:
    """Return the time zone of a Spark zone name: a region, `Z`, or an offset like `+01:00`.

    Raises:
        InvalidInputError: this machine knows no such zone.
    """
    text = name if isinstance(name, str) else ""  # a zone itself, say, is no name of one
    if text in {"Z", "UTC", "GMT", "UT"}:
        return UTC
    if match := _OFFSET.fullmatch(text):
        minutes = int(match[2]) * 60 + int(match[3] or 0)
        if minutes <= 18 * 60 and int(match[3] or 0) < 60:
            return timezone(timedelta(minutes=-minutes if match[1] == "-" else minutes))
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInputError(
            "there is no such time zone; give a region, UTC or an offset: +01:00", time_zone=name
        ) from error


def read_date(text: str) -> int:
    """Return the days since 1970 of CAST(text AS DATE).

    Raises:
        InvalidInputError: it is not a date.
    """
    match = _DATE_TEXT.fullmatch(text.strip(BLANK))
    if match is None:
        raise _not_a("date", text)
    try:
        day = date(int(match[1]), int(match[2] or 1), int(match[3] or 1))
    except ValueError as error:
        raise _not_a("date", text) from error
    return day.toordinal() - _EPOCH_DAY


def read_timestamp(text: str, zone: tzinfo | None) -> int:
    """Return the microseconds since 1970 of CAST(text AS TIMESTAMP).

    Without `zone` the cast is to TIMESTAMP_NTZ: a zone in the text is ignored.

    Raises:
        InvalidInputError: it is not a time, or names an unknown zone.
    """
    match = _TIMESTAMP_TEXT.fullmatch(text.strip(BLANK))
    if match is None:
        raise _not_a("time", text)
    year, month, day, hour, minute, second, fraction, named = match.groups()
    try:
        local = datetime(  # noqa: DTZ001 - local times have no zone
            int(year),
            int(month or 1),
            int(day or 1),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            int((fraction or "").ljust(6, "0")[:6]),
        )
    except ValueError as error:
        raise _not_a("time", text) from error
    own = zone_of(named.strip()) if named and named.strip() else None
    local_us = (local - _EPOCH) // _MICROSECOND
    return local_us if zone is None else to_instant(local_us, own or zone)


def to_instant(local_us: int, zone: tzinfo) -> int:
    """Return the instant of a local time.

    If there are two, the earlier one; a skipped local time is moved forward by the skipped time.
    """
    return local_us - _offset_us(local_us, zone)


def start_of_day(day: int, zone: tzinfo) -> int:
    """Return the instant at which a day begins in a time zone."""
    return to_instant(day * DAY_US, zone)


def skips_near(instant_us: int, zone: tzinfo) -> bool:
    """True if the time zone skips local times within a day of an instant.

    Skipped local times have the same instants as later ones, so order is lost there.
    """
    before, after = instant_us - DAY_US, instant_us + DAY_US
    return _offset_at(before, zone) < _offset_at(after, zone)


def _offset_us(local_us: int, zone: tzinfo) -> int:
    local = _EPOCH + timedelta(microseconds=min(max(local_us, _FIRST_US), _LAST_US))
    return _microseconds(local.replace(tzinfo=zone).utcoffset())  # fold=0 is the earlier one


def _offset_at(instant_us: int, zone: tzinfo) -> int:
    # A day from either end, so that the local time is within Python's range of years.
    clamped = min(max(instant_us, _FIRST_US + DAY_US), _LAST_US - DAY_US)
    instant = _EPOCH.replace(tzinfo=UTC) + timedelta(microseconds=clamped)
    return _microseconds(instant.astimezone(zone).utcoffset())


def _not_a(kind: str, text: str) -> InvalidInputError:
    return InvalidInputError(
        f"the text is not a {kind}; write it like 2026-11-21 or 2026-11-21 09:30:00",
        text=text[:100],
    )


def _microseconds(offset: timedelta | None) -> int:
    return 0 if offset is None else offset // _MICROSECOND
