"""An erasure beside another writer ends as if one had come after the other, wherever they meet."""

from __future__ import annotations

import contextlib

import pytest

from fuse_stream.errors import ConflictError, FuseError
from fuse_stream.recovery.target import Goal
from fuse_stream.table.handle import Table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import Crash, Fault, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound
from tests.commit.test_crash_sweep import READS, WAYS, WAYS_OF_READS
from tests.dml.two_writers import (
    Act,
    check_feed,
    content,
    copy_of,
    interleavings,
    made,
    opened,
    rows,
    serial,
)
from tests.erasure.contents import all_rows
from tests.recovery.histories import rewind

SOUGHT = {1, 3, 4}
"""3 is deleted, and so is 2, which is in the block of 1."""


def erase(table: Table) -> object:
    return table.erase("k IN (1, 3, 4)").branches[0]


OTHERS: dict[str, Act] = {
    "append of such a row": lambda t: t.append(rows(1, 7)),
    "delete of such a row": lambda t: t.delete("k = 1"),
    "delete of another row in a block": lambda t: t.delete("k = 6"),
    "delete of all": lambda t: t.delete("true"),
    "update of such rows": lambda t: t.update("k >= 4", {"v": "y"}),
    "update that makes such a row": lambda t: t.update("k = 6", {"k": 4}),
    "update that saves a row": lambda t: t.update("k = 4", {"k": 9}),
    "compact": lambda t: t.compact(),
    "overwrite": lambda t: t.overwrite(rows(1, 8)),
    "rewind before a delete": lambda t: rewind(t.committer, Goal(version=4), replan=True),
    "rewind before two deletes": lambda t: rewind(t.committer, Goal(version=3)),
    "revert of a delete": lambda t: t.revert(4, on_conflict="replan"),
    "cluster by": lambda t: t.cluster_by(["v", "k"], on_conflict="replan"),
    "erase": lambda t: t.erase("k IN (1, 5)").branches[0],
    "expire": lambda t: t.expire(keep_last=1),
    "vacuum": lambda t: t.vacuum(),
}
MAY_CONFLICT = {"rewind before a delete", "rewind before two deletes", "revert of a delete"}
"""Operations that may answer a ConflictError, and have then done nothing."""
MAY_BRING_BACK = {
    "append of such a row",
    "update that makes such a row",
    "overwrite",
    "rewind before a delete",
    "rewind before two deletes",
    "revert of a delete",
}


@pytest.mark.parametrize("key", [(), ("v", "k")])
@pytest.mark.parametrize("other", OTHERS)
def test_an_erasure_and_another_writer_end_in_one_of_their_two_orders(
    other: str, key: tuple[str, ...]
) -> None:
    base = made(cluster_by=key)
    acts = erase, OTHERS[other]
    orders = {at: serial(base, *(acts[one] for one in at)) for at in [(0, 1), (1, 0), (0,)]}
    for end in interleavings(base, *acts):
        errors = [one for one in end.results if isinstance(one, BaseException)]
        if errors:
            assert [type(one) for one in errors] == [ConflictError], (end.schedule, errors)
            assert other in MAY_CONFLICT
        order = tuple(end.order)

        if order in orders and not (order == (0,) and not errors):
            assert end.rows == orders[order], (end.schedule, end.order)
        else:  # one of them found nothing to do, or does not say where it is
            assert end.rows in (orders[0, 1], orders[1, 0]), end.schedule
        if other not in MAY_BRING_BACK or order[-1:] == (0,):
            held = {row["k"] for row in all_rows(end.table)}
            assert held & SOUGHT == set(), (end.schedule, end.order)


def test_whatever_call_fails_a_second_erasure_finishes_it() -> None:
    base = made()
    opened(base, 3).create_branch("fix", 3)
    before, after = content(base), serial(base, erase)
    counted = FaultyStore(copy_of(base))
    table = opened(counted, 5)
    start = len(counted.calls)
    erase(table)

    assert {verb for verb, _ in counted.calls} >= {"get", "list", "put", "put_if_absent"}
    for at_call in range(start + 1, len(counted.calls) + 1):
        for fault, keep_failing in ways_of(counted, at_call):
            store = copy_of(base)
            faulty = FaultyStore(store, at_call=at_call, fault=fault, keep_failing=keep_failing)
            with contextlib.suppress(Crash, FuseError):
                erase(opened(faulty, 5))
            where = counted.calls[at_call - 1], fault, keep_failing
            assert (where, content(store)) in ((where, before), (where, after))
            again = opened(store, 7)
            again.erase("k IN (1, 3, 4)")
            check_erased(store)
            check_feed(again, since=0)


def ways_of(counted: FaultyStore, at_call: int) -> list[tuple[Fault, bool]]:
    """Return how a call fails: a write in all ways, one read in four, in one of two ways."""
    if counted.calls[at_call - 1][0] not in READS:
        return WAYS
    return [WAYS_OF_READS[at_call // 4 % 2]] if at_call % 4 == 0 else []


def check_erased(store: MemoryStore) -> None:
    for branch in ("main", "fix"):
        found = opened_branch(store, branch)
        assert {row["k"] for row in all_rows(found)} & SOUGHT == set()
    main = opened_branch(store, "main")
    assert_sound(store, main)
    assert main.erase("k IN (1, 3, 4)").branches[0].snapshot is None


def opened_branch(store: MemoryStore, branch: str) -> Table:
    return open_table(store, branch=branch, clock=ManualClock(seed=9), probe_store=False)
