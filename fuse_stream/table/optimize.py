"""The handle's methods that optimize a branch: compact, recluster, expire, vacuum and stats.

Their modules are loaded at the first call, because every worker of Spark's loads the handle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from fuse_stream.format.names import Version, flag_in
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
    from fuse_stream.table import metadata_tables, stats
    from fuse_stream.table.stats import TableStats
else:
    metadata_tables = OnDemand("fuse_stream.table.metadata_tables")
    expire = OnDemand("fuse_stream.expiry.expire")
    vacuum = OnDemand("fuse_stream.expiry.vacuum")
    compact = OnDemand("fuse_stream.optimize.compact")
    recluster = OnDemand("fuse_stream.optimize.recluster")
    stats = OnDemand("fuse_stream.table.stats")


class BranchOptimization(BranchReader):
    """The methods of a handle that rewrite blocks, expire versions and delete files."""

    def compact(
        self, limit: int | None = None, *, tiered: bool = False, progress: Progress | None = None
    ) -> CompactionResult:
        """Merge small neighbouring blocks into larger ones; the rows and their order stay the same.

        Safe beside readers and writers; the change feed is empty. Blocks that another writer
        replaces or removes meanwhile are skipped. Each new block is read again and compared row by
        row before the commit. Memory: up to four blocks of the target size for each of Arrow's
        threads, of which at most four are used.

        Args:
            limit: the most blocks to rewrite; all small ones if not given.
            tiered: rewrite a small block only when the blocks after it have as many rows: for
                frequent runs, so that they do not rewrite the same rows each time.
            progress: called with the number of blocks rewritten, and of all to rewrite.

        Raises:
            InvalidInputError: the limit is not valid; or `origins` lacks an origin of the clone.
            CorruptObjectError: a block is damaged or missing; earlier commits of the run remain.
            ConflictError: other writers won every attempt; try again.
            CommitStateUnknownError: the store failed; the commit may have landed. A second call is
                safe.
        """
        return compact.compact(self.committer, limit=limit, tiered=tiered, progress=progress)

    def recluster(
        self, limit: int | None = None, *, progress: Progress | None = None
    ) -> ReclusterResult:
        """Sort the rows of blocks that overlap in the cluster key together; the rows stay the same.

        A search for one key then reads few blocks. Each round makes one snapshot. Blocks older than
        the key come first, then the deepest overlaps, until the average depth is at most
        `fuse.cluster.depth` or sorting cannot lower it. The next run sorts what other writers
        commit meanwhile. Otherwise as `compact`. Memory: about twelve blocks of the target size.

        Args:
            limit: the most blocks to rewrite; no limit if not given.
            progress: called with the number of blocks rewritten, and of those known to need it.

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
            limit: the most blocks that both together rewrite; all that need it if not given.
            progress: as for `compact`; called for `compact`, then for `recluster`.

        Raises:
            InvalidInputError, CorruptObjectError, ConflictError, CommitStateUnknownError: as
                `compact`; earlier commits of the run remain.
        """
        return recluster.optimize(self.committer, limit=limit, progress=progress)

    def clustering(self) -> Clustering:
        """Return the overlap of the head's blocks in the cluster key.

        Raises:
            InvalidInputError: the table has no cluster key.
        """
        return recluster.clustering(self.committer)

    def metadata_table(self, name: str, *, version: Version | None = None) -> pa.Table:
        """Return a metadata table: rows about the table. docs/seeing.md lists the columns.

        Args:
            name: "snapshots", "history", "segments", "blocks", "columns", "statistics", "refs",
                "tags", "branches", "ledger", "consumers" or "clustering_information".
            version: for rows about one snapshot, that snapshot; the newest if not given.

        Raises:
            InvalidInputError: there is no such metadata table; a version is given for one that is
                not about a version; or the table has no cluster key.
            NotFoundError, SnapshotExpiredError: as `scan`.
            CorruptObjectError: an object that is needed is damaged or missing.
        """
        return metadata_tables.metadata_table(self, name, version)

    def stats(self) -> TableStats:
        """Return the sizes of the branch, its recent optimization, and its properties.

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
        """Expire old snapshots of this branch: one commit raises its floor. Return what expired.

        A snapshot's age is the time since the next snapshot was published. The newest snapshot
        stays, and all that are younger than the table's grace. Tags, clones, other branches and
        consumers with a live lease can still read the snapshots that they need. The next vacuum
        deletes the rows. Ledger entries that were idle for `fuse.ledger.retain` are removed.

        Args:
            older_than: the least age to expire, a `timedelta` or text such as "7d"; the property
                `fuse.retain` if neither argument is given.
            keep_last: how many of the newest snapshots stay. With both arguments, a snapshot
                expires only if both allow it.
            dry_run: return the same report, but commit nothing.

        Raises:
            InvalidInputError: neither an argument nor `fuse.retain` is set.
        """
        return expire.expire(
            self.committer,
            older_than=older_than,
            keep_last=keep_last,
            dry_run=flag_in("dry_run", dry_run),
        )

    def vacuum(
        self, *, dry_run: bool = False, progress: VacuumProgress | None = None
    ) -> VacuumReport:
        """Delete the files of all branches that nothing needs any more; return a report.

        Safe beside writers, readers and other vacuums. Commits a fence on every branch before it
        deletes anything. Files of a commit in flight are kept: a file is deleted only if two
        vacuums, `fuse.vacuum.age` apart, ran after it was written.

        Args:
            dry_run: return the same report, but write and delete nothing.
            progress: called with the current step, how much of it is done, and its total.

        Raises:
            CorruptObjectError: an object that must be kept is damaged or missing; nothing was
                deleted.
            StorageError: the store failed; run vacuum again.
        """
        dry_run = flag_in("dry_run", dry_run)
        return vacuum.vacuum(self.committer, dry_run=dry_run, progress=progress)
