"""An aggregate is exact at every version, whatever its index covers, and in nobody's way."""

from __future__ import annotations

import dataclasses
import io
import logging
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fuse_stream.errors import (
    AlreadyExistsError,
    CorruptObjectError,
    InvalidInputError,
    NotFoundError,
    NumberOverflowError,
    SnapshotExpiredError,
)
from fuse_stream.format.indexes import MAX_PART_BLOCKS
from fuse_stream.format.layout import (
    AGGREGATES_PREFIX,
    BLOCKS_PREFIX,
    INDEX_LISTS_PREFIX,
    SLOTS_PREFIX,
    aggregates_key,
    index_list_key,
)
from fuse_stream.indexes.define import commit_indexes
from fuse_stream.objects.indexes import load_index_list
from fuse_stream.storage.wrappers import StoreWrapper
from fuse_stream.table.handle import Table
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryObject, MemoryStore
from fuse_stream.testing.tables import open_table_in, temporary_table
from tests.kit.indexes import (
    BLOCK_ROWS,
    NAME,
    SCHEMA,
    SQL,
    answer,
    by_city,
    city_rows,
    covered,
    covered_table,
)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def table(store: MemoryStore) -> Table:
    return covered_table(store)


def blocks_read(store: MemoryStore, **where: Any) -> int:
    """Return how many blocks an answer reads."""
    counted = FaultyStore(store)
    answer(open_table_in(counted), **where)
    return len({key for _, key in counted.calls if key.startswith(BLOCKS_PREFIX)})


def keys_under(store: MemoryStore, prefix: str) -> list[str]:
    return sorted(key for key in store.objects if key.startswith(prefix))


# ---- what is covered is not read


def test_an_answer_of_covered_blocks_reads_no_row(store: MemoryStore, table: Table) -> None:
    assert covered(table) == 3
    assert answer(table) == by_city(table.to_arrow())
    assert blocks_read(store) == 0


def test_new_small_blocks_are_read_and_counted(store: MemoryStore, table: Table) -> None:
    table.append(city_rows(1_000, 3))
    assert table.refresh_indexes().snapshot is None

    assert answer(table) == by_city(table.to_arrow())
    assert blocks_read(store) == 1


def test_a_delete_spoils_one_block_only(store: MemoryStore, table: Table) -> None:
    table.delete("x = 5")

    assert answer(table) == by_city(table.to_arrow())
    assert (blocks_read(store), covered(table)) == (1, 2)
    assert answer(table, version=3) == by_city(table.to_arrow(version=3))
    assert blocks_read(store, version=3) == 0


def test_old_versions_before_the_index_use_the_heads_list(store: MemoryStore, table: Table) -> None:
    assert table.snapshot(2).index_list is None

    assert answer(table, version=2) == by_city(table.to_arrow(version=2))
    assert answer(table, version=0) == []
    assert blocks_read(store, version=2) == 0


def test_branches_rewinds_and_overwrites_are_exact(store: MemoryStore, table: Table) -> None:
    table.create_branch("fix", 2)
    fix = open_table_in(store, branch="fix")
    with pytest.raises(NotFoundError):  # it forked before the index was made
        fix.aggregate(NAME)
    table.create_branch("later")
    later = open_table_in(store, branch="later")
    later.append(city_rows(500))
    later.delete("x < 10")
    table.overwrite(city_rows(900, 7))

    assert answer(table) == by_city(table.to_arrow())
    assert answer(later) == by_city(later.to_arrow())
    assert answer(table, version="later@") == by_city(later.to_arrow())
    assert later.refresh_indexes().block_count == 1
    assert answer(later) == by_city(later.to_arrow())
    assert blocks_read(store, version="later@4") == 0


def test_a_publish_takes_the_rows_and_keeps_the_indexes(store: MemoryStore, table: Table) -> None:
    table.create_branch("fix")
    fix = open_table_in(store, branch="fix")
    fix.append(city_rows(700))
    fix.drop_index(NAME)
    table.publish("fix")

    assert answer(table) == by_city(fix.to_arrow())
    assert table.head().index_list is not None


