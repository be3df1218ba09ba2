"""A query's scan of one snapshot: blocks are pruned here and read by Spark's own Parquet reader.

Rules:
- Of a snapshot that hides rows, queries by its name get a view. But a DataFrame that was made
  before rows were hidden is planned again with this scan. Then Python workers read the blocks.
- They also do where Spark's own reader cannot open the store, and there is no view there.
- Every filter prunes segments and blocks; Spark evaluates all of them again for the rows.
- Nothing is listed: Spark's index of files is filled from the segments.
- Two scans are equal if they read the same blocks by the same plan. By the index alone, which
  compares folders, Spark would take two versions of a table for one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.records import Snapshot
from fuse_stream.format.schema import Column, Schema, stored_form
from fuse_stream.reading.scan import Selection
from fuse_stream.spark.block_list import BlockFile, SnapshotBlocks
from fuse_stream.spark.block_scan import (
    filter_options,
    reader_session,
    struct_of,
)
from fuse_stream.spark.jvm.file_scan import ScannedFile, file_statuses, hadoop_path, is_local
from fuse_stream.spark.jvm.file_systems import find_reader_problem
from fuse_stream.spark.jvm.java_errors import NamedProxy, SpeakingProxy
from fuse_stream.spark.jvm.packing import Packing
from fuse_stream.spark.jvm.planned_scan import task_scan
from fuse_stream.spark.jvm.proxies import java_array, java_class, jvm_of, scala_object, scala_seq
from fuse_stream.spark.shown_rows import shown_work
from fuse_stream.spark.types import spark_schema
from fuse_stream.spark.where import read_filters
from fuse_stream.table.handle import Table

_SQL = "org.apache.spark.sql"
_READ = f"{_SQL}.connector.read"
_SOURCES = f"{_SQL}.execution.datasources"
_OF_SPARK = frozenset({"versionasof", "timestampasof"})
"""Options that Spark has taken for the snapshot."""
_ATTRIBUTE_ID = re.compile(r"#\d+L?")
"""Behind a column in the text of an expression of Spark's: each plan has ids of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenBlocks:
    """Blocks, and how they are read."""

    schema: Schema
    blocks: tuple[BlockFile, ...]
    options: Mapping[str, str]
    """The reader's."""
    has_stored_names: bool = False
    """True if the columns of the table may have other names in files."""


class TableScanBuilder(SpeakingProxy):
    """Collects what a query wants of a snapshot."""

    def __init__(
        self,
        spark: SparkSession,
        table: Table,
        snapshot: Snapshot,
        open_stream: Callable[[], SpeakingProxy],
        options: Mapping[str, str],
    ) -> None:
        """Build a scan of a snapshot; `open_stream` makes the stream of the table, if asked.

        The options are those of the stream; a batch has none.
        """
        self._spark = spark
        self.jvm = jvm_of(spark)
        self._table = table
        self._snapshot = snapshot
        self._open_stream = open_stream
        self._options = options
        self._filters: list[Any] = []
        self._wanted: Any = None

    def pushFilters(self, filters: Any) -> Any:  # noqa: N802 - Spark's names, here and below
        self._filters = [filters.apply(at) for at in range(filters.size())]
        return filters  # Spark evaluates all of them for the rows

    def pushedFilters(self) -> Any:  # noqa: N802
        return java_array(self.jvm, f"{_SQL}.connector.expressions.filter.Predicate", ())

    def pruneColumns(self, wanted: Any) -> None:  # noqa: N802
        self._wanted = wanted

    def build(self) -> Any:
        schema = self._snapshot.schema
        read = schema.visible if self._wanted is None else _narrowed(schema, self._wanted)
        selection = Selection(
            schema=read,
            read=read,
            predicate=read_filters(scala_seq(self.jvm, self._filters), schema),
        )
        metadata, snapshot = self._table.metadata, self._snapshot
        scan = ChosenBlocks(
            schema=read,
            blocks=tuple(SnapshotBlocks(metadata, snapshot, selection).matching(None)),
            options=filter_options(read, schema, snapshot.summary.col_stats),
            has_stored_names=schema.has_stored_names,
        )
        inner = cache(partial(self._scan, scan))  # the table's size needs none
        name = cache(partial(_name_of, scan, snapshot, self._filters))
        leaves = sum(1 for _ in schema.leaves())
        size = sum(block.byte_count for block in scan.blocks)
        rows = sum(block.live_rows for block in scan.blocks)
        share = size * sum(1 for _ in read.leaves()) // leaves
        return TableScan(
            self.jvm,
            inner,
            scan,
            name,
            self._open_stream,
            options=self._options,
            row_count=rows,
            byte_count=share,
        )

    def _scan(self, scan: ChosenBlocks) -> Any:
        problem = find_reader_problem(self._spark, self._table.location)
        if self._snapshot.deletion_files or problem is not None:
            return python_scan(self._spark, self._table, self._snapshot, scan)
        return parquet_scan(self._spark, scan, self._filters)

    class Java:
        implements = (
            f"{_READ}.ScanBuilder",
            f"{_READ}.SupportsPushDownRequiredColumns",
            f"{_SQL}.internal.connector.SupportsPushDownCatalystFilters",
        )


