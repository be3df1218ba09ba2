"""What an optimizer does next for a branch: a pure function of its head, its past and the time.

Rules:
- What is due follows from the head alone, so a check costs no more than finding the head.
- A step that found nothing to do is not tried again before more blocks have gathered: blocks that
  cannot be packed (each alone between perfect ones) do not keep an optimizer busy.
- History is removed only if the table's `fuse.retain` asks for it.
- After a failure it waits, longer after each in a row; in quiet hours it waits as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from fuse_stream.format.properties import (
    RETAIN,
    VACUUM_AGE,
    BlockTarget,
    QuietHours,
    block_target,
    duration_property_us,
    grace_us,
    optimize_blocks,
    optimize_quiet,
)
from fuse_stream.format.records import Snapshot, Summary
from fuse_stream.format.refs import Past

FIRST_RETRY_US = 10_000_000
LONGEST_RETRY_US = 30 * 60_000_000
"""After failures in a row: twice as long after each, up to this."""

EXPIRES_PER_RETAIN = 10
"""History is at most a tenth longer than it has to be."""
VACUUMS_PER_AGE = 2
"""A vacuum deletes what was garbage at the one before it."""


class Step(StrEnum):
    """What an optimizer can do for a branch."""

    EXPIRE = "expire"
    VACUUM = "vacuum"
    COMPACT = "compact"
    RECLUSTER = "recluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a table's properties ask of an optimizer."""

    target: BlockTarget
    blocks: int
    """Imperfect blocks that are worth a run."""
    quiet: QuietHours | None
    expire_every_us: int | None
    """None: the table does not ask for history to be removed."""
    vacuum_every_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Runs that failed in a row, up to now."""

    count: int = 0
    last_us: int = 0

    def retry_at_us(self, now_us: int) -> int:
        """Return when it is time to try again."""
        rest_us = min(FIRST_RETRY_US * 2 ** min(self.count - 1, 20), LONGEST_RETRY_US)
        # A clock that was set back must not make anybody wait for it.
        return self.last_us + rest_us if self.count and self.last_us <= now_us else now_us


NO_FAILURES = Failures()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A step that is due now; or when one may be due, if no commit comes before that."""

    step: Step | None = None
    next_check_us: int | None = None


def policy_of(properties: Mapping[str, str]) -> Policy:
    """Return the policy in force.

    Raises:
        CorruptObjectError: a property is not what its name says.
    """
    is_kept = RETAIN not in properties
    retain_us = 0 if is_kept else duration_property_us(properties, RETAIN)
    expire_us = max(retain_us // EXPIRES_PER_RETAIN, grace_us(properties))
    vacuum_us = duration_property_us(properties, VACUUM_AGE) // VACUUMS_PER_AGE
    return Policy(
        target=block_target(properties),
        blocks=optimize_blocks(properties),
        quiet=optimize_quiet(properties),
        expire_every_us=None if is_kept else expire_us,
        vacuum_every_us=None if is_kept else vacuum_us,
    )


def decide(head: Snapshot, past: Past, failures: Mapping[Step, Failures], now_us: int) -> Decision:
    """Return what is to be done for the branch of `head` at `now_us`.

    What removes garbage comes first: it is seldom due, and must not wait for a stream to pause.
    A step that fails does not keep the others.
    """
    policy = policy_of(head.properties)
    quiet_us = policy.quiet.end_of(now_us) if policy.quiet else None
    if quiet_us is not None:
        return Decision(next_check_us=quiet_us)
    has_gathered = imperfect(head.summary) - past.settled_blocks >= policy.blocks
    dues = {
        Step.EXPIRE: _due_us(past.expired_us, policy.expire_every_us, now_us),
        Step.VACUUM: _due_us(past.vacuumed_us, policy.vacuum_every_us, now_us),
        Step.COMPACT: now_us if has_gathered else None,
        Step.RECLUSTER: now_us if _has_grown(head, past, policy.target) else None,
    }
    rested = {
        step: max(due_us, failures.get(step, NO_FAILURES).retry_at_us(now_us))
        for step, due_us in dues.items()
        if due_us is not None
    }
    for step, at_us in rested.items():
        if at_us <= now_us:
            return Decision(step=step)
    return Decision(next_check_us=min(rested.values(), default=None))


def should_start_optimizer(head: Snapshot, asked_us: int | None, now_us: int) -> bool:
    """Whether a writer should start an optimizer, as it last did at `asked_us`.

    It may turn out that nothing is due: only the branch's claim records what was done before.
    """
    policy = policy_of(head.properties)
    if policy.quiet and policy.quiet.end_of(now_us) is not None:
        return False
    timed = (policy.expire_every_us, policy.vacuum_every_us)
    dues = [_due_us(asked_us, every_us, now_us) for every_us in timed]
    return (
        imperfect(head.summary) >= policy.blocks
        or _has_grown(head, Past(), policy.target)
        or any(due_us is not None and due_us <= now_us for due_us in dues)
    )


def past_at(past: Past, head: Snapshot) -> Past:
    """Return `past` after a look at `head`: an overwritten table starts from nothing again."""
    return dataclasses.replace(
        past, settled_blocks=min(past.settled_blocks, imperfect(head.summary))
    )


def past_after(past: Past, step: Step, head: Snapshot, now_us: int, *, again: bool) -> Past:
    """Return `past` after a run of `step` that left `head`; `again`: the next may find more."""
    summary = head.summary
    match step:
        case Step.EXPIRE:
            return dataclasses.replace(past, expired_us=now_us)
        case Step.VACUUM:
            return dataclasses.replace(past, vacuumed_us=now_us)
        case Step.COMPACT:
            left = 0 if again else imperfect(summary)
            return dataclasses.replace(past, settled_blocks=left)
        case Step.RECLUSTER if not again:
            return dataclasses.replace(
                past,
                clustered_rows=summary.row_count,
                clustered_bytes=summary.uncompressed_byte_size,
                clustered_key=head.cluster_key,
            )
    return past


def imperfect(summary: Summary) -> int:
    """Return how many blocks are smaller than they should be."""
    return summary.block_count - summary.perfect_block_count


def _has_grown(head: Snapshot, past: Past, target: BlockTarget) -> bool:
    """Whether rows for a whole block came or went since the last reclustering."""
    if not head.cluster_key:
        return False
    if past.clustered_key != head.cluster_key:
        past = Past()
    summary = head.summary
    rows = abs(summary.row_count - past.clustered_rows)
    size = abs(summary.uncompressed_byte_size - past.clustered_bytes)
    # One block is in order by itself.
    return summary.block_count > 1 and (rows >= target.rows or size >= target.bytes)


def _due_us(last_us: int | None, every_us: int | None, now_us: int) -> int | None:
    if every_us is None:
        return None
    # A time that lies ahead was noted by a clock that went wrong.
    return now_us if last_us is None or last_us > now_us else last_us + every_us
