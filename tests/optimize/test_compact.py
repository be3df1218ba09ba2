"""Compaction: what it leaves, and that rows, feed, ledger and history do not notice it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuse_stream.commit import replace, rollup
from fuse_stream.errors import CorruptObjectError, InvalidInputError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.layout import block_key
from fuse_stream.format.records import Operation
from fuse_stream.format.sizes import size
from fuse_stream.optimize import compact as module
from fuse_stream.table.handle import Table, create_table
from fuse_stream.table.verbs import clone
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound, rows_of
from tests.feed.test_follow import Scene
from tests.recovery.histories import opened

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


def numbers(*values: int) -> pa.Table:
    return pa.table({"k": values, "v": [f"v{value}" for value in values]}, schema=SCHEMA)


def created(**options: object) -> Table:
    store = MemoryStore(clock=ManualClock())
    return create_table(
        store,
        first_schema(columns_of_arrow(SCHEMA)),
        clock=ManualClock(),
        probe_store=False,
        **options,  # type: ignore[arg-type]
    )


def made(appends: int = 5, **options: object) -> Table:
    """Return a table with appends of rows 0, 1, …, one each."""
    table = created(**options)
    for number in range(appends):
        table.append(numbers(number), app_id="app", batch_id=number)
    return table


def small_blocks(rows: int) -> dict[str, str]:
    return {"fuse.block.rows": str(rows)}


def keys(table: Table) -> list[int]:
    return table.to_arrow()["k"].to_pylist()  # type: ignore[no-any-return]


def test_small_blocks_become_one() -> None:
    table = made(5)
    sizes = [block.file_size for block in table.blocks()]
    result = table.compact()
    (block,) = table.blocks()

    assert keys(table) == [0, 1, 2, 3, 4]
    assert result.snapshot == table.head()
    assert (result.group_count, result.dropped_group_count, result.row_count) == (1, 0, 5)
    assert (result.blocks_before, result.blocks_after) == (5, 1)
    assert (result.bytes_before, result.bytes_after) == (sum(sizes), block.file_size)
    assert repr(result) == (
        f"CompactionResult(version=6, blocks=5->1, bytes={sum(sizes)}->{block.file_size}, rows=5, "
        "groups=1, dropped_groups=0)"
    )
    assert_sound(table.metadata.store, table)


def test_the_snapshot_says_what_was_done() -> None:
    table = made(5)
    before = table.head()
    done = table.compact()
    head = done.snapshot

    assert head is not None
    assert head.operation is Operation.COMPACT
    assert not head.data_change
    sizes = f"{size(done.bytes_before)} -> {size(done.bytes_after)}"
    assert head.message == f"5 blocks -> 1, {sizes}"
    assert " KiB -> " in sizes
    assert head.ledger == before.ledger
    assert head.properties == before.properties


def test_where_nothing_is_to_be_done_nothing_is_committed() -> None:
    for table in (created(), made(1), made(3, properties=small_blocks(1))):
        version = table.head().version

        assert table.compact().snapshot is None
        assert table.head().version == version


def test_a_second_run_finds_nothing() -> None:
    table = made(25, properties=small_blocks(4))
    table.compact()

    assert table.compact() == module.CompactionResult()


def test_only_segments_with_rewritten_blocks_are_rewritten() -> None:
    table = created(properties=small_blocks(3))
    for batch in [(1, 2), (3,), (4,), (5, 6)]:
        table.append(numbers(*batch))
    first, *_, last = table.head().segments
    head = table.compact().snapshot

    assert head is not None
    assert [ref.id for ref in head.segments] == [first.id, *head.added, last.id]
    assert keys(table) == [1, 2, 3, 4, 5, 6]
    assert head.summary.perfect_block_count == head.summary.block_count == 3


def test_neighbouring_segments_become_one_with_the_highest_level(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rollup, "FAN_IN", 3)
    table = made(6)
    levels = [ref.level for ref in table.segments()]
    table.compact()

    assert levels == [1, 0, 0, 0]
    assert [(ref.level, ref.block_count) for ref in table.segments()] == [(1, 1)]


def test_segments_stay_below_their_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replace, "MAX_BLOCKS", 3)
    table = made(14, properties=small_blocks(3))
    table.compact()

    assert [ref.block_count for ref in table.segments()] == [2, 2]
    assert keys(table) == list(range(14))


def test_the_totals_are_those_of_the_blocks() -> None:
    table = made(7, properties=small_blocks(3))
    table.append(numbers(7, 8, 9))
    table.compact()
    summary, blocks = table.head().summary, table.blocks()

    assert [block.row_count for block in blocks] == [3, 4, 3]
    assert summary.perfect_block_count == 3
    assert summary.uncompressed_byte_size == sum(block.block_size for block in blocks)
    assert summary.compressed_byte_size == sum(block.file_size for block in blocks)
    assert table.fsck(deep=True).is_sound


def test_a_limit_bounds_what_a_run_rewrites() -> None:
    table = made(10)

    assert table.compact(4).blocks_before == 4
    assert [block.row_count for block in table.blocks()] == [4, 1, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("limit", [1, 0, -1, True, 2.5, "3"])
def test_a_limit_is_a_number_of_blocks(limit: object) -> None:
    table = made(3)

    with pytest.raises(InvalidInputError, match="from 2"):
        table.compact(limit)  # type: ignore[arg-type]


def test_tiered_runs_leave_a_large_start_alone() -> None:
    table = created()
    for batch in [range(100), range(100, 101), range(101, 102)]:
        table.append(numbers(*batch))
    table.compact(tiered=True)

    assert [block.row_count for block in table.blocks()] == [100, 2]


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    made(10, properties=small_blocks(5)).compact(progress=lambda *done: told.append(done))

    assert told == [(5, 10), (10, 10)]


def test_a_long_run_commits_on_the_way() -> None:
    table = made(12, properties=small_blocks(4))
    clock = table.metadata.clock
    assert isinstance(clock, ManualClock)
    result = table.compact(progress=lambda *_: clock.advance(40))

    assert [item.message.split(",")[0] for item in table.log(limit=2)] == [
        "4 blocks -> 1",
        "8 blocks -> 2",
    ]
    assert (result.group_count, result.blocks_before, result.blocks_after) == (3, 12, 3)


def test_what_was_committed_stands_when_a_later_group_fails() -> None:
    table = made(12, properties=small_blocks(4))
    clock = table.metadata.clock
    assert isinstance(clock, ManualClock)
    table.metadata.store.delete(block_key(table.blocks()[-1].id))

    with pytest.raises(CorruptObjectError, match="missing"):
        table.compact(progress=lambda *_: clock.advance(40))
    assert table.head().summary.block_count == 6


def test_groups_run_beside_each_other_where_the_store_allows_it(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA, properties=small_blocks(10))
    for number in range(60):
        table.append(numbers(number))
    result = table.compact()

    assert (result.group_count, result.blocks_before) == (6, 60)
    assert keys(table) == list(range(60))


def test_rows_are_sorted_within_a_block_of_a_clustered_table() -> None:
    table = created(cluster_by=["k"])
    for batch in [(5, 9), (1, 7), (3,)]:
        table.append(numbers(*batch))
    table.compact()
    (block,) = table.blocks()

    assert keys(table) == [1, 3, 5, 7, 9]
    assert block.cluster_stats is not None
    assert (block.cluster_stats.range.min, block.cluster_stats.range.max) == ((1,), (9,))
    assert table.segments()[0].key_range == block.cluster_stats.range


def test_the_feed_passes_over_it() -> None:
    table = made(5)
    table.compact()
    table.append(numbers(9))

    changes = table.changes(1).read_all()
    assert Counter(changes["_commit_version"].to_pylist()) == dict.fromkeys([1, 2, 3, 4, 5, 7], 1)
    assert table.changes(6, 6).read_all().num_rows == 0
    assert table.diff(5, 6).read_all().num_rows == 0
    assert table.diff(3, 7).read_all()["k"].to_pylist() == [3, 4, 9]


def test_history_goes_on_across_it() -> None:
    table = made(5)
    table.compact()
    table.append(numbers(9))

    assert table.to_arrow(version=3)["k"].to_pylist() == [0, 1, 2]
    assert [(item.version, item.row_count) for item in table.blame("k >= 3")] == [
        (7, 1),
        (5, 1),
        (4, 1),
    ]
    table.revert(7)
    assert keys(table) == [0, 1, 2, 3, 4]


def test_blocks_of_an_older_schema_are_widened() -> None:
    table = created()
    table.append(numbers(1))
    wide = pa.table({"k": [2], "v": ["b"], "late": [0.5]})
    table.append(wide, merge_schema=True)
    table.append(wide)
    before = rows_of(table.to_arrow())
    table.compact()

    assert rows_of(table.to_arrow()) == before
    assert [block.schema_id for block in table.blocks()] == [1]
    assert table.fsck(deep=True).is_sound


def test_a_branch_is_compacted_without_the_others() -> None:
    table = made(4)
    table.create_branch("dev")
    dev = opened(table.metadata.store, "dev")
    dev.compact()

    assert len(dev.blocks()) == 1
    assert len(table.blocks()) == 4
    assert table.publish("dev").snapshot.summary.block_count == 1


def test_a_clone_gets_blocks_of_its_own(tmp_path: Path) -> None:
    origin = Table.create(tmp_path / "t", SCHEMA)
    for number in range(3):
        origin.append(numbers(number))
    clone(tmp_path / "t", tmp_path / "c")
    table = Table.open(tmp_path / "c", origins=[tmp_path / "t"])
    origins = {block.origin for block in table.blocks()}
    table.append(numbers(3))
    table.compact()

    assert origins == {origin.table_id}
    assert [block.origin for block in table.blocks()] == [None]
    assert keys(Table.open(tmp_path / "c")) == [0, 1, 2, 3]


def test_a_follower_sees_nothing_of_it() -> None:
    scene = Scene()
    stream = scene.load()
    scene.append(1)
    scene.append(2)
    first = stream.run()
    scene.append(3)
    scene.table.compact()
    late = scene.load()

    assert [row[0] for row in first] == [1, 2]
    assert [row[0] for row in stream.run()] == [3]
    assert stream.run() == []
    scene.append(4)
    scene.table.compact()
    assert [row[0] for row in stream.run()] == [4]
    assert sorted(str(row[0]) for row in late.run()) == ["1", "2", "3", "4"]


BATCHES = st.lists(
    st.lists(
        st.fixed_dictionaries(
            {
                "k": st.none() | st.integers(-3, 3),
                "v": st.none() | st.text(max_size=3),
                "l": st.none() | st.lists(st.none() | st.floats(), max_size=2),
                "s": st.none() | st.fixed_dictionaries({"x": st.none() | st.booleans()}),
            }
        ),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=8,
)
NESTED = pa.schema(
    [
        *SCHEMA,
        ("l", pa.list_(pa.float64())),
        ("s", pa.struct({"x": pa.bool_()})),
    ]
)


@settings(max_examples=40)
@given(batches=BATCHES, block_rows=st.integers(1, 6), clustered=st.booleans())
def test_whatever_the_rows_a_compaction_keeps_them(
    batches: list[list[dict[str, object]]], block_rows: int, *, clustered: bool
) -> None:
    table = create_table(
        MemoryStore(clock=ManualClock()),
        first_schema(columns_of_arrow(NESTED)),
        cluster_by=["k"] if clustered else [],
        properties=small_blocks(block_rows),
        clock=ManualClock(),
        probe_store=False,
    )
    for batch in batches:
        table.append(pa.Table.from_pylist(batch, schema=NESTED))
    before = table.to_arrow().to_pylist()
    table.compact()
    after = table.to_arrow().to_pylist()

    assert sorted(map(repr, after)) == sorted(map(repr, before))
    assert clustered or repr(after) == repr(before)
    assert table.fsck(deep=True).is_sound
