"""A revert undoes what its commit did to the sides, by the same difference as to the table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fuse_stream.errors import ConflictError, InvalidInputError
from fuse_stream.format.records import Operation
from fuse_stream.table.handle import Table
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound
from tests.conftest import Create
from tests.kit.sides import commit_sides, keys_of, side_rows
from tests.recovery.histories import keys, rows


@pytest.fixture
def table(create: Create) -> Table:
    """Version 2 has key 2, tombstones c and d instead of a, and the first event in quarantine."""
    table = create()
    commit_sides(table, {"tombstones": side_rows("a", "b")}, rows=rows(1))
    commit_sides(
        table,
        {"tombstones": side_rows("c", "d"), "quarantine": side_rows("x")},
        hides={"tombstones": {"a"}},
        rows=rows(2),
    )
    return table


def sides(table: Table) -> dict[str, list[str]]:
    return {name: sorted(keys_of(table, name).elements()) for name in table.head().sides}


def test_a_revert_takes_back_the_rows_of_the_table_and_of_its_sides(
    table: Table, store: MemoryStore
) -> None:
    table.append(rows(3))
    commit_sides(table, {"tombstones": side_rows("e")})
    table.revert(2)

    assert keys(table.to_arrow()) == [1, 3]
    assert sides(table) == {"tombstones": ["a", "b", "e"]}
    assert_sound(store, table)
    assert table.fsck(deep=True).is_sound


def test_a_revert_of_a_revert_brings_all_back(table: Table, store: MemoryStore) -> None:
    before = sides(table)
    table.revert(2)
    table.revert(3)

    assert keys(table.to_arrow()) == [1, 2]
    assert sides(table) == before
    assert_sound(store, table)
    assert table.fsck(deep=True).is_sound


def test_a_commit_of_side_rows_alone_can_be_undone(table: Table) -> None:
    new = commit_sides(table, {"coalesced": side_rows("z")})
    undone = table.revert(new.version)

    assert undone.operation is Operation.REVERT
    assert not undone.data_change
    assert "coalesced" not in table.head().sides
    assert table.changes(undone.version).read_all().num_rows == 0


def test_an_append_beside_sides_is_undone_as_without_them(table: Table) -> None:
    before = sides(table)
    table.append(pa.table({"k": [7]}))
    table.revert(3)

    assert keys(table.to_arrow()) == [1, 2]
    assert sides(table) == before


@pytest.mark.parametrize("gone", [{"c"}, {"c", "d"}])
def test_side_rows_that_a_later_commit_hid_stand_in_the_way(table: Table, gone: set[str]) -> None:
    commit_sides(table, {}, hides={"tombstones": gone})
    with pytest.raises(ConflictError) as caught:
        table.revert(2)

    assert caught.value.context["in_the_way"] == 3
    assert caught.value.context["side"] == "tombstones"


def test_a_compaction_of_the_side_stands_in_the_way(table: Table) -> None:
    assert table.compact().snapshot is not None
    with pytest.raises(ConflictError, match="Revert the later commit first"):
        table.revert(2)


def test_rows_that_came_back_and_were_compacted_do_not_come_back_twice(create: Create) -> None:
    table = create()
    commit_sides(table, {"tombstones": side_rows("a", "b")})
    commit_sides(table, {}, hides={"tombstones": {"a"}})
    table.revert(2)
    commit_sides(table, {"tombstones": side_rows("c")})
    table.compact()

    with pytest.raises(ConflictError):
        table.revert(2)
    assert sides(table) == {"tombstones": ["a", "b", "c"]}


def test_a_commit_that_changed_neither_rows_nor_sides_cannot_be_undone(table: Table) -> None:
    table.set_properties({"a": "b"})
    with pytest.raises(InvalidInputError, match="changed no row"):
        table.revert(3)


def test_a_revert_of_a_revert_brings_a_side_back_that_was_dropped(create: Create) -> None:
    table = create()
    commit_sides(table, {"tombstones": side_rows("a")})
    table.revert(1)
    dropped = dict(table.head().sides)
    table.revert(2)

    assert dropped == {}
    assert sides(table) == {"tombstones": ["a"]}
