"""Several actors on one store, one storage call at a time, in an order that a test chooses.

An actor runs in a thread of its own, but never beside another: it waits before every storage call
until its turn, makes the call, and goes on to the next one. One schedule, one course of events.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from fuse_stream.storage.base import Store
from fuse_stream.storage.wrappers import StoreWrapper

T = TypeVar("T")

PATIENCE_S = 30.0
"""An actor without a call for this long waits for something else than its turn."""


@dataclass(frozen=True, slots=True)
class Call:
    """A storage call that an actor made."""

    actor: int
    verb: str
    key: str


def run_interleaved(
    store: Store,
    actors: Sequence[Callable[[Store], T]],
    schedule: Sequence[int],
    trace: list[Call] | None = None,
) -> list[T | BaseException]:
    """Run every actor to its end; return what each returned, or raised.

    Args:
        store: shared; each actor gets its own wrapper of it.
        actors: each makes its storage calls from the thread that it is called in.
        schedule: whose call comes next, as indexes of `actors`. The turn of an actor that is done
            is skipped; when the schedule ends, the actors run out one after the other.
        trace: gets the calls, in their order.
    """
    calls: list[Call] = [] if trace is None else trace
    threads = [_Actor(store, act, number, calls) for number, act in enumerate(actors)]
    for actor in threads:
        actor.start()
    for index in schedule:
        threads[index].step()
    for actor in threads:
        while not actor.is_done:
            actor.step()
    return [actor.outcome for actor in threads]


def iter_schedules(calls: int) -> Iterator[list[int]]:
    """Yield the schedules of two actors that switch at every pair of their calls.

    The first makes `i` calls, then the second `j`, then the first runs out, then the second; for
    all `i` and `j` up to `calls`.
    """
    for first in range(calls + 1):
        for second in range(calls + 1):
            yield [0] * first + [1] * second


class _Actor(Generic[T]):
    """One thread, which waits for its turn at every storage call."""

    def __init__(
        self, store: Store, act: Callable[[Store], T], number: int, calls: list[Call]
    ) -> None:
        self.is_done = False
        self.outcome: T | BaseException
        self._act = act
        self._number, self._calls = number, calls
        self._store = _TurnStore(store, self._wait_for_turn)
        self._turn = threading.Semaphore(0)
        self._waiting = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Run up to the first storage call."""
        self._thread.start()
        self._await_actor()

    def step(self) -> None:
        """Run one storage call, and everything up to the next one."""
        if not self.is_done:
            self._turn.release()
            self._await_actor()

    def _await_actor(self) -> None:
        if not self._waiting.acquire(timeout=PATIENCE_S):
            raise TimeoutError("an actor waits for something else than its turn")

    def _wait_for_turn(self, verb: str, key: str) -> None:
        if threading.current_thread() is not self._thread:
            raise RuntimeError("an actor must make its storage calls from its own thread")
        self._waiting.release()
        self._turn.acquire()
        self._calls.append(Call(self._number, verb, key))

    def _run(self) -> None:
        try:
            self.outcome = self._act(self._store)
        except BaseException as error:  # noqa: BLE001 - a crash is an outcome, too
            self.outcome = error
        self.is_done = True
        self._waiting.release()


class _TurnStore(StoreWrapper):
    """Waits for its actor's turn before every call."""

    overlaps = False  # each schedule has exactly one order of calls

    def __init__(self, store: Store, wait_for_turn: Callable[[str, str], None]) -> None:
        super().__init__(store)
        self._wait_for_turn = wait_for_turn

    def call(self, verb: str, key: str, act: Callable[[Store, str], T]) -> T:
        self._wait_for_turn(verb, key)
        return super().call(verb, key, act)
