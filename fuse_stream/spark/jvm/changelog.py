"""`CHANGES` of Spark's SQL: what Spark's analyzer asks of a table's changes, and their scan.

Rules:
- The modes are ours (`feed/change_modes.py`). Spark is told that there is nothing left to do: no
  rows are carried over, no changes are intermediate, and updates have their images. Its own rules
  need a column that names a row and one that names its version. Tables without a key have none; and
  where there is a key, Spark takes a row that ends as it began for an update.
- The head is that of the analysis, so a DataFrame has the same rows whenever it is run.
- A scan may become a batch or a stream; Spark says which when it has built it. A batch delivers
  every commit from its first version to its last, undone ones too. A stream reads on along the line
  of the head, as all streams of ours.
- In a stream, `netChanges` are those of each micro-batch.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from pyspark.sql import SparkSession

from fuse_stream.errors import InvalidInputError, NotFoundError
from fuse_stream.feed.change_modes import ChangeMode, Deduplication
from fuse_stream.feed.changes import iter_units
from fuse_stream.feed.offsets import Batch
from fuse_stream.feed.views import Request, Views
from fuse_stream.format.records import Snapshot
from fuse_stream.reading.history import History
from fuse_stream.reading.scan import select
from fuse_stream.spark.format_stream import FuseStreamReader
from fuse_stream.spark.jvm.feed_work import MARKS, changes_work
from fuse_stream.spark.jvm.file_systems import find_reader_problem
from fuse_stream.spark.jvm.java_errors import SpeakingProxy
from fuse_stream.spark.jvm.micro_batches import PlannedStream
from fuse_stream.spark.jvm.planned_scan import (
    PlannedScan,
    PlannedScanBuilder,
    ScanColumns,
    ScanWork,
    WorkReader,
)
from fuse_stream.spark.jvm.proxies import java_array, java_class, jvm_of, options_of
from fuse_stream.spark.options import ReadOptions, parse_read_options
from fuse_stream.table.handle import open_at
from fuse_stream.table.location import TableLocation

_CATALOG = "org.apache.spark.sql.connector.catalog"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MODES: Mapping[str, Deduplication] = {
    "NONE": "none",
    "DROP_CARRYOVERS": "dropCarryovers",
    "NET_CHANGES": "netChanges",
}
_RANGE_OPTIONS = frozenset(
    {
        "startingversion",
        "endingversion",
        "startingtimestamp",
        "endingtimestamp",
        "startingboundinclusive",
        "endingboundinclusive",
        "deduplicationmode",
        "computeupdates",
    }
)
"""Options that Spark has parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRange:
    """The commits of a `CHANGES`: from a version or a time, to one or without an end."""

    first: str | int | None = None
    """A version, as text; or a time in microseconds. None if a stream names no start."""
    last: str | int | None = None
    includes_first: bool = True
    includes_last: bool = True

    @classmethod
    def of(cls, found: Any) -> Self:
        """Return the range that Spark has parsed."""
        kind = found.getClass().getSimpleName()
        if kind == "UnboundedRange":
            return cls()
        bounds = {
            "includes_first": bool(found.startingBoundInclusive()),
            "includes_last": bool(found.endingBoundInclusive()),
        }
        if kind == "VersionRange":
            end = found.endingVersion()
            last = str(end.get()) if end.isPresent() else None
            return cls(first=str(found.startingVersion()), last=last, **bounds)
        until = found.endingTimestamp()
        last_us = int(until.get()) if until.isPresent() else None
        return cls(first=int(found.startingTimestamp()), last=last_us, **bounds)

    def find_end(self, history: History, branch: str) -> int | None:
        """Return the last version; None if there is none, or if it is before the first one kept.

        Raises:
            NotFoundError: the version is past the head, or there is no such tag.
            InvalidInputError: the version is not in the history of the branch.
        """
        if self.last is None:
            return history.head.snapshot.version
        if isinstance(self.last, int):
            end_us = self.last - (not self.includes_last)
            if end_us >= history.head.snapshot.timestamp_us:
                return history.head.snapshot.version
            try:
                return history.get_at_or_before(end_us).snapshot.version
            except NotFoundError:
                return None
        end = history.get_own_number(self.last, branch=branch)
        history.load(end)
        return end - (not self.includes_last)

    def find_start(self, history: History, branch: str) -> int | None:
        """Return the first version; None if it is past the head. Raises as `find_end`."""
        if self.first is None:
            raise InvalidInputError(
                "a batch of changes needs its start: CHANGES FROM VERSION 1, or the option "
                "startingVersion or startingTimestamp"
            )
        if isinstance(self.first, int):
            start_us = self.first + (not self.includes_first)
            if start_us > history.head.snapshot.timestamp_us:
                return None
            return history.get_first_from(start_us).snapshot.version
        start = history.get_own_number(self.first, branch=branch)
        history.load(start)
        return start + (not self.includes_first)

    def check(self, history: History, branch: str) -> None:
        """Raise InvalidInputError if the range ends before it starts."""
        first, last = self.first, self.last
        if isinstance(first, str) and isinstance(last, str):
            history.get_span(first, last, branch=branch)
        elif isinstance(first, int) and isinstance(last, int) and first > last:
            raise InvalidInputError(
                "the changes end before they start; exchange the times",
                startingTimestamp=_iso(first),
                endingTimestamp=_iso(last),
            )


