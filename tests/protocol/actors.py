"""Actors that use one table at the same time, each as a process that may die."""

from __future__ import annotations

import random
import threading
from collections import Counter

from fuse_stream.errors import (
    CommitStateUnknownError,
    ConflictError,
    ConsumerBusyError,
    CorruptObjectError,
    FuseError,
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
    StorageError,
    StreamIdentityError,
)
from fuse_stream.feed.changes import feed_schema
from fuse_stream.feed.consumer import Consumer, open_follower
from fuse_stream.feed.follow import Follower, head_selection
from fuse_stream.feed.offsets import Batch
from fuse_stream.feed.tasks import plan_tasks, read_task
from fuse_stream.feed.views import Limits, Request
from fuse_stream.format.layout import lease_key
from fuse_stream.format.records import Snapshot
from fuse_stream.format.source_offset import RESYNC, Offset
from fuse_stream.objects.refs import MAIN_BRANCH
from fuse_stream.recovery.target import Goal
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table
from fuse_stream.testing.faults import AT_ANY_CALL, Crash, FaultyStore
from tests.protocol.witness import Witness
from tests.protocol.worlds import GRACE_S, LEASE_S
from tests.recovery.histories import keys as keys_of
from tests.recovery.histories import rewind, rows

FAULTS = (StorageError, CommitStateUnknownError)
LATE = (
    NotFoundError,
    SnapshotExpiredError,
    CorruptObjectError,
    CommitStateUnknownError,
    ConflictError,
)
"""Errors that an actor may get if one operation takes longer than the table's grace."""
FAULTY = 0.3
"""Share of the processes that get a fault."""
FIRST = 2
"""The first version of the prepared table: names and rewinds use no older one."""


class Actor:
    """Does one operation after another; after an error a new process continues."""

    legitimate: tuple[type[FuseError], ...] = ()
    """Errors that it may get at any time."""

    def __init__(self, name: str, witness: Witness, seed: int, *, times: int) -> None:
        self.name = name
        self.witness = witness
        self.world = witness.world
        self.chance = random.Random(f"{seed} {name}")
        self.times = times
        self.seed = seed
        self.done = 0
        """Number of operations without an error."""
        self.faults = 0
        self._faulty: FaultyStore | None = None
        self._at_call = 0

    def __call__(self, store: Store) -> None:
        threading.current_thread().name = self.name
        process: Store | None = None
        for _ in range(self.times):
            began_s = self.world.clock.monotonic_s()
            try:
                if process is None:
                    process = self.begin(store)
                self.act(process)
                self.done += 1
            except (FuseError, Crash) as error:
                self._say(f"{type(error).__name__}: {error}")
                if not (self.has_failed(error) or self.may_be_told(error, began_s)):
                    self.witness.lose(f"{self.name} was told {type(error).__name__}: {error}")
                process = None
            except BaseException as error:
                self.witness.lose(f"{self.name} failed with {error!r}")
                raise

    def act(self, store: Store) -> None:
        raise NotImplementedError

    def begin(self, store: Store) -> Store:
        """Start a process; return its store."""
        self._faulty = None
        self.forget()
        if self.chance.random() >= FAULTY:
            return store
        self._at_call = self.chance.randint(1, 60)
        fault = self.chance.choice(AT_ANY_CALL)
        self._faulty = FaultyStore(store, at_call=self._at_call, fault=fault)
        return self._faulty

    def forget(self) -> None:
        """Forget the state that only the dead process had."""

    def has_failed(self, error: FuseError | Crash) -> bool:
        """True if the store's fault explains an error."""
        is_met = self._faulty is not None and len(self._faulty.calls) >= self._at_call
        self.faults += is_met
        return is_met and isinstance(error, (Crash, *FAULTS))

    def may_be_told(self, error: FuseError | Crash, began_s: float) -> bool:
        """True if an error is legitimate."""
        took_s = self.world.clock.monotonic_s() - began_s
        return isinstance(error, self.legitimate) or (
            took_s >= GRACE_S / 4 and isinstance(error, LATE)
        )

    def opened(self, store: Store, branch: str = "main") -> Table:
        return self.world.opened(branch, store=store)

    def some_branch(self) -> str:
        """Return `main` most of the time, else another branch."""
        others = [name for name in self.witness.branches if name != "main"]
        return self.chance.choice(others) if others and self.chance.random() < 0.3 else "main"

    def _say(self, what: str) -> None:
        self.witness.trace.append(f"      {self.name}: {what}")


