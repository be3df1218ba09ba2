"""Rewind several tables of one query together with its checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from fuse_stream.checkpoint.files import load_checkpoint
from fuse_stream.commit.ledger import Verdict
from fuse_stream.errors import (
    ConflictError,
    FuseError,
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
    StreamIdentityError,
)
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.records import Operation
from fuse_stream.recovery.rebuild_checkpoint import rebuild_checkpoint
from fuse_stream.recovery.rewind import PipelineRewind, rewind_tables
from fuse_stream.recovery.target import Goal
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table, create_table
from fuse_stream.table.pipelines import rewind as rewind_by_path
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import AT_ANY_CALL, Crash, Fault, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.conftest import SCHEMA
from tests.kit.strides import every_nth, strided
from tests.recovery.checkpoints import log_files, offsets_text, put
from tests.recovery.histories import keys, opened, rewind, rows
from tests.recovery.streams import Fanout, Query
from tests.recovery.test_rewind_sweep import Below

Create = Callable[..., Table]
OLD = "11111111-2222-3333-4444-555555555555"
AFTER_2 = Goal(after_batch=2)
NOTE = "the consumer nightly has read past the target: it is sent the difference"


@pytest.fixture
def query(create: Create) -> Fanout:
    """Six batches of one row to each of two tables."""
    query = Fanout((create(at=MemoryStore()), create(at=MemoryStore()))).begin(OLD)
    query.run(6)
    return query


def back(
    tables: tuple[Table, ...], old: Store, new: Store, goal: Goal = AFTER_2, **options: object
) -> PipelineRewind:
    committers = [table.committer for table in tables]
    return rewind_tables(committers, goal, checkpoints=((old, new),), **options)  # type: ignore[arg-type]


def content(tables: tuple[Table, ...]) -> list[list[int]]:
    return [keys(table.to_arrow()) for table in tables]


def test_all_tables_are_rewound_to_the_same_batch_and_continue_from_one_fork(query: Fanout) -> None:
    new = MemoryStore()
    done = back(query.tables, query.checkpoint, new, message="bad deploy")
    Fanout(query.tables, new, plus=100).run(3)

    assert [table.target and table.target.version for table in done.tables] == [3, 3]
    assert len(done.forks) == 1
    assert content(query.tables) == [[0, 1, 2, 103, 104, 105]] * 2
    for table, sink in zip(query.tables, query.sinks, strict=True):
        assert table.snapshot(7).operation is Operation.REWIND
        with pytest.raises(StreamIdentityError, match="retired"):
            sink.commit(6)


def test_a_report_shows_what_was_done_in_which_table(query: Fanout) -> None:
    new = MemoryStore()
    planned = back(query.tables, query.checkpoint, new, dry_run=True)
    made = back(query.tables, query.checkpoint, new)
    again = back(query.tables, query.checkpoint, new)
    urls = [table.metadata.store.url for table in query.tables]

    assert [one.outcome for one in (planned, made, again)] == ["planned", "done", "repeated"]
    for one, word in ((planned, "planned"), (made, "done"), (again, "repeated")):
        first, *tables = str(one).splitlines()
        assert first == repr(one)
        assert f"PipelineRewind(tables=2, outcome='{word}'" in first
        assert [table.path for table in one.tables] == urls
        for url, line in zip(urls, tables, strict=False):
            assert f"outcome='{word}', path={url!r}" in line
    assert "  Fork(new=" in str(planned)


def test_a_report_counts_and_shows_notes_and_obstacles() -> None:
    found = PipelineRewind(tables=(), notes=(NOTE,), obstacles=(FuseError("no", k=1),))

    assert repr(found) == "PipelineRewind(outcome='done', obstacles=1, notes=1)"
    assert str(found).splitlines()[1:] == [f"  note: {NOTE}", "  FuseError: no [k=1]"]


def test_a_table_that_is_not_named_refuses_the_fork_even_if_it_is_to_adopt(query: Fanout) -> None:
    flights, delays = query.tables
    new = MemoryStore()
    back((flights,), query.checkpoint, new)
    fork = Query(delays, new)

    for adopt in (None, OLD):
        fork.adopt = adopt
        with pytest.raises(StreamIdentityError, match=r"fuse\.rewind\(\[") as caught:
            fork.commit(3)
        assert "adopt" not in caught.value.message
    assert keys(delays.to_arrow()) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_table_that_was_forgotten_is_added_by_the_same_call(
    query: Fanout,
    is_alone: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    flights, delays = query.tables
    new = MemoryStore()
    back((flights,), query.checkpoint, new)
    fork = Fanout(query.tables, new, plus=100)
    with pytest.raises(StreamIdentityError):
        fork.run(1)  # the first table has the batch, the second one refuses it

    back((delays,) if is_alone else query.tables, query.checkpoint, new)
    verdicts = fork.run(2)

    assert verdicts == [Verdict.REPLAY, Verdict.NEW, Verdict.NEW, Verdict.NEW]
    assert content(query.tables) == [[0, 1, 2, 103, 104]] * 2


def test_a_fork_that_has_run_without_a_table_is_rewound_for_all_tables(query: Fanout) -> None:
    flights, _ = query.tables
    new, newer = MemoryStore(), MemoryStore()
    back((flights,), query.checkpoint, new)
    Fanout(query.tables, new, plus=100).run(2, writes=(0,))
    with pytest.raises(StreamIdentityError, match="continued without this table"):
        back(query.tables, query.checkpoint, new)

    back(query.tables, new, newer)
    Fanout(query.tables, newer, plus=200).run(2)

    assert content(query.tables) == [[0, 1, 2, 203, 204]] * 2


def test_a_table_may_not_be_added_at_another_batch(query: Fanout) -> None:
    flights, delays = query.tables
    new = MemoryStore()
    back((flights,), query.checkpoint, new)

    for goal in (Goal(after_batch=3), Goal(version=2)):
        with pytest.raises(InvalidInputError, match="another batch"):
            back((delays,), query.checkpoint, new, goal)


@pytest.mark.parametrize("quiet", [0, 1])
def test_a_table_without_batches_since_the_target_passes_to_the_fork(
    create: Create, quiet: int
) -> None:
    query = Fanout((create(at=MemoryStore()), create(at=MemoryStore()))).begin(OLD)
    query.run(3)
    query.run(3, writes=(1 - quiet,))
    new = MemoryStore()

    done = back(query.tables, query.checkpoint, new)
    Fanout(query.tables, new, plus=100).run(2)

    assert [table.deleted_rows for table in done.tables][quiet] == 0
    assert content(query.tables) == [[0, 1, 2, 103, 104]] * 2
    with pytest.raises(StreamIdentityError, match="retired"):
        query.sinks[quiet].commit(6)


def test_the_old_query_is_refused_where_it_has_never_written(create: Create) -> None:
    query = Fanout((create(at=MemoryStore()), create(at=MemoryStore()))).begin(OLD)
    query.run(6, writes=(0,))
    new = MemoryStore()
    back(query.tables, query.checkpoint, new)

    with pytest.raises(StreamIdentityError, match="retired"):
        query.sinks[1].commit(6)
    Fanout(query.tables, new, plus=100).run(1)
    assert content(query.tables) == [[0, 1, 2, 103], [103]]


def test_a_target_in_the_middle_of_a_batch_rewinds_the_other_tables_to_that_batch(
    create: Create,
) -> None:
    tables = (create(at=MemoryStore()), create(at=MemoryStore()))
    query = Fanout(tables).begin(OLD)
    query.run(3)
    new = MemoryStore()
    done = back(tables, query.checkpoint, new, Goal(version=2))

    assert [table.target and table.target.version for table in done.tables] == [2, 2]
    assert load_checkpoint(new).commits == (0, 1)


def test_a_rewind_of_all_tables_can_be_rewound(query: Fanout) -> None:
    first, second = MemoryStore(), MemoryStore()
    back(query.tables, query.checkpoint, first)
    Fanout(query.tables, first, plus=100).run(3)
    back(query.tables, first, second, Goal(after_batch=3))
    Fanout(query.tables, second, plus=200).run(2)

    assert content(query.tables) == [[0, 1, 2, 103, 204, 205]] * 2


# ---- a table must hold all that the forks count as done


def test_a_table_gets_back_the_rows_that_an_earlier_rewind_undid(query: Fanout) -> None:
    _, delays = query.tables
    alone, new = MemoryStore(), MemoryStore()
    back((delays,), query.checkpoint, alone, Goal(after_batch=1))

    back(query.tables, query.checkpoint, new, Goal(after_batch=4))
    Fanout(query.tables, new, plus=100).run(1)

    assert content(query.tables) == [[0, 1, 2, 3, 4, 105]] * 2


def test_a_table_that_was_set_back_with_another_fork_gets_its_batches_back(query: Fanout) -> None:
    flights, delays = query.tables
    one, other, new = MemoryStore(), MemoryStore(), MemoryStore()
    back((flights,), query.checkpoint, one, Goal(version=0))
    back((delays,), query.checkpoint, other, Goal(after_batch=3))

    back((delays, flights), other, new, Goal(after_batch=3))
    Fanout(query.tables, new, plus=100).run(1)

    assert content(query.tables) == [[0, 1, 2, 3, 104]] * 2


def test_two_queries_that_wrote_in_different_orders_go_back_to_a_batch_that_all_tables_have(
    create: Create,
) -> None:
    """The second one wrote its last batch before the first one's in one table, after it in the
    other: so it goes back too, though the goal names no batch of it."""
    tables = (create(at=MemoryStore()), create(at=MemoryStore()))
    first = Fanout(tables).begin(OLD)
    second = Fanout(tables, plus=200, application="second").begin("9" + OLD[1:])
    for fanout in (first, second):
        fanout.run(1)
        files = {"offsets/1": offsets_text({"logOffset": 1}), "commits/1": "v1\n{}"}
        put(fanout.checkpoint, files)
    for fanout, number in ((second, 0), (first, 0), (first, 1), (second, 1)):
        fanout.sinks[number].commit(1)
    new, newer = MemoryStore(), MemoryStore()

    done = rewind_tables(
        [table.committer for table in tables],
        Goal(after_batch=0),
        checkpoints=((first.checkpoint, new), (second.checkpoint, newer)),
    )
    assert content(tables) == [[0, 200]] * 2
    assert [fork.batches for fork in done.forks] == [(0,), (0,)]
    Fanout(tables, new, plus=100).run(1)
    Fanout(tables, newer, plus=300, application="second").run(1)
    assert content(tables) == [[0, 101, 200, 301]] * 2


def test_batches_of_a_forgotten_second_application_are_undone_too(query: Fanout) -> None:
    """The entry of the first application is lower than the batch to go back to."""
    renamed = Fanout(query.tables, query.checkpoint, application="renamed")
    renamed.run(3)
    query.tables[1].optimize()
    query.tables[1].forget("renamed")

    new = MemoryStore()
    back(query.tables, query.checkpoint, new, Goal(application="renamed", after_batch=6))
    Fanout(query.tables, new, application="renamed", plus=100).run(1)

    assert content(query.tables) == [[0, 1, 2, 3, 4, 5, 6, 107]] * 2


@pytest.mark.parametrize("how", ["expire", "forget"])
def test_an_entry_that_has_left_the_ledger_hides_no_batches(
    create: Create, clock: ManualClock, how: str
) -> None:
    tables = tuple(
        create(at=MemoryStore(clock=clock), properties={"fuse.ledger.retain": "7d"})
        for _ in range(2)
    )
    query = Fanout(tables).begin(OLD)
    query.run(6)
    clock.advance(10 * 86_400)
    query.run(1, writes=(0,))
    if how == "expire":
        tables[1].append(rows(50))
        tables[1].expire(keep_last=100)
    else:
        tables[1].forget("default")
    assert not tables[1].ledger()
    new = MemoryStore()

    back(tables, query.checkpoint, new, Goal(after_batch=3))
    Fanout(tables, new, plus=100).run(1)

    assert content(tables) == [[0, 1, 2, 3, 104]] * 2


def test_a_table_whose_last_batch_is_unknown_is_refused(create: Create, clock: ManualClock) -> None:
    tables = tuple(create(at=MemoryStore(clock=clock)) for _ in range(2))
    query = Fanout(tables).begin(OLD)
    query.run(3, writes=(0,))
    tables[1].append(rows(1))
    clock.advance(90_000)
    tables[1].append(rows(2))
    clock.advance(90_000)
    tables[1].expire(keep_last=1)

    with pytest.raises(SnapshotExpiredError, match="leave the table out"):
        back(tables, query.checkpoint, MemoryStore(), Goal(after_batch=1))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_batches_that_were_published_together_are_not_separated(
    create: Create, order: tuple[int, int]
) -> None:
    tables = (create(at=MemoryStore()), create(at=MemoryStore()))
    query = Fanout(tables).begin(OLD)
    query.run(1)
    query.run(5, writes=(0,))
    for table in tables:
        table.create_branch("fix")
    trial = tuple(opened(table.metadata.store, "fix") for table in tables)
    rehearsal, new = MemoryStore(), MemoryStore()
    back(trial, query.checkpoint, rehearsal)
    Fanout(trial, rehearsal, plus=100).run(3, writes=(0,))
    for table in tables:
        table.publish("fix", table.head().version)
    Fanout(tables, rehearsal, plus=100).run(2)
    named = (tables[order[0]], tables[order[1]])

    with pytest.raises(InvalidInputError, match="by a publish"):
        back(named, rehearsal, new, Goal(after_batch=4))
    back(named, rehearsal, new, Goal(after_batch=6))
    assert content(tables) == [[0, 1, 2, 103, 104, 105, 106], [0, 106]]


def test_a_query_that_adopted_another_is_not_rewound_to_before_the_other(query: Fanout) -> None:
    heir = Fanout(query.tables, plus=100, adopt=OLD).begin("9" + OLD[1:])
    heir.run(3, writes=(0,))
    heir.run(1)

    with pytest.raises(StreamIdentityError, match="adopt"):
        back(query.tables, heir.checkpoint, MemoryStore(), Goal(after_batch=1))


def test_a_rebuilt_fork_does_not_determine_the_target_of_another_table(
    query: Fanout,
) -> None:
    flights, _ = query.tables
    new, again, newer = MemoryStore(), MemoryStore(), MemoryStore()
    back((flights,), query.checkpoint, new)
    left = MemoryStore()
    put(left, {f"sources/0/{name}": text for name, text in log_files(6).items()})
    rebuild_checkpoint(flights.committer, again, application="default", survivors=left)

    with pytest.raises(StreamIdentityError, match="was rebuilt"):
        back(query.tables, again, newer)
    assert content(query.tables) == [[0, 1, 2], [0, 1, 2, 3, 4, 5]]
    back(query.tables, query.checkpoint, newer)
    assert content(query.tables) == [[0, 1, 2]] * 2


# ---- the same call, and others


@pytest.mark.parametrize("goal", [Goal(after_batch=1), Goal(version=1)])
def test_forks_of_one_target_are_not_taken_for_those_of_another(query: Fanout, goal: Goal) -> None:
    new = MemoryStore()
    back(query.tables, query.checkpoint, new)

    with pytest.raises(InvalidInputError, match="new folders for other forks"):
        back(query.tables, query.checkpoint, new, goal)
    back(query.tables, query.checkpoint, new)
    assert content(query.tables) == [[0, 1, 2]] * 2


def test_two_copies_of_one_checkpoint_are_refused(query: Fanout) -> None:
    copy, one, two = MemoryStore(), MemoryStore(), MemoryStore()
    for info in query.checkpoint.list(""):
        copy.put(info.key, query.checkpoint.get(info.key))

    with pytest.raises(InvalidInputError, match="copies of one"):
        rewind_tables(
            [table.committer for table in query.tables],
            AFTER_2,
            checkpoints=((query.checkpoint, one), (copy, two)),
        )
    assert list(one.list("")) == list(two.list("")) == []


def test_a_fork_that_was_replaced_by_another_is_refused_everywhere(create: Create) -> None:
    query = Fanout((create(at=MemoryStore()), create(at=MemoryStore()))).begin(OLD)
    query.run(6, writes=(0,))
    first, second = MemoryStore(), MemoryStore()
    back(query.tables, query.checkpoint, first)
    back(query.tables, query.checkpoint, second, Goal(after_batch=1))

    for table in query.tables:
        with pytest.raises(StreamIdentityError, match="retired"):
            Query(table, first).commit(3)


# ---- what is refused


def test_a_refused_rewind_writes_nothing_in_any_table(query: Fanout, create: Create) -> None:
    flights, delays = query.tables
    delays.append(rows(50), app_id="nightly", batch_id=1)
    new = MemoryStore()
    heads = [table.head() for table in query.tables]

    with pytest.raises(StreamIdentityError, match="would go back") as caught:
        back(query.tables, query.checkpoint, new)
    assert caught.value.context["table"] == delays.metadata.store.url
    with pytest.raises(NotFoundError, match="retired"):
        back(query.tables, query.checkpoint, new, retire=["unknown"])
    with pytest.raises(InvalidInputError, match="named twice"):
        back((flights, flights), query.checkpoint, new)
    with pytest.raises(InvalidInputError, match="by the checkpoints"):
        rewind_tables([flights.committer, delays.committer], AFTER_2)
    stranger = create(at=MemoryStore())
    stranger.append(rows(1))
    with pytest.raises(StreamIdentityError, match="first the one from"):
        back((stranger, flights), query.checkpoint, new, Goal(version=0))
    dry = back(query.tables, query.checkpoint, new, dry_run=True)
    assert [type(obstacle) for obstacle in dry.obstacles] == [StreamIdentityError]
    assert [table.head() for table in query.tables] == heads
    assert list(new.list("")) == []

    back(query.tables, query.checkpoint, new, retire=["nightly"])
    assert content(query.tables) == [[0, 1, 2]] * 2


def test_a_checkpoint_that_planned_other_data_than_the_second_table_holds_is_refused(
    create: Create,
) -> None:
    query = Fanout((create(at=MemoryStore()), create(at=MemoryStore()))).begin(OLD)
    query.run(2)
    query.run(4, writes=(1,))
    query.checkpoint.replace("offsets/2", b"v1\n{}\nother")
    new = MemoryStore()

    with pytest.raises(StreamIdentityError, match="read other data"):
        back(query.tables, query.checkpoint, new)
    assert list(new.list("")) == []


def test_a_table_with_other_data_of_a_batch_is_not_added_to_a_rewind(create: Create) -> None:
    """The first table got no row of batch 2, so nothing in it shows that the checkpoint differs."""
    query = Fanout((create(at=MemoryStore()), create(at=MemoryStore()))).begin(OLD)
    query.run(2)
    query.run(1, writes=(1,))
    query.run(3)
    query.checkpoint.replace("offsets/2", b"v1\n{}\nother")
    new = MemoryStore()
    back(query.tables[:1], query.checkpoint, new)

    for tables in (query.tables, query.tables[1:], query.tables[::-1]):
        with pytest.raises(StreamIdentityError, match="read other data"):
            back(tables, query.checkpoint, new)
    assert content(query.tables) == [[0, 1], [0, 1, 2, 3, 4, 5]]


def test_a_dry_run_reports_each_table_and_writes_nothing(query: Fanout) -> None:
    new = MemoryStore()
    heads = [table.head() for table in query.tables]
    found = back(query.tables, query.checkpoint, new, dry_run=True)

    assert [table.deleted_rows for table in found.tables] == [3, 3]
    assert [[one.first_batch for one in table.dropped] for table in found.tables] == [[3], [3]]
    assert found.obstacles == ()
    assert (found.outcome, {table.outcome for table in found.tables}) == ("planned", {"planned"})
    assert [table.head() for table in query.tables] == heads
    assert list(new.list("")) == []


def test_the_error_for_a_single_table_says_to_name_the_others_too(
    query: Fanout, create: Create
) -> None:
    flights, _ = query.tables
    new = MemoryStore()
    query.run(3, writes=(1,))

    with pytest.raises(StreamIdentityError, match="all of them in one call"):
        rewind(
            flights.committer,
            Goal(version=flights.append(rows(9)).version - 1),
            checkpoints=((query.checkpoint, new),),
        )


# ---- crashes


def prepared() -> MemoryStore:
    """Return a store with two tables, five batches in them, and the query's checkpoint."""
    disk = MemoryStore()
    tables = tuple(
        create_table(
            Below(disk, folder),
            first_schema(columns_of_arrow(SCHEMA)),
            clock=ManualClock(seed=seed),
            probe_store=False,
        )
        for seed, folder in enumerate(("a/", "b/"))
    )
    Fanout(tables, Below(disk, "old/")).begin(OLD).run(5)
    return disk


