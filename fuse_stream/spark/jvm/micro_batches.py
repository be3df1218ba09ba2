"""A stream of a scan of Spark's connectors: `FuseStreamReader` decides, this asks it.

Rules:
- Offsets, limits, leases and errors are those of `format("fuse")`. The text of an offset is the
  same, too.
- What is between two offsets is the same in every run: see `feed/follow.py`.
- Spark makes a stream for each query and each run of it, so a stream holds its query's reader.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from fuse_stream.feed.offsets import Batch
from fuse_stream.spark.format_stream import FuseStreamReader
from fuse_stream.spark.jvm.java_errors import SpeakingProxy
from fuse_stream.spark.jvm.planned_scan import READ, ScanWork, WorkReader
from fuse_stream.spark.jvm.proxies import jvm_of
from fuse_stream.spark.source_description import describe_source

_STREAMING = f"{READ}.streaming"


def offset_of(jvm: Any, found: dict[str, str | int]) -> Any:
    """Return an offset of ours as one of Spark's."""
    name = "org.apache.spark.sql.execution.streaming.runtime.SerializedOffset"
    return getattr(jvm, name)(json.dumps(found))


def default_limit(jvm: Any, reader: FuseStreamReader) -> Any:
    """Return the limit that Spark passes to `latestOffset`."""
    limits = getattr(jvm, f"{_STREAMING}.ReadLimit")
    is_limited = not isinstance(reader.getDefaultReadLimit(), ReadAllAvailable)
    # Its kind and number do not matter: the reader applies all limits.
    return limits.maxRows(1) if is_limited else limits.allAvailable()


def next_offset(jvm: Any, reader: FuseStreamReader, start: Any, limit: Any) -> Any:
    """Return the end of the batch from `start`, an offset of Spark's; None for no offset yet."""
    first: dict[str, str | int]
    first = reader.initialOffset() if start is None else json.loads(start.json())
    is_all = limit.getClass().getSimpleName() == "ReadAllAvailable"
    return offset_of(
        jvm, reader.latestOffset(first, ReadAllAvailable() if is_all else ReadMaxRows(1))
    )


def newest_offset(jvm: Any, reader: FuseStreamReader) -> Any:
    """Return the last offset that the stream can reach; None if it is not known."""
    found = reader.reportLatestOffset()
    return None if found is None else offset_of(jvm, found)


class PlannedStream(SpeakingProxy):
    """The stream of one run of a query."""

    def __init__(
        self,
        spark: SparkSession,
        reader: FuseStreamReader,
        work: WorkReader,
        plan: Callable[[Batch], ScanWork],
    ) -> None:
        self.jvm = jvm_of(spark)
        self._reader = reader
        self._work = work
        self._plan = plan

    # ---- MicroBatchStream

    def initialOffset(self) -> Any:  # noqa: N802 - Spark's names, here and below
        return offset_of(self.jvm, self._reader.initialOffset())

    def deserializeOffset(self, text: str) -> Any:  # noqa: N802
        return offset_of(self.jvm, json.loads(text))

    def latestOffset(self, *limited: Any) -> Any:  # noqa: N802
        if not limited:
            raise NotImplementedError("Spark passes the start and a limit")
        start, limit = limited
        return next_offset(self.jvm, self._reader, start, limit)

    def planInputPartitions(self, start: Any, end: Any) -> Any:  # noqa: N802
        batch = self._reader.plan(json.loads(start.json()), json.loads(end.json()))
        return self._work.plan(ScanWork() if batch is None else self._plan(batch))

    def createReaderFactory(self) -> Any:  # noqa: N802
        return self._work.factory()

    def commit(self, end: Any) -> None:
        self._reader.commit(json.loads(end.json()))

    def stop(self) -> None:
        """Do nothing: the reader holds no resource."""

    # ---- SupportsAdmissionControl, SupportsTriggerAvailableNow

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        return default_limit(self.jvm, self._reader)

    def reportLatestOffset(self) -> Any:  # noqa: N802
        return newest_offset(self.jvm, self._reader)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._reader.prepareForTriggerAvailableNow()

    def toString(self) -> str:  # noqa: N802
        return describe_source(self._reader.options.location.path)

    class Java:
        implements = (
            f"{_STREAMING}.MicroBatchStream",
            f"{_STREAMING}.SupportsAdmissionControl",
            f"{_STREAMING}.SupportsTriggerAvailableNow",
        )
