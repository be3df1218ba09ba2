"""Quiet hours: the part of each day, in UTC, in which a service leaves a table alone. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fuse_stream.errors import InvalidInputError

DAY_US = 86_400_000_000
_MINUTE_US = 60_000_000
_HOURS = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietHours:
    """From `start_us` to `end_us` of a day; over midnight where the end comes first."""

    start_us: int
    """Microseconds after midnight, UTC."""
    end_us: int
    """Exclusive."""

    def end_of(self, now_us: int) -> int | None:
        """Return when the quiet that holds at `now_us` ends; None where it does not hold."""
        since_us = (now_us - self.start_us) % DAY_US
        length_us = (self.end_us - self.start_us) % DAY_US
        return now_us + length_us - since_us if since_us < length_us else None


def quiet_hours(text: str) -> QuietHours | None:
    """Return what a text such as "22:00-06:00" says; None for an empty one.

    Raises:
        InvalidInputError: it is not spelt so, or says the whole day.
    """
    if not text:
        return None
    match = _HOURS.fullmatch(text)
    if not match or match.group(1, 2) == match.group(3, 4):
        raise InvalidInputError(
            'quiet hours are a start and an end in UTC, such as "22:00-06:00", or empty for none; '
            "for the whole day turn the service off",
            quiet=text,
        )
    hours = [int(part) for part in match.groups()]
    return QuietHours(
        start_us=(hours[0] * 60 + hours[1]) * _MINUTE_US,
        end_us=(hours[2] * 60 + hours[3]) * _MINUTE_US,
    )
