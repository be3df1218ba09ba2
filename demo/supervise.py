"""Start the driver, watch the table, kill the driver or notice that somebody did, start it again.

The moment of the kill is decided by what stands on disk: the week is committed to the table, and
Spark's own `commits/<batch>` is not there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import fuse_stream as fuse
from demo.places import Places, week_of
from demo.screen import Screen
from fuse_stream.errors import NotFoundError

POLL_S = 0.2
PATIENCE_S = 120.0
"""How long a driver waits at its gate for a reader to kill it."""


class DriverFailedError(RuntimeError):
    """A driver ended as it should not."""


@dataclass(frozen=True, slots=True)
class Plan:
    """After which weeks a driver is to die, and by whose hand."""

    weeks: tuple[int, ...]
    by_reader: bool = False


@dataclass(frozen=True, slots=True)
class Life:
    """One driver, once it is over."""

    pid: int
    weeks: int
    """In the table when it ended."""
    killed: bool


@dataclass(frozen=True, slots=True)
class State:
    """What stands in the table."""

    version: int = 0
    weeks: int = 0
    rows: int = 0


def run_drivers(places: Places, plan: Plan, screen: Screen) -> list[Life]:
    """Run drivers one after the other until all weeks are in; return their lives.

    Raises:
        DriverFailedError: one failed by itself, or the kill missed its moment.
    """
    places.hold(0).parent.mkdir()
    for week in plan.weeks:
        places.hold(week).touch()
    lives: list[Life] = []
    while not lives or lives[-1].killed:
        if not plan.by_reader and len(lives) > len(plan.weeks):
            raise DriverFailedError("somebody else killed a driver; was there too little memory?")
        with start_driver(places) as driver:
            screen.driver_started(driver.pid, number=len(lives) + 1, ask=plan.by_reader)
            lives.append(_Watch(driver, places, plan, screen).until_the_end())
    if not plan.by_reader and len(lives) <= len(plan.weeks):
        raise DriverFailedError("a driver passed its gate unharmed: the demo has shown nothing")
    return lives


@contextmanager
def start_driver(
    places: Places, script: str = "driver.py", arguments: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a driver in a process group of its own, and leave nothing of it behind."""
    places.scratch.mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(places.scratch)}
    program = Path(__file__).with_name(script)
    with places.log.open("ab") as log:
        driver = subprocess.Popen(
            [sys.executable, str(program), str(places.root), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches the parent alone, which then ends the group
        )
    try:
        yield driver
    finally:
        kill(driver)


def kill(driver: subprocess.Popen[bytes]) -> None:
    """End a driver and its JVM the hard way: no handler runs, nothing is flushed."""
    with suppress(ProcessLookupError):  # it is over, and its JVM too
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


@dataclass(slots=True)
class _Watch:
    """What the parent knows of one driver."""

    driver: subprocess.Popen[bytes]
    places: Places
    plan: Plan
    screen: Screen
    table: fuse.Table | None = None
    asked_s: dict[int, float] = field(default_factory=dict)
    """When the reader was asked to kill, by week."""

    def until_the_end(self) -> Life:
        while self.driver.poll() is None:
            time.sleep(POLL_S)
            state = self._state()
            self.screen.progress(state.weeks, state.rows)
            for week in self.plan.weeks:
                if self.places.hold(week).exists() and self.places.held(week).exists():
                    self._at_gate(week)
        for week in self.asked_s:
            self.places.hold(week).unlink(missing_ok=True)
        if self.driver.returncode > 0:
            raise DriverFailedError(f"the driver failed; the end of {self.places.log} says why")
        state = self._state()
        self.screen.progress(state.weeks, state.rows)
        return Life(self.driver.pid, state.weeks, killed=self.driver.returncode < 0)

    def _at_gate(self, week: int) -> None:
        state, pid = self._state(), self.driver.pid
        if state.weeks != week or self.places.commit(week).exists():
            raise DriverFailedError(f"week {week}: the moment between the two commits was missed")
        if not self.plan.by_reader:
            self.screen.killing(pid, week, state.version)
            kill(self.driver)
            self.places.hold(week).unlink()
        elif week not in self.asked_s:
            self.asked_s[week] = time.monotonic()
            self.screen.ask_to_kill(pid, week, PATIENCE_S)
        elif time.monotonic() - self.asked_s[week] > PATIENCE_S:
            self.screen.nobody_killed()
            self.places.hold(week).unlink()

    def _state(self) -> State:
        if self.table is None:
            try:
                self.table = fuse.Table.open(self.places.flights)
            except NotFoundError:
                return State()
        head = self.table.head()
        weeks = [week_of(entry.batch_id) for entry in head.ledger.entries.values()]
        return State(head.version, max(weeks, default=0), head.summary.row_count)
