"""Undoing one commit, where its blocks still stand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuse_stream.errors import ConflictError, InvalidInputError, SnapshotExpiredError
from fuse_stream.format.records import Operation
from fuse_stream.table import Table
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound
from tests.recovery.by_hand import compact
from tests.recovery.histories import keys, opened, raise_floor, rows

Create = Callable[..., Table]


@pytest.fixture
def table(create: Create) -> Table:
    """Forty commits: key n at version n, in segments that were rolled up."""
    table = create()
    for key in range(1, 41):
        table.append(rows(key))
    return table


def test_the_rows_of_an_append_go(table: Table, store: MemoryStore) -> None:
    done = table.revert(3, message="bad", author="anna")

    assert keys(table.to_arrow()) == [1, 2, *range(4, 41)]
    assert (done.version, done.operation) == (41, Operation.REVERT)
    assert (done.message, done.author) == ("bad", "anna")
    assert done.target is not None
    assert done.target.version == 3
    assert done.summary.row_count == done.summary.block_count == 39
    assert_sound(store, opened(store))
    assert table.block_diff(40, 41).removed == table.block_diff(2, 3).inserted


def test_the_rows_that_an_overwrite_removed_come_back(table: Table, store: MemoryStore) -> None:
    table.overwrite(rows(99))
    table.append(rows(100))
    table.revert(41)

    assert keys(table.to_arrow()) == [*range(1, 41), 100]
    assert_sound(store, opened(store))
    table.revert(43)
    assert keys(table.to_arrow()) == [99, 100]


def test_the_only_commit_can_be_undone(create: Create) -> None:
    table = create()
    table.append(rows(1, 2))
    table.revert(1)

    assert table.to_arrow().num_rows == 0
    assert table.head().segments == ()
    table.append(rows(3))
    assert keys(table.to_arrow()) == [3]


def test_the_ledger_stays(create: Create) -> None:
    table = create()
    table.append(rows(1), app_id="a", batch_id=4)
    table.revert(1)
    again = table.append(rows(1), app_id="a", batch_id=4)

    assert again.version == 2
    assert table.to_arrow().num_rows == 0


def test_a_commit_in_the_way_is_named(table: Table) -> None:
    table.append(rows(41))
    merged = compact(table)
    table.append(rows(42))

    with pytest.raises(ConflictError, match="in the way") as caught:
        table.revert(3)
    assert caught.value.context["in_the_way"] == merged.version
    assert caught.value.context["operation"] == "compact"
    table.revert(43)
    with pytest.raises(ConflictError, match="in the way") as caught:
        table.revert(43)
    assert caught.value.context["in_the_way"] == 44


@pytest.mark.parametrize("kind", ["create", "alter", "compact", "rewind"])
def test_a_commit_that_changed_no_row_of_its_own_is_not_undone(table: Table, kind: str) -> None:
    if kind == "alter":
        table.set_properties({"team": "a"})
    elif kind == "compact":
        compact(table)
    elif kind == "rewind":
        table.create_branch("x", 2)
        opened(table.metadata.store, "x").append(rows(7))
        table.publish("x", expected_head=40)
    version = 0 if kind == "create" else 41

    with pytest.raises(InvalidInputError, match=r"undo"):
        table.revert(version)


def test_what_has_expired_cannot_come_back(table: Table) -> None:
    table.overwrite(rows(99))
    raise_floor(table, 41)

    with pytest.raises(SnapshotExpiredError, match="cannot be undone"):
        table.revert(41)


def test_a_commit_of_another_branch_is_refused(table: Table, store: MemoryStore) -> None:
    table.create_branch("x", 2)
    opened(store, "x").append(rows(7))

    with pytest.raises(InvalidInputError, match="not in the history"):
        table.revert("x@")
