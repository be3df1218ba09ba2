"""The store behind a URL, and whether it may be written: fsspec knows the file systems."""

from __future__ import annotations

from collections.abc import Mapping

from fsspec.core import get_filesystem_class
from fsspec.registry import known_implementations

from fuse_stream.errors import InvalidInputError, UnsupportedStorageError
from fuse_stream.storage.adapters import ATOMIC_PACKAGES, creates_once
from fuse_stream.storage.base import Store
from fuse_stream.storage.options import StorageOptions
from fuse_stream.storage.remote import FsspecStore
from fuse_stream.storage.wrappers import ReadOnlyStore

_NAME_BEFORE_AT = frozenset({"abfs", "abfss", "github"})
"""Schemes whose `name@` is a container or a repository, not a user."""


def open_remote(
    url: str, *, storage_options: Mapping[str, object] | None, unsafe_single_writer: bool
) -> Store:
    """Return the store at `url`; nothing is asked of it yet. See `open.open_store`."""
    scheme, _, rest = url.partition("://")
    _check_holds_no_secret(scheme, rest)
    store = FsspecStore(url, StorageOptions(storage_options))
    if unsafe_single_writer or creates_once(_adapter(scheme)):
        return store
    return ReadOnlyStore(store)


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
