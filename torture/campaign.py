"""What a campaign is: one trial a seed, counted in faults that fired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


class PromiseBrokenError(Exception):
    """A promise of the table did not hold.

    `history` is the shortest list of steps known to show it, one a line.
    """

    def __init__(self, promise: str, history: list[str]) -> None:
        super().__init__(promise)
        self.promise = promise
        self.history = history


Trial = Callable[[int, Path], Counter[str]]
"""Take a seed and an empty folder; return how often each outcome was seen, faults that fired alone.

The same seed makes the same history. Raises `PromiseBrokenError` if a promise does not hold.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """One way to break a table."""

    name: str
    does: str
    """One line: what is broken, and what must hold afterwards."""
    unit: str
    """What is counted, in the plural: "faults", "kills"."""
    trial: Trial
    in_ci: int
    """How many units `make torture` runs at least."""
    in_night: int
    """How many units `make torture-night` aims at."""
    needs: tuple[str, ...] = ()
    """What must be installed: "spark", "s3"."""
