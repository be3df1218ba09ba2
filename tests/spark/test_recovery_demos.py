"""The recovery demos as a reader runs them: real processes, on fewer days."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pytest

import fuse_stream as fuse

pytestmark = pytest.mark.long

ROOT = Path(__file__).parent.parent.parent
DAYS = 5
FLIGHTS = 4_334
"""Rows of the first five days."""
FLOWN, MINUTES = 4_303, 44_816
"""Those that were not cancelled, and the sum of their delays."""
ADVICE = {
    "nothing was done; leave out --dry-run to do it",
    "start each query again with its new folder as the checkpointLocation",
}
"""What `fuse-stream rewind` prints besides its report."""
REFUSED = "StreamIdentityError: this query was retired"


def tell(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"demo.{name}", f"--days={DAYS}", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def claims_of(output: str) -> list[str]:
    return re.findall(r"^  ok  (.*)$", output, re.MULTILINE)


def test_two_bad_deploys_of_a_pipeline_are_found_undone_and_repeated_correctly(
    tmp_path: Path,
) -> None:
    done = tell("recovery", f"--folder={tmp_path / 'run'}")

    assert done.returncode == 0, done.stdout + done.stderr
    assert set(done.stderr.splitlines()) == ADVICE
    assert claims_of(done.stdout) == [
        "each table has just the rows of days 1 to 2",
        "somebody sees that gold is wrong",
        "batch 1 was the last good one",
        "each table has just the rows of days 1 to 2",
        "they are refused, and have written nothing",
        "each table has just the rows of days 1 to 4",
        "somebody sees that gold is wrong",
        "batch 3 was the last good one",
        "each table has just the rows of days 1 to 4",
        "each table has just the rows of days 1 to 5",
        f"{FLOWN:,} flights were flown, each is in silver once",
        "a follower of gold has what gold has",
    ]
    assert f"bronze: fuse_stream.errors.{REFUSED}" in done.stdout
    assert done.stdout.count("feed=append") == 2
    tables = tmp_path / "run" / "tables"
    operations = [
        [str(version.operation) for version in fuse.Table.open(tables / name).log()]
        for name in ("bronze", "silver", "gold")
    ]
    assert [names.count("rewind") for names in operations] == [2, 2, 2]
    silver = fuse.Table.open(tables / "silver").to_arrow()
    assert pc.sum(silver["delay"]).as_py() == MINUTES


@pytest.mark.night
def test_copies_of_a_pipeline_follow_its_first_table_back(tmp_path: Path) -> None:
    done = tell("recovery", "--feed=changes", f"--folder={tmp_path / 'run'}")

    assert done.returncode == 0, done.stdout + done.stderr
    assert set(done.stderr.splitlines()) == ADVICE
    assert claims_of(done.stdout)[-5:] == [
        "batch 3 was the last good one",
        "each table has just the rows of days 1 to 4",
        "each table has just the rows of days 1 to 5",
        "silver and gold have no flight of B6 either",
        "a follower of gold has what gold has",
    ]
    assert done.stdout.count("silver and gold follow bronze, on the checkpoints") == 1
    tables = tmp_path / "run" / "tables"
    operations = [
        [str(version.operation) for version in fuse.Table.open(tables / name).log()]
        for name in ("bronze", "silver", "gold")
    ]
    assert [names.count("rewind") for names in operations] == [2, 1, 1]
    assert ["replicate" in names for names in operations] == [False, True, True]


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
