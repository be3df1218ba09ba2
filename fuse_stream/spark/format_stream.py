"""The stream source of `format("fuse")`: Spark's protocol around a `Follower`.

Spark makes a reader in three places: in a Python process beside the driver that lives as long as
the query and plans its batches; in a second process that only pickles the reader; and in the
executors' workers, which read. So a reader holds its options and its schema, and opens the table
only when a method needs it.

- Spark calls `initialOffset` twice for a query without a checkpoint, and once more when its first
  batch runs again; `feed/offsets.py` says why that is harmless.
- A start that is named, by a tag or "HEAD", may mean another version in the next run. So the first
  batch of such a stream is empty, as that from "latest" is: its end, which the checkpoint keeps, is
  where the stream starts.
- Spark calls `commit` when it plans the next batch, so never for the last one; it may not call
  `stop`.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import LongType, StringType, StructField, StructType

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.errors import CorruptObjectError, FuseError, InvalidInputError, NotFoundError
from fuse_stream.feed.changes import expired
from fuse_stream.feed.consumer import Consumer, open_follower
from fuse_stream.feed.follow import Follower, head_selection
from fuse_stream.feed.offsets import Batch
from fuse_stream.feed.tasks import (
    BlocksTask,
    Task,
    iter_block_rows,
    plan_block_tasks,
    plan_tasks,
    read_task,
)
from fuse_stream.feed.views import LATEST, Limits, Request
from fuse_stream.format.feed_columns import FEED_FIELDS
from fuse_stream.format.names import Version
from fuse_stream.format.source_offset import (
    FROM_NOW,
    Offset,
    offset_from_json,
    offset_to_json,
)
from fuse_stream.objects.refs import load_branch
from fuse_stream.objects.slots import Metadata
from fuse_stream.reading.history import load_history
from fuse_stream.spark.options import ReadOptions
from fuse_stream.spark.types import columns_of_spark, spark_schema

_LOG = logging.getLogger(__name__)

_FEED_FIELDS = from_arrow_schema(pa.schema(FEED_FIELDS)).fields
FEED_NAMES = frozenset(field.name for field in _FEED_FIELDS)
BLOCKS_SCHEMA = StructType(
    [
        _FEED_FIELDS[0],
        StructField("block_id", StringType(), nullable=False),
        StructField("row_count", LongType(), nullable=False),
        StructField("file_size", LongType(), nullable=False),
        StructField("col_stats", StringType(), nullable=False),
        *_FEED_FIELDS[1:],
    ]
)
"""The columns of feed "blocks". `col_stats` is JSON text, because the columns' types differ."""


def stream_schema(options: ReadOptions) -> StructType:
    """Return the schema of a stream with these options that is loaded now.

    Raises:
        NotFoundError: there is no table, or no such branch.
        InvalidInputError: an unknown column, or a broken predicate.
        UnsupportedFormatError: a newer release wrote the table.
    """
    request = _request(options)
    store = options.location.store()
    try:
        selection = head_selection(store, request)
    except NotFoundError as error:
        if Metadata(store, SYSTEM_CLOCK).find_table_file() is not None:
            raise
        raise NotFoundError(
            f"{error.message}; if another query creates it, wait for it with "
            'option("waitForTable", "60s")',
            **error.context,
        ) from error
    if request.feed == "blocks":
        return BLOCKS_SCHEMA
    columns = spark_schema(selection.schema)
    return StructType([*columns, *_FEED_FIELDS]) if request.feed != "append" else columns


class FuseStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows one branch of a table."""

    def __init__(
        self, options: ReadOptions, schema: StructType, *, is_history: bool = False
    ) -> None:
        """Keep the options and the schema that the stream was loaded with; open nothing.

        `is_history` is for a batch read, which delivers undone commits too.
        """
        self.options = options
        self.schema = schema
        self._request = dataclasses.replace(_request(options), is_history=is_history)
        self._opened: Follower | Consumer | None = None
        self._is_pinned = False
        start = options.starting_version, options.starting_timestamp
        self._must_warn_of_start = start != (None, None)

    def __reduce__(self) -> tuple[object, ...]:
        return FuseStreamReader, (self.options, self.schema)

    # ---- planning, beside the driver

    def initialOffset(self) -> dict[str, str | int]:  # noqa: N802 - Spark's name
        self._must_warn_of_start = False  # the options are used
        return offset_to_json(self._follower().first_offset())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # Spark passes only one limit back. It shows that there are limits; all are applied here.
        limits = self._request.limits
        if limits.rows is not None:
            return ReadMaxRows(limits.rows)
        if limits.bytes is not None:
            return ReadMaxBytes(limits.bytes)
        if limits.commits is not None:
            return ReadMaxFiles(limits.commits)
        return ReadAllAvailable()

    def latestOffset(  # noqa: N802
        self, start: dict[str, str | int], limit: ReadLimit
    ) -> dict[str, str | int]:
        asked = offset_from_json(start)
        if self._is_named_start(asked):
            return offset_to_json(self._find_named_start())
        follower = self._follower()
        self._warn_of_ignored_start()
        is_limited = not isinstance(limit, ReadAllAvailable)
        return offset_to_json(follower.next_offset(asked, is_limited=is_limited))

    def reportLatestOffset(self) -> dict[str, str | int] | None:  # noqa: N802
        # Spark calls this right after `latestOffset`, which has just read the head.
        offset = self._follower().head_offset()
        return None if offset is None else offset_to_json(offset)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._is_pinned = True
        self._follower().pin_head()

    def partitions(
        self, start: dict[str, str | int], end: dict[str, str | int]
    ) -> Sequence[InputPartition]:
        batch = self.plan(start, end)
        return [] if batch is None else [InputPartition(task) for task in self.tasks(batch)]

    def plan(self, start: dict[str, str | int], end: dict[str, str | int]) -> Batch | None:
        """Return the batch between two offsets; None if it has no rows."""
        if start == end:
            return None
        first, last = offset_from_json(start), offset_from_json(end)
        follower = self._follower()
        if self._is_named_start(first):
            if self._request.consumer is not None:
                follower.next_offset(last, is_limited=True)  # writes the lease on what follows
            return None
        self._warn_of_ignored_start()
        return follower.read_between(first, last)

    def tasks(self, batch: Batch) -> Sequence[Task | BlocksTask]:
        """Return the tasks that read a batch."""
        return plan_block_tasks(batch) if self._request.feed == "blocks" else plan_tasks(batch)

    def commit(self, end: dict[str, str | int]) -> None:
        self._follower().forget_before(offset_from_json(end))

    # ---- reading, in a worker

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:  # Spark's stand-in where there is nothing to read
            yield from self.read_task(partition.value)

    def read_task(self, task: Task | BlocksTask) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task, with the columns of the stream."""
        metadata = Metadata(self.options.location.store(), SYSTEM_CLOCK)
        schema = to_arrow_schema(self.schema, timezone="UTC")
        if isinstance(task, BlocksTask):
            branch = load_branch(metadata, self._request.branch)
            rows = iter_block_rows(metadata, branch.branch_id, task.ranges, schema)
        else:
            rows = read_task(metadata.store, task, schema)
        yield from self.name_expired(task.version_of, rows)

    def name_expired(
        self, version_of: Callable[[object], int | None], rows: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task; `version_of` names a version that has a block.

        Raises:
            SnapshotExpiredError: a block is missing because its version has expired.
        """
        try:
            yield from rows
        except CorruptObjectError as error:
            metadata = Metadata(self.options.location.store(), SYSTEM_CLOCK)
            floor = load_history(metadata, self._request.branch).floor
            version = version_of(error.context.get("block"))
            if version is not None and version < floor:
                raise expired(version, floor) from error
            raise

    # ---- parts

    def _follower(self) -> Follower | Consumer:
        if self._opened is None:
            end = self.options.ending_version
            if isinstance(end, str):
                self._request = dataclasses.replace(
                    self._request, ending_version=find_number(self.options, end)
                )
            self._opened = self._open(self._request)
        return self._opened

    def _open(self, request: Request) -> Follower | Consumer:
        columns = None
        if request.feed != "blocks":
            fields = [field for field in self.schema if field.name not in FEED_NAMES]
            columns = columns_of_spark(StructType(fields))
        return open_follower(self.options.location.store(), request, columns)

    def _is_named_start(self, offset: Offset) -> bool:
        """True for the start of the first batch of a stream whose start is a name."""
        is_named = _is_name(self.options.starting_version)
        return is_named and offset.is_undecided and offset.index == FROM_NOW

    def _find_named_start(self) -> Offset:
        """Return the offset before the commit that the start names now."""
        named = self.options.starting_version
        assert isinstance(named, str)
        self._follower()  # finds the end
        number = find_number(self.options, named)
        request = dataclasses.replace(self._request, starting_version=number)
        found = self._open(request).first_offset()
        if self._is_pinned:
            self._opened = self._open(self._request)
            self._opened.pin_head()  # anew: the first pin may be before the start
        return found

    def _warn_of_ignored_start(self) -> None:
        """Warn once that the start options have no effect beside a checkpoint's offset."""
        if self._must_warn_of_start:
            _LOG.warning(
                "the checkpoint has an offset to continue from; startingVersion and "
                "startingTimestamp are ignored [path=%r, startingVersion=%r, startingTimestamp=%r]",
                self.options.location.path,
                self.options.starting_version,
                self.options.starting_timestamp,
            )
            self._must_warn_of_start = False


class RefusingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises the error of a stream that cannot be read, at each call.

    If `streamReader` raises, PySpark shows an `UnboundLocalError` after the error: its
    `python_streaming_source_runner` calls `stop()` on the reader that it did not get.
    """

    def __init__(self, error: FuseError) -> None:
        self.error = error

    def _refuse(self, *_arguments: Any, **_named: Any) -> NoReturn:
        raise self.error

    initialOffset = latestOffset = partitions = read = _refuse  # noqa: N815 - Spark's names
    prepareForTriggerAvailableNow = _refuse  # noqa: N815


def find_number(options: ReadOptions, version: Version) -> int:
    """Return the number of a version of the branch that the options name.

    Raises:
        InvalidInputError: it is not in the history of this branch.
        NotFoundError: there is no such version or tag, or no such branch.
        SnapshotExpiredError: it has expired.
    """
    location = options.location
    history = load_history(Metadata(location.store(), SYSTEM_CLOCK), location.branch)
    remedy = "name a version that is, or the branch that has it with the option branch"
    return history.get_own(version, branch=location.branch, remedy=remedy).snapshot.version


def _is_name(version: Version | None) -> bool:
    return isinstance(version, str) and version != LATEST


def _request(options: ReadOptions) -> Request:
    """Return what a stream asks for, without an end that is a name, and "latest" for such a start.

    Raises:
        InvalidInputError: the feed is none.
    """
    if options.feed == "table":
        raise InvalidInputError(
            'a stream reads a feed: feed is "changes", "append", "upserts" or "blocks"'
        )
    start, end = options.starting_version, options.ending_version
    return Request(
        branch=options.location.branch,
        feed=options.feed or "changes",
        columns=options.columns,
        where=options.where,
        time_zone=options.time_zone,
        starting_version=LATEST if isinstance(start, str) else start,
        starting_timestamp=options.starting_timestamp,
        after_version=options.after_version,
        ending_version=None if isinstance(end, str) else end,
        ending_timestamp=options.ending_timestamp,
        skip_change_commits=options.skip_change_commits,
        limits=Limits(
            rows=options.max_rows_per_trigger,
            bytes=options.max_bytes_per_trigger,
            commits=options.max_commits_per_trigger,
        ),
        consumer=options.consumer,
        on_expired=options.on_expired or "fail",
    )
