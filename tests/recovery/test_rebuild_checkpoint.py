"""Rebuild a lost checkpoint from the ledger, or refuse and say what to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuse_stream.checkpoint.files import load_checkpoint
from fuse_stream.commit.ledger import Batch, Verdict, offsets_of
from fuse_stream.commit.plan import Intent
from fuse_stream.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    StreamIdentityError,
)
from fuse_stream.format.forked import Ancestor
from fuse_stream.format.records import Operation
from fuse_stream.recovery.rebuild_checkpoint import rebuild_checkpoint
from fuse_stream.recovery.rewind import rewind_tables
from fuse_stream.recovery.target import Goal
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.checkpoints import batch_files, log_files, put
from tests.recovery.histories import keys, rewind, rows
from tests.recovery.streams import Fanout, Query

Create = Callable[..., Table]
OLD = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def survivors() -> Store:
    """What is left of the checkpoint of a file source: its log."""
    left = MemoryStore()
    put(left, {f"sources/0/{name}": text for name, text in log_files(6).items()})
    return left


@pytest.fixture
def query(create: Create) -> Query:
    query = Query(create()).begin(OLD)
    query.run(6)
    return query


def test_the_query_continues_with_the_next_batch(query: Query, survivors: Store) -> None:
    new = MemoryStore()
    made = rebuild_checkpoint(
        query.table.committer, new, application="default", survivors=survivors
    )
    again = Query(query.table, new)

    assert (made.query_id, made.batch_id, made.adopt) == (OLD, 5, None)
    assert again.commit(5) is Verdict.REPLAY
    again.run(3)  # batch 5 again: another table of the query may lack it
    assert keys(query.table.to_arrow()) == list(range(8))


def test_a_writer_that_may_lack_the_batch_gets_it_again(create: Create, survivors: Store) -> None:
    query = Query(create(), writers=("one", "two")).begin(OLD)
    query.run(3)
    query.writers = ("one",)
    query.run(1)
    new = MemoryStore()

    rebuild_checkpoint(query.table.committer, new, application="default", survivors=survivors)
    Query(query.table, new, writers=("one", "two")).run(1)

    assert load_checkpoint(new).offsets == (2, 3)
    assert keys(query.table.to_arrow()) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_retired_query_continues_under_another_id(query: Query, survivors: Store) -> None:
    rewind(query.table.committer, Goal(version=4), retire=["default"])
    new = MemoryStore()
    made = rebuild_checkpoint(
        query.table.committer, new, application="default", survivors=survivors
    )

    assert made.adopt == OLD
    assert made.query_id == load_checkpoint(new).query_id != OLD
    assert made.batch_id == 3


def test_a_batch_before_the_last_one_of_the_table_is_refused(
    query: Query, survivors: Store
) -> None:
    with pytest.raises(StreamIdentityError, match="holds later batches"):
        rebuild_checkpoint(
            query.table.committer,
            MemoryStore(),
            application="default",
            version=3,
            survivors=survivors,
        )


def test_a_rebuild_without_the_needed_facts_is_refused(query: Query, survivors: Store) -> None:
    committer = query.table.committer
    with pytest.raises(NotFoundError, match="no writer of this application"):
        rebuild_checkpoint(committer, MemoryStore(), application="nope")
    with pytest.raises(InvalidInputError, match="sources"):
        rebuild_checkpoint(committer, MemoryStore(), application="default")
    put(survivors, {"state/0/0/1.delta": "x"})
    with pytest.raises(InvalidInputError, match="keeps state"):
        rebuild_checkpoint(committer, MemoryStore(), application="default", survivors=survivors)
    query.table.append(rows(1), app_id="api", batch_id=1)
    with pytest.raises(InvalidInputError, match="numbers its batches itself"):
        rebuild_checkpoint(committer, MemoryStore(), application="api")


def test_a_folder_that_is_used_is_refused(query: Query, survivors: Store) -> None:
    used = MemoryStore()
    put(used, {"file": "x"})

    with pytest.raises(AlreadyExistsError, match="not empty"):
        rebuild_checkpoint(query.table.committer, used, application="default", survivors=survivors)


# ---- a query that writes several tables


@pytest.fixture
def both(create: Create, clock: ManualClock) -> tuple[Query, Query]:
    """Two tables of one query, which died when only the first one had batch 2."""
    flights = Query(create(at=MemoryStore(clock=clock))).begin(OLD)
    delays = Query(create(at=MemoryStore(clock=clock)), flights.checkpoint)
    for number in range(3):
        delays.commit(number) if number < 2 else None
        flights.run_batch(number)
    return flights, delays


def continued(tables: tuple[Query, ...], new: Store, batches: range) -> list[Verdict]:
    """Run batches of one query on the tables; return the verdict of each."""
    return [Query(query.table, new).commit(number) for number in batches for query in tables]


def test_a_table_that_lacks_the_last_batch_gets_it(
    both: tuple[Query, Query], survivors: Store
) -> None:
    flights, delays = both
    new = MemoryStore()
    rebuild_checkpoint(
        flights.table.committer, new, application="default", survivors=survivors
    )  # from one table: nothing names the other one

    assert load_checkpoint(new).commits == (1,)
    verdicts = continued(both, new, range(2, 4))
    assert verdicts == [Verdict.REPLAY, Verdict.NEW, Verdict.NEW, Verdict.NEW]
    assert keys(flights.table.to_arrow()) == keys(delays.table.to_arrow()) == [0, 1, 2, 3]


def test_the_table_with_the_latest_batch_determines_the_batch(
    both: tuple[Query, Query], survivors: Store
) -> None:
    flights, delays = both
    new = MemoryStore()
    made = rebuild_checkpoint(
        delays.table.committer,
        new,
        application="default",
        survivors=survivors,
        others=[flights.table.committer],
    )

    assert made.batch_id == 2
    assert continued(both, new, range(2, 3)) == [Verdict.REPLAY, Verdict.NEW]


def test_a_rebuild_from_the_table_without_the_batch_is_refused_by_the_other(
    both: tuple[Query, Query], survivors: Store
) -> None:
    flights, delays = both
    new = MemoryStore()
    rebuild_checkpoint(delays.table.committer, new, application="default", survivors=survivors)

    with pytest.raises(StreamIdentityError):
        continued((flights,), new, range(1, 2))


def test_tables_that_two_copies_of_a_query_wrote_are_refused(
    both: tuple[Query, Query], survivors: Store
) -> None:
    flights, delays = both
    batch = Batch(query_id=OLD, batch_id=2, offsets=offsets_of(2, "another line"))
    delays.table.commit_rows(Intent(operation=Operation.APPEND, batch=batch), rows(9))

    with pytest.raises(StreamIdentityError, match="two copies"):
        rebuild_checkpoint(
            flights.table.committer,
            MemoryStore(),
            application="default",
            survivors=survivors,
            others=[delays.table.committer],
        )


@pytest.mark.parametrize("version", [0, 1])
def test_tables_that_were_set_back_to_different_batches_are_refused(
    both: tuple[Query, Query], survivors: Store, version: int
) -> None:
    flights, delays = both
    delays.commit(2)
    rewind(flights.table.committer, Goal(version=2), retire=["default"])
    rewind(delays.table.committer, Goal(version=version), retire=["default"])

    with pytest.raises(StreamIdentityError, match="different batches"):
        rebuild_checkpoint(
            flights.table.committer,
            MemoryStore(),
            application="default",
            survivors=survivors,
            others=[delays.table.committer],
        )


def test_a_rebuilt_fork_keeps_its_ancestors(query: Query, survivors: Store) -> None:
    new, again = MemoryStore(), MemoryStore()
    rewind(query.table.committer, Goal(after_batch=2), checkpoints=((query.checkpoint, new),))
    Query(query.table, new, plus=100).run(2)
    rebuild_checkpoint(query.table.committer, again, application="default", survivors=survivors)

    assert [older.query_id for older in load_checkpoint(again).ancestors] == [OLD]


def test_a_query_that_another_one_adopted_is_not_rebuilt(
    both: tuple[Query, Query], survivors: Store
) -> None:
    flights, delays = both
    heir = Query(flights.table, adopt=OLD).begin("9" + OLD[1:])
    heir.run(1)

    with pytest.raises(StreamIdentityError, match="has replaced this query"):
        rebuild_checkpoint(
            delays.table.committer,
            MemoryStore(),
            application="default",
            survivors=survivors,
            others=[flights.table.committer],
        )


def test_an_empty_folder_of_survivors_is_refused(query: Query) -> None:
    with pytest.raises(NotFoundError, match="without checkpoint files"):
        rebuild_checkpoint(
            query.table.committer, MemoryStore(), application="default", survivors=MemoryStore()
        )


# ---- tables that were left out


@pytest.fixture
def apart(create: Create) -> tuple[Query, Query]:
    """Two tables of one query, of which only the first was rewound, and holds batch 3."""
    flights = Query(create(at=MemoryStore())).begin(OLD)
    delays = Query(create(at=MemoryStore()), flights.checkpoint)
    for number in range(6):
        delays.commit(number)
        flights.run_batch(number)
    rewind(flights.table.committer, Goal(after_batch=3), retire=["default"])
    return flights, delays


def rebuilt(tables: tuple[Query, ...], survivors: Store) -> Store:
    """Rebuild the checkpoint from some tables; return it."""
    new = MemoryStore()
    first, *others = (query.table.committer for query in tables)
    made = rebuild_checkpoint(first, new, application="default", survivors=survivors, others=others)
    assert (made.batch_id, made.adopt) == (3, OLD)
    return new


def adopting(query: Query, checkpoint: Store) -> Query:
    return Query(query.table, checkpoint, adopt=OLD, plus=100)


@pytest.mark.parametrize("number", range(3, 8))
def test_a_table_that_was_left_out_and_holds_more_refuses_every_batch(
    apart: tuple[Query, Query], survivors: Store, number: int
) -> None:
    flights, delays = apart
    new = rebuilt((flights,), survivors)

    assert adopting(flights, new).commit(3) is Verdict.ADOPTED_REPLAY
    with pytest.raises(StreamIdentityError, match="without this table") as caught:
        adopting(delays, new).commit(number)
    assert (caught.value.context["written_batch"], caught.value.context["after_batch"]) == (5, 3)
    assert len(delays.table.to_arrow()) == 6


def test_a_table_that_was_left_out_continues_once_it_is_rewound_too(
    apart: tuple[Query, Query], survivors: Store
) -> None:
    flights, delays = apart
    new = rebuilt((flights,), survivors)
    rewind(delays.table.committer, Goal(after_batch=3), retire=["default"])

    assert continued_as(apart, new, range(3, 5)) == [
        Verdict.ADOPTED_REPLAY,
        Verdict.ADOPTED_REPLAY,
        Verdict.NEW,
        Verdict.NEW,
    ]
    assert keys(delays.table.to_arrow()) == [0, 1, 2, 3, 104]


def continued_as(tables: tuple[Query, ...], new: Store, batches: range) -> list[Verdict]:
    return [adopting(query, new).commit(number) for number in batches for query in tables]


@pytest.mark.parametrize(
    ("held", "verdict"), [(2, Verdict.NEW), (3, Verdict.NEW), (4, Verdict.ADOPTED_REPLAY)]
)
def test_a_table_that_holds_no_later_batch_than_the_rebuilt_checkpoint_continues(
    apart: tuple[Query, Query], create: Create, survivors: Store, held: int, verdict: Verdict
) -> None:
    flights, _ = apart
    quiet = Query(create(at=MemoryStore()), flights.checkpoint)
    for number in range(held):
        quiet.commit(number)
    new = rebuilt((flights,), survivors)

    assert continued_as((quiet,), new, range(3, 4)) == [verdict]
    assert continued_as((quiet,), new, range(3, 5)) == [Verdict.REPLAY, Verdict.NEW]


@pytest.mark.parametrize("version", [0, 2])
def test_a_table_that_was_left_out_and_rewound_further_refuses(
    apart: tuple[Query, Query], survivors: Store, version: int
) -> None:
    flights, delays = apart
    rewind(delays.table.committer, Goal(version=version), retire=["default"])
    new = rebuilt((flights,), survivors)

    with pytest.raises(StreamIdentityError, match="would be lost"):
        adopting(delays, new).commit(3)


def test_a_fork_of_a_rebuilt_checkpoint_is_refused_by_the_same_tables(
    apart: tuple[Query, Query], survivors: Store
) -> None:
    flights, delays = apart
    new, fork = rebuilt((flights,), survivors), MemoryStore()
    adopting(flights, new).run(2)
    rewind(flights.table.committer, Goal(after_batch=3), checkpoints=((new, fork),))

    assert load_checkpoint(fork).rebuilt_from == Ancestor(query_id=OLD, through=3)
    with pytest.raises(StreamIdentityError, match="without this table"):
        adopting(delays, fork).commit(4)


def test_a_writer_of_a_rebuilt_query_that_lacks_the_batch_gets_it(
    create: Create, survivors: Store
) -> None:
    query = Query(create(), writers=("one", "two")).begin(OLD)
    query.run(3)
    query.commit(3, "one")
    query.run_batch(4)
    rewind(query.table.committer, Goal(version=7), retire=["default"])
    again = adopting(query, rebuilt((query,), survivors))

    assert again.commit(3, "one") is Verdict.ADOPTED_REPLAY
    assert again.commit(3, "two") is Verdict.NEW


# ---- ledgers that have forgotten


def forgotten(table: Table, clock: ManualClock) -> None:
    table.forget("default")


def expired_idle(table: Table, clock: ManualClock) -> None:
    clock.advance(91 * 24 * 3600)
    table.expire(keep_last=100)


@pytest.mark.parametrize("drop", [forgotten, expired_idle])
@pytest.mark.parametrize("is_named_first", [False, True])
def test_a_table_whose_ledger_lost_the_query_is_refused_until_it_is_rewound(
    both: tuple[Query, Query],
    survivors: Store,
    clock: ManualClock,
    drop: Callable[[Table, ManualClock], None],
    *,
    is_named_first: bool,
) -> None:
    flights, delays = both
    delays.commit(2)
    held = delays.table.head().version
    drop(delays.table, clock)
    assert ("default", "") not in delays.table.ledger()
    tables = [flights.table.committer, delays.table.committer]
    first, other = reversed(tables) if is_named_first else tables

    def rebuild(new: Store) -> None:
        rebuild_checkpoint(
            first,
            new,
            application="default",
            version=held if is_named_first else None,
            survivors=survivors,
            others=[other],
        )

    with pytest.raises(StreamIdentityError, match="no longer has") as caught:
        rebuild(MemoryStore())
    assert caught.value.context["version"] == held

    rewind(delays.table.committer, Goal(version=held))
    new = MemoryStore()
    rebuild(new)
    assert continued(both, new, range(2, 3)) == [Verdict.REPLAY, Verdict.REPLAY]


def test_a_table_that_lacks_the_last_batch_may_have_forgotten_the_ones_before(
    both: tuple[Query, Query], survivors: Store
) -> None:
    flights, delays = both
    delays.table.forget("default")
    new = MemoryStore()
    rebuild_checkpoint(
        flights.table.committer,
        new,
        application="default",
        survivors=survivors,
        others=[delays.table.committer],
    )

    assert continued(both, new, range(2, 3)) == [Verdict.REPLAY, Verdict.NEW]


# ---- queries that took another's place


def test_a_query_that_adopted_and_was_rebuilt_adopts_in_its_other_tables_too(
    both: tuple[Query, Query], survivors: Store
) -> None:
    flights, delays = both
    heir = Query(flights.table, adopt=OLD, plus=100).begin("9" + OLD[1:])
    heir.run(4)
    new = MemoryStore()
    rebuild_checkpoint(
        flights.table.committer,
        new,
        application="default",
        survivors=survivors,
        others=[delays.table.committer],
    )

    assert load_checkpoint(new).ancestors == ()
    assert continued_as((delays,), new, range(3, 5)) == [Verdict.NEW, Verdict.NEW]


def test_a_checkpoint_that_was_rebuilt_twice_is_refused_by_a_table_that_was_left_out(
    apart: tuple[Query, Query], survivors: Store
) -> None:
    flights, delays = apart
    adopting(flights, rebuilt((flights,), survivors)).run(2)
    again = MemoryStore()
    made = rebuild_checkpoint(
        flights.table.committer, again, application="default", survivors=survivors
    )

    assert (made.batch_id, made.adopt) == (4, None)
    for number in range(4, 7):
        with pytest.raises(StreamIdentityError):
            adopting(delays, again).commit(number)


@pytest.mark.parametrize("first", range(4))
def test_a_rebuilt_query_does_not_undo_adopted_batches_that_it_never_read(
    create: Create, first: int
) -> None:
    former = Query(create()).begin(OLD)
    former.run(2)
    heir = Query(former.table, adopt=OLD, plus=2, start=2).begin("9" + OLD[1:])
    for number in range(first):
        heir.run_batch(number, empty=True)
    heir.run(2)
    left, new = MemoryStore(), MemoryStore()
    put(left, {f"sources/0/{name}": text for name, text in log_files(9).items()})
    rebuild_checkpoint(former.table.committer, new, application="default", survivors=left)

    with pytest.raises(StreamIdentityError):
        rewind(former.table.committer, Goal(version=0), checkpoints=((new, MemoryStore()),))
    assert len(former.table.to_arrow()) == 4


def test_a_rebuilt_fork_can_be_rewound_to_before_its_query(query: Query, survivors: Store) -> None:
    table, new, again, last = query.table, MemoryStore(), MemoryStore(), MemoryStore()
    rewind(table.committer, Goal(after_batch=2), checkpoints=((query.checkpoint, new),))
    Query(table, new, plus=100).run(2)
    rebuild_checkpoint(table.committer, again, application="default", survivors=survivors)
    rewind(table.committer, Goal(version=0), checkpoints=((again, last),))
    Query(table, last, plus=200).run(3)

    assert keys(table.to_arrow()) == [200, 201, 202]


def test_an_adoption_is_kept_by_a_rewind_of_several_tables_and_a_second_rebuild(
    create: Create,
) -> None:
    tables = (create(at=MemoryStore()), create(at=MemoryStore()))
    survivors = MemoryStore()
    put(survivors, {f"sources/0/{name}": text for name, text in log_files(12).items()})
    former = Fanout(tables).begin(OLD)
    former.run(2, writes=(0,))
    heir = Fanout(tables, plus=100, adopt=OLD).begin("9" + OLD[1:])
    put(heir.checkpoint, batch_files(range(2)))
    heir.run(3, writes=(0,))

    def rebuild() -> Store:
        new = MemoryStore()
        first, *others = (table.committer for table in tables)
        rebuild_checkpoint(first, new, application="default", survivors=survivors, others=others)
        return new

    heir.checkpoint = rebuild()
    heir.run(2, writes=(0,))
    fork = MemoryStore()
    rewind_tables(
        [table.committer for table in tables],
        Goal(after_batch=4),
        checkpoints=((heir.checkpoint, fork),),
    )
    Fanout(tables, fork, plus=100).run(2, writes=(0,))
    again = rebuild()
    held = keys(tables[0].to_arrow())

    with pytest.raises(StreamIdentityError, match="rebuilt"):
        rewind(tables[0].committer, Goal(version=0), checkpoints=((again, MemoryStore()),))
    assert keys(tables[0].to_arrow()) == held
