"""Sizes as a person reads them."""

from __future__ import annotations

import pytest

from fuse_stream.format.sizes import size


@pytest.mark.parametrize(
    ("byte_count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1024 * 1024 - 1, "1.0 MiB"),
        (5 * 1024**3, "5.0 GiB"),
        (1024**6, "1024.0 PiB"),
    ],
)
def test_sizes_are_shown_in_the_fitting_unit(byte_count: int, text: str) -> None:
    assert size(byte_count) == text
