"""Compaction merges the small blocks of sides and folds their hidden rows, beside writers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import pytest

from fuse_stream.commit.rollup import FAN_IN
from fuse_stream.commit.stage import Rewritten
from fuse_stream.format.records import Operation
from fuse_stream.format.refs import Past
from fuse_stream.format.schema import Column
from fuse_stream.optimize.compact import compact, run_locally
from fuse_stream.optimize.policy import Step, decide
from fuse_stream.optimize.rewrite import Group, Rewriter
from fuse_stream.recovery.target import Goal
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound
from tests.conftest import Create
from tests.dml.two_writers import End, interleavings, made
from tests.kit.sides import SIDE_SCHEMA, commit_sides, keys_of, side_rows
from tests.recovery.histories import keys, opened, rewind, rows


def test_small_blocks_of_a_side_become_one_without_the_hidden_rows(
    create: Create, store: MemoryStore
) -> None:
    table = create()
    for key in "abc":
        commit_sides(table, {"tombstones": side_rows(key, key * 2)}, rows=rows(ord(key)))
    commit_sides(table, {"quarantine": side_rows("x")}, hides={"tombstones": {"b", "cc"}})
    result = table.compact()
    head = table.head()

    assert head.sides["tombstones"].summary.block_count == 1
    assert head.sides["tombstones"].deletion_files == ()
    assert keys_of(table, "tombstones") == {"a": 1, "aa": 1, "bb": 1, "c": 1}
    assert list(keys_of(table, "tombstones")) == ["a", "aa", "bb", "c"]
    assert keys_of(table, "quarantine") == {"x": 1}
    assert (result.blocks_before, result.blocks_after, result.group_count) == (6, 2, 2)
    assert (head.operation, head.data_change, head.added) == (Operation.COMPACT, False, ())
    assert head.message.startswith("tombstones: 3 blocks -> 1")
    assert keys(table.to_arrow()) == [97, 98, 99]
    assert table.compact().snapshot is None
    assert_sound(store, table)
    assert table.fsck(deep=True).is_sound


def test_a_side_of_which_all_rows_are_hidden_goes(create: Create, store: MemoryStore) -> None:
    table = create()
    commit_sides(table, {"tombstones": side_rows("a", "b")})
    commit_sides(table, {}, hides={"tombstones": {"a", "b"}})
    assert table.compact().snapshot is not None

    assert table.head().sides == {}
    assert "sides" not in table.head().required_features
    assert_sound(store, table)


def test_progress_counts_the_blocks_of_all_lists(create: Create) -> None:
    table = create()
    for key in "ab":
        commit_sides(table, {"tombstones": side_rows(key)}, rows=rows(1))
    seen: list[tuple[int, int]] = []
    table.compact(progress=lambda done, total: seen.append((done, total)))

    assert seen == [(2, 4), (4, 4)]


def test_the_limit_covers_the_table_and_its_sides(create: Create) -> None:
    table = create()
    for key in "abc":
        commit_sides(table, {"tombstones": side_rows(key)}, rows=rows(1))
    first = table.compact(limit=4)

    assert first.blocks_before == 3
    assert table.compact(limit=2).blocks_before == 2


def test_a_compaction_gives_old_blocks_the_side_s_new_columns(create: Create) -> None:
    table = create()
    commit_sides(table, {"quarantine": side_rows("a")})
    wide = dataclasses.replace(
        SIDE_SCHEMA,
        id=1,
        last_column_id=3,
        columns=(*SIDE_SCHEMA.columns, Column(id=3, name="why", type="string")),
    )
    commit_sides(table, {"quarantine": side_rows("b", schema=wide)}, schema=wide)
    table.compact()

    assert table.to_arrow(side="quarantine").schema.names == ["key", "seq", "why"]
    assert table.head().sides["quarantine"].summary.block_count == 1


def test_the_optimizer_compacts_small_blocks_of_sides(create: Create, clock: ManualClock) -> None:
    table = create(properties={"fuse.optimize.blocks": "3"})
    for key in "ab":
        commit_sides(table, {"tombstones": side_rows(key)})
    before = decide(table.head(), Past(), {}, clock.now_us()).step
    commit_sides(table, {"quarantine": side_rows("c")})

    assert before is None
    assert decide(table.head(), Past(), {}, clock.now_us()).step is Step.COMPACT
    commit_sides(table, {}, hides={"tombstones": {"a"}})
    assert decide(table.head(), Past(settled_blocks=3), {}, clock.now_us()).step is Step.COMPACT


@pytest.mark.parametrize("hides", [False, True])
def test_segments_and_deletion_files_of_a_side_are_rolled_up_by_sixteen(
    create: Create, store: MemoryStore, *, hides: bool
) -> None:
    table = create()
    names = [f"{number:03}" for number in range(3 * FAN_IN)]
    for name in names:
        commit_sides(table, {"tombstones": side_rows(name, f"{name}x")})
    if hides:
        for name in names:
            commit_sides(table, {}, hides={"tombstones": {name}})
    side = table.head().sides["tombstones"]

    assert len(side.segments) < FAN_IN + 4
    assert max(ref.level for ref in side.segments) == 1
    assert len(side.deletion_files) < FAN_IN + 4
    left = [f"{name}x" for name in names] + ([] if hides else names)
    assert sorted(keys_of(table, "tombstones")) == sorted(left)
    assert_sound(store, table)
    assert table.fsck().is_sound


def base() -> MemoryStore:
    store = made()
    table = opened(store)
    for key in "abc":
        commit_sides(table, {"tombstones": side_rows(key, f"{key}2")})
    commit_sides(table, {}, hides={"tombstones": {"b"}})
    return store


def check(end: End, expected: set[str]) -> None:
    for result in end.results:
        assert not isinstance(result, BaseException), (end.schedule, result)
    assert set(keys_of(end.table, "tombstones").elements()) == expected, end.schedule
    assert keys_of(end.table, "tombstones").total() == len(expected), end.schedule


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (
            lambda t: commit_sides(t, {"tombstones": side_rows("d")}),
            {"a", "a2", "b2", "c", "c2", "d"},
        ),
        (
            lambda t: commit_sides(t, {}, hides={"tombstones": {"a", "c2"}}),
            {"a2", "b2", "c"},
        ),
        (
            lambda t: commit_sides(
                t, {"tombstones": side_rows("d")}, hides={"tombstones": {"a", "a2"}}
            ),
            {"b2", "c", "c2", "d"},
        ),
        (lambda t: t.compact(), {"a", "a2", "b2", "c", "c2"}),
    ],
    ids=["append", "hide", "both", "compact"],
)
def test_a_compaction_beside_a_writer_of_the_side_loses_nothing_and_fails_nobody(
    act: object, expected: set[str]
) -> None:
    for end in interleavings(base(), lambda t: t.compact(), act):  # type: ignore[arg-type]
        check(end, expected)


def test_two_writers_of_a_side_meet_at_every_pair_of_calls() -> None:
    def first(table: Table) -> object:
        return commit_sides(table, {"tombstones": side_rows("d")}, hides={"tombstones": {"a"}})

    def second(table: Table) -> object:
        return commit_sides(table, {"tombstones": side_rows("e")}, hides={"tombstones": {"a", "c"}})

    for end in interleavings(base(), first, second):
        check(end, {"a2", "b2", "c2", "d", "e"})


def test_groups_of_a_side_that_went_meanwhile_are_dropped(
    create: Create, store: MemoryStore
) -> None:
    table = create()
    for key in "ab":
        commit_sides(table, {"tombstones": side_rows(key)})

    def run(rewriter: Rewriter, groups: Sequence[Group]) -> Iterator[Rewritten]:
        rewind(opened(store).committer, Goal(version=0))
        return run_locally(rewriter, groups)

    result = compact(table.committer, run=run)

    assert (result.snapshot, result.dropped_group_count) == (None, 1)
    assert table.head().sides == {}
