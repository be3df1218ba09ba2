"""`TableLocation`: what it opens, prints and pickles."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fuse_stream.errors import InvalidInputError
from fuse_stream.objects.origins import StoreWithOrigins
from fuse_stream.storage.wrappers import StoreWrapper
from fuse_stream.table.handle import Table, open_at
from fuse_stream.table.location import TableLocation
from fuse_stream.table.verbs import clone
from fuse_stream.testing.memory import MemoryStore

SCHEMA = pa.schema([("k", pa.int64())])
TWO_ROWS = pa.table({"k": [1, 2]}, SCHEMA)


class OneConnection(StoreWrapper):
    overlaps = False


def test_calls_do_not_overlap_if_those_of_an_origin_may_not() -> None:
    one, many = OneConnection(MemoryStore()), MemoryStore()

    assert StoreWithOrigins(many, [many]).overlaps is many.overlaps
    assert StoreWithOrigins(many, [many, one]).overlaps is False
    assert StoreWithOrigins(one, [many]).overlaps is False


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


def test_the_origins_of_a_handle_are_kept_when_the_working_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Table.create("t", SCHEMA).append(TWO_ROWS)
    clone("t", "c")
    opened = Table.open("c", origins=["t"])
    monkeypatch.chdir("/")

    assert open_at(opened.location).to_arrow() == TWO_ROWS


@pytest.mark.parametrize("url", ["s3://user:hunter2@bucket/t", "s3://bucket/t?sig=hunter2"])
@pytest.mark.parametrize("name", ["path", "origins"])
def test_a_location_holds_no_secret(url: str, name: str) -> None:
    with pytest.raises(InvalidInputError, match="must not hold credentials") as caught:
        TableLocation.of(**{"path": "t", name: url if name == "path" else [url]})  # type: ignore[arg-type]
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"path": None},
        {"path": b"t"},
        {"path": "t", "origins": None},
        {"path": "t", "origins": 5},
        {"path": "t", "origins": [5]},
        {"path": "t", "storage_options": "abc"},
        {"path": "t", "storage_options": ["a"]},
    ],
    ids=str,
)
def test_a_location_of_another_type_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        TableLocation.of(**options)


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
