"""What a verb on a hostile table may do: end in time with a result, or with a FuseError.

It may not use much memory, ask for a key that no table has, or say what would control a terminal.
"""

from __future__ import annotations

import gc
import logging
import re
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from fuse_stream.errors import FuseError
from fuse_stream.storage.base import Store
from fuse_stream.storage.wrappers import StoreWrapper

T = TypeVar("T")

MOST_CPU_S = 1.0
MOST_BYTES = 256 * 2**20
TRIES = 3
"""A measurement that is too large is taken again: the machine may be busy."""

_KEY = re.compile(r"(_[a-z]+/)*([A-Za-z0-9._-]+/)?[A-Za-z0-9._-]*|_origins/[0-9a-f]{32}/_b/.*")
_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


class BrokenRuleError(Exception):
    """A verb did on a hostile table what it may not do."""


class WatchedStore(StoreWrapper):
    """A store that fails if it is asked for a key that no table can have."""

    def call(self, verb: str, key: str, act: Callable[[Store, str], T]) -> T:
        if not _KEY.fullmatch(key) or ".." in key.split("/") or key.startswith("/"):
            raise BrokenRuleError(f"{verb} was asked for the key {key!r}")
        return act(self.store, key)


def outcomes_of(acts: Mapping[str, Callable[[], object]]) -> Counter[str]:
    """Return how often the acts ended with "answer", or with a FuseError of a name.

    Raises:
        BrokenRuleError: another exception, too much time or memory, or a message with characters
            that control a terminal.
    """
    outcomes: Counter[str] = Counter()
    with _peak() as grown_bytes, _harmless_log():
        for name, act in acts.items():
            outcomes[_in_time(name, act)] += 1
    if grown_bytes[0] > MOST_BYTES:  # which of them
        for name, act in acts.items():
            _check_memory(name, act)
    return outcomes


def _in_time(name: str, act: Callable[[], object]) -> str:
    outcome, cpu_s = "", 0.0
    for _ in range(TRIES):
        begun_s = time.process_time()
        outcome = _tried(name, act)
        cpu_s = time.process_time() - begun_s
        if cpu_s <= MOST_CPU_S:
            return outcome
    raise BrokenRuleError(f"{name}: {outcome} took {cpu_s:.2f} s")


def _check_memory(name: str, act: Callable[[], object]) -> None:
    grown = []
    for _ in range(TRIES):
        gc.collect()
        with _peak() as grown_bytes:
            _tried(name, act)
        grown.append(grown_bytes[0])
        if grown[-1] <= MOST_BYTES:
            return
    raise BrokenRuleError(f"{name} took {min(grown) >> 20} MiB")


def _tried(name: str, act: Callable[[], object]) -> str:
    try:
        act()
    except BrokenRuleError:
        raise
    except FuseError as error:
        if not str(error).replace("\n", "").isprintable():
            raise BrokenRuleError(f"{name}: a message controls a terminal: {error!r}") from error
        return type(error).__name__
    except Exception as error:
        where = "".join(traceback.format_exception(error)[-6:])
        raise BrokenRuleError(
            f"{name}: {type(error).__name__}: {str(error)[:200]}\n{where}"
        ) from error
    return "answer"


@contextmanager
def _peak() -> Iterator[list[int]]:
    """Yield a list whose one number is, after the block, by how many bytes the process grew."""
    found = [0]
    _RESET.write_text("5")
    before = _kib("VmRSS")
    yield found
    found[0] = 1024 * (_kib("VmHWM") - before)


class _Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.harmful: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not (text := record.getMessage()).isprintable():
            self.harmful.append(text)


@contextmanager
def _harmless_log() -> Iterator[None]:
    log, handler = logging.getLogger("fuse_stream"), _Log()
    log.addHandler(handler)
    is_shown, log.propagate = log.propagate, False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = is_shown
    if handler.harmful:
        raise BrokenRuleError(f"a log line controls a terminal: {handler.harmful[0]!r}")


def _kib(name: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1])
