"""The metadata tables in a catalog: `lake.t.snapshots`, `history`, `segments`, `blocks` and more.

Their rows are made in the driver, from the table's records, when the query is planned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

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
from fuse_stream.spark.types import spark_schema_of
from fuse_stream.table.handle import Table
from fuse_stream.table.metadata_tables import Row, get_kind, iter_rows

_CONNECTOR = "org.apache.spark.sql.connector"
_CATALOG = f"{_CONNECTOR}.catalog"
_READ = f"{_CONNECTOR}.read"
_ROW = "org.apache.spark.sql.catalyst.InternalRow"


class MetadataRelation(SpeakingProxy):
    """One of these tables, of one table."""

    def __init__(self, spark: SparkSession, name: str, table: Table, metadata: str) -> None:
        self._spark = spark
        self.jvm = jvm_of(spark)
        self._name = name
        self._table = table
        self._metadata = metadata
        self._schema = spark_schema_of(get_kind(metadata).schema)

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
        return session.parseDataType(self._schema.json())

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
            LocalRows(self._spark, self._schema, iter_rows(self._table, self._metadata))
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
