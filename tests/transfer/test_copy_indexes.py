"""A copy takes the indexes along, and a damaged one stops no copy."""

from __future__ import annotations

from pathlib import Path

import pytest

import fuse_stream as fuse
from fuse_stream.format.layout import AGGREGATES_PREFIX, INDEX_LISTS_PREFIX
from tests.kit.indexes import NAME, SCHEMA, SQL, answer, by_city, city_rows, covered


@pytest.fixture
def path(tmp_path: Path) -> str:
    table = fuse.Table.create(tmp_path / "t", SCHEMA, properties={"fuse.block.rows": "20"})
    for number in range(3):
        table.append(city_rows(20 * number))
    table.create_aggregate(NAME, SQL)
    table.refresh_indexes()
    return table.location.path


@pytest.mark.parametrize("history", [True, False])
def test_a_copy_has_the_indexes(path: str, *, history: bool) -> None:
    fuse.copy(path, f"{path}2", history=history)
    copied = fuse.Table.open(f"{path}2")

    assert covered(copied) == 3
    assert answer(copied) == by_city(copied.to_arrow())
    assert copied.fsck(deep=True).findings == ()


def test_a_copy_is_brought_up_to_date_with_its_indexes(path: str) -> None:
    fuse.copy(path, f"{path}2")
    table = fuse.Table.open(path)
    table.append(city_rows(100))
    table.refresh_indexes()
    fuse.copy(path, f"{path}2")
    copied = fuse.Table.open(f"{path}2")

    assert covered(copied) == 4
    assert answer(copied) == by_city(table.to_arrow())
    assert copied.fsck(deep=True).findings == ()


@pytest.mark.parametrize("history", [True, False])
def test_a_copy_of_a_clone_has_the_parts_in_its_own_folder(path: str, *, history: bool) -> None:
    fuse.clone(path, f"{path}2")
    clone = fuse.Table.open(f"{path}2", origins=[path])
    clone.append(city_rows(100))
    clone.refresh_indexes()
    fuse.copy(f"{path}2", f"{path}3", history=history, origins=[path])
    copied = fuse.Table.open(f"{path}3")

    assert covered(copied) == 4
    assert answer(copied) == by_city(clone.to_arrow())
    assert copied.fsck(deep=True).is_sound


@pytest.mark.parametrize("history", [True, False])
@pytest.mark.parametrize("prefix", [AGGREGATES_PREFIX, INDEX_LISTS_PREFIX])
def test_a_lost_index_stops_no_copy(path: str, prefix: str, *, history: bool) -> None:
    for file in Path(path, prefix).glob("*"):
        file.unlink()
    fuse.copy(path, f"{path}2", history=history)
    copied = fuse.Table.open(f"{path}2")

    assert copied.to_arrow().num_rows == 60
    if prefix == AGGREGATES_PREFIX:
        assert answer(copied) == by_city(copied.to_arrow())
