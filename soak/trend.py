"""Is a curve flat? Pure.

What waits for vacuum grows until the epoch is raised, and then falls: a curve of teeth, and a line
through three and a half of them rises or falls by where the first one is cut. So the mean over one
tooth is taken first; a line through that shows what grows from tooth to tooth. Slots of expired
versions have teeth of another length, for they go by the chunk: the mean over the one length is
averaged over the other. Memory has teeth too: the slow follower's workers come and go with its
batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, linear_regression

LIMIT = 0.02
"""The limit for the rise of a line through the second half, as a part of its mean."""

Curve = Sequence[tuple[float, float]]
"""Seconds and values, in the order of time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """The line through the second half of a curve."""

    mean: float
    rise: float
    """From the line's start to its end, as a part of the mean."""
    line: tuple[tuple[float, float], tuple[float, float]]
    """Its values at start and end."""

    @property
    def is_flat(self) -> bool:
        """A fall is not a leak."""
        return self.rise < LIMIT


def trend_of(curve: Curve, *, teeth_s: Sequence[float] = ()) -> Trend | None:
    """Return the line through the second half of the samples; None for too few.

    Args:
        curve: the samples.
        teeth_s: how long the teeth last that are no growth, of each kind.
    """
    smooth = curve
    for tooth_s in teeth_s:
        smooth = averaged(smooth, tooth_s) if tooth_s else smooth
    if not smooth:
        return None
    half = curve[0][0] + (curve[-1][0] - curve[0][0]) / 2
    late = [point for point in smooth if point[0] >= half]
    if len(late) < 2 or late[0][0] == late[-1][0]:
        return None
    times, values = [at for at, _ in late], [value for _, value in late]
    slope, start = linear_regression(times, values)
    first, last = ((at, start + slope * at) for at in (times[0], times[-1]))
    mean = fmean(values)
    rise = (last[1] - first[1]) / mean if mean else 0.0
    return Trend(mean=mean, rise=rise, line=(first, last))


def averaged(curve: Curve, window_s: float) -> list[tuple[float, float]]:
    """Return, for each moment with a whole window before it, the mean over that window."""
    found: list[tuple[float, float]] = []
    first = 0
    for place, (at, _) in enumerate(curve):
        if at - curve[0][0] < window_s:
            continue
        while curve[first][0] <= at - window_s:
            first += 1
        found.append((at, fmean(value for _, value in curve[first : place + 1])))
    return found


def tooth_of(steps: Curve) -> float:
    """Return the mean time between two rises of a curve that goes by steps; 0 for none."""
    times = [at for (_, before), (at, after) in pairwise(steps) if after > before]
    return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 0.0
