"""The verbs of a table's handle that name snapshots, keep and search them, and go back to them.

What they do is loaded when they are called: every worker of Spark's loads a table's handle.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from fuse_stream.commit.committer import may_replan
from fuse_stream.format.names import Version
from fuse_stream.format.properties import Duration, duration_of
from fuse_stream.format.records import Snapshot
from fuse_stream.format.refs import BranchRef, CloneRef, TagRef
from fuse_stream.objects.refs import (
    delete_branch,
    delete_pin,
    delete_tag,
    iter_pins,
)
from fuse_stream.on_demand import OnDemand
from fuse_stream.table.reads import BranchReader, history_of

if TYPE_CHECKING:
    from fuse_stream.check import fsck
    from fuse_stream.check.findings import FsckReport
    from fuse_stream.check.fsck import CheckProgress
    from fuse_stream.recovery import publish, revert
    from fuse_stream.recovery.publish import Publication
    from fuse_stream.refs import create
    from fuse_stream.trace import bisect, blame
    from fuse_stream.trace.bisect import BisectResult
    from fuse_stream.trace.blame import BlamedCommit, Progress
else:
    fsck = OnDemand("fuse_stream.check.fsck")
    publish = OnDemand("fuse_stream.recovery.publish")
    revert = OnDemand("fuse_stream.recovery.revert")
    create = OnDemand("fuse_stream.refs.create")
    bisect = OnDemand("fuse_stream.trace.bisect")
    blame = OnDemand("fuse_stream.trace.blame")


class BranchHistory(BranchReader):
    """What a handle does with the history of its branch."""

    def create_tag(
        self, name: str, version: Version | None = None, retain: Duration | None = None
    ) -> TagRef:
        """Give a snapshot a name that never moves, and that keeps it from expiring.

        Nobody should use the name before this call has returned: until then it may be taken back.

        Args:
            name: letters, digits, dots, dashes and underscores, not all of them hex digits.
            version: which snapshot; this branch's head if not given.
            retain: for how long, a `timedelta` or text such as "90d"; for ever if not given.

        Raises:
            AlreadyExistsError: the name is taken.
            InvalidInputError: the name, the version or the duration is not one.
            NotFoundError: there is no such version.
            SnapshotExpiredError: it has expired.
        """
        return create.create_tag(
            self.committer,
            name,
            version,
            retain_us=None if retain is None else duration_of(retain),
        )

    def delete_tag(self, name: str) -> None:
        """Delete a tag; its snapshot lives on as long as its branch keeps it.

        Raises:
            NotFoundError: there is none.
        """
        delete_tag(self.metadata, name)

    def create_branch(self, name: str, version: Version | None = None) -> BranchRef:
        """Make a branch that forks off a snapshot: one small object, no row is copied.

        It has its own log, ledger and floor from there on, and takes writes like any branch:
        `Table.open(path, branch=name)`, `fuse_sink(path, branch=name)`.
        Nobody should use it before this call has returned: until then it may be taken back.

        Args:
            name: as for a tag.
            version: where it forks off; this branch's head if not given.

        Raises:
            AlreadyExistsError, InvalidInputError, NotFoundError, SnapshotExpiredError: as
                `create_tag`.
        """
        return create.create_branch(self.committer, name, version)

    def delete_branch(self, name: str) -> None:
        """Delete a branch; its own snapshots go with the next vacuum. Nothing else does.

        Raises:
            NotFoundError: there is none.
            InvalidInputError: `main` stays.
        """
        delete_branch(self.metadata, name)

    def clones(self) -> tuple[CloneRef, ...]:
        """Return the pins of the clones that were made of this table, by the clone's table id."""
        return tuple(iter_pins(self.metadata))

    def unpin(self, clone_id: str) -> None:
        """Stop keeping the snapshot of a clone that is gone.

        A clone that is still there loses the blocks that only the pin kept, with the next vacuum.

        Args:
            clone_id: the clone's table id, as `clones` has it.

        Raises:
            NotFoundError: there is no such pin.
            InvalidInputError: this is no table id.
        """
        delete_pin(self.metadata, clone_id)

    def publish(
        self,
        branch: str,
        expected_head: int | None = None,
        retire: Collection[str] = (),
        *,
        on_conflict: str = "error",
        message: str = "",
        author: str = "",
    ) -> Publication:
        """Give this branch another one's content and ledger, as one snapshot.

        The other branch must have forked off this one's head, or `expected_head` names the head
        that is to be replaced; merging two lines that have both moved is not offered. Stop the
        queries that write to the other one first, and start them on this one afterwards.

        Args:
            branch: whose content and ledger.
            expected_head: the version of this branch's head, where it has moved since the fork.
            retire: applications that are given up knowingly: their entries would go back; "*" is
                every application, also one that wrote in commits which have expired or are lost.
            on_conflict: "error", or "replan" to look again if another writer is faster.
            message: what the log shows.
            author: what the log shows; never taken from the system.

        Returns:
            The new snapshot, whose content it has, and the commits of this branch that are lost.

        Raises:
            ConflictError: this branch has moved; nothing was committed.
            StreamIdentityError: an application would go back; names it.
            InvalidInputError: there is nothing to publish.
            SchemaMismatchError: both branches have changed the schema.
            NotFoundError: there is no such branch.
            SnapshotExpiredError: commits that would be lost have expired: who made them is unknown.
        """
        return publish.publish(
            self.committer,
            branch,
            expected_head=expected_head,
            retire=retire,
            replan=may_replan(on_conflict),
            message=message,
            author=author,
        )

    def revert(
        self,
        version: Version,
        *,
        on_conflict: str = "error",
        message: str = "",
        author: str = "",
    ) -> Snapshot:
        """Undo one commit of this branch, as a new commit: its rows go, those it removed return.

        The ledger stays: a batch that is undone counts as committed, and is not delivered again.
        A column of the rows that return comes back with them if the head has lost it.

        Raises:
            SchemaMismatchError: the table has given the name of such a column to another one.
            ConflictError: a later commit has rewritten its blocks; names that. Or another writer
                was faster, and `on_conflict` is not "replan".
            InvalidInputError: it changed no row, is a rewind or publish, or is not on this branch.
            SnapshotExpiredError: what it removed has expired.
            NotFoundError: there is no such version.
        """
        return revert.revert(
            self.committer,
            version,
            replan=may_replan(on_conflict),
            message=message,
            author=author,
        )

    def bisect(
        self,
        where: str,
        *,
        first: Version | None = None,
        last: Version | None = None,
        time_zone: str = "UTC",
    ) -> BisectResult:
        """Return the first snapshot of this branch in which a row matches.

        As in `git bisect`, the answer is right if rows that match stay. Of n snapshots at most
        log2(n) + 1 are tested, by statistics alone where they decide. A column that a past snapshot
        lacks is null there.

        Args:
            where: a SQL predicate with Spark's semantics, on the columns of the last snapshot.
            first: the oldest version to ask about; the oldest that stands if not given.
            last: the newest version to ask about; the head if not given.
            time_zone: in which the predicate's times without a zone are meant.

        Raises:
            InvalidInputError: a broken predicate, an unknown column, or one that was of a type that
                does not fit before; a first version past the last, or one of another branch.
            NotFoundError: there is no such version.
            SnapshotExpiredError: it has expired.
        """
        history = history_of(self)
        oldest, newest = (
            None if version is None else history.get_own_number(version, branch=self.branch)
            for version in (first, last)
        )
        return bisect.bisect(history, where, first=oldest, last=newest, time_zone=time_zone)

    def blame(
        self, where: str, *, time_zone: str = "UTC", progress: Progress | None = None
    ) -> tuple[BlamedCommit, ...]:
        """Return the commits that brought the rows of the head that match, newest first.

        The counts add up to the rows that match. Compactions are seen through, and rewinds and
        publishes followed, over branches; a row that was written again counts to who did it. Where
        history has expired, rows count to the oldest snapshot that holds them, with `is_exact`
        false: they came with it or before.

        Args:
            where: a SQL predicate with Spark's semantics.
            time_zone: in which the predicate's times without a zone are meant.
            progress: told every snapshot that is looked at, on the way back from the head.

        Raises:
            InvalidInputError: an unknown column, or a broken predicate.
            CorruptObjectError: an object of the history is damaged.
        """
        return blame.blame(history_of(self), where, time_zone=time_zone, progress=progress)

    def fsck(self, *, deep: bool = False, progress: CheckProgress | None = None) -> FsckReport:
        """Check the whole table, all branches and tags: what is damaged, and what that costs.

        Reads every slot and segment that has not expired, and lists the blocks; writes nothing.
        Damage is reported, never raised. A table that cannot be opened any more is checked by
        `fuse-stream fsck PATH`.

        Args:
            deep: also read every block, once, and compare its rows with its record.
            progress: called with how many objects were read and how many there are at the most.

        Raises:
            StorageError: the store cannot be listed.
        """
        return fsck.check_table(
            self.metadata.store, self.metadata.clock, deep=deep, progress=progress
        )
