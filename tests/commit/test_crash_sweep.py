"""Whatever storage call fails, and however: after a restart the table is as without the fault.

A script of commits runs over a store in memory whose calls are numbered. Each run meets one fault
in one step, at most once or from then on. Then a new process opens the table, the driver delivers
its last batch again and goes on; what was altered by hand is looked for before it is done again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
import pytest

from fuse_stream.errors import FuseError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.records import Snapshot
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import AT_ANY_CALL, Crash, Fault, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import (
    ModelTable,
    Row,
    Rows,
    assert_sound,
    rows_of,
)

PLAIN = pa.schema([("k", pa.int64()), ("v", pa.string())])
WIDER = pa.schema([("k", pa.int64()), ("v", pa.string()), ("extra", pa.float64())])
FIRST = 29
"""Batches before the sweep, half of them overwritten: two more make a roll-up, three the hint."""
HALF = FIRST // 2
READS = {"get", "open_input", "list"}
WAYS = [(fault, False) for fault in AT_ANY_CALL] + [(Fault.FAILURE, True), (Fault.LOST_REPLY, True)]

WAYS_OF_READS = [way for way in WAYS if way[0] in {Fault.CRASH_BEFORE, Fault.FAILURE}]
"""A read that happened and was not heard of is one that did not happen."""


@dataclass(frozen=True)
class Step:
    """One call of the driver, and how a person would see that it was done."""

    act: Callable[[Table], object]
    model: Callable[[ModelTable], object]
    is_done: Callable[[Snapshot], bool] | None = None
    """None: under its batch id a second delivery is safe."""


def rows(number: int, *, wide: bool = False) -> pa.Table:
    columns = {"k": [number, -number], "v": [f"row {number}", None], "extra": [0.5, number / 3]}
    schema = WIDER if wide else PLAIN
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def as_rows(number: int, *, wide: bool = False) -> list[Row]:
    return list(rows_of(rows(number, wide=wide)).elements())


def append(number: int, *, app: str = "pipe") -> Step:
    return Step(
        lambda table: table.append(rows(number), app_id=app, batch_id=number, message=f"{number}"),
        lambda model: model.write("append", as_rows(number), batch=(app, "", number)),
    )


def append_wide(number: int) -> Step:
    return Step(
        lambda table: table.append(
            rows(number, wide=True), app_id="pipe", batch_id=number, merge_schema=True
        ),
        lambda model: model.write("append", as_rows(number, wide=True), batch=("pipe", "", number)),
    )


def overwrite(number: int, *, wide: bool = True) -> Step:
    return Step(
        lambda table: table.overwrite(rows(number, wide=wide), app_id="pipe", batch_id=number),
        lambda model: model.write(
            "overwrite", as_rows(number, wide=wide), batch=("pipe", "", number)
        ),
    )


def before(number: int) -> Step:
    return overwrite(number, wide=False) if number == HALF else append(number)


def set_properties() -> Step:
    return Step(
        lambda table: table.set_properties({"owner": "me"}),
        lambda model: model.set_properties({"owner": "me"}),
        lambda head: head.properties.get("owner") == "me",
    )


def forget(app: str) -> Step:
    return Step(
        lambda table: table.forget(app),
        lambda model: model.forget(app),
        lambda head: (app, "") not in head.ledger.entries,
    )


def append_all(number: int, *, app: str = "pipe") -> Step:
    """Append with the wide schema that stands by then."""
    return Step(
        lambda table: table.append(rows(number, wide=True), app_id=app, batch_id=number),
        lambda model: model.write("append", as_rows(number, wide=True), batch=(app, "", number)),
    )


SCRIPT = [
    append(FIRST),
    append(FIRST + 1),
    append(FIRST + 2),
    append(FIRST + 3),
    append_wide(FIRST + 4),
    set_properties(),
    append_all(3, app="side"),
    overwrite(FIRST + 5),
    forget("side"),
    append_all(FIRST + 6),
]


def copy_of(store: MemoryStore) -> MemoryStore:
    copy = MemoryStore(clock=store.clock)
    copy.objects = dict(store.objects)
    return copy


def opened(store: Store, clock: ManualClock) -> Table:
    return open_table(store, clock=clock, probe_store=False)


def view(store: MemoryStore) -> dict[str, object]:
    """Return what a user sees of the table, but for ids and times."""
    table = opened(store, ManualClock(seed=99))
    head = table.head()
    newest = list(table.log(limit=4))
    return {
        "rows": rows_of(table.to_arrow()),
        "log": [(item.version, item.operation, item.message) for item in newest],
        "ledger": {
            key: (entry.batch_id, entry.rows, entry.version)
            for key, entry in table.ledger().items()
        },
        "properties": dict(head.properties),
        "columns": head.schema,
        "blocks": sum(ref.block_count for ref in head.segments),
        "data changes": [item.data_change for item in newest],
    }


@cache
def all_stages() -> list[MemoryStore]:
    """Return the store before each step of the script, and after the last."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    table = create_table(
        store,
        first_schema(columns_of_arrow(PLAIN)),
        cluster_by=["k"],
        clock=clock,
        probe_store=False,
    )
    for number in range(FIRST):
        before(number).act(table)
    found = [copy_of(store)]
    for step in SCRIPT:
        clock.advance(1)
        step.act(table)
        found.append(copy_of(store))
    return found


