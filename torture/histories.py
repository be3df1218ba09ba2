"""Steps of a history of one table, each with what it must do to an in-memory model.

A step may be delivered again after a fault: batches have numbers, changes of rows are the same when
done twice, and what a person does is looked for before it is done again.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from fuse_stream.errors import FuseError, NotFoundError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.layout import MAIN
from fuse_stream.recovery.rewind import rewind_tables
from fuse_stream.recovery.target import Goal
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryObject, MemoryStore
from tests.oracle.reader import Row, Rows

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
WIDE = pa.schema([*SCHEMA, ("extra", pa.float64())])
START_US = 1_700_000_000_000_000
STEP_S = 15.0
"""How long one step takes: longer than the grace, so that the next expiry has something to do."""
CLOCKS = 1000
"""Seeds of clocks for each seed of a history: two processes never draw one id."""
RESTARTED, READING = CLOCKS - 1, CLOCKS - 2
PROPERTIES = {
    "fuse.grace": "10s",
    "fuse.vacuum.age": "60s",
    "fuse.block.rows": "12",
    "fuse.ledger.retain": "10d",
}


@dataclass
class Expected:
    """What a table must hold: the model."""

    rows: Rows = field(default_factory=Counter)
    ledger: dict[tuple[str, str], int] = field(default_factory=dict)
    owner: str | None = None
    """A property."""
    tags: dict[str, int] = field(default_factory=dict)
    """The version of each tag."""
    at: dict[int, tuple[Rows, dict[tuple[str, str], int]]] = field(default_factory=dict)
    """Rows and ledger by version."""

    def copy(self) -> Expected:
        return Expected(
            Counter(self.rows), dict(self.ledger), self.owner, dict(self.tags), {**self.at}
        )

    def note(self, first: int, last: int) -> None:
        """Keep what the table holds as that of the versions from `first` to `last`."""
        for version in range(first, last + 1):
            self.at[version] = Counter(self.rows), dict(self.ledger)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call of a driver or a person."""

    name: str
    act: Callable[[Table], object]
    expect: Callable[[Expected], None]
    is_done: Callable[[Table], bool] = lambda _table: False
    """Tells a person who comes back whether the step was done."""

    def deliver_again(self, table: Table) -> None:
        """Carry the step out in a new process, whether it was done before or not."""
        if not self.is_done(table):
            self.act(table)


class Site:
    """A store with its own clock, and the processes that work on its table."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        """The store's."""

    @classmethod
    def of(cls, objects: Mapping[str, MemoryObject], now_us: int = START_US) -> Site:
        """Return a store in memory with these objects."""
        store = MemoryStore(clock=(clock := ManualClock(wall_us=now_us)))
        store.objects = dict(objects)
        return cls(store, clock)

    def objects(self) -> dict[str, MemoryObject]:
        """Return all objects of a store in memory by key; none of another store."""
        return dict(self.store.objects) if isinstance(self.store, MemoryStore) else {}

    def process_clock(self, *, seed: int, ahead_us: int = 0) -> ManualClock:
        """Return the clock of a new process, ahead of the store's by so much."""
        return ManualClock(wall_us=self.clock.now_us() + ahead_us, seed=seed)

    def opened(
        self,
        store: Store | None = None,
        *,
        branch: str = MAIN,
        seed: int = 0,
        clock: ManualClock | None = None,
    ) -> Table:
        """Open the table as a new process does: with a clock of its own, of this seed."""
        own = clock or self.process_clock(seed=seed)
        return open_table(store or self.store, branch=branch, clock=own, probe_store=False)


def create(store: Store, *, seed: int, cluster: bool) -> Table:
    """Create the empty table of a history."""
    return create_table(
        store,
        first_schema(columns_of_arrow(SCHEMA)),
        cluster_by=["k"] if cluster else [],
        properties=PROPERTIES,
        clock=ManualClock(wall_us=START_US, seed=seed),
        probe_store=False,
    )


