"""A scan of Spark's connectors whose files the driver knows: nothing is listed.

Each file has constants, as in `file_scan`; here they are the values of a partition of Spark's own
`FilePartition`, which Spark's own Parquet reader adds to the rows. So no proxy reaches an executor.

A scan has one factory of readers for all of its partitions. If some of its rows must be computed by
Python, all are read by Python workers: by the source `fuse_tasks`.

Columns are found by id, in a session of the reader's (see `block_scan`). Columns that nobody asked
for are not read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types

from fuse_stream.format.schema import Schema, stored_form
from fuse_stream.spark.block_scan import reader_session, struct_of
from fuse_stream.spark.jvm.file_scan import (
    ROW_INDEX,
    Constant,
    ScannedFile,
    constants_struct,
    hadoop_path,
    is_local,
    unsafe_row,
)
from fuse_stream.spark.jvm.java_errors import SpeakingProxy
from fuse_stream.spark.jvm.packing import Packing
from fuse_stream.spark.jvm.proxies import (
    java_array,
    java_class,
    java_map,
    java_strings,
    jvm_of,
    scala_object,
    scala_seq,
)
from fuse_stream.spark.task_source import NAME, WORK, TaskWork, register_tasks
from fuse_stream.spark.types import spark_schema

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

_CONNECTOR = "org.apache.spark.sql.connector"
READ = f"{_CONNECTOR}.read"
_SOURCES = "org.apache.spark.sql.execution.datasources"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanColumns:
    """The columns of a scan: those of files, with their ids, then the constants."""

    schema: Schema
    has_row_index: bool = False
    """True if `ROW_INDEX` is a column of the files."""
    constants: tuple[Constant, ...] = ()

    def names(self) -> tuple[str, ...]:
        row_index = (ROW_INDEX,) if self.has_row_index else ()
        return (*self.schema.names(), *row_index, *(each.name for each in self.constants))

    def only(self, names: Sequence[str]) -> ScanColumns:
        """Return the columns that are among `names`, in their present order."""
        columns = tuple(each for each in self.schema.columns if each.name in names)
        return ScanColumns(
            schema=dataclasses.replace(self.schema, columns=columns),
            has_row_index=self.has_row_index and ROW_INDEX in names,
            constants=tuple(each for each in self.constants if each.name in names),
        )

    def struct(self) -> spark_types.StructType:
        """Return the columns as Spark's, without ids."""
        constants = constants_struct(self.constants)
        files = self._with_row_index(spark_schema(self.schema))
        return spark_types.StructType([*files.fields, *constants.fields])

    def files_struct(self) -> spark_types.StructType:
        """Return the columns of files as Spark's Parquet reader takes them, with ids.

        They have the names that files have, at the places of the columns of `struct`.
        """
        return self._with_row_index(struct_of(stored_form(self.schema)))

    def _with_row_index(self, fields: spark_types.StructType) -> spark_types.StructType:
        return fields.add(ROW_INDEX, "long") if self.has_row_index else fields


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanWork:
    """What a scan reads: files; or tasks, if there are any."""

    files: Sequence[ScannedFile] = ()
    """With values of all constants."""
    tasks: TaskWork | None = None


