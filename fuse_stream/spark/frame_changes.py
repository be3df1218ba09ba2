"""Apply a DataFrame of a change feed as one commit: its rows are fetched to the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from fuse_stream.commit.plan import Staged
from fuse_stream.format.feed_columns import FEED_FIELDS
from fuse_stream.format.schema import Column
from fuse_stream.objects.slots import Stored
from fuse_stream.on_demand import OnDemand
from fuse_stream.spark.collect import FetchPolicy, fetch_all
from fuse_stream.table.handle import Table

if TYPE_CHECKING:
    from fuse_stream.dml import replicate
else:  # the workers of Spark load this module
    replicate = OnDemand("fuse_stream.dml.replicate")


def table_columns(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns of a feed without those that the feed adds."""
    added = {field.name for field in FEED_FIELDS}
    return tuple(column for column in columns if column.name not in added)


class FrameChanges:
    """The rows of a DataFrame that reads a feed. `collect` runs its plan."""

    def __init__(
        self, df: DataFrame, table: Table, *, merge_schema: bool, case_sensitive: bool
    ) -> None:
        self.row_count = 0
        """Rows of the feed."""
        self.byte_count = 0
        """In memory, uncompressed."""

        self._df = df
        self._table = table
        self._merge_schema = merge_schema
        self._case_sensitive = case_sensitive
        self._staging: replicate.ReplicateStaging | None = None

    def collect(self, _head: Stored, _policy: FetchPolicy | None) -> None:
        """Run the plan, and fetch the rows.

        Raises:
            InvalidInputError: the rows are not those of a feed, or too many for the driver; nothing
                was written.
        """
        changes = fetch_all(self._df)
        self.row_count, self.byte_count = len(changes), changes.nbytes
        self._staging = replicate.ReplicateStaging(
            self._table.metadata,
            changes,
            merge_schema=self._merge_schema,
            case_sensitive=self._case_sensitive,
        )

    def stage(self, head: Stored, before: Staged | None) -> Staged:
        """Stage the collected changes for `head`; errors of `Table.replicate`."""
        assert self._staging is not None
        return self._staging.stage(head, before)
