"""Asking a store for an object that may not be there."""

from __future__ import annotations

from fuse_stream.errors import NotFoundError
from fuse_stream.storage.base import Store


def find_object(store: Store, key: str) -> bytes | None:
    """Return the object under `key`; None if there is none."""
    try:
        return store.get(key)
    except NotFoundError:
        return None


def find_modified_us(store: Store, prefix: str, key: str) -> int | None:
    """Return the store's time of the last write of `key`, which starts with `prefix`, or None."""
    return next((info.modified_us for info in store.list(prefix) if info.key == key), None)
