"""A clock that stands still until it is told to move."""

from __future__ import annotations

import random


class ManualClock:
    """Time moves by `advance` and `sleep` only; ids repeat for a seed; there is no jitter."""

    def __init__(self, *, wall_us: int = 1_700_000_000_000_000, seed: int = 0) -> None:
        self.wall_us = wall_us
        """What `now_us` says. Set it to let the wall clock jump; `monotonic_s` does not follow."""

        self.slept: list[float] = []
        """Every wait that was asked for, in seconds."""

        self._monotonic_s = 0.0
        self._random = random.Random(seed)  # noqa: S311 - ids that a test can repeat

    def now_us(self) -> int:
        return self.wall_us

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(seconds)

    def new_id(self) -> str:
        return f"{self._random.getrandbits(128):032x}"

    def jitter(self) -> float:
        return 0.0

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        self.wall_us += round(seconds * 1_000_000)
        self._monotonic_s += seconds
