"""Rewinds and other recovery commands."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from fuse_stream.checkpoint.fork import StateOutcome
from fuse_stream.cli.rewind import forks_grid
from fuse_stream.format.source_offset import Offset, SourcePosition
from fuse_stream.recovery.forks import Fork
from fuse_stream.storage.local import LocalStore
from fuse_stream.table.handle import Table
from tests.cli.conftest import Run, RunJson, rows
from tests.recovery.checkpoints import log_files, put
from tests.recovery.streams import Query

OLD = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def streamed(tmp_path: Path) -> Query:
    """Six batches of one row, batch b at version b + 1, and the query's checkpoint."""
    table = Table.create(tmp_path / "streamed", pa.schema([("k", pa.int64())]))
    query = Query(table, LocalStore(tmp_path / "old")).begin(OLD)
    query.run(6)
    return query


def paths(query: Query, tmp_path: Path) -> tuple[str, str, str]:
    return query.table.metadata.store.url, str(tmp_path / "old"), str(tmp_path / "new")


def test_a_dry_run_shows_what_would_be_done_and_does_nothing(
    streamed: Query, tmp_path: Path, run: Run
) -> None:
    table, old, new = paths(streamed, tmp_path)
    shown = run("rewind", table, "--after-batch", 2, "--checkpoint", old, new, "--dry-run")

    assert shown.exit_code == 0, shown.output
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert any(line.startswith("back to version 3, append") for line in lines)
    assert "followers get 3 rows deleted, 0 inserted" in lines
    assert "default 3 to 5 3 11111111" in lines
    assert "batches 0 to 2" in lines
    assert "leave out --dry-run" in shown.stderr
    assert not Path(new).exists()
    assert streamed.table.head().version == 6


def test_a_rewind_makes_the_snapshot_and_the_fork(
    streamed: Query, tmp_path: Path, run_json: RunJson, run: Run
) -> None:
    table, old, new = paths(streamed, tmp_path)
    options = ("--after-batch", 2, "--checkpoint", old, new, "-m", "bad deploy")
    done = run_json("rewind", table, *options)

    assert done["snapshot"]["version"] == 7
    assert done["snapshot"]["message"] == "bad deploy"
    assert done["target"]["version"] == 3
    assert done["obstacles"] == []
    assert done["forks"][0]["batches"] == [0, 1, 2]
    assert Query(streamed.table, LocalStore(Path(new))).run(1) == [8]
    again = run("rewind", table, *options)
    assert again.exit_code == 0  # a second run reports what it did
    assert again.stderr == f"this was done already; the fork is {new}\n"
    assert streamed.table.head().version == 8


def test_rewind_lists_what_prevents_it(
    streamed: Query, tmp_path: Path, run: Run, run_json: RunJson
) -> None:
    table, old, _ = paths(streamed, tmp_path)
    shown = run("rewind", table, "--version", 2, "--dry-run")
    refused = run("rewind", table, "--version", 2)
    used = run("rewind", table, "--version", 2, "--checkpoint", old, table, "--json", "--dry-run")

    assert (shown.exit_code, refused.exit_code, used.exit_code) == (1, 1, 1)
    assert "what prevents it" in shown.stdout
    assert "StreamIdentityError: applications have committed since then" in shown.stdout
    assert "StreamIdentityError" in refused.stderr
    assert "AlreadyExistsError" in used.stdout
    assert streamed.table.head().version == 6
    assert "(--checkpoint old new)" in refused.stderr
    assert "(--checkpoint old new)" in shown.stdout
    given_up = run_json("rewind", table, "--version", 2, "--retire", "default")
    assert given_up["retired"] == ["default"]
    again = run("rewind", table, "--after-batch", 1, "--retire", "default")
    assert (again.exit_code, again.stderr) == (0, "this was done already\n")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "name one of --version, --timestamp, --after-batch"),
        (
            ("--version", 2, "--after-batch", 1),
            "name only one of --version, --timestamp, --after-batch",
        ),
        (("--version", 2, "--app-id", "x"), "leave out --app-id, or use --after-batch"),
    ],
)
def test_a_rewind_without_exactly_one_target_is_wrong_usage(
    path: str, run: Run, options: tuple[object, ...], said: str
) -> None:
    refused = run("rewind", path, *options)

    assert refused.exit_code == 2
    assert said in " ".join(refused.stderr.split())


