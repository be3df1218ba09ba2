"""Deleting many objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from fuse_stream.storage.base import Store

THREADS = 8
"""Calls at a time, where the store lets calls overlap."""
_PIECE = 1000


def delete_all(store: Store, keys: Iterable[str]) -> Iterator[int]:
    """Delete objects, in any order within a piece; yield how many are gone after each piece.

    Raises:
        StorageError: one could not be deleted; others may be gone.
    """
    left = iter(keys)
    done = 0
    with ThreadPoolExecutor(THREADS) as pool:
        while piece := list(islice(left, _PIECE)):
            for _ in pool.map(store.delete, piece) if store.overlaps else map(store.delete, piece):
                done += 1
            yield done
