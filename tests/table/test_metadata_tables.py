from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fuse_stream.errors import InvalidInputError, NotFoundError
from fuse_stream.format.layout import block_key
from fuse_stream.table.handle import Table
from fuse_stream.table.metadata_tables import METADATA
from tests.cli.leases import put_lease

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
OF_A_VERSION = ["segments", "blocks", "columns", "statistics", "ledger", "clustering_information"]


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "name": [f"n{i}" for i in ids]}, schema=SCHEMA)


@pytest.fixture
def lake(tmp_path: Path) -> Table:
    """Versions: 0 created, 1 and 2 batches, 3 deletes a row; a tag and a branch at 1."""
    table = Table.create(tmp_path / "t", SCHEMA, cluster_by=["id"])
    table.append(rows(1, 2, 3), app_id="a", batch_id=0, message="first", author="ann")
    table.append(rows(2, 9), app_id="b", batch_id=4, writer="w")
    table.delete("id = 9")
    table.create_tag("good", 1, retain="30d")
    table.create_branch("fix", 1)
    return table


def found(table: Table, name: str, **version: Any) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = table.metadata_table(name, **version).to_pylist()
    return shown


@pytest.mark.parametrize("name", METADATA)
def test_an_empty_table_has_the_columns_of_every_metadata_table(name: str, tmp_path: Path) -> None:
    table = Table.create(tmp_path / "empty", SCHEMA, cluster_by=["id"])

    assert table.metadata_table(name).schema == METADATA[name].schema


def test_snapshots_are_newest_first_and_name_what_the_log_has(lake: Table) -> None:
    newest, *_, oldest = found(lake, "snapshots")
    head = lake.head()

    assert newest["version"] == 3
    assert oldest["version"] == 0
    assert newest["previous_snapshot_id"] == head.prev_snapshot_id
    assert newest["bytes_compressed"] == head.summary.compressed_byte_size
    assert newest["timestamp"] == dt.datetime.fromtimestamp(head.timestamp_us / 1e6, dt.UTC)
    assert (lake_folder(lake) / newest["snapshot_location"]).is_file()


def test_history_names_the_batches(lake: Table) -> None:
    assert [one["batches"] for one in found(lake, "history")] == [[], ["b/w #4"], ["a #0"], []]


def test_segments_and_blocks_are_files_of_the_table(lake: Table) -> None:
    segments, blocks = found(lake, "segments"), found(lake, "blocks")

    assert len(segments) == len(blocks) == 2
    assert all((lake_folder(lake) / one["file_location"]).is_file() for one in segments)
    assert all((lake_folder(lake) / one["block_location"]).is_file() for one in blocks)
    assert [one["live_rows"] for one in blocks] == [3, 1]
    assert sum(one["bytes_uncompressed"] for one in segments) == sum(
        one["block_size"] for one in blocks
    )


def test_columns_have_a_row_for_each_column_of_each_block(lake: Table) -> None:
    first, *others = found(lake, "columns")
    (block, _) = lake.blocks()

    assert len(others) == 3
    assert first["column_name"] == "id"
    assert first["block_location"] == block_key(block.id)
    assert (first["min"], first["max"], first["null_count"]) == ("1", "3", 0)


def test_statistics_have_a_row_for_each_column(lake: Table) -> None:
    ids, names = found(lake, "statistics")

    assert (ids["min"], ids["max"]) == ("1", "9")
    assert names["column_type"] == "string"


def test_tags_and_branches_have_their_snapshots(lake: Table) -> None:
    (tag,) = found(lake, "tags")
    main, fix = found(lake, "branches")

    assert (tag["name"], tag["version"], tag["snapshot_id"]) == (
        "good",
        1,
        lake.snapshot(1).snapshot_id,
    )
    assert tag["expires_at"] - tag["created"] == dt.timedelta(days=30)
    assert (main["name"], main["version"], main["forked_at"]) == ("main", 3, None)
    assert (fix["name"], fix["version"], fix["forked_at"]) == ("fix", 1, 1)


def test_consumers_have_their_lag(lake: Table) -> None:
    put_lease(lake, "nightly", 1)

    (one,) = found(lake, "consumers")

    assert (one["consumer"], one["version"], one["versions_behind"]) == ("nightly", 1, 2)
    assert one["rows_to_read"] == 3
    assert one["seconds_behind"] == pytest.approx(
        (lake.head().timestamp_us - lake.snapshot(1).timestamp_us) / 1e6
    )


def test_the_ledger_is_that_of_the_version(lake: Table) -> None:
    assert [one["app_id"] for one in found(lake, "ledger")] == ["a", "b"]
    assert [one["app_id"] for one in found(lake, "ledger", version="good")] == ["a"]


def test_clustering_information_is_one_row(lake: Table) -> None:
    (one,) = found(lake, "clustering_information")

    assert one["cluster_key"] == "id"
    assert json.loads(one["block_depth_histogram"]) == {"2": 2}


def test_clustering_information_needs_a_cluster_key(lake: Table) -> None:
    lake.cluster_by([])

    with pytest.raises(InvalidInputError, match="has no cluster key; set one"):
        lake.metadata_table("clustering_information")


@pytest.mark.parametrize("name", OF_A_VERSION)
def test_rows_about_a_version_are_those_of_the_version(lake: Table, name: str) -> None:
    now, before = found(lake, name), found(lake, name, version=1)

    assert before != now
    assert found(lake, name, version="fix@") == before


def test_the_metadata_tables_of_a_version_are_known() -> None:
    assert [name for name, kind in METADATA.items() if kind.is_of_version] == OF_A_VERSION


def test_a_version_of_what_is_not_about_a_version_is_refused(lake: Table) -> None:
    with pytest.raises(InvalidInputError, match="leave the version out"):
        lake.metadata_table("snapshots", version=1)


@pytest.mark.parametrize("name", ["nope", "", None, []])
def test_an_unknown_name_is_refused(lake: Table, name: Any) -> None:
    with pytest.raises(InvalidInputError, match="no such metadata table"):
        lake.metadata_table(name)


def test_a_version_past_the_head_is_refused(lake: Table) -> None:
    with pytest.raises(NotFoundError):
        lake.metadata_table("blocks", version=99)


def lake_folder(table: Table) -> Path:
    return Path(table.location.path.removeprefix("file://"))
