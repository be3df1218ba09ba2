"""`show` and `stats` print the sides of a snapshot."""

from __future__ import annotations

import pytest

from fuse_stream.table.handle import Table
from tests.cli.conftest import Run, RunJson, rows
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


def test_the_log_says_which_side_a_compaction_was_about(
    run: Run, table: Table, with_sides: str
) -> None:
    table.append(rows(20))
    commit_sides(table, {"tombstones": side_rows("d"), "quarantine": side_rows("y")})
    table.compact()
    commit_sides(table, {}, hides={"quarantine": {"x", "y"}})
    table.compact()
    lines = [line.split() for line in run("log", with_sides).stdout.splitlines()]
    found = [line[line.index("compact") :][:3] for line in lines if "compact" in line]
    graph = run("log", with_sides, "--graph").stdout

    assert "quarantine" not in table.head().sides
    assert [" ".join(words) for words in found if words[1] == "of"] == [
        "compact of quarantine",
        "compact of tombstones",
        "compact of quarantine",
    ]
    assert len(found) == 4
    assert "compact of tombstones" in graph
    assert "compact of quarantine" in run("show", with_sides).stdout
