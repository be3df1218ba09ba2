"""The optimizer's loop: check each branch, and run the steps that are due, one at a time.

Rules:
- It checks the branches that it watches again and again, and others when it is notified of a
  commit. A notification may be lost: the next commit makes up for it.
- One step runs at a time: never two for one table, and never on more than one core.
- A failure is logged and tried again later. It has no other effect.
- `Stop`, raised by whoever ends the process, may end it at any point: a commit has then landed or
  has not.
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
    """The result of a step."""

    changed: bool
    """True if the step found something to do."""
    again: bool = False
    """True if the same step may find more to do at once."""
    facts: Mapping[str, object] = dataclasses.field(default_factory=dict)
    """Values for the log."""


MOST_STEPS = 100
"""The most steps of one branch in a row, before the other branches are checked."""

StepFunction = Callable[[Table], StepResult]


COMPACTED_BLOCKS = 500
"""The most blocks of one run, so that no run delays the other branches for long."""


def _compact(table: Table) -> StepResult:
    result = table.compact(COMPACTED_BLOCKS, tiered=True)
    changed = result.snapshot is not None
    return StepResult(changed=changed, again=changed, facts=_sizes(result))


def _recluster(table: Table) -> StepResult:
    result = table.recluster(COMPACTED_BLOCKS)
    # Small blocks that a stream adds meanwhile overlap all others. They wait until there is a
    # block's worth of them, or big blocks would be sorted again for each.
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


INDEXED_BLOCKS = 200
"""The most blocks that one run reads for indexes."""


def _index(table: Table) -> StepResult:
    result = table.refresh_indexes(INDEXED_BLOCKS)
    facts = {"block_count": result.block_count, "skipped_count": result.skipped_count}
    return StepResult(changed=result.snapshot is not None, again=result.left_count > 0, facts=facts)


STEP_FUNCTIONS: Mapping[Step, StepFunction] = {
    Step.COMPACT: _compact,
    Step.RECLUSTER: _recluster,
    Step.INDEX: _index,
    Step.EXPIRE: _expire,
    Step.VACUUM: _vacuum,
}


class BranchWorker:
    """Runs the steps of one branch. `owner_id` names the optimizer in its claims."""

    def __init__(
        self,
        location: TableLocation,
        clock: Clock,
        owner_id: str,
        functions: Mapping[Step, StepFunction] = STEP_FUNCTIONS,
    ) -> None:
        self.location = location
        self._clock = clock
        self._owner_id = owner_id
        self._functions = functions
        self._failures: dict[Step, Failures] = {}
        self._failed_checks = NO_FAILURES
        self._table: Table | None = None
        self._claim: BranchClaim | None = None

    def run_due(self) -> int | None:
        """Run all steps that are due; return when to check again, None for after the next commit.

        Times are UTC microseconds of this machine's clock.
        """
        now_us = self._clock.now_us()
        if self._failed_checks.retry_at_us(now_us) > now_us:
            return self._failed_checks.retry_at_us(now_us)
        try:
            next_check_us = self._run_due()
        except Exception as error:  # noqa: BLE001 - any error is logged, and the check retried
            self._failed_checks = self._failed("look", error, self._failed_checks)
            return self._failed_checks.retry_at_us(self._failed_checks.last_us)
        self._failed_checks = NO_FAILURES
        return next_check_us

    def _run_due(self) -> int | None:
        table, claim = self._opened()
        decision = self._decide(table, claim)
        if decision.step is None:
            return decision.next_check_us
        table.committer.prepare()  # reads the store's time
        offset_us = table.committer.clock_offset_us
        busy_us = claim.take(self._clock.now_us() + offset_us)
        if busy_us is not None:
            return busy_us - offset_us
        try:
            with claim.renewing():
                decision = self._decide(table, claim)
                for _ in range(MOST_STEPS):
                    if decision.step is None:
                        break
                    self._run_step(decision.step, table, claim)
                    decision = self._decide(table, claim)
                else:
                    return self._clock.now_us()  # the other branches have their turn first
        finally:
            with suppress(FuseError):  # the claim lapses by itself
                claim.release()
        return decision.next_check_us

    def _opened(self) -> tuple[Table, BranchClaim]:
        if self._table is None or self._claim is None:
            self._table = open_at(self.location)
            self._claim = BranchClaim(
                self._table.metadata, self._table.committer.branch_id, owner_id=self._owner_id
            )
        return self._table, self._claim

    def _decide(self, table: Table, claim: BranchClaim) -> Decision:
        head = table.head()
        claim.past = past_at(claim.past, head)
        return decide(head, claim.past, self._failures, self._clock.now_us())

    def _run_step(self, step: Step, table: Table, claim: BranchClaim) -> None:
        started_s = self._clock.monotonic_s()
        try:
            done = self._functions[step](table)
        except Exception as error:  # noqa: BLE001 - any error is logged, and the step retried
            before = self._failures.get(step, NO_FAILURES)
            self._failures[step] = self._failed(step, error, before)
            return
        self._failures.pop(step, None)
        head = table.head()
        claim.past = past_after(claim.past, step, head, self._clock.now_us(), again=done.again)
        if done.changed:
            facts = {
                "service": str(step),
                **self._where(),
                "version": head.version,
                **done.facts,
                "milliseconds": round((self._clock.monotonic_s() - started_s) * 1000, 1),
            }
            _log.info("%s", _line(facts), extra={"fuse": facts})

    def _failed(self, what: str, error: Exception, before: Failures) -> Failures:
        # Open the table again: it may be another one now, or the connection may be broken.
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
"""The time between two checks of a watched table, which make three small reads each."""
IDLE_S = 60.0
"""After this time without work or notification an optimizer that watches no table ends."""


MIN_PAUSE_US = 10_000
"""The least time between two checks of one branch, so that the loop is never busy without work."""


class Stop(BaseException):
    """Raised to end the optimizer now. Not an `Exception`, so that no retry catches it."""


class Worker:
    """Runs the steps of many branches. `notify` may be called from another thread."""

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
        self._notified: queue.SimpleQueue[TableLocation] = queue.SimpleQueue()
        self._watched = tuple(watched)
        self._workers: dict[tuple[str, str], BranchWorker] = {}
        self._due_us: dict[tuple[str, str], int] = {}

    def notify(self, location: TableLocation) -> None:
        """Notify the worker of a commit."""
        self._notified.put(location)

    def run(self) -> None:
        """Run until idle for `idle_s`; forever if tables are watched."""
        for location in self._watched:
            self._check(location)
        last_us = self._clock.now_us()
        while self._watched or self._clock.now_us() < last_us + self._idle_us:
            if self._wait(last_us):
                last_us = self._clock.now_us()
            for name, due_us in tuple(self._due_us.items()):
                if due_us <= self._clock.now_us():
                    self._check(self._workers[name].location)
                    last_us = self._clock.now_us()

    def _wait(self, last_us: int) -> bool:
        """Wait until a check is due; check what was notified; return whether anything was."""
        next_us = min(self._due_us.values(), default=last_us + self._idle_us)
        if not self._watched:
            next_us = min(next_us, last_us + self._idle_us)
        seconds = max(0.0, (next_us - self._clock.now_us()) / 1_000_000)
        locations = {}
        try:
            location = self._notified.get(timeout=seconds)
            while True:
                locations[location.name] = location
                location = self._notified.get_nowait()
        except queue.Empty:
            pass
        for location in locations.values():
            self._check(location)
        return bool(locations)

    def _check(self, location: TableLocation) -> None:
        branch = self._workers.get(location.name)
        if branch is None or branch.location != location:
            branch = self._workers[location.name] = BranchWorker(
                location, self._clock, self._owner_id
            )
        next_check_us = branch.run_due()
        # The process is idle most of the time: give back the memory that the steps used.
        pa.default_memory_pool().release_unused()
        if location in self._watched:
            latest_us = self._clock.now_us() + round(CHECK_EVERY_S * 1_000_000)
            next_check_us = latest_us if next_check_us is None else min(next_check_us, latest_us)
        if next_check_us is None:
            self._due_us.pop(location.name, None)
        else:
            self._due_us[location.name] = max(next_check_us, self._clock.now_us() + MIN_PAUSE_US)
