"""Exit codes, errors as text and JSON, and paths without a table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fuse_stream.cli.main import main
from fuse_stream.cli.options import in_flags
from tests.cli.conftest import Run


def test_a_missing_table_exits_with_1(run: Run, tmp_path: Path) -> None:
    result = run("log", tmp_path)

    assert result.exit_code == 1
    assert result.stdout == ""
    assert "NotFoundError" in result.stderr


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("_delta_log/00000000000000000000.json", "Delta Lake"),
        ("metadata/v1.metadata.json", "Iceberg"),
        (".hoodie/hoodie.properties", "Hudi"),
        ("offsets/0", "checkpoint"),
        ("_spark_metadata/0", "file sink"),
        ("part-0.parquet", "Parquet"),
        ("flights/_fuse.json", "holds some: flights"),
    ],
)
def test_the_error_names_what_the_folder_holds_instead_of_a_table(
    run: Run, tmp_path: Path, mark: str, said: str
) -> None:
    (tmp_path / mark).parent.mkdir(exist_ok=True)
    (tmp_path / mark).write_text("x")
    result = run("log", tmp_path)

    assert result.exit_code == 1
    assert said in result.stderr


def test_the_error_for_a_path_inside_a_table_names_the_table(run: Run, path: str) -> None:
    assert f"part of the table at {path}" in run("log", f"{path}/_b").stderr


def test_the_error_for_a_missing_path_names_the_part_that_exists(run: Run, tmp_path: Path) -> None:
    assert f"exists is {tmp_path}" in run("log", tmp_path / "a" / "b").stderr


def test_an_unknown_version_keeps_its_own_error(run: Run, path: str) -> None:
    result = run("show", path, 99)

    assert result.exit_code == 1
    assert "past the head" in result.stderr


def test_an_unknown_branch_keeps_its_own_error(run: Run, path: str) -> None:
    assert "branch" in run("log", path, "--branch", "nope").stderr


def test_with_json_an_error_is_json_on_stderr(run: Run, path: str) -> None:
    result = run("show", path, 99, "--json")

    assert result.exit_code == 1
    assert result.stdout == ""
    error = json.loads(result.stderr)["error"]
    assert error["class"] == "NotFoundError"
    assert error["context"] == {"version": 99, "head": 3}


def test_with_json_wrong_usage_is_json_on_stderr(run: Run) -> None:
    result = run("log", "--json")

    assert result.exit_code == 2
    assert json.loads(result.stderr)["error"]["class"] == "UsageError"


def test_the_error_for_a_misspelt_command_suggests_the_nearest(run: Run) -> None:
    result = run("ledgr")

    assert result.exit_code == 2
    assert "ledger" in result.stderr


@pytest.mark.parametrize("option", ["--app_id", "--after_batch", "--dry_run", "--storage_option"])
def test_an_option_with_underscores_gets_the_one_with_dashes(run: Run, option: str) -> None:
    result = run("rewind", "/lake/flights", option)

    assert result.exit_code == 2
    assert f"Did you mean '{option.replace('_', '-')}'?" in result.stderr


@pytest.mark.parametrize("before", [True, False])
def test_storage_options_may_come_before_or_after_the_command(
    run: Run, path: str, *, before: bool
) -> None:
    option = ["--storage-option", "anon=true"]
    arguments = [*option, "log", path] if before else ["log", path, *option]

    assert run(*arguments).exit_code == 0


@pytest.mark.parametrize("text", ["hunter2", "key={hunter2"])
def test_the_error_for_an_invalid_storage_option_does_not_repeat_it(
    run: Run, path: str, text: str
) -> None:
    result = run("log", path, "--storage-option", text)

    assert result.exit_code == 2
    assert "hunter2" not in result.output


@pytest.mark.parametrize("name", sorted(main.commands))
def test_the_help_of_a_command_has_an_example(run: Run, name: str) -> None:
    output = run(name, "--help").stdout

    assert f"Example:\n    fuse-stream {name} " in output
    assert ("--json" in output) is (name != "sql-server")  # which serves and prints nothing


def test_the_version_lists_the_versions_of_dependencies(run: Run) -> None:
    output = run("--version").stdout

    assert "fuse-stream" in output
    assert "pyarrow" in output


@pytest.mark.parametrize(
    ("command", "message", "said"),
    [
        ("changes", "name the columns (option `columns`)", "name the columns (--columns)"),
        ("changes", "columns is a list of names", "--columns is a list of names"),
        ("changes", "or leave columns out for all", "or leave --columns out for all"),
        ("changes", "the batch has columns", "the batch has columns"),
        ("changes", "under another app_id", "under another app_id"),
        ("expire", "keep_last is a number from 1", "--keep-last is a number from 1"),
        (
            "expire",
            'pass older_than="30d" or keep_last=100',
            "pass --older-than 30d or --keep-last 100",
        ),
        ("unpin", "clones() lists all pins", "fuse-stream unpin PATH lists all pins"),
        ("consumers", "consumers() lists all", "fuse-stream consumers PATH lists all"),
        ("publish", "seen as expected_head", "seen as --expected-head"),
        ("rewind", "fork it (checkpoints={old: new})", "fork it (--checkpoint old new)"),
        ("rewind", "named in retire, or not", "named in --retire, or not"),
        ("rewind", "app_id needs after_batch", "--app-id needs --after-batch"),
        ("rewind", "under another app_id", "under another app_id"),
        ("consumers", "release it with force if", "release it with --force if"),
        ("tag", "pass unsafe_single_writer=True", "pass --unsafe-single-writer"),
        ("tag", "pass origins=[…] (--origin) to it", "pass origins=[…] (--origin) to it"),
        ("audit", "use rebuild_checkpoint", "use rebuild-checkpoint"),
    ],
)
def test_parameters_of_the_library_are_shown_as_flags(
    command: str, message: str, said: str
) -> None:
    assert in_flags(message, main.commands[command]) == said


def test_an_error_names_the_flag_and_its_json_the_parameter(run: Run, path: str) -> None:
    options = ("rewind", path, "--version", 0)
    shown, as_json = run(*options), run(*options, "--json")

    assert "name in --retire those" in shown.stderr
    assert "name in retire those" in json.loads(as_json.stderr)["error"]["message"]
