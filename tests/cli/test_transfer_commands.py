"""`import` and `copy` from the command line."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from fuse_stream.table.handle import Table
from tests.cli.conftest import Run, RunJson, rows


def test_copy_says_what_it_copied(path: str, tmp_path: Path, run: Run, run_json: RunJson) -> None:
    place = str(tmp_path / "copy")
    shown = run("copy", path, place)
    again = run_json("copy", path, place)

    assert shown.exit_code == 0, shown.output
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert f"copy {place}" in lines
    assert "version 3" in lines
    assert "holds 2 rows" in lines
    assert again["copy"]["object_count"] == 0
    assert again["copy"]["table_id"] == Table.open(path).table_id
    assert run("fsck", place, "--deep").exit_code == 0


def test_copy_of_the_head_alone(path: str, tmp_path: Path, run_json: RunJson) -> None:
    done = run_json("copy", path, str(tmp_path / "copy"), "--head-only")

    assert (done["copy"]["has_history"], done["snapshot"]["version"]) == (False, 1)


def test_the_origins_of_a_clone_are_named(path: str, tmp_path: Path, run: Run) -> None:
    clone, copy = str(tmp_path / "clone"), str(tmp_path / "copy")
    run("clone", path, clone)
    refused = run("copy", clone, copy)
    done = run("copy", clone, copy, "--origin", path)

    assert refused.exit_code == 1
    assert "--origin" in refused.stderr
    assert done.exit_code == 0, done.output
    assert Table.open(copy).to_arrow().num_rows == 2


def test_import_says_how_many_files_were_taken(tmp_path: Path, run: Run, run_json: RunJson) -> None:
    folder = tmp_path / "files" / "day=2026-01-01"
    folder.mkdir(parents=True)
    pq.write_table(rows(1, 2), folder / "a.parquet")
    place, second = str(tmp_path / "t"), str(tmp_path / "u")
    options = ("--cluster-by", "day", "--cluster-by", "id", "--key", "id", "--property", "team=a")
    shown = run("import", str(tmp_path / "files"), place, *options)
    done = run_json("import", str(tmp_path / "files"), second)
    table = Table.open(place)

    assert shown.exit_code == 0, shown.output
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert "of a folder of Parquet files, 1 file" in lines
    assert "taken 0 as they are" in lines
    assert "rewritten since columns that only folders or a log have: 1 file" in shown.stderr
    assert table.properties["team"] == "a"
    assert len(table.head().cluster_key) == 2
    assert table.head().key == (1,)
    assert done["import"]["rewritten_count"] == 1


def test_a_property_without_a_value_is_wrong_usage(tmp_path: Path, run: Run) -> None:
    assert run("import", "a", str(tmp_path / "t"), "--property", "team").exit_code == 2
