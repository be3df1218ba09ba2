"""Times: as text or `datetime` with an offset from UTC; stored as UTC microseconds. Pure."""

from __future__ import annotations

import datetime as dt

from fuse_stream.errors import InvalidInputError

Timestamp = dt.datetime | str

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_FIRST_US = (dt.datetime.min.replace(tzinfo=dt.UTC) - _EPOCH) // _MICROSECOND
_LAST_US = (dt.datetime.max.replace(tzinfo=dt.UTC) - _EPOCH) // _MICROSECOND


def timestamp_us(timestamp: Timestamp) -> int:
    """Return a time as UTC microseconds.

    Raises:
        InvalidInputError: it is not ISO text, or has no offset from UTC.
    """
    if isinstance(timestamp, str):
        try:
            timestamp = dt.datetime.fromisoformat(timestamp)
        except ValueError as error:
            raise InvalidInputError(
                'a timestamp is ISO text with its offset, such as "2026-11-21T09:00:00+00:00"',
                timestamp=timestamp,
            ) from error
    if not isinstance(timestamp, dt.datetime):
        raise InvalidInputError("a timestamp is a datetime or ISO text", timestamp=timestamp)
    if timestamp.tzinfo is None:
        raise InvalidInputError(
            "a timestamp without its offset from UTC is ambiguous; add it, such as +00:00 or Z",
            timestamp=timestamp.isoformat(),
        )
    try:
        return (timestamp.astimezone(dt.UTC) - _EPOCH) // dt.timedelta(microseconds=1)
    except OverflowError as error:
        raise InvalidInputError(
            "this time in UTC is not in the years 1 to 9999", timestamp=timestamp.isoformat()
        ) from error


def is_time(time_us: int) -> bool:
    """True if UTC microseconds are in the years 1 to 9999."""
    return _FIRST_US <= time_us <= _LAST_US


def iso_time(time_us: int) -> str:
    """Return a time as ISO text in UTC, for errors."""
    return (_EPOCH + dt.timedelta(microseconds=time_us)).isoformat()
