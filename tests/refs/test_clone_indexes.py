"""A clone takes the indexes along: their parts stay in the origin, which keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest

import fuse_stream as fuse
from fuse_stream.errors import InvalidInputError
from fuse_stream.format.layout import AGGREGATES_PREFIX
from fuse_stream.objects.indexes import load_index_list
from tests.kit.indexes import NAME, SCHEMA, SQL, answer, by_city, city_rows, covered

PROPERTIES = {"fuse.block.rows": "20", "fuse.grace": "0s", "fuse.vacuum.age": "0s"}


@pytest.fixture
def path(tmp_path: Path) -> str:
    table = fuse.Table.create(tmp_path / "t", SCHEMA, properties=PROPERTIES)
    for number in range(3):
        table.append(city_rows(20 * number))
    table.create_aggregate(NAME, SQL)
    table.refresh_indexes()
    return table.location.path


def parts_in(path: str) -> int:
    return sum(1 for _ in Path(path, AGGREGATES_PREFIX).glob("*"))


def test_a_clone_answers_from_the_origins_parts(path: str) -> None:
    fuse.clone(path, f"{path}2")
    clone = fuse.Table.open(f"{path}2", origins=[path])
    assert (parts_in(f"{path}2"), covered(clone)) == (0, 3)

    assert answer(clone) == by_city(clone.to_arrow())
    clone.delete("x = 1")
    clone.append(city_rows(500))
    assert clone.refresh_indexes().block_count == 1
    assert answer(clone) == by_city(clone.to_arrow())
    assert clone.fsck(deep=True).is_sound
    with pytest.raises(InvalidInputError, match="origin"):
        fuse.Table.open(f"{path}2").aggregate(NAME)


def test_the_origin_keeps_parts_that_a_clone_names(path: str) -> None:
    fuse.clone(path, f"{path}2")
    table = fuse.Table.open(path)
    table.drop_index()
    table.overwrite(city_rows(0, 1))
    for _ in range(3):
        table.expire(keep_last=1)
        table.vacuum()
    clone = fuse.Table.open(f"{path}2", origins=[path])

    assert parts_in(path) == 1
    assert covered(clone) == 3
    assert answer(clone) == by_city(clone.to_arrow())


def test_a_clone_of_a_clone_names_parts_of_the_tables_that_it_pins(path: str) -> None:
    fuse.clone(path, f"{path}2")
    clone = fuse.Table.open(f"{path}2", origins=[path])
    clone.append(city_rows(500))
    clone.refresh_indexes()
    fuse.clone(f"{path}2", f"{path}3", origins=[path])
    third = fuse.Table.open(f"{path}3", origins=[path, f"{path}2"])
    origins = {
        part.origin for part in load_index_list(third.metadata, third.head().index_list).parts
    }
    assert origins <= {clone.table_id, fuse.Table.open(path).table_id}
    assert answer(third) == by_city(third.to_arrow())


def test_a_clone_of_a_clone_leaves_out_parts_of_a_table_that_has_none_of_its_blocks(
    path: str,
) -> None:
    fuse.clone(path, f"{path}2")
    clone = fuse.Table.open(f"{path}2", origins=[path])
    clone.overwrite(city_rows(700))  # no block of the first table is left, so it gets no pin
    assert len(load_index_list(clone.metadata, clone.head().index_list).parts) == 1
    fuse.clone(f"{path}2", f"{path}3", origins=[path])
    third = fuse.Table.open(f"{path}3", origins=[f"{path}2"])

    assert load_index_list(third.metadata, third.head().index_list).parts == ()
    assert answer(third) == by_city(third.to_arrow())
