"""Each option that a command declares reaches the library, or changes the output.

A command line runs with an option and without it, on equal tables. What the command line calls in
the library, with the plain values among the arguments, and what it prints, must differ.
"""

from __future__ import annotations

import re
import shutil
import sys
import threading
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import pyarrow.parquet as pq
import pytest

import fuse_stream
from fuse_stream.cli import doctor, report
from fuse_stream.cli.findings import ok
from fuse_stream.cli.main import main
from fuse_stream.optimizer.worker import Worker
from fuse_stream.table.handle import Table
from tests.cli.conftest import SCHEMA, Run, events, rows, take

PACKAGE = Path(fuse_stream.__file__).parent
CLI = PACKAGE / "cli"

ARGUMENTS: dict[str, tuple[str, ...]] = {
    "audit": ("{path}", "{checkpoint}"),
    "bisect": ("{path}", "id = 9"),
    "blame": ("{path}", "id = 9"),
    "branch": ("{path}", "other"),
    "changes": ("{path}", "1", "--rows"),
    "clone": ("{path}", "{new}"),
    "copy": ("{path}", "{new}"),
    "delete": ("{path}", "id = 9"),
    "diff": ("{path}", "1", "3", "--rows"),
    "erase": ("{path}", "id = 9"),
    "import": ("{file}", "{new}"),
    "publish": ("{path}", "fix"),
    "quarantine": ("{events}",),
    "rebuild-checkpoint": ("{path}", "{new}"),
    "report": ("{path}", "-o", "{new}"),
    "retry": ("{events}",),
    "revert": ("{path}", "2"),
    "rewind": ("{path}", "--version", "2"),
    "schema": ("{path}", "--add", "more", "long"),
    "tag": ("{path}", "other"),
    "update": ("{path}", "id = 9", "--set", "delay=7"),
    "upsert": ("{keyed}", "{file}"),
}
"""The arguments that a command needs besides its options; only a path if it is not listed."""

INSTEAD: dict[tuple[str, str], tuple[str, ...]] = {
    ("branch", "--yes"): ("{path}", "fix", "--delete"),
    ("changes", "--blocks"): ("{path}", "1"),
    ("changes", "--rows"): ("{path}", "1"),
    ("consumers", "--force"): ("{path}", "--release", "nightly"),
    ("diff", "--rows"): ("{path}", "1", "3"),
    ("stats", "--garbage"): ("{path}", "--format", "openmetrics"),
    ("indexes", "--drop-all"): ("{path}", "--create", "n", "SELECT count(*) FROM t"),
    ("upsert", "--key"): ("{path}", "{file}"),
    ("rewind", "--after-batch"): ("{path}", "--after-batch", "0"),
    ("rewind", "--app-id"): ("{path}", "--after-batch", "0"),
    ("rewind", "--timestamp"): ("{path}", "--timestamp", "yesterday"),
}
"""The other arguments that an option needs."""

VALUES = {
    "--add": ("x", "string"),
    "--after-batch": "7",
    "--also": "{new}",
    "--app-id": "night",
    "--author": "anna",
    "--branch": "fix",
    "--checkpoint": ("{checkpoint}", "{new}"),
    "--cluster-by": "id",
    "--columns": "id",
    "--comment": ("id", "of the row"),
    "--create": ("n", "SELECT count(*) FROM t"),
    "--deletes": "id = 4",
    "--drop": "name",
    "--every": "10s",
    "--except": "name",
    "--expected-head": "1",
    "--first": "1",
    "--format": "openmetrics",
    "--key": "id",
    "--keep-last": "1",
    "--last": "2",
    "--limit": "2",
    "--message": "why",
    "--move-after": ("id", "name"),
    "--move-before": ("name", "id"),
    "--move-first": "name",
    "--not-null": "name",
    "--nullable": "more",
    "--older-than": "3d",
    "--on-conflict": "replan",
    "--origin": "{new}",
    "--property": "team=a",
    "--output": "{checkpoint}",
    "--release": "nightly",
    "--rename": ("name", "label"),
    "--retain": "3d",
    "--retire": "night",
    "--sequence-by": "id",
    "--set": "name='x'",
    "--since": "1",
    "--stats": "delay",
    "--storage-option": "anon=true",
    "--survivors": "{checkpoint}",
    "--truncates": "id = 4",
    "--type": ("delay", "double"),
    "--timestamp": "2026-11-21T09:00:00Z",
    "--version": "1",
    "--where": "id = 4",
    "--writer": "w",
}
"""The values of options that take one."""

