"""Indexes from the command line: made, refreshed, listed and dropped."""

from __future__ import annotations

import pytest

from fuse_stream.format.layout import index_list_key
from fuse_stream.table.handle import Table
from tests.cli.conftest import Run, RunJson

SQL = "SELECT name, count(*) AS n FROM t GROUP BY name"


def test_an_index_is_made_refreshed_listed_and_dropped(
    table: Table, path: str, run: Run, run_json: RunJson
) -> None:
    made = run("indexes", path, "--create", "by_name", SQL)
    assert made.exit_code == 0, made.output
    assert "by_name" in made.stdout
    assert "created" in made.stderr
    table.set_properties({"fuse.block.rows": "1"})
    refreshed = run_json("indexes", path, "--refresh")
    assert refreshed["refreshed"]["block_count"] == refreshed["indexes"][0]["block_count"] > 0
    narrow = run("indexes", path, width=60)

    assert max(map(len, narrow.stdout.splitlines())) <= 60
    dropped = run("indexes", path, "--drop", "by_name")
    assert dropped.exit_code == 0
    assert "the table has no index" in dropped.stderr
    assert run_json("indexes", path) | {"path": "", "branch": ""} == {
        "path": "",
        "branch": "",
        "indexes": [],
        "refreshed": None,
    }


def test_all_indexes_are_dropped_also_if_their_list_is_lost(
    table: Table, path: str, run: Run
) -> None:
    run("indexes", path, "--create", "by_name", SQL)
    ref = table.head().index_list
    assert ref is not None
    table.metadata.store.delete(index_list_key(ref.id))
    refused = run("indexes", path)
    assert refused.exit_code == 1
    assert "--drop-all" in refused.stderr

    assert run("indexes", path, "--drop-all").exit_code == 0
    assert run("indexes", path).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--create", "by_name", "SELECT"), 1),
        (("--drop", "nothing"), 1),
        (("--drop-all",), 1),
        (("--drop", "a", "--drop-all"), 2),
    ],
)
def test_what_is_wrong_is_an_error(
    path: str, run: Run, arguments: tuple[str, ...], code: int
) -> None:
    assert run("indexes", path, *arguments).exit_code == code
