"""The interface of a store: whole objects under keys.

Keys are relative and `/`-separated, have only the characters [A-Za-z0-9._-], and are built only in
`format/layout`. Every write is atomic: a reader sees all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from fuse_stream.errors import CorruptObjectError, FuseError, NotFoundError, StorageError


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """An object in a listing."""

    key: str
    size: int
    """Bytes."""

    modified_us: int
    """The time of the last write by the store's clock, in UTC microseconds."""


class Store(Protocol):
    """Operations on objects; only `open_input` reads less than a whole object.

    Every method raises `StorageError` if the store fails (disk full, rights, network). After an
    error of a write the object may exist or not: `get` shows it.
    """

    @property
    def url(self) -> str:
        """The address of the root, as a user would write it; without secrets."""
        ...

    @property
    def server(self) -> Hashable | None:
        """What answers for this store: equal for stores of which one is like the other.

        None if nothing may be concluded from one store about another.
        """
        ...

    @property
    def overlaps(self) -> bool:
        """True if several threads may call the store at the same time."""
        ...

    @property
    def is_remote(self) -> bool:
        """True if a call waits for a network, and several calls may overlap.

        Then calls that are made together take the time of one: it is worth to ask for what may not
        be needed.
        """
        ...

    def get(self, key: str) -> bytes:
        """Return the object under `key`, which is small; see `get_large`.

        Raises:
            NotFoundError: the store answered that there is no such object. An unclear failure is
                a `StorageError`.
        """
        ...

    def get_up_to(self, key: str, most_bytes: int | None) -> bytes:
        """Return the object under `key` if it has at most so many bytes; None is no limit.

        A local store judges the size before it reads.

        Raises:
            CorruptObjectError: it is larger.
            NotFoundError: as of `get`.
        """
        ...

    def open_input(self, key: str, size: int | None = None) -> BinaryIO:
        """Open the object under `key` for random reads: a seekable binary file.

        Args:
            key: the object's.
            size: its bytes, if known. A remote store is then not asked before the first read, and
                each read is one request for the bytes that it returns.

        Raises:
            NotFoundError: there is no such object; if `size` is given, perhaps by a read.
        """
        ...

    def put(self, key: str, data: bytes | memoryview) -> None:
        """Create the object under `key`, a random key that no object has."""
        ...

    def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
        """Create the object under `key`; exactly one of several concurrent callers succeeds.

        `data` is not empty: some stores ignore the condition for an empty body.

        Raises:
            AlreadyExistsError: the object exists, perhaps from an earlier attempt of this caller
                whose reply was lost.
        """
        ...

    def replace(self, key: str, data: bytes | memoryview) -> None:
        """Create or overwrite the object under `key`; the last writer wins."""
        ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield every object whose key starts with `prefix` (a folder, ends in `/`), in key order.

        Folder markers (their keys end in `/`) are left out. Nothing is cached: an object whose
        write was acknowledged before is there. Used for ages, names and garbage: vacuum depends on
        it, no commit and no read of rows does.
        """
        ...

    def leftovers(self) -> Iterator[ObjectInfo]:
        """Yield what writes that never ended have left beside the objects; `list` leaves them out.

        `get` and `delete` take their keys. One may belong to a write that still runs.
        """
        ...

    def names(self, prefix: str) -> Sequence[str]:
        """Return the names directly under `prefix`, which is empty or ends in `/`, in order.

        A folder's name ends in `/`. What is below it is not read.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove the object under `key`; no error if there is none."""
        ...

    def delete_all(self, keys: Sequence[str]) -> None:
        """Remove many objects, in any order; some may exist again after a power cut."""
        ...

    def location(self, key: str) -> str:
        """Return the path or URL of the object under `key` for Spark's own readers."""
        ...


def check_size(size: int, most_bytes: int | None, key: str, url: str) -> None:
    """Raise CorruptObjectError if an object is larger than its kind may be."""
    if most_bytes is not None and size > most_bytes:
        raise CorruptObjectError(
            "an object is too large for its kind; restore it from a copy",
            key=key,
            size_bytes=size,
            most_bytes=most_bytes,
            store=url,
        )


def find_object(store: Store, key: str) -> bytes | None:
    """Return the object under `key`; None if there is none."""
    try:
        return store.get(key)
    except NotFoundError:
        return None


def get_large(store: Store, key: str, size: int) -> bytes:
    """Return the object under `key`, of `size` bytes; errors of `Store.get_up_to`.

    A remote store gives it the time that so many bytes take on a slow network.
    """
    with store.open_input(key, size) as file:
        try:
            data = file.read(size + 1)
        except FuseError:
            raise
        except OSError as error:  # of a local file
            raise StorageError(
                "cannot read an object: see the reason", key=key, store=store.url, reason=str(error)
            ) from error
    check_size(len(data), size, key, store.url)
    return data


def find_modified_us(store: Store, prefix: str, key: str) -> int | None:
    """Return the store's time of the last write of `key`, listed under `prefix`; None if absent."""
    return next((info.modified_us for info in store.list(prefix) if info.key == key), None)
