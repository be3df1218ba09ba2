"""An fsspec file system in this process's memory whose `pipe_file(mode="create")` has one winner.

fsspec's own `memory` has several. This one also caches listings like s3fs, unless told not to, and
tells of a missing bucket in the cause of its error, so that a store on it can be caught trusting.
Its protocol, `fusetest`, is registered on import, and so is `fusetest-marked`: the same, but its
folders are objects too, as consoles and Hadoop make them on S3.
"""

from __future__ import annotations

import io
import threading
from typing import Any, BinaryIO, ClassVar

import fsspec

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.testing.memory import MemoryObject

PROTOCOL = "fusetest"
MARKED_PROTOCOL = "fusetest-marked"


class NoSuchBucketError(Exception):
    """The client library's error that causes fsspec's FileNotFoundError."""

    def __str__(self) -> str:
        return "An error occurred (NoSuchBucket) when calling the operation"


class MemoryFileSystem(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """Buckets of objects, shared by all instances like those of a real service."""

    protocol = PROTOCOL
    root_marker = ""
    fuse_atomic_create = True

    buckets: ClassVar[dict[str, dict[str, MemoryObject]]] = {}
    """Objects by bucket, then by key. Tests may read and change them."""

    failure: ClassVar[Exception | None] = None
    """The error that every call raises, if set."""

    _lock: ClassVar[threading.Lock] = threading.Lock()

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:  # noqa: FBT001, FBT002 - fsspec's signature
        path = self._strip_protocol(path)
        infos = self._ls_from_cache(path)
        if infos is None:
            infos = self.dircache[path] = self._children(path)
        return infos if detail else [info["name"] for info in infos]

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        bucket, key = self._bucket(path)
        if key not in bucket:
            raise FileNotFoundError(path)
        return bucket[key].data[start:end]

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        if type(value) is not bytes:
            raise TypeError("botocore takes bytes only")
        bucket, key = self._bucket(path)
        with self._lock:
            if mode == "create" and key in bucket:
                raise FileExistsError(path)
            bucket[key] = MemoryObject(data=value, modified_us=SYSTEM_CLOCK.now_us())

    def rm_file(self, path: str) -> None:
        bucket, key = self._bucket(path)
        if bucket.pop(key, None) is None:
            raise FileNotFoundError(path)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> BinaryIO:
        if mode != "rb":
            raise NotImplementedError(mode)
        return io.BytesIO(self.cat_file(path))

    def _bucket(self, path: str) -> tuple[dict[str, MemoryObject], str]:
        if self.failure is not None:
            raise self.failure
        name, _, key = self._strip_protocol(path).partition("/")
        if name not in self.buckets:
            raise FileNotFoundError(name) from NoSuchBucketError()
        return self.buckets[name], key

    def _children(self, path: str) -> list[dict[str, Any]]:
        bucket, folder = self._bucket(path)
        prefix = f"{folder}/" if folder else ""
        found: dict[str, dict[str, Any]] = {}
        for key, item in bucket.items():
            if not key.startswith(prefix):
                continue
            name, below, _ = key.removeprefix(prefix).partition("/")
            info: dict[str, Any] = {"name": f"{path}/{name}", "type": "directory", "size": 0}
            if not below:
                info |= {
                    "type": "file",
                    "size": len(item.data),
                    "mtime": item.modified_us / 1_000_000,
                }
            found[name] = info
        if not found:
            raise FileNotFoundError(path)
        return list(found.values())


class MarkedMemoryFileSystem(MemoryFileSystem):
    """The same buckets, with an empty object for every folder, and listed in one go like by s3fs.

    A folder's marker is made with the first object below it and stays when that is deleted. It is
    listed as a file whose name ends in `/`.
    """

    protocol = MARKED_PROTOCOL

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        super().pipe_file(path, value, mode)
        bucket, key = self._bucket(path)
        folders = key.split("/")[:-1]
        for depth in range(len(folders)):
            self.mark(bucket, "/".join(folders[: depth + 1]))

    @staticmethod
    def mark(bucket: dict[str, MemoryObject], folder: str) -> None:
        """Put the marker of a folder, unless it is there."""
        marker = MemoryObject(data=b"", modified_us=SYSTEM_CLOCK.now_us())
        bucket.setdefault(f"{folder}/", marker)

    def find(self, path: str, **_: Any) -> dict[str, dict[str, Any]]:
        bucket, folder = self._bucket(path)
        name = self._strip_protocol(path).partition("/")[0]
        return {
            f"{name}/{key}": {
                "name": f"{name}/{key}",
                "type": "file",
                "size": len(item.data),
                "mtime": item.modified_us / 1_000_000,
            }
            for key, item in list(bucket.items())
            if key.startswith(f"{folder}/" if folder else "")
        }


fsspec.register_implementation(PROTOCOL, MemoryFileSystem, clobber=True)
fsspec.register_implementation(MARKED_PROTOCOL, MarkedMemoryFileSystem, clobber=True)
