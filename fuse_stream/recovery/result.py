"""The result of a rewind for one table: planned, made now, or made by an earlier call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fuse_stream.commit.committer import Committer
from fuse_stream.errors import FuseError, SnapshotExpiredError
from fuse_stream.feed.diff import find_commit_path
from fuse_stream.format.one_line import one_line
from fuse_stream.format.records import Snapshot
from fuse_stream.objects.slots import Stored
from fuse_stream.reading.history import History
from fuse_stream.recovery.forks import Fork
from fuse_stream.recovery.losses import (
    Dropped,
    PassedConsumer,
    count_difference,
    dropped_by,
    without_batch,
)
from fuse_stream.recovery.pipeline import Member

RewindOutcome = Literal["planned", "done", "repeated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """The result of a rewind, or of its dry run, for one table.

    Attributes:
        path: the table's URL, or its path if it is local.
        target: the snapshot whose content and ledger the table got; None if an earlier call rewound
            the table, and the target has expired since.
        snapshot: the new snapshot; None in a dry run, or if that of an earlier call has expired
            since.
        before: the version that was the head; None if an earlier call rewound the table.
        dropped: the batches that the table no longer has, by application and writer.
        by_hand: the versions that it undoes and that have no batch: no query makes their changes
            again.
        forks: the forks of checkpoints; for a list of tables they are in `PipelineRewind.forks`.
        retired: applications that `retire` named, and that are retired now.
        deleted_rows: the deletions that followers receive, at most: equal rows on both sides are
            not sent. None if a damaged object of the versions that it undoes hides their number.
        inserted_rows: the insertions that followers receive, at most; None likewise.
        consumers: the named consumers that have read past the target; only in a dry run.
        obstacles: the errors that prevent the rewind; only in a dry run.
    """

    path: str
    target: Snapshot | None
    snapshot: Snapshot | None
    before: int | None = None
    dropped: tuple[Dropped, ...] = ()
    by_hand: tuple[int, ...] = ()
    forks: tuple[Fork, ...] = ()
    retired: tuple[str, ...] = ()
    deleted_rows: int | None = 0
    inserted_rows: int | None = 0
    consumers: tuple[PassedConsumer, ...] = ()
    obstacles: tuple[FuseError, ...] = ()

    __repr__ = one_line(
        "version=snapshot.version target=target.version outcome path obstacles retired "
        "deleted_rows inserted_rows forks dropped consumers"
    )

    @property
    def outcome(self) -> RewindOutcome:
        """Whether the table was rewound: "planned" in a dry run, "repeated" by an earlier call."""
        if self.before is None:
            return "repeated"
        return "planned" if self.snapshot is None else "done"


def made_before(member: Member) -> Rewind:
    """Return the result of an earlier call's rewind, without what has expired since."""
    assert member.made is not None
    if member.made.stored is None:
        return Rewind(path=member.url, target=None, snapshot=None)
    return made_as(member.committer, member.made.stored)


def made_as(committer: Committer, made: Stored) -> Rewind:
    """Return the result of a rewind that is published."""
    snapshot, path = made.snapshot, committer.metadata.store.url
    assert snapshot.target is not None
    try:
        place = snapshot.target.branch_id, snapshot.target.version
        target = committer.metadata.load_snapshot(*place).snapshot
    except SnapshotExpiredError:
        return Rewind(path=path, target=None, snapshot=snapshot)
    return Rewind(path=path, target=target, snapshot=snapshot)


def describe(history: History, target: Stored) -> Rewind:
    """Return what a rewind to `target` will do.

    Raises:
        CorruptObjectError: a segment or deletion file of `target` is missing or damaged.
    """
    head = history.head.snapshot
    counts = count_difference(history, head, target.snapshot)
    path = find_commit_path(history, head, target.snapshot)
    return Rewind(
        path=history.metadata.store.url,
        target=target.snapshot,
        snapshot=None,
        before=head.version,
        dropped=dropped_by(path.undone if path else ()),
        by_hand=without_batch(path.undone if path else ()),
        deleted_rows=counts and counts[0],
        inserted_rows=counts and counts[1],
    )
