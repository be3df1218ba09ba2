"""`report`: the file that it writes, and what it says of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fuse_stream.cli import report
from fuse_stream.table.handle import Table
from tests.cli.conftest import Run, RunJson, rows


class Rounds(threading.Event):
    """An event that is set after some waits, and calls `between` in each."""

    def __init__(self, count: int, between: object = None) -> None:
        super().__init__()
        self.left = count
        self.between = between
        self.waited: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout)
        self.left -= 1
        if callable(self.between):
            self.between()
        return self.left < 0


def runs_for(monkeypatch: pytest.MonkeyPatch, rounds: Rounds) -> None:
    @contextmanager
    def first_signal() -> Iterator[Rounds]:
        yield rounds

    monkeypatch.setattr(report, "first_signal", first_signal)


def test_a_page_is_written(run: Run, path: str, tmp_path: Path) -> None:
    result = run("report", path, "-o", tmp_path / "page.html")

    assert result.exit_code == 0
    assert result.stdout == ""
    assert "page.html: " in result.stderr
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert list(tmp_path.glob(".page*")) == []


def test_json_has_the_health(run_json: RunJson, path: str, tmp_path: Path) -> None:
    document = run_json("report", path, "-o", tmp_path / "page.html")

    assert document["version"] == 3
    assert document["level"] == "good"
    assert document["byte_size"] == (tmp_path / "page.html").stat().st_size
    assert {check["name"] for check in document["checks"]} >= {"last commit", "small blocks"}


def test_a_warning_is_said(run: Run, table: Table, path: str, tmp_path: Path) -> None:
    table.set_properties({"fuse.optimize.blocks": "1"})
    table.append(rows(5))
    table.append(rows(6))

    result = run("report", path, "-o", tmp_path / "page.html")

    assert "warning: small blocks: 3 of 3 blocks" in result.stderr


@pytest.mark.parametrize("place", ["nowhere/page.html", "."])
def test_a_place_that_cannot_be_written_is_an_error(
    run: Run, path: str, tmp_path: Path, place: str
) -> None:
    result = run("report", path, "-o", f"{tmp_path}/{place}")

    assert result.exit_code == 1
    assert "name a file in a folder that exists" in result.stderr


def test_a_page_is_written_again_until_the_command_is_stopped(
    run: Run, table: Table, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Rounds(2, lambda: table.append(rows(7)))
    runs_for(monkeypatch, rounds)

    result = run("report", path, "-o", tmp_path / "page.html", "--every", "10s", "--json")

    versions = [json.loads(line)["version"] for line in result.stdout.splitlines()]
    assert versions == [3, 4, 5]
    assert rounds.waited == [10.0] * 3
    assert 'http-equiv="refresh" content="10"' in (tmp_path / "page.html").read_text()


def test_a_round_that_fails_leaves_the_page(
    run: Run, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = Path(path) / "_fuse.json"
    runs_for(monkeypatch, Rounds(1, lambda: head.write_bytes(b"{}")))

    result = run("report", path, "-o", tmp_path / "page.html", "--every", "1s")

    assert result.exit_code == 0
    assert "version 3" in result.stderr
    assert (tmp_path / "page.html").exists()


@pytest.mark.parametrize("age", ["0s", "often", "-1s"])
def test_a_time_between_pages_is_a_duration(run: Run, path: str, tmp_path: Path, age: str) -> None:
    result = run("report", path, "-o", tmp_path / "page.html", "--every", age)

    assert result.exit_code == 1
    assert "duration" in result.stderr
    assert not (tmp_path / "page.html").exists()


def test_stats_say_what_is_garbage(run: Run, run_json: RunJson, path: str) -> None:
    orphan = Path(path) / "_b" / f"{'0' * 32}_v1.parquet"
    orphan.write_bytes(b"12345")

    shown = run("stats", path, "--garbage").stdout
    document = run_json("stats", path, "--garbage")["garbage"]

    assert "garbage later  1 object, 5 B" in shown
    assert document["waiting"]["blocks"] == {"object_count": 1, "byte_size": 5}
    assert document["due"] > "2026"
    assert orphan.exists()
    assert run_json("stats", path)["garbage"] is None