class TableScan(NamedProxy):
    """Spark's `ParquetScan` of some blocks; its columns are without the ids of the format."""

    def __init__(
        self,
        jvm: Any,
        inner: Callable[[], Any],
        scan: ChosenBlocks,
        name: Callable[[], str],
        open_stream: Callable[[], SpeakingProxy],
        *,
        options: Mapping[str, str],
        row_count: int,
        byte_count: int,
    ) -> None:
        self.jvm = jvm
        self._inner = inner
        self._scan = scan
        self._name = name
        self._open_stream = open_stream
        self._options = options
        self._row_count = row_count
        self._byte_count = byte_count

    def readSchema(self) -> Any:  # noqa: N802
        # With the ids, Spark would write them into the user's files.
        text = spark_schema(self._scan.schema).json()
        return java_class(self.jvm, f"{_SQL}.types.DataType").fromJson(text)

    def description(self) -> str:
        return f"fuse {self._inner().description()}"

    def toBatch(self) -> Any:  # noqa: N802
        check_batch_options(self._options)
        return _TableBatch(self.jvm, self._inner().toBatch(), self._name)

    def toMicroBatchStream(self, _checkpoint: str) -> Any:  # noqa: N802
        return self._open_stream()

    def toContinuousStream(self, location: str) -> Any:  # noqa: N802
        raise NotImplementedError("a table of the catalog is not read as a stream")

    def supportedCustomMetrics(self) -> Any:  # noqa: N802
        return java_array(self.jvm, f"{_SQL}.connector.metric.CustomMetric", ())

    def reportDriverMetrics(self) -> Any:  # noqa: N802
        return java_array(self.jvm, f"{_SQL}.connector.metric.CustomTaskMetric", ())

    def columnarSupportMode(self) -> Any:  # noqa: N802
        mode = java_class(self.jvm, f"{_READ}.Scan$ColumnarSupportMode")
        return mode.PARTITION_DEFINED

    def estimateStatistics(self) -> Any:  # noqa: N802
        return Statistics(self.jvm, self._byte_count, self._row_count)

    def estimateSizeInBytes(self) -> Any:  # noqa: N802
        return self.jvm.java.util.OptionalLong.of(self._byte_count)

    def reflectsFullyPushedDownFilters(self) -> bool:  # noqa: N802
        return False

    def toString(self) -> str:  # noqa: N802
        return self._name()

    class Java:
        implements = (f"{_READ}.Scan", f"{_READ}.SupportsReportStatistics")


def check_batch_options(options: Mapping[str, str]) -> None:
    """Raise InvalidInputError if a batch that names a table has options that it would ignore."""
    if others := sorted(name for name in options if name.lower() not in _OF_SPARK):
        raise InvalidInputError(
            "a query that names a table has no such option: a version, a tag or a branch is read "
            "by VERSION AS OF, a time by TIMESTAMP AS OF, and changes by CHANGES",
            options=others,
        )


class _TableBatch(NamedProxy):
    def __init__(self, jvm: Any, inner: Any, name: Callable[[], str]) -> None:
        self.jvm = jvm
        self._inner = inner
        self._name = name

    def planInputPartitions(self) -> Any:  # noqa: N802
        return self._inner.planInputPartitions()

    def createReaderFactory(self) -> Any:  # noqa: N802
        return self._inner.createReaderFactory()

    def toString(self) -> str:  # noqa: N802
        return f"{self._name()} batch"

    class Java:
        implements = (f"{_READ}.Batch",)


class Statistics(SpeakingProxy):
    def __init__(self, jvm: Any, byte_count: int, row_count: int) -> None:
        self.jvm = jvm
        self._byte_count = byte_count
        self._row_count = row_count

    def sizeInBytes(self) -> Any:  # noqa: N802
        return self.jvm.java.util.OptionalLong.of(self._byte_count)

    def numRows(self) -> Any:  # noqa: N802
        return self.jvm.java.util.OptionalLong.of(self._row_count)

    def columnStats(self) -> Any:  # noqa: N802
        return self.jvm.java.util.HashMap()

    class Java:
        implements = (f"{_READ}.Statistics",)


