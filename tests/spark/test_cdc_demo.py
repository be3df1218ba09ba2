"""The demo of change data capture as a reader runs it: real processes, on fewer rounds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import fuse_stream as fuse

pytestmark = pytest.mark.long

ROOT = Path(__file__).parent.parent.parent
ROUNDS = 5


def run_demo(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "demo.cdc", f"--rounds={ROUNDS}", f"--folder={folder}"]
    return subprocess.run(
        [*command, *options], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_a_change_log_ends_in_the_tables_as_in_the_source_database(tmp_path: Path) -> None:
    done = run_demo(tmp_path / "run")

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^  ok  (.*)$", done.stdout, re.MULTILINE) == [
        "round 1 is in bronze, but Spark has not noted it yet",
        "Spark sent a round again, and bronze skipped it",
        "each table has just what had arrived by round 3",
        "all three tables are wrong",
        "batch 2 was the last good one",
        "each table has just what had arrived by round 3",
        "each table has just what had arrived by round 5",
        "the quarantine has all broken messages, each for its own reason",
        "each of them could be applied or was overtaken",
        "every table was right at the end of every round",
        "every event is counted once",
        "bronze, silver and gold are the same as SQLite",
    ]
    assert done.stdout.count("kill -9") == 2
    assert "outcome=replay" in done.stdout
    assert not (tmp_path / "run" / "scratch").exists()
    tables = tmp_path / "run" / "tables"
    for name in ("bronze", "silver", "gold"):
        operations = [str(version.operation) for version in fuse.Table.open(tables / name).log()]
        assert operations.count("rewind") == 1


def test_a_folder_that_the_demo_did_not_make_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "letters").touch()

    done = run_demo(tmp_path)

    assert done.returncode == 1
    assert "is not empty" in done.stderr
    assert (tmp_path / "letters").exists()
