"""Find the target of a rewind: a version, a time, or a batch of an application or of queries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.ledger import DEFAULT_APPLICATION
from fuse_stream.errors import (
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
)
from fuse_stream.format.names import Version
from fuse_stream.format.records import TAKES_CONTENT, LedgerEntry, LedgerKey, Snapshot
from fuse_stream.format.times import Timestamp
from fuse_stream.objects.refs import find_branch
from fuse_stream.objects.slots import Stored
from fuse_stream.reading.history import History
from fuse_stream.refs.create import is_held

Progress = Callable[[str, int, int], None]
"""Called with the name of the current step, the steps done, and all steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The requested target: a version, a time, or a batch of an application."""

    version: Version | None = None
    timestamp: Timestamp | None = None
    application: str = DEFAULT_APPLICATION
    after_batch: int | None = None
    """Requests the last snapshot before any writer of the application committed a later batch."""
    at_head: bool = False
    """Requests the head: only the queries pass to forks."""

    def last_of(self, key: LedgerKey) -> int:
        """Return the last batch that a writer should keep; -1: none, or the goal names no batch."""
        if self.after_batch is None or key[0] != self.application:
            return -1
        return self.after_batch

    def last_held_by(self, snapshot: Snapshot) -> int:
        """Return the last batch of the application that a snapshot holds; -1: none."""
        entries = snapshot.ledger.entries.items()
        held = (entry.batch_id for key, entry in entries if key[0] == self.application)
        return max(held, default=-1)


def get_target(
    committer: Committer, history: History, goal: Goal, report: Progress, *, may_stay: bool = False
) -> Stored:
    """Return the snapshot to go back to.

    If it `may_stay`, the head may be the target: other tables or checkpoints are rewound with it.

    Raises:
        InvalidInputError: the target is the head, or on another branch; or the goal does not name
            exactly one target.
        NotFoundError: there is no such version.
        SnapshotExpiredError: the version has expired.
    """
    if goal.at_head:
        return history.head
    named = (goal.version, goal.timestamp, goal.after_batch)
    if sum(value is not None for value in named) != 1:
        raise InvalidInputError(
            "name where to go back to: a version, a timestamp, or the last batch to keep "
            "(after_batch, of an app_id)",
            version=goal.version,
            timestamp=goal.timestamp,
            after_batch=goal.after_batch,
        )
    if goal.after_batch is not None:
        target = _before_batch(history, goal.application, goal.after_batch, report)
    else:
        target = history.get_snapshot(goal.version, timestamp=goal.timestamp)
    if target.sha256 == history.head.sha256 and not (may_stay and goal.after_batch is not None):
        raise nothing_to_undo(goal, target.snapshot)
    if not history.contains(target.snapshot):
        if goal.after_batch is not None:
            raise came_by_publish(history, target, goal.after_batch, goal.last_held_by)
        raise InvalidInputError(
            "this snapshot is not in the history of this branch; to take the content of another "
            "branch, use publish",
            version=target.snapshot.version,
            branch=committer.branch.name,
        )
    return target


def nothing_to_undo(goal: Goal, head: Snapshot) -> InvalidInputError:
    """Return the error for a goal that the head has reached already."""
    last = goal.last_held_by(head)
    if goal.after_batch is None or last < 0 or goal.after_batch <= last:
        return InvalidInputError(
            "the table is at this target already; there is nothing to undo", version=head.version
        )
    return InvalidInputError(
        f"there is nothing to undo: the table's last batch is number {last}",
        version=head.version,
        last_batch=last,
    )


def came_by_publish(
    history: History, published: Stored, batch: int, last_of: Callable[[Snapshot], int]
) -> InvalidInputError:
    """Return the error for a batch that was published together with later ones.

    `published` is of the published branch, or the publish; `last_of` returns the last batch that a
    snapshot holds, or -1.
    """
    own = [
        stored.snapshot
        for stored in history.iter_sources(history.head, may_be_lost=True)
        if history.contains(stored.snapshot)
    ]
    before = max((last for one in own if (last := last_of(one)) < batch), default=-1)
    after = min((last for one in own if (last := last_of(one)) > batch), default=None)
    choices = [f"batch {before} or an earlier one"] if before >= 0 else []
    choices += [f"batch {after} or a later one"] if after is not None else []
    branch_id = published.snapshot.branch_id
    branch = find_branch(history.metadata, branch_id)
    return InvalidInputError(
        "this batch came to the branch by a publish, together with later ones, so no version of "
        f"the branch ends with it: choose {', or '.join(choices) or 'another batch'}",
        after_batch=batch,
        found_in=f"{branch.name if branch else branch_id}@{published.snapshot.version}",
        **({} if before < 0 else {"before": before}),
    )


def came_by_clone(batch: int, held: int | None) -> InvalidInputError:
    """Return the error for a batch that ended before the table was cloned."""
    return InvalidInputError(
        "this batch came with the clone, together with later ones, so no version of the clone ends "
        "with it. Choose the last batch that came with the clone, or one that the clone got later; "
        "or clone the version of the origin that ends with this batch, rewind that clone to this "
        "batch with the checkpoint of the query (checkpoints={<old>: <new>}), and run the query on "
        "the fork, not on a copy of the checkpoint. Numbered batches need only the clone",
        after_batch=batch,
        **({} if held is None else {"came_with": held}),
    )


def _before_batch(history: History, application: str, batch: int, report: Progress) -> Stored:
    """Return the newest snapshot in the head's chain of sources without a later batch of a writer.

    The rows of a writer stay when its entry leaves the ledger. So the search continues until it
    has found an entry of every writer that wrote later.
    """
    found: Stored | None = None
    unseen: set[LedgerKey] = set()
    names: set[str] = set()
    entries: dict[LedgerKey, LedgerEntry] = {}
    first: dict[LedgerKey, LedgerEntry] = {}  # the first batch that was read of each writer
    for walked, stored in enumerate(history.iter_sources(history.head, may_be_lost=True)):
        names |= {name for name, _ in stored.snapshot.ledger.entries}
        entries = {
            key: entry
            for key, entry in stored.snapshot.ledger.entries.items()
            if key[0] == application
        }
        first |= entries
        if any(entry.batch_id > batch for entry in entries.values()):
            found = None
        elif found is None and not _is_taken_elsewhere(history, stored.snapshot):
            found, unseen = stored, set(first) - entries.keys()
        else:
            unseen -= entries.keys()
        if found is not None and first and not unseen:
            return found
        report("looking for the batch", walked, history.head.snapshot.version)
    if not first:
        history.find_named(stored.snapshot.source, by=stored.snapshot)  # raises if it is lost
        raise no_writer(application, names, history.metadata.store.url)
    gone = {key: first[key] for key in unseen}
    if found is None or not _are_excluded(stored, found, gone, batch):
        if history.is_cloned(stored.snapshot):
            held = max((entry.batch_id for entry in entries.values()), default=None)
            raise came_by_clone(batch, held)
        history.find_named(stored.snapshot.source, by=stored.snapshot)  # raises if it is lost
        raise SnapshotExpiredError(
            "the versions before this batch have expired: choose a later batch; or name a version "
            "that a tag keeps, if one ends with this batch",
            app_id=application,
            after_batch=batch,
            first=history.floor,
        )
    return found


def _are_excluded(
    oldest: Stored, found: Stored, gone: Mapping[LedgerKey, LedgerEntry], batch: int
) -> bool:
    """True if a version holds no later batch than `batch` of writers that its ledger lacks.

    `gone` are the first entries that were read of these writers. `forget` drops all entries of an
    application: if the ledger has one writer of a query, it lacks no other that wrote before.
    """
    entries = found.snapshot.ledger.entries.items()
    named = {(key[0], entry.query_id) for key, entry in entries if entry.query_id is not None}
    return all(
        (key[0], first.query_id) in named or is_told(oldest, first.batch_id, batch)
        for key, first in gone.items()
    )


def no_writer(application: str, known: Collection[str], table: str) -> NotFoundError:
    """Return the error for an application without entries in the ledger of a table."""
    return NotFoundError(
        "no writer of this application has committed to this table; name one of the known "
        "applications, or, of several tables, first the one that this application writes",
        app_id=application,
        known=sorted(known),
        table=table,
    )


def _is_taken_elsewhere(history: History, snapshot: Snapshot) -> bool:
    """True if a snapshot of another branch only takes the content of an earlier snapshot."""
    return snapshot.operation in TAKES_CONTENT and not history.contains(snapshot)


def check_kept(committer: Committer, goal: Goal, target: Stored, history: History) -> None:
    """Raise SnapshotExpiredError unless the target is still kept on the head of `history`."""
    if goal.version is not None:
        is_kept = is_held(committer, goal.version, target, history)
    else:
        is_kept = target.snapshot.version >= history.floor
    if not is_kept:
        raise SnapshotExpiredError(
            "this version has expired; go back to a later one",
            version=target.snapshot.version,
            first=history.floor,
        )


def is_told(oldest: Stored, first: int | None, last: int) -> bool:
    """True if a version surely holds no batch after `last` of a query that its ledger lacks.

    A query commits its batches in order.

    Args:
        oldest: the oldest readable snapshot that the version was made from; no ledger from there
            up to the version names the query.
        first: the query's first batch that was read after the version; None: none was.
        last: a batch; -1 for none.
    """
    return oldest.snapshot.parent is None or (first is not None and first <= last + 1)


def check_told(history: History, oldest: Stored, *, first: int | None, last: int) -> None:
    """Raise unless `is_told`: the version may hold later batches of the query."""
    if is_told(oldest, first, last):
        return
    history.find_named(oldest.snapshot.source, by=oldest.snapshot)  # raises if it is lost
    if first is None:
        raise SnapshotExpiredError(
            "the table may have held batches of the query: it shows none, but its older history "
            "has expired, or is in the clone's origin. If the query has written nothing to it "
            "since this batch, leave the table out; or choose a later batch",
            after_batch=last,
            first=history.floor,
        )
    raise SnapshotExpiredError(
        "this version may hold batches of the query: the history before it has expired, or is in "
        "the clone's origin, and the first batch after it is not the query's first. Choose a later "
        "version; or the batch before that one (after_batch)",
        after_batch=last,
        first_batch=first,
        first=history.floor,
    )
