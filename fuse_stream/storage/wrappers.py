"""Stores that wrap another store: the base class, and a store that refuses writes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import BinaryIO, TypeVar

from fuse_stream.errors import UnsupportedStorageError
from fuse_stream.storage.base import ObjectInfo, Store, check_size

T = TypeVar("T")

READS = frozenset({"get", "open_input", "list", "leftovers", "names"})
"""Methods that change nothing."""


class StoreWrapper:
    """A store that forwards every method to `store` through `call`, which a subclass overrides."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.store!r})"

    def call(
        self,
        verb: str,  # noqa: ARG002 - for subclasses
        key: str,
        act: Callable[[Store, str], T],
    ) -> T:
        """Return `act(store, key)`, which calls the method `verb` of `store`.

        For `list`, `key` is the prefix; for `leftovers` it is empty. `delete_all` calls `delete`
        for each key.
        """
        return act(self.store, key)

    @property
    def url(self) -> str:
        return self.store.url

    @property
    def server(self) -> Hashable | None:
        return None  # what a subclass does to calls may differ

    @property
    def overlaps(self) -> bool:
        return self.store.overlaps

    @property
    def is_remote(self) -> bool:
        return self.overlaps and self.store.is_remote

    def get(self, key: str) -> bytes:
        return self.call("get", key, lambda store, key: store.get(key))

    def get_up_to(self, key: str, most_bytes: int | None) -> bytes:
        data = self.get(key)  # for a subclass that changes `get`
        check_size(len(data), most_bytes, key, self.url)
        return data

    def open_input(self, key: str, size: int | None = None) -> BinaryIO:
        return self.call("open_input", key, lambda store, key: store.open_input(key, size))

    def put(self, key: str, data: bytes | memoryview) -> None:
        self.call("put", key, lambda store, key: store.put(key, data))

    def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
        self.call("put_if_absent", key, lambda store, key: store.put_if_absent(key, data))

    def replace(self, key: str, data: bytes | memoryview) -> None:
        self.call("replace", key, lambda store, key: store.replace(key, data))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return self.call("list", prefix, lambda store, prefix: store.list(prefix))

    def leftovers(self) -> Iterator[ObjectInfo]:
        return self.call("leftovers", "", lambda store, _prefix: store.leftovers())

    def names(self, prefix: str) -> Sequence[str]:
        return self.call("names", prefix, lambda store, prefix: store.names(prefix))

    def delete(self, key: str) -> None:
        self.call("delete", key, lambda store, key: store.delete(key))

    def delete_all(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.delete(key)

    def location(self, key: str) -> str:
        return self.store.location(key)


class ReadOnlyStore(StoreWrapper):
    """A store that forwards reads and refuses writes: for stores without atomic creation."""

    def call(self, verb: str, key: str, act: Callable[[Store, str], T]) -> T:
        if verb in READS:
            return act(self.store, key)
        raise UnsupportedStorageError(
            "this store cannot create an object exactly once, so two writers could both commit one "
            "version; write to a local folder, S3, GCS or Azure, or pass unsafe_single_writer=True "
            "(the option unsafeSingleWriter, --unsafe-single-writer) if there is never more than "
            "one writer",
            key=key,
            store=self.url,
        )
