"""Taking over another branch: one snapshot with its content and its ledger.

Two lines that have both moved are not merged: which of two batches of one stream should count is
for a person to say. So the other branch must have forked off this head, or the caller names the
head that is to be replaced; what is lost is listed.

The version where the other branch left, and commits since then, may have expired on this one. The
other branch keeps the versions that both share; later ones are read while their slots stand, for
vacuum frees those by the thousand. Only what is in the slots is read: segments may be gone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.plan import Intent, Staged, content_of
from fuse_stream.errors import (
    ConflictError,
    CorruptObjectError,
    InvalidInputError,
    NotFoundError,
    SchemaMismatchError,
    SnapshotExpiredError,
    UnsupportedFormatError,
)
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.format.refs import last_shared
from fuse_stream.objects.refs import load_branch
from fuse_stream.objects.slots import Stored
from fuse_stream.reading.history import History, load_named
from fuse_stream.recovery.ledgers import given_up, take_over
from fuse_stream.recovery.losses import check_seen, get_undone

_LOSES_NOTHING = frozenset({Operation.COMPACT, Operation.RECLUSTER, Operation.EXPIRE})
"""Commits that may lie between the fork and the head: maintenance is not work that is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What a publish did."""

    snapshot: Snapshot
    """The new one."""
    source: Snapshot
    """Whose content and ledger the branch has now."""
    lost: tuple[Snapshot, ...] = ()
    """Commits of this branch, newest first, that the other one has not: they are history now.

    Those that have expired are left out once vacuum has freed the slot of one of them or a later
    one.
    """


def publish(
    committer: Committer,
    branch: str,
    *,
    expected_head: int | None = None,
    retire: Collection[str] = (),
    replan: bool = False,
    author: str = "",
    message: str = "",
) -> Publication:
    """Take over a branch; errors and arguments of `Table.publish`."""
    metadata = committer.metadata
    ref = load_branch(metadata, branch)
    if ref.branch_id == committer.branch_id:
        raise InvalidInputError("a branch is published to another one", branch=branch)
    head = committer.head()

    def stage(on: Stored, _before: Staged | None) -> Staged:
        # On the very head that is built on: vacuum takes what a deleted branch held.
        if load_branch(metadata, branch) != ref:
            raise NotFoundError("the branch was deleted, and another has its name", branch=branch)
        history = History(metadata, on)
        source = History(metadata, metadata.load_head(ref.branch_id))
        _check_named(history, source, branch, expected_head)
        since = _load_since(history, source)
        _check_replaced(since, source, branch, is_named=expected_head is not None)
        undone = get_undone(since.history, source.head, retire)
        check_seen(undone, source.head, retire)
        ledgers = on.snapshot.ledger, source.head.snapshot.ledger
        ledger = take_over(
            *ledgers,
            version=on.snapshot.version + 1,
            undone=undone,
            retire=given_up(retire, undone, *ledgers),
        )
        return content_of(on.snapshot, source.head, ledger)

    stage(head, None)  # what it refuses is refused before anything is written
    intent = Intent(operation=Operation.PUBLISH, author=author, message=message)
    snapshot = committer.commit(intent, stage, replan=replan).stored.snapshot
    target = snapshot.target
    assert target is not None
    source = History(metadata, metadata.load_snapshot(target.branch_id, target.version))
    replaced = History(metadata, committer.head()).as_of(snapshot.version - 1)
    lost = _load_since(replaced, source).lost
    return Publication(snapshot=snapshot, source=source.head.snapshot, lost=lost)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Since:
    """What a branch has had since another one left it."""

    history: History
    """Of the branch. If `is_whole`, its floor is the oldest version to which both lines can be
    read; else it is the branch's own."""
    fork: int
    """The last version that both share."""
    lost: tuple[Snapshot, ...]
    """The commits after it that can be read, newest first."""
    is_whole: bool
    """Whether all of them can be read, and the fork."""


def _load_since(history: History, source: History) -> _Since:
    """Return what a branch has had since `source` left it, expired or not."""
    one, other = (
        (line.metadata.forks_of(line.head.snapshot.branch_id), line.head.snapshot.branch_id)
        for line in (history, source)
    )
    most = min(history.head.snapshot.version, source.head.snapshot.version)
    fork = last_shared(one, other, most=most)
    read = [stored.snapshot for stored in history.iter_back(max(history.floor, fork))]
    for _ in range(fork, history.floor):
        parent = read[-1].parent
        assert parent is not None  # it is after the fork
        try:
            read.append(load_named(history.metadata, parent, by=read[-1]).snapshot)
        except (NotFoundError, SnapshotExpiredError, CorruptObjectError, UnsupportedFormatError):
            break  # whatever became of a slot that has expired: it is no longer seen
    is_whole = read[-1].version == fork
    lost = tuple(snapshot for snapshot in read if snapshot.version > fork)
    if is_whole:
        history = history.with_floor(min(history.floor, source.floor, fork))
    return _Since(history=history, fork=fork, lost=lost, is_whole=is_whole)


def _check_named(history: History, source: History, branch: str, expected_head: int | None) -> None:
    """Raise unless there is something to publish, and the head is the expected one."""
    head = history.head.snapshot.version
    if history.contains(source.head.snapshot):
        raise InvalidInputError(
            "the branch has no commit that this one lacks, so there is nothing to publish",
            branch=branch,
            version=source.head.snapshot.version,
        )
    if expected_head is not None and expected_head != head:
        raise ConflictError(
            "the head is not the expected one; look at what came in between",
            expected_head=expected_head,
            head=head,
        )


def _check_replaced(since: _Since, source: History, branch: str, *, is_named: bool) -> None:
    """Raise unless the head of `source` may take the place of the head of the branch.

    `is_named` says whether the caller has named this head.
    """
    head = since.history.head.snapshot
    is_maintained = all(commit.operation in _LOSES_NOTHING for commit in since.lost)
    if since.is_whole and is_maintained:
        return
    if not is_named:
        raise _both_moved(since, branch)
    if not _has_one_schema(since, source):
        raise SchemaMismatchError(
            "both branches have changed the schema since they forked, and may have given one id "
            "to different columns, which a rewind does not undo; make a new branch of this one's "
            "head, write the other one's rows to it with merge_schema=True, and publish that",
            branch=branch,
            forked_at=since.fork,
            head=head.version,
        )


def _both_moved(since: _Since, branch: str) -> ConflictError:
    head = since.history.head.snapshot.version
    where = {"branch": branch, "forked_at": since.fork, "head": head}
    what = (
        "both branches have moved since they forked, and merging two lines is not offered: what "
        "this one has committed since then would be lost."
    )
    name = "To replace it all the same, name the head that you have seen as expected_head"
    if since.is_whole:
        return ConflictError(f"{what} {name}", **where, lost_commits=head - since.fork)
    seen_from = head + 1 - len(since.lost)
    return ConflictError(
        f"{what} Commits of it have expired, and cannot be listed: whether they were maintenance "
        f"alone is not known. {name}",
        **where,
        lost_commits=head - since.fork,
        seen_from=seen_from,
    )


def _has_one_schema(since: _Since, source: History) -> bool:
    """Whether at most one of two branches has changed the schema since they forked."""
    schemas = {since.history.head.snapshot.schema, source.head.snapshot.schema}
    line = next((line for line in (since.history, source) if line.floor <= since.fork), None)
    if line is None:  # the fork has expired on both, and cannot be read
        return len(schemas) == 1
    return line.load(since.fork).snapshot.schema in schemas
