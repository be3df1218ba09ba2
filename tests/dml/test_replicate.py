"""A change feed, applied to another table, makes it equal to the table that is fed."""

from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa
import pytest

from fuse_stream.errors import ConflictError, InvalidInputError, SchemaMismatchError
from fuse_stream.format.records import Operation
from fuse_stream.table.handle import Table
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound, rows_of

Create = Callable[..., Table]
SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("s", pa.string())])
VALUES = [(1, 1.0, "a"), (1, 1.0, "a"), (2, float("nan"), None), (3, -0.0, "b"), (None, None, "")]


@pytest.fixture
def first(create: Create) -> Table:
    return create(SCHEMA, properties={"fuse.block.rows": "3"})


@pytest.fixture
def second(create: Create) -> Table:
    return create(SCHEMA, at=MemoryStore(), properties={"fuse.block.rows": "4"})


def rows(*values: tuple[object, ...]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, value, strict=True)) for value in values], schema=SCHEMA
    )


def shown(table: Table) -> object:
    """Return the rows of a table; NaN as text, so that it equals itself."""
    return rows_of(table.to_arrow().set_column(1, "x", table.to_arrow()["x"].cast(pa.string())))


def test_a_table_follows_another_commit_by_commit(first: Table, second: Table) -> None:
    first.append(rows(*VALUES))
    first.delete("k = 1")
    first.append(rows(*VALUES))
    first.update("k = 2", {"s": "new"})
    first.compact()
    for version in range(1, first.head().version + 1):
        second.replicate(first.changes(version, version))

        assert shown(second) == rows_of_version(first, version)


def rows_of_version(table: Table, version: int) -> object:
    found = table.to_arrow(version=version)
    return rows_of(found.set_column(1, "x", found["x"].cast(pa.string())))


def test_of_equal_rows_as_many_go_as_the_feed_deletes(first: Table, second: Table) -> None:
    second.append(rows(*[(1, 1.0, "a")] * 5))
    result = second.replicate(changes("delete", (1, 1.0, "a"), (1, 1.0, "a")))

    assert (result.deleted, result.inserted) == (2, 0)
    assert second.head().summary.row_count == 3
    assert second.head().operation is Operation.REPLICATE


def changes(kind: str, *values: tuple[object, ...]) -> pa.Table:
    found = rows(*values)
    return found.append_column("_change_type", pa.array([kind] * len(found)))


def test_what_a_batch_inserts_and_deletes_cancels_out(second: Table) -> None:
    both = pa.concat_tables([changes("insert", VALUES[2]), changes("delete", VALUES[2])])

    assert second.replicate(both).snapshot is None
    assert second.head().version == 0


def test_changes_without_deletes_are_an_append(second: Table) -> None:
    result = second.replicate(changes("insert", *VALUES))

    assert result.inserted == 5
    assert second.head().operation is Operation.APPEND


def test_a_row_that_is_not_there_is_an_error_and_nothing_changes(second: Table) -> None:
    second.append(rows(VALUES[0]))

    with pytest.raises(ConflictError, match="does not have") as caught:
        second.replicate(changes("delete", VALUES[0], VALUES[0]))

    assert caught.value.context["rows"] == 1
    assert second.head().version == 1


@pytest.mark.parametrize(
    ("table", "match"),
    [(rows(VALUES[0]), "_change_type"), (changes("upserted", VALUES[0]), "another value")],
    ids=["no kind", "unknown kind"],
)
def test_rows_that_are_no_feed_are_refused(second: Table, table: pa.Table, match: str) -> None:
    with pytest.raises(InvalidInputError, match=match):
        second.replicate(table)


def test_a_table_with_a_key_is_not_replicated_into(second: Table) -> None:
    second.set_key(["k"])

    with pytest.raises(SchemaMismatchError, match="upsert"):
        second.replicate(changes("insert", VALUES[0]))


@pytest.mark.parametrize("seed", range(15))
def test_a_table_equals_the_one_that_it_follows_after_any_verbs(
    first: Table, second: Table, store: MemoryStore, seed: int
) -> None:
    draw = random.Random(seed)
    done = 0
    for _ in range(20):
        match draw.choice(["append"] * 3 + ["delete", "update", "overwrite", "compact", "follow"]):
            case "append":
                first.append(rows(*draw.choices(VALUES, k=draw.randrange(1, 8))))
            case "delete":
                first.delete(draw.choice(["k = 1", "k IS NULL", "s = 'b'", "x > 1"]))
            case "update":
                first.update(draw.choice(["k = 1", "k = 3"]), {"s": draw.choice(["u", "v"])})
            case "overwrite":
                first.overwrite(rows(*draw.choices(VALUES, k=3)))
            case "compact":
                draw.choice([first, second]).compact()
            case _ if first.head().version > done:
                second.replicate(first.changes(done + 1))
                done = first.head().version
                assert shown(second) == shown(first)
    if first.head().version > done:
        second.replicate(first.changes(done + 1))
    assert shown(second) == shown(first)
    assert_sound(store, first)
    assert_sound(second.metadata.store, second)
