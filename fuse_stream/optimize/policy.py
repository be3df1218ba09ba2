"""Decide the next step of an optimizer for a branch, from its head, its past and the time. Pure.

Rules:
- A decision reads only the head, so a check costs no more than finding the head.
- A step that found nothing to do is not run again before more blocks have gathered: blocks that
  cannot be packed (each alone between perfect ones) do not keep an optimizer busy.
- Indexes are refreshed after other steps, where there are other large blocks than before.
- Hidden rows make a compaction due where it certainly finds a block to remove them from.
- Versions expire only if the table has the property `fuse.retain`.
- After a failure the step waits, twice as long after each failure in a row. All steps wait in quiet
  hours.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from fuse_stream.format.properties import (
    DELETES_AGE,
    DELETES_ROWS,
    OPTIMIZE_BLOCKS,
    RETAIN,
    VACUUM_AGE,
    BlockTarget,
    QuietHours,
    block_target,
    count_property,
    duration_property_us,
    grace_us,
    optimize_quiet,
    percent_property,
)
from fuse_stream.format.records import Snapshot, Summary
from fuse_stream.format.refs import IndexedPast, Past
from fuse_stream.format.sides import row_lists

FIRST_RETRY_US = 10_000_000
LONGEST_RETRY_US = 30 * 60_000_000
"""The wait after failures in a row is doubled each time, up to this."""

EXPIRES_PER_RETAIN = 10
"""Expires in the time of `fuse.retain`: versions are kept at most a tenth longer than that."""
VACUUMS_PER_AGE = 2
"""Vacuums in the time of `fuse.vacuum.age`: each deletes what was garbage at the one before."""

INDEX_EVERY_US = 15 * 60_000_000
"""How often a writer starts an optimizer for indexes alone, which may find nothing to do."""


class Step(StrEnum):
    """A kind of work that an optimizer does for a branch."""

    EXPIRE = "expire"
    VACUUM = "vacuum"
    COMPACT = "compact"
    RECLUSTER = "recluster"
    INDEX = "index"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The properties of a table that set the work of an optimizer."""

    target: BlockTarget
    blocks: int
    """The number of imperfect blocks that makes a compaction due."""
    hidden_percent: int
    """The share of hidden rows that makes one due."""
    hidden_age_us: int
    """The age of hidden rows that makes one due."""
    quiet: QuietHours | None
    expire_every_us: int | None
    """None, as below: the table has no `fuse.retain`, so nothing expires."""
    vacuum_every_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """The number of latest runs that failed, and the time of the last failure."""

    count: int = 0
    last_us: int = 0

    def retry_at_us(self, now_us: int) -> int:
        """Return when to try again."""
        wait_us = min(FIRST_RETRY_US * 2 ** min(self.count - 1, 20), LONGEST_RETRY_US)
        # If the clock was set back since the failure, do not wait for it.
        return self.last_us + wait_us if self.count and self.last_us <= now_us else now_us


