"""Store calls in threads: parallel calls with ordered results, and puts in the background.

Rules of background puts:
- Only new objects under random keys: nothing reads one before a slot names it.
- On a remote store `PUTS` at a time, of `PUT_BYTES` together; elsewhere one. A larger object is put
  alone. So memory holds that much more; twice, where a client of the store copies what it sends.
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


PUTS = 8
PUT_BYTES = 64 * 1024 * 1024
"""The limits of the puts of a remote store that run at one time."""


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
    most = PUTS if store.is_remote else 1
    with ThreadPoolExecutor(most) as pool:
        puts = _BackgroundPuts(store, pool, most)
        yield puts
        puts.settle()


class _BackgroundPuts:
    def __init__(self, store: Store, pool: ThreadPoolExecutor, most: int) -> None:
        self._store = store
        self._pool = pool
        self._most = most
        self._pending = deque[tuple[Future[None], int]]()
        """The puts that may still run, oldest first, with their bytes."""

    def put(self, key: str, data: bytes | memoryview) -> None:
        size = memoryview(data).nbytes
        self._settle_until(self._most - 1, PUT_BYTES - size)
        self._pending.append((self._pool.submit(self._store.put, key, data), size))

    def settle(self) -> None:
        """Wait for all puts; raise the error of the first that failed."""
        self._settle_until(0, 0)

    def _settle_until(self, count: int, total_bytes: int) -> None:
        while self._pending and (
            len(self._pending) > count or sum(size for _, size in self._pending) > total_bytes
        ):
            put, _ = self._pending.popleft()
            put.result()
