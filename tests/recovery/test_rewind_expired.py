"""Rewind several tables of one query together after older history has expired."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuse_stream.errors import SnapshotExpiredError, StreamIdentityError
from fuse_stream.recovery.rewind import PipelineRewind, rewind_tables
from fuse_stream.recovery.target import Goal
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.histories import keys, raise_floor, rewind, rows
from tests.recovery.streams import Fanout, Query
from tests.refs.test_clone import made, of

Create = Callable[..., Table]
OLD = "11111111-2222-3333-4444-555555555555"


def back(
    tables: tuple[Table, ...], goal: Goal, old: Store, new: Store, **options: object
) -> PipelineRewind:
    committers = [table.committer for table in tables]
    return rewind_tables(committers, goal, checkpoints=((old, new),), **options)  # type: ignore[arg-type]


def content(tables: tuple[Table, ...]) -> list[list[int]]:
    return [keys(table.to_arrow()) for table in tables]


def fresh(create: Create) -> tuple[Table, ...]:
    return create(at=MemoryStore()), create(at=MemoryStore())


def expired(create: Create) -> tuple[Table, ...]:
    """Two tables of two rows, whose first versions have expired; the newest is version 3."""
    tables = fresh(create)
    for table in tables:
        table.append(rows(70))
        table.append(rows(71))
        raise_floor(table, 2)
    return tables


def cloned(create: Create) -> tuple[Table, ...]:
    clones = []
    for table in expired(create):
        place = MemoryStore()
        made(table.metadata.store, place)
        clones.append(of(place, table.metadata.store))
    return tuple(clones)


# ---- a query whose first batch can be read


@pytest.mark.parametrize("tables_of", [expired, cloned])
@pytest.mark.parametrize("late", [None, 0, 1], ids=["together", "first late", "second late"])
def test_a_new_query_goes_back_to_before_its_first_batch(
    create: Create, tables_of: Callable[[Create], tuple[Table, ...]], late: int | None
) -> None:
    tables, new = tables_of(create), MemoryStore()
    head = tables[0].head().version
    if late is not None:
        tables[late].append(rows(72))
    query = Fanout(tables).begin(OLD)
    query.run(4)

    back(tables, Goal(version=head + (late == 0)), query.checkpoint, new)
    Fanout(tables, new, plus=100).run(2)

    kept = [[70, 71, *([72] if number == late else []), 100, 101] for number in range(2)]
    assert content(tables) == kept
    for sink in query.sinks:
        with pytest.raises(StreamIdentityError, match="retired"):
            sink.commit(4)


@pytest.mark.parametrize("goal", [Goal(after_batch=2), Goal(version=3)])
def test_the_batch_after_the_cut_proves_what_another_table_holds(
    create: Create, goal: Goal
) -> None:
    """The query's entry left the ledger, and its commits have expired."""
    tables, new = fresh(create), MemoryStore()
    query = Fanout(tables).begin(OLD)
    query.run(3)
    tables[1].forget("default")
    raise_floor(tables[1], 5)
    query.run(2)

    back(tables, goal, query.checkpoint, new)
    Fanout(tables, new, plus=100).run(1)

    assert content(tables) == [[0, 1, 2, 103]] * 2


def test_a_ledger_without_a_batch_that_runs_again_is_not_taken_to_have_it(
    create: Create,
) -> None:
    """The first table ends in the middle of batch 2, which the second one had, and forgot."""
    tables, new = fresh(create), MemoryStore()
    first = Query(tables[0], writers=("a", "b")).begin(OLD)
    second = Query(tables[1], first.checkpoint)
    for number in range(5):
        first.run_batch(number)
        second.commit(number)
        if number == 2:
            tables[1].forget("default")
            raise_floor(tables[1], 5)

    with pytest.raises(SnapshotExpiredError, match=r"may (hold|have held) batches"):
        back(tables, Goal(version=5), first.checkpoint, new)
    assert content(tables)[1] == [0, 1, 2, 3, 4]


def test_a_fork_goes_back_to_before_the_first_batch_of_its_query(create: Create) -> None:
    tables = expired(create)
    query = Fanout(tables).begin(OLD)
    query.run(5)
    first, second = MemoryStore(), MemoryStore()
    back(tables, Goal(after_batch=2), query.checkpoint, first)
    Fanout(tables, first, plus=100).run(2)

    rewind(tables[0].committer, Goal(version=3), checkpoints=((first, second),))
    back(tables, Goal(version=3), first, second)
    Fanout(tables, second, plus=200).run(1)

    assert content(tables) == [[70, 71, 200]] * 2