def copy_of(disk: MemoryStore) -> MemoryStore:
    copy = MemoryStore()
    copy.objects = dict(disk.objects)
    return copy


def tables_of(disk: Store) -> tuple[Table, ...]:
    return opened(Below(disk, "a/")), opened(Below(disk, "b/"))


def set_back(disk: Store) -> PipelineRewind:
    """Run the command, as a new process does."""
    goal = Goal(after_batch=1)
    return back(tables_of(disk), Below(disk, "old/"), Below(disk, "new/"), goal)


@pytest.mark.parametrize("fault", AT_ANY_CALL)
@every_nth(3)
def test_the_same_call_finishes_a_crashed_rewind_although_the_old_query_was_started(
    fault: Fault, stride: int
) -> None:
    before = prepared()
    counted = FaultyStore(copy_of(before))
    set_back(counted)
    halves = 0
    at_calls = range(1, len(counted.calls) + 1)
    for at_call in strided(at_calls, stride, AT_ANY_CALL.index(fault)):
        disk = copy_of(before)
        with suppress(Crash, FuseError):
            set_back(FaultyStore(disk, at_call=at_call, fault=fault))
        tables = tables_of(disk)
        made = [table.head().operation is Operation.REWIND for table in tables]
        halves += any(made) and not all(made)
        with suppress(FuseError):  # a supervisor starts the old query once more
            Fanout(tables, Below(disk, "old/")).run(1)
        with suppress(ConflictError):
            set_back(disk)
        set_back(disk)
        fork = Fanout(tables, Below(disk, "new/"), plus=100)
        fork.run(2)

        assert content(tables) == [[0, 1, 102, 103]] * 2
        for table in tables:
            assert sum(one.operation is Operation.REWIND for one in table.log()) == 1
    assert halves > 0


