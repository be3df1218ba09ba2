"""Run a rewind again, also after its own commit has expired."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rich.console import Console

from fuse_stream.checkpoint.files import load_checkpoint
from fuse_stream.cli.rewind import rewind_document, rewind_view
from fuse_stream.errors import InvalidInputError
from fuse_stream.recovery.rewind import PipelineRewind, rewind_tables
from fuse_stream.recovery.target import Goal
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import Crash
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.histories import keys, rewind, rows
from tests.recovery.streams import Fanout, Query

Create = Callable[..., Table]
OLD = "11111111-2222-3333-4444-555555555555"
SAME = pytest.mark.parametrize("goal", [Goal(after_batch=2), Goal(version=3)], ids=str)


@pytest.fixture
def query(create: Create, clock: ManualClock) -> Fanout:
    """Six batches of one row to each of two tables."""
    query = Fanout(tuple(create(at=MemoryStore(clock=clock)) for _ in range(2))).begin(OLD)
    query.run(6)
    return query


def back(tables: tuple[Table, ...], old: Store, new: Store, goal: Goal) -> PipelineRewind:
    committers = [table.committer for table in tables]
    return rewind_tables(committers, goal, checkpoints=((old, new),))


def expire_rewind(table: Table, clock: ManualClock) -> None:
    for number in range(2):
        table.append(rows(900 + number), app_id="loader", batch_id=number)
        clock.advance(30 * 24 * 3600)
    table.expire(keep_last=1)
    assert table.head().floor > 7


def die(_paths: object) -> None:
    raise Crash


@SAME
@pytest.mark.parametrize("count", [1, 2])
def test_a_fork_is_finished_after_the_rewind_that_made_it_has_expired(
    query: Fanout, clock: ManualClock, count: int, goal: Goal
) -> None:
    tables, new = query.tables[:count], MemoryStore()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fuse_stream.recovery.rewind.finish_all", die)
        with pytest.raises(Crash):
            back(tables, query.checkpoint, new, goal)
    for table in tables:
        expire_rewind(table, clock)
    done = back(tables, query.checkpoint, new, goal)
    again = back(tables, query.checkpoint, new, goal)
    Fanout(tables, new, plus=100).run(1)

    assert done == again
    assert [(table.target, table.snapshot) for table in done.tables] == [(None, None)] * count
    for table in tables:
        assert keys(table.to_arrow()) == [0, 1, 2, 103, 900, 901]
    with pytest.raises(InvalidInputError, match="another"):
        back(tables, query.checkpoint, new, Goal(after_batch=1))
    with pytest.raises(InvalidInputError, match="another version"):
        back(tables, query.checkpoint, new, Goal(version=2))


@pytest.mark.parametrize("is_first", [False, True])
def test_a_table_is_added_after_the_rewind_of_the_other_has_expired(
    query: Fanout, clock: ManualClock, *, is_first: bool
) -> None:
    (flights, delays), new, goal = query.tables, MemoryStore(), Goal(after_batch=2)
    back((flights,), query.checkpoint, new, goal)
    expire_rewind(flights, clock)
    tables = (delays, flights) if is_first else (flights, delays)
    back(tables, query.checkpoint, new, goal)
    Fanout(tables, new, plus=100).run(1)

    assert load_checkpoint(new).query_id != OLD
    assert keys(flights.to_arrow()) == [0, 1, 2, 103, 900, 901]
    assert keys(delays.to_arrow()) == [0, 1, 2, 103]


def test_an_expired_rewind_is_shown_as_expired(query: Fanout, clock: ManualClock) -> None:
    tables, new, goal = query.tables[:1], MemoryStore(), Goal(after_batch=2)
    back(tables, query.checkpoint, new, goal)
    expire_rewind(tables[0], clock)
    done = back(tables, query.checkpoint, new, goal)
    document = rewind_document(done, ["t"])
    console = Console(width=200)
    with console.capture() as shown:
        console.print(*rewind_view(done, ["t"]))

    assert (document["target"], document["snapshot"]) == (None, None)
    assert "a version that has expired, by an earlier call" in shown.get()


def test_a_repeated_rewind_without_checkpoints_returns_what_it_did(create: Create) -> None:
    query = Query(create()).begin(OLD)
    query.run(6)
    first = rewind(query.table.committer, Goal(after_batch=2), retire=["default"])
    again = rewind(query.table.committer, Goal(after_batch=2), retire=["default"])

    assert first.snapshot is not None
    assert again.target is not None
    assert (again.snapshot, again.target.version) == (first.snapshot, 3)
    with pytest.raises(InvalidInputError, match="nothing to undo"):
        rewind(query.table.committer, Goal(after_batch=4), retire=["default"])
