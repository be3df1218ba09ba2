"""What queries wrote to a table, where its ledger alone does not say.

An entry leaves the ledger by `expire`, when its stream was idle for long, and by `forget`. Its rows
stay. So what a version holds of a query, and what a query loses by going back, is read from the
history: from the snapshots that a content was made from, one after the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from fuse_stream.errors import SnapshotExpiredError
from fuse_stream.format.records import Ledger, LedgerEntry, LedgerKey
from fuse_stream.objects.metadata import Metadata, Stored
from fuse_stream.reading.way import iter_line, retained_by
from fuse_stream.recovery.goal import Goal
from fuse_stream.recovery.ledgers import Undone, Written


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
    left = {key: entry for (key, query), entry in undone.last.items() if query in queries}
    missing = left.keys() - target.snapshot.ledger.entries.keys()
    held: dict[LedgerKey, LedgerEntry] = {}
    seen = target
    for seen in iter_line(metadata, target, retained_by(head)) if missing else ():
        entries = seen.snapshot.ledger.entries
        found = {key for key in missing & entries.keys() if entries[key].query_id in queries}
        held |= {key: entries[key] for key in found}
        missing -= found
        if not missing:
            break
    if seen.snapshot.parent is not None:
        for written, first in undone.first.items():
            if written[0] in missing and written[1] in queries:
                _check_first(target, head, first, goal.last_of(written[0]))
    return _with(head.snapshot.ledger, left), _with(target.snapshot.ledger, held), undone


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