def test_an_answer_after_a_compaction_reads_what_is_new_until_the_next_refresh(
    store: MemoryStore, table: Table
) -> None:
    for number in range(4):
        table.append(city_rows(100 + 5 * number, 5))
    assert table.compact().snapshot is not None
    before = answer(table)

    assert blocks_read(store) == 1
    assert table.refresh_indexes().block_count == 1
    assert answer(table) == before == by_city(table.to_arrow())
    assert blocks_read(store) == 0


# ---- where


@pytest.mark.parametrize("where", ["city = 'Oslo'", "city > 'P'", "city IS NULL", "city LIKE 'R%'"])
def test_where_keeps_groups(store: MemoryStore, table: Table, where: str) -> None:
    table.append(pa.table({"city": [None, "Rome"], "x": [1, 2]}, schema=SCHEMA))
    rows = table.to_arrow(where=where)

    assert [row["n"] for row in answer(table, where=where)] == [
        count for row in by_city_or_null(rows) for count in [row["n"]]
    ]


def by_city_or_null(rows: pa.Table) -> list[dict[str, Any]]:
    found: dict[Any, int] = {}
    for row in rows.to_pylist():
        found[row["city"]] = found.get(row["city"], 0) + 1
    return [{"n": count} for _, count in sorted(found.items(), key=lambda item: str(item[0]))]


def test_where_rules_out_uncovered_blocks_and_takes_only_groups(
    store: MemoryStore, table: Table
) -> None:
    table.append(pa.table({"city": ["Zug"], "x": [1]}, schema=SCHEMA))

    assert answer(table, where="city < 'S'") == by_city(table.to_arrow(where="city < 'S'"))
    assert blocks_read(store, where="city < 'S'") == 0
    for wrong in ("x = 1", "n > 3", "total IS NULL", "cty = 'Oslo'"):
        with pytest.raises(InvalidInputError):
            table.aggregate(NAME, where=wrong)


# ---- columns


def test_a_column_of_another_type_is_computed_again(store: MemoryStore) -> None:
    narrow = pa.schema([("g", pa.int32()), ("x", pa.int32())])
    table = temporary_table(narrow, store=store, properties={"fuse.block.rows": str(BLOCK_ROWS)})
    table.append(pa.table({"g": [1] * BLOCK_ROWS, "x": list(range(BLOCK_ROWS))}, schema=narrow))
    table.create_aggregate("a", "SELECT g, sum(x) AS s, max(x) AS m FROM t GROUP BY g")
    table.refresh_indexes()
    wide = pa.schema([("g", pa.int64()), ("x", pa.int64())])
    table.append(pa.table({"g": [1], "x": [2**40]}, schema=wide), merge_schema=True)

    assert table.aggregate("a").schema.types == [pa.int64()] * 3
    assert table.aggregate("a").to_pylist() == [{"g": 1, "s": 190 + 2**40, "m": 2**40}]
    assert table.aggregate("a", version=1).schema.types == [pa.int32(), pa.int64(), pa.int32()]
    assert table.indexes()[0].covered_blocks == 0
    assert table.refresh_indexes().block_count == 1
    assert table.aggregate("a").to_pylist() == [{"g": 1, "s": 190 + 2**40, "m": 2**40}]


def test_a_version_without_the_column_is_a_typed_error(table: Table) -> None:
    more = SCHEMA.append(pa.field("late", pa.int64()))
    rows = pa.table({"city": ["Oslo"], "x": [1], "late": [2]}, schema=more)
    table.append(rows, merge_schema=True)
    table.create_aggregate("late", "SELECT max(late) AS m FROM t")

    assert table.aggregate("late").to_pylist() == [{"m": 2}]
    with pytest.raises(InvalidInputError, match="lacks a column of the aggregate"):
        table.aggregate("late", version=2)


