"""The handle's methods that change rows: delete and update.

Their modules are loaded at the first call, because every worker of Spark's loads the handle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fuse_stream.format.names import flag_in
from fuse_stream.on_demand import OnDemand
from fuse_stream.table.reads import BranchReader

if TYPE_CHECKING:
    from fuse_stream.dml import delete, update
    from fuse_stream.dml.find import Progress as ChangeProgress
    from fuse_stream.dml.result import ChangeResult
else:
    delete = OnDemand("fuse_stream.dml.delete")
    update = OnDemand("fuse_stream.dml.update")


class BranchChanges(BranchReader):
    """The methods of a handle that delete and update rows."""

    def delete(
        self,
        where: str,
        *,
        time_zone: str = "UTC",
        dry_run: bool = False,
        message: str = "",
        author: str = "",
        progress: ChangeProgress | None = None,
    ) -> ChangeResult:
        """Delete the rows for which `where` holds, as one snapshot; no block is rewritten.

        The commit has the effect of a delete that runs alone on the newest snapshot, also beside
        other writers. Blocks are read that may hold a matching row and another one. The next
        compaction of a block removes the rows from its file.

        Args:
            where: a SQL predicate, as of `scan`; "true" for all rows.
            time_zone: of times in the predicate without a zone.
            dry_run: count the rows, and write nothing.
            message: shown by the log.
            author: shown by the log; never taken from the system.
            progress: called with the number of blocks searched, and of all to search.

        Returns:
            The commit, and the number of rows; no commit if no row matches.

        Raises:
            InvalidInputError: an unknown column or a broken predicate; or `origins` lacks an origin
                of the clone. Nothing was written.
            CorruptObjectError: a block is missing or damaged; nothing was committed.
            ConflictError: other writers won every attempt; nothing was committed.
            CommitStateUnknownError: the store failed; the commit may have landed. A second call is
                safe.
        """
        return delete.delete(
            self.committer,
            where,
            time_zone=time_zone,
            dry_run=flag_in("dry_run", dry_run),
            message=message,
            author=author,
            progress=progress,
        )

    def update(
        self,
        where: str,
        values: Mapping[str, object],
        *,
        time_zone: str = "UTC",
        dry_run: bool = False,
        message: str = "",
        author: str = "",
        progress: ChangeProgress | None = None,
    ) -> ChangeResult:
        """Set columns of the rows for which `where` holds, as one snapshot.

        Rows that have these values already are left alone. The others are hidden where they are and
        written to new blocks. The change feed shows them as `update_preimage` and
        `update_postimage`.

        Args:
            where: a SQL predicate, as of `scan`; "true" for all rows.
            values: the new value of each column to set, as Python or Arrow values.
            time_zone: of times in the predicate without a zone.
            dry_run: count the rows, and write nothing.
            message: shown by the log.
            author: shown by the log; never taken from the system.
            progress: called with the number of blocks searched, and of all to search.

        Returns:
            The commit, and the number of rows; no commit if no row has to change.

        Raises:
            InvalidInputError: an unknown column, a value that does not fit its column, or a broken
                predicate; or `origins` lacks an origin of the clone. Nothing was written.
            CorruptObjectError, ConflictError, CommitStateUnknownError: as `delete`.
        """
        return update.update(
            self.committer,
            where,
            values,
            time_zone=time_zone,
            dry_run=flag_in("dry_run", dry_run),
            message=message,
            author=author,
            progress=progress,
        )
