"""A stream of a table as a `Source` of Spark's micro-batches: blocks are read by Spark's reader.

Rules:
- Offsets, limits, leases and errors are those of `format("fuse")`: one reader decides for both. The
  text of an offset is the same too, so a checkpoint of one continues with the other.
- Rows that a block holds as the feed delivers them come from a scan by Spark. Other rows are
  computed from several blocks; Python workers do that, as they do for `format("fuse")`.
- One DataFrame may be started as several queries. Each has a reader of its own, by its query id.
- When a query starts again, Spark asks for its last committed batch and drops what it gets. The
  versions of that batch may have expired, so it is not planned.
- Settings of the user's session are read twice: for the predicate when the stream is made, for the
  reading of files when a query starts. What the user sets later changes nothing.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from fuse_stream.feed.changes import Piece
from fuse_stream.feed.offsets import Batch
from fuse_stream.feed.tasks import BlocksTask, Task, plain_pieces, plan_compared_tasks
from fuse_stream.format.schema import Schema
from fuse_stream.reading.scan import Selection
from fuse_stream.spark.block_list import KnownBlocks
from fuse_stream.spark.block_scan import (
    BlockScan,
    columns_of,
    filter_options,
    in_session,
    reader_session,
    scan_blocks,
    session_like,
    without_ids,
)
from fuse_stream.spark.format_stream import FuseStreamReader
from fuse_stream.spark.jvm.feed_work import MARKS
from fuse_stream.spark.jvm.file_scan import is_local
from fuse_stream.spark.jvm.java_errors import SpeakingProxy, let_errors_through
from fuse_stream.spark.jvm.micro_batches import (
    default_limit,
    newest_offset,
    next_offset,
    offset_of,
)
from fuse_stream.spark.jvm.proxies import java_class, jvm_of, scala_object, scala_seq
from fuse_stream.spark.options import ReadOptions
from fuse_stream.spark.source_description import describe_source
from fuse_stream.spark.types import spark_schema

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

_STREAMING = "org.apache.spark.sql.execution.streaming"
_READ = "org.apache.spark.sql.connector.read.streaming"
_QUERY_ID = "sql.streaming.queryId"


@dataclass(slots=True, kw_only=True)
class _Run:
    """One run of a query."""

    reader: FuseStreamReader
    session: JavaObject
    """The session of the JVM in which its blocks are read."""
    has_planned: bool = False
    """True if the query has asked for an offset or a batch in this run."""


class Condition:
    """A predicate as Spark evaluates it, with the settings that a session has now."""

    def __init__(self, spark: SparkSession, where: str, *, time_zone: str) -> None:
        """Parse the predicate; `time_zone` is that of its times without a zone."""
        self.session = session_like(spark, {"spark.sql.session.timeZone": time_zone})
        self.expression = java_class(jvm_of(spark), "org.apache.spark.sql.functions").expr(where)


class StreamSource(SpeakingProxy):
    """The source of a streaming DataFrame."""

    def __init__(
        self,
        spark: SparkSession,
        options: ReadOptions,
        schema: StructType,
        *,
        condition: Condition | None,
    ) -> None:
        """Keep what a query's reader is made of; open nothing.

        `condition` is the predicate of the options as Spark evaluates it; None if there is none, or
        if only `format("fuse")` reads it as it is meant.
        """
        self.options = options
        self._spark = spark
        self.jvm = jvm_of(spark)
        let_errors_through(spark)
        self._schema = schema
        self._condition = condition
        is_filtered = options.where is not None
        self._is_by_spark = options.feed != "blocks" and is_filtered == (condition is not None)
        self._is_marked = options.feed != "append"
        self._runs: dict[str, _Run] = {}
        self._columns: dict[tuple[str, ...], Any] = {}
        """By the columns that are widened; each batch selects the same ones."""

    # ---- Source

    def schema(self) -> Any:
        session: Any = self._spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
        return session.parseDataType(self._schema.json())

    def getOffset(self) -> Any:  # noqa: N802 - Spark's names, here and below
        raise NotImplementedError("Spark calls latestOffset")

    def getBatch(self, start: Any, end: Any) -> Any:  # noqa: N802
        run = self._run()
        if not run.has_planned and self._is_committed():
            return self._nothing()
        run.has_planned = True
        first = json.loads(start.get().json()) if start.isDefined() else run.reader.initialOffset()
        batch = run.reader.plan(first, json.loads(end.json()))
        return self._nothing() if batch is None else self._rows(run, batch)

    def commit(self, end: Any) -> None:
        self._run().reader.commit(json.loads(end.json()))

    def stop(self) -> None:
        self._runs.pop(self._query_id(), None)

    def initialOffset(self) -> Any:  # noqa: N802
        return None

    def deserializeOffset(self, text: str) -> Any:  # noqa: N802
        return offset_of(self.jvm, json.loads(text))

    # ---- SupportsAdmissionControl, SupportsTriggerAvailableNow

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        return default_limit(self.jvm, self._run().reader)

    def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802
        run = self._run()
        run.has_planned = True
        return next_offset(self.jvm, run.reader, start, limit)

    def reportLatestOffset(self) -> Any:  # noqa: N802
        return newest_offset(self.jvm, self._run().reader)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._run().reader.prepareForTriggerAvailableNow()

    def toString(self) -> str:  # noqa: N802
        return describe_source(self.options.location.path)

    class Java:
        implements = (
            f"{_STREAMING}.Source",
            f"{_READ}.SupportsAdmissionControl",
            f"{_READ}.SupportsTriggerAvailableNow",
        )

    # ---- parts

    def _query_id(self) -> str:
        # Spark calls in the query's thread, and this asks for a property of the calling thread.
        return str(self._spark.sparkContext.getLocalProperty(_QUERY_ID))

    def _run(self) -> _Run:
        query_id = self._query_id()
        if query_id not in self._runs:
            location = self.options.location.store().location("")
            self._runs[query_id] = _Run(
                reader=FuseStreamReader(self.options, self._schema),
                session=reader_session(self._spark, is_local=is_local(location)),
            )
        return self._runs[query_id]

    def _is_committed(self) -> bool:
        """True if the query's last batch was committed, so that no batch is to be run again."""
        session: Any = self._spark._jsparkSession  # noqa: SLF001 - the same
        queries = session.sharedState().activeStreamingQueries()
        execution = queries.get(self.jvm.java.util.UUID.fromString(self._query_id()))
        planned, committed = (
            log.getLatestBatchId() for log in (execution.offsetLog(), execution.commitLog())
        )
        return bool(committed.isDefined() and committed.get() == planned.get())

    def _nothing(self) -> Any:
        rows = self._spark.sparkContext.emptyRDD()._jrdd.rdd()  # noqa: SLF001 - the same
        return self._frame(rows)

    def _frame(self, rows: Any) -> Any:
        """Return an RDD of Spark's internal rows as a streaming Dataset."""
        session: Any = self._spark._jsparkSession  # noqa: SLF001 - the same
        return session.internalCreateDataFrame(rows, self.schema(), True)  # noqa: FBT003 - Java's

    def _rows(self, run: _Run, batch: Batch) -> Any:
        parts = []
        tasks: list[Task | BlocksTask]
        if self._is_by_spark:
            for selection, pieces in _by_selection(batch):
                parts.append(self._scanned(run.session, selection, pieces))
            tasks = [*plan_compared_tasks(batch)]
        else:
            tasks = [*run.reader.tasks(batch)]
        if tasks:
            parts.append(self._computed(run.reader, tasks))
        if not parts:
            return self._nothing()
        found = parts[0]
        for part in parts[1:]:
            found = found.union(part)
        return found

    def _scanned(self, session: JavaObject, selection: Selection, pieces: list[Piece]) -> Any:
        """Return the rows of pieces that are read alike, by Spark's reader."""
        store = self.options.location.store()
        schema = selection.read
        scan = BlockScan(
            schema=schema,
            blocks=KnownBlocks(store, [(each.block, self._marks(each)) for each in pieces]),
            options=filter_options(schema, schema, None),
            constants=MARKS if self._is_marked else (),
            is_streaming=True,
        )
        rows = scan_blocks(self._spark, session, scan)
        if self._condition is not None:
            filtered = in_session(self.jvm, self._condition.session, rows)
            filtered = filtered.filter(self._condition.expression)
            rows = in_session(self.jvm, session, filtered)
        return rows.select(self._columns_from(schema))

    def _columns_from(self, schema: Schema) -> Any:
        """Return the stream's columns, made of those of a commit, as a Scala `Seq`."""
        have = {field.name: field.dataType for field in spark_schema(schema)}
        widened = tuple(
            field.name
            for field in self._schema
            if field.name in have and have[field.name] != field.dataType
        )
        if widened not in self._columns:
            columns = columns_of(self.jvm, self._schema.fieldNames())
            session: Any = self._spark._jsparkSession  # noqa: SLF001 - the same
            for name in widened:
                to = session.parseDataType(self._schema[name].dataType.json())
                columns[name] = columns[name].cast(to)
            self._columns[widened] = scala_seq(self.jvm, without_ids(self.jvm, columns))
        return self._columns[widened]

    def _marks(self, piece: Piece) -> tuple[str | int, ...]:
        if not self._is_marked:
            return ()
        return piece.change_type, piece.version, piece.timestamp_us

    def _computed(self, reader: FuseStreamReader, tasks: list[Task | BlocksTask]) -> Any:
        """Return the rows of tasks, by Python workers."""
        sent = pa.table({"task": pa.array([pickle.dumps(task) for task in tasks], pa.binary())})
        frame = self._spark.createDataFrame(sent).mapInArrow(_TaskReader(reader), self._schema)
        return self._frame(frame._jdf.queryExecution().toRdd())  # noqa: SLF001 - the same


