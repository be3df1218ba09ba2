"""Whose memory a sample counts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from soak.places import Places
from soak.sample import memory_of


def workers_memory(folder: Path, *command: str) -> float:
    """Return what a sample says of the workers of this process while it has one child."""
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        found = memory_of("writer", os.getpid(), Places(folder))
        child.communicate(b"\n")
    assert found["writer: python"] > 1
    return found.get("writer: workers", 0.0)


def test_only_python_below_a_driver_is_a_worker(tmp_path: Path) -> None:
    assert workers_memory(tmp_path, sys.executable, "-c", "input()") > 0
    assert workers_memory(tmp_path, "cat") == 0
