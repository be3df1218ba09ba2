"""The differences between fsspec's adapters: atomic creation, options, listings, errors.

From the sources of s3fs 2026.9, gcsfs 2026.10 and adlfs 2026.8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem

from fuse_stream.errors import StorageError
from fuse_stream.storage.secrets import causes

ATOMIC_PACKAGES = frozenset({"s3fs", "gcsfs", "adlfs"})
"""Their `pipe_file(mode="create")` is one conditional request."""

ATOMIC_ATTRIBUTE = "fuse_atomic_create"
"""Another file system class sets this to True if its `pipe_file(mode="create")` is atomic."""

HADOOP_SCHEMES = {"s3": "s3a", "gcs": "gs", "az": "abfss", "abfs": "abfss"}
"""Spark's names of the file systems that have another name in fsspec."""

_MARKER_ENDINGS = ("/", "_$folder$")
"""The endings of folder markers, which web consoles and Hadoop write; the second is an old one."""

# The fields in which s3fs, adlfs, gcsfs and others return the time of the last write.
_TIME_NAMES = ("LastModified", "last_modified", "mtime", "modified", "created")
_MISSING_BUCKET = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")
_BAD_CREDENTIALS = (
    # S3
    "InvalidAccessKeyId",
    "XAdminUserNotFound",  # versitygw
    "SignatureDoesNotMatch",
    "InvalidToken",
    "ExpiredToken",
    "Unable to locate credentials",
    "NoCredentials",
    # Azure
    "Server failed to authenticate the request",
    "NoAuthenticationInformation",
    "unable to connect to account",
    # Google
    "invalid_grant",
    "Invalid Credentials",
    "Anonymous caller",
)
_UNREACHABLE = (
    "Could not connect to the endpoint",
    "Cannot connect to host",
    "Name or service not known",
)


class Fault(StrEnum):
    """What is wrong when a call fails, as advice for the user."""

    BUCKET = "there is no such bucket; create it or correct the path"
    CREDENTIALS = (
        "access denied, for the credentials are missing, wrong or expired; check those in "
        "storage_options and in the provider's environment"
    )
    RIGHTS = "access denied; check the credentials in storage_options and their rights"
    NETWORK = "the store cannot be reached; check the network and the endpoint, then try again"
    OTHER = "see the reason; if the fault is temporary, try again"


def is_atomic(fs_class: type) -> bool:
    """True if exactly one of several concurrent creations of one key succeeds.

    The class decides, not the protocol: another package may be registered for `s3`.
    """
    return bool(getattr(fs_class, ATOMIC_ATTRIBUTE, False) or _packages(fs_class) & ATOMIC_PACKAGES)


def cat_file_options(fs_class: type) -> dict[str, object]:
    """Return the arguments with which `cat_file` sends a single request."""
    # Without it s3fs first requests the size, and for a missing object also a listing.
    return {"max_concurrency": 1} if "s3fs" in _packages(fs_class) else {}


def list_files(fs: AbstractFileSystem, path: str) -> list[dict[str, Any]]:
    """Return fsspec's record of every file below `path`.

    Raises:
        FileNotFoundError: there is no such folder; some adapters return an empty list instead.
    """
    find = getattr(type(fs), "_find", type(fs).find)
    if find not in {AbstractFileSystem.find, AsyncFileSystem._find}:  # noqa: SLF001 - its public twin is made per instance
        found = fs.find(path, detail=True).values()
        return [info for info in found if info["type"] == "file"]
    return list(_walk(fs, path))


def _walk(fs: AbstractFileSystem, folder: str) -> Iterator[dict[str, Any]]:
    # fsspec's own walk silently skips a folder that it cannot list: below the first level it
    # ignores `on_error="raise"` (2026.9).
    for info in fs.ls(folder, detail=True):
        if info["type"] == "file":
            yield info
        elif info["type"] == "directory" and info["name"].rstrip("/") != folder:
            with suppress(FileNotFoundError):  # deleted meanwhile
                yield from _walk(fs, info["name"].rstrip("/"))


def is_folder_marker(key: str) -> bool:
    """True if a key, relative to the store's root, is that of a folder marker."""
    return not key or key.endswith(_MARKER_ENDINGS)


def modified_us(info: Mapping[str, Any]) -> int:
    """Return the time of the last write in a record of a listing, in UTC microseconds.

    Raises:
        StorageError: the record has no such time.
    """
    for name in _TIME_NAMES:
        match info.get(name):
            case datetime() as time:
                aware = time if time.tzinfo else time.replace(tzinfo=UTC)
                return round(aware.timestamp() * 1_000_000)
            case int() | float() as seconds:
                return round(seconds * 1_000_000)
    raise StorageError("this store does not return the time of an object's last write; use another")


def is_missing_bucket(error: BaseException) -> bool:
    """True if a "not found" error is about the bucket, so it says nothing about the object.

    s3fs and adlfs name the bucket in the error's cause; gcsfs does not.
    """
    return any(sign in f"{step} {step!r}" for step in causes(error) for sign in _MISSING_BUCKET)


def fault(error: BaseException) -> Fault:
    """Return what is wrong when a call has failed with an error."""
    if is_missing_bucket(error):
        return Fault.BUCKET
    texts = [f"{step} {step!r}" for step in causes(error)]
    if any(sign in text for text in texts for sign in _BAD_CREDENTIALS):
        return Fault.CREDENTIALS
    # Azure's client raises one class for all answers, with the status of HTTP.
    is_denied = getattr(error, "status_code", None) in {401, 403}
    if is_denied or isinstance(error, PermissionError) or "Forbidden" in str(error):
        return Fault.RIGHTS
    is_unreachable = any(sign in text for text in texts for sign in _UNREACHABLE)
    if is_unreachable or isinstance(error, TimeoutError | ConnectionError):
        return Fault.NETWORK
    return Fault.OTHER


def fault_in(error: StorageError) -> Fault:
    """Return the fault that the error of a store names, also after it was pickled."""
    return next((each for each in Fault if error.message.endswith(each)), Fault.OTHER)


def _packages(fs_class: type) -> set[str]:
    return {base.__module__.partition(".")[0] for base in fs_class.__mro__}