def test_checkpoint_folders_that_cannot_be_right_are_refused(
    streamed: Query, tmp_path: Path, run: Run
) -> None:
    table, old, new = paths(streamed, tmp_path)
    goal = ("--after-batch", 2)
    inside = run("rewind", table, *goal, "--checkpoint", old, f"{table}/fork")
    twice = run("rewind", table, *goal, "--checkpoint", old, new, "--checkpoint", old, f"{new}2")

    assert "outside the tables" in inside.stderr
    assert "named twice" in twice.stderr
    assert (inside.exit_code, twice.exit_code) == (1, 2)
    assert streamed.table.head().version == 6


@pytest.mark.parametrize("command", ["rewind", "branch"])
@pytest.mark.parametrize(
    ("options", "missing"),
    [
        (
            ("--checkpoint", "old", "--dry-run", "--after-batch", 1),
            "NEW is missing before --dry-run",
        ),
        (("--checkpoint", "old", "--after-batch", 1), "NEW is missing before --after-batch"),
        (("--checkpoint", "-x", "new", "--after-batch", 1), "OLD is missing before -x"),
    ],
)
def test_an_option_is_not_taken_for_a_folder_of_a_checkpoint(
    streamed: Query, run: Run, command: str, options: tuple[object, ...], missing: str
) -> None:
    table = streamed.table.location.path
    name = ["fix"] if command == "branch" else []
    refused = run(command, table, *name, *options)

    assert refused.exit_code == 2
    assert f"takes two folders, OLD and NEW; {missing}" in " ".join(refused.stderr.split())
    assert streamed.table.head().version == 6
    assert len(streamed.table.branches()) == 1