NOISE = re.compile(
    r"\b[0-9a-f]{7,}\b|[0-9-]{10}T[0-9:.]+|[0-9.]+ (B|KiB|s (behind|ahead of))\b"
    r"|\"\w*(byte|_us)\w*\": \d+|\s+"
)
"""Ids, times, sizes and padding in the output."""

Observed = tuple[list[tuple[str, str]], int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Runs command lines on equal tables."""

    run: Run
    folder: Path

    def observe(self, command: str, arguments: tuple[str, ...]) -> Observed:
        """Return the library calls of a command line, its exit code, and its output."""
        work = self.folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        for name in ("flights", "events", "keyed"):
            shutil.copytree(self.folder / name, work / name)
        places = {name: str(work / name) for name in ("checkpoint", "new", "events", "keyed")}
        places["file"] = str(self.folder / "rows.parquet")
        filled = [item.format(path=work / "flights", **places) for item in arguments]
        with calls_from_the_command_line() as calls:
            result = self.run(command, *filled)
        assert result.exit_code != 2, result.output
        assert "Traceback" not in result.output, result.output
        return calls, result.exit_code, NOISE.sub("?", result.output)


@contextmanager
def calls_from_the_command_line() -> Iterator[list[tuple[str, str]]]:
    """Collect the calls from a module of the command line to one below: name, plain arguments."""
    calls: list[tuple[str, str]] = []

    def see(frame: types.FrameType, event: str, _: object) -> None:
        caller = frame.f_back
        if event != "call" or caller is None or frame.f_code.co_name == "__init__":
            return  # the construction of a value is not a use of it
        if in_library(frame) and Path(caller.f_code.co_filename).is_relative_to(CLI):
            plain = {name: told for name, value in frame.f_locals.items() if (told := text(value))}
            calls.append((frame.f_code.co_qualname, str(plain)))

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def in_library(frame: types.FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith(str(PACKAGE)) and not file.startswith(str(CLI))


def text(value: object) -> str:
    """Return a plain value as text; None for an object with an identity and for noise."""
    if isinstance(value, Mapping):  # storage options, which do not print themselves
        return str([(text(key), text(item)) for key, item in value.items()])
    if isinstance(value, str):
        return NOISE.sub("?", repr(value))
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return str([text(item) for item in value])
    if isinstance(value, bool | int | None) and (value is None or value < 1e12):  # no time
        return repr(value)
    return ""


@pytest.fixture
def bench(run: Run, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    table.create_branch("fix")
    Table.open(tmp_path / "flights", branch="fix").append(rows(7))
    table.create_tag("good", 1)
    kept = take(Table.create(tmp_path / "events", SCHEMA), events(1, None, None))
    take(kept, events(None, 4, seq=1))
    kept.create_branch("fix")
    take(Table.open(tmp_path / "events", branch="fix"), events(None, seq=2))
    keyed = Table.create(tmp_path / "keyed", SCHEMA)
    keyed.upsert(rows(1, 4), keys=["id"])
    keyed.create_branch("fix")
    pq.write_table(rows(4, 5), tmp_path / "rows.parquet")
    monkeypatch.setattr(doctor, "check_java", lambda _: ok("java", "is not looked for here"))
    for check in ("check_packages", "check_spark_home", "check_workers", "check_plugins"):
        monkeypatch.setattr(doctor, check, lambda *_: ())
    monkeypatch.setattr(Worker, "run", lambda _: None)
    monkeypatch.setattr(report, "first_signal", stopped)
    return Bench(run=run, folder=tmp_path)


@contextmanager
def stopped() -> Iterator[threading.Event]:
    """Yield the event of a command that runs until it is stopped, as if it was."""
    came = threading.Event()
    came.set()
    yield came


def options_of(command: click.Command) -> list[str]:
    return [found.opts[0] for found in command.params if isinstance(found, click.Option)]


# The tests of `sql-server` are beside those of Spark.
@pytest.mark.parametrize("name", sorted(main.commands.keys() - {"sql-server"}))
def test_no_option_of_a_command_is_dropped(name: str, bench: Bench) -> None:
    usual = ARGUMENTS.get(name, ("{path}",))
    without = {usual: bench.observe(name, usual)}
    assert bench.observe(name, usual) == without[usual]  # otherwise a difference may be noise
    dropped = []
    for option in options_of(main.commands[name]):
        arguments = INSTEAD.get((name, option), usual)
        if arguments not in without:
            without[arguments] = bench.observe(name, arguments)
        given = VALUES.get(option, ())
        values = (given,) if isinstance(given, str) else given
        if bench.observe(name, (*arguments, option, *values)) == without[arguments]:
            dropped.append(option)

    assert dropped == []
