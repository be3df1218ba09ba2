"""`blame` and `bisect` on a real table."""

from __future__ import annotations

import pytest
from rich.text import Text

from fuse_stream.cli.output import Meter
from fuse_stream.commit.ledger import Batch
from fuse_stream.commit.plan import Intent
from fuse_stream.format.records import Operation
from fuse_stream.table.handle import Table
from tests.cli.conftest import Run, RunJson, rows
from tests.recovery.by_hand import compact, publish
from tests.recovery.histories import raise_floor


@pytest.fixture
def table(table: Table) -> Table:
    """Version 3 overwrote with ids 1 and 9; then 4 to 6 appended 10 to 12, two rows each."""
    for number in (10, 11, 12):
        table.append(rows(number, 1), app_id="night", batch_id=number, message=f"m{number}\nmore")
    return table


def test_blame_prints_one_line_per_commit_newest_first(run: Run, path: str) -> None:
    result = run("blame", path, "id IN (9, 10, 1)")

    assert [line.split()[:2] for line in result.stdout.splitlines()] == [
        ["rows", "version"],
        ["1", "6"],
        ["1", "5"],
        ["2", "4"],
        ["2", "3"],
    ]
    assert "night #10" in result.stdout
    assert result.stderr == "version 6: 6 rows found, by 4 commits\n"


def test_blame_json_has_the_documented_keys(run_json: RunJson, path: str) -> None:
    document = run_json("blame", path, "id >= 9")
    newest, *_, oldest = document["commits"]

    assert list(document) == ["path", "branch", "where", "version", "row_count", "commits"]
    assert (document["version"], document["row_count"]) == (6, 4)
    assert list(newest) == [
        "version", "branch_id", "snapshot_id", "timestamp", "operation", "message", "author",
        "batch", "row_count", "is_exact",
    ]  # fmt: skip
    assert newest["batch"] == {
        "application": "night", "writer": "", "batch_id": 12, "query_id": None,
    }  # fmt: skip
    assert (newest["version"], newest["operation"], newest["row_count"]) == (6, "append", 1)
    assert newest["message"] == "m12\nmore"
    assert (oldest["operation"], oldest["batch"], oldest["is_exact"]) == ("overwrite", None, True)


def test_blame_shows_where_the_history_ends(
    run: Run, run_json: RunJson, table: Table, path: str
) -> None:
    compact(table)
    raise_floor(table, 7)

    result = run("blame", path, "id = 10")
    (found,) = run_json("blame", path, "id = 10")["commits"]

    assert result.stdout.splitlines()[1].split()[:3] == ["1", "<=", "7"]
    assert "append" not in result.stdout
    assert "have expired" in result.stderr
    assert (found["version"], found["is_exact"], found["batch"]) == (7, False, None)


def test_blame_names_the_branch_of_published_rows(run: Run, table: Table, path: str) -> None:
    table.create_branch("fix", 4)
    fix = Table.open(path, branch="fix")
    fix.append(rows(20))
    publish(table, fix)

    on_main = run("blame", path, "id IN (10, 20)").stdout.splitlines()
    on_fix = run("blame", path, "id IN (10, 20)", "--branch", "fix").stdout.splitlines()

    assert on_main[1].split()[:3] == ["1", "5", "fix"]
    assert "branch" in on_main[0]
    assert "branch" not in on_fix[0]


def test_blame_without_matching_rows_is_not_an_error(
    run: Run, run_json: RunJson, path: str
) -> None:
    result = run("blame", path, "id = 99")

    assert (result.exit_code, result.stdout) == (0, "")
    assert "0 rows found" in result.stderr
    assert run_json("blame", path, "id = 99")["commits"] == []


def test_blame_reports_its_progress(
    run: Run, table: Table, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20, 23):
        table.append(rows(number))
    reached: list[int] = []
    monkeypatch.setattr(Meter, "reach", lambda self, done: reached.append(done))

    run("blame", path, "id = 11")

    assert reached == [1, 2, 3, 4, 5]


def test_a_message_cannot_send_codes_to_the_terminal(run: Run, table: Table, path: str) -> None:
    table.append(rows(50), message="\x1b[31mred [bold]not[/bold]", author="a\x07b")

    output = run("blame", path, "id = 50").stdout

    assert "\x1b" not in output
    assert "\x07" not in output
    assert r"\x1b[31mred [bold]not[/bold]" in output


@pytest.mark.parametrize("command", ["blame", "bisect"])
@pytest.mark.parametrize("width", [80, 140])
def test_no_line_is_longer_than_the_terminal(run: Run, path: str, command: str, width: int) -> None:
    lines = run(command, path, "id >= 9", width=width).stdout.splitlines()

    assert lines
    assert max(Text(line).cell_len for line in lines) <= width


def test_blame_does_not_cut_the_id_of_a_query_in_80_columns(
    run: Run, table: Table, path: str
) -> None:
    query = "11111111-2222-3333-4444-555555555555"
    batch = Batch(application="ingest", query_id=query, batch_id=0)
    intent = Intent(operation=Operation.APPEND, batch=batch, message="m" * 90, author="anna")
    table.commit_rows(intent, rows(60))
    lines = run("blame", path, "id = 60", width=80).stdout.splitlines()

    assert max(map(len, lines)) <= 80
    assert lines[1].rstrip().endswith("append     ingest #0")
    assert lines[2].strip() == f"query {query}"
    assert lines[3].strip().startswith("mmm")


def test_bisect_prints_the_log_line_of_the_version(run: Run, path: str) -> None:
    result = run("bisect", path, "id = 11")

    heads, line = result.stdout.splitlines()
    assert heads.split()[0] == "version"
    assert line.split()[0] == "5"
    assert "night #11" in line
    assert result.stderr == "3 of 7 versions tested: 3 no, 5 yes, 4 no; 1 block read\n"


def test_bisect_json_has_the_documented_keys(run_json: RunJson, path: str) -> None:
    document = run_json("bisect", path, "id = 11")

    assert list(document) == [
        "path", "branch", "where", "first_version", "last_version", "snapshot", "may_be_older",
        "tested", "blocks_read",
    ]  # fmt: skip
    assert (document["first_version"], document["last_version"]) == (0, 6)
    assert {**document["snapshot"], "labels": {"branches": [], "tags": []}} == (
        run_json("log", path)["snapshots"][1]
    )
    assert document["tested"][1] == {"version": 5, "matches": True, "blocks_read": 1}
    assert document["may_be_older"] is False


def test_bisect_searches_a_range(run: Run, run_json: RunJson, path: str) -> None:
    late = run("bisect", path, "id = 10", "--first", 5)

    assert late.stdout.splitlines()[1].split()[0] == "5"
    assert "may be older" in late.stderr
    assert run_json("bisect", path, "id = 3", "--last", 2)["snapshot"]["version"] == 1
    assert run("bisect", path, "id = 10", "--first", 3, "--last", 2).exit_code == 1


def test_bisect_without_a_matching_version_is_not_an_error(
    run: Run, run_json: RunJson, path: str
) -> None:
    result = run("bisect", path, "id = 3")

    assert (result.exit_code, result.stdout) == (0, "")
    assert "no version up to 6 that was tested" in result.stderr
    assert run_json("bisect", path, "id = 3")["snapshot"] is None


@pytest.mark.parametrize("command", ["blame", "bisect"])
def test_the_error_for_a_misspelt_column_suggests_the_nearest(
    run: Run, path: str, command: str
) -> None:
    result = run(command, path, "delya > 1")

    assert result.exit_code == 1
    assert "delay" in result.stderr
