"""Timing two methods for one task in turn, and the result."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

Work = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One row of the result table."""

    work: str
    against: str
    ours: list[float]
    """Samples, in `unit`."""
    theirs: list[float] = field(default_factory=list)
    """Samples of the baseline; none if there is no baseline."""
    limit: float | None = None
    """The highest allowed ratio; None if the figure is only reported."""
    unit: str = "s"
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Median of ours over median of theirs."""
        if not self.theirs:
            return None
        return statistics.median(self.ours) / statistics.median(self.theirs)


def seconds(work: Work) -> float:
    """Return how long `work` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turn(
    ours: Work, theirs: Work, *, runs: int, before: Work = lambda: None
) -> tuple[list[float], list[float]]:
    """Time both `runs` times, one after the other, after one warm-up run of each.

    In turn, so that a machine that grows faster or slower does so for both. `before` is called
    before each run of ours, and not timed.
    """
    pairs = []
    for _ in range(runs + 1):
        before()
        pairs.append((seconds(ours), seconds(theirs)))
    return [pair[0] for pair in pairs[1:]], [pair[1] for pair in pairs[1:]]


def percentile(samples: list[float], percent: float) -> float:
    """Return a percentile, by the nearest rank."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