def test_a_column_of_another_branch_with_the_same_id_is_not_taken_for_it(
    store: MemoryStore, table: Table
) -> None:
    table.create_branch("fix")
    fix = open_table_in(store, branch="fix")
    for one, name in ((table, "here"), (fix, "there")):
        more = SCHEMA.append(pa.field(name, pa.int64()))
        one.append(
            pa.table({"city": ["Oslo"], "x": [1], name: [2]}, schema=more), merge_schema=True
        )
    table.create_aggregate("here", "SELECT max(here) AS m FROM t")

    assert table.aggregate("here").to_pylist() == [{"m": 2}]
    with pytest.raises(InvalidInputError, match="lacks a column of the aggregate"):
        table.aggregate("here", version="fix@")


def test_an_overflow_is_a_typed_error_also_over_covered_blocks(store: MemoryStore) -> None:
    table = temporary_table(SCHEMA, store=store, properties={"fuse.block.rows": str(BLOCK_ROWS)})
    for sign in (1, 1, -1, -1):
        table.append(pa.table({"city": ["a"] * 20, "x": [sign * 2**58] * 20}, schema=SCHEMA))
    table.create_aggregate(NAME, SQL)
    table.refresh_indexes()

    assert answer(table) == [{"city": "a", "n": 80, "total": 0, "most": 2**58}]
    with pytest.raises(NumberOverflowError):
        table.aggregate(NAME, version=2)


# ---- definitions


def test_names_and_texts_are_checked_before_anything_is_written(table: Table) -> None:
    version = table.head().version
    for name in ("", "a/b", "../x", "-a", "a b", "ü", "a" * 101, None, 7):
        with pytest.raises(InvalidInputError, match="the name of an index"):
            table.create_aggregate(name, SQL)  # type: ignore[arg-type]
    with pytest.raises(AlreadyExistsError):
        table.create_aggregate(NAME, SQL)
    with pytest.raises(InvalidInputError):
        table.create_aggregate("b-1", "SELECT 1")
    with pytest.raises(NotFoundError, match="by_city"):
        table.drop_index("by_cty")
    with pytest.raises(NotFoundError, match="by_city"):
        table.aggregate("by_cty")
    assert table.head().version == version


def test_private_columns_are_only_counted(store: MemoryStore) -> None:
    table = temporary_table(SCHEMA, store=store, properties={"fuse.private": "city"})
    for sql in (SQL, "SELECT max(city) AS m FROM t"):
        with pytest.raises(InvalidInputError, match="private"):
            table.create_aggregate("a", sql)
    table.create_aggregate("of_x", "SELECT sum(x) AS s FROM t")
    with pytest.raises(InvalidInputError, match="drop them first"):
        table.set_properties({"fuse.private": "city,x"})
    table.drop_index("of_x")
    table.set_properties({"fuse.private": "city,x"})
    table.create_aggregate("cities", "SELECT count(city) AS n FROM t")
    table.append(city_rows(0, 3))

    assert table.aggregate("cities").to_pylist() == [{"n": 3}]


def test_a_dropped_index_is_gone_and_its_name_free(store: MemoryStore, table: Table) -> None:
    table.create_aggregate("second", "SELECT count(*) AS n FROM t")
    table.drop_index(NAME)
    assert [one.name for one in table.indexes()] == ["second"]
    table.create_aggregate(NAME, SQL)

    assert [(one.name, one.covered_blocks) for one in table.indexes()] == [
        (NAME, 0),
        ("second", 0),
    ]
    table.drop_index()
    assert table.indexes() == ()
    assert table.head().index_list is None
    assert "indexes" in table.head().required_features  # an older release does not know `index`
    table.append(city_rows(0, 1))
    assert "indexes" not in table.head().required_features
    with pytest.raises(NotFoundError):
        table.drop_index()


def test_an_index_is_no_row_of_any_feed(table: Table) -> None:
    head = table.head()

    assert (head.operation, head.data_change, head.summary.row_count) == ("index", False, 60)
    assert table.changes(4).read_all().num_rows == 0
    assert table.diff(3, head.version).read_all().num_rows == 0


