"""Courses of a query that dies, changes its application, is forgotten, rewound and moved."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from fuse_stream.checkpoint.files import load_checkpoint
from fuse_stream.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
    StreamIdentityError,
)
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.recovery.rewind import rewind
from fuse_stream.recovery.target import Goal
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from tests.conftest import SCHEMA
from tests.recovery.checkpoints import offsets_text, put
from tests.recovery.histories import keys
from tests.recovery.streams import Query

QUERY = "11111111-2222-3333-4444-555555555555"
COURSES = range(12)
STEPS = 40
MOST_COURSES = 60
"""The number of courses to draw until one without the rule loses a row."""
TOLD = (
    StreamIdentityError,
    InvalidInputError,
    ConflictError,
    NotFoundError,
    SnapshotExpiredError,
)
"""Errors that an operator may get; no row is lost or doubled by them."""

Patch = pytest.MonkeyPatch


@dataclass
class World:
    """A table, its branches, and a query with a checkpoint."""

    seed: int
    done: Counter[str] = field(default_factory=Counter)
    losses: list[str] = field(default_factory=list)
    branches: list[str] = field(default_factory=lambda: ["main"])

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.clock = ManualClock(seed=self.seed)
        self.store = MemoryStore(clock=self.clock)
        schema = first_schema(columns_of_arrow(SCHEMA))
        create_table(self.store, schema, clock=self.clock, probe_store=False)
        self.empty = {number for number in range(STEPS + 1) if self.chance.random() < 0.4}
        """Batches without rows."""
        self.query = Query(self.opened("main")).begin(QUERY)

    def opened(self, branch: str) -> Table:
        return open_table(self.store, branch=branch, clock=self.clock, probe_store=False)

    def restart(self, *, application: str | None = None, branch: str | None = None) -> None:
        """Start the query again, in another process."""
        self.query = Query(
            self.opened(branch or self.query.table.committer.branch.name),
            self.query.checkpoint,
            application=application or self.query.application,
        )

    def check(self) -> None:
        """Compare every branch with the batches up to the last one that it has or had."""
        for branch in self.branches:
            table = self.opened(branch)
            found = keys(table.to_arrow())
            last = max((entry.batch_id for entry in table.ledger().values()), default=-1)
            last = max([last, *found])
            expected = [number for number in range(last + 1) if number not in self.empty]
            if found != expected:
                self.losses.append(f"seed {self.seed}: {branch} has {found}, not {expected}")


def run(world: World) -> None:
    """Run the next batch; a driver that dies in it leaves it planned."""
    query, checkpoint = world.query, load_checkpoint(world.query.checkpoint)
    number = checkpoint.commits[-1] + 1 if checkpoint.commits else 0
    if world.chance.random() < 0.2 and number not in world.empty:
        put(query.checkpoint, {f"offsets/{number}": offsets_text({"logOffset": number})})
        query.commit(number)
        world.restart()
    else:
        query.run_batch(number, empty=number in world.empty)


def restart(world: World) -> None:
    world.restart()


def rename(world: World) -> None:
    world.restart(application=world.chance.choice(["default", "flights"]))


def move(world: World) -> None:
    is_renamed = world.chance.random() < 0.2
    world.restart(
        branch=world.chance.choice(world.branches), application="moved" if is_renamed else None
    )


def branch_off(world: World) -> None:
    if len(world.branches) < 3:
        name = f"line-{len(world.branches)}"
        world.opened(world.chance.choice(world.branches)).create_branch(name)
        world.branches.append(name)


def publish(world: World) -> None:
    """Publish a branch to another one, with the query stopped or running."""
    one, other = world.chance.choice(world.branches), world.chance.choice(world.branches)
    table = world.opened(one)
    table.publish(other, expected_head=table.head().version)


def forget(world: World) -> None:
    """Forget the query in a ledger; not in the middle of a batch, which would run again."""
    found = load_checkpoint(world.query.checkpoint)
    if found.commits and found.offsets[-1] == found.commits[-1]:
        world.opened(world.chance.choice(world.branches)).forget(world.query.application)


def go_back(world: World) -> None:
    """Rewind a branch with the checkpoint; run its fork there, or the old query where it was."""
    branch = world.chance.choice(world.branches)
    last = max((entry.batch_id for entry in world.opened(branch).ledger().values()), default=0)
    goal = Goal(application=world.query.application, after_batch=world.chance.randint(0, last + 1))
    fork = MemoryStore()
    rewind(world.opened(branch).committer, goal, checkpoints=((world.query.checkpoint, fork),))
    if world.chance.random() < 0.7:
        world.query = Query(world.opened(branch), fork, application=world.query.application)


MOVES: dict[Callable[[World], None], int] = {
    run: 60,
    restart: 5,
    rename: 6,
    move: 12,
    branch_off: 8,
    publish: 20,
    forget: 2,
    go_back: 4,
}


def run_course(seed: int) -> World:
    """Draw and run a course of events; return the world after it."""
    world = World(seed)
    for _ in range(STEPS):
        (step,) = world.chance.choices(list(MOVES), list(MOVES.values()))
        try:
            step(world)
        except TOLD as error:
            world.done[f"{step.__name__} {type(error).__name__}"] += 1
            if step is run:
                world.restart()  # Spark stops the query
        else:
            world.done[step.__name__] += 1
        world.check()
        if world.losses:
            break
    return world


def test_a_query_that_moves_and_changes_its_application_loses_and_doubles_nothing() -> None:
    worlds = [run_course(seed) for seed in COURSES]
    done = sum((world.done for world in worlds), Counter[str]())

    assert [loss for world in worlds for loss in world.losses] == []
    assert min(done[what] for what in ("run", "move", "rename", "publish")) > len(COURSES) // 2
    assert done["run StreamIdentityError"] > 0


def without_other_applications(patch: Patch) -> None:
    patch.setattr("fuse_stream.commit.ledger._check_other_keys", lambda ledger, batch: None)


def without_other_branches(patch: Patch) -> None:
    patch.setattr("fuse_stream.commit.committer.check_other_branches", lambda *_: None)


@pytest.mark.parametrize("take_out", [without_other_applications, without_other_branches])
def test_without_a_rule_rows_are_lost_or_doubled(take_out: Callable[[Patch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        take_out(patch)
        lost = next((seed for seed in range(MOST_COURSES) if run_course(seed).losses), None)

    assert lost is not None, "no course found what the rule stops"
