"""Searching for the greatest version that is taken, by a question about one version at a time.

Taken versions have no gap, but for slots that were lost. Pure but for the question.
"""

from __future__ import annotations

from collections.abc import Callable

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.layout import LAST_VERSION

IsTaken = Callable[[int], bool]
"""False for what lies beyond `LAST_VERSION`, so that every search ends."""

MOST_STEPS = LAST_VERSION.bit_length() + 1
"""Steps, each twice as long as the one before, from any version to beyond the last."""

MOST_GAPS = 1_000
"""Lost slots, each alone, that a search passes before it gives up."""


def last_taken(is_taken: IsTaken, low: int) -> int:
    """Return the version, from `low` on, that is taken while the next one is not."""
    step = 1
    for _ in range(MOST_STEPS):
        if not is_taken(low + step):
            break
        low += step
        step *= 2
    high = low + step
    for _ in range(MOST_STEPS):
        if high - low <= 1:
            break
        middle = (low + high) // 2
        if is_taken(middle):
            low = middle
        else:
            high = middle
    return low


def past_gaps(is_taken: IsTaken, low: int) -> int:
    """Return the version that `last_taken` finds beyond gaps of one slot each.

    Raises:
        CorruptObjectError: there are more of them than anybody loses by accident.
    """
    for _ in range(MOST_GAPS):
        if not is_taken(low + 2):
            return low
        low = last_taken(is_taken, low + 2)  # a slot was lost, or others committed
    raise CorruptObjectError(
        "many slots of a branch are lost, so its newest one is not known; fuse-stream fsck names "
        "them: restore them from a copy",
        version=low,
    )