def test_every_other_commit_carries_the_indexes(table: Table) -> None:
    before = table.head().index_list
    table.append(city_rows(200))
    table.delete("x = 3")
    table.update("x = 4", {"x": 400})
    table.set_properties({"a": "b"})
    table.compact()
    table.expire(keep_last=100)
    table.revert(table.head().version - 3)
    table.overwrite(city_rows(0))

    assert table.head().index_list == before is not None


# ---- refreshes


def test_blocks_with_too_many_groups_are_skipped_once(store: MemoryStore, table: Table) -> None:
    rows = [f"c{number}" for number in range(BLOCK_ROWS)]
    table.append(pa.table({"city": rows, "x": [1] * BLOCK_ROWS}, schema=SCHEMA))
    done = table.refresh_indexes()

    assert (done.block_count, done.skipped_count) == (1, 1)
    assert table.refresh_indexes().block_count == 0
    assert answer(table) == by_city(table.to_arrow())
    assert blocks_read(store) == 1


def test_a_limit_bounds_a_refresh_and_the_next_one_goes_on(store: MemoryStore) -> None:
    table = covered_table(store, blocks=0)
    for number in range(5):
        table.append(city_rows(number * BLOCK_ROWS))
    done = [table.refresh_indexes(2) for _ in range(4)]

    assert [(one.block_count, one.left_count) for one in done] == [(2, 3), (2, 1), (1, 0), (0, 0)]
    assert (covered(table), table.indexes()[0].part_count) == (5, 1)  # small parts are merged
    for wrong in (0, -1, 1.5, True, "3"):
        with pytest.raises(InvalidInputError):
            table.refresh_indexes(wrong)  # type: ignore[arg-type]


def test_parts_hold_up_to_64_blocks_and_parts_without_a_block_are_dropped(
    store: MemoryStore,
) -> None:
    table = covered_table(store, blocks=MAX_PART_BLOCKS + 1)
    assert table.indexes()[0].part_count == 2
    table.append(city_rows(5_000))
    table.refresh_indexes()
    assert table.indexes()[0].part_count == 2
    table.overwrite(city_rows(0, 1))

    assert table.refresh_indexes().snapshot is not None
    assert table.indexes()[0].part_count == 0
    assert answer(table, version=20) == by_city(table.to_arrow(version=20))


def test_two_refreshes_at_once_cover_each_block_once_and_lose_nothing(store: MemoryStore) -> None:
    table = covered_table(store, blocks=2)
    other = open_table_in(store)
    other.create_aggregate("b-side", "SELECT count(*) AS n FROM t")
    table.append(city_rows(300))
    other.head()
    assert table.refresh_indexes().block_count == 4  # three of the new index
    stale = other.refresh_indexes()

    assert stale.block_count == 0
    assert [one.covered_blocks for one in table.indexes()] == [3, 3]
    assert answer(table) == by_city(table.to_arrow())


class Rival(StoreWrapper):
    """Commits before a slot is put, as another writer does."""

    def __init__(self, store: MemoryStore, act: Any) -> None:
        super().__init__(store)
        self._act = act

    def call(self, verb: str, key: str, act: Any) -> Any:
        if verb == "put_if_absent" and key.startswith(SLOTS_PREFIX) and self._act is not None:
            first, self._act = self._act, None
            first()
        return act(self.store, key)


