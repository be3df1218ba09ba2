"""The verbs of a table's handle that keep it in good shape.

What they do is loaded when they are called: every worker of Spark's loads a table's handle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuse_stream.format.properties import Duration
from fuse_stream.on_demand import OnDemand
from fuse_stream.table.reads import BranchReader

if TYPE_CHECKING:
    from fuse_stream.expiry import expire, vacuum
    from fuse_stream.expiry.expire import Expiry
    from fuse_stream.expiry.mark import Progress as VacuumProgress
    from fuse_stream.expiry.vacuum import VacuumReport
    from fuse_stream.optimize import compact, recluster
    from fuse_stream.optimize.compact import CompactionResult, Progress
    from fuse_stream.optimize.overlap import Clustering
    from fuse_stream.optimize.recluster import Optimization, ReclusterResult
    from fuse_stream.table import stats
    from fuse_stream.table.stats import TableStats
else:
    expire = OnDemand("fuse_stream.expiry.expire")
    vacuum = OnDemand("fuse_stream.expiry.vacuum")
    compact = OnDemand("fuse_stream.optimize.compact")
    recluster = OnDemand("fuse_stream.optimize.recluster")
    stats = OnDemand("fuse_stream.table.stats")


class BranchMaintenance(BranchReader):
    """What a handle does to keep its branch fast and its garbage away."""

    def compact(
        self,
        limit: int | None = None,
        *,
        tiered: bool = False,
        progress: Progress | None = None,
    ) -> CompactionResult:
        """Write small neighbouring blocks into big ones; the rows and their order stay.

        Readers, writers and the change feed do not notice. Blocks that others replace or remove
        meanwhile are left to them. Every block that is written is read again and compared, row for
        row, before anything is committed. Memory: up to four times a block of the target size for
        each of Arrow's threads, four at the most.

        Args:
            limit: the most blocks to rewrite; all that are small if not given.
            tiered: leave a small block alone until as much stands behind it: for runs that come
                often, so that they do not rewrite the same rows each time.
            progress: called with how many blocks were rewritten, and how many there are.

        Raises:
            InvalidInputError: the limit is none; or a clone whose origins were not allowed.
            CorruptObjectError: a block is damaged or missing; what was committed before stays.
            ConflictError: other writers won every attempt; try again.
            CommitStateUnknownError: the store failed; the commit may have landed. A second call is
                safe.
        """
        return compact.compact(self.committer, limit=limit, tiered=tiered, progress=progress)

    def recluster(
        self, limit: int | None = None, *, progress: Progress | None = None
    ) -> ReclusterResult:
        """Sort blocks together that overlap in the order of the cluster key; the rows stay.

        So whoever looks for one key reads few blocks. The deepest overlaps come first, in rounds of
        one snapshot each, until the average depth is not above `fuse.cluster.depth`, or sorting
        cannot lower it; blocks that were written before the key was set come before all. What
        others commit meanwhile is left to the next run. Otherwise as `compact`. Memory: the rows of
        four blocks of the target size, about three times while they are sorted.

        Args:
            limit: the most blocks to rewrite; until all is well if not given.
            progress: called with how many blocks were rewritten, and how many are known to be due.

        Raises:
            InvalidInputError: the table has no cluster key; or as `compact`.
            CorruptObjectError, ConflictError, CommitStateUnknownError: as `compact`.
        """
        return recluster.recluster(self.committer, limit=limit, progress=progress)

    def optimize(
        self, limit: int | None = None, *, progress: Progress | None = None
    ) -> Optimization:
        """Compact, then recluster if the table has a cluster key.

        Args:
            limit: the most blocks to rewrite, by both together; all that need it if not given.
            progress: as of `compact`, for the one and then for the other.

        Raises:
            InvalidInputError, CorruptObjectError, ConflictError, CommitStateUnknownError: as
                `compact`; what was committed before stays.
        """
        return recluster.optimize(self.committer, limit=limit, progress=progress)

    def clustering(self) -> Clustering:
        """Return how the blocks of the head overlap in the order of the cluster key.

        Raises:
            InvalidInputError: the table has no cluster key.
        """
        return recluster.clustering(self.committer)

    def stats(self) -> TableStats:
        """Return what the branch is made of, what its upkeep did lately, and the policy in force.

        Reads the newest 1,000 snapshots, and no block.
        """
        return stats.table_stats(self.committer)

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
        return expire.expire(
            self.committer, older_than=older_than, keep_last=keep_last, dry_run=dry_run
        )

    def vacuum(
        self, *, dry_run: bool = False, progress: VacuumProgress | None = None
    ) -> VacuumReport:
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
        return vacuum.vacuum(self.committer, dry_run=dry_run, progress=progress)
