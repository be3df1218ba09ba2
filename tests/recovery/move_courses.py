"""Draw from a seed a course of a query that dies, changes its name and moves between branches.

The query writes one table or two. Its tables get branches, which are published, rewound with the
checkpoint or without it, expired, and forget the query; or they are replaced by clones, each of a
version of its own. What must hold after every step: each
branch of each table has the row of every batch that is not empty, once, up to the last batch that
it has or that its ledger names.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from fuse_stream.checkpoint.files import load_checkpoint
from fuse_stream.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
    StreamIdentityError,
)
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.objects.origins import StoreWithOrigins
from fuse_stream.objects.slots import Metadata
from fuse_stream.recovery.rewind import rewind_tables
from fuse_stream.recovery.target import Goal
from fuse_stream.refs.clone import clone
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from tests.conftest import SCHEMA
from tests.recovery.checkpoints import offsets_text, put
from tests.recovery.histories import keys
from tests.recovery.streams import Query

QUERY = "11111111-2222-3333-4444-555555555555"
STEPS = 45
DAY_S = 24 * 3600
TOLD = (
    AlreadyExistsError,
    StreamIdentityError,
    InvalidInputError,
    ConflictError,
    NotFoundError,
    SnapshotExpiredError,
)
"""Errors that an operator may get; no row is lost or doubled by them."""


@dataclass
class World:
    """Tables with the same branches, and a query with a checkpoint that writes all of them."""

    seed: int
    tables: int
    done: Counter[str] = field(default_factory=Counter)
    losses: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    branches: list[str] = field(default_factory=lambda: ["main"])
    application: str = "default"
    has_forgotten: bool = False

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.clock = ManualClock(seed=self.seed)
        self.stores = [StoreWithOrigins(MemoryStore(clock=self.clock)) for _ in range(self.tables)]
        for store in self.stores:
            schema = first_schema(columns_of_arrow(SCHEMA))
            create_table(store, schema, clock=self.clock, probe_store=False)
        self.empty = [
            {number for number in range(STEPS + 1) if self.chance.random() < rate}
            for rate in (0.3, 0.5)
        ]
        """For each table, the batches without rows for it."""
        self.branch_of = ["main"] * self.tables
        """For each table, the branch that the query writes to."""
        self.checkpoint: Store = MemoryStore()
        Query(self.opened(0, "main"), self.checkpoint).begin(QUERY)
        self.start()

    def opened(self, number: int, branch: str) -> Table:
        return open_table(self.stores[number], branch=branch, clock=self.clock, probe_store=False)

    def start(self) -> None:
        """Start the query, in another process than before."""
        self.sinks = [
            Query(self.opened(number, branch), self.checkpoint, application=self.application)
            for number, branch in enumerate(self.branch_of)
        ]

    def any_branch(self) -> str:
        return self.chance.choice(self.branches)

    def some_tables(self) -> list[int]:
        """All tables in any order; at times only one of them."""
        order = self.chance.sample(range(self.tables), self.tables)
        return order[:1] if self.chance.random() < 0.3 and not self.has_forgotten else order

    def check(self) -> None:
        """Compare every branch with the batches up to the last one that it has or had."""
        for number in range(self.tables):
            for branch in self.branches:
                table = self.opened(number, branch)
                found = keys(table.to_arrow())
                ended = [entry.batch_id for entry in table.ledger().values()]
                last = max([-1, *ended, *found])
                expected = [key for key in range(last + 1) if key not in self.empty[number]]
                if found != expected:
                    self.losses.append(
                        f"seed {self.seed}: table {number}, branch {branch} has {found},"
                        f" not {expected}"
                    )


def run(world: World) -> None:
    """Run the next batch; a driver that dies in it leaves it planned."""
    checkpoint = load_checkpoint(world.checkpoint)
    number = checkpoint.commits[-1] + 1 if checkpoint.commits else 0
    put(world.checkpoint, {f"offsets/{number}": offsets_text({"logOffset": number})})
    dies_after = world.chance.randrange(world.tables) if world.chance.random() < 0.2 else None
    for table, sink in enumerate(world.sinks):
        if number in world.empty[table]:
            sink.table.committer.examine(sink.plan(number))
        else:
            sink.commit(number)
        if table == dies_after:
            world.start()
            return
    put(world.checkpoint, {f"commits/{number}": "v1\n{}"})


def restart(world: World) -> None:
    world.start()


def rename(world: World) -> None:
    world.application = world.chance.choice(["default", "flights"])
    world.start()


def move(world: World) -> None:
    """Start the query on another branch; at times on different branches of its tables."""
    world.branch_of = [world.any_branch()] * world.tables
    if world.chance.random() < 0.15:
        world.branch_of[-1] = world.any_branch()
    if world.chance.random() < 0.1:
        world.application = "moved"
    world.start()


def branch_off(world: World) -> None:
    if len(world.branches) < 3:
        name, origin = f"branch-{len(world.branches)}", world.any_branch()
        for number in range(world.tables):
            world.opened(number, origin).create_branch(name)
        world.branches.append(name)


def publish(world: World) -> None:
    """Publish a branch to another one, with the query stopped or running."""
    if len(world.branches) == 1:
        return
    one, other = world.chance.sample(world.branches, 2)
    for number in world.some_tables():
        table = world.opened(number, one)
        table.publish(other, expected_head=table.head().version)


def forget(world: World) -> None:
    """Forget the query where it runs; not in the middle of a batch, which would run again.

    Who forgets the entry of another query, or one that came with a clone, lets this query on; and
    who forgets a table's entry may not leave that table out of a rewind.
    """
    found, number = load_checkpoint(world.checkpoint), world.chance.randrange(world.tables)
    table = world.opened(number, world.branch_of[number])
    entries = [one for (name, _), one in table.ledger().items() if name == world.application]
    is_own = {found.query_id} == {one.query_id for one in entries}
    if is_own and found.offsets[-1:] == found.commits[-1:] and not world.stores[number].allowed:
        table.forget(world.application)
        world.has_forgotten = True


def expire(world: World) -> None:
    """Let versions expire; not where the query is retired: nothing would name its batches there."""
    world.clock.advance(world.chance.choice([10, 8 * DAY_S]))
    number = world.chance.randrange(world.tables)
    table = world.opened(number, world.any_branch())
    if load_checkpoint(world.checkpoint).query_id not in table.head().ledger.retired:
        table.expire(keep_last=world.chance.choice([1, 3, 10]))


def go_back(world: World) -> None:
    """Rewind branches with the checkpoint; run the fork there, or the old query where it was."""
    branches = [world.any_branch()] * world.tables
    if world.chance.random() < 0.1:
        branches[-1] = world.any_branch()
    ended = load_checkpoint(world.checkpoint).commits
    last = ended[-1] if ended else 0
    goal = Goal(
        application=world.application,
        after_batch=world.chance.randint(max(0, last - 6), last + 1),
    )
    order, fork = world.some_tables(), MemoryStore()
    committers = [world.opened(number, branches[number]).committer for number in order]
    rewind_tables(committers, goal, checkpoints=((world.checkpoint, fork),))
    if len(order) < world.tables and world.chance.random() < 0.7:
        committers = [
            world.opened(number, branches[number]).committer for number in range(world.tables)
        ]
        try:
            rewind_tables(committers, goal, checkpoints=((world.checkpoint, fork),))
        except TOLD as error:
            world.done[f"go_back_with_the_rest {type(error).__name__}"] += 1
    if world.chance.random() < 0.8:
        world.checkpoint, world.branch_of = fork, branches
        world.start()


def clone_tables(world: World) -> None:
    """Replace the tables by clones of late versions that have a batch of the query."""
    found = []
    for number in range(world.tables):
        table = world.opened(number, world.any_branch())
        head = table.head()
        version = world.chance.randint(max(head.floor, head.version - 4), head.version)
        if not table.snapshot(version).ledger.entries:
            return  # what the origin has cannot be known on the clone
        found.append((table, version))
    for number, (table, version) in enumerate(found):
        store, place = world.stores[number], MemoryStore(clock=world.clock)
        clone(
            table.committer,
            Metadata(place, world.clock),
            version=version,
            origin_of=store.origin,
            probe_place=False,
        )
        world.stores[number] = StoreWithOrigins(place, (store.store, *store.allowed))
    world.branches = ["main"]
    world.branch_of = ["main"] * world.tables
    world.start()


MOVES: dict[Callable[[World], None], int] = {
    run: 60,
    restart: 5,
    rename: 3,
    move: 12,
    branch_off: 8,
    publish: 10,
    forget: 1,
    go_back: 7,
    clone_tables: 1,
}


def run_course(seed: int, *, tables: int, expires: bool = False) -> World:
    """Draw and run a course of events; return the world after it."""
    world = World(seed, tables)
    moves = {**MOVES, expire: 3} if expires else MOVES
    for _ in range(STEPS):
        (step,) = world.chance.choices(list(moves), list(moves.values()))
        told = step.__name__
        try:
            step(world)
        except TOLD as error:
            told = f"{told} {type(error).__name__}"
            if step is run:
                world.start()  # Spark stops the query
        world.done[told] += 1
        world.check()
        world.trace.append(f"{told}, the query on {world.branch_of} as {world.application}")
        if world.losses:
            world.trace += world.losses
            break
    return world
