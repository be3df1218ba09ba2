"""A store in a folder of the local file system.

- An object appears complete or not at all: it is written to a staged file in the same folder,
  synced, and then linked or renamed by one system call.
- A crash may leave staged files, which no method returns.
- No symbolic link below the root is followed, and only plain files are objects: whoever made the
  folder could lead a process to files elsewhere, or let it wait at a pipe. The root itself and
  what is above it may be links: that is the user's own choice. A process looks at each folder
  once, so it does not notice a link that takes the folder's place later.
- The folder that was used first is the store. If it disappears or another folder takes its path
  (a disk that is no longer mounted), calls fail: it is never an empty store.
- Writes survive a power cut: bytes, names and folders are on disk when a call returns.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.errors import (
    AlreadyExistsError,
    CorruptObjectError,
    NotFoundError,
    StorageError,
    UnsupportedStorageError,
)
from fuse_stream.storage.base import ObjectInfo, check_size
from fuse_stream.storage.parallel import each

STAGED_PREFIX = ".tmp-"

_REMEDIES = {
    errno.ENOSPC: "the disk is full; free space there and try again",
    errno.EDQUOT: "the disk quota is used up; free space there and try again",
    errno.EROFS: "the disk is mounted read-only; mount it writable or use another folder",
    errno.EACCES: "this user has no right to do that there; change the rights or the user",
    errno.EPERM: "this user has no right to do that there; change the rights or the user",
    errno.ENOTDIR: "a part of the path is a file, not a folder; use another folder",
    errno.EISDIR: "a folder has the path of an object; use another folder",
    errno.EEXIST: "a file has the path of a folder; use another folder",
    errno.ENAMETOOLONG: "the path is too long; use a folder with a shorter one",
    errno.EMFILE: "this process has too many open files; raise its limit (ulimit -n)",
}
_DELETERS = 4
"""Threads that unlink files: freeing a file's space waits for the disk and uses no core."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""A pipe is opened without waiting for its writer, and then refused."""
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


