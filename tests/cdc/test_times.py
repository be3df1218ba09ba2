from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from fuse_stream.cdc.times import (
    DAYS,
    MICROS,
    MILLIS,
    NANOS,
    date_of,
    local_timestamp_of,
    timestamp_of,
)

NEW_YORK = ZoneInfo("America/New_York")


def at(text: str) -> int:
    """Return the microseconds since 1970 of a text that Python reads."""
    moment = datetime.fromisoformat(text)
    return int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * 10**6 + (
        moment.microsecond
    )


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2024-02-29", "2024-02-29T05:00:00+00:00"),
        ("2024-02-29 12:00", "2024-02-29T17:00:00+00:00"),
        ("2024-02-29T12:00:01.5", "2024-02-29T17:00:01.500+00:00"),
        ("2024-02-29T12:00:01.123456789", "2024-02-29T17:00:01.123456+00:00"),
        ("2024-02-29T12:00:01Z", "2024-02-29T12:00:01+00:00"),
        ("2024-02-29 12:00:01 UTC", "2024-02-29T12:00:01+00:00"),
        ("2024-02-29 12:00:01+01", "2024-02-29T11:00:01+00:00"),
        ("2024-02-29 12:00:01 -0130", "2024-02-29T13:30:01+00:00"),
        ("2024-02-29 12:00:01-01:30", "2024-02-29T13:30:01+00:00"),
        ("2024-03-10 02:30:00", "2024-03-10T07:30:00+00:00"),  # skipped in spring
        ("2024-11-03 01:30:00", "2024-11-03T05:30:00+00:00"),  # there twice: the first one
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+00:00"),
    ],
)
def test_a_text_is_an_instant(text: str, same: str) -> None:
    assert timestamp_of(text, None, NEW_YORK) == at(same)


@pytest.mark.parametrize(
    "text",
    [
        *("2024", "2024-02", "12:00", "2023-02-29", "2024-02-29T", "2024-02-29Z", "2024-2-9", ""),
        *("2024-02-29T25:00:00", "2024-02-29T12:00:00+25:00", "2024-02-29 12:00:60", "20240229"),
    ],
)
def test_other_texts_are_no_instants(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - Python's own messages
        timestamp_of(text, None, UTC)


@pytest.mark.parametrize(
    ("number", "unit", "micros"),
    [
        ("-1", DAYS, -86_400_000_000),
        ("-1", MILLIS, -1000),
        ("-1", MICROS, -1),
        ("-1", NANOS, -1),
        ("1999", NANOS, 1),
        ("0", None, 0),
        ("10000000000", None, 10**13),
        ("253402300800000", None, 253_402_300_800_000),
        ("-253402300800000000", None, -253_402_300_800_000),
    ],
)
def test_a_number_counts_in_its_unit(number: str, unit: str | None, micros: int) -> None:
    assert timestamp_of(number, unit, UTC) == local_timestamp_of(number, unit) == micros


@pytest.mark.parametrize(
    ("number", "unit"),
    [
        ("1", None),
        ("253402300799999", None),
        (str(2**62), MILLIS),
        (str(2**63), MICROS),
        ("1.5", MICROS),
        ("1e3", MICROS),
    ],
)
def test_a_number_that_may_be_several_times_or_none_is_refused(
    number: str, unit: str | None
) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - see above
        timestamp_of(number, unit, UTC)


def test_a_local_timestamp_has_no_zone() -> None:
    noon = at("2024-02-29T12:00:00+00:00")

    for text in ("2024-02-29 12:00", "2024-02-29T12:00:00Z", "2024-02-29 12:00:00 +00:00"):
        assert local_timestamp_of(text, None) == noon
    with pytest.raises(ValueError, match="no zone"):
        local_timestamp_of("2024-02-29T12:00:00+01:00", None)


def test_a_date_has_no_time() -> None:
    day = 19_782

    for text in ("2024-02-29", "2024-02-29T00:00:00.000Z", "2024-02-29 00:00", str(day)):
        assert date_of(text, None, None) == day
    assert date_of(str(day * 86_400_000), MILLIS, None) == day
    assert date_of(str(day * 86_400_000), None, None) == day
    assert date_of("-1", DAYS, None) == date_of("-86400000000", MICROS, None) == -1
    for text, unit in (
        ("2024-02-29T00:00:01", None),
        ("86400001", MILLIS),
        ("2147483648", DAYS),
        ("3000001", None),
        ("2023-02-29", None),
    ):
        with pytest.raises(ValueError):  # noqa: PT011 - see above
            date_of(text, unit, None)
