"""Find batches that a branch lacks because its query committed them to another branch or origin.

A query commits to one branch at a time. If it moves to another branch, it does not repeat the
batches that its checkpoint counts as done, although only the first branch has their rows. The same
holds on a clone for batches that only the origin has.

The head's ledger holds only the last batch of a query, and a rewind, an `adopt` or a `forget` may
have removed it. So the snapshots of other branches are read back to their fork points.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from fuse_stream.commit.ledger import Batch, is_planned_otherwise, refused
from fuse_stream.errors import (
    NotFoundError,
    SnapshotExpiredError,
    StreamIdentityError,
)
from fuse_stream.format.forked import Ancestor
from fuse_stream.format.layout import CLONED_VERSION, MAIN
from fuse_stream.format.records import Ledger, LedgerEntry, LedgerKey, Snapshot
from fuse_stream.format.refs import BranchRef, last_shared
from fuse_stream.objects.refs import iter_branch_names, load_branch
from fuse_stream.objects.slots import UNREADABLE, Metadata
from fuse_stream.storage.parallel import each

EVERY_VERSION = 1000
"""How many of a branch's newest versions are read one by one. Among older versions, those between
a query's entry and the commit that made the entry are skipped: they hold another batch of the query
only if its application was changed and the new application was forgotten."""
THREADS = 16

_REMEDIES = (
    "Publish that branch to this one (Table.publish, fuse-stream publish), also if that was done "
    "before; or run the query with branch=<that branch>; or rewind this branch to committed_here, "
    "so that the query delivers the batches again: fuse.rewind(<table>, "
    "after_batch=<committed_here>, checkpoints={<old>: <new>}), if there is none, to a version "
    "before the query's first batch; or, if the query writes to both branches at the same time, "
    "give the sink of this branch a writer of its own, and leave that of the other sink as it is"
)
_OR_DELETE = "; or delete that branch, if its rows are not wanted"

_log = logging.getLogger(__name__)


class Elsewhere(NamedTuple):
    """A batch that a query has committed to another branch."""

    branch: str
    key: LedgerKey
    entry: LedgerEntry
    is_after_expired: bool = False
    """True if the branch may have had earlier batches in commits that have expired."""

    def is_missing(self, *, here: int, last: int) -> bool:
        """True if a branch that ends with batch `here` lacks it, and it will not come again.

        The query delivers the batches after `last`. -1 stands for none.
        """
        return here < self.entry.batch_id <= last

    def may_hide_missing(self, *, here: int, last: int) -> bool:
        """True if the expired commits may have a batch that `is_missing`."""
        return self.is_after_expired and here < last < self.entry.batch_id


def check_other_branches(
    metadata: Metadata, branch: BranchRef, head: Snapshot, batch: Batch
) -> None:
    """Raise if batches that are missing before `batch` are on another branch.

    `branch` is the one that the batch is for, `head` its newest snapshot.

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
            continue  # a batch of another sink
        if not is_known:
            here, is_known = _last_seen(metadata, branch, head, taken, batch.writer), True
        last = min(taken[str(found.entry.query_id)], batch.batch_id - 1)
        check_elsewhere(batch, found, here=here, last=last)
    assert batch.query_id is not None  # a batch without one is never after a gap
    if here >= 0 and came_with_clone(metadata, head.ledger, batch.query_id, taken.keys()):
        raise missing_on_clone(batch, here=here)


def _taken_for_done(batch: Batch) -> dict[str, int]:
    """Return the last batch that the checkpoint counts as done, by query id; ancestors included."""
    older: list[Ancestor] = []
    if batch.checkpoint is not None:
        rebuilt = batch.checkpoint.find_rebuilt_from()
        older = [*batch.checkpoint.find_ancestors(), *([rebuilt] if rebuilt else ())]
    taken = {ancestor.query_id: ancestor.through for ancestor in older}
    return taken if batch.query_id is None else {**taken, batch.query_id: batch.batch_id - 1}


def is_after_gap(ledger: Ledger, batch: Batch) -> bool:
    """True if the query had earlier batches that the table with this ledger lacks."""
    if batch.query_id is None:
        return False
    return batch.batch_id > last_number(ledger, {batch.query_id: batch.batch_id}, batch.writer) + 1


def last_number(ledger: Ledger, taken: Mapping[str, int], writer: str) -> int:
    """Return a writer's last batch that counts by `taken`, in any application; -1: none."""
    own = (entry for (_, name), entry in _own(ledger, taken).items() if name == writer)
    return max((min(one.batch_id, taken[str(one.query_id)]) for one in own), default=-1)


