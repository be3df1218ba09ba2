"""A table of the catalog, as Spark sees it: its columns, what it can do, and how it is read."""

from __future__ import annotations

from functools import cached_property, lru_cache, partial
from typing import Any

from pyspark.sql import SparkSession

from fuse_stream.commit.plan import Intent
from fuse_stream.dml.delete import delete
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.predicate.tree import Predicate
from fuse_stream.spark.jvm.connector_predicates import find_predicate
from fuse_stream.spark.jvm.file_scan import ROW_INDEX
from fuse_stream.spark.jvm.java_errors import NamedProxy, SpeakingProxy
from fuse_stream.spark.jvm.loaded_table import Loaded, hidden_schema
from fuse_stream.spark.jvm.proxies import (
    java_array,
    java_class,
    java_map,
    java_set,
    jvm_of,
    options_of,
    scala_seq,
)
from fuse_stream.spark.jvm.row_operations import RowOperationBuilder, row_source
from fuse_stream.spark.jvm.row_scan import BLOCK, RowScanBuilder, RowSource
from fuse_stream.spark.jvm.stream_by_name import open_append_stream
from fuse_stream.spark.jvm.table_scan import TableScanBuilder
from fuse_stream.spark.jvm.table_write import TableWriteBuilder, statement_intent
from fuse_stream.spark.types import quoted, spark_schema

_CONNECTOR = "org.apache.spark.sql.connector"
_CATALOG = f"{_CONNECTOR}.catalog"


class FuseTable(NamedProxy):
    """One snapshot of a table for reads; the table for writes."""

    def __init__(self, spark: SparkSession, loaded: Loaded, *, is_for_write: bool = False) -> None:
        """Make the table that Spark gets; `is_for_write` says that a statement may change it."""
        self._is_for_write = is_for_write
        self.spark = spark
        self.jvm = jvm_of(spark)
        self.loaded = loaded
        self._intent = Intent(operation=Operation.DELETE)

    def toString(self) -> str:  # noqa: N802 - Java's name
        """Return the name and the snapshot: by them Spark finds what CACHE TABLE has kept."""
        use = "for writes" if self._is_for_write else "for reads"
        return f"{self.loaded.name} {self.loaded.snapshot.snapshot_id} {use}"

    @cached_property
    def _rows(self) -> RowSource:
        return row_source(self.spark, self.loaded)

    @cached_property
    def _schema(self) -> str:
        return spark_schema(self.loaded.snapshot.schema.visible, has_comments=True).json()

    # ---- Table

    def name(self) -> str:
        return self.loaded.name

    def id(self) -> str:
        return self.loaded.table.table_id

    def version(self) -> str:
        return str(self.loaded.snapshot.version)

    def schema(self) -> Any:
        return java_class(self.jvm, "org.apache.spark.sql.types.DataType").fromJson(self._schema)

    def columns(self) -> Any:
        return columns_of(self.jvm, self._schema)

    def partitioning(self) -> Any:
        names = cluster_names(self.loaded.snapshot)
        expressions = java_class(self.jvm, f"{_CONNECTOR}.expressions.Expressions")
        found = []
        if names:
            references = [expressions.column(quoted(name)) for name in names]
            cluster = java_class(self.jvm, f"{_CONNECTOR}.expressions.ClusterByTransform")
            found = [cluster(scala_seq(self.jvm, references))]
        return java_array(self.jvm, f"{_CONNECTOR}.expressions.Transform", found)

    def properties(self) -> Any:
        own = {"provider": "fuse", "location": self.loaded.table.location.path}
        return java_map(self.jvm, {**self.loaded.snapshot.properties, **own})

    def constraints(self) -> Any:
        return java_array(self.jvm, f"{_CATALOG}.constraints.Constraint", ())

    def capabilities(self) -> Any:
        return _capabilities(self.jvm)

    # ---- SupportsMetadataColumns

    def metadataColumns(self) -> Any:  # noqa: N802
        hidden = spark_schema(hidden_schema(self.loaded.snapshot.schema))
        if self._is_for_write:
            hidden = hidden.add(BLOCK, "long", nullable=False)
            hidden = hidden.add(ROW_INDEX, "long", nullable=False)
        session: Any = self.spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
        fields = list(session.parseDataType(hidden.json()).fields())
        return java_array(
            self.jvm,
            f"{_CATALOG}.MetadataColumn",
            [HiddenColumn(self.jvm, field) for field in fields],
        )

    def canRenameConflictingMetadataColumns(self) -> bool:  # noqa: N802
        return False

    # ---- SupportsRead, SupportsWrite

    def newScanBuilder(self, options: Any) -> Any:  # noqa: N802
        if self._is_for_write:
            return RowScanBuilder(self.spark, self._rows)
        given = options_of(options)
        stream = partial(
            open_append_stream,
            self.spark,
            self.loaded.table.location,
            self.loaded.snapshot.schema.visible,
            given,
        )
        return TableScanBuilder(self.spark, self.loaded.table, self.loaded.snapshot, stream, given)

    def newWriteBuilder(self, info: Any) -> Any:  # noqa: N802
        return TableWriteBuilder(self.spark, self.loaded, info)

    # ---- SupportsRowLevelOperations

    def newRowLevelOperationBuilder(self, info: Any) -> Any:  # noqa: N802
        operation = RowOperationBuilder(self.spark, self._rows, info)
        self._intent = operation.intent
        return operation

    # ---- SupportsDeleteV2

    def canDeleteWhere(self, predicates: Any) -> bool:  # noqa: N802
        # A predicate of the library takes no name that is another one but for case.
        paths = [leaf.path for leaf in self.loaded.snapshot.schema.leaves()]
        is_clear = len({tuple(map(str.lower, path)) for path in paths}) == len(paths)
        return is_clear and find_predicate(list(predicates)) is not None

    def deleteWhere(self, predicates: Any, *options: Any) -> None:  # noqa: N802
        where = find_predicate(list(predicates))
        assert where is not None  # `canDeleteWhere` has said so
        self._delete(where, *options)

    def truncateTable(self, *options: Any) -> bool:  # noqa: N802
        self._delete("true", *options)
        return True

    def _delete(self, where: str | Predicate, *options: Any) -> None:
        # Spark 4.2 gives no options; for a DELETE with a condition it has asked for an operation.
        intent = statement_intent(Operation.DELETE, *options) if options else self._intent
        delete(self.loaded.table.committer, where, author=intent.author, message=intent.message)

    def supportedCustomMetrics(self) -> Any:  # noqa: N802
        return java_array(self.jvm, f"{_CONNECTOR}.metric.CustomMetric", ())

    def reportDriverMetrics(self) -> Any:  # noqa: N802
        return java_array(self.jvm, f"{_CONNECTOR}.metric.CustomTaskMetric", ())

    class Java:
        implements = (
            f"{_CATALOG}.Table",
            f"{_CATALOG}.SupportsRead",
            f"{_CATALOG}.SupportsWrite",
            f"{_CATALOG}.SupportsDeleteV2",
            f"{_CATALOG}.SupportsRowLevelOperations",
            f"{_CATALOG}.SupportsMetadataColumns",
        )


