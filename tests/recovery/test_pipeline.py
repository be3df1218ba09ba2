"""Rewind tables that feed tables, together with the checkpoints of all their queries."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from fuse_stream.errors import (
    FuseError,
    InvalidInputError,
    SnapshotExpiredError,
    StreamIdentityError,
)
from fuse_stream.feed.consumer import Consumer
from fuse_stream.feed.follow import Follower
from fuse_stream.feed.views import Limits, Request
from fuse_stream.recovery.rewind import PipelineRewind, rewind_tables
from fuse_stream.recovery.target import Goal
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import AT_ANY_CALL, Crash, Fault, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.kit.strides import seeds
from tests.recovery.histories import raise_floor, rows
from tests.recovery.pipeline_courses import run_course
from tests.recovery.pipelines import (
    Disk,
    Stage,
    Work,
    dying_before,
    every_third_beside,
    first_of_key,
    keep_all,
)

FILES = {entry: [10 * key for key in range(3 * entry, 3 * entry + 3)] for entry in range(12)}
"""The rows of each file of the first query's source: three keys in each."""
GOOD = sorted(value for values in FILES.values() for value in values)


def spoiled(values: list[int], _state: set[int]) -> list[list[int]]:
    """A bad deploy."""
    return [[value + 1 for value in values]]


class Chain:
    """A pipeline of tables; its queries run in the order of their definition."""

    def __init__(self, *tables: str, disk: Disk | None = None) -> None:
        self.disk = disk or Disk()
        for name in tables:
            self.disk.new_table(name)
        self.tables = tables
        self.stages: dict[str, Stage] = {}

    def add(
        self,
        name: str,
        sources: tuple[str, ...],
        targets: tuple[str, ...],
        work: Work = keep_all,
        **options: object,
    ) -> None:
        folder = self.disk.begin(name)
        self.stages[name] = Stage(
            disk=self.disk,
            name=name,
            folder=folder,
            sources=sources,
            targets=targets,
            work=work,
            **options,  # type: ignore[arg-type]
        )

    def deploy(self, name: str, work: Work) -> None:
        self.stages[name] = replace(self.stages[name], work=work)

    def run(self, rounds: int, *names: str) -> None:
        """Let each query run a batch in turn."""
        for _ in range(rounds):
            for name in names or self.stages:
                self.stages[name].trigger()

    def drain(self) -> None:
        while sum(stage.trigger() for stage in self.stages.values()):
            pass

    def new_folders(self) -> dict[str, str]:
        return {name: self.disk.new_folder(f"forks/{name}") for name in self.stages}

    def rewind(
        self,
        goal: Goal,
        folders: dict[str, str],
        *tables: str,
        on: Disk | None = None,
        **options: object,
    ) -> PipelineRewind:
        disk = on or self.disk
        committers = [disk.table(name).committer for name in tables or self.tables]
        paths = [
            (disk.checkpoint(self.stages[name].folder), disk.checkpoint(folder))
            for name, folder in folders.items()
        ]
        return rewind_tables(committers, goal, checkpoints=paths, **options)  # type: ignore[arg-type]

    def rewind_on(self, branch: str, goal: Goal, folders: dict[str, str]) -> PipelineRewind:
        """Rewind a branch of all tables."""
        committers = [self.disk.table(name, branch).committer for name in self.tables]
        checkpoint = self.disk.checkpoint
        paths = [
            (checkpoint(self.stages[name].folder), checkpoint(new)) for name, new in folders.items()
        ]
        return rewind_tables(committers, goal, checkpoints=paths)

    def restart(self, folders: dict[str, str]) -> None:
        """Start the queries on their forks."""
        for name, folder in folders.items():
            self.stages[name] = replace(self.stages[name], folder=folder)

    def back(self, batch: int, *tables: str) -> PipelineRewind:
        """Rewind to a batch of the first query, and start on the forks."""
        folders = self.new_folders()
        goal = Goal(application=next(iter(self.stages)), after_batch=batch)
        done = self.rewind(goal, folders, *tables)
        self.restart(folders)
        return done

    def content(self) -> list[list[int]]:
        return [self.disk.content(name) for name in self.tables]


