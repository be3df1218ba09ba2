"""The recovery demos as a reader runs them: real processes, on fewer days."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import fuse_stream as fuse

pytestmark = pytest.mark.long

ROOT = Path(__file__).parent.parent.parent
DAYS = 5
FLIGHTS = 4_334
"""Rows of the first five days."""
REFUSED = "StreamIdentityError: this query was retired"


def tell(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"demo.{name}", f"--days={DAYS}", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def claims_of(output: str) -> list[str]:
    return re.findall(r"^  ok  (.*)$", output, re.MULTILINE)


def test_a_bad_deploy_is_found_undone_and_repeated_correctly(tmp_path: Path) -> None:
    done = tell("recovery", f"--folder={tmp_path / 'run'}")

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert claims_of(done.stdout) == [
        "both followers have what the tables have",
        "batch 1 was the last good one",
        "no bad row is left",
        "it is refused",
        "it is refused",
        "flights: the rows of the undisturbed run",
        "delays: the rows of the undisturbed run",
        f"{FLIGHTS:,} flights were delivered, each is there once",
        "both followers have what the tables have",
    ]
    assert done.stdout.count(REFUSED) == 2
    assert "prevented: applications have committed since then" in done.stdout
    assert re.search(r"^●  9 .* rewind to 4 ", done.stdout, re.MULTILINE)
    flights = fuse.Table.open(tmp_path / "run" / "tables" / "flights")
    assert flights.head().summary.row_count == FLIGHTS


def test_a_fix_is_tried_on_a_branch_and_published(tmp_path: Path) -> None:
    done = tell("rehearsal", f"--folder={tmp_path / 'run'}")

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert claims_of(done.stdout) == [
        "main is as it was",
        "rehearsal: every flight of 3 days, once and in minutes",
        "the old query is refused",
        f"{FLIGHTS:,} flights were delivered, each is there once",
        "a follower of main has what main has",
    ]
    assert REFUSED in done.stdout
    assert "main.publish('rehearsal'): both branches have moved" in done.stdout
    assert re.search(r"^● +5 .* publish rehearsal@6 ", done.stdout, re.MULTILINE)
    branches = {ref.name for ref in fuse.Table.open(tmp_path / "run" / "flights").branches()}
    assert branches == {"main", "rehearsal"}


@pytest.mark.parametrize("name", ["recovery", "rehearsal"])
def test_a_folder_that_the_demo_did_not_make_is_not_emptied(name: str, tmp_path: Path) -> None:
    (tmp_path / "letters").touch()

    done = tell(name, f"--folder={tmp_path}")

    assert done.returncode == 1
    assert "is not empty" in done.stderr
    assert (tmp_path / "letters").exists()
