"""Keys and upserts: one row of each key at every version."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import fuse_stream as fuse
from fuse_stream.errors import (
    AmbiguousMergeError,
    ConflictError,
    InvalidInputError,
    SchemaMismatchError,
    StreamIdentityError,
)
from fuse_stream.format.records import Operation
from fuse_stream.objects.block_columns import BlockColumns
from fuse_stream.table.handle import Table
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound

Create = Callable[..., Table]
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("v", pa.float64())])
Key = tuple[int, ...] | tuple[int, str]


@pytest.fixture
def table(create: Create) -> Table:
    made = create(SCHEMA)
    made.upsert(rows({1: 1.0, 2: 2.0, 3: 3.0}), keys=["id"])
    return made


def rows(values: dict[int, float]) -> pa.Table:
    columns = [list(values), ["x"] * len(values), list(values.values())]
    return pa.table(columns, schema=SCHEMA)


def held(table: Table, **which: object) -> dict[int, float]:
    found = table.to_arrow(**which).to_pylist()  # type: ignore[arg-type]
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["v"] for row in found}


def test_an_upsert_replaces_rows_and_adds_others(table: Table) -> None:
    result = table.upsert(rows({2: 20.0, 4: 4.0}))

    assert (result.inserted, result.updated, result.deleted) == (1, 1, 0)
    assert held(table) == {1: 1.0, 2: 20.0, 3: 3.0, 4: 4.0}
    assert held(table, version=1) == {1: 1.0, 2: 2.0, 3: 3.0}
    assert table.head().operation is Operation.UPSERT


def test_the_feed_shows_an_upserted_row_before_and_after(table: Table) -> None:
    table.upsert(rows({2: 20.0, 4: 4.0}))

    found = table.changes(2).read_all().select(["_change_type", "id", "v"]).to_pylist()

    assert sorted(tuple(row.values()) for row in found) == [
        ("insert", 4, 4.0),
        ("update_postimage", 2, 20.0),
        ("update_preimage", 2, 2.0),
    ]


def test_rows_that_an_upsert_leaves_as_they_were_are_not_in_the_feed(table: Table) -> None:
    table.upsert(rows({1: 1.0, 2: 20.0}))

    found = table.changes(2).read_all().to_pylist()

    assert sorted(row["id"] for row in found) == [2, 2]


def test_equal_images_are_left_out_by_the_columns_that_are_read(table: Table) -> None:
    table.upsert(rows({1: 10.0}))

    assert len(table.changes(2, columns=["id", "part"]).read_all()) == 0
    assert len(table.changes(2, columns=["id", "v"]).read_all()) == 2


def test_the_first_upsert_sets_the_key_of_a_table_with_rows(create: Create) -> None:
    table = create(SCHEMA)
    table.append(rows({1: 1.0, 2: 2.0}))
    table.upsert(rows({2: 20.0}), keys=["id"])

    assert held(table) == {1: 1.0, 2: 20.0}
    assert table.head().key == (1,)


def test_without_a_key_an_upsert_is_refused(create: Create) -> None:
    with pytest.raises(InvalidInputError, match="keys="):
        create(SCHEMA).upsert(rows({1: 1.0}))


def test_another_key_than_the_tables_is_refused(table: Table) -> None:
    with pytest.raises(InvalidInputError, match="another key"):
        table.upsert(rows({1: 1.0}), keys=["part"])


def test_two_arriving_rows_of_one_key_are_refused_before_a_write(
    table: Table, store: MemoryStore
) -> None:
    doubled = pa.concat_tables([rows({7: 1.0, 8: 1.0}), rows({7: 2.0})])
    before = {info.key for info in store.list("")}

    with pytest.raises(AmbiguousMergeError) as caught:
        table.upsert(doubled)

    assert caught.value.context["doubles"] == [7]
    assert {info.key for info in store.list("")} == before


def test_a_null_in_a_key_is_refused_by_the_columns_name(table: Table) -> None:
    with pytest.raises(InvalidInputError) as caught:
        table.upsert(pa.table([[None], ["x"], [1.0]], schema=SCHEMA))

    assert caught.value.context["column"] == "id"


@pytest.mark.parametrize("operation", ["append", "overwrite"])
def test_rows_that_come_without_a_look_at_the_key_are_refused(table: Table, operation: str) -> None:
    with pytest.raises(SchemaMismatchError, match="upsert"):
        getattr(table, operation)(rows({1: 9.0}))

    assert held(table) == {1: 1.0, 2: 2.0, 3: 3.0}


def test_a_column_of_the_key_cannot_be_updated(table: Table) -> None:
    with pytest.raises(InvalidInputError, match="key"):
        table.update("id = 1", {"id": 2})


def test_a_key_that_rows_do_not_have_once_is_refused_with_examples(create: Create) -> None:
    table = create(SCHEMA)
    table.append(rows({1: 1.0, 2: 2.0}))
    table.append(rows({2: 3.0}))

    with pytest.raises(InvalidInputError) as caught:
        table.set_key(["id"])

    assert caught.value.context["doubles"] == [2]
    assert table.head().key == ()


def test_a_table_without_its_key_takes_appends_again(table: Table) -> None:
    table.set_key([])
    table.append(rows({1: 9.0}))

    assert table.head().summary.row_count == 4
    assert table.head().required_features == ("line", "own_hash")


def test_a_repeated_batch_is_a_replay_and_other_rows_are_refused(table: Table) -> None:
    first = table.upsert(rows({1: 10.0}), app_id="a", batch_id=0)
    again = table.upsert(rows({1: 10.0}), app_id="a", batch_id=0)

    assert first.snapshot is not None
    assert again.snapshot is not None
    assert again.snapshot.replayed
    assert again.snapshot.version == first.snapshot.version
    with pytest.raises(StreamIdentityError):
        table.upsert(rows({1: 11.0}), app_id="a", batch_id=0)


@pytest.mark.parametrize(
    ("value", "same"), [(float("nan"), float("nan")), (-0.0, 0.0)], ids=["nan", "zero"]
)
def test_keys_are_equal_if_spark_groups_them_together(
    create: Create, value: float, same: float
) -> None:
    schema = pa.schema([("k", pa.float64()), ("v", pa.int64())])
    table = create(schema)
    table.upsert(pa.table([[value, 1.0], [1, 2]], schema=schema), keys=["k"])
    table.upsert(pa.table([[same], [3]], schema=schema))

    assert sorted(table.to_arrow()["v"].to_pylist()) == [2, 3]


def test_a_revert_of_an_upsert_brings_the_old_rows_back(table: Table) -> None:
    table.upsert(rows({2: 20.0, 4: 4.0}))
    table.revert(2)

    assert held(table) == {1: 1.0, 2: 2.0, 3: 3.0}


def test_a_revert_that_would_bring_a_second_row_of_a_key_is_refused(table: Table) -> None:
    table.delete("id = 2")
    table.upsert(rows({2: 5.0}))

    with pytest.raises(ConflictError, match="keys"):
        table.revert(2)

    assert held(table) == {1: 1.0, 2: 5.0, 3: 3.0}


def test_a_rewind_to_before_the_key_takes_it_away(tmp_path: Path) -> None:
    table = Table.create(tmp_path, SCHEMA)
    table.append(rows({1: 1.0}))
    table.upsert(rows({1: 2.0}), keys=["id"])
    fuse.rewind(tmp_path, version=1)
    table.append(rows({1: 3.0}))

    assert table.head().summary.row_count == 2


def test_key_columns_are_read_once(table: Table) -> None:
    counting = FaultyStore(table.metadata.store)
    cache = BlockColumns(counting)
    block = table.blocks()[0]
    whole = table.head().schema
    key = dataclasses.replace(whole, columns=whole.columns[:1])
    first = next(cache.iter_tables([block], key))
    before = len(counting.calls)

    assert next(cache.iter_tables([block], key)).equals(first)
    assert len(counting.calls) == before
    assert next(cache.iter_tables([block], whole)).equals(table.to_arrow())
    assert len(counting.calls) == before + 1


def test_a_cache_without_room_keeps_nothing(table: Table) -> None:
    counting = FaultyStore(table.metadata.store)
    cache = BlockColumns(counting, limit=1)
    block = table.blocks()[0]
    for _ in range(2):
        next(cache.iter_tables([block], table.head().schema))

    assert len(counting.calls) == 2


@pytest.mark.parametrize("seed", range(12))
def test_one_row_of_each_key_is_there_after_any_verbs(
    create: Create, store: MemoryStore, seed: int
) -> None:
    draw = random.Random(seed)
    names = ["id", "part"] if seed % 2 else ["id"]
    is_clustered = seed % 3 == 0
    table = create(
        SCHEMA, cluster_by=["v"] if is_clustered else [], properties={"fuse.block.rows": "7"}
    )
    expected: dict[Key, float] = {}
    for _ in range(25):
        match draw.choice(["upsert"] * 4 + ["delete", "update", "compact", "recluster"]):
            case "upsert":
                arriving: dict[Key, float] = {
                    (draw.randrange(30), draw.choice("ab") if len(names) == 2 else "x"): v
                    for v in (draw.random() for _ in range(draw.randrange(1, 20)))
                }
                columns = [*zip(*arriving, strict=True), list(arriving.values())]
                result = table.upsert(pa.table(columns, schema=SCHEMA), keys=names)
                assert result.updated == len(arriving.keys() & expected.keys())
                assert result.inserted == len(arriving) - result.updated
                expected |= arriving
            case "delete":
                least = draw.randrange(12)
                table.delete(f"id < {least}")
                expected = {key: v for key, v in expected.items() if key[0] >= least}
            case "update":
                low = draw.randrange(30)
                table.update(f"id BETWEEN {low} AND {low + 3}", {"v": 9.5})
                expected = {
                    key: 9.5 if low <= key[0] <= low + 3 else v for key, v in expected.items()
                }
            case "compact":
                table.compact()
            case _ if is_clustered:
                table.recluster()
        found = [(row["id"], row["part"], row["v"]) for row in table.to_arrow().to_pylist()]
        assert Counter(found) == Counter((*key, v) for key, v in expected.items())
        assert table.head().summary.row_count == len(found)
    assert_sound(store, table)
    summed: Counter[object] = Counter()
    for row in table.changes(1).read_all().to_pylist():
        is_added = row["_change_type"] in {"insert", "update_postimage"}
        summed[row["id"], row["part"], row["v"]] += 1 if is_added else -1
    assert all(count >= 0 for count in summed.values())
    assert +summed == Counter((*key, v) for key, v in expected.items())
