"""Calls of a store that run in threads: many in order, and puts that nobody waits for.

Rules of background puts:
- New objects under random names only: nobody looks for one before a slot names it.
- One at a time, so that memory holds the bytes of one object more and no others.
- Whoever leaves the `with` block knows that all of them are in the store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

from fuse_stream.storage.base import Store

T = TypeVar("T")
Item = TypeVar("Item")

AHEAD = 4
"""Calls of `each` for each thread that have begun or ended, and whose results nobody took yet."""


def each(
    act: Callable[[Item], T], items: Sequence[Item], *stores: Store, at_once: int
) -> Generator[T]:
    """Yield what `act` returns for each item, in order, `at_once` calls at a time at the most.

    Where the calls of one of `stores` may not overlap, each call runs when its result is asked
    for. The first error in the order of the items is raised in its place; then, and when the
    iterator is closed, what has not begun is cancelled, and what is running ends first.
    """
    if min(at_once, len(items)) < 2 or not all(store.overlaps for store in stores):
        yield from map(act, items)
        return
    calls = deque[Future[T]]()
    pool = ThreadPoolExecutor(at_once)
    try:
        for item in items:
            if len(calls) == AHEAD * at_once:
                yield calls.popleft().result()
            calls.append(pool.submit(act, item))
        while calls:
            yield calls.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


class Puts(Protocol):
    """The one verb of a store that new objects need."""

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See `Store.put`."""
        ...


@contextmanager
def background_puts(store: Store) -> Iterator[Puts]:
    """Yield what puts into `store`, without waiting where the calls of `store` may overlap.

    A put that failed is told by the next one, or at the end; after another error it is not told,
    for the objects are of no use any more.

    Raises:
        StorageError: a put failed.
    """
    if not store.overlaps:
        yield store
        return
    with ThreadPoolExecutor(1) as pool:
        puts = _BackgroundPuts(store, pool)
        yield puts
        puts.settle()


class _BackgroundPuts:
    def __init__(self, store: Store, pool: ThreadPoolExecutor) -> None:
        self._store = store
        self._pool = pool
        self._pending: Future[None] | None = None

    def put(self, key: str, data: bytes | memoryview) -> None:
        self.settle()
        self._pending = self._pool.submit(self._store.put, key, data)

    def settle(self) -> None:
        """Wait for the last put, and raise what it raised."""
        if self._pending is not None:
            self._pending.result()