NO_FAILURES = Failures()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A step that is due now; or when to check again, if no commit comes before that."""

    step: Step | None = None
    next_check_us: int | None = None


def policy_of(properties: Mapping[str, str]) -> Policy:
    """Return the policy that a table's properties set.

    Raises:
        CorruptObjectError: a property has an invalid value.
    """
    is_kept = RETAIN not in properties
    retain_us = 0 if is_kept else duration_property_us(properties, RETAIN)
    expire_us = max(retain_us // EXPIRES_PER_RETAIN, grace_us(properties))
    vacuum_us = duration_property_us(properties, VACUUM_AGE) // VACUUMS_PER_AGE
    return Policy(
        target=block_target(properties),
        blocks=count_property(properties, OPTIMIZE_BLOCKS),
        hidden_percent=percent_property(properties, DELETES_ROWS),
        hidden_age_us=duration_property_us(properties, DELETES_AGE),
        quiet=optimize_quiet(properties),
        expire_every_us=None if is_kept else expire_us,
        vacuum_every_us=None if is_kept else vacuum_us,
    )


def decide(head: Snapshot, past: Past, failures: Mapping[Step, Failures], now_us: int) -> Decision:
    """Return the step that is due for the branch of `head` at `now_us`, or when to check again.

    Expire and vacuum come first: they are seldom due, and must not wait for a stream to pause.
    A step that fails does not stop the others.
    """
    policy = policy_of(head.properties)
    quiet_us = policy.quiet.end_of(now_us) if policy.quiet else None
    if quiet_us is not None:
        return Decision(next_check_us=quiet_us)
    has_gathered = _all_imperfect(head) - past.settled_blocks >= policy.blocks
    dues = {
        Step.EXPIRE: _due_us(past.expired_us, policy.expire_every_us, now_us),
        Step.VACUUM: _due_us(past.vacuumed_us, policy.vacuum_every_us, now_us),
        Step.COMPACT: now_us if has_gathered else _first_fold_us(head, policy, now_us),
        Step.RECLUSTER: now_us if _has_grown(head, past, policy.target) else None,
        Step.INDEX: None if indexed_past(head) == past.indexed else now_us,
    }
    starts_us = {
        step: max(due_us, failures.get(step, NO_FAILURES).retry_at_us(now_us))
        for step, due_us in dues.items()
        if due_us is not None
    }
    for step, start_us in starts_us.items():
        if start_us <= now_us:
            return Decision(step=step)
    return Decision(next_check_us=min(starts_us.values(), default=None))


def should_start_optimizer(head: Snapshot, asked_us: int | None, now_us: int) -> bool:
    """True if a writer should start an optimizer; it last started one at `asked_us`.

    The optimizer may find that nothing is due: only the branch's claim records what was done.
    """
    policy = policy_of(head.properties)
    if policy.quiet and policy.quiet.end_of(now_us) is not None:
        return False
    timed = (policy.expire_every_us, policy.vacuum_every_us)
    dues = [_due_us(asked_us, every_us, now_us) for every_us in timed]
    dues.append(_first_fold_us(head, policy, now_us))
    if head.index_list is not None:
        dues.append(_due_us(asked_us, INDEX_EVERY_US, now_us))
    return (
        _all_imperfect(head) >= policy.blocks
        or _has_grown(head, Past(), policy.target)
        or any(due_us is not None and due_us <= now_us for due_us in dues)
    )


def past_at(past: Past, head: Snapshot) -> Past:
    """Return `past` adjusted to `head`: after an overwrite fewer blocks count as settled."""
    return dataclasses.replace(past, settled_blocks=min(past.settled_blocks, _all_imperfect(head)))


def past_after(past: Past, step: Step, head: Snapshot, now_us: int, *, again: bool) -> Past:
    """Return `past` after a run of `step` that ended at `head`; `again`: another may find more."""
    summary = head.summary
    match step:
        case Step.EXPIRE:
            return dataclasses.replace(past, expired_us=now_us)
        case Step.VACUUM:
            return dataclasses.replace(past, vacuumed_us=now_us)
        case Step.COMPACT:
            left = 0 if again else _all_imperfect(head)
            return dataclasses.replace(past, settled_blocks=left, indexed=None)
        case Step.INDEX:
            return dataclasses.replace(past, indexed=None if again else indexed_past(head))
        case Step.RECLUSTER if again:
            return dataclasses.replace(past, indexed=None)
        case Step.RECLUSTER:
            return dataclasses.replace(
                past,
                indexed=None,
                clustered_rows=summary.row_count,
                clustered_bytes=summary.uncompressed_byte_size,
                clustered_key=head.cluster_key,
            )


def indexed_past(head: Snapshot) -> IndexedPast | None:
    """Return what decides if the indexes of a head have to be refreshed; None if it has none."""
    if head.index_list is None:
        return None
    return IndexedPast(
        index_list=head.index_list.id,
        perfect_blocks=head.summary.perfect_block_count,
        first_segment=next((ref.id for ref in head.segments), None),
    )


def imperfect(summary: Summary) -> int:
    """Return the number of imperfect blocks."""
    return summary.block_count - summary.perfect_block_count


def _all_imperfect(head: Snapshot) -> int:
    """Return the number of imperfect blocks of the table and of its sides."""
    return sum(imperfect(held.summary) for held in row_lists(head))


def _has_grown(head: Snapshot, past: Past, target: BlockTarget) -> bool:
    """True if a block's worth of rows was added or removed since the last reclustering."""
    if not head.cluster_key:
        return False
    if past.clustered_key != head.cluster_key:
        past = Past()
    summary = head.summary
    rows = abs(summary.row_count - past.clustered_rows)
    size = abs(summary.uncompressed_byte_size - past.clustered_bytes)
    # A single block overlaps no other.
    return summary.block_count > 1 and (rows >= target.rows or size >= target.bytes)


def _first_fold_us(head: Snapshot, policy: Policy, now_us: int) -> int | None:
    """Return when hidden rows of the table or of a side are due first, see `_fold_us`."""
    dues = (_fold_us(held, policy, now_us) for held in row_lists(head))
    return min((due_us for due_us in dues if due_us is not None), default=None)


def _fold_us(head: Snapshot, policy: Policy, now_us: int) -> int | None:
    """Return when a compaction has to remove hidden rows from blocks; None if no row is hidden.

    If so large a share of all rows is hidden, at least one block has such a share: then compaction
    finds work, and leaves a smaller share.
    """
    if not head.deletion_files:
        return None
    if head.hidden_rows * 100 >= head.stored_rows * policy.hidden_percent:
        return now_us
    return min(ref.since_us for ref in head.deletion_files) + policy.hidden_age_us


def _due_us(last_us: int | None, every_us: int | None, now_us: int) -> int | None:
    if every_us is None:
        return None
    # A time in the future was recorded by a wrong clock.
    return now_us if last_us is None or last_us > now_us else last_us + every_us
