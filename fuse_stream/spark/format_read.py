"""The batch readers of `format("fuse")`: Spark's protocol around a scan, and around a feed.

Spark makes a reader where it plans, and pickles it for the workers before it asks for the
partitions. So all that `read` needs is decided in the constructor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.errors import NotFoundError, SchemaChangedError
from fuse_stream.format.records import Snapshot
from fuse_stream.format.side_schemas import shown_side
from fuse_stream.objects.slots import Metadata
from fuse_stream.reading.history import expiry_reported
from fuse_stream.reading.scan import (
    Selection,
    prune,
    read_each,
    readers_in_task,
    select,
)
from fuse_stream.reading.tasks import iter_batches, split_work, without_statistics, work_bytes
from fuse_stream.spark.format_stream import FuseStreamReader, find_number
from fuse_stream.spark.options import ReadOptions
from fuse_stream.spark.types import spark_schema
from fuse_stream.table.handle import Table, open_at


def find_rows(options: ReadOptions, table: Table) -> tuple[Snapshot, Selection]:
    """Return the snapshot and the columns that a read without a feed gets.

    Raises:
        NotFoundError: no such version, or the version has no such side.
        SnapshotExpiredError: the version has expired.
        InvalidInputError: an unknown column, or a broken predicate.
    """
    snapshot = table.snapshot(options.version_as_of, timestamp=options.timestamp_as_of)
    if options.side is not None:
        snapshot = shown_side(snapshot, options.side)
    return snapshot, select(
        snapshot.schema, columns=options.columns, where=options.where, time_zone=options.time_zone
    )


class FuseBatchReader(DataSourceReader):
    """Reads one snapshot.

    It does not define `pushFilters`: Spark 4.2 and 4.3 keep one plan for all scans of a loaded
    DataFrame. `df.where("a = 1").union(df.where("a = 2"))` would read both sides with the last
    filter, and so would a later `df.count()`. The option `where` prunes blocks instead.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Load the snapshot that the options name.

        Raises:
            SchemaChangedError: the snapshot's columns are not those of `schema`.
        """
        self.options = options
        self.schema = schema
        table = open_at(options.location)
        self.store = table.metadata.store
        snapshot, self.selection = find_rows(options, table)
        found = spark_schema(self.selection.schema)
        if found != schema:
            raise SchemaChangedError(
                "the table's columns have changed since this DataFrame was made; load it again",
                version=snapshot.version,
                expected=schema.simpleString(),
                found=found.simpleString(),
            )
        self.place = snapshot.branch_id, snapshot.version
        self._planned: tuple[Table, Snapshot] | None = (table, snapshot)

    def __getstate__(self) -> dict[str, object]:
        # It holds the table's metadata: megabytes that no worker needs.
        return {**self.__dict__, "_planned": None}

    def partitions(self) -> Sequence[InputPartition]:
        assert self._planned is not None
        table, snapshot = self._planned
        found = prune(table.metadata, snapshot, self.selection)
        blocks = tuple(without_statistics(block) for block in found)
        parts = split_work([work_bytes(block) for block in blocks])
        return [InputPartition(blocks[part]) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # Spark's placeholder for an empty list of partitions
            return
        schema = to_arrow_schema(self.schema, timezone="UTC")
        with expiry_reported(Metadata(self.store, SYSTEM_CLOCK), self.place):
            blocks = ((block, self.selection) for block in partition.value)
            found = read_each(self.store, blocks, readers=readers_in_task(self.store))
            yield from iter_batches((((), rows) for rows in found), schema)


class FuseFeedReader(DataSourceReader):
    """Reads a feed between two versions: a stream of one batch, of every commit."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Find the versions that the options name.

        Raises:
            InvalidInputError: one is not in the history of this branch.
            NotFoundError: there is no such tag, or no such version.
            SnapshotExpiredError: one has expired.
        """
        start, end = options.starting_version, options.ending_version
        if isinstance(start, str):
            start = find_number(options, start)
        if isinstance(end, str):
            end = find_number(options, end)
        self.options = dataclasses.replace(options, starting_version=start, ending_version=end)
        self.stream = FuseStreamReader(self.options, schema, is_history=True)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions of the whole feed.

        Raises:
            NotFoundError: the start or the end is past the head.
            InvalidInputError: the end is before the start; or a commit removes rows and the feed
                is "append".
        """
        _check_end(self.options)
        self.stream.prepareForTriggerAvailableNow()
        start = self.stream.initialOffset()
        end = start
        # A stream stops before a commit that it must refuse, and raises at the next call.
        while (further := self.stream.latestOffset(end, ReadAllAvailable())) != end:
            end = further
        return self.stream.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.stream.read(partition)


def _check_end(options: ReadOptions) -> None:
    """Raise if the end is past the head: a stream would wait for it, a batch cannot."""
    if options.ending_version is None and options.ending_timestamp is None:
        return
    try:
        open_at(options.location).snapshot(
            options.ending_version, timestamp=options.ending_timestamp
        )
    except NotFoundError as error:
        raise NotFoundError(
            "the end lies outside the table's history; leave it out to read to the newest commit",
            endingVersion=options.ending_version,
            endingTimestamp=options.ending_timestamp,
        ) from error
