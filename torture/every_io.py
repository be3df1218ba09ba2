"""Every storage call of a history meets every fault; then a new process delivers the step again.

A history is drawn from the seed. Each call of its last steps is counted in a run without a fault.
For each call and each fault the step runs again on a copy of the store as it was. What the caller
was told is compared with what is in the store; after the restart the table must hold what the model
says, by the oracle and by the package.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
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
from torture.histories import READING, RESTARTED, STEP_S, Site, Stage, drawn_history

BEFORE = (3, 14)
"""How many steps a history has before those whose calls meet faults, at least and at most."""
SWEPT = 3
"""Steps whose calls meet faults."""
LASTING = (Fault.FAILURE, Fault.LOST_REPLY, Fault.LATE_LANDING)
"""Faults that a process may also meet in all of its later calls."""
NEVER = 1 << 30
"""Calls after which a late write lands: behind the restart."""
State = frozenset[tuple[str, MemoryObject]]
"""All objects of a store, by key."""
UNSURE = (CommitStateUnknownError, StorageError, ConflictError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a call fails."""

    fault: Fault
    lasts: bool = False
    """True if all later calls of the process fail, too."""

    def __str__(self) -> str:
        return self.fault.name.lower().replace("_", " ") + (" from then on" if self.lasts else "")


def trial(seed: int, _folder: Path) -> Counter[str]:
    """Sweep the last steps of the seed's history."""
    outcomes: Counter[str] = Counter()
    history = drawn_history(seed, least=BEFORE[0] + SWEPT, most=BEFORE[1] + SWEPT)
    stages = history.play()
    for number in range(len(stages) - SWEPT, len(stages)):
        broken = _sweep(stages[number], outcomes)
        if broken is not None:
            shorter = history.until(number).shortened(lambda last: _sweep(last) is not None)
            last = shorter.play()[-1]
            told, where = _sweep(last) or broken
            raise PromiseBrokenError(told, [*shorter.names, *where])
    return outcomes


def _sweep(stage: Stage, outcomes: Counter[str] | None = None) -> tuple[str, list[str]] | None:
    """Let each call of a step meet each fault; return the first broken promise and its fault."""
    sweep = Sweep(stage)
    for at_call, (verb, key) in enumerate(sweep.calls(), start=1):
        for way in ways_of(verb):
            try:
                outcome = sweep.meet(at_call, way)
            except BrokenError as error:
                where = f"call {at_call} of this step, {verb} {key}: {way.fault.value}"
                later = ["and so do all later calls of the process"] if way.lasts else []
                return str(error), [where, *later]
            if outcome is not None and outcomes is not None:
                outcomes[f"{way}: {outcome}"] += 1
    return None


def ways_of(verb: str) -> Iterator[Way]:
    """Yield all ways in which a call of the method `verb` can fail."""
    for fault in Fault:
        if fault.applies_to(verb):
            yield Way(fault=fault)
            if fault in LASTING and verb not in READS:
                yield Way(fault=fault, lasts=True)


class Sweep:
    """Carries one step out again and again, each time with one fault.

    Many faults leave the same objects. Each such state is read by the oracle once, and restarted
    from once: what follows from it is determined.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._judged: dict[State, tuple[bool, bool]] = {}
        """Whether a state is as before the step, and as after it."""
        self._restarted: set[State] = set()

    def calls(self) -> list[tuple[str, str]]:
        """Return the calls of the step without a fault: verb and key."""
        stage = self._stage
        site = Site.of(stage.objects, stage.now_us)
        counted = FaultyStore(site.store)
        stage.step.act(site.opened(counted, seed=stage.seed))
        return counted.calls

    def meet(self, at_call: int, way: Way) -> str | None:
        """Carry the step out with a fault, and restart; return the outcome, None if none fired.

        Raises:
            BrokenError: a promise does not hold.
        """
        stage = self._stage
        site = Site.of(stage.objects, stage.now_us)
        faulty = FaultyStore(
            site.store,
            at_call=at_call,
            fault=way.fault,
            keep_failing=way.lasts,
            land_after=NEVER if way.lasts else 1 + at_call % 5,
        )
        told = _told(stage, site, faulty)
        if not faulty.fired:
            return None
        state = frozenset(site.objects().items())
        landed = self._check_told(state, site, told)
        if faulty.has_late_writes or state not in self._restarted:
            self._restarted.add(state)
            site.clock.advance(STEP_S)
            _restart(site, stage)
            faulty.land()
            _check_after(site, stage)
        return f"{told}, {landed}"

    def _check_told(self, state: State, site: Site, told: str) -> str:
        """Check that the table is as before the step or as after it, and the caller knows."""
        if state not in self._judged:
            oracle = sound_oracle(_bytes(site))
            stage = self._stage
            self._judged[state] = is_as(oracle, stage.before), is_as(oracle, stage.after)
        is_before, is_after = self._judged[state]
        check(is_after or is_before, "6: the table is neither as before the step nor as after it")
        if is_before and is_after:
            return "rows as they were"
        if told == "acknowledged":
            check(is_after, "1: an acknowledged step is not in the table")
            return "found there"
        unsure = {error.__name__ for error in UNSURE} | {"died"}
        check(is_before or told in unsure, f"2: the caller was told {told}, and the step is there")
        return "found there" if is_after else "not there"


def _told(stage: Stage, site: Site, faulty: FaultyStore) -> str:
    """Return what the caller of a step was told."""
    try:
        stage.step.act(site.opened(faulty, seed=stage.seed))
    except Crash:
        return "died"
    except FuseError as error:
        return type(error).__name__
    except Exception as error:
        raise BrokenError(f"7: an error without a type of the package: {error!r}") from error
    return "acknowledged"


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
    return {key: item.data for key, item in site.objects().items()}


CAMPAIGN = Campaign(
    name="every-io",
    does="each storage call of a history crashes before or after, is torn, fails, loses its reply, "
    "lands late or lists stale; the step, delivered again, is in the table once",
    unit="faults",
    trial=trial,
    in_ci=5_000,
    in_night=200_000,
)
