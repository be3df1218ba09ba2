"""The handle's methods of indexes.

Their modules are loaded at the first call, because every worker of Spark's loads the handle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from fuse_stream.format.names import Version
from fuse_stream.format.records import Snapshot
from fuse_stream.format.times import Timestamp
from fuse_stream.on_demand import OnDemand
from fuse_stream.table.reads import BranchReader

if TYPE_CHECKING:
    from fuse_stream.indexes import answer, define, refresh
    from fuse_stream.indexes.define import IndexState
    from fuse_stream.indexes.refresh import IndexRefresh, Progress
else:
    answer = OnDemand("fuse_stream.indexes.answer")
    define = OnDemand("fuse_stream.indexes.define")
    refresh = OnDemand("fuse_stream.indexes.refresh")


class BranchIndexes(BranchReader):
    """The methods of a handle that define, build and use indexes of its branch."""

    def create_aggregate(self, name: str, sql: str) -> Snapshot:
        """Define an aggregate, and return the new snapshot.

        From then on `refresh_indexes` and the optimizer keep its state for each large block, so
        that `aggregate` reads few rows. The definition names columns by their ids: it stays right
        when one is renamed.

        Args:
            name: letters, digits, dots, dashes and underscores.
            sql: such as "SELECT carrier, count(*) AS flights, sum(delay) FROM t GROUP BY carrier":
                plain columns; count, sum, min, max, avg, stddev, stddev_pop, variance, var_pop.
                The name of the table does not matter.

        Raises:
            InvalidInputError: the name or the text is not valid; a column does not exist, has a
                type that the function does not take, or is private.
            AlreadyExistsError: there is an index of this name.
            CorruptObjectError: the list of indexes is damaged; see `drop_index`.
            ConflictError: other writers won every attempt; try again.
        """
        return define.create_aggregate(self.committer, name, sql)

    def drop_index(self, name: str | None = None) -> Snapshot:
        """Drop an index, and return the new snapshot; all indexes if no name is given.

        Dropping all works also where the list of indexes is damaged.

        Raises:
            NotFoundError: there is no such index.
            CorruptObjectError: a name was given, and the list of indexes is damaged.
            ConflictError: other writers won every attempt; try again.
        """
        return define.drop_index(self.committer, name)

    def indexes(self) -> tuple[IndexState, ...]:
        """Return the indexes of the branch, by name, and what each covers of the newest snapshot.

        Raises:
            CorruptObjectError: the list of indexes is damaged; see `drop_index`.
        """
        return define.index_states(self.committer)

    def refresh_indexes(
        self, limit: int | None = None, *, progress: Progress | None = None
    ) -> IndexRefresh:
        """Compute what the indexes lack of the newest snapshot, and return what was done.

        Blocks of at least 0.8 of the target size are covered, except those with deleted rows and
        those with more than a tenth as many groups as rows. Safe beside all other writers; the
        change feed is empty. The optimizer does the same in the background.

        Args:
            limit: the most blocks to read, over all indexes; no limit if not given.
            progress: called with the number of blocks read, and of all to read.

        Raises:
            InvalidInputError: the limit is not valid; or `origins` lacks an origin of the clone.
            CorruptObjectError: a block or the list of indexes is damaged or missing; earlier
                commits of the run remain.
            ConflictError: other writers won every attempt; try again.
        """
        return refresh.refresh_indexes(self.committer, limit=limit, progress=progress)

    def aggregate(
        self,
        name: str,
        *,
        version: Version | None = None,
        timestamp: Timestamp | None = None,
        where: str | None = None,
        time_zone: str = "UTC",
    ) -> pa.Table:
        """Return the result of an aggregate at a version, as Spark's GROUP BY would.

        It is exact at every version: blocks that the index does not cover are read. The order of
        the groups is not defined. Sums of floating-point numbers may differ from Spark's in their
        last digits, as two runs of Spark do.

        Args:
            name: of the index, as the newest snapshot has it.
            version: as for `scan`; the newest if not given.
            timestamp: the last snapshot at or before this time.
            where: a SQL predicate on the columns by which rows are grouped, under their names in
                the result.
            time_zone: the zone of the predicate's times without a zone.

        Raises:
            NotFoundError: there is no such index or version.
            NumberOverflowError: a sum or an average does not fit its type.
            InvalidInputError: the version lacks a column of the aggregate; a broken predicate; or
                `origins` lacks an origin of the clone.
            CorruptObjectError: a block or the list of indexes is damaged or missing.
            SnapshotExpiredError: the version has expired.
        """
        head = self.head()
        snapshot = head
        if version is not None or timestamp is not None:
            snapshot = self.snapshot(version, timestamp=timestamp)
        return answer.aggregate(
            self.metadata, head, snapshot, name, where=where, time_zone=time_zone
        )
