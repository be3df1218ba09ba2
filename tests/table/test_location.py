"""`TableLocation`: what it opens, prints and pickles."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from fuse_stream.table.handle import Table, open_at
from fuse_stream.table.location import TableLocation

SCHEMA = pa.schema([("k", pa.int64())])


def test_a_location_opens_the_branch_that_it_names(tmp_path: Path) -> None:
    Table.create(tmp_path, SCHEMA).create_branch("dev")

    assert open_at(TableLocation.of(tmp_path, branch="dev")).branch == "dev"


def test_a_handle_keeps_its_location_when_the_working_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    created = Table.create("t", SCHEMA)
    opened = Table.open("t", unsafe_single_writer=True)
    monkeypatch.chdir("/")

    assert created.location == TableLocation(path=str(tmp_path / "t"))
    assert opened.location == TableLocation(path=str(tmp_path / "t"), unsafe_single_writer=True)
    assert open_at(opened.location).table_id == created.table_id


def test_a_location_pickles_and_prints_no_value_of_a_storage_option() -> None:
    location = TableLocation.of(
        "s3://bucket/t", storage_options={"key": "hunter2"}, origins=[Path("/lake/a")]
    )

    assert pickle.loads(pickle.dumps(location)) == location
    assert location.storage_options["key"] == "hunter2"
    assert "hunter2" not in repr(location)


def test_locations_of_the_same_table_are_listed_once() -> None:
    location = TableLocation(path="a", branch="dev", origins=("o",))

    assert location.each(["b", Path("a"), "b"]) == (location.at("b"), location)
