"""A clone's store: its own objects, and the blocks of its origins that the user allows.

Rules:
- Only locations that the user gave are opened. The location of an origin in `_fuse.json` is shown
  to people and never opened: someone who can write the table could make it point anywhere.
- The table at an allowed location is identified by the id in its `_fuse.json`. So a table that was
  moved is found at its new location, and another table at its old location is not read.
- Objects of origins are read one by one, and never written or listed.
- An allowed location is first opened when a block of an origin is read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from fuse_stream.errors import InvalidInputError, UnsupportedStorageError
from fuse_stream.format.codec import decode_table_file
from fuse_stream.format.layout import TABLE_KEY, split_origin
from fuse_stream.objects.size_limits import limit_of
from fuse_stream.storage.base import Store, find_object
from fuse_stream.storage.wrappers import StoreWrapper

T = TypeVar("T")

_READ_IN_ORIGINS = frozenset({"get", "open_input", "location"})
_LONGEST_LOCATION = 500
"""Characters of a recorded location that errors show; its content is not trusted."""


class StoreWithOrigins(StoreWrapper):
    """A store that forwards calls to `store`, and reads `_origins/<table id>/…` from that table."""

    def __init__(self, store: Store, allowed: Sequence[Store] = ()) -> None:
        super().__init__(store)
        self.allowed = tuple(allowed)
        """The stores of other tables that may be read."""
        self._ids: tuple[str | None, ...] | None = None
        """The table ids of `allowed`; None before the first use."""

    def __repr__(self) -> str:
        return f"StoreWithOrigins({self.store!r}, {self.allowed!r})"

    @property
    def server(self) -> Hashable | None:
        return self.store.server

    @property
    def overlaps(self) -> bool:
        return all(store.overlaps for store in (self.store, *self.allowed))

    def call(self, verb: str, key: str, act: Callable[[Store, str], T]) -> T:
        split = split_origin(key)
        if split is None:
            return act(self.store, key)
        if verb not in _READ_IN_ORIGINS:
            raise UnsupportedStorageError(
                "objects of an origin can only be read; open that table to write to it", key=key
            )
        table_id, inner = split
        return act(self.origin(table_id), inner)

    def get(self, key: str) -> bytes:
        return self.call("get", key, lambda store, key: store.get_up_to(key, limit_of(key)))

    def get_up_to(self, key: str, most_bytes: int | None) -> bytes:
        return self.call("get", key, lambda store, key: store.get_up_to(key, most_bytes))

    def delete_all(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.call("delete_all", key, lambda _store, _key: None)
        self.store.delete_all(keys)  # in one call, not one by one

    def location(self, key: str) -> str:
        return self.call("location", key, lambda store, key: store.location(key))

    def origin(self, table_id: str) -> Store:
        """Return the store of an origin.

        Raises:
            InvalidInputError: the table is at none of the allowed locations; says what to pass.
        """
        if self._ids is None:
            self._ids = tuple(_table_id(store) for store in self.allowed)
        for store, found in zip(self.allowed, self._ids, strict=True):
            if found == table_id:
                return store
        raise self._not_allowed(table_id)

    def _not_allowed(self, table_id: str) -> InvalidInputError:
        recorded = dict(decode_table_file(self.store.get(TABLE_KEY)).origins).get(table_id)
        allowed = dict(zip((store.url for store in self.allowed), self._ids or (), strict=True))
        return InvalidInputError(
            "this table is a clone, and some of its blocks are in another table; if you trust "
            "that one, name the place where it is now with origins=[…] (the option `origins`, "
            "--origin)",
            path=self.url,
            origin=table_id,
            recorded=None if recorded is None else recorded[:_LONGEST_LOCATION],
            allowed=allowed or None,
        )


def get_origin(store: Store, table_id: str) -> Store:
    """Return the store of an origin of the table in `store`; errors of `origin`."""
    known = store if isinstance(store, StoreWithOrigins) else StoreWithOrigins(store)
    return known.origin(table_id)


def _table_id(store: Store) -> str | None:
    data = find_object(store, TABLE_KEY)
    return None if data is None else decode_table_file(data).table_id
