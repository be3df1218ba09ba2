r"""What the package may ask of a store: whole objects under keys.

Keys are relative, `/`-separated, made of [A-Za-z0-9._-] only, and built in `format/layout` alone.
Every call is atomic: a reader gets all of a write or none of it. Nothing here knows a table.

How an address is written so that Spark's readers take it for one file.

Seen with Spark 4.3.0 and 28 folder names: `spark.read.parquet` takes a path as it stands, `%`, `#`,
`=`, spaces and letters of any script included, with and without `file://`; a percent-encoded one is
not found. But it reads every path as a glob: `{}`, `[]` and `\` must be escaped. One thing has no
escape: a folder with a colon below or beside such a character, where Hadoop raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from fuse_stream.errors import NotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One line of a listing."""

    key: str
    size: int
    """Bytes."""

    modified_us: int
    """The store's own time of the last write, UTC microseconds."""


class Store(Protocol):
    """Six verbs on whole objects, and a seventh that reads one in pieces.

    Every method raises `StorageError` where the store fails (disk full, rights, network); its
    message says what to do. No error of a write tells whether the bytes landed: `get` tells.
    """

    @property
    def url(self) -> str:
        """The root, as a user would write it; holds no secret."""
        ...

    @property
    def overlaps(self) -> bool:
        """Whether calls from several threads may go on at the same time."""
        ...

    def get(self, key: str) -> bytes:
        """Return the object under `key`.

        Raises:
            NotFoundError: the store said that there is none; never said of an unclear failure.
        """
        ...

    def open_input(self, key: str) -> BinaryIO:
        """Open the object under `key` for random reads: a seekable binary file.

        Raises:
            NotFoundError: there is none.
        """
        ...

    def put(self, key: str, data: bytes | memoryview) -> None:
        """Create the object under `key`, which is random and therefore new."""
        ...

    def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
        """Create the object under `key`; of any number of callers at once exactly one succeeds.

        `data` is not empty: some stores drop the condition for an empty body.

        Raises:
            AlreadyExistsError: the name is taken, perhaps by this caller's own lost attempt.
        """
        ...

    def replace(self, key: str, data: bytes | memoryview) -> None:
        """Create or overwrite the object under `key`; the last writer wins."""
        ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield every object whose key starts with `prefix` (a folder, ends in `/`), in key order.

        Objects that stand for folders (their names end in `/`) are left out. Asks the store each
        time; nothing is cached. Decides ages and garbage, never a commit.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove the object under `key`; removing nothing is no error."""
        ...

    def delete_all(self, keys: Sequence[str]) -> None:
        """Remove many objects, in any order; a power cut may bring some back."""
        ...

    def location(self, key: str) -> str:
        """Return where Spark's own readers find the object under `key`: a path or URL."""
        ...


def find_object(store: Store, key: str) -> bytes | None:
    """Return the object under `key`; None if there is none."""
    try:
        return store.get(key)
    except NotFoundError:
        return None


def find_modified_us(store: Store, prefix: str, key: str) -> int | None:
    """Return the store's time of the last write of `key`, which starts with `prefix`, or None."""
    return next((info.modified_us for info in store.list(prefix) if info.key == key), None)


_GLOB_ESCAPES = str.maketrans({character: f"\\{character}" for character in "\\{}[]*?"})


def escape_globs(address: str) -> str:
    """Return a path or URL that Spark's globbing resolves to exactly `address`."""
    return address.translate(_GLOB_ESCAPES)
