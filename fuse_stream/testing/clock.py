"""A clock that only a test moves."""

from __future__ import annotations

import random


class ManualClock:
    """A clock that only `advance` and `sleep` move. Ids repeat for a seed; there is no jitter."""

    def __init__(self, *, wall_us: int = 1_700_000_000_000_000, seed: int = 0) -> None:
        self.wall_us = wall_us
        """The value of `now_us`. Set it to make the wall clock jump; `monotonic_s` stays."""

        self.slept: list[float] = []
        """The argument of each `sleep`, in seconds."""

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
        """Move the wall clock and the monotonic clock forward."""
        self.wall_us += round(seconds * 1_000_000)
        self._monotonic_s += seconds
