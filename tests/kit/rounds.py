"""A store that answers late, and tells which of its calls had to wait for which.

An act takes the latency of its store once for each call in the longest chain of calls of which each
began after the one before it had ended: these are its rounds.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fuse_stream.storage.base import Store
from fuse_stream.storage.parallel import each
from fuse_stream.storage.wrappers import StoreWrapper

T = TypeVar("T")

LATENCY_S = 0.1


@dataclass(frozen=True, slots=True)
class Answered:
    """A call that has ended."""

    verb: str
    key: str
    began_s: float
    ended_s: float


class LateStore(StoreWrapper):
    """A remote store: it answers each call `latency_s` late, and several at the same time."""

    overlaps = True
    is_remote = True

    def __init__(self, store: Store, latency_s: float = LATENCY_S) -> None:
        super().__init__(store)
        self.calls: list[Answered] = []
        """In the order of their ends."""
        self.latency_s = latency_s
        self._lock = threading.Lock()

    def call(self, verb: str, key: str, act: Callable[[Store, str], T]) -> T:
        began_s = time.monotonic()
        time.sleep(self.latency_s)
        try:
            return act(self.store, key)
        finally:
            with self._lock:
                self.calls.append(Answered(verb, key, began_s, time.monotonic()))

    def delete_all(self, keys: Sequence[str]) -> None:
        for _ in each(self.delete, keys, self, at_once=16):
            pass

    @property
    def rounds(self) -> int:
        """The number of calls in the longest chain."""
        count, last_end_s = 0, float("-inf")
        for call in sorted(self.calls, key=lambda call: call.ended_s):
            if call.began_s >= last_end_s:
                count, last_end_s = count + 1, call.ended_s
        return count

    @property
    def most_at_once(self) -> int:
        """The most calls that ran at one time."""
        changes = [(call.began_s, 1) for call in self.calls]
        changes += [(call.ended_s, -1) for call in self.calls]
        most = running = 0
        for _, change in sorted(changes):
            running += change
            most = max(most, running)
        return most

    def counts(self) -> Counter[str]:
        """Return the number of calls of each verb."""
        return Counter(call.verb for call in self.calls)