class LocalStore:
    """A store in the folder `root`, which the first write creates; keys are paths below it."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._root_identity: tuple[int, int] | None = None
        self._entered: set[Path] = set()
        """Folders whose names, and those of their parents, are known to be on disk."""
        self._walked: set[str] = set()
        """Folders, relative to the root, that are no symbolic links, nor is any above them."""

    def __repr__(self) -> str:
        return f"LocalStore({str(self.root)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return LocalStore, (self.root,)

    @property
    def server(self) -> Hashable | None:
        # The file system of the folder, or of where it will be.
        for place in (self.root, *self.root.parents):
            with suppress(OSError):
                return "local", place.stat().st_dev
        return None

    @property
    def overlaps(self) -> bool:
        return True

    @property
    def is_remote(self) -> bool:
        return False

    @property
    def url(self) -> str:
        return str(self.root)

    def get(self, key: str) -> bytes:
        return self.get_up_to(key, None)

    def get_up_to(self, key: str, most_bytes: int | None) -> bytes:
        descriptor, size = self._open(key)
        try:
            check_size(size, most_bytes, key, self.url)
            pieces = [os.read(descriptor, size)]
            while pieces[-1] and sum(map(len, pieces)) < size:
                pieces.append(os.read(descriptor, size))
        except OSError as error:
            raise self._failed("read", key, error) from error
        except MemoryError as error:
            raise StorageError(
                "an object does not fit into memory; give this process more, or restore the "
                "object from a copy if it is damaged",
                key=key,
                size_bytes=size,
                store=self.url,
            ) from error
        finally:
            os.close(descriptor)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def open_input(self, key: str, size: int | None = None) -> BinaryIO:  # noqa: ARG002 - as in Store
        descriptor, _ = self._open(key)
        return os.fdopen(descriptor, "rb")

    def _open(self, key: str) -> tuple[int, int]:
        """Open the file of an object; return its descriptor and its size in bytes."""
        self._check_way(key)
        try:
            descriptor = os.open(f"{self.root}/{key}", _READ)
        except FileNotFoundError as error:
            self._check_root(key)
            raise NotFoundError("no such object", key=key, store=self.url) from error
        except OSError as error:
            if error.errno == errno.ELOOP and (self.root / key).is_symlink():
                raise self._linked(key, key) from error
            raise self._failed("read", key, error) from error
        self._remember_root()
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise self._no_file(key, status.st_mode)
        return descriptor, status.st_size

    def _no_file(self, key: str, mode: int) -> StorageError | CorruptObjectError:
        if stat.S_ISDIR(mode):
            return self._failed("read", key, OSError(errno.EISDIR, os.strerror(errno.EISDIR)))
        return CorruptObjectError(
            "a pipe, a socket or a device has the path of an object, and was not read; delete it, "
            "and restore the object from a copy",
            key=key,
            store=self.url,
        )

    def _check_way(self, key: str) -> None:
        """Raise if a folder on the way to `key` is a symbolic link."""
        folder = key.rpartition("/")[0]
        if folder in self._walked:
            return
        way = ""
        for name in filter(None, folder.split("/")):
            way = f"{way}{name}"
            try:
                mode = os.lstat(f"{self.root}/{way}").st_mode
            except OSError:  # the call itself says what is wrong
                return
            if stat.S_ISLNK(mode):
                raise self._linked(key, way)
            way += "/"
        self._walked.add(folder)

    def _linked(self, key: str, link: str) -> CorruptObjectError:
        return CorruptObjectError(
            "a part of the table is a symbolic link, which may lead anywhere and is not followed; "
            "put the file or folder itself in its place. (The table's own folder may be a link.)",
            link=link,
            key=key,
            store=self.url,
        )

    def put(self, key: str, data: bytes | memoryview) -> None:
        self.replace(key, data)

    def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
        target = self.root / key
        staged = self._stage(key, data)
        try:
            os.link(staged, target)  # unlike rename, fails if the name is taken
        except FileExistsError as error:
            # The process that created the name may have died before its sync. The caller may
            # take the object for committed, so the name must be on disk now.
            self._sync(key)
            raise AlreadyExistsError("the name is taken", key=key, store=self.url) from error
        except OSError as error:
            if error.errno in _NO_HARD_LINKS:
                raise UnsupportedStorageError(
                    "this file system has no hard links, so two writers could both create an "
                    "object; use a folder on another disk",
                    key=key,
                    store=self.url,
                ) from error
            raise self._failed("create", key, error) from error
        finally:
            _discard(staged)
        self._sync(key)

    def replace(self, key: str, data: bytes | memoryview) -> None:
        staged = self._stage(key, data)
        try:
            staged.replace(self.root / key)
        except OSError as error:
            _discard(staged)
            raise self._failed("write", key, error) from error
        self._sync(key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._check_way(prefix)
        try:
            found = list(_scan(self.root / prefix, prefix))
        except OSError as error:
            raise self._failed("list", prefix, error) from error
        if not found:
            self._check_root(prefix)
        return iter(sorted(found, key=lambda info: info.key))

    def leftovers(self) -> Iterator[ObjectInfo]:
        try:
            found = list(_scan(self.root, "", staged=True))
        except OSError as error:
            raise self._failed("list", "", error) from error
        return iter(sorted(found, key=lambda info: info.key))

    def names(self, prefix: str) -> Sequence[str]:
        folder = self.root / prefix
        try:
            with os.scandir(folder) as entries:
                found = [f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries]
        except FileNotFoundError:
            self._check_root(prefix)
            return []
        except OSError as error:
            raise self._failed("list", prefix, error) from error
        return sorted(name for name in found if not name.startswith(STAGED_PREFIX))

    def delete(self, key: str) -> None:
        if self._unlink(key):
            self._sync(key)

    def delete_all(self, keys: Sequence[str]) -> None:
        parts = [keys[first::_DELETERS] for first in range(min(_DELETERS, len(keys)))]
        for _ in each(self._unlink_all, parts, self, at_once=_DELETERS):
            pass

    def _unlink_all(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._unlink(key)

    def _unlink(self, key: str) -> bool:
        """Delete the file of an object; return True if there was one."""
        self._check_way(key)
        try:
            os.unlink(f"{self.root}/{key}")  # noqa: PTH108 - a path costs more than the call
        except FileNotFoundError:
            self._check_root(key)
            return False
        except OSError as error:
            raise self._failed("delete", key, error) from error
        return True

    def location(self, key: str) -> str:
        path = f"{self.root}/{key}"
        self._check_way(key)
        if key and os.path.islink(path):  # noqa: PTH114 - a path costs more than the call
            raise self._linked(key, key)
        return path

    def _stage(self, key: str, data: bytes | memoryview) -> Path:
        """Write `data` to a new file in the folder of `key`, which is created if it is missing."""
        self._check_way(key)
        folder = (self.root / key).parent
        staged = folder / f"{STAGED_PREFIX}{SYSTEM_CLOCK.new_id()}"
        try:
            try:
                write_through(staged, data)
            except FileNotFoundError:
                self._check_root(key)
                make_folder(folder)
                write_through(staged, data)
            self._remember_root()
            self._enter(folder)
        except BaseException as error:
            _discard(staged)
            if isinstance(error, OSError) and not isinstance(error, StorageError):
                raise self._failed("write", key, error) from error
            raise
        return staged

    def _enter(self, folder: Path) -> None:
        """Put the names of `folder` and its parents on disk, once per folder.

        Another process may have created the folder and not synced it yet.
        """
        if folder in self._entered:
            return
        for parent in folder.parents:
            if parent == self.root.parent:
                with suppress(PermissionError):  # the parent may belong to another user
                    sync_folder(parent)
                break
            sync_folder(parent)
        self._entered.add(folder)

    def _sync(self, key: str) -> None:
        try:
            sync_folder((self.root / key).parent)
        except OSError as error:
            raise self._failed("sync", key, error) from error

    def _remember_root(self) -> None:
        if self._root_identity is None:
            self._root_identity = _identity(self.root)

    def _check_root(self, key: str) -> None:
        """Raise if the folder of this store has disappeared or was replaced."""
        if self._root_identity is not None and _identity(self.root) != self._root_identity:
            raise StorageError(
                "the folder of this store is gone or was replaced; check that its disk is mounted, "
                "then open the table again",
                key=key,
                store=self.url,
            )

    def _failed(self, verb: str, key: str, error: OSError) -> StorageError:
        reason = error.strerror or type(error).__name__
        remedy = _REMEDIES.get(error.errno or 0, f"the file system said: {reason}")
        return StorageError(f"cannot {verb} an object: {remedy}", key=key, store=self.url)


def _discard(staged: Path) -> None:
    with suppress(OSError):  # a leftover is invisible; the caller's own error matters more
        staged.unlink()


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return the device and inode of a folder, which differ for another one; None if absent."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _scan(folder: Path, prefix: str, *, staged: bool = False) -> Iterator[ObjectInfo]:
    """Yield the objects below `folder`, unordered; one that is deleted meanwhile may be missing.

    A symbolic link, also one to a folder, is listed as an object, which cannot be read.
    With `staged` yield the files of writes that have not ended instead.
    """
    try:
        entries = os.scandir(folder)
    except FileNotFoundError:
        return
    with entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _scan(folder / entry.name, f"{prefix}{entry.name}/", staged=staged)
            elif entry.name.startswith(STAGED_PREFIX) is staged:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                yield ObjectInfo(
                    key=f"{prefix}{entry.name}",
                    size=status.st_size,
                    modified_us=status.st_mtime_ns // 1000,
                )


def write_through(path: Path, data: bytes | memoryview) -> None:
    """Create the file `path` and sync `data` to disk; the caller syncs the name (`sync_folder`)."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Sync the names in `folder` to disk, so that they survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create `folder` and its missing parents, and sync their names to disk."""
    try:
        folder.mkdir()
    except FileNotFoundError:
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
    except FileExistsError:
        if not folder.is_dir():
            raise
    sync_folder(folder.parent)
