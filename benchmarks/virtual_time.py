"""Time that passes only while all threads wait: figures that do not depend on the machine."""

from __future__ import annotations

import heapq
import itertools
import random
import threading
from collections.abc import Callable, Sequence

_PATIENCE_S = 600.0


class VirtualTime:
    """Runs threads one at a time; `sleep` lets the one run that is due first."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._due: list[tuple[float, int, threading.Event]] = []
        self._numbers = itertools.count()

    def sleep(self, seconds: float) -> None:
        """Wait for virtual seconds; called by the thread that runs."""
        mine = self._turn(seconds)
        self._let_next_run()
        if not mine.wait(_PATIENCE_S):
            raise TimeoutError("a simulated thread waits for one that does not sleep")

    def run(self, tasks: Sequence[Callable[[], None]]) -> None:
        """Run the tasks, each in a thread, from now on until all have ended."""
        errors: list[BaseException] = []

        def follow(task: Callable[[], None], turn: threading.Event) -> None:
            turn.wait(_PATIENCE_S)
            try:
                task()
            except BaseException as error:  # noqa: BLE001 - raised below
                errors.append(error)
            finally:
                self._let_next_run()

        threads = [
            threading.Thread(target=follow, args=(task, self._turn(0.0)), daemon=True)
            for task in tasks
        ]
        for thread in threads:
            thread.start()
        self._let_next_run()
        for thread in threads:
            thread.join(_PATIENCE_S)
        if errors:
            raise errors[0]

    def _turn(self, seconds: float) -> threading.Event:
        turn = threading.Event()
        heapq.heappush(self._due, (self.now_s + seconds, next(self._numbers), turn))
        return turn

    def _let_next_run(self) -> None:
        if self._due:
            self.now_s, _, turn = heapq.heappop(self._due)
            turn.set()


class VirtualClock:
    """A clock of virtual time; its ids and its jitter repeat for a seed."""

    def __init__(self, time: VirtualTime, seed: int) -> None:
        self._time = time
        self._random = random.Random(seed)

    def now_us(self) -> int:
        return 1_700_000_000_000_000 + round(self._time.now_s * 1_000_000)

    def monotonic_s(self) -> float:
        return self._time.now_s

    def sleep(self, seconds: float) -> None:
        self._time.sleep(seconds)

    def new_id(self) -> str:
        return f"{self._random.getrandbits(128):032x}"

    def jitter(self) -> float:
        return self._random.random()
