"""The end of a command that runs until it is stopped."""

from __future__ import annotations

import signal
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def first_signal() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM or Ctrl-C sets; a second signal ends the process."""
    came = threading.Event()

    def note(number: int, _: types.FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        came.set()

    before = {number: signal.signal(number, note) for number in ENDING}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
