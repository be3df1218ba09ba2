"""`fsck`: exit codes, the printed text, and the keys of `--json`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fuse_stream.format.layout import block_key
from fuse_stream.table.handle import Table
from tests.cli.conftest import Run, RunJson


def test_a_sound_table_exits_with_0(run: Run, path: str) -> None:
    result = run("fsck", path)

    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["branch", "versions", "last", "good", "new", "commits"],
        ["main", "0-3", "3", "possible"],
    ]
    assert "sound: 4 snapshots, 3 segments, 3 blocks" in result.stderr


@pytest.mark.parametrize("option", [[], ["--deep"], ["--json"]])
def test_damage_exits_with_1(run: Run, table: Table, path: str, option: list[str]) -> None:
    (Path(path) / block_key(table.blocks()[0].id)).unlink()

    assert run("fsck", path, *option).exit_code == 1


def test_a_finding_names_the_lost_object_and_the_affected_versions(
    run: Run, table: Table, path: str
) -> None:
    key = block_key(table.blocks(1)[0].id)
    (Path(path) / key).unlink()
    output = run("fsck", path).stdout

    assert key in output
    assert "lost: its rows, 3 of them" in output
    assert "versions: main 1-2" in output
    assert ["main", "0-3", "3", "possible"] in [line.split() for line in output.splitlines()]


def test_deep_finds_a_changed_byte(run: Run, table: Table, path: str) -> None:
    file = Path(path) / block_key(table.blocks()[0].id)
    data = bytearray(file.read_bytes())
    data[10] ^= 1
    file.write_bytes(data)

    assert run("fsck", path).exit_code == 0
    assert run("fsck", path, "--deep").exit_code == 1


def test_a_table_that_cannot_be_opened_is_checked(run: Run, path: str) -> None:
    (Path(path) / "_fuse.json").unlink()
    result = run("fsck", path, "--json")

    assert result.exit_code == 1
    assert [finding["key"] for finding in json.loads(result.stdout)["findings"]] == ["_fuse.json"]


def test_a_lost_table_file_is_rebuilt_by_the_command_in_the_error(
    run: Run, run_json: RunJson, path: str
) -> None:
    file = Path(path) / "_fuse.json"
    whole = file.read_bytes()
    file.unlink()
    for command in ("log", "fsck", "doctor"):
        told = run(command, path)
        assert "restore-table-file" in " ".join((told.stdout + told.stderr).split())
    document = run_json("restore-table-file", path)

    assert file.read_bytes() == whole
    assert document == {
        "path": path,
        "table_id": json.loads(whole)["table_id"],
        "version": 0,
        "origins": [],
    }
    assert run("restore-table-file", path).exit_code == 1
    assert run("fsck", path).exit_code == 0


def test_a_missing_table_is_an_error(run: Run, tmp_path: Path) -> None:
    result = run("fsck", tmp_path / "none")

    assert result.exit_code == 1
    assert "NotFoundError" in result.stderr


def test_fsck_json_has_the_documented_keys(run_json: RunJson, path: str) -> None:
    document = run_json("fsck", path)

    assert sorted(document) == sorted(
        "path deep sound findings branches snapshot_count segment_count block_count "
        "deletion_file_count "
        "unreachable".split()
    )
    assert sorted(document["branches"][0]) == sorted(
        "name head floor last_good takes_commits".split()
    )
