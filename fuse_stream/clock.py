"""Time, ids and randomness: the only module that reads them from the machine.

Everything that needs them takes a `Clock`, so that tests can set it.
"""

from __future__ import annotations

import random
import time
import uuid
from typing import Protocol

# On Linux CLOCK_MONOTONIC stops while the machine is suspended; Windows has neither clock.
_NEVER_STOPS: int | None = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


class Clock(Protocol):
    """The machine's time, sleep, ids and randomness."""

    def now_us(self) -> int:
        """Return the wall-clock time in UTC microseconds: for ages, never for correctness."""
        ...

    def monotonic_s(self) -> float:
        """Return monotonic seconds, which also count while the machine is suspended.

        Only differences of two values have a meaning.
        """
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        ...

    def new_id(self) -> str:
        """Return 32 random hex digits: never derived from a batch, task or attempt."""
        ...

    def jitter(self) -> float:
        """Return a random number in [0, 1)."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic_s(self) -> float:
        return time.clock_gettime(_NEVER_STOPS) if _NEVER_STOPS is not None else time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def new_id(self) -> str:
        return uuid.uuid4().hex

    def jitter(self) -> float:
        return random.random()  # noqa: S311 - spreads retries, protects nothing


SYSTEM_CLOCK: Clock = SystemClock()


class StoreClock:
    """The store's time: learned once, then advanced by the monotonic clock.

    A later change of the wall clock has no effect.
    """

    def __init__(self, clock: Clock) -> None:
        """Start with the machine's wall clock, until `learn` is called."""
        self._clock = clock
        self.learn(clock.now_us())

    def learn(self, now_us: int) -> None:
        """Set the store's current time to `now_us`."""
        self._learned_us = now_us
        self._learned_s = self._clock.monotonic_s()

    def now_us(self) -> int:
        """Return the store's time, UTC microseconds."""
        elapsed_s = self._clock.monotonic_s() - self._learned_s
        return self._learned_us + round(elapsed_s * 1_000_000)
