"""Quiet hours: how they are spelt, and when they hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.properties import DAY_US, check_properties, quiet_hours

HOUR_US = 3_600_000_000


@pytest.mark.parametrize(
    ("text", "hour", "end"),
    [
        ("22:00-06:00", 22, 30),
        ("22:00-06:00", 3, 6),
        ("22:00-06:00", 6, None),
        ("22:00-06:00", 21, None),
        ("09:00-17:00", 9, 17),
        ("09:00-17:00", 17, None),
        ("09:00-17:00", 8, None),
    ],
)
def test_they_hold_from_the_start_until_before_the_end(
    text: str, hour: int, end: int | None
) -> None:
    quiet = quiet_hours(text)

    assert quiet is not None
    assert quiet.end_of(hour * HOUR_US) == (None if end is None else end * HOUR_US)


@given(start=st.integers(0, 1439), end=st.integers(0, 1439), now_us=st.integers(0, 10 * DAY_US))
def test_they_never_hold_at_their_end(start: int, end: int, now_us: int) -> None:
    if start == end:
        return
    spelt = [f"{minute // 60:02}:{minute % 60:02}" for minute in (start, end)]
    quiet = quiet_hours("-".join(spelt))
    assert quiet is not None
    until_us = quiet.end_of(now_us)

    if until_us is not None:
        assert now_us < until_us < now_us + DAY_US
        assert quiet.end_of(until_us) is None
        assert quiet.end_of(until_us - 1) == until_us


@pytest.mark.parametrize(
    "text", ["22-6", "24:00-06:00", "22:60-06:00", "9:00-17:00", "22:00", "06:00-06:00", "none"]
)
def test_invalid_quiet_hours_are_refused_before_they_are_stored(text: str) -> None:
    with pytest.raises(InvalidInputError, match="quiet"):
        check_properties({"fuse.optimize.quiet": text}, creating=False)


def test_an_empty_text_is_none_of_them() -> None:
    assert quiet_hours("") is None