def test_a_table_left_out_of_two_rewinds_gets_the_target_of_the_first(query: Fanout) -> None:
    flights, delays = query.tables
    first, second = MemoryStore(), MemoryStore()
    back((flights,), query.checkpoint, first, Goal(after_batch=1))
    Fanout((flights,), first, plus=100).run(4)
    back((flights,), first, second, Goal(after_batch=3))
    Fanout((flights,), second, plus=200).run(2)

    with pytest.raises(StreamIdentityError, match="without this table") as caught:
        back(query.tables, second, MemoryStore(), Goal(after_batch=4))
    told = caught.value.context
    assert (told["after_batch"], told["ended_batch"]) == (1, 4)
    assert told["table"] == delays.committer.metadata.store.url


@pytest.mark.parametrize("after_batch", [-1, "3", 1.5, True])
def test_a_batch_other_than_a_number_from_0_is_refused(tmp_path: Path, after_batch: object) -> None:
    Table.create(tmp_path / "t", SCHEMA).append(rows(1), app_id="default", batch_id=0)

    with pytest.raises(InvalidInputError, match="after_batch is the last batch") as caught:
        rewind_by_path(tmp_path / "t", after_batch=after_batch, retire=["default"])  # type: ignore[call-overload]
    assert caught.value.context["after_batch"] == after_batch