# ---- histories


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A step, and the world before it."""

    step: Step
    objects: Mapping[str, MemoryObject]
    now_us: int
    seed: int
    """Of the clock of the process that carries the step out."""
    before: Expected
    after: Expected
    head: int
    """The version before the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Steps that one driver carries out, each in a new process."""

    seed: int
    cluster: bool
    """True if the table has a cluster key."""
    steps: tuple[Step, ...]

    @property
    def names(self) -> list[str]:
        return [step.name for step in self.steps]

    def until(self, last: int) -> History:
        """Return the history up to and with the step of this number."""
        return replace(self, steps=self.steps[: last + 1])

    def play(self) -> list[Stage]:
        """Carry all steps out; return each with the world before it."""
        player = Player(self.seed, cluster=self.cluster)
        return [player.take(step) for step in self.steps]

    def end(self) -> Site:
        """Carry all steps out; return the store after the last."""
        player = Player(self.seed, cluster=self.cluster)
        for step in self.steps:
            player.take(step)
        return player.site

    def shortened(self, shows: Callable[[Stage], bool]) -> History:
        """Return a history without steps that are not needed for `shows` to be true of its last.

        A step that only others make possible goes with the first of them.
        """
        shortest = self
        for number in reversed(range(len(self.steps) - 1)):
            steps = (*shortest.steps[:number], *shortest.steps[number + 1 :])
            shorter = replace(self, steps=steps)
            try:
                shown = shows(shorter.play()[-1])
            except (FuseError, KeyError):
                continue  # a later step needs this one
            if shown:
                shortest = shorter
        return shortest


class Player:
    """Carries the steps of a history out, one after another."""

    def __init__(self, seed: int, *, cluster: bool, site: Site | None = None) -> None:
        """Create the table in the store of `site`, by default in memory."""
        self.model = Expected()
        self.model.note(0, 0)
        self.floor = self.head = 0
        """The oldest version that has not expired, and the newest."""
        self.site = Site.of({}) if site is None else site
        self._seeds = itertools.count(seed * CLOCKS)
        create(self.site.store, seed=next(self._seeds), cluster=cluster)

    def take(self, step: Step) -> Stage:
        """Carry a step out; return it with the world before it."""
        site, model = self.site, self.model
        site.clock.advance(STEP_S)
        before, objects, head = model.copy(), site.objects(), self.head
        table = site.opened(seed=(seed := next(self._seeds)))
        step.act(table)
        step.expect(model)
        self.floor, self.head = table.head().floor, table.head().version
        model.note(head + 1, self.head)
        return Stage(
            step=step,
            objects=objects,
            now_us=site.clock.now_us(),
            seed=seed,
            before=before,
            after=model.copy(),
            head=head,
        )


def drawn_history(seed: int, *, least: int, most: int) -> History:
    """Return the history of a seed, of `least` to `most` steps."""
    chance = random.Random(seed)
    drawer = Drawer(chance)
    player = Player(seed, cluster=drawer.cluster)
    steps = [drawer.rows()]
    player.take(steps[0])
    for _ in range(chance.randint(least, most) - 1):
        steps.append(drawer.step(player.model, player.floor, player.head))
        player.take(steps[-1])
    return History(seed=seed, cluster=drawer.cluster, steps=tuple(steps))


# ---- steps


def data(rows: Sequence[tuple[object, ...]], *, wide: bool = False) -> pa.Table:
    """Return rows of the history's table; `wide` rows have the column `extra`."""
    schema = WIDE if wide else SCHEMA
    columns = list(zip(*rows, strict=True))
    return pa.table(
        {name: list(columns[number]) for number, name in enumerate(schema.names)}, schema=schema
    )


def row(k: int, v: str | None, extra: float | None = None) -> Row:
    """Return a row in the form of the oracle."""
    pairs = (("k", k), ("v", v), ("extra", extra))
    return tuple((name, value) for name, value in pairs if value is not None)


def append(number: int, keys: list[int], *, wide: bool = False) -> Step:
    """Append one row a key, as batch `number` of the application `pipe`."""
    rows = [(key, None if key % 5 == 0 else f"v{key}", key / 2) for key in keys]
    table = data(rows if wide else [row[:2] for row in rows], wide=wide)

    def expect(model: Expected) -> None:
        model.rows.update(row(k, v, extra if wide else None) for k, v, extra in rows)
        model.ledger["pipe", ""] = number

    return Step(
        name=f"append {keys} as batch {number}{', with a new column' if wide else ''}",
        act=lambda t: t.append(table, app_id="pipe", batch_id=number, merge_schema=True),
        expect=expect,
    )


def overwrite(number: int, keys: list[int]) -> Step:
    """Overwrite the table by one row a key, as batch `number`."""
    table = data([(key, "new") for key in keys])

    def expect(model: Expected) -> None:
        model.rows = Counter(row(k, "new") for k in keys)
        model.ledger["pipe", ""] = number

    return Step(
        name=f"overwrite by {keys} as batch {number}",
        act=lambda t: t.overwrite(table, app_id="pipe", batch_id=number, merge_schema=True),
        expect=expect,
    )


def _takes(first: int, last: int) -> Callable[[Row], bool]:
    return lambda row: first <= int(dict(row)["k"]) <= last


def delete(first: int, last: int) -> Step:
    """Delete the rows whose key is from `first` to `last`."""
    takes = _takes(first, last)

    def expect(model: Expected) -> None:
        model.rows = Counter({row: n for row, n in model.rows.items() if not takes(row)})

    where = f"k BETWEEN {first} AND {last}"
    return Step(name=f"delete where {where}", act=lambda t: t.delete(where), expect=expect)


def update(first: int, last: int, text: str) -> Step:
    """Set the text of the rows whose key is from `first` to `last`."""
    takes = _takes(first, last)

    def expect(model: Expected) -> None:
        changed: Rows = Counter()
        for old, count in model.rows.items():
            known = dict(old)
            new = row(known["k"], text, known.get("extra")) if takes(old) else old
            changed[new] += count
        model.rows = changed

    where = f"k BETWEEN {first} AND {last}"
    return Step(
        name=f"update v to {text} where {where}",
        act=lambda t: t.update(where, {"v": text}),
        expect=expect,
    )


