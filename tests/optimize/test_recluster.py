"""Reclustering a table: the rows stay, the blocks part, and whoever interferes loses nothing."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal

import pyarrow as pa
import pytest

from fuse_stream.errors import ConflictError, InvalidInputError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.layout import BLOCKS_PREFIX
from fuse_stream.format.records import Operation
from fuse_stream.optimize.plan_recluster import LAST_LEVEL
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import Crash, Fault, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound
from tests.kit.interleave import run_interleaved

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
BLOCK_ROWS = 20


def made(
    store: Store,
    schema: pa.Schema = SCHEMA,
    key: Iterable[str] = ("k",),
    **properties: str,
) -> Table:
    return create_table(
        store,
        first_schema(columns_of_arrow(schema)),
        cluster_by=tuple(key),
        properties={"fuse.block.rows": str(BLOCK_ROWS), **properties},
        clock=ManualClock(),
        probe_store=False,
    )


def opened(store: Store, seed: int = 5) -> Table:
    return open_table(store, clock=ManualClock(seed=seed), probe_store=False)


def shuffled(store: Store, *, commits: int = 30, block_bytes: str = "10000") -> Table:
    """Return a table of which each block holds keys from everywhere."""
    table = made(store, **{"fuse.block.bytes": block_bytes})
    keys = list(range(commits * BLOCK_ROWS))
    random.Random(3).shuffle(keys)
    for start in range(0, len(keys), BLOCK_ROWS):
        some = keys[start : start + BLOCK_ROWS]
        table.append(pa.table({"k": some, "v": [f"row {at}" for at in some]}, schema=SCHEMA))
    return table


def rows_of(table: Table) -> Counter[str]:
    """Return the rows as text, for NaN is not itself."""
    return Counter(map(repr, table.to_arrow().to_pylist()))


def copy_of(store: MemoryStore) -> MemoryStore:
    copy = MemoryStore(clock=store.clock)
    copy.objects = dict(store.objects)
    return copy


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(clock=ManualClock())


def test_overlapping_blocks_are_sorted_until_their_depth_is_under_the_threshold(
    store: MemoryStore,
) -> None:
    table = shuffled(store)
    before = rows_of(table)
    result = table.recluster()
    snapshot = table.head()

    assert (result.depth_before, result.depth_after) == (30, 1)
    assert table.clustering().average_depth <= 4
    assert result.snapshot == snapshot
    assert (snapshot.operation, snapshot.data_change) == (Operation.RECLUSTER, False)
    assert snapshot.message.startswith("30 blocks -> 30, ")
    assert snapshot.message.endswith(", average depth 30.0 -> 1.0")
    assert rows_of(table) == before
    assert table.changes(snapshot.version).read_all().num_rows == 0
    assert {block.cluster_stats.level for block in table.blocks() if block.cluster_stats} == {1}
    assert_sound(store, table)


def test_a_point_lookup_reads_few_blocks(store: MemoryStore) -> None:
    shuffled(store)

    def blocks_read(key: int) -> int:
        watched = FaultyStore(store)
        found = opened(watched).to_arrow(where=f"k = {key}")
        assert found.column("k").to_pylist() == [key]
        return sum(name.startswith(BLOCKS_PREFIX) for _, name in watched.calls)

    before = [blocks_read(key) for key in range(30, 600, 60)]
    opened(store).recluster()

    assert min(before) >= 15
    assert [blocks_read(key) for key in range(30, 600, 60)] == [1] * 10


def test_a_run_is_bounded_and_runs_converge(store: MemoryStore) -> None:
    table = shuffled(store, block_bytes="400")
    before = rows_of(table)
    depths = [table.clustering().average_depth]
    while (result := table.recluster(limit=8)).group_count:
        assert result.blocks_before <= 8
        depths.append(result.depth_after)

    assert table.clustering().average_depth <= 4
    assert len(depths) > 3
    assert rows_of(table) == before


def test_what_is_in_order_is_left_alone(store: MemoryStore) -> None:
    table = shuffled(store)
    table.recluster()
    version = table.head().version
    result = table.recluster()

    assert result.snapshot is None
    assert table.head().version == version


@pytest.mark.parametrize("commits", [0, 1])
def test_a_table_of_no_or_one_block_is_in_order(store: MemoryStore, commits: int) -> None:
    table = shuffled(store, commits=commits)

    assert table.recluster().snapshot is None
    assert table.clustering().block_count == commits
    assert table.clustering().average_depth == commits


def test_a_table_without_a_key_says_how_to_get_one(store: MemoryStore) -> None:
    table = made(store, key=())

    for verb in (table.clustering, table.recluster):
        with pytest.raises(InvalidInputError, match="cluster_by"):
            verb()
    assert table.optimize().reclustering is None


@pytest.mark.parametrize("limit", [0, 1, -1, 2.5, True, "9"])
def test_a_limit_that_is_none_is_refused(store: MemoryStore, limit: object) -> None:
    with pytest.raises(InvalidInputError, match="limit"):
        shuffled(store, commits=2).recluster(limit=limit)  # type: ignore[arg-type]


# ---- keys of all kinds


def moment(number: int) -> dt.datetime:
    return dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=number)


KINDS: dict[str, tuple[pa.DataType, Callable[[int], object]]] = {
    "long": (pa.int64(), lambda at: at - 300),
    "with nulls": (pa.int64(), lambda at: None if at % 7 == 0 else at),
    "nan and null": (
        pa.float64(),
        lambda at: (float("nan"), None, -0.0, float("inf"))[at % 16] if at % 16 < 4 else at / 3,
    ),
    "decimal": (pa.decimal128(12, 2), lambda at: Decimal(at * 100 - 7) / 100),
    "timestamp": (pa.timestamp("us", tz="UTC"), moment),
    "timestamp_ntz": (pa.timestamp("us"), lambda at: moment(at).replace(tzinfo=None)),
    "date": (pa.date32(), lambda at: dt.date(2026, 1, 1) + dt.timedelta(days=at)),
    "boolean": (pa.bool_(), lambda at: at % 2 == 0),
    "string": (pa.string(), lambda at: f"name {at:05}"),
    "long string": (pa.string(), lambda at: f"{at:05}" + "x" * 40),
    "strings that start alike": (pa.string(), lambda at: "x" * 40 + f"{at:05}"),
    "binary": (pa.binary(), lambda at: at.to_bytes(4, "big")),
    "one value": (pa.int64(), lambda _: 5),
    "nulls": (pa.int64(), lambda _: None),
}


@pytest.mark.parametrize("kind", KINDS)
def test_any_key_is_sorted_and_runs_come_to_an_end(store: MemoryStore, kind: str) -> None:
    type_, value = KINDS[kind]
    schema = pa.schema([("k", type_), ("v", pa.int64())])
    table = made(store, schema, **{"fuse.block.bytes": "700"})
    order = list(range(400))
    random.Random(5).shuffle(order)
    for start in range(0, 400, 20):
        some = order[start : start + 20]
        table.append(pa.table({"k": [value(at) for at in some], "v": some}, schema=schema))
    before = rows_of(table)
    table.recluster()

    assert table.recluster().snapshot is None
    assert rows_of(table) == before
    if kind in {"strings that start alike", "one value", "nulls", "boolean"}:
        return  # no bound tells these blocks apart
    assert table.clustering().average_depth <= 4


def test_of_blocks_that_bounds_do_not_tell_apart_nothing_more_is_hoped(store: MemoryStore) -> None:
    schema = pa.schema([("k", pa.string())])
    table = made(store, schema)
    for at in range(10):
        names = ["x" * 40 + f"{at} {number}" for number in range(BLOCK_ROWS)]
        table.append(pa.table({"k": names}, schema=schema))
    table.recluster()

    assert {block.cluster_stats.level for block in table.blocks() if block.cluster_stats} == {
        LAST_LEVEL
    }
    assert table.head().version == 11


def test_columns_of_a_key_count_in_their_order(store: MemoryStore) -> None:
    schema = pa.schema([("a", pa.int32()), ("b", pa.string())])
    table = made(store, schema, key=["b", "a"])
    pairs = [(a, b) for a in range(40) for b in "pqrs"]
    random.Random(5).shuffle(pairs)
    for start in range(0, len(pairs), 10):
        some = pairs[start : start + 10]
        columns = {"a": [a for a, _ in some], "b": [b for _, b in some]}
        table.append(pa.table(columns, schema=schema))
    before = rows_of(table)
    table.recluster()
    in_order = [(row["b"], row["a"]) for row in table.to_arrow().to_pylist()]

    assert table.clustering().columns == ("b", "a")
    assert table.clustering().average_depth <= 4
    assert in_order == sorted(in_order)
    assert rows_of(table) == before


# ---- another key


def test_a_key_is_set_by_a_commit_that_changes_no_row(store: MemoryStore) -> None:
    table = made(store, key=())
    table.append(pa.table({"k": [3, 1, 2], "v": ["a", "b", "c"]}, schema=SCHEMA))
    snapshot = table.cluster_by(["v", "k"])
    table.append(pa.table({"k": [3, 1, 2], "v": ["x", "y", "x"]}, schema=SCHEMA))

    assert (snapshot.operation, snapshot.data_change) == (Operation.ALTER, False)
    assert snapshot.cluster_key == (2, 1) == table.head().cluster_key
    assert table.to_arrow().column("k").to_pylist() == [3, 1, 2, 2, 3, 1]
    assert table.clustering().unsorted_count == 1
    assert table.cluster_by([]).cluster_key == ()


@pytest.mark.parametrize("columns", ["k", ["k", "k"], ["z"]])
def test_a_key_that_cannot_be_is_refused(store: MemoryStore, columns: object) -> None:
    table = made(store, key=())
    with pytest.raises(InvalidInputError):
        table.cluster_by(columns)  # type: ignore[arg-type]

    assert table.head().version == 0


def test_another_writer_that_is_faster_is_a_conflict_unless_it_may_be_replanned(
    store: MemoryStore,
) -> None:
    table = made(store, key=())

    def rival(turns: Store) -> object:
        return opened(turns, 7).set_properties({"a": "1"})

    for on_conflict, errors in (("error", [ConflictError]), ("replan", [])):
        table.cluster_by([])

        def alter(turns: Store, on_conflict: str = on_conflict) -> object:
            return opened(turns, 8).cluster_by(["k"], on_conflict=on_conflict)

        calls = FaultyStore(copy_of(store))
        alter(calls)
        slot = [verb for verb, _ in calls.calls].index("put_if_absent")
        results = run_interleaved(store, [alter, rival], [0] * slot + [1] * 40)

        assert [type(each) for each in results if isinstance(each, BaseException)] == errors
    assert table.head().cluster_key == (1,)


def test_blocks_of_the_old_key_are_put_in_the_new_order(store: MemoryStore) -> None:
    table = shuffled(store, commits=10)
    table.recluster()
    before = rows_of(table)
    table.cluster_by(["v"])
    found = table.clustering()
    result = table.recluster()

    assert (found.unsorted_count, found.average_depth, found.average_overlap) == (10, 10, 9)
    assert result.depth_after == 1
    assert table.clustering().unsorted_count == 0
    assert rows_of(table) == before
    values = table.to_arrow().column("v").to_pylist()
    assert values == sorted(values)


def test_a_lone_block_is_put_in_the_new_order_too(store: MemoryStore) -> None:
    table = made(store)
    table.append(pa.table({"k": [1, 2], "v": ["b", "a"]}, schema=SCHEMA))
    table.cluster_by(["v"])
    table.recluster()

    assert table.to_arrow().column("v").to_pylist() == ["a", "b"]
    assert table.recluster().snapshot is None


@pytest.mark.parametrize("calls", [10, 15, 20, 25, 30])
def test_a_key_that_changes_meanwhile_counts_in_the_end(store: MemoryStore, calls: int) -> None:
    table = shuffled(store, commits=6)
    before = rows_of(table)

    def alter(turns: Store) -> object:
        return opened(turns, 7).cluster_by(["v"], on_conflict="replan")

    def sort(turns: Store) -> object:
        return opened(turns, 8).recluster()

    results = run_interleaved(store, [sort, alter], [0] * calls + [1] * 40)
    head = opened(store)

    assert not [result for result in results if isinstance(result, BaseException)]
    assert head.clustering().columns == ("v",)
    assert head.clustering().unsorted_count == 0
    assert rows_of(head) == before


# ---- beside others


def test_an_append_beside_it_lands_and_the_rows_stay(store: MemoryStore) -> None:
    shuffled(store, commits=6)
    new = pa.table({"k": [-1, 999], "v": ["low", "high"]}, schema=SCHEMA)
    for calls in range(0, 60, 3):
        base = copy_of(store)
        before = rows_of(opened(base))

        def append(turns: Store) -> object:
            return opened(turns, 7).append(new, app_id="a", batch_id=0)

        def sort(turns: Store) -> object:
            return opened(turns, 8).recluster()

        results = run_interleaved(base, [sort, append], [0] * calls + [1] * 100)
        table = opened(base)

        assert not [result for result in results if isinstance(result, BaseException)]
        assert rows_of(table) == before + Counter(map(repr, new.to_pylist()))
        assert Operation.RECLUSTER in {snapshot.operation for snapshot in table.log()}
        assert_sound(base, table)


def test_a_compaction_beside_it_takes_what_it_takes_and_the_rows_stay(store: MemoryStore) -> None:
    table = made(store, **{"fuse.cluster.depth": "1"})
    chance = random.Random(3)
    for _ in range(8):  # a quarter of a block each
        some = [chance.randrange(1000) for _ in range(BLOCK_ROWS // 4)]
        table.append(pa.table({"k": some, "v": ["x"] * len(some)}, schema=SCHEMA))
    before = rows_of(table)
    landed = set()
    for calls in range(0, 90, 3):
        base = copy_of(store)

        def pack(turns: Store) -> object:
            return opened(turns, 7).compact()

        def sort(turns: Store) -> object:
            return opened(turns, 8).recluster()

        results = run_interleaved(base, [sort, pack], [0] * calls + [1] * 200)
        end = opened(base)

        assert not [result for result in results if isinstance(result, BaseException)]
        assert rows_of(end) == before
        assert_sound(base, end)
        landed |= {snapshot.operation for snapshot in end.log()}
    assert {Operation.COMPACT, Operation.RECLUSTER} <= landed


def test_what_others_bring_meanwhile_is_left_to_the_next_run(store: MemoryStore) -> None:
    table = shuffled(store, commits=6)
    beside = opened(store, 9)

    def append(_done: int, _total: int) -> None:
        keys = list(range(BLOCK_ROWS))
        for _ in range(6 if beside.head().version < 12 else 0):
            beside.append(pa.table({"k": keys, "v": ["new"] * BLOCK_ROWS}, schema=SCHEMA))

    result = table.recluster(progress=append)

    assert result.blocks_before == 6
    assert table.recluster().blocks_before == 6


@pytest.mark.long
def test_a_crash_at_any_call_costs_no_row_and_the_next_run_goes_on(store: MemoryStore) -> None:
    table = shuffled(store, commits=6)
    before = rows_of(table)
    watched = FaultyStore(copy_of(store))
    opened(watched).recluster()

    for call in range(1, len(watched.calls) + 1):
        for fault in Fault:
            base = copy_of(store)
            try:
                opened(FaultyStore(base, at_call=call, fault=fault)).recluster()
            except (Crash, Exception):  # noqa: BLE001 - whatever it is, nothing may be lost
                assert_sound(base, opened(base))
                assert rows_of(opened(base)) == before
            after = opened(base, 6)
            after.recluster()

            assert rows_of(after) == before
            assert after.clustering().average_depth == 1
            assert after.head().version in {7, 8}
            assert_sound(base, after)


def test_optimize_packs_first_and_sorts_then(store: MemoryStore) -> None:
    table = made(store, **{"fuse.cluster.depth": "1"})
    chance = random.Random(3)
    for _ in range(40):
        some = [chance.randrange(1000) for _ in range(BLOCK_ROWS // 4)]
        table.append(pa.table({"k": some, "v": ["x"] * len(some)}, schema=SCHEMA))
    before = rows_of(table)
    done = table.optimize()

    assert done.compaction.blocks_before == 40
    assert done.reclustering is not None
    assert done.reclustering.depth_before > 5
    assert done.reclustering.depth_after < 2
    assert rows_of(table) == before
    assert [snapshot.operation for snapshot in table.log(limit=2)] == ["recluster", "compact"]


@pytest.mark.parametrize(("limit", "sorted_blocks"), [(4, None), (9, 5), (100, 7)])
def test_a_limit_of_optimize_is_for_both(
    store: MemoryStore, limit: int, sorted_blocks: int | None
) -> None:
    table = shuffled(store, commits=6)
    for _ in range(4):  # a quarter of a block each
        table.append(pa.table({"k": [1, 2, 3, 4, 500], "v": ["x"] * 5}, schema=SCHEMA))
    done = table.optimize(limit=limit)

    assert done.compaction.blocks_before == 4
    assert (done.reclustering and done.reclustering.blocks_before) == sorted_blocks
