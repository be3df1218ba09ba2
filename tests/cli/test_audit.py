"""`audit` on a real table, with a checkpoint made by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from fuse_stream.storage.local import LocalStore
from fuse_stream.table.handle import Table
from tests.cli.conftest import Run, RunJson
from tests.recovery.checkpoints import put
from tests.recovery.streams import Query


@pytest.fixture
def places(tmp_path: Path) -> tuple[str, str]:
    """A table and the checkpoint of a query with three batches."""
    table = Table.create(tmp_path / "flights", pa.schema([("k", pa.int64())]))
    checkpoint = LocalStore(tmp_path / "checkpoint")
    Query(table, checkpoint).begin("64cd1140").run(3)
    return str(tmp_path / "flights"), str(tmp_path / "checkpoint")


def test_agreement_exits_with_0(run: Run, places: tuple[str, str]) -> None:
    result = run("audit", *places)

    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["writer", "batches", "last", "rows", "empty"],
        ["-", "3", "2", "3"],
    ]
    assert "holds what the checkpoint says" in result.stderr


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_a_difference_exits_with_1(run: Run, places: tuple[str, str], option: list[str]) -> None:
    put(LocalStore(Path(places[1])), {"commits/3": "v1\n{}"})
    result = run("audit", *places, *option)

    assert result.exit_code == 1
    assert "missing" in result.stdout


def test_the_audit_of_an_unused_copy_names_the_checkpoint_that_continued(
    run: Run, places: tuple[str, str], tmp_path: Path
) -> None:
    table, checkpoint = places
    copy = shutil.copytree(checkpoint, tmp_path / "copy")
    Query(Table.open(table), LocalStore(Path(checkpoint))).run(1)
    result = run("audit", table, copy)

    assert result.exit_code == 1
    assert "or the query runs on another copy" in result.stdout
    assert "audit that one" in result.stdout
    assert "rebuild it with rebuild-checkpoint" in result.stdout


def test_another_application_is_audited_by_its_name(run: Run, places: tuple[str, str]) -> None:
    result = run("audit", *places, "--app-id", "night", "--json")

    assert result.exit_code == 1
    assert json.loads(result.stdout)["findings"][0]["batches"] == [0, 1, 2]


def test_audit_json_has_the_documented_keys(run_json: RunJson, places: tuple[str, str]) -> None:
    document = run_json("audit", *places)

    assert sorted(document) == sorted(
        "path branch checkpoint query_id application head first_version agrees planned writers "
        "findings notes".split()
    )
    assert document["writers"] == [
        {"writer": "", "batch_count": 3, "row_count": 3, "last_batch": 2, "empty": []}
    ]
