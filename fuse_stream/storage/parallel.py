"""Store calls in threads: parallel calls with ordered results, and puts in the background.

Rules of background puts:
- Only new objects under random keys: nothing reads one before a slot names it.
- One at a time, so memory holds the bytes of one object more.
- After the `with` block all objects are in the store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Protocol, TypeVar

from fuse_stream.storage.base import Store, find_object

T = TypeVar("T")
Item = TypeVar("Item")

AHEAD = 4
"""The most calls of `each` per thread that have begun and whose results are not consumed yet."""


def each(
    act: Callable[[Item], T],
    items: Iterable[Item],
    *stores: Store,
    at_once: int,
    ahead: int = AHEAD,
) -> Generator[T]:
    """Yield the result of `act` for each item, in order, with at most `at_once` parallel calls.

    Memory holds the results of `ahead` times as many, at most. Items are taken when a call begins.
    If the calls of one of `stores` may not overlap, each call runs when its result is consumed.
    An error is raised in place of its result. After an error, or when the iterator is closed,
    calls that have not begun are cancelled and running calls are awaited.
    """
    if isinstance(items, Sized):
        at_once = min(at_once, len(items))
    if at_once < 2 or not all(store.overlaps for store in stores):
        yield from map(act, items)
        return
    calls = deque[Future[T]]()
    pool = ThreadPoolExecutor(at_once)
    try:
        for item in items:
            if len(calls) == ahead * at_once:
                yield calls.popleft().result()
            calls.append(pool.submit(act, item))
        while calls:
            yield calls.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def find_objects(store: Store, keys: Sequence[str]) -> dict[str, bytes | None]:
    """Return the objects under a few keys, by key, None where there is none.

    A remote store is asked for all of them at once.
    """
    at_once = len(keys) if store.is_remote else 1
    return dict(
        zip(keys, each(partial(find_object, store), keys, store, at_once=at_once), strict=True)
    )


class Puts(Protocol):
    """The part of a store that creates new objects."""

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See `Store.put`."""
        ...


@contextmanager
def background_puts(store: Store) -> Iterator[Puts]:
    """Yield an object whose `put` writes to `store` in the background.

    If the calls of `store` may not overlap, `put` waits. The error of a put is raised by the next
    put or at the end of the block; if the block itself raises, the error of a put is dropped.

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
        """Wait for the last put; raise its error if it failed."""
        if self._pending is not None:
            self._pending.result()
