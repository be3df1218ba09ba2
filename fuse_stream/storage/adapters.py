"""The differences between fsspec's adapters: atomic creation, options, listings, time, errors.

From the sources of s3fs 2026.9, gcsfs 2026.10 and adlfs 2026.8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem

from fuse_stream.errors import InvalidInputError, StorageError
from fuse_stream.on_demand import OnDemand
from fuse_stream.storage.schemes import SCHEMES
from fuse_stream.storage.secrets import causes

if TYPE_CHECKING:
    import aiohttp
else:
    aiohttp = OnDemand("aiohttp")

ATOMIC_PACKAGES = frozenset(SCHEMES)
"""Their `pipe_file(mode="create")` is one conditional request."""

ATOMIC_ATTRIBUTE = "fuse_atomic_create"
"""Another file system class sets this to True if its `pipe_file(mode="create")` is atomic."""

TIMEOUT_OPTION = "fuse_timeout_s"
"""The storage option that is not fsspec's: the seconds of a call that sends one small request."""

TIMEOUT_S = 20.0
"""Its default. The adapters' own limits add up to minutes for a call (Azure's to five)."""

_CONNECT_S = 5.0

_MARKER_ENDINGS = ("/", "_$folder$")
"""The endings of folder markers, which web consoles and Hadoop write; the second is an old one."""

# The fields in which s3fs, adlfs, gcsfs and others return the time of the last write.
_TIME_NAMES = ("LastModified", "last_modified", "mtime", "modified", "created")
_UNREACHABLE = frozenset(
    {
        "ClientConnectionError",
        "ConnectionError",
        "HTTPClientError",
        "ServiceRequestError",
        "ServiceResponseError",
        "TimeoutError",
    }
)
"""Classes of aiohttp, Python, botocore and Azure; a subclass of one says that nobody answers."""

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
    "authorization header is malformed",
    # Azure
    "Server failed to authenticate the request",
    "NoAuthenticationInformation",
    # Google
    "invalid_grant",
    "Invalid Credentials",
    "Anonymous caller",
)
_NO_ANSWER = ("Could not connect to the endpoint", "Cannot connect to host", "Name or service not")
"""What errors say that have passed through another class."""

_INVALID = frozenset({"ParamValidationError", "EndpointResolutionError"})
"""Classes of errors by which a client refuses what it was given, beside Python's own."""

_NO_ACCOUNT = "unable to connect to account"
"""adlfs says so of credentials that it cannot parse, and where nobody answers."""


_NEAR = 0.8
"""How alike a name is to that of an option of which it is a slip, from 0 to 1."""
_NO_OPTIONS = frozenset({"self", "args", "kwargs", "storage_options"})
"""Parameters of the adapters' constructors."""


class Fault(StrEnum):
    """What is wrong when a call fails, as advice for the user."""

    BUCKET = "there is no such bucket; create it or correct the path"
    CREDENTIALS = (
        "access denied, for the credentials are missing, wrong or expired; check those in "
        "storage_options and in the provider's environment"
    )
    RIGHTS = "access denied; check the credentials in storage_options and their rights"
    NETWORK = (
        "the store cannot be reached or does not answer; check the network, the endpoint and, on "
        "Google's, that there are credentials (without any, its client looks for some), then try "
        f"again (a slow network needs a larger {TIMEOUT_OPTION} in storage_options)"
    )
    OPTIONS = "a storage option or the URL is not valid; correct what the reason names"
    OTHER = "see the reason; if the fault is temporary, try again"


def check_options(fs_class: type, options: Mapping[str, object]) -> None:
    """Raise if an option is nearly the name of another one, or names a file that is not there.

    adlfs and gcsfs ignore an option that they do not know, and take other credentials.

    Raises:
        InvalidInputError: it is.
    """
    packages = _packages(fs_class)
    if not packages & ATOMIC_PACKAGES:
        return
    known = _option_names(fs_class)
    for name in options:
        near = [] if name in known else get_close_matches(name, known, n=1, cutoff=_NEAR)
        if near or (name.startswith("fuse_") and name not in known):
            raise InvalidInputError(
                "there is no such storage option; correct its name",
                option=name,
                nearest=near[0] if near else TIMEOUT_OPTION,
            )
    token = options.get("token")
    is_file = isinstance(token, str) and token.endswith(".json")
    if "gcsfs" in packages and is_file and not Path(str(token)).expanduser().is_file():
        raise InvalidInputError(
            "the file of Google's credentials, which the storage option token names, does not "
            "exist; correct the path",
            token=token,
        )


@cache
def _option_names(fs_class: type) -> frozenset[str]:
    """Return the storage options that an adapter names."""
    inits = [vars(each)["__init__"] for each in fs_class.__mro__ if "__init__" in vars(each)]
    named = {name for each in inits for name in signature(each).parameters}
    return frozenset(named - _NO_OPTIONS | {TIMEOUT_OPTION})


