"""Draw from a seed a course of events of queries that write several tables.

Drivers run, die and are started again; checkpoints are copied, lost, rebuilt, cut back with some of
the tables or all of them, and the old drivers run on beside the new ones. What must hold after
every step: a table has each row of the source that it selects, once, up to where its ledger says
that its last batch ended. At the end one of the checkpoints can continue, or all tables can be
rewound to a common batch, and then every row arrives.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from fuse_stream.checkpoint.files import load_checkpoint, load_offsets
from fuse_stream.checkpoint.write_fork import new_query_id
from fuse_stream.commit.ledger import Batch, Verdict, offsets_of
from fuse_stream.commit.plan import Intent, Staged
from fuse_stream.commit.stage import stage_blocks, stage_rows
from fuse_stream.errors import (
    AlreadyExistsError,
    CommitStateUnknownError,
    ConflictError,
    CorruptObjectError,
    FuseError,
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
    StorageError,
    StreamIdentityError,
)
from fuse_stream.format.arrow import adapt, columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.layout import MAIN, slot_key
from fuse_stream.format.properties import block_target
from fuse_stream.format.records import Block, LedgerEntry, Operation
from fuse_stream.objects.blocks import store_blocks
from fuse_stream.objects.origins import StoreWithOrigins
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.recovery.rebuild_checkpoint import rebuild_checkpoint
from fuse_stream.recovery.rewind import rewind_tables
from fuse_stream.recovery.target import Goal
from fuse_stream.refs.clone import clone
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import AT_ANY_CALL, Crash, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.conftest import SCHEMA
from tests.recovery.checkpoints import offsets_text, put
from tests.recovery.histories import keys, raise_floor, rewind, rows
from tests.recovery.streams import CheckpointFiles

STEPS = 60
HAS_EXPIRED = 3
"""Versions expire in the courses whose seed modulo eleven is this."""
LAST = 10_000
"""More rows than a course reads."""
SELECTIONS: tuple[Callable[[int], bool], ...] = (
    lambda key: True,
    lambda key: key % 4 == 0,
    lambda key: key // 6 % 2 == 1,
)
"""The rows that each table selects of the source: some batches are empty for some tables."""
TOLD = (
    StreamIdentityError,
    InvalidInputError,
    NotFoundError,
    AlreadyExistsError,
    ConflictError,
    CorruptObjectError,
    SnapshotExpiredError,
)
"""Errors that an operator may get; no row is lost or doubled by them."""
FAILED = (StorageError, CommitStateUnknownError, Crash)


@dataclass
class World:
    """Tables, and the checkpoints of the queries that write them."""

    seed: int
    losses: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.clock = ManualClock(seed=self.seed)
        count = self.chance.randint(1, len(SELECTIONS))
        self.selections = self.chance.sample(SELECTIONS, count)
        self.stores: list[Store] = [MemoryStore(clock=self.clock) for _ in range(count)]
        for store in self.stores:
            create_table(
                store,
                first_schema(columns_of_arrow(SCHEMA)),
                clock=self.clock,
                probe_store=False,
                properties={"fuse.vacuum.age": "1s"},
            )
        if self.seed % 11 == HAS_EXPIRED:
            for number in self.chance.sample(range(count), self.chance.randint(0, count)):
                raise_floor(self.table(number), 1)
        self.tags = 0
        self.places: list[Store] = []
        """Tables of which clones were made."""
        self.retained = self.chance.choice((2, 5, 100))
        """Batches whose offsets Spark keeps."""
        first = MemoryStore()
        put(first, {"metadata": json.dumps({"id": new_query_id(self.clock)})})
        self.drivers = [Driver(world=self, checkpoint=first)]

    def table(self, number: int, store: Store | None = None) -> Table:
        return open_table(store or self.stores[number], clock=self.clock, probe_store=False)

    def say(self, what: str) -> None:
        self.trace.append(what)

    def lose(self, what: str) -> None:
        self.say(f"LOST: {what}")
        self.losses.append(what)

    def check(self) -> None:
        """Compare every table with the batches that its ledger names."""
        for number, selects in enumerate(self.selections):
            table = self.table(number)
            entry = last_entry(table)
            end = 0
            if entry is not None:
                texts = [item.text for item in entry.offsets if item.batch_id == entry.batch_id]
                end = end_in(texts[0] or "")
            expected = [key for key in range(end) if selects(key)]
            try:
                found = keys(table.to_arrow())
            except FuseError as error:
                self.lose(f"table {number} cannot be read: {error}")
                continue
            if found != expected:
                lost = sorted((Counter(expected) - Counter(found)).elements())
                doubled = sorted((Counter(found) - Counter(expected)).elements())
                self.lose(f"table {number} lacks {lost}, and has {doubled} too often")


def last_entry(table: Table) -> LedgerEntry | None:
    """Return the entry of the last batch in a table's content, even if it has left the ledger."""
    found = table.head()
    for _ in range(found.version + 1):
        if (entry := found.ledger.entries.get(("default", ""))) is not None:
            return entry
        source = found.target if found.operation is Operation.REWIND else found.parent
        if source is None:
            break
        found = table.metadata.load_snapshot(source.branch_id, source.version).snapshot
    return None