def test_retiring_numbered_batches_that_would_lose_nothing_is_refused(create: Create) -> None:
    tables = (create(at=MemoryStore()), create(at=MemoryStore()))
    query = Query(tables[0]).begin(OLD)
    for number in range(5):
        query.run_batch(number)
        tables[1].append(rows(number), app_id="list", batch_id=number)
    new = MemoryStore()

    with pytest.raises(InvalidInputError, match="loses nothing") as caught:
        back(tables, query.checkpoint, new, retire=["list"])
    assert caught.value.context["applications"] == ["list"]
    assert content(tables) == [[0, 1, 2, 3, 4]] * 2
    assert not list(new.list(""))


def test_numbered_batches_that_only_one_table_undoes_are_refused(create: Create) -> None:
    """The other table would take those that are delivered again for replays."""
    tables = (create(at=MemoryStore()), create(at=MemoryStore()))
    query, new = Query(tables[0]).begin(OLD), MemoryStore()
    for number in range(4):
        query.run_batch(number)
        for table in tables:
            table.append(rows(10 + number), app_id="list", batch_id=number)

    with pytest.raises(InvalidInputError, match="that table alone first") as caught:
        back(tables, query.checkpoint, new, retire=["list"])
    assert caught.value.context["applications"] == ["list"]
    assert not list(new.list(""))

    alone = Goal(application="list", after_batch=2)
    rewind(tables[1].committer, alone, retire=["list"])
    done = back(tables, query.checkpoint, new, retire=["list"])
    for table in tables:
        table.append(rows(23), app_id="list", batch_id=3)

    assert [table.retired for table in done.tables] == [("list",), ("list",)]
    assert content(tables) == [[0, 1, 2, 10, 11, 12, 23], [10, 11, 12, 23]]


def test_a_query_rewound_to_before_its_first_batch_keeps_its_application(
    create: Create,
) -> None:
    tables = (create(at=MemoryStore()), create(at=MemoryStore()))
    query = Fanout(tables).begin(OLD)
    query.run(3)
    late = Fanout(tables[:1], application="late", plus=500).begin("9" + OLD[1:])
    late.run(2)
    query.run(1)
    forks = (query.checkpoint, MemoryStore()), (late.checkpoint, MemoryStore())

    rewind_tables([table.committer for table in tables], AFTER_2, checkpoints=forks)

    retired = tables[0].head().ledger.retired
    assert retired["9" + OLD[1:]].application == "late"
    with pytest.raises(StreamIdentityError) as caught:
        late.sinks[0].commit(2)
    assert caught.value.context["application"] == "late"
