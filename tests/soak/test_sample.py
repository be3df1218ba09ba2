"""A sample counts the memory of the Python workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from soak.places import Places
from soak.sample import memory_of

DRIVER = "import subprocess, sys; subprocess.run(sys.argv[1:])"
WORKER = "print(input(), flush=True); input()"


def workers_memory(folder: Path, *command: str) -> float:
    """Return the workers' memory in a sample of a driver with one child."""
    driver = [sys.executable, "-c", DRIVER, *command]
    with subprocess.Popen(driver, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"up\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"up\n"  # the child has started
        found = memory_of("writer", process.pid, Places(folder))
        process.communicate(b"\n")
    assert found["writer: python"] > 1
    return found.get("writer: workers", 0.0)


def test_only_python_processes_below_a_driver_are_workers(tmp_path: Path) -> None:
    assert workers_memory(tmp_path, sys.executable, "-c", WORKER) > 0
    assert workers_memory(tmp_path, "cat") == 0