def end_in(text: str) -> int:
    """Return the position where a batch ends, from its `offsets` file."""
    return int(json.loads(text.splitlines()[2])["t"]["0"])


@dataclass
class Driver:
    """A process that runs a query on a checkpoint; it may be killed between any two calls."""

    world: World
    checkpoint: Store
    tables: list[Table] | None = None
    adopt: str | None = None

    def kill(self) -> None:
        self.tables = None

    def start(self) -> list[Table]:
        world = self.world
        if self.tables is None:
            self.tables = []
            for number, store in enumerate(world.stores):
                at_call = world.chance.randint(1, 30) if world.chance.random() < 0.15 else 10**9
                fault = world.chance.choice(AT_ANY_CALL)
                faulty = FaultyStore(store, at_call=at_call, fault=fault)
                self.tables.append(world.table(number, faulty))
        return self.tables

    def run_batch(self, rows_most: int = 4, crash: float = 0.1) -> None:
        """Run the planned batch that has not ended, or plan and run the next one."""
        world = self.world
        found = load_checkpoint(self.checkpoint)
        ended = found.commits[-1] if found.commits else -1
        batch = found.offsets[-1] if found.offsets and found.offsets[-1] > ended else ended + 1
        first = self._end_of(batch - 1)
        if batch not in found.offsets:
            end = first + world.chance.randint(1, rows_most)
            text = offsets_text({"t": {"0": end}})
            if world.chance.random() < 0.5:  # Spark notes when it planned a batch
                text = text.replace("1795287056140", str(world.chance.randrange(10**12, 10**13)))
            put(self.checkpoint, {f"offsets/{batch}": text})
        end = self._end_of(batch)
        tables = self.start()
        for number, selects in enumerate(world.selections):
            if world.chance.random() < crash:
                raise Crash
            arriving = [key for key in range(first, end) if selects(key)]
            self._sink(tables[number], batch, arriving)
        if world.chance.random() < crash:
            raise Crash
        put(self.checkpoint, {f"commits/{batch}": 'v1\n{"nextBatchWatermarkMs":0}'})
        for old in found.offsets:
            if old < batch - world.retained:
                self.checkpoint.delete(f"offsets/{old}")
                self.checkpoint.delete(f"commits/{old}")

    def _end_of(self, batch: int) -> int:
        return 0 if batch < 0 else end_in(load_offsets(self.checkpoint, batch))

    def _sink(self, table: Table, number: int, arriving: list[int]) -> None:
        """Commit a batch to a table as a sink does."""
        files = CheckpointFiles(self.checkpoint)
        batch = Batch(
            query_id=load_checkpoint(self.checkpoint).query_id,
            batch_id=number,
            offsets=offsets_of(number, load_offsets(self.checkpoint, number)),
            adopt=self.adopt,
            checkpoint=files,
        )
        verdict, head = table.committer.examine(batch)
        if verdict is Verdict.REPLAY or not arriving:
            return
        data = rows(*arriving)
        by_tasks = self.world.chance.random() < 0.5
        blocks = tuple(self._put_by_tasks(table, head, data)) if by_tasks else ()

        def stage(on: Stored, before: Staged | None) -> Staged:
            if not by_tasks:
                return stage_rows(table.metadata, on, before, data)
            snapshot, base = on.snapshot, head.snapshot
            return stage_blocks(table.metadata, snapshot, snapshot.schema, blocks, epoch=base.epoch)

        table.committer.commit(Intent(operation=Operation.APPEND, batch=batch), stage)

    def _put_by_tasks(self, table: Table, head: Stored, data: pa.Table) -> Iterator[Block]:
        schema = head.snapshot.schema
        yield from store_blocks(
            table.metadata.store,
            [adapt(data, schema.columns, schema)],
            schema,
            (),
            target=block_target({}),
            clock=self.world.clock,
        )
        if self.world.chance.random() < 0.1:  # the tasks took long
            for _ in range(3):
                maintain(self.world)