class Writer(Actor):
    """Commits batch after batch, each until it is acknowledged."""

    # A rewind or a publish sets its stream back, or retires it.
    legitimate = (StreamIdentityError,)

    def __init__(
        self, name: str, witness: Witness, seed: int, *, times: int, overwrites: float = 0.0
    ) -> None:
        super().__init__(name, witness, seed, times=times)
        self.overwrites = overwrites
        self.generation = 0
        self.batch = 0
        self.keys: tuple[int, ...] = ()
        self.table: Table | None = None
        self.is_overwrite = False

    def forget(self) -> None:
        self.table = None

    def act(self, store: Store) -> None:
        if self.table is None:
            self.table = self.opened(store)
        if not self.keys:
            self.keys = tuple(next(self.world.keys) for _ in range(3))
            self.is_overwrite = self.chance.random() < self.overwrites
        write = self.table.overwrite if self.is_overwrite else self.table.append
        try:
            snapshot = write(
                rows(*self.keys),
                app_id=f"{self.name}-{self.seed}-{self.generation}",
                batch_id=self.batch,
                message=" ".join(map(str, self.keys)),
            )
        except StreamIdentityError:
            self.generation += 1
            self.keys = ()
            raise
        self.witness.acknowledge(snapshot, f"{self.name}'s batch {self.batch}")
        brought = Counter(self.keys)
        if not any(brought <= commit.keys for commit in self.witness.history.values()):
            self.witness.lose(f"{self.name}'s batch {self.batch} is in no commit")
        self.batch += 1
        self.keys = ()


class Compactor(Actor):
    """Runs `compact`."""

    legitimate = (NotFoundError,)  # the branch was deleted

    def act(self, store: Store) -> None:
        result = self.opened(store, self.some_branch()).compact()
        self.witness.acknowledge(result.snapshot, "a compaction")


class Reclusterer(Actor):
    """Runs `recluster`."""

    legitimate = (NotFoundError,)

    def act(self, store: Store) -> None:
        self.opened(store, self.some_branch()).recluster(20)


class Expirer(Actor):
    """Runs `expire`."""

    legitimate = (NotFoundError,)

    def act(self, store: Store) -> None:
        table = self.opened(store, self.some_branch())
        expiry = table.expire(keep_last=self.chance.randint(1, 4))
        self.witness.acknowledge(expiry.snapshot, "an expiry")


class Vacuum(Actor):
    """Runs `vacuum`."""

    def act(self, store: Store) -> None:
        self.opened(store).vacuum()

    def may_be_told(self, error: FuseError | Crash, began_s: float) -> bool:
        # A process that died may have left a name for a deleted version.
        is_stopped = isinstance(error, CorruptObjectError) and bool(self.witness.unfinished)
        return is_stopped or super().may_be_told(error, began_s)


class Tagger(Actor):
    """Creates tags, and deletes some."""

    legitimate = (SnapshotExpiredError, NotFoundError)

    def act(self, store: Store) -> None:
        branch = self.some_branch()
        table = self.opened(store, branch)
        if self.witness.tags and self.chance.random() < 0.4:
            name = self.chance.choice(sorted(self.witness.tags))
            del self.witness.tags[name]
            table.delete_tag(name)
            return
        head = table.head()
        version = self.chance.randint(max(head.floor, FIRST), head.version)
        name = f"tag{next(self.world.keys)}"
        with self.witness.making(name):
            target = table.create_tag(name, version).target
        self.witness.tags[name] = target.branch_id, target.version


class Brancher(Actor):
    """Creates a branch, writes to it, publishes it to main if possible, and deletes it."""

    legitimate = (SnapshotExpiredError, NotFoundError)

    def act(self, store: Store) -> None:
        table = self.opened(store)
        head = table.head()
        from_tag = self.chance.choice(sorted(self.witness.tags)) if self.witness.tags else None
        version: int | str | None = None
        match self.chance.randrange(4):
            case 0:
                version = self.chance.randint(max(head.floor, FIRST), head.version)
            case 1:
                version = from_tag
        name = f"branch{next(self.world.keys)}"
        try:
            with self.witness.making(name):
                ref = table.create_branch(name, version)
        except InvalidInputError:  # a tag of another branch
            if version is None or isinstance(version, int):
                raise
            return
        self.witness.branches[name] = ref
        branch = self.opened(store, name)
        for number in range(self.chance.randint(0, 3)):
            key = next(self.world.keys)
            made = branch.append(rows(key), app_id=name, batch_id=number, message=str(key))
            self.witness.acknowledge(made, f"a batch of {name}")
        if self.chance.random() < 0.6:
            self._publish(table, name)
        if self.chance.random() < 0.7:
            del self.witness.branches[name]
            table.delete_branch(name)

    def _publish(self, table: Table, name: str) -> None:
        expected = table.head().version if self.chance.random() < 0.5 else None
        applications = {application for application, _ in table.ledger()}
        try:
            done = table.publish(name, expected, retire=applications, on_conflict="replan")
        except (ConflictError, InvalidInputError, StreamIdentityError) as error:
            self._say(f"no publish: {error}")  # main has new commits, or the branch has none
            return
        self.witness.acknowledge(done.snapshot, f"the publish of {name}")


class Rewinder(Actor):
    """Rewinds main."""

    legitimate = (SnapshotExpiredError, NotFoundError, InvalidInputError, StreamIdentityError)

    def act(self, store: Store) -> None:
        table = self.opened(store)
        head = table.head()
        goal: int | str = self.chance.randint(
            max(head.floor, FIRST, head.version - 5), head.version
        )
        if self.witness.tags and self.chance.random() < 0.3:
            goal = self.chance.choice(sorted(self.witness.tags))
        done = rewind(table.committer, Goal(version=goal), retire=["*"], replan=True)
        self.witness.acknowledge(done.snapshot, "a rewind")


