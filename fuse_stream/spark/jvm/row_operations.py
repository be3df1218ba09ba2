"""UPDATE, MERGE and DELETE of single rows: Spark computes what becomes of them, and tasks write it.

Spark knows two ways. By the first, tasks write the changed rows and say where the old ones are,
which the commit hides. It needs classes of Java in the tasks (`java_classes`). Where these cannot
be had, or the setting `REWRITES` is true, tasks write all rows of the blocks that the statement
read, as the statement leaves them (`row_groups`).

Spark asks for an operation for each DELETE, too, before it asks whether the table can delete by the
condition alone.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from fuse_stream.format.records import Operation
from fuse_stream.spark.jvm.file_systems import find_reader_problem
from fuse_stream.spark.jvm.java_classes import find_classes_problem
from fuse_stream.spark.jvm.java_errors import SpeakingProxy
from fuse_stream.spark.jvm.loaded_table import Loaded
from fuse_stream.spark.jvm.proxies import jvm_of
from fuse_stream.spark.jvm.row_deltas import DeltaOperation
from fuse_stream.spark.jvm.row_groups import GroupOperation
from fuse_stream.spark.jvm.row_scan import BlockNumbers, RowSource
from fuse_stream.spark.jvm.table_write import statement_intent

_WRITE = "org.apache.spark.sql.connector.write"
REWRITES = "spark.fuse.rewriteBlocks"
"""The setting of a session that chooses the second way."""


class RowOperationBuilder(SpeakingProxy):
    """Makes the operation of one statement."""

    def __init__(self, spark: SparkSession, source: RowSource, info: Any) -> None:
        self._spark = spark
        self.jvm = jvm_of(spark)
        self._source = source
        self._command = info.command()
        operation = Operation(str(self._command.toString()).lower())
        self.intent = statement_intent(operation, info.options())

    def build(self) -> SpeakingProxy:
        kind = DeltaOperation if self._source.has_classes else GroupOperation
        return kind(self._spark, self._source, self._command, self.intent)

    class Java:
        implements = (f"{_WRITE}.RowLevelOperationBuilder",)


def row_source(spark: SparkSession, loaded: Loaded) -> RowSource:
    """Return what the scans of a statement read of a table that it changes."""
    rewrites = str(spark.conf.get(REWRITES, "false")).lower() == "true"
    has_classes = not rewrites and find_classes_problem(spark) is None
    return RowSource(
        loaded=loaded,
        numbers=BlockNumbers(),
        has_classes=has_classes,
        has_files=find_reader_problem(spark, loaded.table.location) is None,
    )
