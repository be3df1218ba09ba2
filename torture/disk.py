"""A record of what a process asked of its disk, and the states in which a power cut may leave it.

What was synced is there. Of the rest anything may be: a name that was made may be missing, one that
was removed may be back, a file may have a part of its bytes, or zeros in their place. Each name and
each file is on its own: nothing says that what was asked first is written first.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

File = int
"""The number of a file; a name leads to it."""
Node = File | str
"""What a name leads to: a file, or a folder by its path."""


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes were added to the end of a file."""

    file: File
    data: bytes


@dataclass(frozen=True, slots=True)
class SyncFile:
    """All bytes of a file are on the disk."""

    file: File


@dataclass(frozen=True, slots=True)
class Name:
    """A name was made, or replaced; `moved_from` went in the same moment."""

    path: str
    node: Node
    moved_from: str | None = None


@dataclass(frozen=True, slots=True)
class Unname:
    """A name was removed."""

    path: str


@dataclass(frozen=True, slots=True)
class SyncFolder:
    """All names in a folder are on the disk."""

    path: str


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The caller was told that a step was done."""

    number: int


Event = Write | SyncFile | Name | Unname | SyncFolder | Acknowledged


class Recorder:
    """Records the events below a folder while `recording`; syncs are recorded, and not done."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.events: list[Event] = []
        self._files: dict[int, File] = {}
        """By open descriptor."""
        self._folders: dict[int, str] = {}
        self._nodes: dict[str, Node] = {}
        """What each name leads to now."""
        self._count = 0
        self._lock = threading.RLock()

    def acknowledge(self, number: int) -> None:
        self.events.append(Acknowledged(number))

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what this process does by the functions of `os`."""
        kept = {name: getattr(os, name) for name in _RECORDED}
        for name, record in _RECORDED.items():
            setattr(os, name, self._wrapped(kept[name], record))
        try:
            yield
        finally:
            for name, function in kept.items():
                setattr(os, name, function)

    def _wrapped(self, function: Callable[..., Any], record: Any) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            with self._lock:  # so that events stand in the order in which they happened
                return record(self, function, *arguments, **options)

        return call

    def _below(self, path: object) -> str | None:
        """Return a path relative to the folder's parent, None if it is not below it."""
        if not isinstance(path, str | os.PathLike):
            return None
        text = os.path.normpath(os.fspath(path))
        base = os.path.dirname(self.root)  # noqa: PTH120 - as text, the calls have it
        if text == base:
            return ""
        return text[len(base) + 1 :] if text.startswith(self.root) else None

    def _open(self, function: Any, path: Any, flags: int, *rest: Any, **options: Any) -> int:
        descriptor: int = function(path, flags, *rest, **options)
        below = self._below(path)
        if below is None:
            return descriptor
        if flags & os.O_DIRECTORY:
            self._folders[descriptor] = below
        elif flags & os.O_CREAT:
            self._count += 1
            self._files[descriptor] = self._count
            self._name(below, self._count)
        return descriptor

    def _write(self, function: Any, descriptor: int, data: Any) -> int:
        count: int = function(descriptor, data)
        if descriptor in self._files:
            self.events.append(Write(self._files[descriptor], bytes(data[:count])))
        return count

    def _fsync(self, function: Any, descriptor: int) -> None:
        if descriptor in self._files:
            self.events.append(SyncFile(self._files[descriptor]))
        elif descriptor in self._folders:
            self.events.append(SyncFolder(self._folders[descriptor]))
        else:
            function(descriptor)

    def _close(self, function: Any, descriptor: int) -> None:
        self._files.pop(descriptor, None)
        self._folders.pop(descriptor, None)
        function(descriptor)

    def _link(self, function: Any, source: Any, target: Any, **options: Any) -> None:
        function(source, target, **options)
        if (below := self._below(target)) is not None:
            self._name(below, self._nodes[str(self._below(source))])

    def _replace(self, function: Any, source: Any, target: Any, **options: Any) -> None:
        function(source, target, **options)
        if (below := self._below(target)) is not None:
            before = str(self._below(source))
            self._name(below, self._nodes.pop(before), moved_from=before)

    def _unlink(self, function: Any, path: Any, **options: Any) -> None:
        function(path, **options)
        if (below := self._below(path)) is not None:
            self._nodes.pop(below, None)
            self.events.append(Unname(below))

    def _mkdir(self, function: Any, path: Any, *rest: Any, **options: Any) -> None:
        function(path, *rest, **options)
        if (below := self._below(path)) is not None:
            self._name(below, below)

    def _name(self, path: str, node: Node, moved_from: str | None = None) -> None:
        self._nodes[path] = node
        self.events.append(Name(path, node, moved_from))


