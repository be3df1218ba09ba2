"""The location of a table: its path, a branch, and the options that open its store."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Self

from fuse_stream.errors import InvalidInputError, NotFoundError
from fuse_stream.format.layout import MAIN
from fuse_stream.format.names import flag_in
from fuse_stream.objects.origins import StoreWithOrigins
from fuse_stream.storage.base import Store
from fuse_stream.storage.open import kind_of, open_store, path_text
from fuse_stream.storage.schemes import SCHEMES
from fuse_stream.storage.secrets import StorageOptions, check_holds_no_secret


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLocation:
    """One branch of a table and the options that open it: the arguments of `Table.open`."""

    path: str
    """A local path or an fsspec URL."""
    branch: str = MAIN
    storage_options: StorageOptions = field(default_factory=StorageOptions)
    """fsspec's options for the remote store of `path` and for origins in stores of the same kind;
    if `path` is local, for all origins. A store of another kind is opened from its provider's
    environment: these options do not fit it, and it must not see them."""
    origins: tuple[str, ...] = ()
    """The locations of the origins whose blocks may be read, for a clone."""
    unsafe_single_writer: bool = False
    """True to allow a store that cannot tell two writers apart; it is not probed then."""

    def __post_init__(self) -> None:
        for path in (self.path, *self.origins):
            if kind_of(path):
                check_holds_no_secret(path)

    @property
    def name(self) -> tuple[str, str]:
        """The path and the branch, without the options that open them."""
        return self.path, self.branch

    @classmethod
    def of(
        cls,
        path: str | os.PathLike[str],
        branch: str = MAIN,
        storage_options: Mapping[str, object] | None = None,
        origins: Sequence[str | os.PathLike[str]] = (),
        *,
        unsafe_single_writer: bool = False,
    ) -> Self:
        """Return the location for the arguments of a public function.

        Raises:
            InvalidInputError: a location is not a path, or holds credentials; `origins` is not a
                list; the options are not a mapping.
        """
        storage_options = StorageOptions(storage_options)
        if isinstance(origins, str | os.PathLike) or not isinstance(origins, Iterable):
            raise InvalidInputError("origins is a list of locations", origins=str(origins))
        return cls(
            path=path_text(path),
            branch=branch,
            storage_options=StorageOptions(storage_options),
            origins=tuple(_absolute(path_text(origin)) for origin in origins),
            unsafe_single_writer=flag_in("unsafe_single_writer", unsafe_single_writer),
        )

    def at(self, path: str | os.PathLike[str]) -> Self:
        """Return this location with another path."""
        return dataclasses.replace(self, path=path_text(path))

    def each(self, paths: Iterable[str | os.PathLike[str]]) -> tuple[Self, ...]:
        """Return this location with each of `paths`, without duplicates."""
        return tuple(self.at(path) for path in dict.fromkeys(map(path_text, paths)))

    def of_source(self, path: str) -> Self:
        """Return the location of a table that this one's ledger names as a source.

        A stored path is not the user's word: the options, which may hold credentials, go only
        where those of this location go, and only places that can hold a table are opened.

        Raises:
            NotFoundError: the path is a URL of another kind, such as http, or no path at all.
        """
        if kind_of(path) not in {kind_of(self.path), *_TABLE_STORES}:
            raise NotFoundError(
                "a table names a source in a kind of store that holds no tables, which is not "
                "opened",
                source=path[:_SHOWN],
            )
        is_same = _server_of(path) == _server_of(self.path)
        options = self.storage_options if is_same else StorageOptions()
        return dataclasses.replace(self, path=path, branch=MAIN, storage_options=options)

    def store(self) -> StoreWithOrigins:
        """Return the store of the table, without any I/O.

        Raises:
            InvalidInputError: a location is not valid.
            UnsupportedStorageError: no installed package can open it; says what to install.
        """
        return StoreWithOrigins(
            self._opened(self.path), [self._opened(origin) for origin in self.origins]
        )

    def _opened(self, path: str) -> Store:
        is_foreign = len({kind_of(self.path), kind_of(path)} - {""}) > 1
        return open_store(
            path,
            storage_options=None if is_foreign else self.storage_options,
            unsafe_single_writer=self.unsafe_single_writer,
        )


_TABLE_STORES = frozenset({"", *chain.from_iterable(SCHEMES.values())})
"""Kinds of stores in which a table can be written; "" is the local disk."""
_SHOWN = 200
"""Characters of a stored path that an error shows."""
_BUCKETS = frozenset({*SCHEMES["s3fs"], *SCHEMES["gcsfs"]})
"""Schemes in which a URL names a bucket; the server is that of the options or the provider."""


def _server_of(path: str) -> tuple[str, str]:
    kind = kind_of(path)
    host = path.partition("://")[2].partition("/")[0].rpartition("@")[2]
    return kind, host if kind and kind not in _BUCKETS else ""


def _absolute(origin: str) -> str:
    """Return a location that the working directory does not change."""
    is_plain = origin and not kind_of(origin) and not origin.startswith(("file:", "local:", "~"))
    return str(Path(origin).absolute()) if is_plain else origin
