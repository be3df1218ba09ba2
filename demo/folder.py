"""The folder of a run: claimed, emptied and held, so that no two runs share one."""

from __future__ import annotations

import argparse
import fcntl
import shutil
from io import TextIOWrapper
from pathlib import Path

from demo.places import CACHE

MARK = ".fuse_stream_demo"
"""In every folder that a demo may empty."""


def add_folder_option(parser: argparse.ArgumentParser, name: str) -> None:
    """Add `--folder`, which is `name` below the cache if not given."""
    parser.add_argument(
        "--folder",
        type=Path,
        default=CACHE / name,
        help=f"for tables and checkpoints, emptied at the start (default: .cache/{name})",
    )


def claim_folder(root: Path) -> TextIOWrapper:
    """Empty the run's folder and hold it while the returned file is open."""
    mark = root / MARK
    if root.exists() and any(root.iterdir()) and not mark.exists():
        raise SystemExit(f"{root} is not empty, nor left by an earlier demo: name another --folder")
    root.mkdir(parents=True, exist_ok=True)
    lock = mark.open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SystemExit(f"another demo runs in {root}: wait, or name another --folder") from None
    for left in root.iterdir():
        if left.is_dir():
            shutil.rmtree(left)
        elif left != mark:
            left.unlink()
    return lock
