"""A clone has the sides of its source; their blocks stay in the origin until they are rewritten."""

from __future__ import annotations

import pytest

from fuse_stream.errors import InvalidInputError
from fuse_stream.objects.snapshot_blocks import iter_blocks
from fuse_stream.table.handle import Table
from fuse_stream.testing.memory import MemoryStore
from tests.conftest import Create
from tests.kit.sides import commit_sides, keys_of, side_rows
from tests.recovery.histories import rows
from tests.refs.test_clone import made, of


@pytest.fixture
def place() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def table(create: Create) -> Table:
    table = create()
    commit_sides(table, {"tombstones": side_rows("a", "b", "c")}, rows=rows(1))
    commit_sides(table, {"quarantine": side_rows("x")}, hides={"tombstones": {"b"}})
    return table


def test_a_clone_has_the_sides_of_its_source(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    made(store, place)
    clone = of(place, store)
    source, head = table.head(), clone.head()

    assert keys_of(clone, "tombstones") == {"a": 1, "c": 1}
    assert keys_of(clone, "quarantine") == {"x": 1}
    assert {name: side.summary for name, side in head.sides.items()} == {
        name: side.summary for name, side in source.sides.items()
    }
    assert {block.origin for block in iter_blocks(clone.metadata, head.side("tombstones"))} == {
        table.table_id
    }
    own = {ref.id for side in head.sides.values() for ref in side.segments + side.deletion_files}
    assert not own & {
        ref.id for side in source.sides.values() for ref in side.segments + side.deletion_files
    }
    assert not list(place.list("_b/"))
    assert clone.fsck().is_sound


def test_a_clone_changes_its_own_sides_alone(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    made(store, place)
    clone = of(place, store)
    commit_sides(clone, {"tombstones": side_rows("d")}, hides={"tombstones": {"a"}})
    clone.compact()

    assert keys_of(clone, "tombstones") == {"c": 1, "d": 1}
    assert keys_of(table, "tombstones") == {"a": 1, "c": 1}
    assert clone.fsck(deep=True).is_sound


def test_a_clone_of_a_clone_names_every_origin_of_a_side(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    made(store, place)
    clone = of(place, store)
    clone.overwrite(rows(9))  # so that only the sides name blocks of the first table
    third = MemoryStore()
    done = made(place, third, store)
    again = of(third, place, store)

    assert [table_id for table_id, _ in done.origins] == [clone.table_id, table.table_id]
    assert keys_of(again, "tombstones") == {"a": 1, "c": 1}
    with pytest.raises(InvalidInputError, match="origin"):
        keys_of(of(third), "tombstones")
