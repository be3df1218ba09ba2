"""The demo and the example as a reader runs them: real processes that are killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyarrow.dataset as ds
import pytest

import fuse_stream as fuse

pytestmark = pytest.mark.long

ROOT = Path(__file__).parent.parent.parent
WEEKS = 4
FLIGHTS = 24_286
"""Rows of the first four weeks."""


@contextmanager
def demo(*options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(ROOT / "demo" / "run.py"), f"--weeks={WEEKS}", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.terminate()  # it ends its own driver


def read_until(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if found := re.search(pattern, line):
            return found
    pytest.fail(f"{pattern!r} was not said:\n{seen}")


def landed(folder: Path) -> tuple[int, int]:
    """Return the rows of the table and of plain Parquet."""
    table = fuse.Table.open(folder / "flights").head().summary.row_count
    return table, ds.dataset(folder / "plain_parquet").count_rows()


def running(group: int) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE and group_of(process.pid) == group
    ]


def group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def test_two_kills_double_weeks_of_plain_parquet_and_none_of_the_table(tmp_path: Path) -> None:
    with demo(f"--folder={tmp_path / 'run'}") as process:
        output, _ = process.communicate()

    assert process.returncode == 0, output
    rows, plain_rows = landed(tmp_path / "run")
    assert rows == FLIGHTS
    assert plain_rows == FLIGHTS + 6099 + 6018  # weeks 1 and 3
    pids = re.findall(r"driver \d: pid (\d+)", output)
    assert len(set(pids)) == 3
    assert output.count("outcome=replay") >= 2
    assert not (tmp_path / "run" / "scratch").exists()


def test_a_reader_may_kill_the_driver(tmp_path: Path) -> None:
    with demo("--kill=me", f"--folder={tmp_path / 'run'}") as process:
        pid = read_until(process, r"now.*kill -9 (\d+)").group(1)
        os.kill(int(pid), signal.SIGKILL)
        output, _ = process.communicate()

    assert process.returncode == 0, output
    assert landed(tmp_path / "run") == (FLIGHTS, FLIGHTS + 6099)


def test_control_c_leaves_no_driver_behind(tmp_path: Path) -> None:
    with demo("--kill=never", f"--folder={tmp_path / 'run'}") as process:
        pid = int(read_until(process, r"driver 1 started: pid (\d+)").group(1))
        read_until(process, r"week +1 of")
        assert len(running(pid)) >= 2  # Python and its JVM
        process.send_signal(signal.SIGINT)
        process.communicate()

    assert process.returncode == 130
    assert running(pid) == []


def test_a_folder_that_the_demo_did_not_make_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "letters").touch()
    with demo(f"--folder={tmp_path}") as process:
        output, _ = process.communicate()

    assert process.returncode == 1
    assert "is not empty" in output
    assert (tmp_path / "letters").exists()


def test_the_checkpoint_example_replays_its_last_batch(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "checkpoints_example" / "run.py"), str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 0, result.stderr
    assert result.stdout.count("outcome=committed") == 4
    assert result.stdout.count("outcome=replay") == 1
    assert fuse.Table.open(tmp_path / "run" / "table").head().summary.row_count == 48
    assert (tmp_path / "run" / "checkpoint" / "commits" / "3").exists()
