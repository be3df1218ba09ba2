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
from collections.abc import Collection
from dataclasses import dataclass

from fuse_stream.commit.plan import Intent, Staged
from fuse_stream.commit.publish import Committer
from fuse_stream.errors import FuseError
from fuse_stream.format.records import LedgerEntry, LedgerKey, Operation, Snapshot
from fuse_stream.objects.metadata import Stored
from fuse_stream.reading.history import load_version
from fuse_stream.reading.way import diff_net, find_way, retained_by
from fuse_stream.recovery.content import content_of, parent_of
from fuse_stream.recovery.forks import (
    Fork,
    Forking,
    Paths,
    find_published,
    finish_all,
    plan_forking,
)
from fuse_stream.recovery.goal import Goal, Progress, check_stands, find_target
from fuse_stream.recovery.ledgers import set_back
from fuse_stream.recovery.passed import PassedConsumer, find_passed


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """What a rewind did, or would do."""

    target: Snapshot
    """Whose content and ledger the table has now."""
    snapshot: Snapshot | None
    """The new one; None where nothing was to be done."""
    dropped: tuple[Dropped, ...] = ()
    forks: tuple[Fork, ...] = ()
    retired: tuple[str, ...] = ()
    """Applications that were given up."""
    deleted_rows: int = 0
    """What followers of the feed are sent, at the most: equal rows on both sides are not."""
    inserted_rows: int = 0
    consumers: tuple[PassedConsumer, ...] = ()
    """The named consumers that have read past the target; only of a dry run."""
    obstacles: tuple[FuseError, ...] = ()
    """What stands in the way; only where nothing was to be done."""


def rewind(
    committer: Committer,
    goal: Goal,
    *,
    checkpoints: Paths = (),
    retire: Collection[str] = (),
    dry_run: bool = False,
    replan: bool = False,
    author: str = "",
    message: str = "",
    progress: Progress | None = None,
) -> Rewind:
    """Set a branch back; errors and arguments of `fuse_stream.rewind`."""
    report = progress or _say_nothing
    head = committer.head()
    if (published := _published(committer, head, checkpoints)) is not None:
        if not dry_run:
            finish_all(checkpoints)
        return published
    target = find_target(committer, head, goal, report)
    if not checkpoints and head.snapshot.target == parent_of(target):
        return Rewind(target=target.snapshot, snapshot=head.snapshot)  # run again
    forkings, obstacles = _plan_forkings(committer, (head, target), goal, checkpoints)
    forks = {forking.checkpoint.query_id: forking.query_id for forking in forkings}

    def stage(on: Stored, _before: Staged | None) -> Staged:
        check_stands(committer, goal, target, on)
        ledger = set_back(
            on.snapshot.ledger,
            target.snapshot.ledger,
            version=on.snapshot.version + 1,
            forks=forks,
            retire=retire,
        )
        return content_of(on.snapshot, target, ledger)

    try:
        stage(head, None)  # what it refuses is refused before anything is written
    except FuseError as error:
        obstacles.append(error)
    if obstacles and not dry_run:
        raise obstacles[0]
    found = dataclasses.replace(
        _described(committer, head, target),
        forks=tuple(forking.described for forking in forkings),
        retired=tuple(sorted(set(retire))),
        obstacles=tuple(obstacles),
    )
    if dry_run:
        return dataclasses.replace(found, consumers=find_passed(committer, head, target))
    committer.prepare()
    for forking in forkings:
        forking.store(report)
    intent = Intent(operation=Operation.REWIND, author=author, message=message)
    outcome = committer.commit(intent, stage, replan=replan)
    for forking in forkings:
        forking.finish()
    return dataclasses.replace(found, snapshot=outcome.stored.snapshot)


def _plan_forkings(
    committer: Committer, between: tuple[Stored, Stored], goal: Goal, checkpoints: Paths
) -> tuple[list[Forking], list[FuseError]]:
    """Return how the checkpoints are forked, and why some cannot be."""
    forkings: list[Forking] = []
    obstacles: list[FuseError] = []
    for paths in checkpoints:
        try:
            forkings.append(plan_forking(committer, between, goal, paths))
        except FuseError as error:
            obstacles.append(error)
    return forkings, obstacles


def _published(committer: Committer, head: Stored, checkpoints: Paths) -> Rewind | None:
    """Return the rewind that an earlier attempt has published for these checkpoints."""
    found = find_published(head, committer.branch_id, checkpoints)
    if found is None:
        return None
    claim, passed = found
    place = claim.facts["target_branch_id"], claim.facts["target_version"]
    return Rewind(
        target=committer.metadata.load_snapshot(*place).snapshot,
        snapshot=load_version(committer.metadata, head, passed.version).snapshot,
    )


def _described(committer: Committer, head: Stored, target: Stored) -> Rewind:
    metadata, retained = committer.metadata, retained_by(head)
    blocks = diff_net(metadata, head.snapshot, target.snapshot, retained).blocks
    way = find_way(metadata, head.snapshot, target.snapshot, retained)
    batches: dict[LedgerKey, list[LedgerEntry]] = {}
    for commit in way.back if way else ():
        for key, entry in commit.ledger.entries.items():
            if entry.version == commit.version:
                batches.setdefault(key, []).append(entry)
    dropped = (
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
    return Rewind(
        target=target.snapshot,
        snapshot=None,
        dropped=tuple(dropped),
        deleted_rows=sum(block.row_count for block in blocks.removed),
        inserted_rows=sum(block.row_count for block in blocks.inserted),
    )


def _say_nothing(_what: str, _done: int, _total: int) -> None:
    pass