def _name_of(scan: ChosenBlocks, snapshot: Snapshot, filters: Sequence[Any]) -> str:
    """Return a text that is the same for scans with the same rows."""
    tests = [_ATTRIBUTE_ID.sub("", str(each.toString())) for each in filters]
    blocks = [block.location for block in scan.blocks]
    # Another snapshot may hide other rows of the blocks.
    hides = snapshot.snapshot_id if snapshot.deletion_files else ""
    identity = repr((scan.schema, blocks, tests, hides)).encode(errors="surrogatepass")
    return f"fuse {hashlib.sha256(identity).hexdigest()}"


def parquet_scan(spark: SparkSession, scan: ChosenBlocks, filters: Sequence[Any]) -> Any:
    """Return Spark's scan of blocks; `filters` are tested for row groups, too.

    Its columns have the names that files have, at the places of those of the schema.
    """
    jvm = jvm_of(spark)
    is_on_disk = all(is_local(block.location) for block in scan.blocks)
    reader = reader_session(spark, is_local=is_on_disk)
    in_files = stored_form(scan.schema)
    fields = reader.parseDataType(struct_of(in_files).json())
    options = jvm.java.util.HashMap()
    for name, value in scan.options.items():
        options.put(name, value)
    made = java_class(jvm, f"{_SQL}.util.CaseInsensitiveStringMap")(options)
    index = file_index(jvm, reader, scan.blocks, fields)
    builder = java_class(jvm, f"{_SOURCES}.v2.parquet.ParquetScanBuilder")(
        reader, index, fields, fields, made
    )
    if not scan.has_stored_names:  # they have other names than the columns in files
        builder.pushFilters(scala_seq(jvm, filters))
    Packing.of(reader).set_limit(reader, [block.byte_count for block in scan.blocks])
    return builder.build()


def python_scan(spark: SparkSession, table: Table, snapshot: Snapshot, scan: ChosenBlocks) -> Any:
    """Return a scan of blocks by Python workers, which leave hidden rows out."""
    schema = scan.schema
    if not schema.columns:  # a source of Spark's for Python has at least one
        schema = dataclasses.replace(schema, columns=snapshot.schema.visible.columns[:1])
    work = shown_work(table.metadata, snapshot, [block.block_id for block in scan.blocks], schema)
    return task_scan(spark, spark_schema(schema), work)


def file_index(jvm: Any, reader: Any, blocks: Sequence[BlockFile], fields: Any) -> Any:
    """Return an `InMemoryFileIndex` of blocks, which lists nothing."""
    cache = java_class(jvm, f"{_SOURCES}.FileStatusCache").getOrCreate(reader)
    folders: dict[str, list[ScannedFile]] = {}
    for block in blocks:
        file = ScannedFile(location=block.location, byte_count=block.byte_count)
        folders.setdefault(block.location.rpartition("/")[0], []).append(file)
    parents = {folder: hadoop_path(jvm, folder) for folder in folders}
    statuses = file_statuses(jvm, list(folders.values()))
    for folder, files in zip(folders, statuses, strict=True):
        cache.putLeafFiles(parents[folder], files)
    nothing = jvm.scala.Option.empty()
    no_partitions = scala_object(jvm, f"{_SOURCES}.PartitionSpec").emptySpec()
    index = java_class(jvm, f"{_SOURCES}.InMemoryFileIndex")(
        reader,
        scala_seq(jvm, parents.values()),
        scala_object(jvm, "scala.collection.immutable.Map").empty(),
        jvm.scala.Some(fields),
        cache,
        jvm.scala.Some(no_partitions),
        nothing,
    )
    cache.invalidateAll()  # of this index alone, which has its files now
    return index


def _narrowed(schema: Schema, wanted: Any) -> Schema:
    """Return the columns of a schema that a `StructType` of Spark's names, at every depth."""
    fields = spark_types.StructType.fromJson(json.loads(wanted.json()))
    return dataclasses.replace(schema, columns=_narrowed_columns(schema.columns, fields))


def _narrowed_columns(
    columns: Sequence[Column], wanted: spark_types.StructType
) -> tuple[Column, ...]:
    known = {column.name: column for column in columns}
    return tuple(_narrowed_column(known[field.name], field.dataType) for field in wanted.fields)


def _narrowed_column(column: Column, wanted: spark_types.DataType) -> Column:
    children = column.children
    match wanted:
        case spark_types.StructType():
            children = _narrowed_columns(children, wanted)
        case spark_types.ArrayType():
            children = (_narrowed_column(children[0], wanted.elementType),)
        case spark_types.MapType():
            children = (
                _narrowed_column(children[0], wanted.keyType),
                _narrowed_column(children[1], wanted.valueType),
            )
    return dataclasses.replace(column, children=children)