def new_chain(disk: Disk | None = None) -> Chain:
    """Bronze keeps all rows, silver the first right one of each key, gold all of silver."""
    chain = Chain("bronze", "silver", "gold", disk=disk)
    chain.add("ingest", (), ("bronze",), files=FILES)
    chain.add("clean", ("bronze",), ("silver",), first_of_key, has_state=True)
    chain.add("report", ("silver",), ("gold",))
    return chain


@pytest.fixture
def chain() -> Chain:
    return new_chain()


def test_a_bad_deploy_is_taken_back_in_three_tables(chain: Chain) -> None:
    chain.run(4)
    chain.deploy("ingest", spoiled)
    chain.run(4)
    chain.deploy("ingest", keep_all)
    done = chain.back(3)
    chain.drain()

    assert chain.content() == [GOOD, GOOD, GOOD]
    assert [fork.batches[-1] for fork in done.forks] == [3, 3, 3]


def test_no_bad_row_reaches_silver_again(chain: Chain) -> None:
    """Silver takes all rows, also bad ones, if it gets any."""
    chain.deploy("clean", keep_all)
    chain.run(4)
    chain.deploy("ingest", spoiled)
    chain.run(3)
    chain.deploy("ingest", keep_all)
    assert any(value % 10 for value in chain.content()[2])
    chain.back(3)
    for _ in range(20):
        chain.run(1)
        assert not any(value % 10 for found in chain.content() for value in found)

    assert chain.content() == [GOOD, GOOD, GOOD]


def test_a_deploy_that_goes_bad_twice(chain: Chain) -> None:
    chain.run(4)
    for batch in (3, 4):
        chain.deploy("ingest", spoiled)
        chain.run(3)
        chain.deploy("ingest", keep_all)
        chain.back(batch)
        chain.run(1)
    chain.drain()

    assert chain.content() == [GOOD, GOOD, GOOD]


def test_a_query_that_filtered_all_bad_rows_out_goes_back_with_its_state(chain: Chain) -> None:
    """Silver and gold have no row since, so neither table changes."""
    chain.run(4)
    before = chain.content()
    chain.deploy("ingest", spoiled)
    chain.run(4)
    assert chain.content()[1:] == before[1:]
    chain.deploy("ingest", keep_all)
    done = chain.back(3)
    chain.drain()

    assert chain.content() == [GOOD, GOOD, GOOD]
    assert [table.deleted_rows for table in done.tables] == [12, 0, 0]


def test_a_query_that_has_never_written_goes_back_with_its_state(chain: Chain) -> None:
    chain.deploy("ingest", lambda values, _state: [[value + 1 for value in values]])
    chain.run(1, "ingest")
    chain.stages["clean"].trigger()
    chain.run(2, "ingest")
    chain.stages["clean"].trigger()
    assert chain.content()[1] == []
    chain.deploy("ingest", keep_all)
    chain.back(0)
    chain.drain()

    bad_first = [value for value in GOOD if value >= 30]
    assert chain.content()[1:] == [bad_first, bad_first]


def test_a_query_that_starts_at_the_latest_version_keeps_its_first_offsets(chain: Chain) -> None:
    chain.run(2, "ingest")
    chain.stages["clean"] = replace(chain.stages["clean"], start="latest")
    assert chain.stages["clean"].trigger()  # decides where it starts
    chain.run(2, "ingest", "clean", "report")
    chain.deploy("ingest", spoiled)
    chain.run(2)
    chain.deploy("ingest", keep_all)
    chain.back(3)
    chain.drain()

    assert chain.content() == [GOOD, GOOD[6:], GOOD[6:]]


def test_a_fork_without_the_first_offsets_of_a_query_is_refused(chain: Chain) -> None:
    chain.run(4, "ingest")
    chain.run(1, "clean")
    folders = chain.new_folders()
    del folders["report"]
    before = chain.content()

    with pytest.raises(InvalidInputError, match="startingVersion"):
        chain.rewind(Goal(application="ingest", after_batch=2), folders, "bronze", "silver")
    assert chain.content() == before
    assert not [key for key in chain.disk.store.list("") if key.key.startswith("forks")]


