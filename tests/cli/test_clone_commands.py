"""Clones from the command line."""

from __future__ import annotations

from pathlib import Path

from fuse_stream.table.handle import Table
from tests.cli.conftest import Run, RunJson, rows


def test_clone_makes_a_clone_and_says_which_origins_to_allow(
    path: str, table: Table, tmp_path: Path, run: Run
) -> None:
    place = str(tmp_path / "clone")
    shown = run("clone", path, place, "--version", 2)

    assert shown.exit_code == 0, shown.output
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert f"clone {place}" in lines
    assert "of version 2" in lines
    assert "holds 5 rows" in lines
    assert f"origins {path}" in lines
    assert "--origin" in shown.stderr
    assert Table.open(place, origins=[path]).to_arrow().num_rows == 5


def test_clone_json_has_the_documented_keys(
    path: str, table: Table, tmp_path: Path, run: Run, run_json: RunJson
) -> None:
    place = str(tmp_path / "clone")
    table.create_branch("fix", 1)
    done = run_json("clone", path, place, "--branch", "fix")
    again = run("clone", path, place)

    assert (done["branch"], done["source"]["version"], done["snapshot"]["version"]) == ("fix", 1, 1)
    assert done["clone"]["location"] == place
    assert done["clone"]["origins"] == [{"table_id": table.table_id, "location": path}]
    (block,) = run_json("blocks", place)["blocks"]
    assert block["origin"] == table.table_id
    assert again.exit_code == 1
    assert "AlreadyExistsError" in again.stderr


def test_rows_of_a_clone_are_shown_if_the_origin_is_allowed(
    path: str, table: Table, tmp_path: Path, run: Run, run_json: RunJson
) -> None:
    place, last = (str(tmp_path / name) for name in ("clone", "last"))
    run("clone", path, place)
    refused = run("changes", place, 0, "--rows")
    shown = run_json("changes", place, 0, "--rows", "--origin", path)

    assert refused.exit_code == 1
    assert f"recorded: {path}" in refused.stderr
    assert len(shown["rows"]) == 2
    assert run("clone", place, last).exit_code == 1
    made = run_json("clone", place, last, "--origin", path)
    assert [one["location"] for one in made["clone"]["origins"]] == [place, path]
    doctor = run("doctor", place, "--no-write", "--origin", path)
    assert "table          opens" in doctor.stdout
    assert "blocks are in another table" in run("doctor", place, "--no-write").stdout


def test_pins_are_listed_and_removed(
    path: str, table: Table, tmp_path: Path, run: Run, run_json: RunJson
) -> None:
    assert "no clones" in run("unpin", path).stderr
    made = run_json("clone", path, str(tmp_path / "clone"))
    clone_id = made["clone"]["table_id"]
    listed = run("unpin", path)
    (pin,) = run_json("unpin", path)["clones"]

    assert listed.stdout.splitlines()[1].split()[:2] == [clone_id, "3"]
    assert (pin["clone_id"], pin["version"], pin["branch_id"]) == (clone_id, 3, "main")
    assert run_json("unpin", path, clone_id) == {"path": path, "clones": [], "removed": clone_id}
    assert table.clones() == ()
    gone = run("unpin", path, clone_id)
    assert gone.exit_code == 1
    assert "NotFoundError" in gone.stderr


def test_an_unfinished_clone_is_named(path: str, table: Table, tmp_path: Path, run: Run) -> None:
    place = tmp_path / "clone"
    run("clone", path, place)
    (place / "_ss" / "main" / f"{1:020}_v1.json").unlink()

    shown = run("log", place)

    assert shown.exit_code == 1
    assert "not finished" in shown.stderr
    assert run("clone", path, place).exit_code == 0
    Table.open(place).append(rows(7))
