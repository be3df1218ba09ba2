"""The program as the shell sees it: pipes, colours, signals, and a Python without Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuse_stream.cli.output import EXIT_CLOSED_PIPE, EXIT_INTERRUPTED
from fuse_stream.table.handle import Table
from tests.cli.conftest import rows

INSTALLED = Path(sys.executable).with_name("fuse-stream")
# The code of the installed entry point; a source folder has none.
CALL = "import sys; from fuse_stream.cli.main import main; sys.argv[0] = 'fuse-stream'; main()"
PROGRAM = [str(INSTALLED)] if INSTALLED.exists() else [sys.executable, "-c", CALL]


def program(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environ},
        check=False,
    )


def test_the_program_lists_the_log(path: str) -> None:
    result = program("log", path)

    assert result.returncode == 0
    assert "overwrite" in result.stdout
    assert result.stderr == ""


def test_wrong_usage_names_the_program() -> None:
    result = program("log")

    assert result.returncode == 2
    assert "Usage: fuse-stream log" in result.stderr


def test_without_a_command_it_shows_the_help_line_by_line() -> None:
    shown, asked = program(), program("--help")

    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr == asked.stdout


def test_the_package_runs_as_a_module(path: str) -> None:
    command = [sys.executable, "-m", "fuse_stream", "log", path]
    root = str(Path(__file__).parents[2])
    result = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": root}, check=False
    )

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == program("log", path).stdout


def test_a_pipe_gets_no_colours(path: str) -> None:
    assert "\x1b" not in program("diff", path, "1", "3", "--rows").stdout


def test_no_color_takes_precedence_over_forced_colours(path: str) -> None:
    forced = program("log", path, FORCE_COLOR="1", TERM="xterm-256color").stdout
    plain = program("log", path, FORCE_COLOR="1", TERM="xterm-256color", NO_COLOR="1").stdout

    assert "\x1b[32m" in forced
    assert "\x1b[32m" not in plain


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_a_closed_pipe_ends_it_quietly(table: Table, path: str, option: list[str]) -> None:
    table.append(rows(*range(20_000)))
    command = [*PROGRAM, "changes", path, "4", "--rows", "--limit", "0", *option]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.read(100)
        process.stdout.close()
        complaints = process.stderr.read()

    assert complaints == b""
    assert process.returncode == EXIT_CLOSED_PIPE


def test_ctrl_c_ends_it_quietly() -> None:
    interrupted = (
        "import os, signal, time, fuse_stream.cli.main as cli\n"
        # As in a terminal: background processes of a script ignore the signal.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def wait(**_):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(5)\n"
        "cli.log.callback = wait\n"
        "cli.main(['log', 'x'])"
    )
    result = subprocess.run(
        [sys.executable, "-c", interrupted], capture_output=True, text=True, check=False
    )

    assert result.returncode == EXIT_INTERRUPTED
    assert result.stderr.strip() == ""


def test_the_program_works_without_spark(path: str) -> None:
    without_spark = f"import sys; sys.modules['pyspark'] = sys.modules['py4j'] = None; {CALL}"
    result = subprocess.run(
        [sys.executable, "-c", without_spark, "log", path],
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 0, result.stderr