def is_atomic(fs_class: type) -> bool:
    """True if exactly one of several concurrent creations of one key succeeds.

    The class decides, not the protocol: another package may be registered for `s3`.
    """
    return bool(getattr(fs_class, ATOMIC_ATTRIBUTE, False) or _packages(fs_class) & ATOMIC_PACKAGES)


def cat_file_options(fs_class: type) -> dict[str, object]:
    """Return the arguments with which `cat_file` sends a single request."""
    # Without it s3fs first requests the size, and for a missing object also a listing.
    return {"max_concurrency": 1} if "s3fs" in _packages(fs_class) else {}


def timeout_s(options: Mapping[str, object]) -> float:
    """Return the seconds that a call with one small request may take.

    Raises:
        InvalidInputError: the storage option is no number above 0.
    """
    given = options.get(TIMEOUT_OPTION, TIMEOUT_S)
    try:
        seconds = float(str(given))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InvalidInputError(
            f"{TIMEOUT_OPTION} in storage_options is a number of seconds above 0", value=given
        )
    return seconds


def with_time_limits(fs_class: type, options: Mapping[str, object]) -> dict[str, object]:
    """Return fsspec's options: those of `options`, and limits of each request where it has none.

    A server that is silent once has half of a call's time, so there is time to ask it again.
    """
    silent_s = timeout_s(options) / 2
    connect_s = min(_CONNECT_S, silent_s)
    given = {name: value for name, value in options.items() if name != TIMEOUT_OPTION}
    packages = _packages(fs_class)
    limits: dict[str, object] = {}
    if "s3fs" in packages:
        # s3fs itself tries five times, and waits less than two seconds between them.
        limits["config_kwargs"] = {
            "connect_timeout": connect_s,
            "read_timeout": silent_s,
            "retries": {"total_max_attempts": 3},
        }
    elif "gcsfs" in packages:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_s, sock_read=silent_s)
        limits["session_kwargs"] = {"timeout": timeout}
    elif "adlfs" in packages:
        limits = {"connection_timeout": connect_s, "read_timeout": silent_s}
    for name, limit in limits.items():
        own = given.get(name)
        if isinstance(limit, dict) and isinstance(own, Mapping):
            given[name] = {**limit, **own}
        else:
            given.setdefault(name, limit)
    return given


def call_options(fs_class: type, limit_s: float) -> dict[str, object]:
    """Return the arguments with which a call of the adapter ends within `limit_s`."""
    return {"timeout": limit_s} if _packages(fs_class) & ATOMIC_PACKAGES else {}


def lacks_bucket(fs: AbstractFileSystem, path: str, limit_s: float) -> bool:
    """True if the bucket of `path` is missing and the "not found" of its objects does not say so.

    Asks only Google's store, whose adapter drops the server's explanation.
    """
    if "gcsfs" not in _packages(type(fs)):
        return False
    bucket = path.partition("/")[0]
    try:
        fs.call("GET", "b/{}/o", bucket, maxResults=1, **call_options(type(fs), limit_s))
    except FileNotFoundError:
        return True
    except Exception:  # noqa: BLE001 - no right to list: not known
        return False
    return False


def list_files(fs: AbstractFileSystem, path: str, limit_s: float) -> list[dict[str, Any]]:
    """Return fsspec's record of every file below `path`, within `limit_s`.

    Raises:
        FileNotFoundError: there is no such folder; some adapters return an empty list instead.
    """
    find = getattr(type(fs), "_find", type(fs).find)
    if find not in {AbstractFileSystem.find, AsyncFileSystem._find}:  # noqa: SLF001 - its public twin is made per instance
        found = fs.find(path, detail=True, **call_options(type(fs), limit_s)).values()
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
    classes = {each.__name__ for step in causes(error) for each in type(step).__mro__}
    if classes & _UNREACHABLE or any(sign in text for text in texts for sign in _NO_ANSWER):
        return Fault.NETWORK
    if any(_NO_ACCOUNT in text for text in texts):
        return Fault.CREDENTIALS
    is_refused = any(
        type(step) in {TypeError, ValueError, AttributeError} for step in causes(error)
    )
    if is_refused or classes & _INVALID:
        return Fault.OPTIONS
    return Fault.OTHER


def fault_in(error: StorageError) -> Fault:
    """Return the fault that the error of a store names, also after it was pickled."""
    return next((each for each in Fault if error.message.endswith(each)), Fault.OTHER)


def _packages(fs_class: type) -> set[str]:
    return {base.__module__.partition(".")[0] for base in fs_class.__mro__}
