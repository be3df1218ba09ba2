"""Consumers from the command line: their lag, their leases, and their release."""

from __future__ import annotations

import pytest

from fuse_stream.format.layout import lease_key
from fuse_stream.table.handle import Table
from tests.cli.conftest import Run, RunJson, rows
from tests.cli.leases import OWNER, put_lease


def test_consumers_are_listed_with_their_lag(table: Table, path: str, run: Run) -> None:
    put_lease(table, "nightly", 1)
    put_lease(table, "gone", 3, lease_us=1)
    shown = run("consumers", path)

    assert shown.exit_code == 0, shown.output
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert any(line[:5] == ["gone", "main", "3", "0", "0"] and "lapsed" in line for line in lines)
    assert any(line[:5] == ["nightly", "main", "1", "2", "9"] and "lives" in line for line in lines)
    assert OWNER[:7] in shown.stdout


def test_consumers_are_whole_in_80_columns(table: Table, path: str, run: Run) -> None:
    put_lease(table, "nightly-report-of-delays", 1)
    wide = run("consumers", path).stdout
    narrow = run("consumers", path, width=80).stdout

    assert max(map(len, narrow.splitlines())) <= 80
    assert "…" not in narrow
    assert set(wide.split()) - {"(UTC)"} <= set(narrow.replace(",", "").split())


def test_consumers_json_has_the_documented_keys(table: Table, path: str, run_json: RunJson) -> None:
    put_lease(table, "nightly", 1)
    found = run_json("consumers", path)
    [state] = found["consumers"]
    read, head = table.snapshot(1), table.head()

    assert found["released"] is None
    assert state.pop("lapses").endswith("Z")
    assert state == {
        "consumer": "nightly",
        "branch": "main",
        "version": 1,
        "versions_behind": 2,
        "rows_to_read": 9,  # 2 appended, then 5 deleted and 2 inserted
        "seconds_behind": (head.timestamp_us - read.timestamp_us) / 1_000_000,
        "is_live": True,
        "owner_id": OWNER,
    }


def test_the_lag_of_a_new_consumer_includes_the_whole_table(
    table: Table, path: str, run_json: RunJson
) -> None:
    put_lease(table, "nightly", 2, index=-1)

    assert run_json("consumers", path)["consumers"][0]["rows_to_read"] == 5 + 7


def test_consumers_of_branches_are_listed_even_if_the_branch_is_gone(
    table: Table, path: str, run: Run, run_json: RunJson
) -> None:
    table.create_branch("fix", 1)
    fix = Table.open(path, branch="fix")
    fix.append(rows(7))
    put_lease(fix, "fixer", 1)
    standing = run_json("consumers", path)["consumers"][0]
    table.delete_branch("fix")
    gone = run_json("consumers", path)["consumers"][0]

    assert (standing["branch"], standing["versions_behind"], standing["rows_to_read"]) == (
        "fix",
        1,
        1,
    )
    assert (gone["branch"], gone["versions_behind"], gone["rows_to_read"]) == (None, None, None)
    assert "deleted" in run("consumers", path).stdout


def test_a_table_without_consumers_says_so(path: str, run: Run, run_json: RunJson) -> None:
    shown = run("consumers", path)

    assert shown.exit_code == 0
    assert "nobody" in shown.stderr
    assert run_json("consumers", path)["consumers"] == []


def test_a_lapsed_consumer_is_released(table: Table, path: str, run: Run) -> None:
    put_lease(table, "gone", 1, lease_us=1)
    done = run("consumers", path, "--release", "gone")

    assert done.exit_code == 0, done.output
    assert "0 consumers left" in done.stderr
    assert table.consumers() == ()


def test_a_live_consumer_is_released_only_with_force(
    table: Table, path: str, run: Run, run_json: RunJson
) -> None:
    put_lease(table, "nightly", 1)
    refused = run("consumers", path, "--release", "nightly")

    assert refused.exit_code == 1
    assert "lapses" in refused.stderr
    assert len(table.consumers()) == 1
    done = run_json("consumers", path, "--release", "nightly", "--force")
    assert (done["released"], done["consumers"]) == ("nightly", [])


@pytest.mark.parametrize("name", ["nobody", "../x"])
def test_an_unknown_consumer_is_an_error(path: str, run: Run, name: str) -> None:
    assert run("consumers", path, "--release", name).exit_code == 1


def test_force_without_release_is_wrong_usage(path: str, run: Run) -> None:
    assert run("consumers", path, "--force").exit_code == 2


def test_a_damaged_lease_is_an_error_until_it_is_released(
    table: Table, path: str, run: Run
) -> None:
    table.metadata.store.replace(lease_key("broken"), b"{}")

    assert "release the consumer" in run("consumers", path).stderr
    assert run("consumers", path, "--release", "broken").exit_code == 0
    assert run("consumers", path).exit_code == 0


def test_a_dry_run_of_a_rewind_names_consumers_past_its_target(
    table: Table, path: str, run: Run, run_json: RunJson
) -> None:
    put_lease(table, "nightly", 2)
    put_lease(table, "slow", 1)
    command = ("rewind", path, "--version", 1, "--retire", "night", "--dry-run")
    shown = run(*command)
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]

    assert "nightly 2 2 rows deleted, 0 inserted lives" in lines
    assert not any(line.startswith("slow") for line in lines)
    assert run_json(*command)["consumers"] == [
        {
            "consumer": "nightly",
            "version": 2,
            "is_live": True,
            "deleted_rows": 2,
            "inserted_rows": 0,
        }
    ]
