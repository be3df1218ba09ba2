"""Open the tables and checkpoints that a caller names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from os.path import realpath
from typing import Any

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.commit.committer import Committer
from fuse_stream.errors import InvalidInputError
from fuse_stream.objects.slots import Metadata
from fuse_stream.storage.base import Store
from fuse_stream.storage.open import kind_of, open_store
from fuse_stream.table.handle import open_at
from fuse_stream.table.location import TableLocation

Path = str | os.PathLike[str]


def paths_of(path: Any) -> Sequence[Path]:
    is_list = isinstance(path, Iterable) and not isinstance(path, str | os.PathLike)
    paths = list(path) if is_list else [path]
    if not paths:
        raise InvalidInputError("name the table, or the tables that the query writes", path=paths)
    return paths


def open_all(
    path: Any,
    branch: str,
    storage_options: Mapping[str, object] | None,
    origins: Sequence[Path],
    *,
    unsafe_single_writer: bool,
) -> tuple[TableLocation, list[Committer]]:
    """Return the location of the first table, and the committers of all."""
    paths = paths_of(path)
    location = TableLocation.of(
        paths[0], branch, storage_options, origins, unsafe_single_writer=unsafe_single_writer
    )
    return location, [open_at(location.at(each)).committer for each in paths]


def open_source(location: TableLocation, path: str) -> Metadata:
    """Return the metadata of a table that a ledger names, opened as the one at `location`."""
    return Metadata(location.of_source(path).store(), SYSTEM_CLOCK)


def stores_of(
    checkpoints: Mapping[Any, Path],
    options: Mapping[str, object] | None,
    *,
    unsafe_single_writer: bool,
) -> list[tuple[Store, Store]]:
    def opened(place: Path) -> Store:
        return open_store(place, storage_options=options, unsafe_single_writer=unsafe_single_writer)

    if not isinstance(checkpoints, Mapping):
        raise InvalidInputError("checkpoints is a mapping, {old: new}", checkpoints=checkpoints)
    pairs = [(opened(old), opened(new)) for old, new in checkpoints.items()]
    urls = [store.url for pair in pairs for store in pair]
    if len(set(urls)) != len(urls) or any(is_below(a, b) for a in urls for b in urls):
        raise InvalidInputError(
            "each fork of a checkpoint needs a folder of its own, beside the others", folders=urls
        )
    return pairs


def forks_outside(
    committers: Sequence[Committer],
    checkpoints: Mapping[Any, Path] | None,
    options: Mapping[str, object] | None,
    *,
    unsafe_single_writer: bool,
) -> list[tuple[Store, Store]]:
    """Return the stores of checkpoints and of their forks, which lie outside the tables."""
    pairs = stores_of(checkpoints or {}, options, unsafe_single_writer=unsafe_single_writer)
    tables = [committer.metadata.store.url for committer in committers]
    for _, fork in pairs:
        if any(is_below(fork.url, table) for table in tables):
            raise InvalidInputError(
                "the fork of a checkpoint needs a folder outside the tables", folder=fork.url
            )
    return pairs


def is_below(folder: str, other: str) -> bool:
    links = () if kind_of(folder) or kind_of(other) else ((realpath(folder), realpath(other)),)
    return any(one.startswith(f"{two.rstrip('/')}/") for one, two in ((folder, other), *links))
