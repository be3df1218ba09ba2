"""`log`, `show`, `blocks` and `ledger` on a real table."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow as pa
import pytest

from fuse_stream.commit.ledger import Batch
from fuse_stream.commit.plan import Intent
from fuse_stream.format.records import Operation
from fuse_stream.format.source_offset import Offset, SourcePosition
from fuse_stream.table.handle import Table
from fuse_stream.table.pipelines import rewind
from tests.cli.conftest import Run, RunJson, rows

QUERY = "11111111-2222-3333-4444-555555555555"


def test_log_prints_one_line_per_snapshot_newest_first(run: Run, path: str) -> None:
    lines = run("log", path).stdout.splitlines()

    assert [line.split()[0] for line in lines] == ["version", "3", "2", "1", "0"]


def test_log_shows_how_many_rows_were_added_and_removed(run_json: RunJson, path: str) -> None:
    snapshots = run_json("log", path)["snapshots"]

    assert [item["row_count_change"] for item in snapshots] == [-3, 2, 3, 0]


def test_log_shows_the_row_change_of_its_last_line_too(run_json: RunJson, path: str) -> None:
    document = run_json("log", path, "--limit", 1)

    assert [item["row_count_change"] for item in document["snapshots"]] == [-3]
    assert document["more"] is True


def test_log_shows_the_batch_of_a_commit(run: Run, path: str) -> None:
    output = run("log", path).stdout

    assert "default #0" in output
    assert "night/w #1" in output


def test_log_json_has_the_documented_keys(run_json: RunJson, path: str) -> None:
    document = run_json("log", path)

    assert sorted(document) == ["branch", "more", "path", "snapshots"]
    assert sorted(document["snapshots"][0]) == sorted(
        "version snapshot_id timestamp operation data_change row_count row_count_change "
        "block_count batches author message labels".split()
    )


@pytest.mark.parametrize("width", [60, 80, 140])
def test_no_line_of_log_is_longer_than_the_terminal(
    run: Run, table: Table, path: str, width: int
) -> None:
    table.append(rows(7), message="a long message that does not fit " * 9, author="anna")
    lines = run("log", path, width=width).stdout.splitlines()

    assert max(map(len, lines)) <= width


def test_in_a_narrow_terminal_messages_are_on_their_own_line(run: Run, path: str) -> None:
    lines = run("log", path, width=80).stdout.splitlines()

    assert [line.strip() for line in lines if line.startswith("    " * 2)] == [
        "again …",
        "late - anna",
    ]


QUERY = "6af613b6-569c-5c22-9c37-2ed93f31d3af"
LONG_BATCH = "orders-enrichment-prod/late-arrivals #12007"


@pytest.fixture
def busy(table: Table) -> Table:
    """Versions 4 to 6: a long name of an application, and a long name of a branch and of a tag."""
    batch = Batch(
        application="orders-enrichment-prod",
        writer="late-arrivals",
        batch_id=12007,
        query_id=QUERY,
    )
    intent = Intent(
        operation=Operation.APPEND,
        batch=batch,
        message="the files of the 3rd of November, delivered again",
        author="anna.lindqvist@example.org",
    )
    table.commit_rows(intent, rows(1))
    table.append(rows(3), app_id="nightly-backfill", batch_id=12000)
    table.create_branch("rehearsal-of-november")
    table.create_tag("good-run-before-the-deploy", 4)
    return table


@pytest.mark.parametrize("width", [60, 80, 100, 120, None])
def test_log_keeps_a_batch_whole_at_every_width(
    run: Run, busy: Table, path: str, width: int | None
) -> None:
    lines = run("log", path, width=width).stdout.splitlines()

    assert any(LONG_BATCH in line for line in lines)
    assert any("nightly-backfill #12000" in line for line in lines)
    assert width is None or max(map(len, lines)) <= width


def test_log_shows_the_message_too_in_80_columns(run: Run, busy: Table, path: str) -> None:
    output = run("log", path, width=80).stdout

    assert "the files of the 3rd of November, delivered again" in output
    assert "(main, rehearsal-of-november)" in output


@pytest.mark.parametrize("width", [60, 80, 100, 120, None])
def test_the_ledger_keeps_a_query_id_whole_at_every_width(
    run: Run, busy: Table, path: str, width: int | None
) -> None:
    for command in ("ledger", "show"):
        lines = run(command, path, width=width).stdout.splitlines()

        assert any(QUERY in line for line in lines)
        assert any("12007" in line and "orders-enrichment-prod" in line for line in lines)
        assert width is None or command == "show" or max(map(len, lines)) <= width


def test_the_ledger_shows_the_times_too_in_80_columns(run: Run, busy: Table, path: str) -> None:
    lines = run("ledger", path, width=80).stdout.splitlines()

    assert any(QUERY in line and line.endswith("Z") for line in lines)


def test_the_ledger_keeps_the_ids_of_retired_queries_whole_in_80_columns(
    run: Run, busy: Table, path: str
) -> None:
    rewind(path, version=2, retire=["default", "night", "nightly-backfill", f"{LONG_BATCH[:22]}"])
    lines = run("ledger", path, width=80).stdout.splitlines()

    assert any(QUERY in line and "orders-enrichment-prod" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_in_a_pipe_nothing_is_truncated(run: Run, table: Table, path: str) -> None:
    message = "word " * 100 + "end"
    table.append(rows(7), message=message)

    assert message in run("log", path).stdout


def test_a_message_cannot_send_codes_to_the_terminal(run: Run, table: Table, path: str) -> None:
    table.append(rows(7), message="[red]\x1b[31mhello")
    output = run("log", path).stdout

    assert "\x1b" not in output
    assert r"[red]\x1b[31mhello" in output


def test_show_prints_all_fields_of_a_snapshot(run: Run, path: str) -> None:
    output = run("show", path, 2).stdout

    for part in ("night/w #1", "late", "anna", "cluster key", "team", "segments", "ledger", "long"):
        assert part in output


def test_show_shows_the_newest_snapshot_by_default(run_json: RunJson, path: str) -> None:
    assert run_json("show", path)["version"] == 3


def test_show_finds_a_snapshot_by_its_id(run_json: RunJson, path: str) -> None:
    snapshot_id = run_json("show", path, 1)["snapshot_id"]

    assert run_json("show", path, snapshot_id)["version"] == 1


def test_show_json_has_the_documented_keys(run_json: RunJson, path: str) -> None:
    document = run_json("show", path, 1)

    assert {
        *"table_id branch_id format_version clock prev_snapshot_id parent target schema "
        "cluster_key required_features properties summary segments added floor epoch "
        "ledger".split()
    } <= document.keys()
    assert document["cluster_key"] == ["id"]
    assert document["parent"]["version"] == 0


def test_blocks_show_the_range_of_the_cluster_key(run: Run, path: str) -> None:
    head, block = run("blocks", path).stdout.splitlines()

    assert head.split() == ["block", "rows", "size", "stored", "id"]
    assert block.rstrip().endswith("1 .. 9")


def test_blocks_of_an_old_version_are_shown(run_json: RunJson, path: str) -> None:
    blocks = run_json("blocks", path, "--version", 2)["blocks"]

    assert [block["row_count"] for block in blocks] == [3, 2]
    assert blocks[0]["col_stats"]["id"] == {
        "min": 1,
        "max": 3,
        "null_count": 0,
        "nan_count": 0,
        "in_memory_size": blocks[0]["col_stats"]["id"]["in_memory_size"],
        "distinct_of_values": 3,
    }


def test_blocks_show_the_statistics_of_a_column(run: Run, path: str) -> None:
    block = run("blocks", path, "--stats", "delay").stdout.splitlines()[1]

    assert block.split()[1:4] == ["2", "0.5", "4.5"]


def test_the_error_for_a_misspelt_column_suggests_the_nearest(run: Run, path: str) -> None:
    result = run("blocks", path, "--stats", "dely")

    assert result.exit_code == 1
    assert "nearest: delay" in result.stderr


def test_the_ledger_shows_the_last_batches(run_json: RunJson, path: str) -> None:
    entries = run_json("ledger", path)["entries"]

    assert [(e["application"], e["writer"], e["batch_id"], e["version"]) for e in entries] == [
        ("default", "", 0, 1),
        ("night", "w", 1, 2),
    ]


def silver(folder: Path) -> str:
    """Make a table whose batch has read two others, and return its path."""
    table = Table.create(folder / "silver", rows().schema)
    offset = Offset(table_id="ab" * 16, branch_id="main", version=26, snapshot_id="c" * 32, index=0)
    sources = (
        SourcePosition(offset=offset, path="s3://lake/bronze"),
        SourcePosition(offset=dataclasses.replace(offset, version=8, index=3), path="/x\x1b[1m"),
    )
    batch = Batch(application="app", query_id=QUERY, batch_id=4, sources=sources)
    table.commit_rows(Intent(operation=Operation.APPEND, batch=batch, message="late"), rows(1))
    return table.metadata.store.url


@pytest.mark.parametrize("command", ["log", "show", "ledger"])
def test_how_far_a_batch_has_read_its_sources_is_shown(
    run: Run, tmp_path: Path, command: str
) -> None:
    assert "bronze@26, x\\x1b[1m@7+3" in run(command, silver(tmp_path)).stdout


def test_in_a_narrow_terminal_sources_are_with_the_message(run: Run, tmp_path: Path) -> None:
    lines = run("log", silver(tmp_path), width=80).stdout.splitlines()

    assert lines[2].strip() == "bronze@26, x\\x1b[1m@7+3 - late"
    assert max(map(len, lines)) <= 80


def test_the_documents_of_log_show_and_ledger_have_the_sources(
    run_json: RunJson, tmp_path: Path
) -> None:
    path = silver(tmp_path)
    position = {
        "name": "bronze@26",
        "path": "s3://lake/bronze",
        "table_id": "ab" * 16,
        "branch_id": "main",
        "version": 26,
        "snapshot_id": "c" * 32,
        "index": 0,
    }
    entry = run_json("ledger", path)["entries"][0]
    newest, created = run_json("log", path)["snapshots"]

    assert entry["sources"][0] == newest["batches"][0]["sources"][0] == position
    assert run_json("show", path)["ledger"]["entries"] == [entry]
    assert created["batches"] == []


def test_a_batch_that_read_no_table_has_an_empty_list_of_sources(
    run_json: RunJson, path: str
) -> None:
    assert [entry["sources"] for entry in run_json("ledger", path)["entries"]] == [[], []]
    assert run_json("log", path)["snapshots"][2]["batches"][0]["sources"] == []


def test_an_empty_ledger_says_so_and_prints_no_data(run: Run, tmp_path: Path) -> None:
    Table.create(tmp_path / "new", pa.schema([("a", pa.int32())]))
    result = run("ledger", tmp_path / "new")

    assert result.stdout == ""
    assert "empty" in result.stderr


def test_show_with_a_branch_name_shows_its_head(path: str, table: Table, run: Run) -> None:
    table.create_branch("reh")
    refused = run("show", path, "reh")

    assert refused.exit_code == 1
    assert "no such tag; it is a branch: write reh@" in refused.stderr
    assert "branch:" not in run("show", path, "rehh").stderr
