"""Puts that go on beside the work that need not wait for them.

Rules:
- New objects under random names only: nobody looks for one before a slot names it.
- One at a time, so that memory holds the bytes of one object more and no others.
- Whoever leaves the `with` block knows that all of them are in the store.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from fuse_stream.storage.base import Store


class BackgroundPuts:
    """Has the one verb `put` of `store`, and does not wait for it where its calls may overlap."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pool = ThreadPoolExecutor(1) if store.overlaps else None
        self._pending: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        if error is None:  # else that is what is told: the objects are of no use any more
            self._settle()

    def put(self, key: str, data: bytes | memoryview) -> None:
        """Start to create the object under `key`; the last put, which may have failed, comes first.

        Raises:
            StorageError: the last put failed.
        """
        if self._pool is None:
            self._store.put(key, data)
            return
        self._settle()
        self._pending = self._pool.submit(self._store.put, key, data)

    def _settle(self) -> None:
        if self._pending is not None:
            self._pending.result()
