"""What is known about fsspec's adapters: which create an object once, and how each is asked.

Read in the sources of s3fs 2026.9, gcsfs 2026.10 and adlfs 2026.8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem

from fuse_stream.errors import StorageError
from fuse_stream.storage.secrets import causes

ATOMIC_PACKAGES = frozenset({"s3fs", "gcsfs", "adlfs"})
"""Their `pipe_file(mode="create")` is one conditional request."""

ATOMIC_ATTRIBUTE = "fuse_atomic_create"
"""True on any other file system class says that its `pipe_file(mode="create")` has one winner."""

HADOOP_SCHEMES = {"s3": "s3a", "gcs": "gs", "az": "abfss", "abfs": "abfss"}
"""What Spark calls the file systems that fsspec calls otherwise."""

_MARKER_ENDINGS = ("/", "_$folder$")
"""How the names of folder objects end: those of consoles and Hadoop, and of old Hadoop versions."""

# Where s3fs, adlfs, gcsfs and others put the time of the last write.
_TIME_NAMES = ("LastModified", "last_modified", "mtime", "modified", "created")
_MISSING_BUCKET = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")


def creates_once(fs_class: type) -> bool:
    """Whether of several creations of one name exactly one succeeds.

    Decided by the class, not by the protocol: another package may have registered itself for `s3`.
    """
    return bool(getattr(fs_class, ATOMIC_ATTRIBUTE, False) or _packages(fs_class) & ATOMIC_PACKAGES)


def get_options(fs_class: type) -> dict[str, object]:
    """Return the arguments with which `cat_file` sends one request."""
    # Otherwise s3fs asks for the size first, and on a missing object for a listing as well.
    return {"max_concurrency": 1} if "s3fs" in _packages(fs_class) else {}


def find_files(fs: AbstractFileSystem, path: str) -> list[dict[str, Any]]:
    """Return what is known of every file below `path`.

    Raises:
        FileNotFoundError: there is no such folder; some adapters return nothing instead.
    """
    find = getattr(type(fs), "_find", type(fs).find)
    if find not in {AbstractFileSystem.find, AsyncFileSystem._find}:  # noqa: SLF001 - its public twin is made per instance
        found = fs.find(path, detail=True).values()
        return [info for info in found if info["type"] == "file"]
    return list(_walk(fs, path))


def _walk(fs: AbstractFileSystem, folder: str) -> Iterator[dict[str, Any]]:
    # fsspec's own walk leaves a folder out in silence if it cannot be listed; below the first
    # level it forgets that it was told `on_error="raise"` (2026.9).
    for info in fs.ls(folder, detail=True):
        if info["type"] == "file":
            yield info
        elif info["type"] == "directory" and info["name"].rstrip("/") != folder:
            with suppress(FileNotFoundError):  # deleted meanwhile
                yield from _walk(fs, info["name"].rstrip("/"))


def is_folder_marker(key: str) -> bool:
    """Return whether an object's key, relative to a store's root, is the name of a folder."""
    return not key or key.endswith(_MARKER_ENDINGS)


def modified_us(info: Mapping[str, Any]) -> int:
    """Return the time of the last write from one line of a listing, UTC microseconds.

    Raises:
        StorageError: there is none.
    """
    for name in _TIME_NAMES:
        match info.get(name):
            case datetime() as time:
                aware = time if time.tzinfo else time.replace(tzinfo=UTC)
                return round(aware.timestamp() * 1_000_000)
            case int() | float() as seconds:
                return round(seconds * 1_000_000)
    raise StorageError("this store does not say when an object was written; use another one")


def tells_of_missing_bucket(error: BaseException) -> bool:
    """Whether a "not found" is about the bucket: then nothing is known about the object.

    s3fs and adlfs say so in the cause; gcsfs does not.
    """
    return any(sign in f"{step} {step!r}" for step in causes(error) for sign in _MISSING_BUCKET)


def remedy(error: BaseException) -> str:
    """Return what a person can do about a failed call."""
    if tells_of_missing_bucket(error):
        return "there is no such bucket; create it or correct the path"
    if isinstance(error, PermissionError) or "Forbidden" in str(error):
        return "access denied; check the credentials in storage_options and their rights"
    if isinstance(error, TimeoutError | ConnectionError):
        return "the store cannot be reached; check the network and the endpoint, then try again"
    return "see the reason; if it is a passing fault, try again"


def _packages(fs_class: type) -> set[str]:
    return {base.__module__.partition(".")[0] for base in fs_class.__mro__}
