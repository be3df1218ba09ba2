"""Rehearse a fix on branches of all tables of a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from fuse_stream.checkpoint.files import load_checkpoint, load_offsets
from fuse_stream.commit.committer import Committer
from fuse_stream.errors import (
    AlreadyExistsError,
    ConflictError,
    FuseError,
    InvalidInputError,
    StreamIdentityError,
)
from fuse_stream.feed.views import Limits
from fuse_stream.format.refs import BranchRef
from fuse_stream.recovery.branch_off import PipelineBranch, branch_tables
from fuse_stream.recovery.publish import Publication, publish_tables
from fuse_stream.recovery.target import Goal
from fuse_stream.refs.create import create_branch
from fuse_stream.testing.faults import AT_ANY_CALL, Crash, Fault, FaultyStore
from tests.recovery.by_hand import compact
from tests.recovery.histories import rows
from tests.recovery.pipelines import Disk, dying_before, keep_all
from tests.recovery.test_pipeline import GOOD, Chain, new_chain, spoiled


@pytest.fixture
def chain() -> Chain:
    return new_chain()


def on_branch_of(chain: Chain, disk: Disk) -> Callable[[Committer, BranchRef], Committer]:
    names = {disk.table(name).metadata.store.url: name for name in chain.tables}

    def on_branch(committer: Committer, ref: BranchRef) -> Committer:
        return disk.table(names[committer.metadata.store.url], ref.name).committer

    return on_branch


def branch(
    chain: Chain, goal: Goal, folders: dict[str, str], on: Disk | None = None
) -> PipelineBranch:
    disk = on or chain.disk
    return branch_tables(
        [disk.table(name).committer for name in chain.tables],
        "fix",
        goal,
        on_branch=on_branch_of(chain, disk),
        checkpoints=[
            (disk.checkpoint(chain.stages[name].folder), disk.checkpoint(folder))
            for name, folder in folders.items()
        ],
    )


def rehearsed(chain: Chain, folders: dict[str, str]) -> Chain:
    """Return the same pipeline on the branches and on the forks."""
    other = Chain(disk=chain.disk)
    other.tables = chain.tables
    other.stages = {
        name: replace(stage, folder=folders[name], branch="fix")
        for name, stage in chain.stages.items()
    }
    return other


def on_branches(chain: Chain) -> list[list[int]]:
    return [chain.disk.content(name, "fix") for name in chain.tables]


@pytest.mark.parametrize("goal", [Goal(at_head=True), Goal(application="ingest", after_batch=3)])
def test_a_fix_is_tried_on_branches_of_all_tables(chain: Chain, goal: Goal) -> None:
    chain.run(4)
    chain.deploy("ingest", spoiled)
    if goal.after_batch is not None:
        chain.run(3)
    before = chain.content()
    folders = chain.new_folders()
    done = branch(chain, goal, folders)
    other = rehearsed(chain, folders)
    other.deploy("ingest", keep_all)
    other.drain()

    assert on_branches(chain) == [GOOD, GOOD, GOOD]
    assert chain.content() == before
    assert done.rewind is not None
    assert [ref.name for ref in done.branches] == ["fix"] * 3
    chain.deploy("ingest", keep_all)
    chain.drain()
    assert len(chain.content()[0]) == len(GOOD)  # the queries on main go on


def test_the_queries_run_while_the_branches_are_made(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain.run(4)
    create = create_branch

    def create_while_running(committer: Committer, name: str) -> BranchRef:
        chain.run(1)
        ref = create(committer, name)
        chain.run(1)
        return ref

    monkeypatch.setattr("fuse_stream.recovery.branch_off.create_branch", create_while_running)
    folders = chain.new_folders()
    branch(chain, Goal(at_head=True), folders)
    heads = [len(found) for found in on_branches(chain)]
    assert heads == sorted(heads, reverse=True)
    assert heads[0] > heads[2]
    rehearsed(chain, folders).drain()
    assert on_branches(chain) == [GOOD, GOOD, GOOD]
    chain.drain()
    assert chain.content() == [GOOD, GOOD, GOOD]


def test_a_fork_reads_the_branches_and_the_ledger_says_so(chain: Chain) -> None:
    chain.run(3)
    folders = chain.new_folders()
    done = branch(chain, Goal(at_head=True), folders)
    ids = {name: ref.branch_id for name, ref in zip(chain.tables, done.branches, strict=True)}

    for table, source in (("silver", "bronze"), ("gold", "silver")):
        (entry,) = chain.disk.table(table, "fix").ledger().values()
        assert entry.sources is not None
        assert [one.offset.branch_id for one in entry.sources] == [ids[source]]
        assert all(ids[source] in (one.text or "") for one in entry.offsets)
        (entry,) = chain.disk.table(table).ledger().values()
        assert entry.sources is not None
        assert [one.offset.branch_id for one in entry.sources] == ["main"]


def test_a_batch_that_had_not_ended_runs_again_on_the_branch(chain: Chain) -> None:
    chain.run(3)
    chain.stages["ingest"].trigger()
    with suppress(BaseException):
        chain.stages["clean"].trigger(dies_after=1)  # committed, not ended
    folders = chain.new_folders()
    branch(chain, Goal(at_head=True), folders)
    rehearsed(chain, folders).drain()

    assert on_branches(chain) == [GOOD, GOOD, GOOD]


def test_a_branch_with_commits_of_its_own_is_not_taken_over(chain: Chain) -> None:
    chain.run(3)
    folders = chain.new_folders()
    branch(chain, Goal(at_head=True), folders)
    rehearsed(chain, folders).run(2)

    with pytest.raises(AlreadyExistsError, match="commits of its own"):
        branch(chain, Goal(at_head=True), chain.new_folders())


QUIET = {entry: [10 * entry] if entry in {0, 1, 2, 18, 20} else [] for entry in range(22)}
"""The rows of each file: the table gets rows rarely."""
RARE = sorted(value for values in QUIET.values() for value in values)


def quiet(*tables: str) -> Chain:
    """Return a pipeline whose first query writes rarely; others write tables beside it."""
    chain = Chain(*tables)
    chain.add("ingest", (), (tables[0],), files=QUIET)
    if len(tables) > 1:
        chain.add("clean", (tables[0],), (tables[1],))
        beside = {entry: [10 * (1000 + entry)] for entry in range(22)}
        chain.add("beside", (), (tables[1],), files=beside)
    return chain


def clean_up(chain: Chain) -> None:
    """Delete of each checkpoint what Spark deletes: it keeps the last ten batches."""
    for stage in chain.stages.values():
        last = load_checkpoint(stage.checkpoint).offsets[-1]
        for info in stage.checkpoint.list(""):
            folder, _, name = info.key.partition("/")
            if folder in {"offsets", "commits"} and int(name) < last - 9:
                stage.checkpoint.delete(info.key)


@pytest.mark.parametrize("count", [3, 6, 15])
@pytest.mark.parametrize("tables", [("bronze",), ("bronze", "silver")])
def test_a_fork_at_the_head_keeps_the_empty_batches(tables: tuple[str, ...], count: int) -> None:
    chain = quiet(*tables)
    chain.run(count)
    clean_up(chain)
    folders = chain.new_folders()
    done = branch(chain, Goal(at_head=True), folders)
    last = load_checkpoint(chain.stages["ingest"].checkpoint).offsets[-1]

    assert done.rewind is not None
    assert done.rewind.forks[0].batches[-1] == last
    assert done.rewind.forks[0].reruns is None
    other = rehearsed(chain, folders)
    other.drain()
    chain.drain()
    assert on_branches(chain)[0] == RARE
    assert on_branches(chain) == chain.content()


@pytest.mark.parametrize("tables", [("bronze",), ("bronze", "silver")])
@pytest.mark.parametrize("count", [2, 5, 16, 18])
def test_rows_that_come_while_the_branches_are_made_are_not_lost_after_empty_batches(
    tables: tuple[str, ...], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = quiet(*tables)
    chain.run(count)
    create = create_branch

    def create_while_running(committer: Committer, name: str) -> BranchRef:
        chain.run(1)
        ref = create(committer, name)
        chain.run(2)
        return ref

    monkeypatch.setattr("fuse_stream.recovery.branch_off.create_branch", create_while_running)
    folders = chain.new_folders()
    branch(chain, Goal(at_head=True), folders)
    rehearsed(chain, folders).drain()
    chain.drain()

    assert on_branches(chain) == chain.content()


def disturbed(at_call: int | None, fault: Fault) -> tuple[Chain, FaultyStore]:
    chain = new_chain()
    chain.run(2)
    chain.deploy("ingest", spoiled)
    chain.run(2)
    goal, folders = Goal(application="ingest", after_batch=1), chain.new_folders()
    faulty = FaultyStore(chain.disk.store, at_call=at_call, fault=fault)
    with suppress(Crash, FuseError):
        branch(chain, goal, folders, on=replace(chain.disk, store=faulty))
    branch(chain, goal, folders)
    other = rehearsed(chain, folders)
    other.deploy("ingest", keep_all)
    other.drain()
    return chain, faulty


@pytest.mark.long
@pytest.mark.parametrize("fault", AT_ANY_CALL)
def test_branches_that_were_not_finished_are_finished_by_the_same_call(fault: Fault) -> None:
    calls = len(disturbed(None, fault)[1].calls)
    for at_call in range(1 + AT_ANY_CALL.index(fault), calls + 1, 9):
        chain, _ = disturbed(at_call, fault)
        assert on_branches(chain) == [GOOD, GOOD, GOOD], f"{fault} at call {at_call}"


@pytest.mark.parametrize("tables", [("bronze", "silver", "gold"), ("silver",)])
@pytest.mark.parametrize("with_forks", [True, False])
def test_an_older_branch_of_the_name_is_not_taken_over(
    chain: Chain,
    tables: tuple[str, ...],
    with_forks: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    chain.run(2)
    for name in tables:
        chain.disk.table(name).create_branch("fix")
    chain.run(4)
    before = {info.key for info in chain.disk.store.list("")}

    folders = chain.new_folders() if with_forks else {}
    with pytest.raises(AlreadyExistsError, match="name another one; or delete it"):
        branch(chain, Goal(at_head=True), folders)
    with pytest.raises(AlreadyExistsError, match="name another one; or delete it") as refused:
        branch(chain, Goal(at_head=True), folders)
    assert (refused.value.context["forked_at"], refused.value.context["head"]) == (2, 6)
    assert {info.key for info in chain.disk.store.list("")} == before
    for name in tables:
        chain.disk.table(name).delete_branch("fix")
    branch(chain, Goal(at_head=True), folders)
    assert on_branches(chain) == chain.content()


def test_a_branch_that_has_what_the_table_has_now_is_taken_over(chain: Chain) -> None:
    chain.run(2)
    ref = chain.disk.table("silver").create_branch("fix")
    done = branch(chain, Goal(at_head=True), chain.new_folders())

    assert done.branches[1] == ref
    assert on_branches(chain) == chain.content()


def disturbed_while_running(
    at_call: int | None,
    fault: Fault,
    *tables: str,
    with_forks: bool = True,
) -> tuple[Chain, FaultyStore, dict[str, str]]:
    """Make branches of the heads; the call dies, the queries run on, and it is made again."""
    chain = quiet(*tables)
    chain.run(7)
    folders = chain.new_folders() if with_forks else {}
    faulty = FaultyStore(chain.disk.store, at_call=at_call, fault=fault)
    with suppress(Crash, FuseError):
        branch(chain, Goal(at_head=True), folders, on=replace(chain.disk, store=faulty))
    if at_call is not None:
        chain.run(13)
        branch(chain, Goal(at_head=True), folders)
    return chain, faulty, folders


def assert_finished(chain: Chain, folders: dict[str, str]) -> None:
    assert [chain.disk.table(name).tags() for name in chain.tables] == [()] * len(chain.tables)
    if folders:
        rehearsed(chain, folders).drain()
        chain.drain()
        assert on_branches(chain) == chain.content()


@pytest.mark.long
@pytest.mark.parametrize("tables", [("bronze",), ("bronze", "silver")])
@pytest.mark.parametrize("fault", AT_ANY_CALL)
def test_branches_are_finished_by_the_same_call_while_the_queries_run_on(
    fault: Fault, tables: tuple[str, ...]
) -> None:
    calls = len(disturbed_while_running(None, fault, *tables)[1].calls)
    for at_call in range(1 + AT_ANY_CALL.index(fault), calls + 1, 7):
        chain, _, folders = disturbed_while_running(at_call, fault, *tables)
        assert_finished(chain, folders)


@pytest.mark.parametrize("with_forks", [True, False])
def test_a_call_that_died_between_two_branches_is_finished_while_the_queries_run_on(
    with_forks: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    tables, fault = ("bronze", "silver"), Fault.CRASH_BEFORE
    _, faulty, _ = disturbed_while_running(None, fault, *tables, with_forks=with_forks)
    made = [
        at
        for at, (verb, key) in enumerate(faulty.calls, start=1)
        if verb == "put_if_absent" and ("/branch-" in key or "/branches/" in key)
    ]
    assert len(made) == 3  # a tag, and a branch in each table
    for at_call in (*made, made[-1] + 1):
        chain, _, folders = disturbed_while_running(at_call, fault, *tables, with_forks=with_forks)
        assert_finished(chain, folders)


def publish(
    chain: Chain,
    on: Disk | None = None,
    *,
    tables: tuple[str, ...] | None = None,
    heads: tuple[int | None, ...] | None = None,
    retire: tuple[str, ...] = ("*",),
) -> tuple[Publication | None, ...]:
    disk, names = on or chain.disk, tables or chain.tables
    return publish_tables(
        [disk.table(name).committer for name in names],
        "fix",
        on_branch=on_branch_of(chain, disk),
        expected_heads=heads or [chain.disk.table(name).head().version for name in names],
        retire=retire,
    )


@pytest.mark.parametrize("limit", [None, 1, 2])
def test_after_the_publish_the_queries_go_on_without_the_branch(
    chain: Chain, limit: int | None
) -> None:
    """With a limit they stop within a commit of the branch."""
    chain.run(4)
    chain.deploy("ingest", spoiled)
    chain.run(3)
    folders = chain.new_folders()
    branch(chain, Goal(application="ingest", after_batch=3), folders)
    other = rehearsed(chain, folders)
    other.deploy("ingest", keep_all)
    for name in ("clean", "report"):
        other.stages[name] = replace(other.stages[name], limits=Limits(rows=limit))
    other.run(3)
    publish(chain)
    for name, stage in other.stages.items():
        other.stages[name] = replace(stage, branch="main")
    other.drain()

    assert chain.content() == [GOOD, GOOD, GOOD]


def test_a_fork_that_did_not_run_on_the_branch_goes_on_after_the_publish(chain: Chain) -> None:
    chain.run(4)
    chain.deploy("ingest", spoiled)
    chain.run(3)
    folders = chain.new_folders()
    branch(chain, Goal(application="ingest", after_batch=3), folders)
    other = rehearsed(chain, folders)
    other.deploy("ingest", keep_all)
    other.run(2, "ingest")
    publish(chain)
    for name, stage in other.stages.items():
        other.stages[name] = replace(stage, branch="main")
    other.drain()

    assert chain.content() == [GOOD, GOOD, GOOD]


def test_a_fork_goes_on_also_if_the_publish_was_undone_since(chain: Chain) -> None:
    chain.run(4)
    folders = chain.new_folders()
    branch(chain, Goal(application="ingest", after_batch=3), folders)
    other = rehearsed(chain, folders)
    other.run(2, "ingest")
    publish(chain)
    chain.rewind(Goal(version=4), {}, "bronze", retire=["*"])
    chain.disk.table("bronze").append(rows(7))
    clean = replace(other.stages["clean"], branch="main")
    clean.drain()

    assert chain.content()[1] == GOOD[:12]  # 7 // 10 is not a new key


def test_a_reader_of_a_branch_without_commits_goes_on_where_it_was_made(chain: Chain) -> None:
    chain.run(3)
    ref = create_branch(chain.disk.table("bronze").committer, "empty")
    chain.stages["clean"] = replace(chain.stages["clean"], source_branch="empty")
    chain.stages["late"] = replace(chain.stages["clean"], folder=chain.disk.begin("late"))
    chain.stages["late"] = replace(chain.stages["late"], name="late", targets=("gold",))
    chain.stages["late"].trigger()
    assert ref.branch_id in load_offsets(chain.stages["late"].checkpoint, 0)
    chain.stages["late"] = replace(chain.stages["late"], source_branch=None)
    chain.run(3, "ingest", "late")

    assert chain.disk.content("gold") == sorted(GOOD[:9] + GOOD[:18])


def test_a_publish_that_died_is_finished_by_the_same_call(chain: Chain) -> None:
    chain.run(4)
    chain.deploy("ingest", spoiled)
    chain.run(3)
    folders = chain.new_folders()
    branch(chain, Goal(application="ingest", after_batch=3), folders)
    other = rehearsed(chain, folders)
    other.deploy("ingest", keep_all)
    other.run(2)
    with dying_before("bronze"):
        publish(chain)
    for stage in chain.stages.values():  # the queries of main run on, where they may
        with suppress(FuseError):
            stage.trigger()
    publish(chain)
    for name, stage in other.stages.items():
        other.stages[name] = replace(stage, branch="main")
    other.drain()

    assert chain.content() == [GOOD, GOOD, GOOD]
    with pytest.raises(InvalidInputError, match="nothing to publish"):
        publish(chain)


@pytest.mark.parametrize("goal", [Goal(at_head=True), Goal(application="ingest", after_batch=3)])
def test_a_fork_whose_source_lacks_the_branch_is_refused(chain: Chain, goal: Goal) -> None:
    """It would read the rows of main, which the branch does not have, into silver's branch."""
    chain.run(4)
    chain.deploy("ingest", spoiled)
    chain.run(3)
    folders = chain.new_folders()
    branch(chain, goal, folders)
    chain.run(1)
    other = rehearsed(chain, folders)
    before = on_branches(other)
    other.stages["clean"] = replace(other.stages["clean"], source_branch="main")

    with pytest.raises(StreamIdentityError, match="reads another branch") as refused:
        other.stages["clean"].trigger()
    assert refused.value.context["checkpoint"] == "fix"
    assert on_branches(other) == before
    other.stages["clean"] = replace(other.stages["clean"], source_branch=None)
    other.run(2)