def maintain(world: World) -> None:
    for number in range(len(world.stores)):
        world.clock.advance(10)
        table = world.table(number)
        table.compact()
        table.vacuum()


def run_course(seed: int) -> World:
    """Draw and run a course of events; return the world after it."""
    world = World(seed)
    for _ in range(STEPS):
        _step(world)
        world.check()
        if world.losses:
            return world
    _finish(world)
    return world


def _step(world: World) -> None:
    chance = world.chance
    driver = chance.choice(world.drivers)
    name = f"driver {world.drivers.index(driver)}"
    moves: list[tuple[int, Callable[[World, Driver], None]]] = [
        (70, _run),
        (6, _kill),
        (6, _copy),
        (5, _rewind),
        (3, _rebuild),
        (4, _maintain),
        (2, _forget),
    ]
    if world.seed % 5 == 2:  # a retired query ends many courses early
        moves.append((6, _give_up))
    if world.seed % 13 == 6:
        moves += [(6, _clone), (4, _lose_slot)]
    if world.seed % 11 == HAS_EXPIRED:
        moves += [(8, _expire), (8, _tag), (8, _rewind_to_tag), (6, _forget)]
    (move,) = chance.choices([move for _, move in moves], [weight for weight, _ in moves])
    what = move.__name__.strip("_")
    try:
        move(world, driver)
    except TOLD as error:
        world.say(f"{name} {what}: {type(error).__name__}: {error}")
        world.done[f"{what} {type(error).__name__}"] += 1
        driver.kill()  # Spark stops the query
        is_refused = isinstance(error, StreamIdentityError) and len(world.drivers) > 1
        if is_refused and chance.random() < 0.3:
            world.drivers.remove(driver)  # and somebody does not start it again
    except FAILED as error:
        world.say(f"{name} {what}: {error!r}")
        driver.kill()
    else:
        world.say(f"{name} {what}: done")
        world.done[what] += 1


def _run(_world: World, driver: Driver) -> None:
    driver.run_batch()


def _kill(_world: World, driver: Driver) -> None:
    driver.kill()


def _maintain(world: World, _driver: Driver) -> None:
    maintain(world)


def _forget(world: World, driver: Driver) -> None:
    """Make the entry of a table leave its ledger; only where one checkpoint alone may continue.

    The next batch counts as new, whoever brings it.
    """
    found = load_checkpoint(driver.checkpoint)
    if len(world.drivers) == 1 and found.offsets == found.commits:
        world.table(world.chance.randrange(len(world.stores))).forget("default")


def _copy(world: World, driver: Driver) -> None:
    """Copy a checkpoint by hand, and run both copies."""
    copy = MemoryStore()
    for info in driver.checkpoint.list(""):
        copy.put(info.key, driver.checkpoint.get(info.key))
    world.drivers.append(Driver(world=world, checkpoint=copy))


def _rewind(world: World, driver: Driver) -> None:
    """Rewind some tables or all, with a fork; the first call may name too few tables, or die."""
    found = load_checkpoint(driver.checkpoint)
    if not found.offsets:
        return
    _go_back(world, driver, Goal(after_batch=world.chance.choice(found.offsets)))


def _rewind_to_tag(world: World, driver: Driver) -> None:
    """Rewind some tables or all to a tag that each has."""
    if world.tags:
        goal = Goal(version=f"t{world.chance.randrange(world.tags)}")
        _go_back(world, driver, goal, retire=world.chance.choice(((), ("*",))))


def _go_back(world: World, driver: Driver, goal: Goal, retire: tuple[str, ...] = ()) -> None:
    everything = list(range(len(world.stores)))
    new = MemoryStore()
    for wanted in (world.chance.sample(everything, world.chance.randint(1, len(everything))), None):
        named = everything if wanted is None else wanted
        fault = world.chance.choice(AT_ANY_CALL)
        at_call = world.chance.randint(1, 60) if world.chance.random() < 0.3 else 10**9
        tables = [
            world.table(number, FaultyStore(world.stores[number], at_call=at_call, fault=fault))
            for number in named
        ]
        try:
            rewind_tables(
                [table.committer for table in tables],
                goal,
                checkpoints=((driver.checkpoint, new),),
                retire=retire,
            )
        except (*TOLD, *FAILED) as error:
            world.say(f"rewind of {named} to {goal.after_batch or goal.version}: {error!r}")
            world.done[f"rewind {type(error).__name__}"] += 1
        world.check()
        if world.chance.random() < 0.5:
            break
    try:
        load_checkpoint(new)
    except FuseError:
        return  # not finished: Spark does not start on it
    world.drivers.append(Driver(world=world, checkpoint=new))
    world.done["fork"] += 1