def test_one_query_that_writes_two_tables_one_of_them_quiet() -> None:
    chain = Chain("bronze", "silver", "thirds", "gold")
    chain.add("ingest", (), ("bronze",), files=FILES)
    chain.add("clean", ("bronze",), ("silver", "thirds"), every_third_beside)
    chain.add("report", ("thirds", "silver"), ("gold",))
    chain.run(4)
    chain.deploy("ingest", spoiled)
    chain.deploy("clean", lambda values, _state: [values, []])
    chain.run(3)
    chain.deploy("ingest", keep_all)
    chain.deploy("clean", every_third_beside)
    chain.back(3)
    chain.drain()

    thirds = [value for value in GOOD if value // 10 % 3 == 0]
    assert chain.content() == [GOOD, GOOD, thirds, sorted(GOOD + thirds)]


@pytest.mark.parametrize("limit", [None, 1, 4])
def test_gold_joins_a_second_source(chain: Chain, limit: int | None) -> None:
    others = {entry: [10 * (1000 + entry)] for entry in range(12)}
    limits = Limits(rows=limit) if limit else Limits()
    chain.stages["report"] = replace(
        chain.stages["report"], sources=("silver", "bronze"), files=others, limits=limits
    )
    chain.stages["clean"] = replace(chain.stages["clean"], limits=limits)
    chain.run(5)
    chain.deploy("ingest", spoiled)
    chain.run(5)
    chain.deploy("ingest", keep_all)
    chain.back(4)
    chain.drain()

    more = [value for values in others.values() for value in values]
    assert chain.content() == [GOOD, GOOD, sorted(GOOD + GOOD + more)]


def test_tables_are_named_in_any_order(chain: Chain) -> None:
    chain.run(4)
    chain.deploy("ingest", spoiled)
    chain.run(2)
    chain.deploy("ingest", keep_all)
    done = chain.back(3, "bronze", "gold", "silver")
    chain.drain()

    assert chain.content() == [GOOD, GOOD, GOOD]
    assert all(table.snapshot for table in done.tables)


def test_the_old_queries_are_refused(chain: Chain) -> None:
    chain.run(6)
    folders = chain.new_folders()
    chain.rewind(Goal(application="ingest", after_batch=2), folders)
    before = chain.content()

    for stage in chain.stages.values():
        with pytest.raises(FuseError):
            stage.drain()
    assert chain.content() == before


def test_each_table_names_a_retired_query_by_its_own_application(chain: Chain) -> None:
    chain.run(6)
    chain.rewind(Goal(application="ingest", after_batch=2), chain.new_folders())

    for name in chain.tables:
        retired = chain.disk.table(name).head().ledger.retired.values()
        assert sorted(one.application for one in retired) == ["clean", "ingest", "report"]


def test_tables_that_feed_each_other_are_refused() -> None:
    chain = Chain("one", "other")
    chain.add("first", ("other",), ("one",), files=FILES)
    chain.add("second", ("one",), ("other",), lambda values, _state: [values[:1]])
    chain.run(3)

    with pytest.raises(InvalidInputError, match="circle"):
        chain.rewind(Goal(application="first", after_batch=0), chain.new_folders())


def test_another_writer_of_a_table_that_goes_back_goes_back_too() -> None:
    chain = Chain("bronze", "silver")
    chain.add("ingest", (), ("bronze",), files=FILES)
    chain.add("clean", ("bronze",), ("silver",))
    late = {entry: [10 * (1000 + entry)] for entry in range(12)}
    chain.add("late", (), ("silver",), files=late)
    chain.run(4)
    chain.deploy("ingest", spoiled)
    chain.run(3)
    chain.deploy("ingest", keep_all)
    done = chain.back(3)
    chain.drain()

    more = [value for values in late.values() for value in values]
    assert chain.content() == [GOOD, sorted(GOOD + more)]
    assert [fork.batches[-1] for fork in done.forks] == [3, 3, 3]


def test_a_query_that_has_no_part_in_it_is_refused(chain: Chain) -> None:
    chain.disk.new_table("apart")
    chain.add("apart", (), ("apart",), files=FILES)
    chain.run(5)

    with pytest.raises(StreamIdentityError, match="committed nothing"):
        chain.back(2, "bronze", "silver", "gold", "apart")


@seeds(10, 20)
def test_a_drawn_pipeline_ends_as_an_undisturbed_run(seed: int) -> None:
    run_course(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20, 120))
