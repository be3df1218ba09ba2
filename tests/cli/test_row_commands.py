"""`changes` and `diff` on a real table."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from fuse_stream.table.handle import Table
from tests.cli.conftest import Run, RunJson, rows


def test_changes_count_rows_and_blocks_by_commit(run_json: RunJson, path: str) -> None:
    commits = run_json("changes", path, 1)["commits"]

    assert [
        (c["version"], c["inserted_row_count"], c["removed_row_count"], c["removed_block_count"])
        for c in commits
    ] == [(1, 3, 0, 0), (2, 2, 0, 0), (3, 2, 5, 2)]


def test_changes_include_both_versions_of_the_range(run_json: RunJson, path: str) -> None:
    document = run_json("changes", path, 1, 2)

    assert [commit["version"] for commit in document["commits"]] == [1, 2]


def test_changes_list_blocks_with_plus_and_minus(run: Run, path: str) -> None:
    lines = run("changes", path, 3, "--blocks").stdout.splitlines()[1:]

    assert [line.split()[:2] for line in lines] == [["-", "3"], ["-", "3"], ["+", "3"]]


def test_changes_show_rows_of_chosen_columns(run: Run, path: str) -> None:
    result = run("changes", path, 2, 3, "--rows", "--columns", "name", "--where", "id in (4, 9)")

    assert [line.split() for line in result.stdout.splitlines()] == [
        ["version", "name"],
        ["+", "2", "n4"],
        ["-", "3", "n4"],
        ["+", "3", "n9"],
    ]
    assert "2 rows inserted, 1 removed" in result.stderr


def test_rows_beyond_the_limit_are_announced(run: Run, run_json: RunJson, path: str) -> None:
    result = run("changes", path, 1, "--rows", "--limit", 2)
    document = run_json("changes", path, 1, "--rows", "--limit", 2)

    assert len(result.stdout.splitlines()) == 3
    assert "--limit 0" in result.stderr
    assert [row["id"] for row in document["rows"]] == [1, 2]
    assert document["more"] is True


def test_a_limit_that_equals_the_row_count_leaves_nothing_out(run_json: RunJson, path: str) -> None:
    assert run_json("changes", path, 1, 1, "--rows", "--limit", 3)["more"] is False


def test_without_a_limit_all_rows_of_many_pages_are_shown(
    run_json: RunJson, table: Table, path: str
) -> None:
    table.append(rows(*range(1234)))
    found = run_json("changes", path, 4, "--rows", "--limit", 0)["rows"]

    assert [row["id"] for row in found] == list(range(1234))


def test_a_reversed_range_is_an_error(run: Run, path: str) -> None:
    result = run("changes", path, 3, 1)

    assert result.exit_code == 1
    assert "START lies past END" in result.stderr


@pytest.mark.parametrize("option", [["--columns", "id"], ["--where", "id = 1"]])
def test_row_options_without_rows_are_wrong_usage(run: Run, path: str, option: list[str]) -> None:
    result = run("changes", path, 1, *option)

    assert result.exit_code == 2
    assert "--rows" in result.stderr


def test_diff_counts_net_blocks(run: Run, path: str) -> None:
    output = run("diff", path, 1, 3).stdout

    assert "3 -> 2  -1" in output
    assert "1 block with 2 rows" in output
    assert "1 block with 3 rows" in output


def test_diff_leaves_out_rows_that_are_in_both_versions(run_json: RunJson, path: str) -> None:
    found = run_json("diff", path, 1, 3, "--rows")["rows"]

    assert sorted((row["_change_type"], row["id"]) for row in found) == [
        ("delete", 2),
        ("delete", 3),
        ("insert", 9),
    ]


def test_diff_shows_rows_with_plus_and_minus(run: Run, path: str) -> None:
    lines = run("diff", path, 1, 3, "--rows", "--columns", "id").stdout.splitlines()

    assert [line.split() for line in lines[-3:]] == [["-", "2"], ["-", "3"], ["+", "9"]]


def test_columns_that_do_not_fit_the_terminal_are_listed_by_name(run: Run, tmp_path: Path) -> None:
    wide = pa.table({f"column_{number}": ["some text"] for number in range(20)})
    Table.create(tmp_path / "wide", wide.schema).append(wide)
    result = run("changes", tmp_path / "wide", 1, "--rows", width=80)

    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "column_0" in result.stdout
    assert "column_19" in result.stderr


def test_values_without_a_json_type_are_text(run_json: RunJson, tmp_path: Path) -> None:
    odd = pa.table(
        {
            "nan": [float("nan")],
            "inf": [float("-inf")],
            "price": pa.array([Decimal("1.50")], pa.decimal128(9, 2)),
            "raw": [b"\x00\xff"],
            "day": [dt.date(2026, 11, 21)],
            "at": pa.array([253402300800000000], pa.timestamp("us", tz="UTC")),
            "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
        }
    )
    Table.create(tmp_path / "odd", odd.schema).append(odd)
    row = run_json("changes", tmp_path / "odd", 1, "--rows")["rows"][0]

    assert row["nan"] == "NaN"
    assert row["inf"] == "-Infinity"
    assert row["price"] == "1.50"
    assert row["raw"] == "00ff"
    assert row["day"] == "2026-11-21"
    assert row["at"] == "253402300800000000 us"  # as `blocks` shows it
    assert row["map"] == [["k", 1]]


def odd_values() -> pa.Table:
    """Return columns with a value that Python cannot hold, and one that it can."""
    text = pa.Array.from_buffers(
        pa.string(), 2, pa.array([b"\xff\xfea\n", b"fine"], pa.binary()).buffers()
    )
    at = pa.array([253402300800000000, 0], pa.int64()).view(pa.timestamp("us", tz="UTC"))
    day = pa.array([2932897, 0], pa.int32()).view(pa.date32())
    keys = pa.array(["a", "b"])
    return pa.table(
        {
            "text": text,
            "at": at,
            "zoneless": at.view(pa.timestamp("us")),
            "day": day,
            "list": pa.ListArray.from_arrays([0, 1, 2], day),
            "map": pa.MapArray.from_arrays([0, 1, 2], keys, at),
            "struct": pa.StructArray.from_arrays([text, pa.array([1, 2])], ["t", "n"]),
            "deep": pa.ListArray.from_arrays([0, 1, 2], pa.StructArray.from_arrays([text], ["t"])),
        }
    )


SHOWN = {
    "text": r"\xff\xfea" + "\n",
    "at": "253402300800000000 us",
    "zoneless": "253402300800000000 us",
    "day": "2932897 d",
    "list": ["2932897 d"],
    "map": [["a", "253402300800000000 us"]],
    "struct": {"t": r"\xff\xfea" + "\n", "n": 1},
    "deep": [{"t": r"\xff\xfea" + "\n"}],
}


@pytest.mark.parametrize("command", [("changes", 1), ("diff", 0, 1)])
def test_values_that_python_cannot_hold_are_shown(
    run: Run, run_json: RunJson, tmp_path: Path, command: tuple[str, ...]
) -> None:
    name, *versions = command
    odd, path = odd_values(), tmp_path / "odd"
    nulls = pa.table([pa.nulls(1, field.type) for field in odd.schema], schema=odd.schema)
    Table.create(path, odd.schema).append(pa.concat_tables([odd, nulls]))
    first, second, third = run_json(name, path, *versions, "--rows")["rows"]
    shown = run(name, path, *versions, "--rows", width=400).stdout

    assert {key: first[key] for key in SHOWN} == SHOWN
    assert {key: third[key] for key in SHOWN} == dict.fromkeys(SHOWN)
    assert second["text"] == "fine"
    assert second["at"] == "1970-01-01T00:00:00Z"
    assert second["day"] == "1970-01-01"
    assert second["list"] == ["1970-01-01"]
    assert second["map"] == [["b", "1970-01-01T00:00:00Z"]]
    assert second["struct"] == {"t": "fine", "n": 2}
    assert r"\xff\xfea\n" in shown
    assert r"{t: \xff\xfea\n, n: 1}" in shown
    assert "[2932897 d]" in shown
    assert "1970-01-01T00:00:00Z" in shown


@pytest.mark.parametrize("command", [("changes", "1"), ("diff", "1", "2")])
@pytest.mark.parametrize("option", [("--limit", "5"), ("--columns", "id")])
def test_an_option_for_rows_only_is_not_dropped_silently(
    path: str, run: Run, command: tuple[str, ...], option: tuple[str, ...]
) -> None:
    result = run(command[0], path, *command[1:], *option)

    assert result.exit_code == 2
    assert "add --rows" in result.stderr
