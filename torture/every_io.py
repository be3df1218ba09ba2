"""Every storage call of a history meets every fault; then a new process delivers the step again.

A history is drawn from the seed. Each call of its last steps is counted in a run without a fault.
For each call and each fault the step runs again on a copy of the store as it was. What the caller
was told is compared with what is in the store; after the restart the table must hold what the model
says, by the oracle and by the package.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fuse_stream.errors import (
    CommitStateUnknownError,
    ConflictError,
    FuseError,
    StorageError,
)
from fuse_stream.storage.wrappers import READS
from fuse_stream.testing.faults import Crash, Fault, FaultyStore
from fuse_stream.testing.memory import MemoryObject
from torture.campaign import Campaign, PromiseBrokenError
from torture.checks import (
    BrokenError,
    check,
    check_history,
    check_package,
    check_tags,
    is_as,
    sound_oracle,
)
from torture.histories import CLOCKS, READING, RESTARTED, STEP_S, Drawer, Expected, Site, Step, create

BEFORE = (3, 14)
"""How many steps a history has before those whose calls meet faults, at least and at most."""
SWEPT = 3
"""Steps whose calls meet faults."""
LASTING = (Fault.FAILURE, Fault.LOST_REPLY, Fault.LATE_LANDING)
"""Faults that a process may also meet in all of its later calls."""
NEVER = 1 << 30
"""Calls after which a late write lands: behind the restart."""
UNSURE = (CommitStateUnknownError, StorageError, ConflictError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A step, and the world before it."""

    step: Step
    objects: Mapping[str, MemoryObject]
    now_us: int
    before: Expected
    after: Expected
    head: int
    """The version before the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a call fails."""

    fault: Fault
    lasts: bool = False
    """True if all later calls of the process fail, too."""

    def __str__(self) -> str:
        return self.fault.name.lower().replace("_", " ") + (" from then on" if self.lasts else "")


def drawn_history(seed: int) -> list[Stage]:
    """Return the history of a seed, step by step."""
    chance = random.Random(seed)
    drawer = Drawer(chance)
    site = Site({})
    create(site.store, seed=seed, cluster=drawer.cluster)
    model = Expected()
    model.note(0, 0)
    stages = []
    for number in range(chance.randint(*BEFORE) + SWEPT):
        site.store.clock.advance(STEP_S)
        head = site.opened().head()
        step = drawer.rows() if number == 0 else drawer.step(model, head.floor, head.version)
        before, objects = model.copy(), dict(site.store.objects)
        table = site.opened(seed=seed * CLOCKS + 1 + number)
        step.act(table)
        step.expect(model)
        model.note(head.version + 1, table.head().version)
        stages.append(
            Stage(
                step=step,
                objects=objects,
                now_us=site.store.clock.now_us(),
                before=before,
                after=model.copy(),
                head=head.version,
            )
        )
    return stages


def trial(seed: int, _folder: Path) -> Counter[str]:
    """Sweep the last steps of the seed's history."""
    outcomes: Counter[str] = Counter()
    stages = drawn_history(seed)
    for number in range(len(stages) - SWEPT, len(stages)):
        stage = stages[number]
        counted = FaultyStore(Site(stage.objects, stage.now_us).store)
        stage.step.act(Site({}, stage.now_us).opened(counted, seed=seed * CLOCKS + 1 + number))
        for at_call, (verb, key) in enumerate(counted.calls, start=1):
            for way in ways_of(verb):
                try:
                    outcome = _meet(stage, at_call, way, seed * CLOCKS + 1 + number)
                except BrokenError as error:
                    told = [f"{one.step.name}" for one in stages[: number + 1]]
                    where = f"call {at_call} of the last step, {verb} {key}: {way.fault.value}"
                    later = ["and so do all later calls"] if way.lasts else []
                    raise PromiseBrokenError(str(error), [*told, where, *later]) from error
                if outcome is not None:
                    outcomes[f"{way}: {outcome}"] += 1
    return outcomes


def ways_of(verb: str) -> Iterator[Way]:
    """Yield all ways in which a call of the method `verb` can fail."""
    for fault in Fault:
        if fault.applies_to(verb):
            yield Way(fault=fault)
            if fault in LASTING and verb not in READS:
                yield Way(fault=fault, lasts=True)


def _meet(stage: Stage, at_call: int, way: Way, seed: int) -> str | None:
    """Carry a step out with one fault, and restart; return the outcome, None if it did not fire."""
    site = Site(stage.objects, stage.now_us)
    faulty = FaultyStore(
        site.store,
        at_call=at_call,
        fault=way.fault,
        keep_failing=way.lasts,
        land_after=NEVER if way.lasts else 1 + at_call % 5,
    )
    told = _told(stage.step, site, faulty, seed)
    if not faulty.fired:
        return None
    landed = _check_told(site, stage, told)
    site.store.clock.advance(STEP_S)
    _restart(site, stage)
    faulty.land()
    _check_after(site, stage)
    return f"{told}, {landed}"


def _told(step: Step, site: Site, faulty: FaultyStore, seed: int) -> str:
    """Return what the caller of a step was told."""
    try:
        step.act(site.opened(faulty, seed=seed))
    except Crash:
        return "died"
    except FuseError as error:
        return type(error).__name__
    except Exception as error:
        raise BrokenError(f"7: an error without a type of the package: {error!r}") from error
    return "acknowledged"


def _check_told(site: Site, stage: Stage, told: str) -> str:
    """Check that the table is as before the step or as after it, and that the caller knows."""
    oracle = sound_oracle(_bytes(site))
    is_after, is_before = is_as(oracle, stage.after), is_as(oracle, stage.before)
    check(is_after or is_before, "6: the table is neither as before the step nor as after it")
    if is_before and is_after:
        return "rows as they were"
    if told == "acknowledged":
        check(is_after, "1: an acknowledged step is not in the table")
        return "found there"
    unsure = {error.__name__ for error in UNSURE} | {"died"}
    check(is_before or told in unsure, f"2: the caller was told {told}, and the step is there")
    return "found there" if is_after else "not there"


def _restart(site: Site, stage: Stage) -> None:
    try:
        stage.step.deliver_again(site.opened(seed=RESTARTED))
    except FuseError as error:
        raise BrokenError(f"2: the step cannot be delivered again: {error}") from error


def _check_after(site: Site, stage: Stage) -> None:
    """Check that the table is as the model says, after the restart."""
    oracle = sound_oracle(_bytes(site))
    check(is_as(oracle, stage.after), "2: after the restart the table is not as the model says")
    check_history(oracle, stage.before, stage.head)
    table = site.opened(seed=READING)
    check_tags(table, stage.before)
    check_package(table, oracle, max(stage.head, oracle.floor))


def _bytes(site: Site) -> dict[str, bytes]:
    return {key: item.data for key, item in site.store.objects.items()}


CAMPAIGN = Campaign(
    name="every-io",
    does="each storage call of a history crashes before or after, is torn, fails, loses its reply, "
    "lands late or lists stale; the step, delivered again, is in the table once",
    unit="faults",
    trial=trial,
    in_ci=5_000,
    in_night=200_000,
)
