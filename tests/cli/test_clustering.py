"""`clustering`, `recluster` and `optimize`: the printed text, and the keys of `--json`."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from fuse_stream.table.handle import Table
from tests.cli.conftest import SCHEMA, Run, RunJson, rows


@pytest.fixture
def shuffled(tmp_path: Path) -> str:
    table = Table.create(
        tmp_path / "shuffled", SCHEMA, cluster_by=["id"], properties={"fuse.block.rows": "10"}
    )
    ids = list(range(100))
    random.Random(1).shuffle(ids)
    for start in range(0, 100, 10):
        table.append(rows(*ids[start : start + 10]))
    return table.metadata.store.url


def test_clustering_shows_the_figures_and_the_depths_as_bars(run: Run, shuffled: str) -> None:
    result = run("clustering", shuffled)
    lines = [line.split() for line in result.stdout.splitlines()]

    assert lines[:6] == [
        ["cluster", "key:", "id"],
        ["blocks", "10"],
        ["average", "overlap", "9.0"],
        ["average", "depth", "10.0"],
        ["largest", "depth", "10"],
        [],
    ]
    assert lines[7] == ["10", "10", "█" * 40]
    assert "reads 10 blocks of 10 at the most" in result.stderr


def test_recluster_reports_its_work_and_then_that_nothing_is_left(run: Run, shuffled: str) -> None:
    first, second = run("recluster", shuffled), run("recluster", shuffled)

    assert (first.stdout, second.stdout) == ("", "")
    assert "version 11: 10 blocks -> 10, " in first.stderr
    assert ", average depth 10.0 -> 1.0" in first.stderr
    assert "nothing was sorted: the average depth 1.0 is low enough" in second.stderr


def test_a_limit_bounds_the_blocks_of_recluster(run_json: RunJson, shuffled: str) -> None:
    assert run_json("recluster", shuffled, "--limit", "6")["blocks_before"] == 6


def test_the_error_for_a_table_without_a_cluster_key_says_how_to_set_one(
    run: Run, tmp_path: Path
) -> None:
    Table.create(tmp_path / "plain", SCHEMA)
    for command in ("clustering", "recluster"):
        result = run(command, tmp_path / "plain")

        assert result.exit_code == 1
        assert "cluster_by" in result.stderr


def test_blocks_sorted_by_another_key_are_counted(run: Run, tmp_path: Path) -> None:
    table = Table.create(tmp_path / "plain", SCHEMA)
    table.append(rows(1, 2))
    table.cluster_by(["name"])
    result = run("clustering", tmp_path / "plain")

    assert ["not", "in", "this", "order", "1"] in [
        line.split() for line in result.stdout.splitlines()
    ]
    assert "recluster" in result.stderr


def test_an_empty_table_has_no_bars(run: Run, tmp_path: Path) -> None:
    Table.create(tmp_path / "empty", SCHEMA, cluster_by=["id"])

    assert "depth  blocks" not in run("clustering", tmp_path / "empty").stdout


def test_many_depths_are_shown_in_ranges(run: Run, run_json: RunJson, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64())])
    table = Table.create(tmp_path / "heap", schema, cluster_by=["id"])
    for pile in range(1, 15):
        for _ in range(pile):
            table.append(pa.table({"id": [pile]}, schema=schema))
    lines = run("clustering", tmp_path / "heap").stdout.splitlines()[7:]

    assert [line.split()[:2] for line in lines] == [
        ["1", "1"],
        ["2", "2"],
        ["3-4", "7"],
        ["5-8", "26"],
        ["9-16", "69"],
    ]
    assert len(run_json("clustering", tmp_path / "heap")["depths"]) == 14


def test_clustering_json_has_the_documented_keys(run_json: RunJson, shuffled: str) -> None:
    clustering = run_json("clustering", shuffled)
    recluster = run_json("recluster", shuffled)

    assert sorted(clustering) == sorted(
        "path branch version columns block_count unsorted_count average_overlap average_depth "
        "max_depth depths".split()
    )
    assert clustering["depths"] == [{"depth": 10, "block_count": 10}]
    assert sorted(recluster) == sorted(
        "path branch version blocks_before blocks_after bytes_before bytes_after row_count "
        "group_count dropped_group_count depth_before depth_after".split()
    )


def test_optimize_compacts_first_and_then_reclusters(
    run: Run, run_json: RunJson, shuffled: str
) -> None:
    table = Table.open(shuffled)
    for at in range(20):
        table.append(rows(at))
    result = run("optimize", shuffled)

    assert result.stdout == ""
    packed, sorted_ = result.stderr.splitlines()
    assert packed.startswith("version 31: 20 blocks -> 2, ")
    assert sorted_.startswith("version 32: 10 blocks -> 10, ")
    assert ", average depth 10.7 -> 1.3" in sorted_
    document = run_json("optimize", shuffled)
    assert sorted(document) == ["branch", "compaction", "path", "reclustering"]
    assert document["compaction"]["version"] is None
    assert document["reclustering"]["version"] is None


def test_optimize_needs_no_cluster_key(run: Run, run_json: RunJson, tmp_path: Path) -> None:
    Table.create(tmp_path / "plain", SCHEMA)

    assert run_json("optimize", tmp_path / "plain")["reclustering"] is None
    assert run("optimize", tmp_path / "plain").exit_code == 0