class HiddenColumn(SpeakingProxy):
    """A hidden column, which a query gets only by its name."""

    def __init__(self, jvm: Any, field: Any) -> None:
        self.jvm = jvm
        self._field = field

    def name(self) -> str:
        return str(self._field.name())

    def dataType(self) -> Any:  # noqa: N802
        return self._field.dataType()

    def isNullable(self) -> bool:  # noqa: N802
        return bool(self._field.nullable())

    def comment(self) -> None:
        return None

    def transform(self) -> None:
        return None

    def metadataInJSON(self) -> None:  # noqa: N802
        return None

    class Java:
        implements = (f"{_CATALOG}.MetadataColumn",)


@lru_cache(maxsize=1)  # Spark asks some 20 times in a statement
def _capabilities(jvm: Any) -> Any:
    known = java_class(jvm, f"{_CATALOG}.TableCapability")
    able = (
        known.BATCH_READ,
        known.MICRO_BATCH_READ,
        known.STREAMING_WRITE,
        known.V1_BATCH_WRITE,
        known.TRUNCATE,
        known.AUTOMATIC_SCHEMA_EVOLUTION,
        known.OVERWRITE_BY_FILTER,  # refused by the write, which says what to do instead
    )
    return java_set(jvm, able)


@lru_cache(maxsize=64)
def columns_of(jvm: Any, schema: str) -> Any:
    """Return the fields of a `StructType`, given as its JSON, as columns of a table."""
    fields = java_class(jvm, "org.apache.spark.sql.types.DataType").fromJson(schema).fields()
    create = java_class(jvm, f"{_CATALOG}.Column").create
    made = []
    for field in fields:
        about = field.metadata()
        comment = (about.getString("comment"), None) if about.contains("comment") else ()
        made.append(create(field.name(), field.dataType(), field.nullable(), *comment))
    return java_array(jvm, f"{_CATALOG}.Column", made)


def cluster_names(snapshot: Snapshot) -> list[str]:
    """Return the names of the columns of a snapshot's cluster key."""
    names = {column.id: column.name for column in snapshot.schema.columns}
    return [names[column] for column in snapshot.cluster_key]