class WorkReader:
    """Plans the partitions of a scan's work, and makes what reads them."""

    def __init__(self, spark: SparkSession, columns: ScanColumns, read: ScanColumns) -> None:
        """Read the columns `read` of those that the work has."""
        self._spark = spark
        self.jvm = jvm_of(spark)
        self._columns = columns
        self._read = read
        self._python: Any = None

    @property
    def read_schema(self) -> Any:
        """The columns that are read, in the JVM."""
        user: JavaObject = self._spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
        return user.parseDataType(self._read.struct().json())

    def plan(self, work: ScanWork) -> Any:
        """Return the partitions of `work`; `factory` then makes what reads them."""
        self._python = None if work.tasks is None else self._python_batch(work.tasks)
        if self._python is not None:
            return self._python.planInputPartitions()
        partitions = self._file_partitions(work.files)
        return java_array(self.jvm, f"{READ}.InputPartition", partitions)

    def factory(self) -> Any:
        """Return what makes the readers of the partitions that were planned last."""
        if self._python is not None:
            return self._python.createReaderFactory()
        return self._parquet_scan().createReaderFactory()

    def by_partition(self) -> Any:
        """Return the mode in which each partition says whether it is read in columns."""
        return java_class(self.jvm, f"{READ}.Scan$ColumnarSupportMode").PARTITION_DEFINED

    def nothing(self, of: str) -> Any:
        """Return an empty array of a class of Java."""
        return java_array(self.jvm, of, ())

    def _reader_session(self, files: Sequence[ScannedFile] = ()) -> JavaObject:
        is_on_disk = bool(files) and is_local(files[0].location)
        return reader_session(self._spark, is_local=is_on_disk)

    def _parquet_scan(self) -> Any:
        jvm, reader = self.jvm, self._reader_session()
        nothing = jvm.scala.Option.empty()
        no_files = java_class(jvm, f"{_SOURCES}.InMemoryFileIndex")(
            reader,
            scala_seq(jvm, ()),
            scala_object(jvm, "scala.collection.immutable.Map").empty(),
            nothing,
            scala_object(jvm, f"{_SOURCES}.NoopCache"),
            nothing,
            nothing,
        )

        def struct(of: spark_types.StructType) -> Any:
            return reader.parseDataType(of.json())

        return java_class(jvm, f"{_SOURCES}.v2.parquet.ParquetScan")(
            reader,
            reader.sessionState().newHadoopConf(),
            no_files,
            struct(self._columns.files_struct()),
            struct(self._read.files_struct()),
            struct(constants_struct(self._read.constants)),
            java_array(jvm, "org.apache.spark.sql.sources.Filter", ()),
            java_class(jvm, "org.apache.spark.sql.util.CaseInsensitiveStringMap").empty(),
            nothing,
            scala_seq(jvm, ()),
            scala_seq(jvm, ()),
            java_array(jvm, f"{READ}.VariantExtraction", ()),
        )

    def _file_partitions(self, files: Sequence[ScannedFile]) -> list[Any]:
        """Return Spark's partitions of files: large ones split, small ones together."""
        jvm, reader = self.jvm, self._reader_session(files)
        cores = reader.leafNodeDefaultParallelism()
        most = Packing.of(reader).limit([file.byte_count for file in files], cores)
        new_row = java_class(jvm, "org.apache.spark.sql.catalyst.expressions.UnsafeRow")
        new_part = java_class(jvm, f"{_SOURCES}.PartitionedFile")
        spark_path = scala_object(jvm, "org.apache.spark.paths.SparkPath").fromPath
        kept = [each.name in self._read.names() for each in self._columns.constants]
        no_hosts = java_strings(jvm, ())
        no_more = scala_object(jvm, "scala.collection.immutable.Map").empty()
        parts = jvm.java.util.ArrayList()
        for file in sorted(files, key=lambda file: min(file.byte_count, most), reverse=True):
            constants = unsafe_row(
                [value for value, is_kept in zip(file.constants, kept, strict=True) if is_kept]
            )
            row = new_row(sum(kept))
            row.pointTo(constants, len(constants))
            path = spark_path(hadoop_path(jvm, file.location))
            for start in range(0, file.byte_count, most):
                size = min(most, file.byte_count - start)
                parts.add(new_part(row, path, start, size, no_hosts, 0, file.byte_count, no_more))
        partitions = scala_object(jvm, f"{_SOURCES}.FilePartition").getFilePartitions(
            reader, jvm.PythonUtils.toSeq(parts), most
        )
        return [partitions.apply(at) for at in range(partitions.size())]

    def _python_batch(self, work: TaskWork) -> Any:
        return task_scan(self._spark, self._read.struct(), work).toBatch()


