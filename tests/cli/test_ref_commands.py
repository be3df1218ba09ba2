"""`tag`, `branch`, and names in other commands, on a real table."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fuse_stream.cli.main import main
from fuse_stream.format.layout import BRANCHES_PREFIX, TAGS_PREFIX
from fuse_stream.table.handle import Table
from tests.cli.conftest import Run, RunJson, rows


def on(path: str, branch: str) -> Table:
    return Table.open(path, branch=branch)


# ---- tag


def test_tags_of_a_table_without_tags_says_how_to_make_one(run: Run, path: str) -> None:
    result = run("tag", path)

    assert result.stdout == ""
    assert "makes one" in result.stderr


def test_a_version_may_be_a_date_or_head(run: Run, run_json: RunJson, path: str) -> None:
    for name in ("20261122", "2026-11-22"):
        assert f"tag {name} names main@2" in run("tag", path, name, 2).stderr
        assert run_json("show", path, name)["version"] == 2
        assert run_json("blocks", path, "--version", name)["version"] == 2
    assert run_json("show", path, "HEAD")["version"] == 3
    assert run("diff", path, "20261122", "main@HEAD").exit_code == 0
    assert run("tag", path, "--delete", "20261122").exit_code == 0
    assert "no tag of this name, and no version" in run("show", path, "20261122").stderr
    assert "has 8 to 100 of them" in run("tag", path, "2026").stderr


def test_a_tag_is_made_and_listed(run: Run, run_json: RunJson, table: Table, path: str) -> None:
    assert "tag good names main@2" in run("tag", path, "good", 2).stderr
    assert run("tag", path, "newest").exit_code == 0

    head, *lines = run("tag", path).stdout.splitlines()
    assert head.split() == ["tag", "version", "branch", "id", "created", "(UTC)"]
    assert [line.split()[:4] for line in lines] == [
        ["good", "2", "main", table.snapshot(2).snapshot_id[:8]],
        ["newest", "3", "main", table.snapshot(3).snapshot_id[:8]],
    ]
    assert run_json("tag", path)["tags"][0]["snapshot_id"] == table.snapshot("good").snapshot_id


def test_a_tag_may_be_kept_for_a_time(run: Run, run_json: RunJson, path: str) -> None:
    tag = run_json("tag", path, "soon", "--retain", "90d")["tag"]

    assert tag.keys() == set("name version branch branch_id snapshot_id created expires".split())
    made, over = (dt.datetime.fromisoformat(tag[key]) for key in ("created", "expires"))
    assert over - made == dt.timedelta(days=90)
    assert "expires (UTC)" in run("tag", path).stdout


def test_a_tag_is_deleted_without_a_question(run: Run, run_json: RunJson, path: str) -> None:
    run("tag", path, "good")

    assert run_json("tag", path, "--delete", "good")["deleted"] == "good"
    assert run_json("tag", path)["tags"] == []
    assert run("tag", path, "--delete", "good").exit_code == 1


def test_a_tag_of_another_branch_is_shown_with_that_branch(
    run: Run, run_json: RunJson, path: str
) -> None:
    run("branch", path, "fix", 1)
    on(path, "fix").append(rows(7))
    run("tag", path, "tried", "fix@")
    kept = run_json("tag", path)["tags"][0]

    assert (kept["branch"], kept["version"]) == ("fix", 2)
    assert run("branch", path, "--delete", "fix").exit_code == 0
    assert run_json("tag", path)["tags"][0]["branch"] is None
    assert kept["branch_id"][:8] in run("tag", path).stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["tag", "--delete"],
        ["tag", "x", "1", "--delete"],
        ["tag", "--retain", "1d"],
        ["tag", "x", "--delete", "--retain", "1d"],
        ["branch", "--delete"],
        ["branch", "x", "1", "--delete"],
        ["branch", "x", "--yes"],
    ],
)
def test_meaningless_option_combinations_are_wrong_usage(
    run: Run, path: str, arguments: list[str]
) -> None:
    command, *others = arguments

    assert run(command, path, *others).exit_code == 2
    assert Table.open(path).tags() == ()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["tag", "good"], "AlreadyExistsError"),
        (["tag", "beef"], "InvalidInputError"),
        (["tag", "x", "99"], "NotFoundError"),
        (["tag", "x", "--retain", "soon"], "InvalidInputError"),
        (["branch", "main"], "InvalidInputError"),
        (["branch", "x", "nope"], "NotFoundError"),
        (["branch", "--delete", "main"], "InvalidInputError"),
        (["branch", "--delete", "nope"], "NotFoundError"),
    ],
)
def test_errors_about_names_are_those_of_the_library(
    run: Run, path: str, arguments: list[str], error: str
) -> None:
    run("tag", path, "good")
    command, *others = arguments
    result = run(command, path, *others, "--json")

    assert result.exit_code == 1
    assert json.loads(result.stderr)["error"]["class"] == error


# ---- branch


def test_branches_are_listed_with_their_fork_points(run: Run, run_json: RunJson, path: str) -> None:
    assert "branch fix forks off main@2" in run("branch", path, "fix", 2).stderr
    on(path, "fix").append(rows(7))
    made = run_json("branch", path, "more", "fix@")["branch"]

    lines = run("branch", path).stdout.splitlines()[1:]
    assert [line.split()[:-1] for line in lines] == [
        ["main", "3", "4"],
        ["fix", "3", "main@2", "1"],
        ["more", "3", "fix@3", "0"],
    ]
    assert made.keys() == set(
        "name branch_id version snapshot_id forked_off commit_count created".split()
    )
    assert made["forked_off"]["branch"] == "fix"
    assert run_json("branch", path)["branches"][2] == made


def test_main_is_shown_with_the_age_of_the_table(
    run_json: RunJson, table: Table, path: str
) -> None:
    created = run_json("branch", path)["branches"][0]["created"]

    assert created == run_json("show", path, 0)["timestamp"]


def test_a_branch_without_own_commits_is_deleted_without_a_question(run: Run, path: str) -> None:
    run("branch", path, "fix", 2)

    assert run("branch", path, "--delete", "fix").exit_code == 0


def test_a_branch_with_commits_found_nowhere_else_is_not_deleted_without_a_question(
    run: Run, run_json: RunJson, path: str
) -> None:
    run("branch", path, "fix", 2)
    for key in (7, 8):
        on(path, "fix").append(rows(key))
    result = run("branch", path, "--delete", "fix")

    assert result.exit_code == 1
    assert "commits: 2" in result.stderr
    assert "--yes" in result.stderr
    assert len(Table.open(path).branches()) == 2
    run("tag", path, "tried", "fix@")  # keeps its own snapshot only
    assert "commits: 1" in run("branch", path, "--delete", "fix").stderr
    assert run_json("branch", path, "--delete", "fix", "--yes")["lost_versions"] == [3]
    assert len(Table.open(path).branches()) == 1


@pytest.mark.parametrize(("answer", "left", "code"), [("y", 1, 0), ("n", 2, 1), ("", 2, 1)])
def test_on_a_terminal_the_user_is_asked_before_a_branch_is_deleted(
    run: Run, path: str, monkeypatch: pytest.MonkeyPatch, *, answer: str, left: int, code: int
) -> None:
    run("branch", path, "fix", 2)
    on(path, "fix").append(rows(7))
    monkeypatch.setattr("fuse_stream.cli.refs.is_asking_possible", lambda: True)
    result = CliRunner().invoke(main, ["branch", path, "--delete", "fix"], input=f"{answer}\n")

    assert "1 commit of fix" in result.stderr
    assert result.exit_code == code
    assert len(Table.open(path).branches()) == left


def test_the_last_branch_with_commits_of_a_deleted_one_needs_a_question(
    run: Run, path: str
) -> None:
    run("branch", path, "fix", 2)
    on(path, "fix").append(rows(7))
    run("branch", path, "more", "fix@")

    assert run("branch", path, "--delete", "fix").exit_code == 0  # `more` holds its commit
    assert "commits: 1" in run("branch", path, "--delete", "more").stderr


def test_a_branch_that_was_published_is_said_to_be(run: Run, run_json: RunJson, path: str) -> None:
    run("branch", path, "fix", 3)
    on(path, "fix").append(rows(7))
    before = run("branch", path, "--delete", "fix")
    run("publish", path, "fix")
    after = run("branch", path, "--delete", "fix")
    on(path, "fix").append(rows(8))
    later = run("branch", path, "--delete", "fix")

    assert "published" not in before.stderr + later.stderr
    assert "its content is published as main@4: when no query reads or writes" in after.stderr
    assert "--yes" in after.stderr
    assert run_json("branch", path, "--delete", "fix", "--yes")["lost_versions"] == [4, 5]


def test_the_question_says_that_a_branch_was_published(
    run: Run, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("branch", path, "fix", 3)
    on(path, "fix").append(rows(7))
    run("publish", path, "fix")
    monkeypatch.setattr("fuse_stream.cli.refs.is_asking_possible", lambda: True)
    result = CliRunner().invoke(main, ["branch", path, "--delete", "fix"], input="n\n")

    assert "1 commit of fix; its content is published as main@4. Delete them?" in result.stderr


@pytest.mark.parametrize("name", ["soon", "before-the-large-cleanup-of-november"])
def test_tags_are_whole_in_80_columns(run: Run, path: str, name: str) -> None:
    run("tag", path, name, "--retain", "90d")
    run("tag", path, "good", 2)
    wide = run("tag", path).stdout
    narrow = run("tag", path, width=80).stdout

    assert max(map(len, narrow.splitlines())) <= 80
    assert "…" not in narrow
    words = {word for word in wide.split() if word[0] != "("}
    assert words <= set(narrow.replace(",", "").split())


def test_pins_are_whole_in_80_columns(run: Run, path: str, tmp_path: Path) -> None:
    clone = str(tmp_path / "a-place-for-trials" / "flights-of-november")
    run("clone", path, clone)
    narrow = run("unpin", path, width=80).stdout

    assert "…" not in narrow
    assert clone in "".join(line.strip() for line in narrow.splitlines())


# ---- names elsewhere


def test_log_shows_names_beside_their_versions(run: Run, run_json: RunJson, path: str) -> None:
    run("tag", path, "good", 2)
    run("branch", path, "fix", 2)
    lines = run("log", path).stdout.splitlines()

    assert lines[1].split()[:2] == ["3", "(main)"]
    assert "  2  (fix, tag: good)  " in lines[2]
    labels = [entry["labels"] for entry in run_json("log", path)["snapshots"]]
    assert labels[1] == {"branches": ["fix"], "tags": ["good"]}


def test_log_works_although_names_cannot_be_read(run: Run, path: str) -> None:
    run("tag", path, "good")
    Table.open(path).metadata.store.replace(f"{TAGS_PREFIX}good.json", b"{")
    result = run("log", path)

    assert result.exit_code == 0
    assert "names of branches and tags are not shown" in result.stderr
    assert run("log", path, "--graph").exit_code == 1


def test_show_says_which_version_a_name_means(run: Run, run_json: RunJson, path: str) -> None:
    run("tag", path, "good", 2)
    run("tag", path, "soon", 2, "--retain", "1d")
    run("branch", path, "fix", 2)

    output = run("show", path, "good").stdout
    assert "head of fix, tag good, tag soon until 2" in output
    document = run_json("show", path, "good")
    assert (document["version"], document["branch"]) == (2, "main")


def test_show_shows_a_version_named_on_another_branch(
    run: Run, run_json: RunJson, path: str
) -> None:
    run("branch", path, "fix", 1)
    on(path, "fix").append(rows(*range(20)))
    document = run_json("show", path, "fix@2")

    assert document["branch"] == "fix"
    assert document["row_count_change"] == 20
    on(path, "fix").append(rows(7))
    assert run_json("show", path, "fix@")["row_count_change"] == 1
    assert [
        one["row_count"] for one in run_json("blocks", path, "--version", "fix@2")["blocks"]
    ] == [
        3,
        20,
    ]
    result = run("changes", path, "fix@2")
    assert result.exit_code == 1
    assert "not in the history of this branch" in result.stderr
    assert run_json("changes", path, "fix@1")["starting_version"] == 1


@pytest.mark.parametrize("damaged", ["fix", "other"])
def test_a_branch_is_deleted_although_another_name_is_damaged(
    run: Run, table: Table, path: str, damaged: str
) -> None:
    for name in ("fix", "other"):
        table.create_branch(name)
    Path(path, BRANCHES_PREFIX, f"{damaged}.json").write_text("garbage")

    refused = run("branch", path, "--delete", "fix")
    assert refused.exit_code == 1
    assert "--yes" in refused.stderr
    assert run("branch", path, "--delete", "fix", "--yes").exit_code == 0
    assert not Path(path, BRANCHES_PREFIX, "fix.json").exists()


def test_the_error_for_a_name_of_hex_digits_suggests_another_name(path: str, run: Run) -> None:
    made, gone = run("tag", path, "bad"), run("tag", path, "--delete", "bad")

    assert (made.exit_code, gone.exit_code) == (1, 1)
    assert "has only digits of ids (0-9, a-f); try bad-run" in made.stderr
    assert "there is no such tag" in gone.stderr
    assert "there is no such branch" in run("branch", path, "--delete", "bad").stderr
