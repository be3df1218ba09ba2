"""Which store a path or URL means, and whether it may be written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from fsspec.core import get_filesystem_class
from fsspec.registry import known_implementations

from fuse_stream.errors import InvalidInputError, UnsupportedStorageError
from fuse_stream.storage.adapters import ATOMIC_PACKAGES, creates_once
from fuse_stream.storage.base import Store
from fuse_stream.storage.local import LocalStore
from fuse_stream.storage.options import StorageOptions
from fuse_stream.storage.read_only import ReadOnlyStore
from fuse_stream.storage.remote import FsspecStore

_LOCAL_SCHEMES = frozenset({"file", "local"})
_NAME_BEFORE_AT = frozenset({"abfs", "abfss", "github"})
"""Schemes whose `name@` is a container or a repository, not a user."""


def open_store(
    path: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, object] | None = None,
    unsafe_single_writer: bool = False,
) -> Store:
    """Return the store at `path`; nothing is asked of it yet.

    Args:
        path: a local path, a `file:` URL (taken as it stands, like Spark and fsspec do: `%20` is
            not decoded), or a URL of any file system that fsspec knows.
        storage_options: what opens the remote store, credentials included.
        unsafe_single_writer: write even where two writers could both commit one version.

    Raises:
        InvalidInputError: the path is empty, or holds credentials.
        UnsupportedStorageError: nothing here can open it; the message says what to install.
    """
    text = os.fspath(path)
    if not text:
        raise InvalidInputError("the path is empty; name the table's folder")
    scheme, separator, rest = text.partition("://")
    if text.startswith("file:/") and not separator:
        return LocalStore(Path(text.removeprefix("file:")))
    if not separator:
        return LocalStore(Path(text).expanduser())
    if scheme in _LOCAL_SCHEMES:
        return LocalStore(_local_path(rest))
    _check_holds_no_secret(scheme, rest)
    store = FsspecStore(text, StorageOptions(storage_options))
    if unsafe_single_writer or creates_once(_adapter(scheme)):
        return store
    return ReadOnlyStore(store)


def _local_path(rest: str) -> Path:
    host, slash, below = rest.partition("/")
    if host not in {"", "localhost"} or not slash:
        raise InvalidInputError("a file URL needs an absolute path: file:///folder")
    return Path(f"/{below}")


def _check_holds_no_secret(scheme: str, rest: str) -> None:
    """Raise if a URL has more than a place: it stands in logs, errors and snapshots."""
    authority = rest.partition("/")[0]
    user, at, host = authority.rpartition("@")
    # An unescaped secret may hold a slash and so hide the `@`; but no bucket holds a colon.
    hidden = ":" in host and not host.rpartition(":")[2].isdigit()
    named = scheme in _NAME_BEFORE_AT and (scheme == "github" or ":" not in user)
    if (at and not named) or hidden or "?" in rest:
        raise InvalidInputError(
            "a URL is logged and must not hold credentials or a query; pass them in "
            "storage_options",
            scheme=scheme,
        )


def _adapter(scheme: str) -> type:
    try:
        return get_filesystem_class(scheme)  # type: ignore[no-any-return]
    except ImportError as error:
        package = str(known_implementations[scheme]["class"]).partition(".")[0]
        advice = f"pip install {package}" if package in ATOMIC_PACKAGES else str(error)
        raise UnsupportedStorageError(
            f"the package for this kind of store is not installed: {advice}", scheme=scheme
        ) from error
    except ValueError as error:
        raise UnsupportedStorageError(
            "there is no such kind of store; use a local path, s3://, gs:// or abfss://",
            scheme=scheme,
        ) from error
