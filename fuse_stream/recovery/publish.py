"""Taking over another branch: one snapshot with its content and its ledger.

Two lines that have both moved are not merged: which of two batches of one stream should count is
for a person to say. So the other branch must have forked off this head, or the caller names the
head that is to be replaced; what is lost is listed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.plan import Intent, Staged, content_of
from fuse_stream.errors import ConflictError, InvalidInputError, NotFoundError, SchemaMismatchError
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.format.refs import last_shared
from fuse_stream.objects.refs import load_branch
from fuse_stream.objects.slots import Stored
from fuse_stream.reading.history import History
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
    """Commits of this branch, newest first, that the other one has not: they are history now."""


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
        _check(history, source, branch, expected_head)
        undone = get_undone(history, source.head, retire)
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
    lost = tuple(stored.snapshot for stored in _iter_lost(replaced, source))
    return Publication(snapshot=snapshot, source=source.head.snapshot, lost=lost)


def _check(history: History, source: History, branch: str, expected_head: int | None) -> None:
    """Raise unless the head of `source` may take the place of the head of `history`."""
    head = history.head
    if history.contains(source.head.snapshot):
        raise InvalidInputError(
            "the branch has no commit that this one lacks, so there is nothing to publish",
            branch=branch,
            version=source.head.snapshot.version,
        )
    if expected_head is not None and expected_head != head.snapshot.version:
        raise ConflictError(
            "the head is not the expected one; look at what came in between",
            expected_head=expected_head,
            head=head.snapshot.version,
        )
    if source.contains(head.snapshot):
        return
    if expected_head is None and all(
        stored.snapshot.operation in _LOSES_NOTHING for stored in _iter_lost(history, source)
    ):
        return
    fork = _get_fork(history, source)
    if expected_head is None:
        raise ConflictError(
            "both branches have moved since they forked, and merging two lines is not offered: "
            "what this one has committed since then would be lost. To replace it all the same, "
            "name the head that you have seen as expected_head",
            branch=branch,
            forked_at=fork.version,
            head=head.snapshot.version,
            lost_commits=head.snapshot.version - fork.version,
        )
    if fork.schema not in {head.snapshot.schema, source.head.snapshot.schema}:
        raise SchemaMismatchError(
            "both branches have changed the schema since they forked, and may have given one id "
            "to different columns, which a rewind does not undo; make a new branch of this one's "
            "head, write the other one's rows to it with merge_schema=True, and publish that",
            branch=branch,
            forked_at=fork.version,
        )


def _get_fork(history: History, source: History) -> Snapshot:
    """Return the last snapshot that two branches share."""
    ids = (history.head.snapshot.branch_id, source.head.snapshot.branch_id)
    lines = ((history.metadata.forks_of(branch_id), branch_id) for branch_id in ids)
    most = min(history.head.snapshot.version, source.head.snapshot.version)
    return history.load(last_shared(*lines, most=most)).snapshot


def _iter_lost(history: History, source: History) -> Iterator[Stored]:
    """Yield the snapshots of a branch that another one has not, newest first."""
    return history.iter_back(_get_fork(history, source).version + 1)