def test_a_branch_that_was_made_from_another_tables_main_is_not_published(chain: Chain) -> None:
    """Its query began anew, without the fork, and read main."""
    chain.run(4)
    chain.deploy("ingest", spoiled)
    folders = chain.new_folders()
    branch(chain, Goal(application="ingest", after_batch=2), folders)
    chain.run(3)
    other = rehearsed(chain, folders)
    other.run(2, "ingest")
    late = Chain(disk=chain.disk)
    late.add("late", ("bronze",), ("silver",), branch="fix", source_branch="main")
    late.drain()

    before = chain.content()
    with pytest.raises(InvalidInputError, match="not on the branch to be published") as refused:
        publish(chain)
    assert refused.value.context["application"] == "late"
    assert chain.content() == before


def loaded() -> Chain:
    """Return two tables that a program loads; on the branch its batch 1 has nothing for gold."""
    chain = Chain("bronze", "gold")
    load(chain, 0, [10, 20], [20])
    branch(chain, Goal(at_head=True), {})
    load(chain, 1, [30], [], "fix")
    return chain


def load(
    chain: Chain, batch: int, bronze: list[int], gold: list[int], branch: str = "main"
) -> None:
    for name, values in (("bronze", bronze), ("gold", gold)):
        if values:
            table = chain.disk.table(name, branch)
            table.append(rows(*values), app_id="loader", batch_id=batch)