def test_writers_and_refreshes_replan_over_each_other(store: MemoryStore) -> None:
    table = covered_table(store, blocks=2)
    table.append(city_rows(300))
    rival = open_table_in(store)

    def beaten(act: Any) -> Table:
        return open_table_in(Rival(store, act))

    beaten(lambda: rival.append(city_rows(400, 2))).refresh_indexes()
    assert covered(table) == 3
    beaten(rival.refresh_indexes).append(city_rows(500))
    assert covered(table) == 3
    beaten(lambda: rival.create_aggregate("z-1", SQL)).create_aggregate("y-1", SQL)
    assert [one.name for one in table.indexes()] == [NAME, "y-1", "z-1"]
    beaten(rival.refresh_indexes).refresh_indexes()
    assert [one.covered_blocks for one in table.indexes()] == [4, 4, 4]
    parts = load_index_list(table.metadata, table.head().index_list).parts
    assert sum(len(part.blocks) for part in parts) == 3 * 4  # each once
    table.append(city_rows(600))
    beaten(lambda: rival.drop_index("z-1")).refresh_indexes()
    assert [one.covered_blocks for one in table.indexes()] == [5, 5]
    assert answer(table) == by_city(table.to_arrow())


# ---- damage costs time, or is a typed error


def _flip(data: bytes) -> bytes:
    return data[:-20] + bytes([data[-20] ^ 1]) + data[-19:]


@pytest.mark.parametrize("change", [None, b"", b"junk", _flip, lambda data: data + b"x"])
def test_a_lost_or_damaged_part_costs_time_only(
    store: MemoryStore, table: Table, change: Any, caplog: pytest.LogCaptureFixture
) -> None:
    [key] = keys_under(store, AGGREGATES_PREFIX)
    data = store.objects.pop(key).data
    if change is not None:
        changed = change if isinstance(change, bytes) else change(data)
        store.objects[key] = MemoryObject(data=changed, modified_us=0)
    with caplog.at_level(logging.WARNING):
        found = answer(table)

    assert found == by_city(table.to_arrow())
    assert "the rows of 3 blocks are read" in caplog.text
    report = table.fsck(deep=True)
    assert [finding.key for finding in report.findings] == [key]
    assert "only time" in report.findings[0].lost
    assert not report.is_sound
    table.drop_index(NAME)
    table.create_aggregate(NAME, SQL)
    table.refresh_indexes()
    assert answer(table) == found


def test_a_part_with_other_states_is_not_used(store: MemoryStore, table: Table) -> None:
    [key] = keys_under(store, AGGREGATES_PREFIX)
    states = pq.read_table(pa.BufferReader(store.objects[key].data))
    more = [count + 1 for count in states["n1"].to_pylist()]
    changed = states.set_column(states.column_names.index("n1"), "n1", pa.array(more))
    sink = io.BytesIO()
    pq.write_table(changed, sink, compression="zstd", write_page_checksum=True)
    size = len(store.objects[key].data)
    assert len(sink.getvalue()) == size  # so nothing but the hash tells
    store.objects[key] = MemoryObject(data=sink.getvalue(), modified_us=0)

    assert answer(table) == by_city(table.to_arrow())


@pytest.mark.parametrize("data", [None, b"junk"])
def test_a_lost_list_stops_indexes_only_and_dropping_all_starts_anew(
    store: MemoryStore, table: Table, data: bytes | None
) -> None:
    ref = table.head().index_list
    assert ref is not None
    key = index_list_key(ref.id)
    del store.objects[key]
    if data is not None:
        store.objects[key] = MemoryObject(data=data, modified_us=0)
    table = open_table_in(store)

    assert table.append(city_rows(300)).index_list == ref
    assert table.compact() is not None
    table.vacuum()
    assert [finding.key for finding in table.fsck().findings] == [key]
    for act in (
        lambda: table.aggregate(NAME),
        table.indexes,
        table.refresh_indexes,
        lambda: table.create_aggregate("b-1", SQL),
        lambda: table.drop_index(NAME),
    ):
        with pytest.raises(CorruptObjectError, match="drop all indexes"):
            act()
    table.drop_index()
    table.create_aggregate(NAME, SQL)
    assert table.refresh_indexes().block_count == 4
    assert answer(table) == by_city(table.to_arrow())


