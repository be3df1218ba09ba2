"""Which snapshots of a branch expire. Pure.

Rules:
- The age of a snapshot runs from the moment its successor was published, by the store's time: as
  the newest it may have been read for years.
- What was superseded less than the grace ago does not expire, whatever is asked for; nor does the
  newest.
- What expires are the oldest, without a gap: the floor is one number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What is asked for. A snapshot expires if every rule that is given lets it go."""

    older_than_us: int | None = None
    """Superseded so long ago at the least."""
    keep_last: int | None = None
    """So many of the newest stay."""


def choose_floor(
    floor: int,
    published: Iterable[tuple[int, int]],
    retention: Retention,
    *,
    now_us: int,
    grace_us: int,
) -> int:
    """Return the floor that a branch should have; never less than the one it has.

    Args:
        floor: the branch's.
        published: version and store's time of its slots, in order of versions. One that is not
            known leaves the version before it to the next: it was superseded earlier than that.
        retention: what is asked for.
        now_us: the store's time, learned before `published`.
        grace_us: of the table.
    """
    slots = list(published)
    least_us = max(grace_us, retention.older_than_us or 0)
    last = slots[-1][0] - (retention.keep_last or 1) if slots else floor - 1
    for version, time_us in slots:
        if version <= floor:
            continue
        if now_us - time_us < least_us or version - 1 > last:
            break
        floor = version
    return floor