def task_scan(spark: SparkSession, columns: spark_types.StructType, work: TaskWork) -> Any:
    """Return Spark's scan of tasks that Python workers run; `columns` are those of its rows."""
    # A stream runs in a clone of the user's session, and Spark looks the source up there.
    active = java_class(jvm_of(spark), "org.apache.spark.sql.classic.SparkSession").active()
    register_tasks(SparkSession(spark.sparkContext, active))
    user: JavaObject = spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
    schema = user.parseDataType(columns.json())
    table, given = python_table(spark, NAME, schema, {WORK: work.to_option()})
    return table.newScanBuilder(given).build()


def python_table(
    spark: SparkSession, source: str, schema: Any, options: Mapping[str, str]
) -> tuple[Any, Any]:
    """Return the table that a Python data source is for Spark's connectors, and its options."""
    jvm = jvm_of(spark)
    user: JavaObject = spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
    find = java_class(jvm, f"{_SOURCES}.DataSource").lookupDataSourceV2
    found = find(source, user.sessionState().conf()).get()
    given = java_map(jvm, options)
    no_partitioning = java_array(jvm, f"{_CONNECTOR}.expressions.Transform", ())
    table = found.getTable(schema, no_partitioning, given)
    return table, java_class(jvm, "org.apache.spark.sql.util.CaseInsensitiveStringMap")(given)


class PlannedScan(SpeakingProxy):
    """A scan whose work is planned when Spark asks for its partitions."""

    def __init__(
        self,
        reader: WorkReader,
        plan: Callable[[], ScanWork],
        *,
        description: str,
        open_stream: Callable[[str], SpeakingProxy] | None = None,
    ) -> None:
        """Keep what plans the work; `open_stream` makes the stream of a query's checkpoint."""
        self.jvm = reader.jvm
        self.reader = reader
        self._plan = plan
        self._description = description
        self._open_stream = open_stream

    # ---- Scan

    def readSchema(self) -> Any:  # noqa: N802 - Spark's names, here and below
        return self.reader.read_schema

    def description(self) -> str:
        return self._description

    def toBatch(self) -> PlannedScan:  # noqa: N802
        return self

    def toMicroBatchStream(self, checkpoint: str) -> SpeakingProxy:  # noqa: N802
        if self._open_stream is None:
            raise NotImplementedError(f"{self._description} is no stream")
        return self._open_stream(checkpoint)

    def toContinuousStream(self, _checkpoint: str) -> Any:  # noqa: N802
        raise NotImplementedError("tables are read in micro-batches, not continuously")

    def supportedCustomMetrics(self) -> Any:  # noqa: N802
        return self.reader.nothing(f"{_CONNECTOR}.metric.CustomMetric")

    def reportDriverMetrics(self) -> Any:  # noqa: N802
        return self.reader.nothing(f"{_CONNECTOR}.metric.CustomTaskMetric")

    def columnarSupportMode(self) -> Any:  # noqa: N802
        return self.reader.by_partition()

    # ---- Batch

    def planInputPartitions(self) -> Any:  # noqa: N802
        return self.reader.plan(self._plan())

    def createReaderFactory(self) -> Any:  # noqa: N802
        return self.reader.factory()

    def toString(self) -> str:  # noqa: N802
        return self._description

    class Java:
        implements = (f"{READ}.Scan", f"{READ}.Batch")


class PlannedScanBuilder(SpeakingProxy):
    """Makes a scan of the columns that a query needs."""

    def __init__(
        self, jvm: Any, columns: ScanColumns, build: Callable[[ScanColumns], SpeakingProxy]
    ) -> None:
        self.jvm = jvm
        self._columns = columns
        self._build = build
        self._wanted = columns

    def pruneColumns(self, required: Any) -> None:  # noqa: N802
        found = self._columns.only(list(required.fieldNames()))
        # A source of Spark's for Python has at least one column.
        self._wanted = found if found.names() else self._columns.only(self._columns.names()[-1:])

    def build(self) -> SpeakingProxy:
        return self._build(self._wanted)

    class Java:
        implements = (f"{READ}.ScanBuilder", f"{READ}.SupportsPushDownRequiredColumns")
