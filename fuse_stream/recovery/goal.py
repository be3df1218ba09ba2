"""Where a rewind goes back to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fuse_stream.commit.ledger import DEFAULT_APPLICATION
from fuse_stream.commit.publish import Committer
from fuse_stream.errors import (
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
)
from fuse_stream.format.naming import Version
from fuse_stream.format.records import LedgerKey, Snapshot
from fuse_stream.objects.metadata import Metadata, Stored
from fuse_stream.reading.history import Timestamp, find_snapshot, is_on_line
from fuse_stream.reading.way import TAKES_CONTENT, iter_line, retained_by
from fuse_stream.recovery.naming import is_held

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Where to go back to: a version, a time, or a batch of an application."""

    version: Version | None = None
    timestamp: Timestamp | None = None
    application: str = DEFAULT_APPLICATION
    after_batch: int | None = None
    """The last snapshot before any writer of the application stood past this batch."""

    def last_of(self, key: LedgerKey) -> int:
        """Return the last batch that a writer is to keep; -1: none, or none was named."""
        if self.after_batch is None or key[0] != self.application:
            return -1
        return self.after_batch


def find_target(
    committer: Committer, head: Stored, goal: Goal, report: Progress, *, may_stay: bool = False
) -> Stored:
    """Return the snapshot to go back to.

    Args:
        committer: of the branch.
        head: its head.
        goal: what was asked for.
        report: told of the progress.
        may_stay: whether the branch may be at the batch of the goal already, because others are
            not, and are rewound with it.

    Raises:
        InvalidInputError: it is the head itself, or on another branch; or not one goal was named.
        NotFoundError: there is no such version.
        SnapshotExpiredError: it has expired.
    """
    named = (goal.version, goal.timestamp, goal.after_batch)
    if sum(value is not None for value in named) != 1:
        raise InvalidInputError(
            "name where to go back to: a version, a timestamp, or the last batch to keep "
            "(after_batch, of an app_id)",
            version=goal.version,
            timestamp=goal.timestamp,
            after_batch=goal.after_batch,
        )
    metadata = committer.metadata
    if goal.after_batch is not None:
        target = _before_batch(metadata, head, goal.application, goal.after_batch, report)
    else:
        target = find_snapshot(metadata, head, version=goal.version, timestamp=goal.timestamp)
    if target.sha256 == head.sha256 and not (may_stay and goal.after_batch is not None):
        raise InvalidInputError(
            "the table stands there already; there is nothing to undo",
            version=head.snapshot.version,
        )
    if not is_on_line(metadata, head, target.snapshot):
        if goal.after_batch is not None:
            raise came_by_publish(goal.after_batch, target)
        raise InvalidInputError(
            "this snapshot is not in the history of this branch; publish takes over another "
            "branch's content",
            version=target.snapshot.version,
            branch=committer.branch.name,
        )
    return target


def came_by_publish(
    batch: int, published: Stored, *, before: int | None = None
) -> InvalidInputError:
    """Return the error for a batch after which no version of the branch stands."""
    return InvalidInputError(
        "this batch came to the branch by a publish, together with later ones, so no version of "
        "it ends there: choose the last batch before the published ones, or one after them",
        after_batch=batch,
        found_in=f"{published.snapshot.branch_id}@{published.snapshot.version}",
        **({} if before is None else {"before": before}),
    )


def _before_batch(
    metadata: Metadata, head: Stored, application: str, batch: int, report: Progress
) -> Stored:
    """Return the newest snapshot, walking back, in which no writer stands past a batch.

    A writer whose entry left the ledger stands where it did before. So the walk goes on until every
    writer was seen that wrote later.
    """
    found: Stored | None = None
    unseen: set[LedgerKey] = set()
    names: set[str] = set()
    first: dict[LedgerKey, int] = {}  # the first batch that was seen of each writer
    for walked, stored in enumerate(iter_line(metadata, head, retained_by(head))):
        names |= {name for name, _ in stored.snapshot.ledger.entries}
        entries = {
            key: entry.batch_id
            for key, entry in stored.snapshot.ledger.entries.items()
            if key[0] == application
        }
        first |= entries
        if any(last > batch for last in entries.values()):
            found = None
        elif found is None and not _is_taken_elsewhere(metadata, head, stored.snapshot):
            found, unseen = stored, set(first) - entries.keys()
        else:
            unseen -= entries.keys()
        if found is not None and first and not unseen:
            return found
        report("looking for the batch", walked, head.snapshot.version)
    if not first:
        raise NotFoundError(
            "no writer of this application has committed here",
            app_id=application,
            known=sorted(names),
        )
    began = stored.snapshot.parent is None
    if found is None or not (began or all(first[key] <= batch + 1 for key in unseen)):
        raise SnapshotExpiredError(
            "what stood before this batch has expired",
            app_id=application,
            after_batch=batch,
            first=head.snapshot.floor,
        )
    return found


def _is_taken_elsewhere(metadata: Metadata, head: Stored, snapshot: Snapshot) -> bool:
    """Whether a snapshot of another branch holds just what an earlier one does."""
    return snapshot.operation in TAKES_CONTENT and not is_on_line(metadata, head, snapshot)


def check_stands(committer: Committer, goal: Goal, target: Stored, head: Stored) -> None:
    """See that a target is still kept, on the very head that is built on.

    Raises:
        SnapshotExpiredError: it is not.
    """
    if goal.version is not None:
        is_kept = is_held(committer, goal.version, target, head)
    else:
        is_kept = target.snapshot.version >= head.snapshot.floor
    if not is_kept:
        raise SnapshotExpiredError(
            "this version has expired; go back to a later one",
            version=target.snapshot.version,
            first=head.snapshot.floor,
        )