class _TaskReader:
    """Reads pickled tasks in a worker."""

    def __init__(self, reader: FuseStreamReader) -> None:
        self._reader = reader

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for data in batch.column(0):
                yield from self._reader.read_task(pickle.loads(data.as_py()))  # noqa: S301 - ours


def _by_selection(batch: Batch) -> list[tuple[Selection, list[Piece]]]:
    """Return the plain pieces of a batch, by the selection with which they are read."""
    found: dict[int, tuple[Selection, list[Piece]]] = {}
    for piece in plain_pieces(batch):
        selection = piece.selection or batch.selection
        found.setdefault(id(selection), (selection, []))[1].append(piece)
    return list(found.values())


def streaming_frame(spark: SparkSession, source: StreamSource) -> DataFrame:
    """Return a streaming DataFrame that reads a source."""
    jvm = jvm_of(spark)
    session: Any = spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
    types = java_class(jvm, "org.apache.spark.sql.catalyst.types.DataTypeUtils")
    relation = scala_object(jvm, f"{_STREAMING}.runtime.StreamingExecutionRelation")
    plan = relation.apply(
        source,
        types.toAttributes(source.schema()),
        jvm.scala.Option.empty(),
        getattr(relation, "apply$default$4")(),
        session,
    )
    return DataFrame(
        java_class(jvm, "org.apache.spark.sql.classic.Dataset").ofRows(session, plan), spark
    )