def _rebuild(world: World, driver: Driver) -> None:
    """Lose a checkpoint, and rebuild it from some of the tables."""
    everything = list(range(len(world.stores)))
    named = world.chance.sample(everything, world.chance.randint(1, len(everything)))
    first, *others = (world.table(number).committer for number in named)
    new = MemoryStore()
    made = rebuild_checkpoint(first, new, application="default", others=others)
    rebuilt = Driver(world=world, checkpoint=new, adopt=made.adopt)
    world.drivers[world.drivers.index(driver)] = rebuilt
    world.done["rebuilt to adopt"] += made.adopt is not None


def _give_up(world: World, driver: Driver) -> None:
    """Rewind some tables or all without a fork, and rebuild the checkpoint from some."""
    found = load_checkpoint(driver.checkpoint)
    if not found.offsets:
        return
    goal = Goal(after_batch=world.chance.choice(found.offsets))
    everything = range(len(world.stores))
    for number in world.chance.sample(everything, world.chance.randint(1, len(everything))):
        rewind(world.table(number).committer, goal, retire=["default"])
    _rebuild(world, driver)


def _clone(world: World, _driver: Driver) -> None:
    """Replace a table by its clone, and continue."""
    number = world.chance.randrange(len(world.stores))
    if last_entry(world.table(number)) is not None and world.table(number).ledger():
        origin = StoreWithOrigins(world.stores[number], ())
        old = world.table(number, origin)
        place = MemoryStore(clock=world.clock)
        clone(
            old.committer,
            Metadata(place, world.clock),
            origin_of=StoreWithOrigins(place, world.places).origin,
            probe_place=False,
        )
        world.places.append(origin)
        world.stores[number] = StoreWithOrigins(place, world.places)
        for driver in world.drivers:
            driver.kill()


def _expire(world: World, _driver: Driver) -> None:
    """Expire some versions of a table, or all but the newest."""
    table = world.table(world.chance.randrange(len(world.stores)))
    head = table.head()
    if head.floor < head.version:
        raise_floor(table, world.chance.randint(head.floor + 1, head.version))


def _tag(world: World, _driver: Driver) -> None:
    for number in range(len(world.stores)):
        world.table(number).create_tag(f"t{world.tags}")
    world.tags += 1


def _lose_slot(world: World, _driver: Driver) -> None:
    """Lose a version that is neither the newest nor the only one that names a query."""
    number = world.chance.randrange(len(world.stores))
    head = world.table(number).head()
    if head.ledger.entries and head.version - head.floor > 2:
        lost = world.chance.randrange(head.floor + 1, head.version)
        world.stores[number].delete(slot_key(MAIN, lost))


def _finish(world: World) -> None:
    """Assert that the operator can continue: with a checkpoint, or after a rewind of all tables."""
    goal = 1 + max(_ends(world))
    for driver in reversed(world.drivers):
        if _runs_to(driver, goal):
            break
    else:
        if not any(_goes_back(world, driver, goal) for driver in reversed(world.drivers)):
            world.done["stuck"] += 1
            return
        world.done["went back"] += 1
    world.check()
    if min(_ends(world)) < 0:
        world.lose("a table is left behind")
    world.done["finished"] += 1


def _ends(world: World) -> list[int]:
    ends = []
    for number in range(len(world.stores)):
        entry = last_entry(world.table(number))
        text = entry.offsets[-1].text if entry is not None else None
        ends.append(0 if text is None else end_in(text))
    return ends


def _runs_to(driver: Driver, goal: int) -> bool:
    """True if an undisturbed driver commits all rows to all tables."""
    driver.kill()
    driver.tables = [driver.world.table(number) for number in range(len(driver.world.stores))]
    try:
        while min(_ends(driver.world)) < goal:
            driver.run_batch(rows_most=12, crash=0.0)
    except TOLD:
        return False
    return True


def _goes_back(world: World, driver: Driver, goal: int) -> bool:
    for batch in reversed(load_checkpoint(driver.checkpoint).offsets):
        new = MemoryStore()
        committers = [world.table(number).committer for number in range(len(world.stores))]
        try:
            rewind_tables(
                committers, Goal(after_batch=batch), checkpoints=((driver.checkpoint, new),)
            )
        except TOLD:
            continue
        return _runs_to(Driver(world=world, checkpoint=new, adopt=driver.adopt), goal)
    return False
