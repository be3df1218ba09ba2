"""A store in an fsspec file system: S3, GCS, Azure and all others that fsspec reads.

- A creation is `pipe_file(mode="create")` of a small body, which is one conditional request. From
  50 MiB on, s3fs and gcsfs send several requests, and some servers then ignore the condition.
- Each process builds its own file system object: connections do not survive a fork.
- Each call of s3fs, gcsfs and adlfs has a time limit, after which it is cancelled: what it sent may
  still arrive.
- No listing is cached, not even by fsspec: s3fs would answer `get` from a cached listing.
- Errors of fsspec are translated here. They hold paths and, over http, signatures: see `redact`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, BinaryIO, cast

from fsspec.core import get_filesystem_class, split_protocol
from fsspec.registry import known_implementations

from fuse_stream.errors import (
    AlreadyExistsError,
    FuseError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedStorageError,
)
from fuse_stream.storage.adapters import (
    Fault,
    call_options,
    cat_file_options,
    check_options,
    fault,
    is_atomic,
    is_folder_marker,
    is_missing_bucket,
    lacks_bucket,
    list_files,
    modified_us,
    timeout_s,
    with_time_limits,
)
from fuse_stream.storage.base import ObjectInfo, Store, check_size
from fuse_stream.storage.parallel import each
from fuse_stream.storage.range_file import RangeFile
from fuse_stream.storage.schemes import EXTRAS, HADOOP_SCHEMES
from fuse_stream.storage.secrets import StorageOptions, check_holds_no_secret, redact, safe_cause
from fuse_stream.storage.wrappers import ReadOnlyStore

_DELETES = 16
"""Threads that delete objects."""

_LIST_TIMES = 30
"""How much longer a call may take that lists everything."""

_SLOWEST_BYTES_PER_S = 2**20
"""A call that moves a known number of bytes may take that much longer."""

CREATE_LIMIT_BYTES = 32 * 2**20
"""The largest body of a creation; no adapter splits it into several requests."""


def open_remote(
    url: str, *, storage_options: Mapping[str, object] | None, unsafe_single_writer: bool
) -> Store:
    """Return the store at `url`, without a request to it; arguments and errors of `open_store`."""
    check_holds_no_secret(url)
    scheme = url.partition("://")[0]
    store = FsspecStore(url, StorageOptions(storage_options))
    adapter = _adapter(scheme)
    check_options(adapter, store.options)
    if unsafe_single_writer or is_atomic(adapter):
        return store
    return ReadOnlyStore(store)


class FsspecStore:
    """A store of the objects below `url`; `list` reads the whole listing before it yields."""

    def __init__(self, url: str, options: Mapping[str, object] | None = None) -> None:
        self.url = url.rstrip("/")
        self.options = StorageOptions(options)
        self._timeout_s = timeout_s(self.options)
        self._built: tuple[int, Any, str] | None = None
        self._has_bucket = False

    def __repr__(self) -> str:
        return f"FsspecStore({self.url!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return FsspecStore, (self.url, self.options)

    @property
    def server(self) -> Hashable | None:
        scheme, rest = split_protocol(self.url)
        options = json.dumps(dict(self.options), sort_keys=True, default=repr)
        # A hash, so that no secret is kept beyond the store.
        return scheme, rest.partition("/")[0], hashlib.sha256(options.encode()).digest()

    @property
    def overlaps(self) -> bool:
        # Only async adapters allow calls from several threads; ftp and sftp have one connection.
        return bool(self._at("")[0].async_impl)

    @property
    def is_remote(self) -> bool:
        return self.overlaps

    def get(self, key: str) -> bytes:
        with self._asked("read", key) as (fs, path):
            options = {**self._limit(fs), **cat_file_options(type(fs))}
            return cast(bytes, fs.cat_file(path, **options))

    def get_up_to(self, key: str, most_bytes: int | None) -> bytes:
        data = self.get(key)  # asking for the size first would be a request more
        check_size(len(data), most_bytes, key, self.url)
        return data

    def open_input(self, key: str, size: int | None = None) -> BinaryIO:
        if size is not None:
            return cast(BinaryIO, RangeFile(self.get_range, key, size))
        with self._asked("open", key) as (fs, path):
            return cast(BinaryIO, fs.open(path, "rb"))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Return the bytes of an object from `start` to before `end`; raises as `get` does."""
        with self._asked("read", key) as (fs, path):
            options = {**self._limit(fs, end - start), **cat_file_options(type(fs))}
            return cast(bytes, fs.cat_file(path, start=start, end=end, **options))

    def put(self, key: str, data: bytes | memoryview) -> None:
        self.replace(key, data)

    def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
        if not 0 < len(data) <= CREATE_LIMIT_BYTES:
            raise InvalidInputError(
                "an object that must be created once has 1 byte to 32 MiB",
                key=key,
                size_bytes=len(data),
            )
        with self._asked("create", key) as (fs, path):
            # botocore accepts only bytes
            fs.pipe_file(path, bytes(data), mode="create", **self._limit(fs, len(data)))

    def replace(self, key: str, data: bytes | memoryview) -> None:
        with self._asked("write", key) as (fs, path):
            fs.pipe_file(path, bytes(data), **self._limit(fs, len(data)))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        infos: Sequence[ObjectInfo] = ()
        with suppress(NotFoundError), self._asked("list", prefix) as (fs, path):
            fs.invalidate_cache()
            files = {
                prefix + info["name"].removeprefix(path).lstrip("/"): info
                for info in list_files(fs, path, _LIST_TIMES * self._timeout_s)
            }
            infos = [
                ObjectInfo(key=key, size=int(info["size"]), modified_us=modified_us(info))
                for key, info in files.items()
                if not is_folder_marker(key)
            ]
        return iter(sorted(infos, key=lambda info: info.key))

    def leftovers(self) -> Iterator[ObjectInfo]:
        return iter(())  # an object exists as a whole or not at all

    def names(self, prefix: str) -> Sequence[str]:
        names: set[str] = set()
        with suppress(NotFoundError), self._asked("list", prefix) as (fs, path):
            fs.invalidate_cache()
            for info in fs.ls(path, detail=True, **self._limit(fs)):
                name = info["name"].removeprefix(path).strip("/")
                is_folder = info["type"] == "directory"
                if not is_folder_marker(name):
                    names.add(f"{name}/" if is_folder else name)
        return sorted(names)

    def delete(self, key: str) -> None:
        with suppress(NotFoundError), self._asked("delete", key) as (fs, path):
            fs.rm_file(path, **self._limit(fs))

    def delete_all(self, keys: Sequence[str]) -> None:
        for _ in each(self.delete, keys, self, at_once=_DELETES):
            pass

    def location(self, key: str) -> str:
        scheme, rest = split_protocol(self.url)
        account = self.options.get("account_name")
        container, slash, below = rest.partition("/")
        if scheme in {"az", "abfs", "abfss"} and account and "@" not in container:
            rest = f"{container}@{account}.dfs.core.windows.net{slash}{below}"
        return f"{HADOOP_SCHEMES.get(scheme, scheme)}://{rest}/{key}"

    def _asked(self, verb: str, key: str) -> _Asked:
        """Return a context with this process's file system and the path of `key` in it.

        Its errors are translated.
        """
        return _Asked(partial(self._at, key), partial(self._translated, verb, key))

    def _translated(self, verb: str, key: str, error: Exception) -> FuseError:
        found: FuseError
        if isinstance(error, FileExistsError) and verb == "create":
            found = AlreadyExistsError("the name is taken", key=key, store=self.url)
        elif not isinstance(error, FileNotFoundError):
            return self._failed(verb, key, error)
        # A write misses nothing but its bucket.
        elif verb in {"create", "write"} or is_missing_bucket(error) or self._lacks_bucket(key):
            return self._failed(verb, key, error, advice=Fault.BUCKET)
        else:
            found = NotFoundError("no such object", key=key, store=self.url)
        found.__cause__ = safe_cause(error, self.options)
        return found

    def _silence(self) -> str:
        """Return what an error without a text says: an adapter's own, when a time limit is over."""
        endpoint = self.options.get("endpoint_url")
        return "no answer in time" if endpoint is None else f"no answer in time from {endpoint}"

    def _limit(self, fs: Any, size: int = 0) -> dict[str, object]:
        """Return the arguments that end a call in time; it moves `size` bytes."""
        return call_options(type(fs), self._timeout_s + size / _SLOWEST_BYTES_PER_S)

    def _lacks_bucket(self, key: str) -> bool:
        """True if the bucket is missing; asked until it has been seen."""
        fs, path = self._at(key)
        self._has_bucket = self._has_bucket or not lacks_bucket(fs, path, self._timeout_s)
        return not self._has_bucket

    def _at(self, key: str) -> tuple[Any, str]:
        """Return this process's file system and the path of `key` in it."""
        if self._built is None or self._built[0] != os.getpid():
            protocol, _ = split_protocol(self.url)
            try:
                fs_class = get_filesystem_class(protocol)
                # In no variable: a traceback may be shown with the variables of its functions.
                fs = fs_class(
                    **self._arguments(fs_class), skip_instance_cache=True, use_listings_cache=False
                )
                root = fs_class._strip_protocol(self.url)  # noqa: SLF001 - as fsspec itself does
            except Exception as error:  # noqa: BLE001 - adapters raise their clients' own errors
                failed = self._failed("connect for", key, error)
                raise failed from failed.__cause__
            self._built = (os.getpid(), fs, root.rstrip("/"))
        _, fs, root = self._built
        return fs, f"{root}/{key}".rstrip("/")

    def _arguments(self, fs_class: Any) -> dict[str, object]:
        # The caller's options override those in the URL.
        given = fs_class._get_kwargs_from_urls(self.url)  # noqa: SLF001 - as fsspec itself does
        return with_time_limits(fs_class, {**given, **self.options})

    def _failed(
        self, verb: str, key: str, error: Exception, *, advice: Fault | None = None
    ) -> StorageError:
        # Azure's client adds the whole document of the answer.
        text = str(error).partition("\nContent: ")[0] or self._silence()
        reason = redact(f"{type(error).__name__}: {'; '.join(text.splitlines())}", self.options)
        failed = StorageError(
            f"cannot {verb} an object: {advice or fault(error)}",
            key=key,
            store=self.url,
            reason=reason,
        )
        failed.__cause__ = safe_cause(error, self.options)
        return failed


class _Asked:
    """A context whose errors are translated, and that keeps none of them in a variable.

    A client's error may show a secret, and some programs show variables with a traceback: those of
    `contextlib` hold the error.
    """

    def __init__(
        self, at: Callable[[], tuple[Any, str]], translated: Callable[[Exception], FuseError]
    ) -> None:
        self._at = at
        self._translated = translated

    def __enter__(self) -> tuple[Any, str]:
        return self._at()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception):  # adapters raise their clients' own errors
            return
        translated = self._translated(error)
        del error, trace
        raise translated from translated.__cause__


def _adapter(scheme: str) -> type:
    try:
        return get_filesystem_class(scheme)  # type: ignore[no-any-return]
    except ImportError as error:
        package = str(known_implementations[scheme]["class"]).partition(".")[0]
        extra = EXTRAS.get(package)
        advice = str(error) if extra is None else f"pip install 'fuse-stream[{extra}]'"
        raise UnsupportedStorageError(
            f"the package for this kind of store is not installed: {advice}", scheme=scheme
        ) from error
    except ValueError as error:
        raise UnsupportedStorageError(
            "there is no such kind of store; use a local path, s3://, gs:// or abfss://",
            scheme=scheme,
        ) from error
