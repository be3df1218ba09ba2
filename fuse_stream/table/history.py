"""The handle's methods for history: tags, branches, publish, revert, bisect, blame and fsck.

Their modules are loaded at the first call, because every worker of Spark's loads the handle.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from fuse_stream.commit.committer import may_replan
from fuse_stream.format.names import Version, flag_in, head_in
from fuse_stream.format.properties import Duration, duration_of
from fuse_stream.format.records import Snapshot
from fuse_stream.format.refs import BranchRef, CloneRef, TagRef
from fuse_stream.objects.refs import delete_branch, delete_pin, delete_tag, iter_pins
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
    """The methods of a handle that name, search and undo the snapshots of its branch."""

    def create_tag(
        self, name: str, version: Version | None = None, retain: Duration | None = None
    ) -> TagRef:
        """Give a snapshot a name that never moves and keeps it from expiring; return the tag.

        Do not use the name before this call has returned: until then it may be withdrawn.

        Args:
            name: letters, digits, dots, dashes and underscores, not all of them hex digits; or
                eight digits or more, such as the date "20261122".
            version: the snapshot; this branch's head if not given.
            retain: how long to keep it, a `timedelta` or text such as "90d"; forever if not given.

        Raises:
            AlreadyExistsError: the name is taken.
            InvalidInputError: the name, the version or the duration is not valid.
            NotFoundError: there is no such version.
            SnapshotExpiredError: the version has expired.
        """
        return create.create_tag(
            self.committer, name, version, retain_us=None if retain is None else duration_of(retain)
        )

    def delete_tag(self, name: str) -> None:
        """Delete a tag; its snapshot remains until it expires on its branch.

        Raises:
            NotFoundError: there is no such tag.
        """
        delete_tag(self.metadata, name)

    def create_branch(self, name: str, version: Version | None = None) -> BranchRef:
        """Create a branch that forks off a snapshot, and return it; no row is copied.

        From the fork point on, the branch has its own log, ledger and floor. It is written to like
        any branch: `Table.open(path, branch=name)`, `fuse_sink(path, branch=name)`.
        Do not use it before this call has returned: until then it may be withdrawn.

        Args:
            name: as for a tag, but not of digits alone.
            version: the fork point; this branch's head if not given.

        Raises:
            AlreadyExistsError, InvalidInputError, NotFoundError, SnapshotExpiredError: as
                `create_tag`.
            ConflictError: expiries came in between again and again; the branch was not created.
        """
        return create.create_branch(self.committer, name, version)

    def delete_branch(self, name: str) -> None:
        """Delete a branch; the next vacuum deletes the snapshots that only it has.

        Raises:
            NotFoundError: there is no such branch.
            InvalidInputError: `main` cannot be deleted.
        """
        delete_branch(self.metadata, name)

    def clones(self) -> tuple[CloneRef, ...]:
        """Return the pins of the clones that were made of this table, by the clone's table id."""
        return tuple(iter_pins(self.metadata))

    def unpin(self, clone_id: str) -> None:
        """Delete the pin of a clone that no longer exists; its snapshot can then expire.

        If the clone still exists, the next vacuum deletes blocks of it that only the pin keeps.

        Args:
            clone_id: the clone's table id, from `clones`.

        Raises:
            NotFoundError: there is no such pin.
            InvalidInputError: the text is not a table id.
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
        """Give this branch another branch's content and ledger, as one snapshot.

        This branch's head must be the fork point of the other branch, or `expected_head` must name
        it. Two branches with commits of their own cannot be merged. Stop the queries that write to
        the other branch first; start them on this one afterwards.

        Args:
            branch: the branch that has the content and the ledger.
            expected_head: the version of this branch's head, if it has commits after the fork.
            retire: applications to retire, whose ledger entries would go back otherwise; "*" is
                every application, also one whose commits have expired or are lost.
            on_conflict: "error", or "replan" to plan again if another writer is faster.
            message: shown by the log.
            author: shown by the log; never taken from the system.

        Returns:
            The new snapshot, the snapshot that its content is from, and this branch's lost commits.

        Raises:
            ConflictError: this branch has new commits, or had some that cannot be read any more;
                nothing was committed.
            StreamIdentityError: an application's ledger entry would go back; names it.
            InvalidInputError: there is nothing to publish.
            SchemaMismatchError: both branches have changed the schema.
            NotFoundError: there is no such branch.
            SnapshotExpiredError: commits that would be lost have expired: who made them is unknown.
        """
        return publish.publish(
            self.committer,
            branch,
            expected_head=head_in("expected_head", expected_head),
            retire=retire,
            replan=may_replan(on_conflict),
            message=message,
            author=author,
        )

    def revert(
        self, version: Version, *, on_conflict: str = "error", message: str = "", author: str = ""
    ) -> Snapshot:
        """Undo one commit of this branch, and return the new snapshot.

        The rows that the commit added are removed, and the rows that it removed return. The ledger
        stays as it is: an undone batch counts as committed, and is not delivered again. If the head
        lacks a column of the returning rows, the column returns with them.

        Raises:
            SchemaMismatchError: the name of a column that returns belongs to another column now.
            ConflictError: a later commit has rewritten its blocks; names that commit. Or another
                writer was faster, and `on_conflict` is not "replan".
            InvalidInputError: the commit changed no row, is a rewind or a publish, or is not on
                this branch.
            SnapshotExpiredError: the rows that it removed have expired.
            NotFoundError: there is no such version.
        """
        return revert.revert(
            self.committer, version, replan=may_replan(on_conflict), message=message, author=author
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

        As in `git bisect`, the answer is right if no later commit removed all matching rows. Of n
        snapshots at most log2(n) + 1 are tested, by statistics alone if they suffice. A column that
        an earlier snapshot lacks is null there.

        Args:
            where: a SQL predicate with Spark's semantics, on the columns of the last snapshot.
            first: the oldest version to search; the oldest that has not expired if not given.
            last: the newest version to search; the head if not given.
            time_zone: the zone of the predicate's times without a zone.

        Raises:
            InvalidInputError: a broken predicate, an unknown column, or a column whose earlier type
                does not fit; a first version past the last, or a version of another branch.
            NotFoundError: there is no such version.
            SnapshotExpiredError: the version has expired.
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
        """Return the commits that brought the matching rows of the head, newest first.

        The counts add up to the number of matching rows. Compactions do not count; rewinds and
        publishes are followed to the commits that brought their content, on other branches too. A
        row that was written again counts for the commit that did so. If history has expired, rows
        count for the oldest snapshot that holds them, with `is_exact` false.

        Args:
            where: a SQL predicate with Spark's semantics.
            time_zone: the zone of the predicate's times without a zone.
            progress: called with each snapshot that is read, from the head back.

        Raises:
            InvalidInputError: an unknown column, or a broken predicate.
            CorruptObjectError: an object of the history is damaged.
        """
        return blame.blame(history_of(self), where, time_zone=time_zone, progress=progress)

    def fsck(self, *, deep: bool = False, progress: CheckProgress | None = None) -> FsckReport:
        """Check the whole table, and return a report of the damage and of what it affects.

        Reads every slot and segment of all branches and tags that has not expired, and lists the
        blocks; writes nothing. Damage is reported, never raised. For a table that can no longer be
        opened, use `fuse-stream fsck PATH`.

        Args:
            deep: also read every block once, and compare its rows with its record.
            progress: called with the number of objects read and the greatest possible number.

        Raises:
            StorageError: the store cannot be listed.
        """
        return fsck.check_table(
            self.metadata.store, self.metadata.clock, deep=flag_in("deep", deep), progress=progress
        )
