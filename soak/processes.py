"""The processes of a run, each in its own group: a kill ends its JVM and workers too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Self

from soak.places import MAINTENANCE, OPTIMIZER, Places

ROOT = Path(__file__).parent.parent


class SoakFailedError(RuntimeError):
    """A process ended with an error, or did not end."""


class Processes:
    """All running processes, by name. The end of the block kills the remaining ones."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in tuple(self._running):
            self.kill(name)

    @property
    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._running.items()}

    def start(self, name: str) -> None:
        module = "soak.maintenance" if name in {OPTIMIZER, MAINTENANCE} else "soak.driver"
        log = self._places.log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", module, str(self._places.root), name],
                cwd=ROOT,
                # An allocator's arena for each thread since the start would look like a leak.
                env={**os.environ, "MALLOC_ARENA_MAX": "2"},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """Kill a process and all below it: no handler runs, nothing is flushed."""
        process = self._running.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def check(self) -> None:
        """Check that all run.

        Raises:
            SoakFailedError: one has ended.
        """
        for name, process in self._running.items():
            if process.poll() is not None:
                raise SoakFailedError(self._obituary(name, process))

    def wait_for_end(self, names: Iterable[str], seconds: float) -> None:
        """Wait until these have ended by themselves, while the others run.

        Raises:
            SoakFailedError: one failed, or takes longer than that.
        """
        left = set(names)
        until = time.monotonic() + seconds
        while left:
            for name in sorted(left):
                process = self._running[name]
                if process.poll() is not None:
                    if process.returncode:
                        raise SoakFailedError(self._obituary(name, process))
                    self.kill(name)  # no process of its group remains
                    left.discard(name)
            self.check()
            if time.monotonic() > until:
                raise SoakFailedError(f"{', '.join(sorted(left))} did not come to an end")
            time.sleep(0.2)

    def _obituary(self, name: str, process: subprocess.Popen[bytes]) -> str:
        log = self._places.log(name)
        tail = log.read_text(errors="replace")[-3000:]
        return f"{name} ended with {process.returncode}; {log} says:\n{tail}"
