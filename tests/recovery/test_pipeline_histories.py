"""Rewind a pipeline after histories that its users meet: copies, rehearsals, dead calls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuse_stream.errors import FuseError, InvalidInputError, SnapshotExpiredError
from fuse_stream.recovery.target import Goal
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.pipelines import Disk, dying_before, first_of_key, keep_all
from tests.recovery.test_branch_off import branch, publish, rehearsed
from tests.recovery.test_pipeline import FILES, GOOD, Chain, new_chain, spoiled

DAY_S = 86_400


def to_batch(batch: int) -> Goal:
    return Goal(application="ingest", after_batch=batch)


def copied(chain: Chain, name: str, last: int) -> str:
    """Return the folder of a copy of a checkpoint that was made after batch `last`."""
    folder = chain.disk.new_folder(f"copies/{name}")
    old, new = chain.disk.checkpoint(chain.stages[name].folder), chain.disk.checkpoint(folder)
    for found in tuple(old.list("")):
        kind, _, number = found.key.partition("/")
        most = last + 1 if kind == "state" else last
        if kind == "metadata" or int(number.rpartition("/")[2].split(".")[0]) <= most:
            new.replace(found.key, old.get(found.key))
    return folder


@pytest.mark.parametrize("lasts", [(3, 3, 3), (3, 2, 3), (3, 3, 2), (3, 4, 4), (4, 3, 5)])
def test_checkpoints_that_are_copies_from_the_day_before_take_the_tables_with_them(
    lasts: tuple[int, int, int],
) -> None:
    """They were copied one after the other, while the queries ran."""
    chain = new_chain()
    chain.run(8)
    for name, last in zip(("ingest", "clean", "report"), lasts, strict=True):
        chain.stages[name] = replace(chain.stages[name], folder=copied(chain, name, last))
    folders = chain.new_folders()
    done = chain.rewind(to_batch(lasts[0]), folders)
    chain.restart(folders)
    chain.drain()

    assert [fork.batches[-1] for fork in done.forks[1:]] == [min(lasts[:2]), min(lasts)]
    assert chain.content() == [GOOD, GOOD, GOOD]


def test_two_roots_go_back_together() -> None:
    orders = {entry: [10_000 + row for row in rows] for entry, rows in FILES.items()}
    chain = Chain("bronze", "orders", "silver", "gold")
    chain.add("ingest", (), ("bronze",), files=FILES)
    chain.add("take", (), ("orders",), files=orders)
    chain.add("clean", ("bronze",), ("silver",), first_of_key, has_state=True)
    chain.add("report", ("silver", "orders"), ("gold",))
    chain.run(3)
    chain.deploy("ingest", spoiled)
    chain.run(2)
    chain.deploy("ingest", keep_all)
    done = chain.back(2)
    chain.drain()

    assert [fork.batches[-1] for fork in done.forks] == [2, 4, 2, 4]
    both = sorted(GOOD + [row for rows in orders.values() for row in rows])
    assert chain.content() == [GOOD, both[36:], GOOD, both]


# ---- after a rehearsal


def published(chain: Chain, goal: Goal, *, runs: int = 2) -> dict[str, str]:
    """Rehearse, publish, and go on without the branch; return the folders of the forks."""
    folders = chain.new_folders()
    branch(chain, goal, folders)
    other = rehearsed(chain, folders)
    other.run(runs)
    publish(chain)
    chain.stages = {name: replace(one, branch="main") for name, one in other.stages.items()}
    return folders


@pytest.mark.parametrize("batch", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_pipeline_goes_back_to_before_its_rehearsal(batch: int, first: int) -> None:
    """Also from silver or gold on: what these are made from stays."""
    chain = new_chain()
    chain.run(4)
    published(chain, Goal(at_head=True))
    chain.run(2)
    names = list(chain.stages)[first:]
    folders = {name: chain.disk.new_folder(f"forks/{name}") for name in names}
    goal = Goal(application=names[0], after_batch=batch)
    done = chain.rewind(goal, folders, *chain.tables[first:])
    chain.restart(folders)
    chain.drain()

    assert done.forks[0].batches[-1] == batch
    if batch <= 3:
        assert {fork.batches[-1] for fork in done.forks} == {batch}
    assert chain.content() == [GOOD, GOOD, GOOD]


@pytest.mark.parametrize(("made_at", "batch"), [(2, 4), (2, 2), (2, 1), (None, 3), (None, 2)])
def test_branches_go_back_also_to_before_they_were_made(made_at: int | None, batch: int) -> None:
    chain = new_chain()
    chain.run(4)
    folders = chain.new_folders()
    branch(chain, Goal(at_head=True) if made_at is None else to_batch(made_at), folders)
    other = rehearsed(chain, folders)
    other.run(3)
    folders = other.new_folders()
    other.rewind_on("fix", to_batch(batch), folders)
    other.restart(folders)
    other.run(2)
    publish(chain)
    for name, stage in other.stages.items():
        other.stages[name] = replace(stage, branch="main")
    other.drain()

    assert chain.content() == [GOOD, GOOD, GOOD]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_what_was_read_on_a_branch_that_is_gone_is_not_kept(version: int) -> None:
    clock = ManualClock()
    chain = new_chain(Disk(MemoryStore(clock=clock), time=clock))
    chain.run(4)
    published(chain, to_batch(2), runs=3)
    chain.run(2)
    for name in chain.tables:
        chain.disk.table(name).delete_branch("fix")
    for _ in range(4):
        clock.advance(40 * DAY_S)
        for name in chain.tables:
            chain.disk.table(name).vacuum()
    folders = chain.new_folders()
    try:
        chain.rewind(Goal(version=version), folders, retire=["*"])
    except FuseError:
        assert chain.content() == [GOOD[:24]] * 3
        assert version == 4
    else:
        chain.restart(folders)
    chain.drain()

    assert chain.content() == [GOOD, GOOD, GOOD]


def test_a_publish_that_has_expired_takes_nothing_back_in_part() -> None:
    clock = ManualClock()
    chain = new_chain(Disk(MemoryStore(clock=clock), time=clock))
    chain.run(4)
    for name in chain.tables:
        chain.disk.table(name).create_tag("good", 4)
    published(chain, Goal(at_head=True))
    chain.run(2)
    for _ in range(3):
        clock.advance(9 * DAY_S)
        chain.disk.table("bronze").expire(keep_last=1)
        chain.disk.table("bronze").vacuum()
    before = chain.content()

    with pytest.raises(SnapshotExpiredError):
        chain.rewind(Goal(version="good"), chain.new_folders(), retire=["*"])
    assert chain.content() == before


# ---- other calls than the one that died


def died(table: str) -> tuple[Chain, dict[str, str]]:
    """Return a pipeline whose rewind died before it came to a table."""
    chain = new_chain()
    chain.run(4)
    chain.deploy("ingest", spoiled)
    chain.run(3)
    chain.deploy("ingest", keep_all)
    folders = chain.new_folders()
    with dying_before(table):
        chain.rewind(to_batch(3), folders)
    return chain, folders


def finish(chain: Chain, folders: dict[str, str]) -> None:
    """Make the same call, and look at what comes of it."""
    chain.rewind(to_batch(3), folders)
    chain.restart(folders)
    chain.drain()
    assert chain.content() == [GOOD, GOOD, GOOD]
    assert [list(chain.disk.table(name).tags()) for name in chain.tables] == [[], [], []]


@pytest.mark.parametrize("at", ["bronze", "silver", "gold"])
@pytest.mark.parametrize("tables", [("silver", "gold"), ("bronze", "silver"), ("bronze", "gold")])
def test_a_dead_rewind_is_not_finished_for_some_of_its_tables(
    at: str, tables: tuple[str, ...]
) -> None:
    chain, folders = died(at)
    before = chain.content()

    with pytest.raises(InvalidInputError, match="make the same call"):
        chain.rewind(to_batch(3), folders, *tables)
    assert chain.content() == before
    finish(chain, folders)


@pytest.mark.parametrize("at", ["bronze", "silver", "gold"])
@pytest.mark.parametrize("left_out", ["ingest", "clean", "report"])
def test_a_dead_rewind_is_not_finished_for_some_of_its_queries(at: str, left_out: str) -> None:
    chain, folders = died(at)
    some = {name: folder for name, folder in folders.items() if name != left_out}

    with pytest.raises(InvalidInputError, match="make the same call"):
        chain.rewind(to_batch(3), some)
    finish(chain, folders)


@pytest.mark.parametrize("at", ["bronze", "silver"])
@pytest.mark.parametrize("goal", [Goal(version=3), Goal(version=5), to_batch(2)])
def test_a_dead_rewind_is_not_finished_with_another_goal(at: str, goal: Goal) -> None:
    chain, folders = died(at)
    before = chain.content()

    with pytest.raises(InvalidInputError):
        chain.rewind(goal, folders)
    assert chain.content() == before
    finish(chain, folders)


@pytest.mark.parametrize("at", ["bronze", "silver", "gold"])
def test_the_checkpoints_of_a_dead_rewind_are_named_in_any_order(at: str) -> None:
    chain, folders = died(at)
    finish(chain, dict(reversed(folders.items())))