def test_many_drawn_pipelines_end_as_an_undisturbed_run(seed: int) -> None:
    run_course(seed)


def disturbed(at_call: int | None, fault: Fault) -> tuple[Chain, FaultyStore]:
    """Take a bad deploy back with a fault at a call, while a supervisor restarts the queries."""
    chain = new_chain()
    chain.run(2)
    chain.deploy("ingest", spoiled)
    chain.run(2)
    goal, folders = Goal(application="ingest", after_batch=1), chain.new_folders()
    faulty = FaultyStore(chain.disk.store, at_call=at_call, fault=fault)
    with suppress(Crash, FuseError):
        chain.rewind(goal, folders, on=replace(chain.disk, store=faulty))
    for name in ("report", "clean", "ingest"):
        with suppress(FuseError):
            chain.stages[name].trigger()
    chain.rewind(goal, folders)
    chain.deploy("ingest", keep_all)
    chain.restart(folders)
    chain.drain()
    return chain, faulty


@pytest.mark.long
@pytest.mark.parametrize("fault", AT_ANY_CALL)
def test_a_rewind_that_dies_at_any_call_is_finished_by_the_same_call(fault: Fault) -> None:
    calls = len(disturbed(None, fault)[1].calls)
    for at_call in range(1 + AT_ANY_CALL.index(fault), calls + 1, 5):
        chain, _ = disturbed(at_call, fault)
        assert chain.content() == [GOOD, GOOD, GOOD], f"{fault} at call {at_call}"
        tags = [tag for name in chain.tables for tag in chain.disk.table(name).tags()]
        assert tags == []


def test_a_rewind_that_dies_between_leaf_and_root_is_finished_by_the_same_call() -> None:
    fault = Fault.CRASH_AFTER
    calls = disturbed(None, fault)[1].calls
    slots = [
        number
        for number, (verb, key) in enumerate(calls, 1)
        if verb == "put_if_absent" and "/_ss/" in key
    ]
    assert len(slots) == 3, sorted({key for verb, key in calls if verb == "put_if_absent"})
    for at_call in slots:
        chain, _ = disturbed(at_call, fault)
        assert chain.content() == [GOOD, GOOD, GOOD]


def test_a_dry_run_tells_what_does_not_go_back(chain: Chain) -> None:
    disk = chain.disk
    for name in ("aside", "by-hand"):
        disk.new_table(name)
    chain.add("other", (), ("aside",), files=FILES)
    chain.run(2, "other")
    disk.table("silver").append(rows(7), app_id="loader", batch_id=0)
    disk.table("silver").append(rows(8), app_id="other loader", batch_id=0)
    chain.stages["report"] = replace(chain.stages["report"], sources=("silver", "aside"))
    chain.run(5)
    disk.table("by-hand").append(rows(1), app_id="loader", batch_id=0)
    disk.table("silver").append(rows(9), app_id="other loader", batch_id=1)
    undone = [disk.table("gold").append(rows(9)).version for _ in range(2)]
    folders = chain.new_folders()
    del folders["other"]
    before = chain.content()

    done = chain.rewind(
        Goal(application="ingest", after_batch=2),
        folders,
        *chain.tables,
        "by-hand",
        dry_run=True,
        retire=["other loader"],
    )
    assert done.obstacles == ()
    told = "\n".join(done.notes)
    for part in (
        "clean-2/ has state, which goes back with it: if it reads feed=changes",
        "report-3/ goes on in aside@4: that table is not rewound",
        "by-hand/ stays as it is",
        "silver/ keeps the rows of 'loader'",
        "silver/ loses batches of 'other loader'",
        f"gold/ loses the changes of {undone[0]}, {undone[1]}, which no query makes again",
    ):
        assert part in told, told
    assert chain.content() == before
    sources = {fork.applications: [one.name for one in fork.sources] for fork in done.forks}
    assert sources == {
        ("ingest",): [],
        ("clean",): ["bronze@3"],
        ("report",): ["silver@5", "aside@4"],
    }


