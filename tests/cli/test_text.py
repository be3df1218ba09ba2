"""Values as a person reads them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from fuse_stream.cli.text import (
    bound,
    cell,
    first_line,
    iso,
    printable,
)
from fuse_stream.format.records import Value


def test_times_are_iso_in_utc() -> None:
    assert iso(1_795_000_000_123_456) == "2026-11-18T11:06:40Z"
    assert iso(1_795_000_000_123_456, exact=True) == "2026-11-18T11:06:40.123456Z"


def test_a_time_outside_the_calendar_is_shown_as_a_number() -> None:
    assert iso(2**62) == f"{2**62} us"


@pytest.mark.parametrize(
    ("value", "type_name", "text"),
    [
        (None, "long", "?"),
        (0, "date", "1970-01-01"),
        (10**9, "date", "1000000000 d"),
        (-1, "timestamp", "1969-12-31T23:59:59.999999Z"),
        (0, "timestamp_ntz", "1970-01-01T00:00:00"),
        (7, "long", "7"),
        (True, "boolean", "true"),
        (b"\x01", "binary", "01"),
        (Decimal("1E+2"), "decimal(9,0)", "100"),
        ("a\nb", "string", r"a\nb"),
    ],
)
def test_bounds_are_shown_as_values_of_their_column(
    value: Value | None, type_name: str, text: str
) -> None:
    assert bound(value, type_name) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (float("nan"), "NaN"),
        ([1, None, "x"], "[1, null, x]"),
        ({"a": True}, "{a: true}"),
        (
            dt.datetime(2026, 1, 2, 3, tzinfo=dt.timezone(dt.timedelta(hours=1))),
            "2026-01-02T02:00:00Z",
        ),
        (dt.datetime(2026, 1, 2, 3), "2026-01-02T03:00:00"),  # noqa: DTZ001 - a column without zone
        (dt.date(2026, 1, 2), "2026-01-02"),
    ],
)
def test_cells_are_on_one_line(value: object, text: str) -> None:
    assert cell(value) == text


def test_control_characters_are_shown_escaped() -> None:
    assert printable("a\x1b[2J\u202eb\tc") == r"a\x1b[2J\u202eb\tc"


def test_only_the_first_line_of_a_message_is_shown() -> None:
    assert first_line("one\ntwo") == "one …"
    assert first_line("  one \n") == "one"
