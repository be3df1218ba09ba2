"""One branch of a table in the care of a service: look, decide, do, note, one step at a time.

Rule: nothing that goes wrong here reaches anybody but the log. It is tried again later.

The service's loop: it looks after the branches that it watches, and those that it is told of.

Rules:
- One at a time: so it is never two at once for a table, and never more than one core.
- What is told is a hint: one that is lost is made up for by the next commit.
- It ends at any point by `Stop`, which whoever ends the process raises: a commit has landed or not.
"""

from __future__ import annotations

import dataclasses
import logging
import queue
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from fuse_stream.clock import SYSTEM_CLOCK, Clock
from fuse_stream.errors import FuseError
from fuse_stream.format.records import Snapshot
from fuse_stream.optimize.claim import BranchClaim
from fuse_stream.optimize.compact import CompactionResult
from fuse_stream.optimize.policy import (
    NO_FAILURES,
    Decision,
    Failures,
    Step,
    decide,
    past_after,
    past_at,
)
from fuse_stream.storage.secrets import redact
from fuse_stream.table.handle import Table, open_at
from fuse_stream.table.location import TableLocation

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What came of a step."""

    changed: bool
    """Whether it found something to do."""
    again: bool = False
    """Whether the same step may find more at once."""
    facts: Mapping[str, object] = dataclasses.field(default_factory=dict)
    """For the log."""


MOST_STEPS = 100
"""Of one branch in a row, before the service looks after the others."""

StepFunction = Callable[[Table], StepResult]


COMPACTED_BLOCKS = 500
"""The most of one run, so that none holds up the others for long."""


def _compact(table: Table) -> StepResult:
    result = table.compact(COMPACTED_BLOCKS, tiered=True)
    changed = result.snapshot is not None
    return StepResult(changed=changed, again=changed, facts=_sizes(result))


def _recluster(table: Table) -> StepResult:
    result = table.recluster(COMPACTED_BLOCKS)
    # Small blocks that a stream brings meanwhile overlap all others: they wait until there is a
    # block's worth of them, else big blocks would be sorted anew for each.
    is_bounded = 2 * result.blocks_before >= COMPACTED_BLOCKS
    return StepResult(changed=result.snapshot is not None, again=is_bounded, facts=_sizes(result))


def _sizes(result: CompactionResult) -> dict[str, object]:
    names = ("blocks_before", "blocks_after", "bytes_before", "bytes_after", "row_count")
    return {name: getattr(result, name) for name in names}


def _expire(table: Table) -> StepResult:
    expiry = table.expire()
    facts = {"expired_count": expiry.expired_count, "floor": expiry.floor}
    return StepResult(changed=expiry.snapshot is not None, facts=facts)


def _vacuum(table: Table) -> StepResult:
    report = table.vacuum()
    facts = {"deleted_count": report.object_count, "deleted_bytes": report.byte_size}
    return StepResult(changed=bool(report.object_count), facts=facts)


STEP_FUNCTIONS: Mapping[Step, StepFunction] = {
    Step.COMPACT: _compact,
    Step.RECLUSTER: _recluster,
    Step.EXPIRE: _expire,
    Step.VACUUM: _vacuum,
}


class BranchWorker:
    """Looks after one branch. `owner_id` names the service in its claims."""

    def __init__(
        self,
        location: TableLocation,
        clock: Clock,
        owner_id: str,
        verbs: Mapping[Step, StepFunction] = STEP_FUNCTIONS,
    ) -> None:
        self.location = location
        self._clock = clock
        self._owner_id = owner_id
        self._verbs = verbs
        self._failures: dict[Step, Failures] = {}
        self._lost = NO_FAILURES
        """Looks that failed."""
        self._table: Table | None = None
        self._claim: BranchClaim | None = None

    def run_due(self) -> int | None:
        """Do all that is due; return when more may be, None for not before another commit.

        Times are UTC microseconds of this machine's clock.
        """
        now_us = self._clock.now_us()
        if self._lost.retry_at_us(now_us) > now_us:
            return self._lost.retry_at_us(now_us)
        try:
            next_check_us = self._run_due()
        except Exception as error:  # noqa: BLE001 - whatever it is, the next look is a new chance
            self._lost = self._failed("look", error, self._lost)
            return self._lost.retry_at_us(self._lost.last_us)
        self._lost = NO_FAILURES
        return next_check_us

    def _run_due(self) -> int | None:
        table, claim = self._opened()
        decision = self._look(table, claim)
        if decision.step is None:
            return decision.next_check_us
        table.committer.prepare()  # tells the store's time
        offset_us = table.committer.clock_offset_us
        busy_us = claim.take(self._clock.now_us() + offset_us)
        if busy_us is not None:
            return busy_us - offset_us
        try:
            with claim.renewing():
                decision = self._look(table, claim)
                for _ in range(MOST_STEPS):
                    if decision.step is None:
                        break
                    self._do(decision.step, table, claim)
                    decision = self._look(table, claim)
                else:
                    return self._clock.now_us()  # the other tables have their turn first
        finally:
            with suppress(FuseError):  # it dies by itself
                claim.release()
        return decision.next_check_us

    def _opened(self) -> tuple[Table, BranchClaim]:
        if self._table is None or self._claim is None:
            self._table = open_at(self.location)
            self._claim = BranchClaim(
                self._table.metadata, self._table.committer.branch_id, owner_id=self._owner_id
            )
        return self._table, self._claim

    def _look(self, table: Table, claim: BranchClaim) -> Decision:
        head = table.head()
        claim.past = past_at(claim.past, head)
        return decide(head, claim.past, self._failures, self._clock.now_us())

    def _do(self, step: Step, table: Table, claim: BranchClaim) -> None:
        started_s = self._clock.monotonic_s()
        try:
            done = self._verbs[step](table)
        except Exception as error:  # noqa: BLE001 - the same
            before = self._failures.get(step, NO_FAILURES)
            self._failures[step] = self._failed(step, error, before)
            return
        self._failures.pop(step, None)
        head = table.head()
        claim.past = past_after(claim.past, step, head, self._clock.now_us(), again=done.again)
        if done.changed:
            self._report(step, head, done, self._clock.monotonic_s() - started_s)

    def _report(self, step: Step, head: Snapshot, done: StepResult, seconds: float) -> None:
        facts = {
            "service": str(step),
            **self._where(),
            "version": head.version,
            **done.facts,
            "milliseconds": round(seconds * 1000, 1),
        }
        _log.info("%s", _line(facts), extra={"fuse": facts})

    def _failed(self, what: str, error: Exception, before: Failures) -> Failures:
        # The handle may be of a table that is gone, or have a broken connection.
        self._table = self._claim = None
        now_us = self._clock.now_us()
        failures = Failures(count=before.count + 1, last_us=now_us)
        facts = {
            "service": str(what),
            **self._where(),
            "error": type(error).__name__,
            "failures": failures.count,
            "retry_in_s": (failures.retry_at_us(now_us) - now_us) // 1_000_000,
        }
        text = redact(str(error), self.location.storage_options)
        _log.warning("%s: %s", _line(facts), text, extra={"fuse": facts})
        return failures

    def _where(self) -> dict[str, object]:
        return {"path": self.location.path, "branch": self.location.branch}


def _line(facts: Mapping[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in facts.items())


CHECK_EVERY_S = 5.0
"""Between two looks at a table that is watched: three small reads."""
IDLE_S = 60.0
"""After so long without work or word a service that watches nothing ends."""


MIN_PAUSE_US = 10_000
"""Between two looks at one table, whatever the last one said: a loop that never rests is none."""


class Stop(BaseException):
    """The service is to end now. No `Exception`, so that no retry survives it."""


class Worker:
    """Goes round the tables in its branch. `notify` may be called from another thread."""

    def __init__(
        self,
        watched: Iterable[TableLocation] = (),
        *,
        clock: Clock = SYSTEM_CLOCK,
        idle_s: float = IDLE_S,
    ) -> None:
        self._clock = clock
        self._idle_us = round(idle_s * 1_000_000)
        self._owner_id = clock.new_id()
        self._told: queue.SimpleQueue[TableLocation] = queue.SimpleQueue()
        self._watched = tuple(watched)
        self._workers: dict[tuple[str, str], BranchWorker] = {}
        self._due_us: dict[tuple[str, str], int] = {}

    def notify(self, location: TableLocation) -> None:
        """Say that there was a commit."""
        self._told.put(location)

    def run(self) -> None:
        """Go round until nobody has had a word for a while; for ever if something is watched."""
        for location in self._watched:
            self._look(location)
        last_us = self._clock.now_us()
        while self._watched or self._clock.now_us() < last_us + self._idle_us:
            if self._wait(last_us):
                last_us = self._clock.now_us()
            for name, due_us in tuple(self._due_us.items()):
                if due_us <= self._clock.now_us():
                    self._look(self._workers[name].location)
                    last_us = self._clock.now_us()

    def _wait(self, last_us: int) -> bool:
        """Wait until something is due, and return whether something was told meanwhile."""
        next_us = min(self._due_us.values(), default=last_us + self._idle_us)
        if not self._watched:
            next_us = min(next_us, last_us + self._idle_us)
        seconds = max(0.0, (next_us - self._clock.now_us()) / 1_000_000)
        locations = {}
        try:
            location = self._told.get(timeout=seconds)
            while True:
                locations[location.name] = location
                location = self._told.get_nowait()
        except queue.Empty:
            pass
        for location in locations.values():
            self._look(location)
        return bool(locations)

    def _look(self, location: TableLocation) -> None:
        branch = self._workers.get(location.name)
        if branch is None or branch.location != location:
            branch = self._workers[location.name] = BranchWorker(
                location, self._clock, self._owner_id
            )
        next_check_us = branch.run_due()
        # A service waits most of its life: what its work took would lie idle all that time.
        pa.default_memory_pool().release_unused()
        if location in self._watched:
            often_us = self._clock.now_us() + round(CHECK_EVERY_S * 1_000_000)
            next_check_us = often_us if next_check_us is None else min(next_check_us, often_us)
        if next_check_us is None:
            self._due_us.pop(location.name, None)
        else:
            self._due_us[location.name] = max(next_check_us, self._clock.now_us() + MIN_PAUSE_US)
