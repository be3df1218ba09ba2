"""`upsert`, `quarantine` and `retry`, and what `show` says of events."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from fuse_stream.table.handle import Table
from tests.cli.conftest import SCHEMA, Run, RunJson, events, rows, take


@pytest.fixture
def kept(tmp_path: Path) -> str:
    """A table with one row, two events without a key and one that its reader could not read."""
    table = take(Table.create(tmp_path / "kept", SCHEMA), events(1, None, None))
    unread = (
        events(2, seq=2).append_column("_op", pa.array(["u"])).append_column("_seq", pa.array([2]))
    )
    extra = {"_error": 'failed cast: delay="x"', "_raw": "{delay: x}", "_source": "t/0/1"}
    for name, value in extra.items():
        unread = unread.append_column(name, pa.array([value]))
    unread = unread.append_column("_unset", pa.array([[]], pa.list_(pa.string())))
    table.upsert(unread.drop_columns(["op", "seq"]))
    return table.metadata.store.url


def test_an_upsert_takes_rows_from_a_file(run: Run, tmp_path: Path) -> None:
    path, file = tmp_path / "t", tmp_path / "rows.parquet"
    Table.create(path, SCHEMA)
    pq.write_table(rows(1, 2), file)
    result = run("upsert", path, file, "--key", "id", "-m", "first")

    assert (result.exit_code, result.stderr) == (0, "version 1: 2 rows inserted\n")
    assert sorted(Table.open(path).to_arrow()["id"].to_pylist()) == [1, 2]


def test_an_upsert_takes_events_from_a_file(run: Run, tmp_path: Path) -> None:
    path, file = tmp_path / "t", tmp_path / "log.csv"
    Table.create(path, SCHEMA)
    pyarrow.csv.write_csv(events(1, 1, seq=3), file)
    options = ("--key", "id", "--sequence-by", "seq", "--except", "op", "--except", "seq")
    result = run("upsert", path, file, *options)

    assert (result.exit_code, result.stderr) == (0, "version 1: 1 row inserted\n")
    assert "events      1 applied, 1 duplicate\n" in "".join(
        f"{line.rstrip()}\n" for line in run("show", path).stdout.splitlines()
    )


def test_a_file_that_cannot_be_read_is_an_error(run: Run, path: str, tmp_path: Path) -> None:
    broken = tmp_path / "x.parquet"
    broken.write_text("no parquet")

    assert "cannot be read" in run("upsert", path, broken).stderr
    assert "none of those" in run("upsert", path, tmp_path / "x.xls").stderr
    assert "cannot be read" in run("upsert", path, tmp_path / "missing.csv").stderr


def test_the_quarantine_is_shown_with_its_reasons(run: Run, run_json: RunJson, kept: str) -> None:
    text = run("quarantine", kept, "--limit", "1").stdout
    found = run_json("quarantine", kept, "--where", "op IS NULL")

    assert [line.split() for line in text.splitlines()[:2]] == [
        ["no", "key", "2"],
        ["failed", "cast:", "delay", "1"],
    ]
    assert found["count"] == 1
    assert found["events"][0]["raw"] == "{delay: x}"


def test_the_quarantine_says_where_an_event_was_read(run: Run, kept: str) -> None:
    lines = run("quarantine", kept).stdout.splitlines()
    (heading,) = [line for line in lines if line.startswith("reason")]
    (unread,) = [line for line in lines if "{delay: x}" in line]

    assert heading.split() == ["reason", "op", "sequence", "event", "source"]
    assert unread.rstrip().endswith("t/0/1")


def test_the_quarantine_since_a_version_has_what_came_later(
    run: Run, run_json: RunJson, kept: str
) -> None:
    later = run_json("quarantine", kept, "--since", "1")

    assert [event["reason"] for event in later["events"]] == ['failed cast: delay="x"']
    assert later["count"] == 1
    assert run_json("quarantine", kept, "--since", "0")["count"] == 3
    assert run_json("quarantine", kept, "--version", "1", "--since", "2")["count"] == 0
    assert "no such" in run("quarantine", kept, "--since", "nix").stderr


def test_a_quarantine_without_events_is_told_from_one_without_such_events(
    run: Run, path: str, kept: str
) -> None:
    where = ("--where", "reason = 'tie'")

    assert run("quarantine", path).stderr == "the quarantine is empty\n"
    assert run("quarantine", kept, "--version", "0").stderr == "the quarantine is empty\n"
    assert run("quarantine", kept, *where).stderr == "there is no such event in the quarantine\n"
    assert "no such event" in run("quarantine", kept, "--since", "2").stderr


def test_a_monitor_gets_an_exit_code_for_events_in_the_quarantine(run: Run, kept: str) -> None:
    assert run("quarantine", kept).exit_code == 0
    assert run("quarantine", kept, "--exit-code").exit_code == 1
    assert run("quarantine", kept, "--exit-code", "--limit", "0", "--json").exit_code == 1
    assert run("quarantine", kept, "--exit-code", "--since", "2").exit_code == 0
    assert run("quarantine", kept, "--exit-code", "--where", "reason = 'tie'").exit_code == 0
    for day, code in {"2020-01-01": 1, "2100-01-01": 0}.items():
        where = f"at > '{day}'"
        assert run("quarantine", kept, "--exit-code", "--where", where).exit_code == code


def test_a_retry_says_what_it_leaves(run: Run, kept: str) -> None:
    before = Table.open(kept).head().version
    dry, done = run("retry", kept, "--dry-run"), run("retry", kept)

    left = (
        "1 event left out, of which only the text was kept: fuse.retry(spark, path, read) reads it "
        "again, see docs/cdc.md\n"
    )
    assert dry.stderr == f"2 events would be applied again\n{left}"
    assert done.stderr == f"nothing was changed; no version was made\n{left}"
    assert Table.open(kept).head().version == before
