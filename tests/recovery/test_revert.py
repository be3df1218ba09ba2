"""Revert one commit whose blocks still exist."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pytest

from fuse_stream.errors import (
    ConflictError,
    InvalidInputError,
    SchemaMismatchError,
    SnapshotExpiredError,
)
from fuse_stream.format.records import Operation
from fuse_stream.recovery.target import Goal
from fuse_stream.table.handle import Table
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound
from tests.kit.strides import seeds
from tests.recovery.by_hand import compact
from tests.recovery.histories import keys, opened, raise_floor, rewind, rows

Create = Callable[..., Table]


@pytest.fixture
def table(create: Create) -> Table:
    """Forty commits: key n at version n, in segments that were rolled up."""
    table = create()
    for key in range(1, 41):
        table.append(rows(key))
    return table


def test_a_revert_of_an_append_removes_its_rows(table: Table, store: MemoryStore) -> None:
    done = table.revert(3, message="bad", author="anna")

    assert keys(table.to_arrow()) == [1, 2, *range(4, 41)]
    assert (done.version, done.operation) == (41, Operation.REVERT)
    assert (done.message, done.author) == ("bad", "anna")
    assert done.target is not None
    assert done.target.version == 3
    assert done.summary.row_count == done.summary.block_count == 39
    assert_sound(store, opened(store))
    assert table.block_diff(40, 41).removed == table.block_diff(2, 3).inserted


def test_a_revert_of_an_overwrite_restores_the_removed_rows(
    table: Table, store: MemoryStore
) -> None:
    table.overwrite(rows(99))
    table.append(rows(100))
    table.revert(41)

    assert keys(table.to_arrow()) == [*range(1, 41), 100]
    assert_sound(store, opened(store))
    table.revert(43)
    assert keys(table.to_arrow()) == [99, 100]


def test_restored_rows_take_the_position_of_the_removed_ones(
    table: Table, store: MemoryStore
) -> None:
    table.overwrite(rows(99))
    table.append(rows(100))
    done = table.revert(41)

    assert table.to_arrow()["k"].to_pylist() == [*range(1, 41), 100]
    assert len(done.added) == 1
    assert done.segments[1:] == table.snapshot(42).segments[1:]
    assert_sound(store, opened(store))


def test_the_only_commit_can_be_reverted(create: Create) -> None:
    table = create()
    table.append(rows(1, 2))
    table.revert(1)

    assert table.to_arrow().num_rows == 0
    assert table.head().segments == ()
    table.append(rows(3))
    assert keys(table.to_arrow()) == [3]


def test_a_revert_keeps_the_ledger(create: Create) -> None:
    table = create()
    table.append(rows(1), app_id="a", batch_id=4)
    table.revert(1)
    again = table.append(rows(1), app_id="a", batch_id=4)

    assert again.version == 2
    assert table.to_arrow().num_rows == 0


def test_a_later_commit_that_prevents_the_revert_is_named(table: Table) -> None:
    table.append(rows(41))
    merged = compact(table)
    table.append(rows(42))

    with pytest.raises(ConflictError, match="a later commit") as caught:
        table.revert(3)
    assert caught.value.context["in_the_way"] == merged.version
    assert caught.value.context["operation"] == "compact"
    table.revert(43)
    with pytest.raises(ConflictError, match="a later commit") as caught:
        table.revert(43)
    assert caught.value.context["in_the_way"] == 44


@pytest.mark.parametrize("kind", ["create", "alter", "compact", "rewind"])
def test_a_commit_without_row_changes_is_not_reverted(table: Table, kind: str) -> None:
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


def test_an_expired_commit_is_not_reverted(table: Table) -> None:
    table.overwrite(rows(99))
    raise_floor(table, 41)

    with pytest.raises(SnapshotExpiredError, match="cannot be undone"):
        table.revert(41)


def test_a_commit_of_another_branch_is_refused(table: Table, store: MemoryStore) -> None:
    table.create_branch("x", 2)
    opened(store, "x").append(rows(7))

    with pytest.raises(InvalidInputError, match="not in the history"):
        table.revert("x@")


def add(table: Table, **columns: object) -> None:
    table.append(pa.table(columns), merge_schema=True)


@pytest.fixture
def narrowed(create: Create) -> Table:
    """Version 3 removed rows, one of them with the column b, which the rewind then dropped."""
    table = create()
    add(table, k=[1])
    add(table, k=[2], b=["x"])
    table.overwrite(table.schema.empty_table())
    rewind(table.committer, Goal(version=0))
    return table


def test_a_column_that_a_rewind_dropped_is_restored_with_its_rows(
    narrowed: Table, store: MemoryStore
) -> None:
    done = narrowed.revert(3)

    assert narrowed.to_arrow().equals(narrowed.to_arrow(version=2))
    assert [(column.id, column.name) for column in done.schema.columns] == [(1, "k"), (2, "b")]
    assert done.schema.id > narrowed.snapshot(4).schema.id
    assert narrowed.to_arrow(where="b = 'x'").num_rows == 1
    add(narrowed, k=[9], b=["y"])
    compact(narrowed)
    assert narrowed.to_arrow().sort_by("k")["b"].to_pylist() == [None, "x", "y"]
    assert_sound(store, opened(store))


def test_a_column_that_no_restored_block_holds_is_not_restored(create: Create) -> None:
    table = create()
    table.append(rows(1))
    add(table, k=pa.array([], pa.int64()), b=pa.array([], pa.string()))
    table.overwrite(table.schema.empty_table())
    rewind(table.committer, Goal(version=0))

    assert table.revert(3).schema.names() == ("k",)
    assert keys(table.to_arrow()) == [1]


@pytest.mark.parametrize("name", ["b", "B"])
def test_a_revert_that_would_give_two_columns_one_name_is_refused(
    narrowed: Table, name: str
) -> None:
    add(narrowed, k=[3], **{name: ["new"]})
    before = narrowed.head()

    with pytest.raises(SchemaMismatchError, match=r"Rewind.*column='b'.*version=3, head=5"):
        narrowed.revert(3)
    assert narrowed.head() == before
    gone = narrowed.diff(3, 2).read_all().drop_columns("_change_type")
    add(narrowed, k=gone["k"], **{name: gone["b"]})  # as the error says
    assert narrowed.to_arrow().sort_by("k")[name].to_pylist() == [None, "x", "new"]


def test_a_narrower_column_is_widened_for_the_restored_rows(create: Create) -> None:
    table = create(pa.schema([("k", pa.int16())]))
    add(table, k=pa.array([1], pa.int16()))
    add(table, k=[2**40])
    table.overwrite(table.schema.empty_table())
    rewind(table.committer, Goal(version=1))
    table.revert(1)
    table.revert(3)

    assert keys(table.to_arrow()) == [1, 2**40]


def test_columns_that_were_widened_differently_are_refused(create: Create) -> None:
    def decimals(*values: str, scale: int) -> pa.Array:
        return pa.array([Decimal(value) for value in values], pa.decimal128(6, scale))

    table = create(pa.schema([("d", pa.decimal128(4, 1))]))
    add(table, d=decimals("10000.5", scale=1))
    table.overwrite(table.schema.empty_table())
    rewind(table.committer, Goal(version=0))
    add(table, d=decimals("1.125", scale=3))

    with pytest.raises(SchemaMismatchError, match=r"column='d', table='decimal\(6,3\)'"):
        table.revert(2)


def test_a_field_of_a_struct_is_restored_in_its_struct(create: Create) -> None:
    table = create(pa.schema([("s", pa.struct([("x", pa.int64())]))]))
    add(table, s=[{"x": 1, "y": "old"}])
    table.overwrite(table.schema.empty_table())
    rewind(table.committer, Goal(version=0))
    add(table, s=[{"x": 2}])
    table.revert(2)

    assert table.to_arrow().to_pylist() == [
        {"s": {"x": 2, "y": None}},
        {"s": {"x": 1, "y": "old"}},
    ]


def clear(table: Table) -> None:
    table.overwrite(rows())


def take_back_the_last_append(table: Table) -> None:
    table.revert(2)


def revert_it(table: Table) -> None:
    table.revert(3)


def rewind_before_it(table: Table) -> None:
    rewind(table.committer, Goal(version=2))


@pytest.mark.parametrize("restore", [revert_it, rewind_before_it])
@pytest.mark.parametrize("remove", [clear, take_back_the_last_append])
def test_rows_that_are_back_and_were_rewritten_do_not_come_back_again(
    create: Create, remove: Callable[[Table], None], restore: Callable[[Table], None]
) -> None:
    table = create()
    table.append(rows(1))
    table.append(rows(2))
    remove(table)
    restore(table)
    compact(table)

    with pytest.raises(ConflictError) as caught:
        table.revert(3)

    assert caught.value.context["in_the_way"] == 4
    assert keys(table.to_arrow()) == [1, 2]


def test_rows_that_were_back_and_are_gone_again_can_be_restored(create: Create) -> None:
    table = create()
    table.append(rows(1))
    table.append(rows(2))
    clear(table)
    table.append(rows(3))
    table.revert(3)
    table.revert(5)
    compact(table)
    table.revert(3)

    assert keys(table.to_arrow()) == [1, 2, 3]


def test_rows_that_a_rewind_has_in_blocks_of_before_do_not_come_back_again(create: Create) -> None:
    table = create()
    table.append(rows(1))
    table.append(rows(2))
    compact(table)
    clear(table)
    rewind(table.committer, Goal(version=1))

    with pytest.raises(ConflictError):
        table.revert(4)
    assert keys(table.to_arrow()) == [1]


def clear_and_rewind(table: Table) -> None:
    clear(table)
    rewind(table.committer, Goal(after_batch=1, application="a"), retire=["a"])


def revert_and_rewind(table: Table) -> None:
    table.revert(2)
    rewind(table.committer, Goal(after_batch=1, application="a"), retire=["a"])


def revert_and_publish(table: Table) -> None:
    table.create_branch("fix", 1)
    table.revert(2)
    opened(table.metadata.store, "fix").append(rows(2), app_id="a", batch_id=2)
    table.publish("fix", expected_head=3)


@pytest.mark.parametrize("is_delivered", [True, False])
@pytest.mark.parametrize("undo", [clear_and_rewind, revert_and_rewind, revert_and_publish])
def test_rows_of_a_batch_that_went_back_do_not_come_back_beside_it(
    create: Create, undo: Callable[[Table], None], *, is_delivered: bool
) -> None:
    table = create()
    table.append(rows(1), app_id="a", batch_id=1)
    table.append(rows(2), app_id="a", batch_id=2)
    undo(table)
    if is_delivered:
        table.append(rows(2), app_id="a", batch_id=2)
    before = keys(table.to_arrow())

    with pytest.raises(ConflictError, match="went back to before the batches") as raised:
        table.revert(3)
    assert raised.value.context["in_the_way"] == 4
    assert keys(table.to_arrow()) == before


MOVES = {"append": 4, "overwrite": 2, "compact": 3, "rewind": 2, "revert": 5}


@pytest.mark.parametrize("is_numbered", [False, True])
@seeds(20, 50)
def test_no_order_of_reverts_rewinds_and_compactions_doubles_a_row(
    create: Create, seed: int, *, is_numbered: bool
) -> None:
    """A revert that is accepted removes what its commit added, and adds what it removed.

    With numbered batches, those after the one to which the table was rewound are delivered again.
    """
    chance, table = random.Random(seed), create()
    table.append(rows(0))
    contents: list[set[int]] = [set(), {0}]  # by version
    for step in range(1, 20):
        key, head = step, table.head().version
        version, expected = chance.randint(1, head), contents[-1]
        (move,) = chance.choices(list(MOVES), list(MOVES.values()))
        try:
            match move:
                case "append":
                    entry = table.ledger().get(("a", ""))
                    number = 100 + (entry.batch_id if entry else 0) % 100 + 1
                    if is_numbered:
                        key = number
                        table.append(rows(key), app_id="a", batch_id=number)
                    else:
                        table.append(rows(key))
                    expected = expected | {key}
                case "overwrite":
                    expected = chance.choice([{key}, set()])
                    table.overwrite(rows(*expected))
                case "compact" if expected:
                    compact(table)
                case "rewind":
                    rewind(table.committer, Goal(version=version), retire=["*"])
                    expected = contents[version]
                case "revert":
                    removing = [v for v in range(1, head + 1) if contents[v - 1] - contents[v]]
                    if is_numbered and removing:
                        version = chance.choice(removing)
                    added = contents[version] - contents[version - 1]
                    removed = contents[version - 1] - contents[version]
                    table.revert(version)
                    expected = expected - added | removed
        except (ConflictError, InvalidInputError):
            expected = contents[-1]
        contents += [expected] * (table.head().version - head)
        assert keys(table.to_arrow()) == sorted(contents[-1])


def test_a_revert_of_an_overwrite_brings_no_row_back_that_was_deleted_before(
    create: Create, store: MemoryStore
) -> None:
    table = create()
    table.append(rows(1))
    table.append(rows(2, 3))
    table.delete("k IN (1, 2)")
    table.overwrite(rows(9))
    table.revert(4)

    assert keys(table.to_arrow()) == [3]
    assert len(table.blocks()) == 1
    assert_sound(store, opened(store))
    table.revert(3)
    assert keys(table.to_arrow()) == [1, 2, 3]
    assert_sound(store, opened(store))


def test_an_overwrite_removes_no_block_in_the_feed_that_shows_no_row(create: Create) -> None:
    table = create()
    table.append(rows(1))
    table.append(rows(2, 3))
    table.delete("k = 1")
    table.overwrite(rows(9))

    assert [block.live_rows for block in table.block_diff(3, 4).removed] == [2]
    assert [block.row_count for block in table.block_diff(2, 1).removed] == [2]


def test_a_handle_that_reverted_sees_what_other_handles_see(
    create: Create, store: MemoryStore
) -> None:
    table = create()
    table.append(rows(1, 2))
    table.delete("k = 1")
    table.overwrite(rows(9))
    table.revert(3)
    table.revert(2)

    assert keys(table.to_arrow()) == keys(opened(store).to_arrow()) == [1, 2]
