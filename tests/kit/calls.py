"""Counting the calls of functions, by any caller and under any name."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def counted(*functions: Callable[..., object]) -> Iterator[Counter[str]]:
    """Count the calls of `functions`, by name, that this thread makes inside the block."""
    names = {function.__code__: function.__name__ for function in functions}
    counts: Counter[str] = Counter(dict.fromkeys(names.values(), 0))

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in names:
            counts[names[frame.f_code]] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield counts
    finally:
        sys.setprofile(before)
