"""Where a rewind goes back to, what queries lose by it, and which consumers have read past it.

What queries wrote to a table, where its ledger alone does not say.

An entry leaves the ledger by `expire`, when its stream was idle for long, and by `forget`. Its rows
stay. So what a version holds of a query, and what a query loses by going back, is read from the
history: from the snapshots that a content was made from, one after the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.ledger import DEFAULT_APPLICATION, heirs_of
from fuse_stream.errors import InvalidInputError, NotFoundError, SnapshotExpiredError
from fuse_stream.feed.diff import TAKES_CONTENT, Retained, diff_net, iter_line, retained_by
from fuse_stream.format.names import Version
from fuse_stream.format.records import (
    Ledger,
    LedgerEntry,
    LedgerKey,
    Snapshot,
)
from fuse_stream.objects.leases import iter_leases
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.reading.history import Timestamp, find_snapshot, is_on_line
from fuse_stream.recovery.ledgers import Undone, Written
from fuse_stream.refs.create import is_held

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """What one writer committed that is no longer in the table."""

    application: str
    writer: str
    query_id: str | None
    first_batch: int
    last_batch: int
    """Batches in between may have been empty."""
    rows: int


def find_undone(metadata: Metadata, head: Stored, target: Stored) -> Undone:
    """Return what a branch with this head loses when it takes the content of `target`.

    Commits that have expired are not seen.
    """
    last: dict[Written, LedgerEntry] = {}
    first: dict[Written, int] = {}
    retained = retained_by(head)
    line = iter_line(metadata, target, retained)
    kept = next(line, None)
    for stored in iter_line(metadata, head, retained):
        while kept is not None and kept.snapshot.timestamp_us > stored.snapshot.timestamp_us:
            kept = next(line, None)
        if kept is not None and kept.sha256 == stored.sha256:
            break
        for key, entry in stored.snapshot.ledger.entries.items():
            last.setdefault((key, entry.query_id), entry)
            first[key, entry.query_id] = entry.batch_id
    return Undone(last=last, first=first)


def find_ledgers(
    metadata: Metadata, head: Stored, target: Stored, queries: Collection[str], goal: Goal
) -> tuple[Ledger, Ledger, Undone]:
    """Return the ledgers of a head and of a version, with what queries wrote that had left them.

    Args:
        metadata: of the table.
        head: of the branch.
        target: the version that it goes back to.
        queries: ids of those that go on from forks, and of those that they are forks of.
        goal: what led to the target.

    Raises:
        SnapshotExpiredError: the history that would tell what the version holds has expired.
    """
    undone = find_undone(metadata, head, target)
    now, then = head.snapshot.ledger, target.snapshot.ledger
    # An earlier rewind may have passed their place on: then only forks of them wrote since.
    family = {heir for query in queries for heir in (query, *heirs_of(now, query)) if heir}
    left = {key: entry for (key, query), entry in undone.last.items() if query in family}
    missing = left.keys() - then.entries.keys()
    is_found = not family or any(entry.query_id in family for entry in then.entries.values())
    held: dict[LedgerKey, LedgerEntry] = {}
    seen = target
    for seen in iter_line(metadata, target, retained_by(head)):
        if is_found and not missing:
            break
        for key, entry in seen.snapshot.ledger.entries.items():
            if entry.query_id in family and key not in then.entries:
                held.setdefault(key, entry)
        is_found = is_found or bool(held)
        missing -= held.keys()
    if seen.snapshot.parent is not None:
        for (key, query), first in undone.first.items():
            if key in missing and query in family:
                _check_first(target, head, first, goal.last_of(key))
    return _with(now, left), _with(then, held), undone


def _check_first(target: Stored, head: Stored, first: int, last: int) -> None:
    """Raise unless the first batch seen after a version is the one after the last it may hold."""
    if first > last + 1:
        raise SnapshotExpiredError(
            "whether this version holds batches of the query cannot be told: the history before it "
            "has expired, and the first batch seen after it is not the query's first; choose a "
            "later version",
            version=target.snapshot.version,
            first_batch=first,
            first=head.snapshot.floor,
        )


def _with(ledger: Ledger, left: Mapping[LedgerKey, LedgerEntry]) -> Ledger:
    return dataclasses.replace(ledger, entries={**left, **ledger.entries})


def dropped_by(commits: Sequence[Snapshot]) -> tuple[Dropped, ...]:
    """Return what writers lose whose commits are undone."""
    batches: dict[LedgerKey, list[LedgerEntry]] = {}
    for commit in commits:
        for key, entry in commit.ledger.entries.items():
            if entry.version == commit.version:
                batches.setdefault(key, []).append(entry)
    return tuple(
        Dropped(
            application=application,
            writer=writer,
            query_id=entries[0].query_id,
            first_batch=min(entry.batch_id for entry in entries),
            last_batch=max(entry.batch_id for entry in entries),
            rows=sum(entry.rows for entry in entries),
        )
        for (application, writer), entries in sorted(batches.items())
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedConsumer:
    """A named consumer that has read what a rewind takes out of the table, or puts back."""

    consumer: str
    version: int
    """The last that it has read."""
    is_live: bool
    """Whether its lease still lives: if not, it may have been given up."""
    deleted_rows: int
    """What it is sent to undo what it has read, at the most: equal rows on both sides are not."""
    inserted_rows: int


def find_passed(committer: Committer, head: Stored, target: Stored) -> tuple[PassedConsumer, ...]:
    """Return the consumers of the head's branch that have read past `target`, by name."""
    return tuple(_iter_passed(committer, head, target))


def _iter_passed(committer: Committer, head: Stored, target: Stored) -> Iterator[PassedConsumer]:
    metadata, line = committer.metadata, head.snapshot.branch_id
    now_us = metadata.clock.now_us() + committer.clock_offset_us  # for people to see
    for standing in iter_leases(metadata):
        lease = standing.lease
        if lease.branch_id != line or lease.version > head.snapshot.version:
            continue
        try:
            read = metadata.load_snapshot(line, lease.version).snapshot
        except (NotFoundError, SnapshotExpiredError):
            continue  # it can only start anew
        # The target may stand on another line, where numbers mean nothing here.
        if read.timestamp_us <= target.snapshot.timestamp_us:
            continue
        floor = min(head.snapshot.floor, lease.version)
        retained = Retained(branch_id=line, floor=floor)
        blocks = diff_net(metadata, read, target.snapshot, retained).blocks
        yield PassedConsumer(
            consumer=lease.consumer,
            version=lease.version,
            is_live=standing.is_live(now_us),
            deleted_rows=sum(block.row_count for block in blocks.removed),
            inserted_rows=sum(block.row_count for block in blocks.inserted),
        )