def test_states_that_do_not_fit_the_record_are_not_used(store: MemoryStore, table: Table) -> None:
    """A forged list names the part of another index, with its right hash."""
    table.create_aggregate("other", "SELECT city, count(x) AS n FROM t GROUP BY city")
    table.refresh_indexes()
    indexes = load_index_list(table.metadata, table.head().index_list)
    own, others = (
        next(part for part in indexes.parts if part.index == one.id) for one in indexes.definitions
    )
    forged = dataclasses.replace(others, id=own.id)
    store.objects[aggregates_key(own.id)] = store.objects[aggregates_key(others.id)]
    listed = dataclasses.replace(
        indexes, parts=(dataclasses.replace(forged, index=own.index, types=own.types),)
    )
    _put_list(store, table, listed)

    assert answer(open_table_in(store)) == by_city(table.to_arrow())


def test_a_part_that_numbers_blocks_it_does_not_name_is_not_used(
    store: MemoryStore, table: Table
) -> None:
    indexes = load_index_list(table.metadata, table.head().index_list)
    [part] = indexes.parts
    fewer = dataclasses.replace(part, blocks=part.blocks[:2])
    _put_list(store, table, dataclasses.replace(indexes, parts=(fewer,)))

    assert answer(open_table_in(store)) == by_city(table.to_arrow())


def _put_list(store: MemoryStore, table: Table, indexes: Any) -> None:
    """Commit a list of indexes that a writer would not make."""
    commit_indexes(table.committer, lambda _head, _before: indexes, "forged")
    assert keys_under(store, INDEX_LISTS_PREFIX)


def test_an_expired_version_says_so(store: MemoryStore) -> None:
    table = covered_table(store, properties={"fuse.grace": "0s"})
    table.expire(keep_last=1)

    with pytest.raises(SnapshotExpiredError):
        table.aggregate(NAME, version=1)


# ---- count


def test_count_reads_only_blocks_that_statistics_leave_open(store: MemoryStore) -> None:
    table = covered_table(store)
    table.delete("x = 25")
    counted = FaultyStore(store)
    opened = open_table_in(counted)

    assert opened.count() == 59
    assert opened.count("x >= 20") == 39
    assert (
        opened.count("x < 20 OR city = 'Oslo'")
        == table.to_arrow(where="x < 20 OR city = 'Oslo'").num_rows
    )
    assert opened.count("x > 1000") == 0
    assert opened.count("x >= 0", version=2) == 40
    before = {key for _, key in counted.calls if key.startswith(BLOCKS_PREFIX)}
    assert len(before) == 2  # those that hold both cities, and not below 20
    assert opened.count("x >= 30") == 30
    with pytest.raises(InvalidInputError):
        opened.count("y = 1")


# ---- columns that change


def test_an_index_follows_its_columns_through_a_rename(store: MemoryStore, table: Table) -> None:
    with table.update_schema() as change:
        change.rename_column("city", "place")
        change.add_column("city", pa.string())
    rows = city_rows(100).rename_columns(["place", "x"])
    table.append(rows.append_column("city", pa.nulls(len(rows), pa.string())))

    now = table.to_arrow().drop_columns(["city"]).rename_columns(["city", "x"])
    assert answer(table) == by_city(now)
    assert blocks_read(store) == 1, "covered blocks are not read again"
    assert answer(table, version=3) == by_city(table.to_arrow(version=3))


def test_a_column_of_an_index_is_not_dropped_before_the_index(table: Table) -> None:
    refused = pytest.raises(InvalidInputError, match="drop the index first")
    with refused as caught, table.update_schema() as change:
        change.delete_column("city")
    assert caught.value.context == {"column": "city", "index": NAME}

    table.drop_index(NAME)
    with table.update_schema() as change:
        change.delete_column("city")
    assert table.to_arrow().column_names == ["x"]


def test_a_lost_list_of_indexes_does_not_keep_a_column(store: MemoryStore, table: Table) -> None:
    for key in keys_under(store, INDEX_LISTS_PREFIX):
        del store.objects[key]
    with table.update_schema() as change:
        change.delete_column("city")
    assert table.to_arrow().column_names == ["x"]