def test_a_table_whose_branch_has_no_commits_goes_back_with_the_others() -> None:
    chain = loaded()
    load(chain, 1, [31], [31])  # a bad deploy on main

    with pytest.raises(StreamIdentityError, match="would go back") as refused:
        publish(chain, retire=())
    assert str(refused.value.context["table"]).endswith("gold/")
    assert chain.content() == [[10, 20, 31], [20, 31]]
    bronze, gold = publish(chain)
    assert bronze is not None
    assert gold is not None
    assert [len(one.lost) for one in (bronze, gold)] == [1, 1]
    assert chain.content() == [[10, 20, 30], [20]]

    load(chain, 2, [40], [40])  # the program goes on; the same call, made again, takes nothing back
    with pytest.raises(InvalidInputError, match="nothing to publish"):
        publish(chain)
    assert chain.content() == [[10, 20, 30, 40], [20, 40]]


def test_a_table_whose_branch_has_no_commits_goes_back_also_after_a_publish_that_died() -> None:
    chain = Chain("bronze", "gold")
    load(chain, 0, [10], [10])
    branch(chain, Goal(at_head=True), {})
    load(chain, 1, [], [20], "fix")
    load(chain, 1, [21], [21])
    with dying_before("bronze"):
        publish(chain)

    assert publish(chain)[1] is None
    assert chain.content() == [[10], [10, 20]]


