"""The verbs of a table's handle that keep it in good shape.

What they do is loaded when they are called: every worker of Spark's loads a table's handle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fuse_stream.on_demand import on_demand
from fuse_stream.reading.branch import BranchReader

if TYPE_CHECKING:
    from fuse_stream.maintenance.compact import CompactionResult, Progress
    from fuse_stream.maintenance.stats import TableStats

_compact: Callable[..., CompactionResult] = on_demand("fuse_stream.maintenance.compact", "compact")
_table_stats: Callable[..., TableStats] = on_demand("fuse_stream.maintenance.stats", "table_stats")


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
        row, before anything is committed. Memory: the rows of up to three blocks of the target size
        for each of Arrow's threads, four at the most.

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
        return _compact(self.committer, limit=limit, tiered=tiered, progress=progress)

    def stats(self) -> TableStats:
        """Return what the branch is made of, what its upkeep did lately, and the policy in force.

        Reads the newest 1,000 snapshots, and no block.
        """
        return _table_stats(self.committer)