def check_elsewhere(batch: Batch, found: Elsewhere, *, here: int, last: int) -> None:
    """Raise if `batch`, which follows a gap, lacks batches that its query committed elsewhere.

    `here` is the last batch of its writer on its own branch, -1: none; `last` the last one of the
    query in `found` that the checkpoint counts as done.

    Raises:
        StreamIdentityError: it does, or may do; names the branch and the remedies.
    """
    if found.is_missing(here=here, last=last):
        fact = "this query has committed batches to another branch, and this branch lacks them"
    elif found.may_hide_missing(here=here, last=last):
        fact = (
            "this query has committed to another branch, and this branch may lack batches of it: "
            "commits of the other branch have expired"
        )
    else:
        return
    if batch.checkpoint is not None and is_planned_otherwise(batch.checkpoint, found.entry):
        return  # a copy of the checkpoint ran there
    raise refused(
        batch,
        f"{fact}. {_REMEDIES}{_OR_DELETE if found.branch != MAIN else ''}",
        branch=found.branch,
        committed_there=found.entry.batch_id,
        committed_here=here if here >= 0 else None,
        arriving_batch=batch.batch_id,
    )


def came_with_clone(
    metadata: Metadata, ledger: Ledger, query_id: str, queries: Collection[str]
) -> bool:
    """True if a clone came with batches of a query, of which `queries` are it and its ancestors.

    False if the clone was rewound for this query: the rewind set its checkpoint back to the clone.
    """
    retired = ledger.retired.values()
    if any(one.fork == query_id and one.version > CLONED_VERSION for one in retired):
        return False
    if not metadata.load_table_file().origins:
        return False
    with contextlib.suppress(NotFoundError, SnapshotExpiredError):
        ledger = metadata.load_snapshot(MAIN, CLONED_VERSION).snapshot.ledger
    return bool(_own(ledger, queries))


def missing_on_clone(batch: Batch, *, here: int) -> StreamIdentityError:
    """Return the error for the first batch of a run on a clone if it follows a gap."""
    return refused(
        batch,
        "the checkpoint of this query has ended later batches than the clone holds: their rows, if "
        "any, are in the origin only. Set the checkpoint back to the clone, and continue with the "
        "new one: fuse.rewind(<clone>, after_batch=<committed_here>, checkpoints={<old>: <new>}), "
        "or fuse-stream rewind",
        committed_here=here,
        arriving_batch=batch.batch_id,
    )


def iter_elsewhere(
    metadata: Metadata, branch: BranchRef, queries: AbstractSet[str], *, most: int, sought: str
) -> Iterator[Elsewhere]:
    """Yield what queries have committed to other branches than `branch`, since those forked off.

    The newest come first. A branch that cannot be read is named in the log, with what is `sought`.
    `most` is the version of the head of `branch`.
    """
    own = branch.forks, branch.branch_id
    for name in iter_branch_names(metadata):
        if name == branch.name:
            continue
        try:
            other = load_branch(metadata, name)
            since = last_shared(own, (other.forks, other.branch_id), most=most)
            yield from _iter_since(metadata, other, since, queries)
        except UNREADABLE as error:
            _log.warning(
                "the branch %s cannot be read: it may have %s, which this branch lacks: %s",
                name,
                sought,
                error,
            )


def _iter_since(
    metadata: Metadata, branch: BranchRef, since: int, queries: AbstractSet[str]
) -> Iterator[Elsewhere]:
    """Yield the entries of queries in the ledgers of a branch's versions after `since`."""
    head = metadata.load_head(branch.branch_id).snapshot
    seen: dict[tuple[LedgerKey, str | None, int], Elsewhere] = {}
    for ledger in _iter_ledgers(metadata, branch, head, since, queries):
        for key, entry in _own(ledger, queries).items():
            place = key, entry.query_id, entry.batch_id
            if entry.version > since and place not in seen:
                seen[place] = Elsewhere(branch.name, key, entry)
                yield seen[place]
    if seen and head.floor > since + 1:
        first = min(seen.values(), key=lambda found: found.entry.batch_id)
        yield first._replace(is_after_expired=True)


def _iter_ledgers(
    metadata: Metadata, branch: BranchRef, head: Snapshot, since: int, queries: AbstractSet[str]
) -> Iterator[Ledger]:
    """Yield the ledgers of a branch after `since`, newest first; see `EVERY_VERSION`."""

    def load(version: int) -> Ledger:
        return metadata.peek(branch.branch_id, version).ledger

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
    metadata: Metadata, branch: BranchRef, head: Snapshot, taken: Mapping[str, int], writer: str
) -> int:
    """Return the last batch of queries that the head's ledger no longer names; -1: unknown."""
    for version in range(head.version - 1, head.floor - 1, -1):
        try:
            ledger = metadata.load_snapshot(branch.branch_id, version).snapshot.ledger
        except UNREADABLE as error:
            _log.warning(
                "the last batch of a query is unknown, as version %d is unreadable: %s",
                version,
                error,
            )
            return -1
        if (last := last_number(ledger, taken, writer)) >= 0:
            return last
    return -1
