"""Going back: a new snapshot with an old one's content and ledger, and forked checkpoints.

The order is the safety, for the process may die between any two calls and is then run again:

1. Every fork of a checkpoint is made but for its last step: no query starts on it.
2. The snapshot is published. It retires the old query and names the fork in its place: the one
   moment that counts. Before it nothing has happened, after it the old query is refused.
3. The forks are brought to life.

The same call, run again, finds by the claims in the new checkpoints how far it came.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from fuse_stream.commit.plan import Intent, Staged
from fuse_stream.commit.publish import Committer
from fuse_stream.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
    StreamIdentityError,
)
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.naming import Version
from fuse_stream.format.records import LedgerKey, Operation, Snapshot
from fuse_stream.objects.metadata import Stored
from fuse_stream.reading.history import Timestamp, find_snapshot, is_on_line
from fuse_stream.reading.way import diff_net, load_source, retained_by
from fuse_stream.recovery.checkpoint import Checkpoint, load_checkpoint, load_offsets
from fuse_stream.recovery.content import content_of, parent_of
from fuse_stream.recovery.copy import finish_fork, load_claim, new_query_id, store_fork
from fuse_stream.recovery.fork import ForkPlan, StateFate, plan_fork
from fuse_stream.recovery.ledgers import Cut, cut_of, keys_of, set_back
from fuse_stream.recovery.naming import is_held
from fuse_stream.storage.base import Store

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Where to go back to: one of these."""

    version: Version | None = None
    timestamp: Timestamp | None = None
    application: str | None = None
    after_batch: int | None = None
    """The last snapshot before any writer of the application stands past this batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """The batches of one writer that are no longer in the table."""

    application: str
    writer: str
    query_id: str | None
    first_batch: int
    last_batch: int
    """Some in between may have been empty."""
    rows: int | None
    """None where they were not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A checkpoint from which a query goes on."""

    old: str
    new: str
    applications: tuple[str, ...]
    old_query_id: str
    query_id: str
    batches: tuple[int, ...]
    """Those whose offsets it holds; empty: the query starts from scratch."""
    reruns: int | None
    """The batch that runs again although the table holds a part of it."""
    state: StateFate
    file_count: int
    byte_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """What a rewind did, or would do."""

    target: Snapshot
    """Whose content and ledger the table has now."""
    snapshot: Snapshot | None
    """The new one; None where nothing was done."""
    dropped: tuple[Dropped, ...] = ()
    forks: tuple[Fork, ...] = ()
    retired: tuple[str, ...] = ()
    """Applications that were given up."""
    deleted_rows: int = 0
    """What followers of the feed are sent at the most: rows that stand on both sides are not."""
    inserted_rows: int = 0
    obstacles: tuple[str, ...] = ()
    """What stands in the way; only where nothing was to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """A checkpoint and its fork to be."""

    source: Store
    target: Store
    checkpoint: Checkpoint
    keys: tuple[LedgerKey, ...]
    query_id: str
    """Of the fork."""
    cut: Cut
    plan: ForkPlan


def rewind(
    committer: Committer,
    goal: Goal,
    *,
    checkpoints: Mapping[Store, Store],
    retire: Collection[str] = (),
    dry_run: bool = False,
    replan: bool = False,
    author: str = "",
    message: str = "",
    progress: Progress | None = None,
) -> Rewind:
    """Set a branch back; errors and arguments of `fuse_stream.rewind`."""
    report = progress or (lambda _what, _done, _total: None)
    head = committer.head()
    if (done := _finish(committer, head, checkpoints)) is not None:
        return done
    target = find_target(committer, head, goal, report)
    pairs = tuple(_pairs(committer, head, target, goal, checkpoints))
    forks = {pair.checkpoint.query_id: pair.query_id for pair in pairs}

    def stage(on: Stored, _before: Staged | None) -> Staged:
        _check_target(committer, on, target, goal)
        ledger = set_back(
            on.snapshot.ledger,
            target.snapshot.ledger,
            version=on.snapshot.version + 1,
            forks=forks,
            retire=retire,
        )
        return content_of(on.snapshot, target, ledger)

    staged = stage(head, None)  # what it refuses, it refuses before anything is written
    del staged
    found = _described(committer, head, target, pairs, retire)
    if dry_run:
        counts = dict(count_rows(committer, head, target, report))
        dropped = tuple(
            dataclasses.replace(item, rows=counts.get((item.application, item.writer), 0))
            for item in found.dropped
        )
        return dataclasses.replace(found, dropped=dropped)
    committer.prepare()
    for pair in pairs:
        store_fork(
            pair.source,
            pair.target,
            pair.plan,
            _claim(committer, target, pair),
            progress=lambda done, total, pair=pair: report(pair.target.url, done, total),
        )
    intent = Intent(operation=Operation.REWIND, author=author, message=message)
    outcome = committer.commit(intent, stage, replan=replan)
    for pair in pairs:
        finish_fork(pair.target, pair.query_id)
    return dataclasses.replace(found, snapshot=outcome.stored.snapshot)