def test_a_folder_may_begin_with_a_dash_after_its_own_folder(
    streamed: Query, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, old, _ = paths(streamed, tmp_path)
    monkeypatch.chdir(tmp_path)
    done = run("rewind", table, "--after-batch", 2, "--checkpoint", old, "./-x")

    assert done.exit_code == 0, done.output
    assert Path("-x", "metadata").exists()


@pytest.mark.parametrize("option", ["--message", "-m", "--author", "--retire", "--origin"])
@pytest.mark.parametrize("taken", ["--dry-run", "--help"])
def test_an_option_is_not_taken_for_the_value_of_another(
    streamed: Query, tmp_path: Path, run: Run, option: str, taken: str
) -> None:
    table, old, new = paths(streamed, tmp_path)
    goal = ("--after-batch", 2, "--checkpoint", old, new)
    refused = run("rewind", table, *goal, option, taken)

    assert refused.exit_code == 2
    assert f"has no value before {taken}" in refused.stderr
    assert streamed.table.head().version == 6
    assert not Path(new).exists()


def test_a_number_that_is_none_is_no_whole_number(path: str, run: Run) -> None:
    for command in (("rewind", path, "--after-batch"), ("publish", path, "fix", "--expected-head")):
        refused = run(*command, "one")

        assert refused.exit_code == 2
        assert "'one' is not a valid whole number" in refused.stderr


def test_several_tables_are_reported_one_by_one(
    streamed: Query, tmp_path: Path, run: Run, run_json: RunJson
) -> None:
    table, old, new = paths(streamed, tmp_path)
    quiet = str(tmp_path / "quiet")
    Table.create(quiet, streamed.table.to_arrow().schema)
    options = ("--after-batch", 2, "--checkpoint", old, new)
    dry = run_json("rewind", table, quiet, *options, "--dry-run")
    done = run("rewind", table, quiet, *options)

    assert [one["path"] for one in dry["tables"]] == [table, quiet]
    assert [one["deleted_rows"] for one in dry["tables"]] == [3, 0]
    assert len(dry["forks"]) == 1
    assert done.exit_code == 0, done.output
    assert table in done.stdout
    assert quiet in done.stdout
    assert Table.open(quiet).head().operation == "rewind"


def test_the_queries_are_whole_in_80_columns() -> None:
    source = Offset(table_id="a" * 32, branch_id="main", version=26, snapshot_id="b" * 32, index=0)
    lake = "/lake/prod"
    fork = Fork(
        old=f"{lake}/checkpoints/ingest-2026-11-22",
        new=f"{lake}/checkpoints/ingest-2026-11-23",
        applications=("ingest",),
        old_query_id=OLD,
        query_id=OLD[::-1],
        batches=(0, 1, 41),
        reruns=42,
        state=StateOutcome.KEPT,
        file_count=9,
        byte_size=999,
        sources=(SourcePosition(offset=source, path=f"{lake}/pipelines/bronze"),),
    )
    printed = io.StringIO()
    Console(file=printed, width=80).print(forks_grid([fork]).whole(80))
    lines = [line.strip() for line in printed.getvalue().splitlines()]

    assert [" ".join(line.split()) for line in lines] == [
        fork.old,
        f"its fork {fork.new}",
        "goes on after batch 41",
        "runs again batch 42",
        "reads on from bronze@26",
        f"state {StateOutcome.KEPT.value}",
    ]


def test_several_tables_are_whole_in_80_columns(streamed: Query, tmp_path: Path, run: Run) -> None:
    table, old, new = paths(streamed, tmp_path)
    quiet = str(tmp_path / "quiet")
    Table.create(quiet, streamed.table.to_arrow().schema)
    options = ("--after-batch", 2, "--checkpoint", old, new, "--dry-run")
    narrow = run("rewind", table, quiet, *options, width=80).stdout
    lines = [" ".join(line.split()) for line in narrow.splitlines()]

    assert "…" not in narrow
    assert "batches undone default 3 to 5" in lines
    assert "goes on after batch 2" in lines
    joined = "".join(line.strip() for line in narrow.splitlines())
    assert all(path in joined for path in (table, quiet, old, new))


def test_notes_have_their_own_heading(streamed: Query, tmp_path: Path, run: Run) -> None:
    table, old, new = paths(streamed, tmp_path)
    options = ("--after-batch", 2, "--checkpoint", old, new, "--dry-run")
    streamed.table.append(pa.table({"k": [99]}))
    quiet = str(tmp_path / "quiet")
    Table.create(quiet, streamed.table.to_arrow().schema)
    shown = run("rewind", table, quiet, *options).stdout

    assert "\nnotes\n" in shown


def test_a_branch_of_several_tables_says_that_main_is_unchanged(
    streamed: Query, tmp_path: Path, run: Run
) -> None:
    table, old, new = paths(streamed, tmp_path)
    made = run("branch", table, "fix", "--after-batch", 2, "--checkpoint", old, new)

    assert made.exit_code == 0, made.output
    assert made.stdout.startswith("on the branch fix; main is unchanged\n")
    assert streamed.table.head().version == 6


def test_revert_undoes_a_commit(path: str, table: Table, run: Run, run_json: RunJson) -> None:
    shown = run("revert", path, 3)
    again = run_json("revert", path, 4, "-m", "as it was")

    assert shown.stdout == "version 4 undoes version 3 (overwrite): +3 rows\n"
    assert again["snapshot"]["row_count"] == 2
    assert again["snapshot"]["message"] == "as it was"
    assert again["reverted"] == 4
    assert run("revert", path, 1).exit_code == 1


def test_publish_publishes_a_branch(path: str, table: Table, run: Run, run_json: RunJson) -> None:
    table.create_branch("fix")
    Table.open(path, branch="fix").append(rows(50))
    table.append(rows(60))

    refused = run("publish", path, "fix")
    done = run("publish", path, "fix", "--expected-head", 4)

    assert refused.exit_code == 1
    assert "forked_at: 3" in refused.stderr
    assert "version 5 has the content of fix@4: 3 rows" in done.stdout
    assert "lost to this branch" in done.stdout
    assert "branch='main'" in done.stderr
    Table.open(path, branch="fix").append(rows(51))
    document = run_json("publish", path, "fix", "--expected-head", 5)
    assert [one["version"] for one in document["lost"]] == [5, 4]


def test_rebuild_checkpoint_rebuilds_a_lost_checkpoint(
    streamed: Query, tmp_path: Path, run: Run, run_json: RunJson
) -> None:
    table, _, new = paths(streamed, tmp_path)
    left = tmp_path / "left"
    put(LocalStore(left), {f"sources/0/{name}": text for name, text in log_files(6).items()})

    refused = run("rebuild-checkpoint", table, new)
    made = run("rebuild-checkpoint", table, new, "--survivors", left)
    again = run_json("rebuild-checkpoint", table, tmp_path / "more", "--survivors", left)

    assert refused.exit_code == 1
    assert "sources" in refused.stderr
    assert made.exit_code == 0, made.output
    assert "batch 5" in made.stdout
    assert (again["query_id"], again["adopt"]) == (OLD, None)
