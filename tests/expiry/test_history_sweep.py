"""Whatever storage call fails in a history with maintenance, a restart recovers.

As `tests/commit/test_crash_sweep.py`, with compaction, clustering, expiry and vacuum among the
appends and overwrites. After a fault the driver delivers its last batch again, or the maintenance
runs again, and the table is as without the fault: its rows, its ledger, and in the end its files.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

from fuse_stream.errors import FuseError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import Crash, Fault, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import rows_of
from tests.commit.test_crash_sweep import READS, WAYS, WAYS_OF_READS
from tests.kit.strides import every_nth, strided
from tests.protocol.worlds import AGE_S, GRACE_S, PROPERTIES, small_chunks

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


@pytest.fixture(autouse=True, scope="module")
def _small_chunks() -> Iterator[None]:
    with small_chunks():
        yield


@dataclass(frozen=True)
class Step:
    """One step of the script, and the pause before it."""

    name: str
    act: Callable[[Table], object]
    after_s: float = 1


def rows(number: int) -> pa.Table:
    keys = [number, -number, 7 * number % 5, 3 * number % 11]
    return pa.table({"k": keys, "v": [f"row {number}", None, "", "x"]}, schema=SCHEMA)


def append(number: int) -> Step:
    return Step("append", lambda table: table.append(rows(number), app_id="pipe", batch_id=number))


def overwrite(number: int) -> Step:
    return Step(
        "overwrite", lambda table: table.overwrite(rows(number), app_id="pipe", batch_id=number)
    )


COMPACT = Step("compact", lambda table: table.compact())
RECLUSTER = Step("recluster", lambda table: table.recluster())
EXPIRE = Step("expire", lambda table: table.expire(keep_last=1), GRACE_S + 1)
VACUUM = Step("vacuum", lambda table: table.vacuum(), AGE_S + 1)
SCRIPT = [
    *map(append, range(3)),
    COMPACT,
    append(3),
    append(4),
    RECLUSTER,
    overwrite(5),
    append(6),
    EXPIRE,
    VACUUM,
    append(7),
    VACUUM,
    append(8),
]


class Machine:
    """A store and the clocks of its processes, with one time."""

    def __init__(self, objects: MemoryStore, now_us: int) -> None:
        self.clock = ManualClock(wall_us=now_us)
        self.store = MemoryStore(clock=self.clock)
        self.store.objects = dict(objects.objects)

    def opened(self, store: Store | None = None, *, seed: int) -> Table:
        clock = ManualClock(seed=seed, wall_us=self.clock.wall_us)
        return open_table(store or self.store, clock=clock, probe_store=False)


@dataclass(frozen=True)
class Stage:
    """The objects before a step, after its pause."""

    store: MemoryStore
    now_us: int


def view(table: Table) -> dict[str, object]:
    """Return what a user sees, without versions: maintenance that ran twice may add a commit."""
    ledger = table.ledger().items()
    return {
        "rows": rows_of(table.to_arrow()),
        "ledger": {key: (entry.batch_id, entry.rows) for key, entry in ledger},
        "data changes": Counter(item.operation for item in table.log() if item.data_change),
    }


@pytest.fixture(scope="module")
def stages() -> list[Stage]:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    create_table(
        store,
        first_schema(columns_of_arrow(SCHEMA)),
        cluster_by=["k"],
        properties={**PROPERTIES, "fuse.block.rows": "8", "fuse.cluster.depth": "1"},
        clock=clock,
        probe_store=False,
    )
    found = []
    for seed, step in enumerate(SCRIPT, 100):
        clock.advance(step.after_s)
        copy = MemoryStore(clock=clock)
        copy.objects = dict(store.objects)
        found.append(Stage(copy, clock.wall_us))
        machine = Machine(store, clock.wall_us)
        step.act(machine.opened(seed=seed))
        store.objects = machine.store.objects
    return found


def test_every_step_of_the_script_changes_the_table(stages: list[Stage]) -> None:
    counts = []
    for step, stage in zip(SCRIPT, stages, strict=True):
        machine = Machine(stage.store, stage.now_us)
        before = set(machine.store.objects)
        step.act(machine.opened(seed=5))
        lost = {key[:3] for key in before - machine.store.objects.keys()}
        made = machine.store.objects.keys() - before
        counts.append((step.name, "_b/" in {key[:3] for key in made}, lost))

    assert {name for name, writes, _ in counts if not writes} == {"expire", "vacuum"}
    gone = set[str]().union(*(lost for name, _, lost in counts if name == "vacuum"))
    assert gone >= {"_b/", "_sg", "_ss"}


@pytest.mark.parametrize("index", range(len(SCRIPT)))
@every_nth(3)
def test_a_restart_after_any_fault_gives_the_table_of_a_run_without_faults(
    stages: list[Stage], index: int, stride: int
) -> None:
    stage, step = stages[index], SCRIPT[index]
    plain = Machine(stage.store, stage.now_us)
    counted = FaultyStore(plain.store)
    table = plain.opened(counted, seed=5)
    start = len(counted.calls)
    step.act(table)
    expected = view(table)

    faults = [
        (at_call, *way)
        for at_call, (verb, _) in enumerate(counted.calls[start:], start + 1)
        for way in (WAYS_OF_READS if verb in READS else WAYS)
    ]
    for at_call, fault, keep_failing in strided(faults, stride):
        machine = Machine(stage.store, stage.now_us)
        faulty = FaultyStore(machine.store, at_call=at_call, fault=fault, keep_failing=keep_failing)
        with contextlib.suppress(Crash, FuseError):
            step.act(machine.opened(faulty, seed=5))
        table = machine.opened(seed=7)
        step.act(table)
        where = (counted.calls[at_call - 1], fault, keep_failing)

        assert (where, view(table)) == (where, expected)
        assert (where, table.fsck().findings) == (where, ())


def test_later_vacuums_delete_what_any_fault_left(stages: list[Stage]) -> None:
    for stage, step in zip(stages, SCRIPT, strict=True):
        counted = FaultyStore(Machine(stage.store, stage.now_us).store)
        step.act(Machine(stage.store, stage.now_us).opened(counted, seed=5))
        puts = [at for at, (verb, _) in enumerate(counted.calls, 1) if verb not in READS]
        for at_call in puts[-2:]:
            machine = Machine(stage.store, stage.now_us)
            dying = FaultyStore(machine.store, at_call=at_call, fault=Fault.CRASH_BEFORE)
            with pytest.raises(Crash):
                step.act(machine.opened(dying, seed=5))
            machine.clock.advance(GRACE_S + 1)
            machine.opened(seed=7).expire(keep_last=1)
            for seed in (8, 9, 10):
                machine.clock.advance(AGE_S + 1)
                machine.opened(seed=seed).vacuum()
            report = machine.opened(seed=11).fsck()

            assert report.findings == ()
            assert report.unreachable["blocks"].object_count == 0
            assert report.unreachable["segments"].object_count == 0