class Changelog(SpeakingProxy):
    """The changes of a table, as Spark's analyzer sees them."""

    def __init__(
        self, spark: SparkSession, name: str, location: TableLocation, context: Any
    ) -> None:
        """Read the table's head.

        Args:
            spark: the session of the catalog.
            name: the table's, for messages and plans.
            location: the table's.
            context: the `ChangelogContext` that Spark has parsed.

        Raises:
            NotFoundError: there is no such table, branch or version.
            InvalidInputError: the range ends before it starts; or the mode needs a key.
        """
        self._spark = spark
        self.jvm = jvm_of(spark)
        self._name = name
        self._location = location
        self._range = ChangeRange.of(context.range())
        table = open_at(location)
        self._history = History(table.metadata, table.committer.head())
        self._range.check(self._history, location.branch)
        self._end = self._range.find_end(self._history, location.branch)
        shown = self._history.head if self._end is None else self._history.load(self._end)
        self._selection = select(shown.snapshot.schema)
        self._mode = ChangeMode(
            deduplication=_MODES[context.deduplicationMode().name()],
            computes_updates=bool(context.computeUpdates()),
            key=_key_of(shown.snapshot),
        )
        self._columns = ScanColumns(schema=self._selection.schema, constants=MARKS)
        self._has_files = find_reader_problem(spark, location) is None
        # Raises if the mode needs a key.
        self._work(
            Batch(selection=self._selection),
            self._reader(ReadOptions(location=location, feed="changes")),
        )

    # ---- Changelog

    def name(self) -> str:
        return f"{self._name}.changes"

    def columns(self) -> Any:
        create = java_class(self.jvm, f"{_CATALOG}.Column").create
        user: Any = self._spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
        fields = user.parseDataType(self._columns.struct().json()).fields()
        made = [create(each.name(), each.dataType(), each.nullable()) for each in fields]
        return java_array(self.jvm, f"{_CATALOG}.Column", made)

    def containsCarryoverRows(self) -> bool:  # noqa: N802 - Spark's names, here and below
        return False

    def containsIntermediateChanges(self) -> bool:  # noqa: N802
        return False

    def representsUpdateAsDeleteAndInsert(self) -> bool:  # noqa: N802
        return False

    def newScanBuilder(self, options: Any) -> SpeakingProxy:  # noqa: N802
        given = options_of(options)
        return PlannedScanBuilder(self.jvm, self._columns, partial(self._scan, given))

    def rowId(self) -> Any:  # noqa: N802
        return java_array(self.jvm, "org.apache.spark.sql.connector.expressions.NamedReference", ())

    def rowVersion(self) -> Any:  # noqa: N802
        return None

    def toString(self) -> str:  # noqa: N802
        return self.name()

    class Java:
        implements = (f"{_CATALOG}.Changelog",)

    # ---- parts

    def _scan(self, options: Mapping[str, str], wanted: ScanColumns) -> SpeakingProxy:
        work = WorkReader(self._spark, self._columns, wanted)
        return PlannedScan(
            work,
            self._plan,
            description=f"fuse changes of {self._name}",
            open_stream=lambda _checkpoint: self._stream(options, work),
        )

    def _plan(self) -> ScanWork:
        history, branch = self._history, self._location.branch
        first = self._range.find_start(history, branch)
        last = self._end
        reader = self._reader(ReadOptions(location=self._location, feed="changes"))
        batch = Batch(selection=self._selection)
        if first is not None and last is not None and first <= last:
            old, new = history.load(first).snapshot, history.load(last).snapshot
            views = Views(Request(branch=branch), self._selection)
            units = iter_units(history, old.version, new.version, views)
            batch = Batch(selection=self._selection, units=tuple(units))
        return self._work(batch, reader)

    def _work(self, batch: Batch, reader: FuseStreamReader) -> ScanWork:
        return changes_work(batch, self._mode, reader, has_files=self._has_files)

    def _reader(self, options: ReadOptions) -> FuseStreamReader:
        return FuseStreamReader(options, self._columns.struct())

    def _stream(self, options: Mapping[str, str], work: WorkReader) -> SpeakingProxy:
        reader = self._reader(self._stream_options(options))
        return PlannedStream(self._spark, reader, work, lambda batch: self._work(batch, reader))

    def _stream_options(self, options: Mapping[str, str]) -> ReadOptions:
        """Return the options of a stream's reader.

        Raises:
            InvalidInputError: an option is unknown, or has no meaning here.
        """
        given = {
            name: value for name, value in options.items() if name.lower() not in _RANGE_OPTIONS
        }
        return stream_options(given, self._location, feed="changes", bounds=self._bounds())

    def _bounds(self) -> dict[str, Any]:
        """Return the fields of a reader's options that are the range of a stream."""
        found: dict[str, Any] = {}
        asked, branch = self._range, self._location.branch
        if isinstance(asked.first, int):
            found["starting_timestamp"] = _iso(asked.first + (not asked.includes_first))
        elif asked.first is not None:
            start = self._history.get_own_number(asked.first, branch=branch)
            name = "starting_version" if asked.includes_first else "after_version"
            found[name] = start
        if isinstance(asked.last, int):
            found["ending_timestamp"] = _iso(asked.last - (not asked.includes_last))
        elif asked.last is not None:
            found["ending_version"] = self._end
        return found


def stream_options(
    given: Mapping[str, str], location: TableLocation, *, feed: str, bounds: Mapping[str, Any]
) -> ReadOptions:
    """Return the options of the reader of a stream by name.

    Args:
        given: the options of the user, without those that say which table.
        location: of the table.
        feed: "changes" or "append".
        bounds: fields of the options that are known already.

    Raises:
        InvalidInputError: an option is unknown, or has no meaning here.
    """
    if any(name.lower() == "feed" for name in given):
        raise InvalidInputError(
            "a table that is read by its name has no option feed: spark.readStream.table reads "
            "what is added, spark.readStream.changes reads all changes"
        )
    parsed = parse_read_options({**given, "path": location.path, "feed": feed}, streaming=True)
    return dataclasses.replace(parsed, location=location, **bounds)


def _key_of(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the names of the columns by which rows are unique."""
    names = {column.id: column.name for column in snapshot.schema.columns}
    return tuple(names[column] for column in snapshot.key)


def _iso(time_us: int) -> str:
    return (_EPOCH + dt.timedelta(microseconds=time_us)).isoformat()