_RECORDED: dict[str, Any] = {
    "open": Recorder._open,  # noqa: SLF001 - of this module's own class
    "write": Recorder._write,  # noqa: SLF001
    "fsync": Recorder._fsync,  # noqa: SLF001
    "close": Recorder._close,  # noqa: SLF001
    "link": Recorder._link,  # noqa: SLF001
    "replace": Recorder._replace,
    "rename": Recorder._replace,
    "unlink": Recorder._unlink,  # noqa: SLF001
    "remove": Recorder._unlink,  # noqa: SLF001
    "mkdir": Recorder._mkdir,  # noqa: SLF001
}


@dataclass
class _Content:
    """The bytes of a file: those on the disk, and writes that may get there."""

    synced: bytes = b""
    pending: list[bytes] = field(default_factory=list)


class Disk:
    """The disk while events happen to it."""

    def __init__(self) -> None:
        self._contents: dict[File, _Content] = {}
        self._names: dict[str, dict[str, Node]] = {}
        """By folder: the names that are on the disk."""
        self._pending: dict[str, list[Name | Unname]] = {}

    def happen(self, event: Event) -> None:
        match event:
            case Write(file, data):
                self._contents.setdefault(file, _Content()).pending.append(data)
            case SyncFile(file):
                content = self._contents.setdefault(file, _Content())
                content.synced += b"".join(content.pending)
                content.pending.clear()
            case Name(path) | Unname(path):
                self._pending.setdefault(_folder(path), []).append(event)
            case SyncFolder(path):
                names = self._names.setdefault(path, {})
                for change in self._pending.pop(path, []):
                    _apply(change, names)
            case Acknowledged():
                pass

    @property
    def is_synced(self) -> bool:
        """True if a power cut now leaves but one state."""
        has_bytes = any(content.pending for content in self._contents.values())
        return not has_bytes and not any(self._pending.values())

    def state(self, keeps: Callable[[], bool], chance: random.Random) -> dict[str, bytes]:
        """Return the files that a power cut leaves, by path.

        `keeps` is asked for each thing that was not synced, whether it is on the disk.
        """
        names = {folder: dict(found) for folder, found in self._names.items()}
        for folder, changes in self._pending.items():
            for change in changes:
                if keeps():
                    _apply(change, names.setdefault(folder, {}))
        contents: dict[File, bytes] = {}
        found: dict[str, bytes] = {}

        def walk(folder: str) -> None:
            for name, node in names.get(folder, {}).items():
                path = f"{folder}/{name}" if folder else name
                if isinstance(node, str):
                    walk(node)
                else:
                    if node not in contents:
                        contents[node] = self._content(node, keeps, chance)
                    found[path] = contents[node]

        walk("")
        return found

    def _content(self, file: File, keeps: Callable[[], bool], chance: random.Random) -> bytes:
        content = self._contents.get(file, _Content())
        data = content.synced
        for write in content.pending:
            if keeps():
                data += write
                continue
            part = chance.randint(0, len(write))
            # The length of a file may be on the disk before its bytes.
            data += chance.choice(
                (b"", write[:part], bytes(part), write[:part] + bytes(len(write) - part))
            )
            break
        return data


def _apply(change: Name | Unname, names: dict[str, Node]) -> None:
    name = change.path.rpartition("/")[2]
    if isinstance(change, Unname):
        names.pop(name, None)
        return
    if change.moved_from is not None:
        names.pop(change.moved_from.rpartition("/")[2], None)
    names[name] = change.node


def _folder(path: str) -> str:
    return path.rpartition("/")[0]
