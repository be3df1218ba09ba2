"""The service's loop: it looks after the branches that it watches, and those that it is told of.

Rules:
- One at a time: so it is never two at once for a table, and never more than one core.
- What is told is a hint: one that is lost is made up for by the next commit.
- It ends at any point by `Stop`, which whoever ends the process raises: a commit has landed or not.
"""

from __future__ import annotations

import queue
from collections.abc import Iterable

import pyarrow as pa

from fuse_stream.clock import SYSTEM_CLOCK, Clock
from fuse_stream.service.care import Care
from fuse_stream.service.place import Place

LOOK_EVERY_S = 5.0
"""Between two looks at a table that is watched: three small reads."""
IDLE_S = 60.0
"""After so long without work or word a service that watches nothing ends."""


LEAST_PAUSE_US = 10_000
"""Between two looks at one table, whatever the last one said: a loop that never rests is none."""


class Stop(BaseException):
    """The service is to end now. No `Exception`, so that no retry survives it."""


class Rounds:
    """Goes round the tables in its care. `tell` may be called from another thread."""

    def __init__(
        self, watched: Iterable[Place] = (), *, clock: Clock = SYSTEM_CLOCK, idle_s: float = IDLE_S
    ) -> None:
        self._clock = clock
        self._idle_us = round(idle_s * 1_000_000)
        self._owner_id = clock.new_id()
        self._told: queue.SimpleQueue[Place] = queue.SimpleQueue()
        self._watched = tuple(watched)
        self._cares: dict[tuple[str, str], Care] = {}
        self._due_us: dict[tuple[str, str], int] = {}

    def tell(self, place: Place) -> None:
        """Say that there was a commit."""
        self._told.put(place)

    def go(self) -> None:
        """Go round until nobody has had a word for a while; for ever if something is watched."""
        for place in self._watched:
            self._look(place)
        last_us = self._clock.now_us()
        while self._watched or self._clock.now_us() < last_us + self._idle_us:
            if self._wait(last_us):
                last_us = self._clock.now_us()
            for name, due_us in tuple(self._due_us.items()):
                if due_us <= self._clock.now_us():
                    self._look(self._cares[name].place)
                    last_us = self._clock.now_us()

    def _wait(self, last_us: int) -> bool:
        """Wait until something is due, and return whether something was told meanwhile."""
        next_us = min(self._due_us.values(), default=last_us + self._idle_us)
        if not self._watched:
            next_us = min(next_us, last_us + self._idle_us)
        seconds = max(0.0, (next_us - self._clock.now_us()) / 1_000_000)
        places = {}
        try:
            place = self._told.get(timeout=seconds)
            while True:
                places[place.name] = place
                place = self._told.get_nowait()
        except queue.Empty:
            pass
        for place in places.values():
            self._look(place)
        return bool(places)

    def _look(self, place: Place) -> None:
        care = self._cares.get(place.name)
        if care is None or care.place != place:
            care = self._cares[place.name] = Care(place, self._clock, self._owner_id)
        look_us = care.tend()
        # A service waits most of its life: what its work took would lie idle all that time.
        pa.default_memory_pool().release_unused()
        if place in self._watched:
            often_us = self._clock.now_us() + round(LOOK_EVERY_S * 1_000_000)
            look_us = often_us if look_us is None else min(look_us, often_us)
        if look_us is None:
            self._due_us.pop(place.name, None)
        else:
            self._due_us[place.name] = max(look_us, self._clock.now_us() + LEAST_PAUSE_US)
