"""Where a rewind goes back to: a version, a time, or a batch of an application or of queries.

Versions are looked at in the order of the history, not of the content: an earlier rewind may have
taken away what a checkpoint holds, and then brings it back.
"""

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
from fuse_stream.objects.refs import iter_branches
from fuse_stream.objects.slots import Stored
from fuse_stream.reading.history import History, Timestamp
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
    """The last snapshot before any writer of the application had committed a later batch."""

    def last_of(self, key: LedgerKey) -> int:
        """Return the last batch that a writer is to keep; -1: none, or none was named."""
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

    Args:
        committer: of the branch.
        history: its snapshots.
        goal: what was asked for.
        report: told of the progress.
        may_stay: whether the branch may be at the batch of the goal already, because others, or
            checkpoints, are not, and are rewound with it.

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
            "this snapshot is not in the history of this branch; publish takes over another "
            "branch's content",
            version=target.snapshot.version,
            branch=committer.branch.name,
        )
    return target


def nothing_to_undo(goal: Goal, head: Snapshot) -> InvalidInputError:
    """Return the error for a goal at which the table is already."""
    last = goal.last_held_by(head)
    if goal.after_batch is None or last < 0 or goal.after_batch <= last:
        return InvalidInputError(
            "the table stands there already; there is nothing to undo", version=head.version
        )
    return InvalidInputError(
        f"the table stands there already: its last batch is number {last}; there is nothing to "
        "undo",
        version=head.version,
        last_batch=last,
    )


def came_by_publish(
    history: History, published: Stored, batch: int, last_of: Callable[[Snapshot], int]
) -> InvalidInputError:
    """Return the error for a batch that is the last one of no version of the branch.

    Args:
        history: of the branch.
        published: a snapshot that a publish brought, or the publish itself.
        batch: the one that was asked for.
        last_of: returns the last batch that a snapshot holds; -1: none.
    """
    own = [
        stored.snapshot
        for stored in history.iter_sources(history.head, may_be_lost=True)
        if history.contains(stored.snapshot)
    ]
    before = max((last for one in own if (last := last_of(one)) < batch), default=-1)
    after = min((last for one in own if (last := last_of(one)) > batch), default=None)
    ways = [f"batch {before} or an earlier one"] if before >= 0 else []
    ways += [f"batch {after} or a later one"] if after is not None else []
    names = {ref.branch_id: ref.name for ref in iter_branches(history.metadata)}
    branch_id = published.snapshot.branch_id
    return InvalidInputError(
        "this batch came to the branch by a publish, together with later ones, so no version of "
        f"it ends there: choose {', or '.join(ways) or 'another one'}",
        after_batch=batch,
        found_in=f"{names.get(branch_id, branch_id)}@{published.snapshot.version}",
        **({} if before < 0 else {"before": before}),
    )


def came_by_clone(batch: int, held: int | None) -> InvalidInputError:
    """Return the error for a batch that ended before the table was cloned."""
    return InvalidInputError(
        "this batch came with the clone, together with later ones, so no version of it ends there: "
        "choose the last batch that it came with, or one after it; or clone the version of the "
        "origin that ends with this batch. Then rewind that clone to this batch with the "
        "checkpoint of the query (checkpoints={<old>: <new>}), and run the query on the fork: a "
        "copy of the checkpoint would leave out the batches in between. Numbered batches need only "
        "the clone",
        after_batch=batch,
        **({} if held is None else {"came_with": held}),
    )


def _before_batch(history: History, application: str, batch: int, report: Progress) -> Stored:
    """Return the newest snapshot, walking back, that holds no later batch of any writer.

    The rows of a writer stay when its entry leaves the ledger. So the walk continues until every
    writer was seen that wrote later.
    """
    found: Stored | None = None
    unseen: set[LedgerKey] = set()
    names: set[str] = set()
    entries: dict[LedgerKey, LedgerEntry] = {}
    first: dict[LedgerKey, LedgerEntry] = {}  # the first batch that was seen of each writer
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
        raise no_writer(application, names)
    gone = {key: first[key] for key in unseen}
    if found is None or not _are_told(stored, found, gone, batch):
        if history.is_cloned(stored.snapshot):
            held = max((entry.batch_id for entry in entries.values()), default=None)
            raise came_by_clone(batch, held)
        history.find_named(stored.snapshot.source, by=stored.snapshot)  # raises if it is lost
        raise SnapshotExpiredError(
            "what the table held before this batch has expired: choose a later batch; or name a "
            "version that a tag keeps, if one ends with this batch",
            app_id=application,
            after_batch=batch,
            first=history.floor,
        )
    return found


def _are_told(
    oldest: Stored, found: Stored, gone: Mapping[LedgerKey, LedgerEntry], batch: int
) -> bool:
    """Whether a version holds no later batch than this one of writers that its ledger lacks.

    `gone` are the first that were seen of them. `forget` drops all entries of an application, so
    one that is left tells of the other writers of its query.
    """
    entries = found.snapshot.ledger.entries.items()
    named = {(key[0], entry.query_id) for key, entry in entries if entry.query_id is not None}
    return all(
        (key[0], first.query_id) in named or is_told(oldest, first.batch_id, batch)
        for key, first in gone.items()
    )


def no_writer(application: str, known: Collection[str]) -> NotFoundError:
    """Return the error for an application that is none of those known here."""
    return NotFoundError(
        "no writer of this application has committed here",
        app_id=application,
        known=sorted(known),
    )


def _is_taken_elsewhere(history: History, snapshot: Snapshot) -> bool:
    """Whether a snapshot of another branch holds just what an earlier one does."""
    return snapshot.operation in TAKES_CONTENT and not history.contains(snapshot)


def check_kept(committer: Committer, goal: Goal, target: Stored, history: History) -> None:
    """See that a target is still kept, on the very head that is built on.

    Raises:
        SnapshotExpiredError: it is not.
    """
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
    """Whether a version whose ledger does not name a query holds none of its batches after `last`.

    The batches of a query come one after another.

    Args:
        oldest: the oldest snapshot that the version comes from, as far as they can be seen; none
            of them names the query.
        first: the query's first batch that is seen after the version; None: none is.
        last: a batch; -1 for none.
    """
    return oldest.snapshot.parent is None or (first is not None and first <= last + 1)


def check_told(history: History, oldest: Stored, *, first: int | None, last: int) -> None:
    """Raise unless `is_told`: whether the version holds later batches is not guessed at."""
    if is_told(oldest, first, last):
        return
    history.find_named(oldest.snapshot.source, by=oldest.snapshot)  # raises if it is lost
    if first is None:
        raise SnapshotExpiredError(
            "whether this table held batches of the query cannot be told: it shows none, and its "
            "older history has expired, or is that of the clone's origin. If the query has written "
            "nothing to it since this batch, leave the table out; else choose a later batch",
            after_batch=last,
            first=history.floor,
        )
    raise SnapshotExpiredError(
        "whether this version holds batches of the query cannot be told: the history before it has "
        "expired, or is that of the clone's origin, and the first batch seen after it is not the "
        "query's first. Choose a later version, or the batch before that one (after_batch)",
        after_batch=last,
        first_batch=first,
        first=history.floor,
    )