def upsert(number: int, keys: list[int], text: str) -> Step:
    """Upsert one row a key, as batch `number`; the first upsert sets the table's key."""
    table = data([(key, text) for key in keys])

    def expect(model: Expected) -> None:
        kept = {row: n for row, n in model.rows.items() if dict(row)["k"] not in keys}
        model.rows = Counter(kept)
        model.rows.update(row(key, text) for key in keys)
        model.ledger["pipe", ""] = number

    return Step(
        name=f"upsert {keys} as batch {number}",
        act=lambda t: t.upsert(
            table, keys=["k"], app_id="pipe", batch_id=number, merge_schema=True
        ),
        expect=expect,
    )


def alter(owner: str) -> Step:
    """Set a property."""

    def expect(model: Expected) -> None:
        model.owner = owner

    return Step(
        name=f"alter: the owner is {owner}",
        act=lambda t: t.set_properties({"owner": owner}),
        expect=expect,
    )


def tag(name: str) -> Step:
    """Tag the head."""

    def expect(model: Expected) -> None:
        model.tags[name] = max(model.at)

    def is_done(table: Table) -> bool:
        return any(found.name == name for found in table.tags())

    return Step(
        name=f"tag the head {name}",
        act=lambda t: t.create_tag(name),
        expect=expect,
        is_done=is_done,
    )


def rewind(version: int, name: str) -> Step:
    """Rewind to a version; the application's later batches come again under other numbers."""

    def expect(model: Expected) -> None:
        rows, ledger = model.at[version]
        model.rows, model.ledger = Counter(rows), dict(ledger)

    def act(table: Table) -> object:
        goal = Goal(version=version)
        return rewind_tables((table.committer,), goal, retire=["*"], message=name)

    return Step(
        name=f"rewind to {version}",
        act=act,
        expect=expect,
        is_done=lambda t: any(item.message == name for item in t.log(limit=3)),
    )


def compact() -> Step:
    return Step(name="compact", act=lambda t: t.compact(), expect=_nothing)


def recluster() -> Step:
    return Step(name="recluster", act=lambda t: t.recluster(), expect=_nothing)


def expire(keep_last: int) -> Step:
    return Step(
        name=f"expire all but {keep_last}",
        act=lambda t: t.expire(keep_last=keep_last),
        expect=_nothing,
    )


def vacuum() -> Step:
    return Step(name="vacuum", act=lambda t: t.vacuum(), expect=_nothing)


def read() -> Step:
    return Step(name="read", act=lambda t: t.to_arrow(), expect=_nothing)


def _nothing(_model: Expected) -> None:
    """The rows stay as they are."""


class Drawer:
    """Draws the steps of a history from a seed."""

    def __init__(self, chance: random.Random) -> None:
        self.keyed = chance.random() < 0.4
        """True if the rows have a key: such a table takes upserts, others appends."""
        self.cluster = chance.random() < 0.5
        self._chance = chance
        self._number = 0
        self._key = 0
        self._names = 0

    def next_keys(self) -> list[int]:
        count = self._chance.randint(1, 6)
        self._key += count
        return list(range(self._key - count, self._key))

    def batch(self) -> int:
        """Return the number of a new batch."""
        self._number += 1
        return self._number

    def rows(self) -> Step:
        """Draw a step that brings rows."""
        if self.keyed:
            known = self._chance.sample(range(self._key + 1), min(self._key, 2))
            keys = sorted({*known, *self.next_keys()})
            return upsert(self.batch(), keys, f"u{self._number}")
        if self._chance.random() < 0.12:
            return overwrite(self.batch(), self.next_keys())
        return append(self.batch(), self.next_keys(), wide=self._chance.random() < 0.15)

    def step(self, model: Expected, floor: int, head: int) -> Step:
        """Draw any step, for a table with this floor and head."""
        chance = self._chance
        self._names += 1
        first = chance.randint(0, self._key)
        last = first + chance.randint(0, 5)
        kinds: list[tuple[int, Callable[[], Step]]] = [
            (8, self.rows),
            (3, lambda: delete(first, last)),
            (2, lambda: update(first, last, f"t{self._names}")),
            (1, lambda: alter(f"owner {self._names}")),
            (2, compact),
            (1, lambda: tag(f"tag-{self._names}")),
            (2, lambda: expire(chance.randint(1, 4))),
            (3, vacuum),
            (1, read),
        ]
        if self.cluster:
            kinds.append((1, recluster))
        targets = [version for version in model.at if max(floor, 1) <= version < head]
        if targets:
            kinds.append((2, lambda: rewind(chance.choice(targets), f"rewind {self._names}")))
        weights = [weight for weight, _ in kinds]
        return chance.choices(kinds, weights)[0][1]()


def find_tag_rows(table: Table, name: str) -> pa.Table | None:
    """Return the rows of a tag; None if there is no such tag."""
    try:
        return table.to_arrow(version=name)
    except NotFoundError:
        return None
