"""Whose memory a sample counts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from soak.places import Places
from soak.sample import memory_of

DRIVER = "import subprocess, sys; subprocess.run(sys.argv[1:])"
WORKER = "print(input(), flush=True); input()"


def workers_memory(folder: Path, *command: str) -> float:
    """Return what a sample says of the workers of a driver that has one child."""
    driver = [sys.executable, "-c", DRIVER, *command]
    with subprocess.Popen(driver, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"up\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"up\n"  # so the child is there
        found = memory_of("writer", process.pid, Places(folder))
        process.communicate(b"\n")
    assert found["writer: python"] > 1
    return found.get("writer: workers", 0.0)


def test_only_python_below_a_driver_is_a_worker(tmp_path: Path) -> None:
    assert workers_memory(tmp_path, sys.executable, "-c", WORKER) > 0
    assert workers_memory(tmp_path, "cat") == 0
