"""The list of segments stays short whatever is appended, and nobody sees it being shortened."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.commit.plan import Rollup, fold
from fuse_stream.commit.rollup import (
    FAN_IN,
    FORCED_AT,
    MAX_BLOCKS,
    choose_rollup,
)
from fuse_stream.format.records import SegmentRef
from fuse_stream.table.handle import Table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound, rows_of

Create = Callable[..., Table]


def ref(number: int, *, blocks: int = 1, level: int = 0) -> SegmentRef:
    return SegmentRef(
        id=f"{number:032x}",
        sha256="",
        level=level,
        row_count=blocks,
        block_count=blocks,
        byte_size=1,
    )


def rolled_up(segments: tuple[SegmentRef, ...], number: int) -> tuple[SegmentRef, ...]:
    """Return `segments` as the next commit would leave them."""
    chosen = choose_rollup(segments)
    if not chosen:
        return segments
    blocks = sum(item.block_count for item in chosen)
    merged = ref(10**9 + number, blocks=blocks, level=chosen[0].level + 1)
    return fold(segments, [Rollup(inputs=tuple(item.id for item in chosen), ref=merged)])


@given(sizes=st.lists(st.sampled_from([1, 1, 1, 1, 7, 400, 999, 1000, 3000]), max_size=300))
def test_small_segments_are_merged_whatever_stands_between_them(sizes: list[int]) -> None:
    segments: tuple[SegmentRef, ...] = ()
    for number, blocks in enumerate(sizes):
        segments = rolled_up((*segments, ref(number, blocks=blocks)), number)
    large = sum(1 for size in sizes if size > 7)

    assert sum(item.block_count for item in segments) == sum(sizes)
    assert len(segments) <= 4 * FAN_IN + 17 * large


def test_a_full_segment_does_not_keep_those_behind_it_from_being_merged() -> None:
    segments: tuple[SegmentRef, ...] = (ref(0, blocks=MAX_BLOCKS),)
    for number in range(1, 1000):
        segments = rolled_up((*segments, ref(number)), number)

    assert len(segments) < 4 * FAN_IN


def test_no_roll_up_is_over_the_limit() -> None:
    chosen = choose_rollup(tuple(ref(number, blocks=300) for number in range(FAN_IN)))

    assert [item.block_count for item in chosen] == [300, 300, 300]


def test_a_roll_up_whose_inputs_do_not_stand_together_is_not_folded() -> None:
    segments = tuple(ref(number) for number in range(4))
    rollup = Rollup(inputs=(segments[0].id, segments[2].id), ref=ref(9, level=1))
    gone = Rollup(inputs=(ref(77).id, segments[0].id), ref=ref(9, level=1))

    assert fold(segments, [rollup]) == segments
    assert fold(segments, [gone]) == segments
    assert fold(segments[:1], [Rollup(inputs=(segments[0].id, "x"), ref=ref(9))]) == segments[:1]


def test_after_300_appends_few_segments_stand_and_every_row(
    create: Create, store: MemoryStore
) -> None:
    table = create()
    for number in range(300):
        table.append(pa.table({"k": [number]}))

    segments = table.segments()
    assert len(segments) <= 50
    assert [item.level for item in segments] == sorted(
        (item.level for item in segments), reverse=True
    )
    assert rows_of(table.to_arrow()) == {(number,): 1 for number in range(300)}
    assert [block.col_stats[1].min for block in table.blocks()] == list(range(300))
    assert_sound(store, table, since=295)


def test_two_writers_that_take_turns_do_not_let_the_list_grow(
    create: Create, store: MemoryStore
) -> None:
    tables = [create()]
    tables.append(open_table(store, clock=ManualClock(seed=6), probe_store=False))
    most = 0
    for number in range(200):
        tables[number % 2].append(pa.table({"k": [number]}))
        most = max(most, len(tables[0].segments()))

    assert most <= FORCED_AT + 2 * FAN_IN
    assert rows_of(tables[0].to_arrow()) == {(number,): 1 for number in range(200)}


def test_a_commit_never_merges_its_own_segment(create: Create) -> None:
    table = create()
    for number in range(FAN_IN * 3):
        snapshot = table.append(pa.table({"k": [number]}))
        (added,) = snapshot.added

        assert snapshot.segments[-1].id == added
        assert snapshot.segments[-1].level == 0


def test_a_writer_that_cannot_read_a_segment_still_commits(
    create: Create, store: MemoryStore
) -> None:
    table = create()
    for number in range(FAN_IN - 1):
        table.append(pa.table({"k": [number]}))
    lost = table.segments()[3].id
    del store.objects[f"_sg/{lost}_v1.json.zst"]
    fresh = open_table(store, clock=ManualClock(seed=6), probe_store=False)
    for number in range(3):
        fresh.append(pa.table({"k": [number]}))

    assert fresh.head().version == FAN_IN + 2
