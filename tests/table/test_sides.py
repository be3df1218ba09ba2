"""The rows of a side are read by its name; those of the table are read without them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fuse_stream.errors import InvalidInputError, NotFoundError
from fuse_stream.recovery.target import Goal
from fuse_stream.table.handle import Table
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound
from tests.conftest import Create
from tests.kit.sides import commit_sides, side_rows
from tests.recovery.histories import keys, opened, rewind


@pytest.fixture
def table(create: Create) -> Table:
    """Keys 1 to 3. Version 2 brings tombstones a to c and an event; version 3 hides b."""
    table = create()
    table.append(pa.table({"k": [1, 2]}))
    commit_sides(table, {"tombstones": side_rows("a", "b", "c"), "quarantine": side_rows("x")})
    commit_sides(table, {}, hides={"tombstones": {"b"}}, rows=pa.table({"k": [3]}))
    return table


def names(table: pa.Table) -> list[str]:
    return sorted(table["key"].to_pylist())


def test_a_side_is_read_by_its_name(table: Table) -> None:
    found = table.to_arrow(side="tombstones")

    assert found.schema.names == ["key", "seq"]
    assert found["key"].to_pylist() == ["a", "c"]
    assert names(table.to_arrow(side="tombstones", version=2)) == ["a", "b", "c"]
    assert names(table.scan(side="quarantine", columns=["key"]).read_all()) == ["x"]
    assert names(table.to_arrow(side="tombstones", where="key > 'a'")) == ["c"]
    assert table.scan(side="tombstones").dataset().to_table().num_rows == 2


def test_the_table_is_read_without_its_sides(table: Table, store: MemoryStore) -> None:
    events = table.changes(0).read_all()

    assert keys(table.to_arrow()) == [1, 2, 3]
    assert sorted(events["k"].to_pylist()) == [1, 2, 3]
    assert sum(block.row_count for block in table.blocks()) == 3
    assert table.diff(1, 3).read_all()["k"].to_pylist() == [3]
    assert_sound(store, table)


@pytest.mark.parametrize("side", ["coalesced", "tombstone", "", ["tombstones"]])
def test_a_side_that_is_not_there_is_an_error_that_names_those_that_are(
    table: Table, side: str
) -> None:
    with pytest.raises(NotFoundError, match="no such side") as caught:
        table.to_arrow(side=side)

    assert caught.value.context["sides"] == ["quarantine", "tombstones"]
    with pytest.raises(NotFoundError, match=r"sides=\[\]"):
        table.to_arrow(side="tombstones", version=1)


def test_a_side_has_columns_of_its_own(table: Table) -> None:
    with pytest.raises(InvalidInputError, match="no such column"):
        table.to_arrow(side="tombstones", columns=["k"])


def test_branches_have_the_sides_and_a_publish_takes_them(table: Table, store: MemoryStore) -> None:
    table.create_branch("fix")
    fix = opened(store, "fix")
    commit_sides(fix, {"tombstones": side_rows("d")}, hides={"quarantine": {"x"}})

    assert names(table.to_arrow(side="tombstones")) == ["a", "c"]
    table.publish("fix")
    assert names(table.to_arrow(side="tombstones")) == ["a", "c", "d"]
    assert table.to_arrow(side="quarantine").num_rows == 0
    assert_sound(store, table)


def test_a_rewind_takes_the_sides_back(table: Table, store: MemoryStore) -> None:
    commit_sides(table, {"coalesced": side_rows("z")})
    rewind(table.committer, Goal(version=2))
    after_first = {side: names(table.to_arrow(side=side)) for side in table.head().sides}
    rewind(table.committer, Goal(version=1))

    assert after_first == {"quarantine": ["x"], "tombstones": ["a", "b", "c"]}
    assert table.head().sides == {}
    assert "sides" not in table.head().required_features
    assert_sound(store, table)
    assert table.fsck(deep=True).is_sound


def test_stats_count_the_rows_and_bytes_of_each_side(table: Table) -> None:
    found = table.stats()
    side = found.sides["tombstones"]

    assert found.row_count == 3
    assert (side.row_count, side.hidden_rows, side.block_count) == (2, 1, 1)
    assert side.compressed_bytes == table.head().sides["tombstones"].summary.compressed_byte_size
    assert found.sides.keys() == {"quarantine", "tombstones"}
