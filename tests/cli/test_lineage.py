"""`lineage`: the tree of the tables upstream, as text and as a document."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from fuse_stream.format.source_offset import SourcePosition
from fuse_stream.table.handle import Table
from tests.cli.conftest import Run, RunJson
from tests.trace.test_lineage import at, make, read_into


def near(table: Table, version: int) -> SourcePosition:
    """Return a position with a path that is relative to the folder of all tables."""
    return dataclasses.replace(at(table, version), path=Path(table.location.path).name)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """gold reads silver twice and lost; silver reads bronze and orders."""
    (tmp_path / "lake").mkdir()
    monkeypatch.chdir(tmp_path / "lake")
    bronze, orders, lost = (make(Path(name), 4) for name in ("bronze", "orders", "lost"))
    silver, gold = make(Path("silver")), make(Path("gold"))

    read_into(silver, near(bronze, 2), near(orders, 4), batch=3)
    read_into(gold, near(silver, 1), app="agg")
    read_into(gold, near(silver, 1), near(lost, 4), app="more")
    shutil.rmtree("lost")
    return tmp_path / "lake"


def test_the_tree_shows_each_table_below_its_reader(run: Run, lake: Path) -> None:
    lines = run("lineage", "gold", width=80).stdout.splitlines()

    assert [line.rstrip() for line in lines[2:]] == [
        "├─ silver@1        1       0  agg #0   silver",
        "│  ├─ bronze@2     4       2  etl #3   bronze",
        "│  └─ orders@4     4       0  etl #3   orders",
        "├─ silver@1        1       0  more #0  see above: silver",
        "└─ lost@4                  ?  more #0  there is no fuse_stream table here: lost",
    ]
    assert lines[0].split() == ["table", "head", "behind", "batch", "place"]
    assert lines[1].startswith("gold@2 ")
    assert max(map(len, lines)) <= 80


def test_the_document_has_every_table_once(run_json: RunJson, lake: Path) -> None:
    document = run_json("lineage", "gold")
    gold, silver, *others = document["tables"]
    lost = gold["sources"][2]

    assert (gold["path"], document["branch"]) == (str(lake / "gold"), "main")
    assert [table["path"] for table in others] == ["bronze", "orders"]
    assert silver["sources"][0] == {
        "application": "etl",
        "writer": "",
        "query_id": "etl",
        "batch_id": 3,
        "name": "bronze@2",
        "path": "bronze",
        "table_id": others[0]["table_id"],
        "branch_id": "main",
        "version": 2,
        "snapshot_id": silver["sources"][0]["snapshot_id"],
        "index": 0,
        "branch": "main",
        "head": 4,
        "versions_behind": 2,
        "commits_behind": 2,
        "is_cycle": False,
        "problem": None,
    }
    assert (lost["head"], lost["versions_behind"]) == (None, None)
    assert lost["problem"] == "there is no fuse_stream table here"


def test_a_branch_has_its_name_and_maintenance_is_nothing_to_read(run: Run, tmp_path: Path) -> None:
    bronze, silver = make(tmp_path / "bronze", 3), make(tmp_path / "silver")
    bronze.create_branch("fix")
    fix = Table.open(tmp_path / "bronze", branch="fix")
    read_into(silver, at(fix))
    fix.compact()
    lines = run("lineage", tmp_path / "silver").stdout.splitlines()

    assert lines[2].split()[1:4] == ["bronze/fix@3", "4", "0"]


def test_a_cycle_is_drawn_once(run: Run, tmp_path: Path) -> None:
    a, b = make(tmp_path / "a", 1), make(tmp_path / "b")
    read_into(b, at(a))
    read_into(a, at(b))
    lines = run("lineage", tmp_path / "b").stdout.splitlines()

    assert len(lines) == 4
    assert lines[3].startswith("   └─ b@1 ")
    assert "a cycle, see above" in lines[3]


def test_a_table_that_reads_no_table_says_so(run: Run, path: str) -> None:
    result = run("lineage", path)

    assert (result.exit_code, result.stdout) == (0, "")
    assert "nothing upstream" in result.stderr
