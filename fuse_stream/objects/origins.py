"""A clone's store: its own objects, and the blocks of other tables that its opener allows.

Rules:
- Only a location that the opener named is ever opened. What `_fuse.json` says of an origin's place
  is told to people, and followed by nobody: whoever can write a table could point it anywhere.
- An allowed location counts for the table that stands there, by the id in its `_fuse.json`: a
  table that has moved is found at its new place, and another one in its old place is not read.
- Other tables' objects are read, one by one, and never written or listed.
- No location is looked at before a block of another table is wanted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO

from fuse_stream.errors import InvalidInputError, NotFoundError, UnsupportedStorageError
from fuse_stream.format.codec import decode_table_file
from fuse_stream.format.layout import TABLE_KEY, split_origin
from fuse_stream.storage.base import ObjectInfo, Store

_LONGEST_LOCATION = 500
"""Characters of a recorded location that are shown; it may be anything."""


class StoreWithOrigins:
    """Passes calls on to `store`, but reads `_origins/<table id>/…` where that table is."""

    def __init__(self, store: Store, allowed: Sequence[Store] = ()) -> None:
        self._store = store
        self.allowed = tuple(allowed)
        """The stores of other tables that may be read."""
        self._ids: tuple[str | None, ...] | None = None
        """Of the tables in `allowed`, once that was asked."""

    def __repr__(self) -> str:
        return f"StoreWithOrigins({self._store!r}, {self.allowed!r})"

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def overlaps(self) -> bool:
        return self._store.overlaps

    def get(self, key: str) -> bytes:
        store, inner = self._place(key)
        return store.get(inner)

    def open_input(self, key: str) -> BinaryIO:
        store, inner = self._place(key)
        return store.open_input(inner)

    def put(self, key: str, data: bytes | memoryview) -> None:
        self._check_own(key)
        self._store.put(key, data)

    def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
        self._check_own(key)
        self._store.put_if_absent(key, data)

    def replace(self, key: str, data: bytes | memoryview) -> None:
        self._check_own(key)
        self._store.replace(key, data)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._check_own(prefix)
        return self._store.list(prefix)

    def delete(self, key: str) -> None:
        self._check_own(key)
        self._store.delete(key)

    def delete_all(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._check_own(key)
        self._store.delete_all(keys)

    def location(self, key: str) -> str:
        store, inner = self._place(key)
        return store.location(inner)

    def origin(self, table_id: str) -> Store:
        """Return the store of another table, if the opener allows it.

        Raises:
            InvalidInputError: none of the allowed locations holds it; names what would.
        """
        if self._ids is None:
            self._ids = tuple(_table_id(store) for store in self.allowed)
        for store, found in zip(self.allowed, self._ids, strict=True):
            if found == table_id:
                return store
        raise self._not_allowed(table_id)

    def _place(self, key: str) -> tuple[Store, str]:
        split = split_origin(key)
        return (self._store, key) if split is None else (self.origin(split[0]), split[1])

    def _check_own(self, key: str) -> None:
        if split_origin(key) is not None:
            raise UnsupportedStorageError(
                "other tables' objects are only read; open that table to write to it", key=key
            )

    def _not_allowed(self, table_id: str) -> InvalidInputError:
        recorded = dict(decode_table_file(self._store.get(TABLE_KEY)).origins).get(table_id)
        allowed = dict(zip((store.url for store in self.allowed), self._ids or (), strict=True))
        return InvalidInputError(
            "this table is a clone, and some of its blocks stand in its origin, which is followed "
            "only where the opener allows it: pass origins=[…] (the option `origins`, --origin) "
            "with the place where that table is now, if you trust it",
            path=self.url,
            origin=table_id,
            recorded=None if recorded is None else recorded[:_LONGEST_LOCATION],
            allowed=allowed or None,
        )


def _table_id(store: Store) -> str | None:
    """Return which table stands in a store; None for none.

    Raises:
        StorageError: that cannot be read.
    """
    try:
        return decode_table_file(store.get(TABLE_KEY)).table_id
    except NotFoundError:
        return None
