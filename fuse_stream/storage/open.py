"""Open the store at a path or URL."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fuse_stream.errors import InvalidInputError
from fuse_stream.on_demand import OnDemand
from fuse_stream.storage.base import Store
from fuse_stream.storage.local import LocalStore
from fuse_stream.storage.schemes import SCHEMES
from fuse_stream.storage.secrets import StorageOptions

if TYPE_CHECKING:
    from fuse_stream.storage import remote
else:
    remote = OnDemand("fuse_stream.storage.remote")

_LOCAL_SCHEMES = frozenset({"file", "local"})
_NO_PATH = re.compile("[\0\ud800-\udc7f\udd00-\udfff]")  # os.fsdecode gives other surrogates


def open_store(
    path: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, object] | None = None,
    unsafe_single_writer: bool = False,
) -> Store:
    """Return the store at `path`, without a request to it.

    Args:
        path: a local path, a `file:` URL (taken literally, as by Spark and fsspec: `%20` is not
            decoded), or a URL of any file system that fsspec knows.
        storage_options: fsspec's options for the file system, including credentials.
        unsafe_single_writer: allow writes to a store in which two writers could both commit one
            version.

    Raises:
        InvalidInputError: the path is no path, is empty, has a character that no path can have,
            begins with the home of a user that does not exist, or holds credentials; or the URL
            names no bucket, lacks a slash, or has a part that is `.` or `..`, or empty.
        UnsupportedStorageError: no installed package can open it; the message says what to do.
    """
    storage_options = StorageOptions(storage_options)
    text = path_text(path)
    if not text:
        raise InvalidInputError("the path is empty; name the table's folder")
    if _NO_PATH.search(text):
        raise InvalidInputError("the path has a character that no path can have", path=text)
    scheme, separator, rest = text.partition("://")
    if text.startswith("file:/") and not separator:
        return LocalStore(Path(text.removeprefix("file:")))
    if not separator:
        _check_slashes(text)
        return LocalStore(Path(expand_home(text)))
    if scheme in _LOCAL_SCHEMES:
        host, slash, below = rest.partition("/")
        if host not in {"", "localhost"} or not slash:
            raise InvalidInputError("a file URL needs an absolute path: file:///folder")
        return LocalStore(Path(f"/{below}"))
    _check_parts(scheme, rest, text)
    return remote.open_remote(
        text, storage_options=storage_options, unsafe_single_writer=unsafe_single_writer
    )


def _check_slashes(path: str) -> None:
    """Raise if a path is the URL of an object store that lacks a slash."""
    scheme, colon, rest = path.partition(":")
    if colon and any(scheme in schemes for schemes in SCHEMES.values()):
        raise InvalidInputError(
            "a URL has two slashes after the colon; for a folder of this name, begin with ./",
            path=path,
            url=f"{scheme}://{rest.lstrip('/')}",
        )


def _check_parts(scheme: str, rest: str, url: str) -> None:
    """Raise if a URL names no bucket, or has parts of which a server may make another place."""
    if not any(scheme in schemes for schemes in SCHEMES.values()):
        return
    bucket, *parts = rest.removesuffix("/").split("/")
    if not bucket:
        raise InvalidInputError("the URL names no bucket", path=url, example=f"{scheme}://bucket/t")
    if wrong := [part for part in parts if part in {"", ".", ".."}]:
        raise InvalidInputError(
            "a part of the URL is empty, or . or .., which object stores do not resolve alike; "
            "write the whole path",
            path=url,
            part=wrong[0],
        )


def path_text(path: object) -> str:
    """Return a path or URL as text; InvalidInputError if it is neither."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise InvalidInputError("a location is a path or a URL", type=type(path).__name__)
    return text


def kind_of(path: str | os.PathLike[str]) -> str:
    """Return the scheme of a URL; an empty string for the local file system."""
    scheme, separator, _ = os.fspath(path).partition("://")
    return scheme if separator and scheme not in _LOCAL_SCHEMES else ""


def expand_home(text: str) -> str:
    """Return a path or URL with a leading `~` or `~user` replaced by that user's home.

    Raises:
        InvalidInputError: there is no such user.
    """
    if not text.startswith("~"):  # checked first: `Path` reads ./~name as ~name
        return text
    try:
        return str(Path(text).expanduser())
    except RuntimeError as error:
        raise InvalidInputError(
            "a path that begins with ~ is in a user's home, and there is no such user or home; "
            "for a folder of that name, begin with ./",
            path=text,
            folder=f"./{text}",
        ) from error
