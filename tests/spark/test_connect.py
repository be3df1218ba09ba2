"""The sink on Spark Connect, where it cannot find its query: the user names it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fuse_stream.table.handle import Table
from tests.kit.programs import told_by
from tests.spark.streams import PATIENCE_S, ids_delivered, ids_of, versions_of

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("connect")


@pytest.fixture(scope="module")
def told(folder: Path) -> dict[str, Any]:
    """The errors of the steps of `connect_program`."""
    # Spark's server for tests takes any free port; otherwise it is always 15002.
    return told_by(
        "tests.spark.connect_program", str(folder), patience_s=PATIENCE_S, SPARK_TESTING="1"
    )


def test_a_sink_with_its_arguments_delivers_each_row_once(
    told: dict[str, Any], folder: Path
) -> None:
    assert told["a stream"] == ""
    assert told["after a lost commit"] == ""
    assert versions_of(folder / "table") == [0, 1, 2, 3]
    assert ids_of(folder / "table") == ids_delivered(3)
    (entry,) = Table.open(folder / "table").ledger().items()
    assert entry[0] == ("connected", "")
    assert (
        entry[1].query_id
        == json.loads((folder / "first" / "checkpoint" / "metadata").read_text())["id"]
    )
    assert [item.batch_id for item in entry[1].offsets] == [1, 2]


@pytest.mark.parametrize("step", ["no app_id", "no checkpoint"])
def test_a_sink_without_its_arguments_says_what_to_pass(told: dict[str, Any], step: str) -> None:
    assert "InvalidInputError: on Spark Connect a sink cannot see its query" in told[step]
    assert "pass app_id= and checkpoint=" in told[step]


def test_a_folder_without_a_checkpoint_is_refused(told: dict[str, Any]) -> None:
    assert "there is no Spark checkpoint here" in told["a wrong checkpoint"]


def test_a_batch_dataframe_is_written_and_a_table_is_read(
    told: dict[str, Any], folder: Path
) -> None:
    assert told["write"] == 1
    assert told["change events"] == [[7, "u", None]]
    assert told["messages that are read again"] == 1
    assert ids_of(folder / "written") == [0, 1, 2]
    assert sorted(row[0] for row in told["rows"]) == [25, 26, 27, 28, 29]


def test_a_condition_means_what_it_means_in_the_session(told: dict[str, Any]) -> None:
    assert sorted(told["rows by a function"]) == [28, 29]
    assert told["rows outside ANSI mode"] == [26]
    assert "Spark refuses the predicate" in told["a broken where"]


def test_deleted_rows_are_not_read(told: dict[str, Any]) -> None:
    assert sorted(row[0] for row in told["rows that are left"]) == [1, 2, 4, 5, 6, 7, 8]
    assert sorted(row[0] for row in told["rows that are left, by a condition"]) == [1, 2]


def test_names_with_dots_and_backticks_are_written(told: dict[str, Any], folder: Path) -> None:
    assert told["write odd"] == 1
    assert Table.open(folder / "odd").to_arrow().to_pydict() == {
        "a.b": [0, 1, 2],
        "we`ird": [0, 1, 2],
    }


def test_a_table_is_compacted_in_tasks(told: dict[str, Any], folder: Path) -> None:
    assert told["compact"] > 1
    assert len(Table.open(folder / "packed").blocks()) == 1
    assert ids_of(folder / "packed") == [0, 0, 0, 1, 1, 1]


def test_a_table_is_optimized_while_a_stream_on_the_server_writes_it(
    told: dict[str, Any], folder: Path
) -> None:
    assert 0 < told["a kept stream"] < 6
    assert ids_of(folder / "kept" / "table") == ids_delivered(6)
