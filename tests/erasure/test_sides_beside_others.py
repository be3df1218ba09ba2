"""An erasure from a table with sides, beside another writer and with a fault at any call.

The rows of the table and of each side end as if one had come after the other.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from itertools import chain

import pytest

from fuse_stream.errors import ConflictError, FuseError
from fuse_stream.format.sides import side_views
from fuse_stream.recovery.target import Goal
from fuse_stream.table.handle import Table
from fuse_stream.testing.faults import Crash, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound
from tests.dml.two_writers import Act, check_feed, copy_of, interleavings, opened
from tests.erasure.contents import all_rows
from tests.erasure.test_sides import ADA, BOB, EVE, event, held, made, send, text
from tests.erasure.test_two_writers import ways_of
from tests.recovery.histories import rewind

SHOWN = {
    "tombstones": ["email", "_fuse_seq", "_fuse_kind"],
    "quarantine": ["reason", "raw", "event"],
}
State = tuple[Counter[str], ...]


def made_with_sides() -> MemoryStore:
    """Return a table with a row of Eve, tombstones of Ada and Bob, and bad events of all three."""
    table, store, _ = made()
    send(table, event(ADA, 1), event(BOB, 1), event(EVE, 1, n=1))
    send(table, event(ADA, 5, "d"), event(BOB, 5, "d"))
    send(table, event(ADA, None), event(BOB, None), event(EVE, None), text(f"bad {ADA}"))
    return store


def erase(table: Table) -> object:
    return table.erase(f"email IN ('{ADA}', '{EVE}')").branches[0]


def holds(table: Table) -> bool:
    """Return whether the blocks of a head hold Ada or Eve, in rows or in a side."""
    rows = chain(all_rows(table), *(held(table, side) for side in table.head().sides))
    return any(name in str(row) for row in rows for name in (ADA, EVE))


def state(table: Table) -> State:
    """Return the rows of the table and of its sides, but for ids and times."""
    sides = side_views(table.head())
    rows = [table.to_arrow()]
    for side, names in SHOWN.items():
        if side in sides:
            rows.append(table.to_arrow(side=side, columns=names))
        else:
            rows.append(table.to_arrow(where="false"))
    return tuple(Counter(map(str, one.to_pylist())) for one in rows)


TRUNCATES = {"apply_as_truncates": "_op = 't'"}
OTHERS: dict[str, Act] = {
    "event of an erased key": lambda t: send(t, event(ADA, 6)),
    "late event of an erased key": lambda t: send(t, event(ADA, 3)),
    "delete of an erased row": lambda t: send(t, event(EVE, 4, "d")),
    "bad event of an erased key": lambda t: send(t, event(EVE, None), text(f"worse {ADA}")),
    "event of another deleted key": lambda t: send(t, event(BOB, 6)),
    "truncate": lambda t: send(t, event(None, 9, "t"), **TRUNCATES),
    "retry": lambda t: t.retry(),
    "compact": lambda t: t.compact(),
    "rewind before the sides": lambda t: rewind(t.committer, Goal(version=1), replan=True),
    "revert of the deletes": lambda t: t.revert(2, on_conflict="replan"),
    "erase": lambda t: t.erase(f"email IN ('{BOB}', '{EVE}')").branches[0],
    "expire": lambda t: t.expire(keep_last=1),
    "vacuum": lambda t: t.vacuum(),
}
MAY_CONFLICT = {"rewind before the sides", "revert of the deletes"}
"""Operations that may answer a ConflictError, and have then done nothing."""


@pytest.mark.parametrize("other", OTHERS)
def test_an_erasure_from_sides_and_another_writer_end_in_one_of_their_two_orders(
    other: str,
) -> None:
    base = made_with_sides()
    acts = erase, OTHERS[other]
    orders = {order: serial_state(base, *(acts[at] for at in order)) for order in ORDERS}
    met = set()
    for end in interleavings(base, *acts):
        found = state(end.table)
        met.add(tuple(end.order))
        errors = [one for one in end.results if isinstance(one, BaseException)]
        if errors:
            assert [type(one) for one in errors] == [ConflictError], (end.schedule, errors)
            assert other in MAY_CONFLICT
            assert found == orders[0,], end.schedule
        else:
            expected = orders.get(tuple(end.order))
            allowed = [expected] if len(end.order) == 2 else [orders[0, 1], orders[1, 0]]
            assert found in allowed, (end.schedule, end.order)
        if end.order[-1] == 0:
            assert not holds(end.table), end.schedule
    assert any(0 in order for order in met)


ORDERS: list[tuple[int, ...]] = [(0, 1), (1, 0), (0,)]


def serial_state(base: MemoryStore, *acts: Act) -> State:
    """Return the state after the acts, one after the other; one in conflict does nothing."""
    store = copy_of(base)
    for seed, act in enumerate(acts, 31):
        with contextlib.suppress(ConflictError):
            act(opened(store, seed))
    return state(opened(store, 21))


def test_whatever_call_fails_a_second_erasure_finishes_that_of_the_sides() -> None:
    base = made_with_sides()
    before, after = (serial_state(base, *acts) for acts in ((), (erase,)))
    counted = FaultyStore(copy_of(base))
    table = opened(counted, 5)
    start = len(counted.calls)
    erase(table)
    met = set()

    for at_call in range(start + 1, len(counted.calls) + 1):
        for fault, keep_failing in ways_of(counted, at_call):
            store = copy_of(base)
            faulty = FaultyStore(store, at_call=at_call, fault=fault, keep_failing=keep_failing)
            with contextlib.suppress(Crash, FuseError):
                erase(opened(faulty, 5))
            where = counted.calls[at_call - 1], fault, keep_failing
            found = state(opened(store, 6))
            met.add(found == after)
            assert (where, found in (before, after)) == (where, True)
            again = opened(store, 7)
            erase(again)
            assert (where, state(again), holds(again)) == (where, after, False)
            assert_sound(store, again)
            check_feed(again, since=0)
    assert met == {True, False}
