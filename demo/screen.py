"""What the reader sees while the streams run: a live line on a terminal, else one now and then."""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

LINES = 7
"""At most, where there is no live one."""


class Screen:
    """The console of one run, and how far the run is."""

    def __init__(self, weeks: int, rows: int) -> None:
        self.console = Console(highlight=False)
        if not self.console.is_terminal:
            self.console.width = max(self.console.width, 100)
        self._live = self.console.is_terminal and not os.environ.get("CI")
        self._weeks = weeks
        self._bar = Progress(
            TextColumn("week {task.fields[week]:>2} of {task.fields[weeks]}"),
            BarColumn(bar_width=30),
            TextColumn("{task.completed:>7,.0f} flights  {task.fields[doing]}"),
            console=self.console,
            disable=not self._live,
        )
        self._task: TaskID = self._bar.add_task("", total=rows, week=0, weeks=weeks, doing="")
        self._doing = ""
        self._shown: int | None = None
        self._first: tuple[float, int] | None = None
        self._said = 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """Print a line above the live one."""
        self.console.print(text)

    def driver_started(self, pid: int, *, number: int, ask: bool) -> None:
        """Say that a driver runs, and how a reader can end it."""
        what = "started" if number == 1 else "started in its place, on the same checkpoint"
        self.say(f"[green]driver {number}[/] {what}: pid {pid}")
        if ask:
            self.say(f"  kill it whenever you like, from another terminal: [bold]kill -9 {pid}[/]")
        self._doing, self._shown, self._first = "Spark starts", None, None

    def progress(self, weeks: int, rows: int) -> None:
        """Show how much is in the table; the speed is that of the driver at work."""
        if rows != self._shown:
            self._doing = self._speed(rows)
            self._shown = rows
        if weeks == self._weeks:
            self._doing = "the second stream catches up"
        self._bar.update(self._task, completed=rows, week=weeks, doing=self._doing)
        reached = weeks * LINES // self._weeks
        if not self._live and reached > self._said:
            self._said = reached
            self.say(f"  week {weeks:>2} of {self._weeks}: {rows:>7,} flights  {self._doing}")

    def _speed(self, rows: int) -> str:
        now_s = time.monotonic()
        if self._shown is None:
            return self._doing  # what an earlier driver brought
        if self._first is None:
            self._first = now_s, rows  # from here on: before that, Spark was starting
            return ""
        since_s, before = self._first
        return f"{(rows - before) / (now_s - since_s):,.0f} a second"

    def killing(self, pid: int, week: int, version: int) -> None:
        """Say that the moment has come."""
        self.say(
            f"[red]kill -9 {pid}[/]: week {week} is in the table (version {version}), but Spark "
            "has not noted it yet"
        )

    def ask_to_kill(self, pid: int, week: int, patience_s: float) -> None:
        """Ask the reader to kill now, where it hurts most."""
        self.say(
            f"[bold red]now[/]: week {week} is in the table, but Spark has not noted it yet. "
            f"From another terminal: [bold]kill -9 {pid}[/]"
        )
        self.say(f"  the driver waits here for {patience_s:.0f} seconds")

    def nobody_killed(self) -> None:
        """Say that the run goes on."""
        self.say("  nobody did; it goes on")
