"""`CREATE TABLE AS SELECT` and `REPLACE TABLE`: tables whose rows come with the statement.

Rules:
- A new table is created before its rows are written, and deleted if the statement fails, unless
  another writer has committed to it.
- A table is replaced by one commit on it, with its history: time travel and rewind reach what was
  there. So its columns stay as they are, with NOT NULL; only rows, properties and the cluster key
  change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from fuse_stream.errors import SchemaMismatchError
from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.evolve import differences
from fuse_stream.format.schema import Schema
from fuse_stream.spark.jvm.ddl import Description
from fuse_stream.spark.jvm.loaded_table import Loaded
from fuse_stream.spark.jvm.proxies import java_array
from fuse_stream.spark.jvm.table_write import TableWriteBuilder
from fuse_stream.spark.jvm.tables import FuseTable, cluster_names
from fuse_stream.table.drop import drop_table

_CONNECTOR = "org.apache.spark.sql.connector"


class _StagedTable(FuseTable):
    """A table within a statement that creates or replaces it."""

    def __init__(self, spark: SparkSession, loaded: Loaded) -> None:
        super().__init__(spark, loaded)
        self._is_written = False

    def commitStagedChanges(self) -> None:  # noqa: N802 - Spark's names, here and below
        raise NotImplementedError

    def abortStagedChanges(self) -> None:  # noqa: N802
        raise NotImplementedError

    def reportDriverMetrics(self) -> Any:  # noqa: N802
        return java_array(self.jvm, f"{_CONNECTOR}.metric.CustomTaskMetric", ())

    class Java:
        implements = (*FuseTable.Java.implements, f"{_CONNECTOR}.catalog.StagedTable")


class CreatedTable(_StagedTable):
    """A table that the statement has created."""

    def commitStagedChanges(self) -> None:  # noqa: N802
        """Do nothing: the rows are committed."""

    def abortStagedChanges(self) -> None:  # noqa: N802
        if self.loaded.table.head().version == 0:
            drop_table(self.loaded.table.location)


class ReplacedTable(_StagedTable):
    """A table whose rows the statement replaces."""

    def __init__(self, spark: SparkSession, loaded: Loaded, wanted: Description) -> None:
        """Check that the table can become what the statement describes.

        Raises:
            SchemaMismatchError: it has other columns.
        """
        super().__init__(spark, loaded)
        _check_columns(loaded, wanted.schema)
        self._wanted = wanted

    def newWriteBuilder(self, info: Any) -> Any:  # noqa: N802
        self._is_written = True
        builder = super().newWriteBuilder(info)
        assert isinstance(builder, TableWriteBuilder)
        return builder.truncate()

    def commitStagedChanges(self) -> None:  # noqa: N802
        table, before = self.loaded.table, self.loaded.snapshot
        if not self._is_written:
            table.overwrite(arrow_schema(before.schema.visible).empty_table())
        changed: Mapping[str, str] = {
            name: value
            for name, value in self._wanted.properties.items()
            if before.properties.get(name) != value
        }
        if changed:
            table.set_properties(changed)
        if list(self._wanted.cluster_by) not in ([], cluster_names(before)):
            table.cluster_by(self._wanted.cluster_by)

    def abortStagedChanges(self) -> None:  # noqa: N802
        """Do nothing: the commit of the rows is the only one, and the last step that can fail."""


def _check_columns(loaded: Loaded, wanted: Schema) -> None:
    lines = differences(loaded.snapshot.schema, wanted.columns)
    if lines:
        raise SchemaMismatchError(
            "REPLACE TABLE keeps the history of the table, so it keeps its columns: select the "
            "table's columns, add columns by ALTER TABLE, or DROP the table first, which deletes "
            "its history:\n  " + "\n  ".join(lines),
            table=loaded.name,
        )
