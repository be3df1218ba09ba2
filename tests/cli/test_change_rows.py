"""`delete` and `update`, and what the other commands show of deleted rows."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from fuse_stream.table.handle import Table
from tests.cli.conftest import SCHEMA, Run, RunJson, rows


@pytest.fixture
def changed(tmp_path: Path) -> Table:
    """Version 1 appends ids 1 to 4, version 2 ids 5 and 6; version 3 deletes 2 and 5."""
    table = Table.create(tmp_path / "changed", SCHEMA, cluster_by=["id"])
    table.append(rows(1, 2, 3, 4))
    table.append(rows(5, 6))
    table.delete("id IN (2, 5)")
    return table


@pytest.fixture
def at(changed: Table) -> str:
    return changed.metadata.store.url


def ids(path: str) -> list[int]:
    return sorted(Table.open(path).to_arrow()["id"].to_pylist())


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


# ---- delete


def test_delete_removes_the_matching_rows_as_one_commit(run: Run, path: str) -> None:
    result = run("delete", path, "id = 9", "-m", "wrong", "--author", "anna")
    head = Table.open(path).head()

    assert result.exit_code == 0, result.output
    assert (result.stdout, result.stderr) == ("", "version 4: 1 row deleted\n")
    assert ids(path) == [1]
    assert (head.operation, head.message, head.author) == ("delete", "wrong", "anna")


def test_a_dry_run_of_delete_counts_the_rows_and_writes_nothing(run: Run, path: str) -> None:
    result = run("delete", path, "true", "--dry-run")

    assert result.stderr == "2 rows would be deleted\n"
    assert Table.open(path).head().version == 3


def test_delete_without_a_matching_row_says_that_there_is_no_new_version(
    run: Run, path: str
) -> None:
    result = run("delete", path, "id = 77")

    assert result.exit_code == 0
    assert "no row was deleted" in result.stderr
    assert Table.open(path).head().version == 3


def test_delete_on_a_branch_leaves_main_unchanged(run: Run, table: Table, path: str) -> None:
    table.create_branch("fix")
    run("delete", path, "id = 9", "--branch", "fix")

    assert ids(path) == [1, 9]
    assert Table.open(path, branch="fix").to_arrow()["id"].to_pylist() == [1]


def test_delete_json_has_the_version_and_the_number_of_rows(run_json: RunJson, path: str) -> None:
    assert run_json("delete", path, "id = 9", "--dry-run") == {
        "path": path,
        "branch": "main",
        "where": "id = 9",
        "dry_run": True,
        "version": None,
        "deleted": 1,
    }
    assert run_json("delete", path, "id = 9")["version"] == 4


def test_a_broken_predicate_is_an_error_that_shows_the_place(run: Run, path: str) -> None:
    result = run("delete", path, "id = = 9")

    assert result.exit_code == 1
    assert "InvalidInputError" in result.stderr
    assert "«" in result.stderr


# ---- update


def test_update_sets_the_columns_of_the_matching_rows(run: Run, path: str) -> None:
    result = run("update", path, "id = 9", "--set", "name='it''s = new'", "--set", "delay = null")
    found = Table.open(path).to_arrow(where="id = 9").to_pylist()

    assert result.exit_code == 0, result.output
    assert result.stderr == "version 4: 1 row updated\n"
    assert found == [{"id": 9, "name": "it's = new", "delay": None}]


def test_a_second_update_to_the_same_values_makes_no_version(run: Run, path: str) -> None:
    run("update", path, "id = 9", "--set", "delay=7")
    result = run("update", path, "id = 9", "--set", "delay=7.0")

    assert "no row was updated: none matches, or all are so already" in result.stderr
    assert Table.open(path).head().version == 4


def test_update_json_has_the_values_and_the_number_of_rows(run_json: RunJson, path: str) -> None:
    document = run_json("update", path, "id > 0", "--set", "name='x'", "--set", "delay=1.5")

    assert document == {
        "path": path,
        "branch": "main",
        "where": "id > 0",
        "set": {"name": "x", "delay": 1.5},
        "dry_run": False,
        "version": 4,
        "updated": 2,
    }


TYPED = pa.schema(
    [
        ("whole", pa.int16()),
        ("exact", pa.decimal128(5, 2)),
        ("ratio", pa.float32()),
        ("is_late", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("raw", pa.binary()),
        ("parts", pa.list_(pa.int64())),
    ]
)
VALUES = [
    ("whole=-7", -7),
    ("exact=1.5", Decimal("1.50")),
    ("exact=3", Decimal("3.00")),
    ("ratio=0.5", 0.5),
    ("ratio=2", 2.0),
    ("is_late=true", True),
    ("day=DATE '2026-01-31'", dt.date(2026, 1, 31)),
    ("day='2026-01-31'", dt.date(2026, 1, 31)),
    ("at='2026-01-31 09:00:00'", dt.datetime(2026, 1, 31, 9, tzinfo=dt.UTC)),
    ("at=TIMESTAMP '2026-01-31T09:00:00+02:00'", dt.datetime(2026, 1, 31, 7, tzinfo=dt.UTC)),
    ("local='2026-01-31 09:00:00'", dt.datetime(2026, 1, 31, 9)),  # noqa: DTZ001 - no zone
    ("raw=X'1F'", b"\x1f"),
    ("parts=NULL", None),
]


@pytest.fixture
def typed(tmp_path: Path) -> str:
    table = Table.create(tmp_path / "typed", TYPED)
    row = {"whole": 1, "parts": [1], "exact": Decimal("9.99")}
    table.append(pa.Table.from_pylist([row], schema=TYPED))
    return table.metadata.store.url


@pytest.mark.parametrize(("assignment", "value"), VALUES)
def test_a_literal_becomes_a_value_of_the_type_of_its_column(
    run: Run, typed: str, assignment: str, value: object
) -> None:
    result = run("update", typed, "true", "--set", assignment)
    (row,) = Table.open(typed).to_arrow().to_pylist()

    assert result.exit_code == 0, result.output
    assert row[assignment.partition("=")[0]] == value


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("whole=40000", "does not fit its column"),
        ("whole=1.5", "does not fit its column"),
        ("whole='x'", "does not fit its column"),
        ("whole=TRUE", "does not fit its column"),
        ("exact=1.005", "does not fit its column"),
        ("is_late=1", "does not fit its column"),
        ("day='yesterday'", "does not fit its column"),
        ("parts=1", "set it with Table.update"),
        ("whole=whole", "is not a SQL literal; a text needs quotes"),
        ("whole=1 + 1", "is not a SQL literal; a text needs quotes"),
        ("whole='1", "is not a SQL literal; a text needs quotes"),
        ("who=1", "the table has no such column"),
    ],
)
def test_a_value_that_the_column_cannot_hold_is_an_error_and_nothing_is_written(
    run: Run, typed: str, assignment: str, said: str
) -> None:
    result = run("update", typed, "true", "--set", assignment)

    assert result.exit_code == 1
    assert said in result.stderr
    assert Table.open(typed).head().version == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("true",), "Missing option '--set'"),
        (("true", "--set", "delay"), "write COLUMN=VALUE"),
        (("true", "--set", "=1"), "write COLUMN=VALUE"),
        (("true", "--set", "delay="), "write COLUMN=VALUE"),
        (("true", "--set", "delay=1", "--set", "delay=2"), "delay is set twice"),
    ],
)
def test_wrong_assignments_are_wrong_usage(
    run: Run, path: str, arguments: tuple[str, ...], said: str
) -> None:
    result = run("update", path, *arguments)

    assert result.exit_code == 2
    assert said in result.stderr
    assert Table.open(path).head().version == 3


# ---- what other commands show


def test_the_log_counts_the_rows_that_can_be_read(run_json: RunJson, at: str) -> None:
    found = run_json("log", at)["snapshots"]

    assert [(one["version"], one["row_count"], one["row_count_change"]) for one in found] == [
        (3, 4, -2),
        (2, 6, 2),
        (1, 4, 4),
        (0, 0, 0),
    ]


def test_show_says_how_many_rows_are_hidden_and_in_how_many_files(
    run: Run, run_json: RunJson, at: str
) -> None:
    shown = lines(run("show", at).stdout)
    document = run_json("show", at)

    assert "rows 4 -2".split() in shown
    assert "hidden rows 2 in 1 deletion file".split() in shown
    assert ["0", "2", "2"] in [line[:3] for line in shown]  # level, rows, blocks
    assert document["hidden_row_count"] == 2
    assert [file["row_count"] for file in document["deletion_files"]] == [2]
    assert document["deletion_files_added"] == [document["deletion_files"][0]["id"]]


def test_show_has_no_line_of_hidden_rows_if_there_are_none(run: Run, path: str) -> None:
    shown = run("show", path).stdout

    assert "hidden" not in shown
    assert "deletion" not in shown


def test_stats_says_how_many_rows_are_hidden_and_in_how_many_files(
    run: Run, run_json: RunJson, changed: Table, at: str
) -> None:
    shown = lines(run("stats", at).stdout)
    document, found = run_json("stats", at), changed.stats()

    assert ["rows", "4"] in shown
    assert "hidden rows 2 in 1 deletion file".split() in shown
    assert (document["row_count"], document["hidden_row_count"]) == (4, 2)
    assert document["deletion_file_count"] == 1
    assert (found.row_count, found.hidden_rows, found.deletion_files) == (4, 2, 1)
    assert found.deletion_bytes == changed.head().deletion_files[0].byte_size
    assert document["metadata"]["byte_size"] == found.metadata_bytes
    changed.compact()
    assert (changed.stats().hidden_rows, changed.stats().deletion_files) == (0, 0)
    assert "hidden" not in run("stats", at).stdout


@pytest.mark.parametrize("options", [(), ("--stats", "id")])
def test_blocks_shows_rows_that_can_be_read_and_hidden_ones_beside_them(
    run: Run, run_json: RunJson, at: str, options: tuple[str, ...]
) -> None:
    result = run("blocks", at, *options)
    headings, *found = lines(result.stdout)
    document = run_json("blocks", at)["blocks"]

    assert headings[:3] == ["block", "rows", "hidden"]
    assert [line[1:3] for line in found] == [["3", "1"], ["1", "1"]]
    assert "2 blocks, 4 rows, 2 hidden" in result.stderr
    assert [(one["row_count"], one["hidden_row_count"]) for one in document] == [(3, 1), (1, 1)]


def test_blocks_has_no_column_of_hidden_rows_if_there_are_none(run: Run, path: str) -> None:
    assert lines(run("blocks", path).stdout)[0][:3] == ["block", "rows", "size"]


def test_changes_and_diff_count_the_rows_that_a_delete_removed(run_json: RunJson, at: str) -> None:
    (commit,) = run_json("changes", at, 3)["commits"]
    removed = run_json("changes", at, 3, "--blocks")["commits"][0]["blocks"]
    found = run_json("diff", at, 1, 3)

    assert (commit["inserted_row_count"], commit["removed_row_count"]) == (0, 2)
    assert [one["row_count"] for one in removed] == [1, 1]
    assert (found["inserted_row_count"], found["removed_row_count"]) == (1, 1)
    assert found["row_count_change"] == 0


def test_changes_shows_the_blocks_with_the_rows_that_were_removed(run: Run, at: str) -> None:
    found = lines(run("changes", at, 3, "--blocks").stdout)

    assert [line[:2] + line[3:4] for line in found[1:]] == [["-", "3", "1"], ["-", "3", "1"]]


def test_clone_rewind_and_publish_count_the_rows_that_can_be_read(
    run: Run, run_json: RunJson, changed: Table, at: str, tmp_path: Path
) -> None:
    clone = run("clone", at, tmp_path / "copy").stdout
    changed.create_branch("fix", 2)
    Table.open(at, branch="fix").delete("id < 4")
    dry = run_json("rewind", at, "--version", 2, "--dry-run")
    published = run("publish", at, "fix", "--expected-head", 3)
    shown = f"{published.stdout}{published.stderr}"

    assert re.search(r"holds +4 rows", clone), clone
    assert (dry["deleted_rows"], dry["inserted_rows"]) == (0, 2)
    assert "3 rows" in shown, shown


def test_fsck_counts_deletion_files(run: Run, run_json: RunJson, at: str) -> None:
    assert "2 blocks, 1 deletion file" in run("fsck", at).stderr
    assert run_json("fsck", at)["deletion_file_count"] == 1


def test_vacuum_shows_deletion_files_beside_the_other_kinds(run_json: RunJson, at: str) -> None:
    assert "deletion files" in run_json("vacuum", at, "--dry-run")["deleted"]