@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        (Goal(after_batch=1), [0, 1, 70, 71, 102, 103]),
        (Goal(version=5), [0, 1, 70, 71, 102]),  # batch 1 runs again
        (Goal(version=3), [70, 71, 100, 101]),
    ],
)
def test_a_writer_that_began_later_than_the_others_does_not_prevent_a_rewind(
    create: Create, goal: Goal, expected: list[int]
) -> None:
    table, new = expired(create)[0], MemoryStore()
    query = Query(table).begin(OLD)
    query.run(3)
    query.writers = ("", "late")
    query.run(2)

    rewind(table.committer, goal, checkpoints=((query.checkpoint, new),))
    Query(table, new, plus=100).run(2)

    assert keys(table.to_arrow()) == expected


# ---- what cannot be known


def test_a_table_that_shows_nothing_of_a_query_is_left_out(create: Create) -> None:
    tables, new = expired(create), MemoryStore()
    query = Fanout(tables).begin(OLD)
    query.run(4, writes=(0,))

    for retire in ([], ["*"]):
        with pytest.raises(SnapshotExpiredError, match="leave the table out"):
            back(tables, Goal(version=3), query.checkpoint, new, retire=retire)
    back(tables[:1], Goal(version=3), query.checkpoint, new)
    Fanout(tables, new, plus=100).run(2)

    assert content(tables) == [[70, 71, 100, 101]] * 2


def test_a_first_batch_that_is_seen_late_says_which_batch_may_be_chosen(create: Create) -> None:
    tables, new = expired(create), MemoryStore()
    query = Fanout(tables).begin(OLD)
    query.run(2, writes=(0,))
    query.run(2)

    with pytest.raises(SnapshotExpiredError, match="the batch before that one") as caught:
        back(tables, Goal(version=3), query.checkpoint, new)
    assert caught.value.context["first_batch"] == 2
    back(tables, Goal(after_batch=1), query.checkpoint, new)
    Fanout(tables, new, plus=100).run(1)

    assert content(tables) == [[0, 1, 70, 71, 102], [70, 71, 102]]


# ---- tags


def tagged(create: Create, *, at: tuple[int, int]) -> Fanout:
    """Return a query of eight batches; the tables have tags at the batches in `at`."""
    query = Fanout(fresh(create)).begin(OLD)
    query.run(8)
    for table, batch in zip(query.tables, at, strict=True):
        table.create_tag("good", batch + 1)
        raise_floor(table, 7)
    return query


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_all_tables_go_back_to_their_tags(create: Create, order: tuple[int, int]) -> None:
    query, new = tagged(create, at=(3, 3)), MemoryStore()
    tables = query.tables[order[0]], query.tables[order[1]]

    with pytest.raises(SnapshotExpiredError, match="in retire"):
        back(tables, Goal(version="good"), query.checkpoint, new)
    back(tables, Goal(version="good"), query.checkpoint, new, retire=["*"])
    Fanout(query.tables, new, plus=100).run(2)

    assert content(query.tables) == [[0, 1, 2, 3, 104, 105]] * 2


@pytest.mark.parametrize("at", [(3, 2), (3, 4)])
def test_a_tag_of_another_batch_is_not_a_target(create: Create, at: tuple[int, int]) -> None:
    query = tagged(create, at=at)

    with pytest.raises(SnapshotExpiredError, match="no tag keeps one"):
        back(query.tables, Goal(version="good"), query.checkpoint, MemoryStore(), retire=["*"])
    assert content(query.tables) == [list(range(8))] * 2


def test_a_tag_that_may_lack_what_a_fork_counts_as_done_is_not_a_target(
    create: Create,
) -> None:
    """The second table got no rows from batch 3 on, or more than the tag has: it is unknown."""
    query, new = tagged(create, at=(5, 2)), MemoryStore()
    one, other = query.tables
    other.forget("default")
    raise_floor(other, 9)
    query.run(1)
    back((one,), Goal(version="good"), query.checkpoint, new, retire=["*"])

    with pytest.raises(SnapshotExpiredError, match="count as done"):
        back((other,), Goal(version="good"), query.checkpoint, new, retire=["*"])
    assert keys(other.to_arrow()) == list(range(9))


def test_a_tag_before_the_first_batch_is_a_target_if_that_batch_can_be_read(
    create: Create,
) -> None:
    tables, new = fresh(create), MemoryStore()
    query = Fanout(tables).begin(OLD)
    for table in tables:
        table.append(rows(70))
        table.create_tag("start")
        table.append(rows(71))
    query.run(1)
    for table in tables:
        raise_floor(table, 3)
    query.run(2)

    back(tables, Goal(version="start"), query.checkpoint, new, retire=["*"])
    Fanout(tables, new, plus=100).run(1)

    assert content(tables) == [[70, 100]] * 2
