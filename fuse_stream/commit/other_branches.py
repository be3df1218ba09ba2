"""What a query has committed to other branches of its table, since these forked off.

A query commits to one branch at a time. Moved to another one, it takes the batches that its
checkpoint has ended for done, also those that only the other branch has.

The ledger of a head holds one batch of a query, and a rewind, an `adopt` or a `forget` may have
taken that one out. So the branch's own snapshots are read back to where it forked off.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from typing import NamedTuple

from fuse_stream.commit.ledger import Batch, check_elsewhere, is_after_gap, last_number
from fuse_stream.errors import (
    CorruptObjectError,
    NotFoundError,
    SnapshotExpiredError,
    UnsupportedFormatError,
)
from fuse_stream.format.codec import decode_snapshot
from fuse_stream.format.layout import slot_key
from fuse_stream.format.records import Ledger, LedgerEntry, LedgerKey, Snapshot
from fuse_stream.format.refs import BranchRef, last_shared, owner_of
from fuse_stream.objects.refs import iter_branch_names, load_branch
from fuse_stream.objects.slots import Metadata
from fuse_stream.storage.parallel import each

UNREADABLE = (NotFoundError, CorruptObjectError, SnapshotExpiredError, UnsupportedFormatError)
"""Of a branch: it is damaged, or was deleted meanwhile. A store that fails is not among them."""

EVERY_VERSION = 1000
"""How many versions of a branch are read one by one. Of older ones, those are left out that lie
between an entry of a query and the commit that made it: only where its application was changed, and
the later one forgotten, may they hold a batch of the query."""
THREADS = 16

_log = logging.getLogger(__name__)


class Elsewhere(NamedTuple):
    """A batch that a query has committed to another branch."""

    branch: str
    key: LedgerKey
    entry: LedgerEntry


def check_other_branches(
    metadata: Metadata, branch: BranchRef, head: Snapshot, batch: Batch
) -> None:
    """Raise if batches that are missing before `batch` are on another branch.

    Args:
        metadata: of the table.
        branch: the branch that the batch is for.
        head: its newest snapshot.
        batch: an arriving batch.

    Raises:
        StreamIdentityError: they are; names the branch and the remedies.
    """
    if batch.query_id is None or not is_after_gap(head.ledger, batch):
        return
    here = last_number(head.ledger, batch)
    is_known = here >= 0
    sought = f"batches {here + 1} to {batch.batch_id - 1} of query {batch.query_id}"
    queries = {batch.query_id}
    for found in iter_elsewhere(metadata, branch, queries, most=head.version, sought=sought):
        if not is_known and found.key[1] == batch.writer:
            here, is_known = _last_seen(metadata, branch, head, batch), True
        check_elsewhere(batch, found.key, found.entry, here=here, branch=found.branch)


def iter_elsewhere(
    metadata: Metadata, branch: BranchRef, queries: Collection[str], *, most: int, sought: str
) -> Iterator[Elsewhere]:
    """Yield what queries have committed to other branches since those forked off, newest first.

    A branch that cannot be read is named in the log.

    Args:
        metadata: of the table.
        branch: the branch that is left out.
        queries: ids of queries.
        most: the version of its head.
        sought: what is looked for, for the log.
    """
    line = branch.forks, branch.branch_id
    for name in iter_branch_names(metadata):
        if name == branch.name:
            continue
        try:
            other = load_branch(metadata, name)
            since = last_shared(line, (other.forks, other.branch_id), most=most)
            for key, entry in _iter_since(metadata, other, since, queries):
                yield Elsewhere(name, key, entry)
        except UNREADABLE as error:
            _log.warning(
                "the branch %s cannot be read, so whether it has %s, which this branch lacks, is "
                "not known: %s",
                name,
                sought,
                error,
            )


def _iter_since(
    metadata: Metadata, branch: BranchRef, since: int, queries: Collection[str]
) -> Iterator[tuple[LedgerKey, LedgerEntry]]:
    """Yield the entries of queries in the ledgers of a branch's versions after `since`."""
    seen: set[tuple[LedgerKey, str | None, int]] = set()
    for ledger in _iter_ledgers(metadata, branch, since, queries):
        for key, entry in _own(ledger, queries).items():
            place = key, entry.query_id, entry.batch_id
            if entry.version > since and place not in seen:
                seen.add(place)
                yield key, entry


def _iter_ledgers(
    metadata: Metadata, branch: BranchRef, since: int, queries: Collection[str]
) -> Iterator[Ledger]:
    """Yield the ledgers of a branch after `since`, newest first.

    All of the newest `EVERY_VERSION`. Of older ones those that may name another batch of queries.
    """

    def load(version: int) -> Ledger:
        owner = owner_of(branch.forks, branch.branch_id, version)
        return decode_snapshot(metadata.store.get(slot_key(owner, version))).ledger

    head = metadata.load_head(branch.branch_id).snapshot
    oldest = max(since + 1, head.floor)
    older = max(oldest, head.version - EVERY_VERSION)
    newest = range(head.version, older - 1, -1)
    yield from each(load, newest, metadata.store, at_once=THREADS)
    version = older - 1
    while version >= oldest:
        ledger = load(version)
        yield ledger
        own = _own(ledger, queries)
        is_whole = {entry.query_id for entry in own.values()} == {*queries}
        if is_whole and not queries & head.ledger.retired.keys():
            version = min(version, max(entry.version for entry in own.values()))
        version -= 1


def _own(ledger: Ledger, queries: Collection[str]) -> dict[LedgerKey, LedgerEntry]:
    return {key: entry for key, entry in ledger.entries.items() if entry.query_id in queries}


def _last_seen(metadata: Metadata, branch: BranchRef, head: Snapshot, batch: Batch) -> int:
    """Return the last batch of a query that has left the ledger of its own branch; -1: unknown."""
    for version in range(head.version - 1, head.floor - 1, -1):
        try:
            ledger = metadata.load_snapshot(branch.branch_id, version).snapshot.ledger
        except UNREADABLE as error:
            _log.warning(
                "version %d cannot be read, to find a query's last batch: %s", version, error
            )
            return -1
        if (last := last_number(ledger, batch)) >= 0:
            return last
    return -1
