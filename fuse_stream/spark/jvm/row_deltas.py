"""Statements that change rows, by the rows alone: new images are added, and old rows are hidden."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types

from fuse_stream.commit.plan import Intent, Staged, check_may_change
from fuse_stream.format.evolve import resolve
from fuse_stream.format.properties import block_target
from fuse_stream.format.records import Snapshot
from fuse_stream.format.schema import Column, Schema
from fuse_stream.spark.change_writer import KIND, ChangeWriter, gathered
from fuse_stream.spark.jvm.file_scan import ROW_INDEX
from fuse_stream.spark.jvm.java_classes import new_instance
from fuse_stream.spark.jvm.java_errors import SpeakingProxy
from fuse_stream.spark.jvm.loaded_table import Loaded, hidden_schema
from fuse_stream.spark.jvm.proxies import jvm_of
from fuse_stream.spark.jvm.row_scan import BLOCK, RowScanBuilder, RowSource, references
from fuse_stream.spark.jvm.row_write import RowWrite
from fuse_stream.spark.jvm.task_functions import returned_rows, writer_factory
from fuse_stream.spark.staged_changes import commit_read, stage_changes
from fuse_stream.spark.task_writer import TaskWriter
from fuse_stream.spark.types import columns_of_spark

_CONNECTOR = "org.apache.spark.sql.connector"
_WRITE = f"{_CONNECTOR}.write"


class DeltaOperation(SpeakingProxy):
    """One statement."""

    def __init__(
        self, spark: SparkSession, source: RowSource, command: Any, intent: Intent
    ) -> None:
        self._spark = spark
        self.jvm = jvm_of(spark)
        self._source = source
        self._loaded = source.loaded
        self._command = command
        self._intent = intent

    def description(self) -> str:
        return f"fuse {str(self._command.toString()).lower()}"

    def command(self) -> Any:
        return self._command

    def newScanBuilder(self, _options: Any) -> Any:  # noqa: N802 - Spark's names, here and below
        check_may_change(self._loaded.snapshot)
        return RowScanBuilder(self._spark, self._source, has_positions=True)

    def newWriteBuilder(self, info: Any) -> Any:  # noqa: N802
        return _DeltaWrite(
            self._spark,
            self._loaded,
            self._intent,
            info,
            self._source.numbers.block_of,
        )

    def rowId(self) -> Any:  # noqa: N802
        return references(self.jvm, (BLOCK, ROW_INDEX))

    def representUpdateAsDeleteAndInsert(self) -> bool:  # noqa: N802
        return False

    def requiredMetadataAttributes(self) -> Any:  # noqa: N802
        # An updated row keeps its hidden columns; a deleted one has no use for them.
        hidden = hidden_schema(self._loaded.snapshot.schema).names()
        is_delete = str(self._command.toString()) == "DELETE"
        return references(self.jvm, () if is_delete else hidden)

    class Java:
        implements = (f"{_WRITE}.SupportsDelta",)


class _DeltaWrite(RowWrite):
    """The write of a statement: its builder, and its batch."""

    def __init__(
        self,
        spark: SparkSession,
        loaded: Loaded,
        intent: Intent,
        info: Any,
        block_of: Callable[[str], str],
    ) -> None:
        self._spark = spark
        self.jvm = jvm_of(spark)
        self._table, self._read = loaded.table, loaded.snapshot
        self.intent = intent
        self._info = info
        self._block_of = block_of
        self._row = fields_of(info.schema()).fields
        metadata = info.metadataSchema()
        self._hidden = fields_of(metadata.get()).fields if metadata.isPresent() else []
        self._schema, self._writer = self._task_writer()

    def _task_writer(self) -> tuple[Schema, TaskWriter]:
        read, schema = self._read, self._read.schema
        columns: tuple[Column, ...] = ()
        if self._row:  # else rows are only deleted
            schema, columns = resolve(
                read.schema,
                columns_of_spark(spark_types.StructType([*self._row, *self._hidden])),
                case_sensitive=True,
                with_hidden=True,
            )
        return schema, TaskWriter(
            store=self._table.metadata.store,
            schema=schema,
            columns=columns,
            cluster_key=read.cluster_key,
            target=block_target(read.properties),
        )

    # ---- DeltaBatchWrite

    def createBatchWriterFactory(self, _info: Any) -> Any:  # noqa: N802
        place = [
            spark_types.StructField(KIND, spark_types.IntegerType()),
            spark_types.StructField(BLOCK, spark_types.LongType()),
            spark_types.StructField(ROW_INDEX, spark_types.LongType()),
        ]
        changed = spark_types.StructType([*place, *self._row, *self._hidden])
        session: Any = self._spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
        fields = session.parseDataType(changed.json()).asNullable()
        function = ChangeWriter(writer=self._writer).map_in_arrow
        changes = writer_factory(self._spark, function, fields)
        return new_instance(
            self._spark, "DeltaFactory", changes, fields, len(self._row), len(self._hidden)
        )

    def useCommitCoordinator(self) -> bool:  # noqa: N802
        return False  # of several attempts of a task, Spark takes one message

    def onDataWriterCommit(self, message: Any) -> None:  # noqa: N802
        """Do nothing: `commit` gets all messages."""

    def commit(self, messages: Any, *_summary: Any) -> None:
        def stage(head: Snapshot) -> Staged:
            found = gathered(self._writer, returned_rows(self._spark, messages), self._block_of)
            staged, _ = stage_changes(
                self._table.metadata, head, self._schema, found, self.intent.operation
            )
            return staged

        commit_read(self._table, self._read, self.intent, stage)

    def abort(self, messages: Any) -> None:
        """Do nothing: vacuum deletes blocks that no commit names."""

    class Java:
        implements = (
            f"{_WRITE}.DeltaWriteBuilder",
            f"{_WRITE}.DeltaWrite",
            f"{_WRITE}.DeltaBatchWrite",
        )


def fields_of(schema: Any) -> spark_types.StructType:
    """Return a `StructType` of the JVM in Python."""
    return spark_types.StructType.fromJson(json.loads(schema.json()))
