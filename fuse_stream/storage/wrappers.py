"""A store that is read and never written: one that cannot promise a single winner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO, NoReturn

from fuse_stream.errors import UnsupportedStorageError
from fuse_stream.storage.base import ObjectInfo, Store


class ReadOnlyStore:
    """Passes reads on to `store` and refuses writes before they reach it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"ReadOnlyStore({self._store!r})"

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def overlaps(self) -> bool:
        return self._store.overlaps

    def get(self, key: str) -> bytes:
        return self._store.get(key)

    def open_input(self, key: str) -> BinaryIO:
        return self._store.open_input(key)

    def put(self, key: str, data: bytes | memoryview) -> None:  # noqa: ARG002 - refused unseen
        self._refuse(key)

    def put_if_absent(self, key: str, data: bytes | memoryview) -> None:  # noqa: ARG002 - the same
        self._refuse(key)

    def replace(self, key: str, data: bytes | memoryview) -> None:  # noqa: ARG002 - the same
        self._refuse(key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return self._store.list(prefix)

    def delete(self, key: str) -> None:
        self._refuse(key)

    def delete_all(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._refuse(key)

    def location(self, key: str) -> str:
        return self._store.location(key)

    def _refuse(self, key: str) -> NoReturn:
        raise UnsupportedStorageError(
            "this store cannot create an object exactly once, so two writers could both commit one "
            "version; write to a local folder, S3, GCS or Azure, or pass unsafe_single_writer=True "
            "(the option unsafeSingleWriter, --unsafe-single-writer) if there is never more than "
            "one writer",
            key=key,
            store=self.url,
        )
