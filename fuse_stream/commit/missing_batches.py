"""Batches that a branch lacks because its query committed them to another branch, or to an origin.

A query commits to one branch at a time. Moved to another one, it takes the batches that its
checkpoint has ended for done, also those that only the other branch has. So it does on a clone with
those that only the origin has.

The ledger of a head holds one batch of a query, and a rewind, an `adopt` or a `forget` may have
taken that one out. So the snapshots of the other branches are read back to where they forked off.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from fuse_stream.commit.ledger import Batch, is_planned_otherwise, refused
from fuse_stream.errors import (
    CorruptObjectError,
    NotFoundError,
    SnapshotExpiredError,
    StreamIdentityError,
    UnsupportedFormatError,
)
from fuse_stream.format.codec import decode_snapshot
from fuse_stream.format.forked import Ancestor
from fuse_stream.format.layout import MAIN, slot_key
from fuse_stream.format.records import CLONED_VERSION, Ledger, LedgerEntry, LedgerKey, Snapshot
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

_LEFT_ON_A_BRANCH = (
    "this query has committed batches to another branch, and this one lacks them: it would "
    "continue without their rows. Publish that branch to this one (Table.publish, fuse-stream "
    "publish), again if it was published before; or run the query with branch=<that branch>; or "
    "set the query back to committed_here, from where it delivers them to this one: "
    "fuse.rewind(<table>, after_batch=<committed_here>, checkpoints={<old>: <new>}); or, "
    "if the query writes to both branches at the same time, give each sink a writer of its own"
)

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
        StreamIdentityError: they are, or may be in the origin of a clone; names the remedies.
    """
    if not is_after_gap(head.ledger, batch):
        return
    taken = _taken_for_done(batch)
    here = last_number(head.ledger, taken, batch.writer)
    is_known = here >= 0
    sought = f"batches {here + 1} to {batch.batch_id - 1} of query {batch.query_id}"
    for found in iter_elsewhere(metadata, branch, taken.keys(), most=head.version, sought=sought):
        if found.key[1] != batch.writer:
            continue  # another sink's
        if not is_known:
            here, is_known = _last_seen(metadata, branch, head, taken, batch.writer), True
        if found.entry.batch_id <= taken[str(found.entry.query_id)]:
            check_elsewhere(batch, found.entry, here=here, branch=found.branch)
    if came_with_clone(head.ledger, batch) and metadata.load_table_file().origins:
        raise missing_on_clone(batch, here=here)


def _taken_for_done(batch: Batch) -> dict[str, int]:
    """Return the last batch that the checkpoint takes for done, of its query and of older ones."""
    older: list[Ancestor] = []
    if batch.checkpoint is not None:
        rebuilt = batch.checkpoint.find_rebuilt_from()
        older = [*batch.checkpoint.find_ancestors(), *([rebuilt] if rebuilt else ())]
    taken = {ancestor.query_id: ancestor.through for ancestor in older}
    return taken if batch.query_id is None else {**taken, batch.query_id: batch.batch_id}


def is_after_gap(ledger: Ledger, batch: Batch) -> bool:
    """Whether the query had batches before this one that the table with this ledger lacks."""
    if batch.query_id is None:
        return False
    return batch.batch_id > last_number(ledger, {batch.query_id}, batch.writer) + 1


def last_number(ledger: Ledger, queries: Collection[str], writer: str) -> int:
    """Return the last batch that a writer of queries has committed, as any application; else -1."""
    return max(
        (
            entry.batch_id
            for (_, name), entry in ledger.entries.items()
            if name == writer and entry.query_id in queries
        ),
        default=-1,
    )


def check_elsewhere(batch: Batch, there: LedgerEntry, *, here: int, branch: str) -> None:
    """Raise if a batch that is missing before `batch` is on another branch.

    Args:
        batch: one after a gap.
        there: what its writer has committed to the other branch.
        here: the last batch of its writer on the branch that `batch` is for; -1: none.
        branch: the name of the other one.

    Raises:
        StreamIdentityError: it is, as far as can be known; names the branch and the remedies.
    """
    if not here < there.batch_id <= batch.batch_id:
        return
    if batch.checkpoint is not None and is_planned_otherwise(batch.checkpoint, there):
        return  # a copy of the checkpoint ran there
    or_delete = "; or delete that branch, if its rows are not wanted" if branch != MAIN else ""
    raise refused(
        batch,
        f"{_LEFT_ON_A_BRANCH}{or_delete}",
        branch=branch,
        committed_there=there.batch_id,
        committed_here=here if here >= 0 else None,
        arriving_batch=batch.batch_id,
    )


def came_with_clone(ledger: Ledger, batch: Batch) -> bool:
    """True if all that the query's writer has in a clone's ledger came with the clone.

    False if the clone was rewound for this query: its checkpoint was set back to the clone then.
    """
    own = [
        entry.version
        for (_, writer), entry in ledger.entries.items()
        if (entry.query_id, writer) == (batch.query_id, batch.writer)
    ]
    is_set_back = any(
        passed.fork == batch.query_id and passed.version > CLONED_VERSION
        for passed in ledger.retired.values()
    )
    return bool(own) and max(own) <= CLONED_VERSION and not is_set_back


def missing_on_clone(batch: Batch, *, here: int) -> StreamIdentityError:
    """Return the error for a first batch on a clone that is not the next one after the clone's."""
    return refused(
        batch,
        "the checkpoint of this query has ended later batches than this clone came with: if they "
        "had rows, these are in the origin only. Set the checkpoint back to the clone: "
        "fuse.rewind(<clone>, after_batch=<committed_here>, checkpoints={<old>: <new>}), or "
        "fuse-stream rewind, and continue with the new one",
        committed_here=here,
        arriving_batch=batch.batch_id,
    )


def iter_elsewhere(
    metadata: Metadata, branch: BranchRef, queries: AbstractSet[str], *, most: int, sought: str
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
    metadata: Metadata, branch: BranchRef, since: int, queries: AbstractSet[str]
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
    metadata: Metadata, branch: BranchRef, since: int, queries: AbstractSet[str]
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


def _last_seen(
    metadata: Metadata, branch: BranchRef, head: Snapshot, queries: Collection[str], writer: str
) -> int:
    """Return the last batch of queries that have left the ledger of a branch; -1: unknown."""
    for version in range(head.version - 1, head.floor - 1, -1):
        try:
            ledger = metadata.load_snapshot(branch.branch_id, version).snapshot.ledger
        except UNREADABLE as error:
            _log.warning(
                "version %d cannot be read, to find a query's last batch: %s", version, error
            )
            return -1
        if (last := last_number(ledger, queries, writer)) >= 0:
            return last
    return -1
