"""Files that survive a power cut: bytes, names and folders are on disk when a call returns."""

from __future__ import annotations

import os
from pathlib import Path


def write_through(path: Path, data: bytes | memoryview) -> None:
    """Create the file `path` with `data`, on disk. Its name is not: sync its folder."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Put the names in `folder` on disk; until then a power cut may take them back."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create `folder` and its missing parents, each with its name on disk."""
    try:
        folder.mkdir()
    except FileNotFoundError:
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
    except FileExistsError:
        if not folder.is_dir():
            raise
    sync_folder(folder.parent)
