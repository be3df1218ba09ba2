"""Expiry and vacuum from the command line."""

from __future__ import annotations

from fuse_stream.format.layout import block_key
from fuse_stream.table.handle import Table
from tests.cli.conftest import Run, RunJson


def test_a_dry_run_of_expire_shows_what_would_expire(
    path: str, table: Table, run: Run, run_json: RunJson
) -> None:
    before = table.head()
    shown = run("expire", path, "--keep-last", 1, "--dry-run")
    document = run_json("expire", path, "--keep-last", 1, "--dry-run")

    assert shown.exit_code == 0, shown.output
    assert "no version is old enough" in shown.stdout  # all are within the grace
    assert (document["dry_run"], document["snapshot"], document["floor"]) == (True, None, 0)
    assert table.head() == before


def test_expire_shows_the_versions_that_the_grace_keeps(path: str, run: Run) -> None:
    kept = run("expire", path, "--keep-last", 1)
    nothing = run("expire", path, "--keep-last", 100)
    young = run("expire", path, "--older-than", "1s")

    assert kept.exit_code == 0
    assert "none was superseded more than fuse.grace (1h) ago" in kept.stdout
    assert "none was superseded more than fuse.grace (1h) ago" in young.stdout
    assert "fuse.grace" not in nothing.stdout


def test_nothing_expires_without_a_rule(path: str, table: Table, run: Run) -> None:
    refused = run("expire", path)

    assert refused.exit_code == 1
    assert "fuse.retain" in refused.stderr
    assert table.head().floor == 0


def test_vacuum_shows_what_waits_and_until_when(
    path: str, table: Table, run: Run, run_json: RunJson
) -> None:
    head = table.head()
    planned = run_json("vacuum", path, "--dry-run")
    assert Table.open(path).head() == head
    shown = run("vacuum", path)

    assert shown.exit_code == 0, shown.output
    assert "0 objects" in shown.stderr
    assert planned["dry_run"] is True
    assert planned["deleted"]["blocks"] == {"object_count": 0, "byte_size": 0}
    assert planned["due"] > "2020"
    assert Table.open(path).head().operation == "expire"


def test_the_log_says_which_commits_are_the_fences_of_a_vacuum(path: str, run: Run) -> None:
    run("vacuum", path)
    _, *lines = run("log", path).stdout.splitlines()

    assert ["fence of a vacuum" in line for line in lines] == [True, True, *[False] * 4]


def test_a_vacuum_that_leaves_objects_says_when_the_next_one_can_delete_them(
    path: str, table: Table, run: Run
) -> None:
    table.metadata.store.replace(block_key("0" * 32), b"of a commit in flight")

    assert "next: vacuum again after 2" in run("vacuum", path).stderr
    assert "1 object that nothing names" in run("vacuum", path, "--dry-run").stderr