def test_branches_without_commits_are_not_published() -> None:
    chain = Chain("bronze", "gold")
    load(chain, 0, [10], [10])
    branch(chain, Goal(at_head=True), {})
    load(chain, 1, [20], [20])

    with pytest.raises(InvalidInputError, match="nothing to publish"):
        publish(chain)
    assert chain.content() == [[10, 20], [10, 20]]


def test_commits_beside_a_branch_without_commits_are_lost_only_if_the_head_is_named() -> None:
    chain = loaded()
    chain.disk.table("gold").append(rows(50))

    with pytest.raises(ConflictError, match="leave the table out") as refused:
        publish(chain, heads=(None, None))
    assert (refused.value.context["forked_at"], refused.value.context["head"]) == (1, 2)
    assert chain.content() == [[10, 20], [20, 50]]
    publish(chain, tables=("bronze",))
    assert chain.content() == [[10, 20, 30], [20, 50]]
    with pytest.raises(InvalidInputError, match="nothing to publish"):
        publish(chain, tables=("gold",))  # one table alone: that is a rewind


def test_a_table_with_nothing_to_publish_is_not_taken_back_by_the_same_call_made_again() -> None:
    chain = loaded()
    compact(chain.disk.table("gold"))

    publish(chain, heads=(None, None))
    load(chain, 2, [40], [40])
    with pytest.raises(InvalidInputError, match="nothing to publish"):
        publish(chain)
    assert chain.content() == [[10, 20, 30, 40], [20, 40]]


def test_a_table_that_is_named_twice_is_refused_before_anything_is_written() -> None:
    chain = loaded()

    with pytest.raises(InvalidInputError, match="named twice"):
        publish(chain, tables=("bronze", "bronze"))
    assert chain.content() == [[10, 20], [20]]
    chain.tables = ("gold", "gold")
    chain.disk.table("gold").delete_branch("fix")
    with pytest.raises(InvalidInputError, match="named twice"):
        branch(chain, Goal(at_head=True), {})
    assert [ref.name for ref in chain.disk.table("gold").branches()] == ["main"]
