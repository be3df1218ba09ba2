"""Two writers end as if one had come after the other, wherever the one meets the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuse_stream.errors import CommitStateUnknownError, ConflictError, FuseError
from fuse_stream.recovery.target import Goal
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import Crash, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound, rows_of
from tests.commit.test_crash_sweep import READS, WAYS, WAYS_OF_READS
from tests.dml.two_writers import (
    Act,
    calls_of,
    check_feed,
    content,
    copy_of,
    every_pair,
    interleavings,
    made,
    opened,
    rows,
    run_schedule,
    serial,
)
from tests.kit.commuting import Equivalents
from tests.recovery.histories import rewind


def delete_some(table: Table) -> object:
    return table.delete("k IN (1, 4)")


def update_some(table: Table) -> object:
    return table.update("k IN (1, 4, 5)", {"v": "x"})


CHANGES: dict[str, Act] = {"delete": delete_some, "update": update_some}

OTHERS: dict[str, Act] = {
    "append": lambda t: t.append(rows(1, 7)),
    "delete of the same rows": lambda t: t.delete("k = 1 OR k = 6"),
    "delete of all": lambda t: t.delete("true"),
    "update of the same rows": lambda t: t.update("k >= 4", {"v": "y"}),
    "update that moves rows": lambda t: t.update("k = 6", {"k": 4}),
    "update that moves rows away": lambda t: t.update("k = 4", {"k": 9}),
    "compact": lambda t: t.compact(),
    "overwrite": lambda t: t.overwrite(rows(1, 8)),
    "rewind before a delete": lambda t: rewind(t.committer, Goal(version=4), replan=True),
    "rewind before two deletes": lambda t: rewind(t.committer, Goal(version=3)),
    "revert of a delete": lambda t: t.revert(4, on_conflict="replan"),
    "expire": lambda t: t.expire(keep_last=1),
    "vacuum": lambda t: t.vacuum(),
}
MAY_CONFLICT = {"rewind before a delete", "rewind before two deletes", "revert of a delete"}
"""Operations that may answer a ConflictError, and have then done nothing."""


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("change", CHANGES)
def test_two_writers_end_in_one_of_their_two_orders(change: str, other: str) -> None:
    base = made()
    acts = CHANGES[change], OTHERS[other]
    orders = {at: serial(base, *(acts[one] for one in at)) for at in [(0, 1), (1, 0), (0,)]}
    met = set()
    for end in interleavings(base, *acts):
        errors = [one for one in end.results if isinstance(one, BaseException)]
        if errors:
            assert [type(one) for one in errors] == [ConflictError], end.schedule
            assert other in MAY_CONFLICT
            assert end.order == [0]
        order = tuple(end.order)
        met.add(order)

        if order in orders and not (order == (0,) and not errors):
            assert end.rows == orders[order], (end.schedule, end.order)
        else:  # one of them found nothing to do, or does not say where it is
            assert end.rows in (orders[0, 1], orders[1, 0]), end.schedule

    assert len(met) > 1 or other in {"expire", "vacuum"}


@pytest.mark.long
def test_a_schedule_that_is_left_out_ends_like_one_that_is_run() -> None:
    base = made()
    acts = delete_some, OTHERS["compact"]
    counts = [len(calls_of(base, act)) for act in acts]
    equivalents = Equivalents(counts[0], sum(counts))
    ends = {}
    for schedule in every_pair(*counts):
        pair = schedule.count(0), schedule.count(1)
        run = run_schedule(base, *acts, schedule)
        ends[pair] = {key: item.data for key, item in run.store.objects.items()}
        if equivalents.find(pair) is None:
            equivalents.note(pair, run.trace)

        assert ends[pair] == ends[equivalents.find(pair)], pair  # type: ignore[index]
    assert len({equivalents.find(pair) for pair in ends}) < len(ends) / 2


@pytest.mark.parametrize("key", [("k",), ("v", "k")])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_beside_a_rewrite_that_sorts_hides_the_same_rows(
    change: str, key: tuple[str, ...]
) -> None:
    store = made(cluster_by=key)
    opened(store, 3).set_properties({"fuse.block.rows": "2", "fuse.cluster.depth": "1"})
    rewrites: list[Act] = [lambda t: t.recluster(), lambda t: t.compact()]
    for rewrite in rewrites:
        expected = serial(store, CHANGES[change])
        for end in interleavings(store, CHANGES[change], rewrite):
            assert not any(isinstance(one, BaseException) for one in end.results)
            assert end.rows == expected, end.schedule


def test_a_compaction_lands_beside_a_change_of_its_blocks() -> None:
    base = made()
    dropped = 0
    for end in interleavings(base, delete_some, lambda t: t.compact()):
        dropped += end.results[1].dropped_group_count  # type: ignore[attr-defined]

    assert dropped == 0


@pytest.mark.parametrize("change", CHANGES)
def test_the_same_change_by_two_writers_is_made_once(change: str) -> None:
    base = made()
    act: Callable[[Table], object] = CHANGES[change]
    for end in interleavings(base, act, act):
        counts = [one.deleted + one.updated for one in end.results]  # type: ignore[attr-defined]

        assert end.rows == serial(base, act)
        assert sum(counts) == max(counts)  # the other one found nothing to do


# ---- crashes


def run(store: FaultyStore, act: Act) -> BaseException | None:
    try:
        act(opened(store, 5))
    except (Crash, FuseError) as error:
        return error
    return None


@pytest.fixture(scope="module")
def base() -> MemoryStore:
    return made()


@pytest.mark.parametrize("change", CHANGES)
def test_after_any_fault_the_table_is_as_before_or_after_and_a_second_call_ends_it(
    base: MemoryStore, change: str
) -> None:
    act = CHANGES[change]
    before, after = content(base), serial(base, act)
    version = opened(base, 21).head().version
    counted = FaultyStore(copy_of(base))
    opened(counted, 5)
    start = len(counted.calls)
    counted = FaultyStore(copy_of(base))
    run(counted, act)
    met = set()
    for at_call in range(start + 1, len(counted.calls) + 1):
        verb = counted.calls[at_call - 1][0]
        for fault, keep_failing in WAYS_OF_READS if verb in READS else WAYS:
            where = (counted.calls[at_call - 1], fault, keep_failing)
            store = copy_of(base)
            faulty = FaultyStore(store, at_call=at_call, fault=fault, keep_failing=keep_failing)
            error = run(faulty, act)
            found = content(store)
            met.add(found == after)

            assert (where, found in (before, after)) == (where, True)
            if error is None:
                assert (where, found) == (where, after)
            elif isinstance(error, FuseError) and found == after:
                assert (where, type(error)) == (where, CommitStateUnknownError)
            table = opened(store, 7)
            act(table)
            assert (where, rows_of(table.to_arrow())) == (where, after)
            assert act(table).snapshot is None  # type: ignore[attr-defined]
            assert_sound(store, table)
            check_feed(table, since=version)

    assert met == {True, False}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_finds_nothing_puts_nothing(base: MemoryStore, change: str) -> None:
    store = FaultyStore(copy_of(base))
    table = opened(store, 5)
    result = table.delete("k = 2") if change == "delete" else table.update("k = 1", {"v": "a"})

    assert (result.snapshot, result.deleted, result.updated) == (None, 0, 0)
    assert {verb for verb, _ in store.calls} <= {"get", "open_input", "list"}


@pytest.mark.parametrize("change", CHANGES)
def test_a_dry_run_counts_and_puts_nothing(base: MemoryStore, change: str) -> None:
    store = FaultyStore(copy_of(base))
    table = opened(store, 5)
    result = (
        table.delete("k >= 4", dry_run=True)
        if change == "delete"
        else table.update("k >= 4", {"v": "z"}, dry_run=True)
    )

    assert (result.snapshot, result.deleted + result.updated) == (None, 3)
    assert {verb for verb, _ in store.calls} <= {"get", "open_input", "list"}


def test_expiry_and_vacuum_keep_the_deletion_files_of_kept_versions() -> None:
    store = made()
    clock = store.clock
    assert isinstance(clock, ManualClock)
    for _ in range(3):
        clock.advance(10 * 24 * 3600)
        table = opened(store, 8)
        table.metadata.clock.wall_us = clock.wall_us  # type: ignore[attr-defined]
        table.expire(keep_last=1)
        table.vacuum()

    table = opened(store, 9)
    assert sorted(table.to_arrow()["k"].to_pylist()) == [1, 4, 5, 6]
    assert_sound(store, table, since=table.head().floor)
