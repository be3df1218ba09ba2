"""Progress bars: on a terminal's stderr, and nowhere else."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fuse_stream.cli.main import main
from fuse_stream.table.handle import Table
from tests.cli.conftest import rows

ESCAPE = "\x1b"
BAR = "━"
SHOWN = {
    "compact": ("rewriting blocks", "4/4"),
    "optimize": ("rewriting blocks", "4/4"),
    "delete": ("looking for rows", "3/3"),
    "update": ("looking for rows", "3/3"),
    "recluster": ("sorting blocks", "4/4"),
    "vacuum": ("reading segments", r"\d+/\d+"),
    "fsck": ("checking", r"(\d+)/\1"),
    "rewind": ("looking for the batch", r"\d+/5"),
}
"""The last step that each command shows, and how much of it is done."""


@pytest.fixture
def small(table: Table) -> Table:
    """The table with batches 1 to 3 of an application, each a block in the same range of keys."""
    table.create_branch("batches", 1)
    batches = Table.open(table.location.path, branch="batches")
    for number in range(1, 4):
        batches.append(rows(1, 5), batch_id=number)
    batches.set_properties({"fuse.cluster.depth": "1"})
    return batches


def arguments(command: str, path: str) -> list[str]:
    branch = [] if command in {"fsck", "vacuum"} else ["--branch", "batches"]
    if command == "rewind":
        branch += ["--after-batch", "0", "--dry-run", "--retire", "default"]
    changed = {"delete": ["id = 5"], "update": ["id = 5", "--set", "delay=0"]}
    return [command, path, *changed.get(command, []), *branch]


def on_terminal(monkeypatch: pytest.MonkeyPatch, *words: str) -> Result:
    for variable, value in {"TERM": "xterm", "FORCE_COLOR": "1", "COLUMNS": "100"}.items():
        monkeypatch.setenv(variable, value)
    return CliRunner().invoke(main, list(words))


@pytest.mark.parametrize("command", SHOWN)
def test_a_long_command_shows_a_bar(
    monkeypatch: pytest.MonkeyPatch, small: Table, path: str, command: str
) -> None:
    result = on_terminal(monkeypatch, *arguments(command, path))
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", result.stderr)
    step, done = SHOWN[command]

    assert result.exit_code == 0, result.output
    assert re.search(rf"{step} [{BAR}╺╸]+ +{done} ", shown), shown
    assert BAR not in result.stdout


@pytest.mark.parametrize("command", SHOWN)
def test_there_is_no_bar_in_a_pipe_or_with_json(
    monkeypatch: pytest.MonkeyPatch, small: Table, path: str, command: str
) -> None:
    piped = CliRunner().invoke(main, arguments(command, path))
    as_json = on_terminal(monkeypatch, *arguments(command, path), "--json")

    assert piped.exit_code == as_json.exit_code == 0
    assert ESCAPE not in piped.stderr + piped.stdout
    assert as_json.stderr == ""


def test_a_terminal_shows_the_bar_and_a_pipe_beside_it_has_the_data_alone(
    small: Table, path: str
) -> None:
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "fuse_stream.cli.main", "fsck", path],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "PYTHONPATH": str(Path(__file__).parents[2])},
        check=True,
    )
    os.close(theirs)
    shown = os.read(ours, 65_536).decode()
    os.close(ours)

    assert BAR in shown
    assert ESCAPE.encode() not in done.stdout
    assert done.stdout.startswith(b"branch")
