"""Find what a branch loses by going back: batches of queries, and rows that consumers have read.

`expire` removes the ledger entry of a stream that was idle for long, `forget` that of any; the rows
stay. So the batches of a query are read from the history: from each snapshot that the content was
made from, one after the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.ledger import EVERY, heirs_of
from fuse_stream.errors import CorruptObjectError, NotFoundError, SnapshotExpiredError
from fuse_stream.feed.diff import diff_net, diff_snapshots
from fuse_stream.format.one_line import one_line
from fuse_stream.format.operations import BRINGS_ROWS, DROPS_ENTRIES
from fuse_stream.format.records import TAKES_CONTENT, Ledger, LedgerEntry, LedgerKey, Snapshot
from fuse_stream.objects.leases import iter_leases
from fuse_stream.objects.slots import Stored
from fuse_stream.objects.snapshot_blocks import iter_blocks
from fuse_stream.reading.history import History, expiry_reported
from fuse_stream.recovery.ledgers import Undone, Written
from fuse_stream.recovery.target import Goal, check_told


@dataclass(frozen=True, slots=True, kw_only=True)
class Kin:
    """A query that continues from a fork, as a key to search the history with."""

    ids: Collection[str]
    """The id of the query, and those of its ancestors."""
    last: int | None = None
    """The last batch that the fork counts as done; None: the target determines it."""


def get_undone(history: History, target: Stored, retire: Collection[str] = ()) -> Undone:
    """Return what a branch loses when it takes the content of `target`.

    Raises:
        CorruptObjectError: a snapshot in between is lost, and `retire` does not name all.
    """
    last: dict[Written, LedgerEntry] = {}
    first: dict[Written, int] = {}
    may_be_lost = EVERY in retire
    sources = history.iter_sources(target, may_be_lost=may_be_lost)
    kept = next(sources, None)
    seen = history.head
    for stored in history.iter_sources(history.head, may_be_lost=may_be_lost):
        while kept is not None and kept.snapshot.timestamp_us > stored.snapshot.timestamp_us:
            kept = next(sources, None)
        if kept is not None and kept.sha256 == stored.sha256:
            return Undone(last=last, first=first)
        seen = stored
        for key, entry in stored.snapshot.ledger.entries.items():
            last.setdefault((key, entry.query_id), entry)
            first.pop((key, entry.query_id), None)
            first[key, entry.query_id] = entry.batch_id
    hides = _may_hide_rows(history, target, seen.snapshot)
    return Undone(last=last, first=first, unseen_before=seen.snapshot if hides else None)


def _may_hide_rows(history: History, target: Stored, seen: Snapshot) -> bool:
    """True if a query may have written between `target` and `seen`, and have left the ledger.

    The commits in between cannot be read. The writer of the last of them is in the ledger of
    `seen`, unless `seen` is the commit that removed its entry.
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
    except SnapshotExpiredError:  # the slot still exists, but a segment is deleted
        return True


def check_seen(undone: Undone, target: Stored, retire: Collection[str]) -> None:
    """Raise SnapshotExpiredError if it is unknown who loses rows, unless `retire` names all.

    Otherwise a query that starts again later would continue without its lost rows.
    """
    if undone.unseen_before is not None and EVERY not in retire:
        raise SnapshotExpiredError(
            "commits since this version cannot be read: they have expired, or were made before the "
            "clone. A query that wrote in them and has left the ledger since (forget, or expire "
            "after fuse.ledger.retain) would lose rows unnoticed. Choose a later version; or name "
            f'"{EVERY}" in retire to retire every application that has no fork here: if others '
            "have written since this version, do not start their queries again on the old "
            "checkpoints",
            version=target.snapshot.version,
            seen_from=undone.unseen_before.version,
        )


