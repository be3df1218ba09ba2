"""The verbs of a table's handle that name snapshots, keep them, and go back to them."""

from __future__ import annotations

from collections.abc import Collection

from fuse_stream.commit.publish import may_replan
from fuse_stream.format.naming import Version
from fuse_stream.format.properties import Duration, duration_of
from fuse_stream.format.records import BranchRef, CloneRef, Snapshot, TagRef
from fuse_stream.objects.refs import delete_branch, delete_pin, delete_tag, iter_pins
from fuse_stream.reading.branch import BranchReader
from fuse_stream.recovery import naming
from fuse_stream.recovery.publish import Publication, publish
from fuse_stream.recovery.revert import revert


class BranchHistory(BranchReader):
    """What a handle does with the history of its branch."""

    def create_tag(
        self, name: str, version: Version | None = None, retain: Duration | None = None
    ) -> TagRef:
        """Give a snapshot a name that never moves, and that keeps it from expiring.

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
        return naming.create_tag(
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

        Args:
            name: as for a tag.
            version: where it forks off; this branch's head if not given.

        Raises:
            AlreadyExistsError, InvalidInputError, NotFoundError, SnapshotExpiredError: as
                `create_tag`.
        """
        return naming.create_branch(self.committer, name, version)

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
        that is to be replaced; merging two lines that have both moved is not offered.

        Args:
            branch: whose content and ledger.
            expected_head: the version of this branch's head, where it has moved since the fork.
            retire: applications that are given up knowingly: their entries would go back.
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
        """
        return publish(
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

        Raises:
            ConflictError: a later commit has rewritten its blocks; names that. Or another writer
                was faster, and `on_conflict` is not "replan".
            InvalidInputError: it changed no row, is a rewind or publish, or is not on this branch.
            SnapshotExpiredError: what it removed has expired.
            NotFoundError: there is no such version.
        """
        return revert(
            self.committer,
            version,
            replan=may_replan(on_conflict),
            message=message,
            author=author,
        )
