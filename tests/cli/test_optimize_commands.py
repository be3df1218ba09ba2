"""`compact`: the printed text, and the keys of `--json`."""

from __future__ import annotations

from fuse_stream.table.handle import Table
from tests.cli.conftest import Run, RunJson, rows


def test_compact_reports_what_it_saved(run: Run, table: Table, path: str) -> None:
    table.append(rows(10))
    table.append(rows(11))
    result = run("compact", path)
    said = " ".join(result.stderr.split())

    assert (result.exit_code, result.stdout) == (0, "")
    assert said.startswith("version 6: 3 blocks -> 1, ")
    assert len(table.blocks()) == 1


def test_compact_reports_that_no_block_is_small(run: Run, path: str) -> None:
    result = run("compact", path)

    assert result.exit_code == 0
    assert "nothing was rewritten: there are no small neighbouring blocks" in result.stderr


def test_a_limit_below_two_is_refused(run: Run, path: str) -> None:
    assert run("compact", path, "--limit", 1).exit_code == 2


def test_compact_json_has_the_documented_keys(run_json: RunJson, table: Table, path: str) -> None:
    table.append(rows(10))
    table.append(rows(11))
    document = run_json("compact", path, "--limit", 2)

    assert sorted(document) == sorted(
        "path branch version group_count dropped_group_count row_count blocks_before blocks_after "
        "bytes_before bytes_after".split()
    )
    assert (document["version"], document["blocks_before"], document["blocks_after"]) == (6, 2, 1)
    assert run_json("compact", path, "--branch", "main")["version"] == 7
    assert run_json("compact", path)["version"] is None
