"""Timing two methods for one task in turn, and the result."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

Work = Callable[[], object]

JIT_RUNS = 8
"""Warm-up runs after which the JVM has compiled what a scan of some seconds calls."""


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
    ours: Work, theirs: Work, *, runs: int, warm_ups: int = 1, before: Work = lambda: None
) -> tuple[list[float], list[float]]:
    """Time both `runs` times, in turn, after some warm-up runs of each; return the times of each.

    A scan becomes twice as fast in its first eight runs (`JIT_RUNS`), while the JVM compiles it.

    In turn, so that a machine that gets faster or slower does so for both; and each is the first of
    every second pair, as what one leaves behind (garbage, dirty pages) costs the other. `before` is
    called before each run of ours, and not timed.
    """

    def timed_ours() -> float:
        before()
        return seconds(ours)

    for _ in range(warm_ups):
        timed_ours()
        seconds(theirs)
    pairs = []
    for run in range(runs):
        if run % 2:
            their_time = seconds(theirs)
            pairs.append((timed_ours(), their_time))
        else:
            pairs.append((timed_ours(), seconds(theirs)))
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def percentile(samples: list[float], percent: float) -> float:
    """Return a percentile, by the nearest rank."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