@pytest.fixture(scope="module")
def stages() -> list[MemoryStore]:
    return all_stages()


@pytest.fixture(scope="module")
def views(stages: list[MemoryStore]) -> list[dict[str, object]]:
    return [view(store) for store in stages]


def run(store: Store, clock: ManualClock, steps: list[Step]) -> int:
    """Carry out `steps` in one process; return how many were acknowledged before it died."""
    done = 0
    try:
        table = opened(store, clock)
        for step in steps:
            step.act(table)
            done += 1
    except (Crash, FuseError):
        pass
    return done


def restart(store: MemoryStore, steps: list[Step], done: int) -> None:
    """Carry out what is left of `steps` in a new process; the one that died may have landed."""
    table = opened(store, ManualClock(seed=7, wall_us=1_700_000_900_000_000))
    for step in steps[min(done, len(steps) - 1) :]:
        if step.is_done is None or not step.is_done(table.head()):
            step.act(table)


def test_the_script_without_a_fault_is_what_the_model_says(
    stages: list[MemoryStore], views: list[dict[str, object]]
) -> None:
    model = ModelTable()
    for number in range(FIRST):
        before(number).model(model)
    seen: list[Rows] = []
    for step in SCRIPT:
        step.model(model)
        seen.append(rows_of(opened(stages[len(seen) + 1], ManualClock()).to_arrow()))

    assert [sum(rows.values()) for rows in seen] == [
        sum(rows.values()) for rows in model.versions[-len(SCRIPT) :]
    ]
    assert seen[0] == model.versions[FIRST + 1]
    assert seen[-1] == model.rows
    log = opened(stages[-1], ManualClock()).log()
    assert [item.operation for item in reversed(list(log))] == model.operations


def test_the_script_folds_a_roll_up_and_writes_a_hint(stages: list[MemoryStore]) -> None:
    levels = [
        [ref.level for ref in opened(store, ManualClock()).segments()].count(1) for store in stages
    ]

    assert max(levels) == 1
    assert "_hint/main" in stages[-1].objects


@pytest.mark.parametrize("index", range(len(SCRIPT)))
def test_a_restart_after_any_fault_leaves_the_table_as_without_it(
    stages: list[MemoryStore], views: list[dict[str, object]], index: int
) -> None:
    assert sweep(stages, views[index + 1], index).total() > 0


def sweep(
    stages: list[MemoryStore], expected: dict[str, object], index: int
) -> Counter[tuple[str, str]]:
    """Let each call of a step meet each fault; return how many had which, by verb and fault."""
    met = Counter[tuple[str, str]]()
    # The step before runs in the same process, so that its roll-up is at hand.
    first = max(0, index - 1)
    steps = SCRIPT[first : index + 1]
    counted = FaultyStore(copy_of(stages[first]))
    shorter = FaultyStore(copy_of(stages[first]))
    run(counted, ManualClock(seed=5), steps)
    run(shorter, ManualClock(seed=5), steps[:-1])
    start = 0 if index == 0 else len(shorter.calls)

    assert start < len(counted.calls)
    for at_call in range(start + 1, len(counted.calls) + 1):
        verb = counted.calls[at_call - 1][0]
        for fault, keep_failing in WAYS_OF_READS if verb in READS else WAYS:
            store = copy_of(stages[first])
            faulty = FaultyStore(store, at_call=at_call, fault=fault, keep_failing=keep_failing)
            done = run(faulty, ManualClock(seed=5), steps)
            restart(store, steps, done)

            where = (counted.calls[at_call - 1], fault, keep_failing)
            assert (where, view(store)) == (where, expected)
            assert_sound(store, opened(store, ManualClock()), since=FIRST - 1)
            met[verb, fault.name] += faulty.fired
    return met


@pytest.mark.parametrize(("fault", "keep_failing"), WAYS)
def test_an_unfinished_create_is_finished_by_whoever_comes(
    fault: Fault, *, keep_failing: bool
) -> None:
    def create(store: Store) -> None:
        create_table(
            store,
            first_schema(columns_of_arrow(PLAIN)),
            clock=ManualClock(seed=3),
            probe_store=False,
        )

    counted = FaultyStore(MemoryStore())
    create(counted)
    for at_call in range(1, len(counted.calls) + 1):
        store = MemoryStore()
        faulty = FaultyStore(store, at_call=at_call, fault=fault, keep_failing=keep_failing)
        try:
            create(faulty)
        except (Crash, FuseError):
            if "_fuse.json" not in store.objects:
                create(store)
        table = opened(store, ManualClock(seed=4))
        append(0).act(table)

        assert rows_of(table.to_arrow()) == rows_of(rows(0))
        assert [item.operation for item in table.log()] == ["append", "create"]
        assert_sound(store, table)


def test_a_failed_create_says_what_failed() -> None:
    faulty = FaultyStore(MemoryStore(), at_call=2, fault=Fault.FAILURE)

    with pytest.raises(FuseError, match="the call failed on cue"):
        create_table(
            faulty, first_schema(columns_of_arrow(PLAIN)), clock=ManualClock(), probe_store=False
        )
