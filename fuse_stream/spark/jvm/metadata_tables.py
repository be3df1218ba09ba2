"""Tables of what is known of a table: `lake.t.snapshots`, `history`, `segments`, `blocks` and more.

Their rows are made in the driver, from the table's records, when the query is planned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from fuse_stream.format.records import Snapshot
from fuse_stream.spark.jvm.java_errors import SpeakingProxy
from fuse_stream.spark.jvm.proxies import (
    java_array,
    java_class,
    java_map,
    java_set,
    jvm_of,
    options_of,
)
from fuse_stream.spark.jvm.table_scan import check_batch_options
from fuse_stream.table.handle import Table

_CONNECTOR = "org.apache.spark.sql.connector"
_CATALOG = f"{_CONNECTOR}.catalog"
_READ = f"{_CONNECTOR}.read"
_ROW = "org.apache.spark.sql.catalyst.InternalRow"

_TEXT, _LONG, _TIME, _FLAG = StringType(), LongType(), TimestampType(), BooleanType()
_TEXTS = ArrayType(StringType())

Row = Sequence[object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """One of these tables: its columns, and how its rows are made. Times are microseconds."""

    schema: StructType
    rows: Callable[[Table], Iterator[Row]]


def _snapshots(table: Table) -> Iterator[Row]:
    for snapshot in table.log():
        yield (
            snapshot.version,
            snapshot.snapshot_id,
            snapshot.timestamp_us,
            str(snapshot.operation),
            snapshot.data_change,
            snapshot.summary.row_count,
            snapshot.message,
            snapshot.author,
        )


def _history(table: Table) -> Iterator[Row]:
    for snapshot in table.log():
        yield (
            snapshot.version,
            snapshot.timestamp_us,
            str(snapshot.operation),
            snapshot.message,
            snapshot.author,
            batch_names(snapshot),
        )


def batch_names(snapshot: Snapshot) -> list[str]:
    """Return the batches that a snapshot committed, as the log shows them."""
    return [batch_name(key, entry.batch_id) for key, entry in snapshot.batches.items()]


def batch_name(key: tuple[str, str], batch_id: int) -> str:
    """Return a batch of an application and a writer, as the log shows it."""
    return f"{'/'.join(filter(None, key))} #{batch_id}"


def _segments(table: Table) -> Iterator[Row]:
    for ref in table.segments():
        yield ref.id, ref.level, ref.block_count, ref.row_count, ref.byte_size


def _blocks(table: Table) -> Iterator[Row]:
    for block in table.blocks():
        yield block.id, block.row_count, block.live_rows, block.file_size, block.block_size


def _refs(table: Table) -> Iterator[Row]:
    for branch in table.branches():
        forked = branch.forks[-1].version if branch.forks else None
        yield branch.name, "branch", forked, branch.created_us
    for tag in table.tags():
        yield tag.name, "tag", tag.target.version, tag.created_us


def _ledger(table: Table) -> Iterator[Row]:
    for (application, writer), entry in sorted(table.ledger().items()):
        yield (
            application,
            writer,
            entry.query_id,
            entry.batch_id,
            entry.rows,
            entry.version,
            entry.timestamp_us,
        )


def _columns(**types: Any) -> StructType:
    return StructType([StructField(name, data_type) for name, data_type in types.items()])


METADATA: Mapping[str, Metadata] = {
    "snapshots": Metadata(
        schema=_columns(
            version=_LONG,
            snapshot_id=_TEXT,
            timestamp=_TIME,
            operation=_TEXT,
            data_change=_FLAG,
            row_count=_LONG,
            message=_TEXT,
            author=_TEXT,
        ),
        rows=_snapshots,
    ),
    "history": Metadata(
        schema=_columns(
            version=_LONG,
            timestamp=_TIME,
            operation=_TEXT,
            message=_TEXT,
            author=_TEXT,
            batches=_TEXTS,
        ),
        rows=_history,
    ),
    "segments": Metadata(
        schema=_columns(
            segment_id=_TEXT, level=_LONG, block_count=_LONG, row_count=_LONG, byte_size=_LONG
        ),
        rows=_segments,
    ),
    "blocks": Metadata(
        schema=_columns(
            block_id=_TEXT, row_count=_LONG, live_rows=_LONG, file_size=_LONG, block_size=_LONG
        ),
        rows=_blocks,
    ),
    "refs": Metadata(
        schema=_columns(name=_TEXT, type=_TEXT, version=_LONG, created=_TIME), rows=_refs
    ),
    "ledger": Metadata(
        schema=_columns(
            app_id=_TEXT,
            writer=_TEXT,
            query_id=_TEXT,
            batch_id=_LONG,
            rows=_LONG,
            version=_LONG,
            timestamp=_TIME,
        ),
        rows=_ledger,
    ),
}
"""By the last part of their names."""


class MetadataTable(SpeakingProxy):
    """One of these tables, of one table."""

    def __init__(self, spark: SparkSession, name: str, table: Table, metadata: Metadata) -> None:
        self._spark = spark
        self.jvm = jvm_of(spark)
        self._name = name
        self._table = table
        self._metadata = metadata

    def toString(self) -> str:  # noqa: N802 - Java's name
        return self._name

    def name(self) -> str:
        return self._name

    def id(self) -> None:
        return None

    def version(self) -> None:
        return None

    def schema(self) -> Any:
        session: Any = self._spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
        return session.parseDataType(self._metadata.schema.json())

    def columns(self) -> Any:
        create = java_class(self.jvm, f"{_CATALOG}.Column").create
        fields = self.schema().fields()
        made = [create(field.name(), field.dataType(), field.nullable()) for field in fields]
        return java_array(self.jvm, f"{_CATALOG}.Column", made)

    def partitioning(self) -> Any:
        return java_array(self.jvm, f"{_CONNECTOR}.expressions.Transform", ())

    def properties(self) -> Any:
        return java_map(self.jvm, {"provider": "fuse"})

    def constraints(self) -> Any:
        return java_array(self.jvm, f"{_CATALOG}.constraints.Constraint", ())

    def capabilities(self) -> Any:
        known = java_class(self.jvm, f"{_CATALOG}.TableCapability")
        return java_set(self.jvm, [known.BATCH_READ])

    def newScanBuilder(self, options: Any) -> Any:  # noqa: N802
        check_batch_options(options_of(options))
        return _RowsBuilder(
            LocalRows(self._spark, self._metadata.schema, self._metadata.rows(self._table))
        )

    class Java:
        implements = (f"{_CATALOG}.Table", f"{_CATALOG}.SupportsRead")


class _RowsBuilder(SpeakingProxy):
    def __init__(self, scan: LocalRows) -> None:
        self.jvm = scan.jvm
        self._scan = scan

    def build(self) -> Any:
        return self._scan

    class Java:
        implements = (f"{_READ}.ScanBuilder",)


class LocalRows(SpeakingProxy):
    """A scan of rows that the driver has."""

    def __init__(self, spark: SparkSession, schema: StructType, rows: Iterator[Row]) -> None:
        self._spark = spark
        self.jvm = jvm_of(spark)
        self._schema = schema
        self._rows = list(rows)

    def readSchema(self) -> Any:  # noqa: N802 - Spark's names, here and below
        session: Any = self._spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
        return session.parseDataType(self._schema.json())

    def description(self) -> str:
        return "fuse metadata"

    def rows(self) -> Any:
        return java_array(self.jvm, _ROW, [self._row(row) for row in self._rows])

    def toBatch(self) -> Any:  # noqa: N802
        raise NotImplementedError("rows of the driver have no batch")

    def toMicroBatchStream(self, location: str) -> Any:  # noqa: N802
        raise NotImplementedError("rows of the driver are no stream")

    def toContinuousStream(self, location: str) -> Any:  # noqa: N802
        raise NotImplementedError("rows of the driver are no stream")

    def supportedCustomMetrics(self) -> Any:  # noqa: N802
        return java_array(self.jvm, f"{_CONNECTOR}.metric.CustomMetric", ())

    def reportDriverMetrics(self) -> Any:  # noqa: N802
        return java_array(self.jvm, f"{_CONNECTOR}.metric.CustomTaskMetric", ())

    def columnarSupportMode(self) -> Any:  # noqa: N802
        mode = java_class(self.jvm, f"{_READ}.Scan$ColumnarSupportMode")
        return mode.PARTITION_DEFINED

    def _row(self, values: Row) -> Any:
        expressions = self.jvm.org.apache.spark.sql.catalyst.expressions
        row = expressions.GenericInternalRow(len(values))
        for at, value in enumerate(values):
            if value is None:
                row.setNullAt(at)
            elif isinstance(value, bool):
                row.setBoolean(at, value)
            elif isinstance(value, int):
                row.setLong(at, value)
            elif isinstance(value, float):
                row.setDouble(at, value)
            else:
                row.update(at, self._text(value))
        return row

    def _text(self, value: object) -> Any:
        text = self.jvm.org.apache.spark.unsafe.types.UTF8String
        if isinstance(value, str):
            return text.fromString(value)
        assert isinstance(value, list)
        array = java_array(self.jvm, "java.lang.Object", [text.fromString(one) for one in value])
        return self.jvm.org.apache.spark.sql.catalyst.util.GenericArrayData(array)

    class Java:
        implements = (f"{_READ}.LocalScan",)