class Reader(Actor):
    """Reads a head that it loaded before."""

    def act(self, store: Store) -> None:
        name = self.some_branch()
        table = self.opened(store, name)
        head: Snapshot = table.head()
        found = keys_of(table.to_arrow(version=head.version))
        expected = self.witness.history[head.branch_id, head.version].keys
        if Counter(found) != expected:
            self.witness.lose(f"{name}@{head.version} was read as {found}, not {expected}")

    legitimate = ()

    def may_be_told(self, error: FuseError | Crash, began_s: float) -> bool:
        took_s = self.world.clock.monotonic_s() - began_s
        is_deleted = isinstance(error, NotFoundError) and "branch" in str(error)
        return is_deleted or (took_s >= GRACE_S and isinstance(error, LATE))


class Reading(Actor):
    """Follows main; under a consumer's name if it has a lease."""

    def __init__(
        self, name: str, witness: Witness, seed: int, *, times: int, has_lease: bool
    ) -> None:
        super().__init__(name, witness, seed, times=times)
        self.request = Request(
            consumer=name if has_lease else None, limits=Limits(commits=self.chance.randint(1, 3))
        )
        self.follower: Follower | Consumer | None = None
        self.start: Offset | None = None
        self.sum: Counter[int] = Counter()
        self.held_s: float | None = None
        self.has_begun_anew = False

    def forget(self) -> None:
        self.follower = None

    def act(self, store: Store) -> None:
        began_s = self.world.clock.monotonic_s()
        if self.follower is None:
            clock = self.opened(store).metadata.clock
            columns = head_selection(store, self.request, clock=clock).schema.columns
            self.follower = open_follower(store, self.request, columns, clock=clock)
        start = self.start or self.follower.first_offset()
        end = self.follower.next_offset(start, is_limited=True)
        # A follower that was too slow to get a lease gets an error at its next batch.
        self.held_s = began_s if lease_key(self.name) in self.world.store.objects else None
        if end == start:
            return
        total = self.sum.copy()
        batch = self.follower.read_between(start, end)
        for key, change in _delivered(store, batch):
            total[key] += 1 if change == "insert" else -1
        self.start, self.sum = end, +total
        if min(total.values(), default=0) < 0:
            self.witness.lose(f"{self.name} was told to delete what it never got: {total}")
        if end.index in {0, RESYNC}:
            expected = self.witness.commit(MAIN_BRANCH, end.version).keys
            if self.sum != expected:
                self.witness.lose(
                    f"the feed of {self.name} to version {end.version} lacks "
                    f"{sorted(expected - self.sum)}, has too many {sorted(self.sum - expected)}"
                )

    def may_be_told(self, error: FuseError | Crash, began_s: float) -> bool:
        if isinstance(error, ConsumerBusyError):
            return self.has_begun_anew
        if not isinstance(error, SnapshotExpiredError | NotFoundError | CorruptObjectError):
            return False
        now_s = self.world.clock.monotonic_s()
        held_s, start = self.held_s, self.start
        is_slow = now_s - began_s >= GRACE_S
        self.start, self.sum, self.held_s = None, Counter(), None
        self.has_begun_anew = True
        if self.request.consumer is not None and held_s is not None:
            return now_s - held_s >= LEASE_S * 3 / 4
        floor = self.witness.floor(MAIN_BRANCH)
        return is_slow or (start is not None and floor > start.version)


def _delivered(store: Store, batch: Batch) -> list[tuple[int, str]]:
    schema = feed_schema(batch.selection.schema)
    return [
        (row["k"], row["_change_type"])
        for task in plan_tasks(batch)
        for part in read_task(store, task, schema)
        for row in part.to_pylist()
    ]


def everybody(witness: Witness, seed: int) -> list[Actor]:
    """Return the actors of one round."""
    chance = random.Random(f"{seed} cast")
    cast: list[Actor] = [
        Writer("writer", witness, seed, times=8),
        Writer("other writer", witness, seed, times=6, overwrites=0.4),
        Compactor("compactor", witness, seed, times=4),
        Reclusterer("reclusterer", witness, seed, times=3),
        Expirer("expirer", witness, seed, times=6),
        Expirer("other expirer", witness, seed, times=3),
        Vacuum("vacuum", witness, seed, times=6),
        Tagger("tagger", witness, seed, times=4),
        Brancher("brancher", witness, seed, times=3),
        Rewinder("rewinder", witness, seed, times=1),
        Reading(f"consumer-{seed}", witness, seed, times=8, has_lease=True),
        Reading("follower", witness, seed, times=8, has_lease=False),
        Reader("reader", witness, seed, times=4),
    ]
    if chance.random() < 0.3:
        cast.append(Vacuum("other vacuum", witness, seed, times=2))
    return cast
