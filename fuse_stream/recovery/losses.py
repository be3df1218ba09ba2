"""What a branch loses by going back: what queries wrote, and which consumers have read past it.

An entry leaves the ledger by `expire`, when its stream was idle for long, and by `forget`. Its rows
stay. So what a version holds of a query, and what a query loses by going back, is read from the
history: from the snapshots that a content was made from, one after the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.ledger import heirs_of
from fuse_stream.errors import NotFoundError, SnapshotExpiredError
from fuse_stream.feed.diff import diff_net, diff_snapshots
from fuse_stream.format.records import (
    DROPS_ENTRIES,
    TAKES_CONTENT,
    Ledger,
    LedgerEntry,
    LedgerKey,
    Snapshot,
)
from fuse_stream.objects.leases import iter_leases
from fuse_stream.objects.slots import Stored
from fuse_stream.reading.history import History, expiry_reported
from fuse_stream.recovery.ledgers import EVERY, Undone, Written
from fuse_stream.recovery.target import Goal


def get_undone(history: History, target: Stored, retire: Collection[str] = ()) -> Undone:
    """Return what a branch loses when it takes the content of `target`.

    Args:
        history: of the branch.
        target: whose content it takes.
        retire: applications that are given up.

    Raises:
        CorruptObjectError: a snapshot in between is lost, and not every application is given up.
    """
    last: dict[Written, LedgerEntry] = {}
    first: dict[Written, int] = {}
    may_be_lost = EVERY in retire
    line = history.iter_sources(target, may_be_lost=may_be_lost)
    kept = next(line, None)
    seen = history.head
    for stored in history.iter_sources(history.head, may_be_lost=may_be_lost):
        while kept is not None and kept.snapshot.timestamp_us > stored.snapshot.timestamp_us:
            kept = next(line, None)
        if kept is not None and kept.sha256 == stored.sha256:
            return Undone(last=last, first=first)
        seen = stored
        for key, entry in stored.snapshot.ledger.entries.items():
            last.setdefault((key, entry.query_id), entry)
            first[key, entry.query_id] = entry.batch_id
    hides = _may_hide_rows(history, target, seen.snapshot)
    return Undone(last=last, first=first, unseen_before=seen.snapshot if hides else None)


def _may_hide_rows(history: History, target: Stored, seen: Snapshot) -> bool:
    """Whether a query may have written between `target` and `seen`, and have left the ledger.

    The commits in between cannot be seen. Who wrote in the last of them is in the ledger of `seen`,
    unless that is the commit by which its entry left.
    """
    source = seen.source
    if source is None:
        return False
    if not history.is_cloned(seen):
        if source.sha256 == target.sha256:
            return False
        is_between = history.contains(source) and history.contains(target.snapshot)
        is_next_but_one = is_between and source.version == target.snapshot.version + 1
        if is_next_but_one and seen.operation not in DROPS_ENTRIES | TAKES_CONTENT:
            return False
    # Rows that the target has too are not lost.
    try:
        with expiry_reported(history.metadata, (seen.branch_id, seen.version)):
            return bool(diff_snapshots(history.metadata, seen, target.snapshot).removed)
    except SnapshotExpiredError:  # its slot was still there, and a segment of it is not
        return True


def check_seen(undone: Undone, target: Stored, retire: Collection[str]) -> None:
    """Raise SnapshotExpiredError where it cannot be known who loses rows, unless all are given up.

    A query that comes back later would continue as if its rows were there.
    """
    if undone.unseen_before is not None and EVERY not in retire:
        raise SnapshotExpiredError(
            "commits since this version cannot be seen: they have expired, or were made before the "
            "clone. Queries that wrote in them, and have left the ledger since, would lose rows "
            f'and not know it. Choose a later version; or name "{EVERY}" in retire, to give up '
            "every application that has no fork here, and do not start its queries again on their "
            "old checkpoints",
            version=target.snapshot.version,
            seen_from=undone.unseen_before.version,
        )


def get_ledgers(
    history: History,
    target: Stored,
    queries: Collection[str],
    goal: Goal,
    retire: Collection[str] = (),
) -> tuple[Ledger, Ledger, Undone]:
    """Return the ledgers of a head and of a version, with what queries wrote that had left them.

    Args:
        history: of the branch.
        target: the version that it goes back to.
        queries: ids of those that go on from forks, and of those that they are forks of.
        goal: what led to the target.
        retire: applications that are given up.

    Raises:
        SnapshotExpiredError: the history that would tell what the version holds has expired.
        CorruptObjectError: a snapshot that would tell is lost.
    """
    undone = get_undone(history, target, retire)
    now, then = history.head.snapshot.ledger, target.snapshot.ledger
    # An earlier rewind may have passed their place on: then only forks of them wrote since.
    family = {heir for query in queries for heir in (query, *heirs_of(now, query)) if heir}
    left = {key: entry for (key, query), entry in undone.last.items() if query in family}
    missing = left.keys() - then.entries.keys()
    is_found = not family or any(entry.query_id in family for entry in then.entries.values())
    held: dict[LedgerKey, LedgerEntry] = {}
    seen = target
    for seen in history.iter_sources(target, may_be_lost=True):
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
                _check_first(history, target, seen, first=first, last=goal.last_of(key))
    return _with(now, left), _with(then, held), undone


def _check_first(history: History, target: Stored, seen: Stored, *, first: int, last: int) -> None:
    """Raise unless the first batch seen after a version is the one after the last it may hold.

    `seen` is the oldest snapshot that the version comes from, as far as they can be seen.
    """
    if first > last + 1:
        history.find_named(seen.snapshot.source, by=seen.snapshot)  # raises if it is lost
        raise SnapshotExpiredError(
            "whether this version holds batches of the query cannot be told: the history before it "
            "has expired, or is that of the clone's origin, and the first batch seen after it is "
            "not the query's first; choose a later version",
            version=target.snapshot.version,
            first_batch=first,
            first=history.floor,
        )


def _with(ledger: Ledger, left: Mapping[LedgerKey, LedgerEntry]) -> Ledger:
    return dataclasses.replace(ledger, entries={**left, **ledger.entries})


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


def iter_passed(committer: Committer, history: History, target: Stored) -> Iterator[PassedConsumer]:
    """Yield the consumers of a branch that have read past `target`, by name."""
    metadata, head = history.metadata, history.head.snapshot
    now_us = metadata.clock.now_us() + committer.clock_offset_us  # for people to see
    for standing in iter_leases(metadata):
        lease = standing.lease
        if lease.branch_id != committer.branch_id or lease.version > head.version:
            continue
        try:
            read = metadata.load_snapshot(head.branch_id, lease.version).snapshot
        except (NotFoundError, SnapshotExpiredError):
            continue  # it can only start anew
        # The target may be on another branch, whose numbers mean nothing here.
        if read.timestamp_us <= target.snapshot.timestamp_us:
            continue
        kept = history.with_floor(min(history.floor, lease.version))
        blocks = diff_net(kept, read, target.snapshot).blocks
        yield PassedConsumer(
            consumer=lease.consumer,
            version=lease.version,
            is_live=standing.is_live(now_us),
            deleted_rows=sum(block.row_count for block in blocks.removed),
            inserted_rows=sum(block.row_count for block in blocks.inserted),
        )
