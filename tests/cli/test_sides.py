"""`show` and `stats` print the sides of a snapshot."""

from __future__ import annotations

import pytest

from fuse_stream.table.handle import Table
from tests.cli.conftest import Run, RunJson
from tests.kit.sides import commit_sides, side_rows


@pytest.fixture
def with_sides(table: Table, path: str) -> str:
    commit_sides(table, {"tombstones": side_rows("a", "b", "c"), "quarantine": side_rows("x")})
    commit_sides(table, {}, hides={"tombstones": {"b"}})
    return path


def test_show_lists_the_sides(run: Run, with_sides: str) -> None:
    lines = run("show", with_sides).stdout.splitlines()
    (start,) = (at for at, line in enumerate(lines) if line.strip() == "sides")
    shown = [line.split()[:4] for line in lines[start + 1 : start + 6] if line.strip()]

    assert ["quarantine", "1", "0", "1"] in shown
    assert ["tombstones", "2", "1", "1"] in shown


def test_stats_show_the_size_of_each_side(run: Run, with_sides: str) -> None:
    text = run("stats", with_sides).stdout

    assert "side tombstones  2 rows in 1 block" in text
    assert "1 hidden" in text


def test_a_table_without_sides_shows_none(run: Run, run_json: RunJson, path: str) -> None:
    assert "side" not in run("stats", path).stdout
    assert "side" not in run("show", path).stdout
    assert run_json("stats", path)["sides"] == {}


def test_erase_says_how_many_rows_of_a_side_stay(run: Run, with_sides: str) -> None:
    text = run("erase", with_sides, "id = 1").stderr

    assert "side tombstones: 2 rows kept" in text