def test_a_checkpoint_that_was_forgotten_is_asked_for(chain: Chain) -> None:
    chain.run(5)
    folders = chain.new_folders()
    del folders["report"]
    goal = Goal(application="ingest", after_batch=2)

    with pytest.raises(StreamIdentityError, match="not named") as caught:
        chain.rewind(goal, folders)
    assert caught.value.context["has_read"] == "silver@5"
    before = chain.content()
    chain.rewind(goal, folders, "bronze", "silver")
    assert [len(found) for found in chain.content()] == [9, 9, len(before[2])]


def test_versions_that_a_fork_would_read_again_may_not_have_expired(chain: Chain) -> None:
    chain.run(2)
    chain.run(6, "ingest")
    raise_floor(chain.disk.table("bronze"), 4)

    with pytest.raises(SnapshotExpiredError, match="fork of a query would read versions"):
        chain.back(6)


def test_tags_keep_the_targets_while_the_rewind_is_not_finished() -> None:
    """The targets expire between the crash and the call that finishes the work."""
    clock = ManualClock()
    chain = Chain("bronze", "silver", disk=Disk(MemoryStore(clock=clock), time=clock))
    chain.add("ingest", (), ("bronze",), files=FILES)
    chain.add("clean", ("bronze",), ("silver",))
    chain.run(6)
    folders, goal = chain.new_folders(), Goal(version=3)
    with dying_before("bronze"):
        chain.rewind(goal, folders)
    assert chain.content() == [GOOD[:18], GOOD[:9]]
    tagged = [tag.target.version for tag in chain.disk.table("bronze").tags()]
    assert tagged == [3]
    clock.advance(20 * 86_400)
    chain.disk.table("bronze").expire(keep_last=1)
    chain.disk.table("bronze").vacuum()

    with pytest.raises(SnapshotExpiredError, match="commits since this version"):
        chain.rewind(goal, folders)
    chain.rewind(goal, folders, retire=["*"])
    assert chain.content() == [GOOD[:9], GOOD[:9]]
    assert list(chain.disk.table("bronze").tags()) == []


def test_a_named_consumer_goes_back_with_its_query(chain: Chain) -> None:
    """Its lease ends later; the lease of another consumer that ends there stays that one's."""
    chain.stages["clean"] = replace(chain.stages["clean"], consumer="clean")
    chain.run(4)
    chain.deploy("ingest", spoiled)
    chain.run(3)
    reader = Consumer(
        Follower(chain.disk.table("bronze").metadata.store, Request(), None),
        Request(consumer="other"),
        clock=ManualClock(),
    )
    end = reader.next_offset(reader.first_offset(), is_limited=False)
    goal, folders = Goal(application="ingest", after_batch=3), chain.new_folders()
    told = chain.rewind(goal, folders, dry_run=True)
    assert [one.consumer for one in told.tables[0].consumers] == ["clean", "other"]

    chain.rewind(goal, folders)
    assert reader.next_offset(end, is_limited=False).version == 8
    chain.deploy("ingest", keep_all)
    chain.restart(folders)
    chain.drain()
    assert chain.content() == [GOOD, GOOD, GOOD]


def test_a_query_that_has_read_what_an_earlier_rewind_undid_goes_back(chain: Chain) -> None:
    """Bronze alone was rewound; silver has read the bad rows, and stands at a version before it."""
    chain.deploy("clean", keep_all)
    chain.run(4)
    chain.deploy("ingest", spoiled)
    chain.run(2)
    folder = {"ingest": chain.disk.new_folder("forks/ingest")}
    chain.rewind(Goal(application="ingest", after_batch=3), folder, "bronze")
    chain.restart(folder)
    chain.deploy("ingest", keep_all)
    chain.run(3, "ingest")

    done = chain.back(6)
    assert [fork.batches[-1] for fork in done.forks] == [6, 3, 3]
    chain.drain()
    assert chain.content() == [GOOD, GOOD, GOOD]


def test_one_table_that_is_made_from_another_keeps_the_first_offsets_of_its_query(
    chain: Chain,
) -> None:
    chain.run(3)
    folder = {"clean": chain.disk.new_folder("forks/clean")}

    with pytest.raises(InvalidInputError, match="startingVersion"):
        chain.rewind(Goal(version=0), folder, "silver")
    assert chain.content()[1] == GOOD[:9]
