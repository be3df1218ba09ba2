"""The verbs of a table's handle that keep it in good shape.

What they do is loaded when they are called: every worker of Spark's loads a table's handle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fuse_stream.format.properties import Duration
from fuse_stream.on_demand import on_demand
from fuse_stream.reading.branch import BranchReader

if TYPE_CHECKING:
    from fuse_stream.maintenance.expire import Expiry
    from fuse_stream.maintenance.mark import Progress
    from fuse_stream.maintenance.vacuum import VacuumReport

_expire: Callable[..., Expiry] = on_demand("fuse_stream.maintenance.expire", "expire")
_vacuum: Callable[..., VacuumReport] = on_demand("fuse_stream.maintenance.vacuum", "vacuum")


class BranchMaintenance(BranchReader):
    """What a handle does to keep its branch fast and its garbage away."""

    def expire(
        self,
        older_than: Duration | None = None,
        keep_last: int | None = None,
        *,
        dry_run: bool = False,
    ) -> Expiry:
        """Let the old snapshots of this branch expire: one commit that raises its floor.

        A snapshot's age runs from the moment when the next one was published. The newest stays, and
        what was superseded less than the table's grace ago. What a tag, a clone or another branch
        needs, or a consumer's live lease, can still be read by those. Rows go with the next vacuum.
        Streams that were idle for `fuse.ledger.retain` leave the ledger.

        Args:
            older_than: superseded so long ago, a `timedelta` or text such as "7d"; the property
                `fuse.retain` if neither argument is given.
            keep_last: so many of the newest stay. With both, only what both let go expires.
            dry_run: only tell what would be done.

        Raises:
            InvalidInputError: nothing says what may go.
        """
        return _expire(self.committer, older_than=older_than, keep_last=keep_last, dry_run=dry_run)

    def vacuum(self, *, dry_run: bool = False, progress: Progress | None = None) -> VacuumReport:
        """Delete what nothing needs any more, of all branches.

        Safe beside writers, readers and other vacuums. A commit of its own stands on every branch
        before anything is deleted. What may belong to a commit in flight waits: an object goes when
        two vacuums, `fuse.vacuum.age` apart, have passed since it was written.

        Args:
            dry_run: only tell what would be deleted; nothing at all is written.
            progress: called with what is being done, how much of it, and how much there is.

        Raises:
            CorruptObjectError: what is to be kept is damaged or missing; nothing was deleted.
            StorageError: the store failed; run it again.
        """
        return _vacuum(self.committer, dry_run=dry_run, progress=progress)
