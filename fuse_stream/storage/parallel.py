"""Puts that go on beside the work that need not wait for them.

Rules:
- New objects under random names only: nobody looks for one before a slot names it.
- One at a time, so that memory holds the bytes of one object more and no others.
- Whoever leaves the `with` block knows that all of them are in the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol

from fuse_stream.storage.base import Store


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
