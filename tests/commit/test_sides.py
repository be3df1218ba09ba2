"""A commit brings rows to the sides of a snapshot; the table's own rows do not change by that."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pyarrow as pa
import pytest

from fuse_stream.commit.plan import Intent, Staged
from fuse_stream.commit.stage import stage_side
from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.features import DELETION_FILES, SIDES
from fuse_stream.format.records import Operation
from fuse_stream.format.schema import Column
from fuse_stream.objects.slots import Stored
from fuse_stream.table.handle import Table
from fuse_stream.testing.memory import MemoryStore
from tests.kit.sides import SIDE_SCHEMA, commit_sides, keys_of, side_rows
from tests.recovery.histories import opened

Create = Callable[..., Table]


@pytest.fixture
def table(create: Create) -> Table:
    found = create(cluster_by=["k"])
    found.append(pa.table({"k": [2, 1]}))
    return found


def test_rows_of_sides_come_in_the_commit_of_the_rows(table: Table) -> None:
    brought = {"tombstones": side_rows("b", "a"), "quarantine": side_rows("x")}

    new = commit_sides(table, brought, rows=pa.table({"k": [3]}))

    assert new.summary.row_count == 3
    assert {name: side.summary.row_count for name, side in new.sides.items()} == {
        "quarantine": 1,
        "tombstones": 2,
    }
    assert list(keys_of(table, "tombstones")) == ["b", "a"]
    assert SIDES in new.required_features
    assert new.operation is Operation.APPEND


def test_a_commit_of_side_rows_alone_changes_no_data(table: Table) -> None:
    before = table.head()

    new = commit_sides(table, {"quarantine": side_rows("x")})

    assert not new.data_change
    assert (new.segments, new.summary, new.added) == (before.segments, before.summary, ())
    assert table.changes(new.version).read_all().num_rows == 0


def test_a_side_grows_and_hides_rows(table: Table) -> None:
    commit_sides(table, {"tombstones": side_rows("a", "b", "c")})

    new = commit_sides(table, {"tombstones": side_rows("d")}, hides={"tombstones": {"a", "c"}})

    side = new.sides["tombstones"]
    assert keys_of(table, "tombstones") == {"b": 1, "d": 1}
    assert (side.summary.row_count, side.summary.block_count) == (2, 2)
    assert side.summary.col_stats[1].min == "a"
    assert len(side.deletion_files) == 1
    assert (new.deletion_files, new.deletion_files_added) == ((), ())
    assert {DELETION_FILES, SIDES} <= set(new.required_features)


def test_a_commit_that_brings_nothing_to_a_side_creates_none(table: Table) -> None:
    new = commit_sides(table, {"coalesced": None})

    assert new.sides == {}
    assert SIDES not in new.required_features


def test_other_commits_keep_the_sides(table: Table) -> None:
    sides = commit_sides(table, {"tombstones": side_rows("a")}).sides

    table.append(pa.table({"k": [5]}))
    table.delete("k = 5")
    table.set_properties({"owner": "me"})
    table.overwrite(pa.table({"k": [9]}))

    assert table.head().sides == sides


def test_a_side_gets_columns_and_loses_none(table: Table) -> None:
    commit_sides(table, {"tombstones": side_rows("a")})
    wide = dataclasses.replace(
        SIDE_SCHEMA,
        id=1,
        last_column_id=3,
        columns=(*SIDE_SCHEMA.columns, Column(id=3, name="why", type="string")),
    )

    new = commit_sides(table, {"tombstones": side_rows("b", schema=wide)}, schema=wide)

    assert new.sides["tombstones"].schema == wide
    assert keys_of(table, "tombstones") == {"a": 1, "b": 1}
    narrow = dataclasses.replace(SIDE_SCHEMA, id=2, last_column_id=3)
    with pytest.raises(CorruptObjectError, match="lost the columns"):
        commit_sides(table, {"tombstones": side_rows("c")}, schema=narrow)


def test_a_name_that_no_side_has_is_not_committed(table: Table) -> None:
    with pytest.raises(CorruptObjectError, match="no side has this name"):
        commit_sides(table, {"keepsakes": side_rows("a")})

    assert table.head().version == 1


def test_two_writers_of_one_side_keep_the_rows_of_both(create: Create, store: MemoryStore) -> None:
    table = create()
    commit_sides(table, {"tombstones": side_rows("a", "b")})
    other = opened(store)
    staged: list[int] = []

    def stage(on: Stored, _: Staged | None) -> Staged:
        staged.append(on.snapshot.version)
        if len(staged) == 1:
            commit_sides(other, {"tombstones": side_rows("d")}, hides={"tombstones": {"a"}})
        side = stage_side(table.metadata, on.snapshot, SIDE_SCHEMA, [side_rows("c")])
        return Staged(schema=on.snapshot.schema, sides={"tombstones": side})

    table.committer.commit(Intent(operation=Operation.MERGE), stage)

    assert keys_of(table, "tombstones") == {"b": 1, "c": 1, "d": 1}
    assert staged == [1, 2]