def get_ledgers(
    history: History,
    target: Stored,
    queries: Sequence[Kin],
    goal: Goal,
    retire: Collection[str] = (),
) -> tuple[Ledger, Ledger, Undone]:
    """Return the ledgers of head and target, with entries that had left them, and what is undone.

    `queries` continue from forks, `retire` names applications to retire.

    Raises:
        SnapshotExpiredError: the history that would show what the version holds has expired.
        CorruptObjectError: a snapshot of that history is lost.
    """
    undone = get_undone(history, target, retire)
    now, then = history.head.snapshot.ledger, target.snapshot.ledger
    # An earlier rewind may have replaced the queries: then only their forks have written since.
    kin = [
        {heir for query in one.ids for heir in (query, *heirs_of(now, query)) if heir}
        for one in queries
    ]
    family: set[str | None] = set().union(*kin)
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
    named = {(key[0], entry.query_id) for key, entry in (*then.entries.items(), *held.items())}
    for one, ids in zip(queries, kin, strict=True):
        firsts = {  # by application; the oldest commit's batch comes last
            key[0]: (key, first)
            for (key, query), first in undone.first.items()
            if query in ids and key not in then.entries
        }
        for name, (key, first) in firsts.items():
            # `forget` drops all entries of an application: if one is left, none was forgotten.
            if named.isdisjoint({(name, query) for query in ids}):
                last = goal.last_of(key) if one.last is None else one.last
                check_told(history, seen, first=first, last=last)
    return _with(now, left), _with(then, held), undone


def _with(ledger: Ledger, left: Mapping[LedgerKey, LedgerEntry]) -> Ledger:
    return dataclasses.replace(ledger, entries={**left, **ledger.entries})


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """The batches of one writer that are no longer in the table."""

    application: str
    writer: str
    query_id: str | None
    first_batch: int
    last_batch: int
    """Batches in between may have been empty."""
    rows: int

    __repr__ = one_line("application writer first_batch last_batch rows query_id")


def dropped_by(commits: Sequence[Snapshot]) -> tuple[Dropped, ...]:
    """Return the batches that each writer loses if `commits` are undone."""
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


def without_batch(commits: Iterable[Snapshot]) -> tuple[int, ...]:
    """Return the versions, ascending, of commits that changed rows without a numbered batch."""
    by_hand = (one for one in commits if one.operation in BRINGS_ROWS and not one.batches)
    return tuple(sorted(one.version for one in by_hand))


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedConsumer:
    """A named consumer that has read versions that a rewind undoes."""

    consumer: str
    version: int
    """The last version that it has read."""
    is_live: bool
    """False if its lease has lapsed: the consumer may have been abandoned."""
    deleted_rows: int | None
    """The deletions that it receives, at most: equal rows on both sides are not sent. None if a
    damaged object hides their number."""
    inserted_rows: int | None
    """The insertions that it receives, at most; None likewise."""


def iter_passed(committer: Committer, history: History, target: Stored) -> Iterator[PassedConsumer]:
    """Yield the consumers of a branch that have read past `target`, by name."""
    metadata, head = history.metadata, history.head.snapshot
    now_us = metadata.clock.now_us() + committer.clock_offset_us  # for the report only
    for found in iter_leases(metadata):
        lease = found.lease
        if lease.branch_id != committer.branch_id or lease.version > head.version:
            continue
        try:
            read = metadata.load_snapshot(head.branch_id, lease.version).snapshot
        except (NotFoundError, SnapshotExpiredError):
            continue  # the consumer must start again anyway
        # The target may be on another branch, so version numbers cannot be compared.
        if read.timestamp_us <= target.snapshot.timestamp_us:
            continue
        kept = history.with_floor(min(history.floor, lease.version))
        counts = count_difference(kept, read, target.snapshot)
        yield PassedConsumer(
            consumer=lease.consumer,
            version=lease.version,
            is_live=found.is_live(now_us),
            deleted_rows=counts and counts[0],
            inserted_rows=counts and counts[1],
        )


def count_difference(history: History, old: Snapshot, target: Snapshot) -> tuple[int, int] | None:
    """Return how many rows are removed and inserted, at most, to turn `old` into `target`.

    None if an object is damaged that `target` does not need: a rewind leaves it behind.

    Raises:
        CorruptObjectError: a segment or deletion file of `target` is missing or damaged.
    """
    try:
        blocks = diff_net(history, old, target).blocks
    except CorruptObjectError:
        for _ in iter_blocks(history.metadata, target):
            pass
        return None
    removed, inserted = (
        sum(block.live_rows for block in side) for side in (blocks.removed, blocks.inserted)
    )
    return removed, inserted
