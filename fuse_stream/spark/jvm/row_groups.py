"""Statements that change rows, by whole blocks: tasks write all of their rows anew.

No task can say which row became which. So the rows before and after are compared, and the commit
has only those that differ: it hides the old ones, and adds the new ones. The feed and the size of
the table are as after the same statement by `row_deltas`. Of an UPDATE all rows that differ are
updates; of a MERGE they are deletes and inserts.

Rules:
- What the statement asks of the rows rules out blocks, but no row of the others: the statement
  leaves as they are the rows that it does not change.
- Rows are equal if all bits are: an update of 0.0 to -0.0 is one.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pyspark.sql import SparkSession

from fuse_stream.commit.plan import Intent, Staged, check_may_change
from fuse_stream.errors import InvalidInputError
from fuse_stream.format.evolve import resolve
from fuse_stream.format.properties import block_target
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.reading.scan import Selection
from fuse_stream.spark.block_list import BlockFile, SnapshotBlocks
from fuse_stream.spark.compared_rows import find_changes
from fuse_stream.spark.jvm.java_errors import SpeakingProxy
from fuse_stream.spark.jvm.loaded_table import Loaded, hidden_schema
from fuse_stream.spark.jvm.proxies import java_array, jvm_of, scala_seq
from fuse_stream.spark.jvm.row_deltas import fields_of, references
from fuse_stream.spark.jvm.table_scan import (
    ChosenBlocks,
    TableScan,
    narrowed,
    parquet_scan,
    portable_scan,
)
from fuse_stream.spark.jvm.table_write import write_options
from fuse_stream.spark.jvm.task_functions import returned_rows, writer_factory
from fuse_stream.spark.staged_changes import commit_read, stage_changes
from fuse_stream.spark.task_writer import TaskWriter, collected
from fuse_stream.spark.types import columns_of_spark
from fuse_stream.spark.where import read_filters

_SQL = "org.apache.spark.sql"
_CONNECTOR = f"{_SQL}.connector"
_WRITE = f"{_CONNECTOR}.write"


class GroupOperation(SpeakingProxy):
    """One statement."""

    def __init__(self, spark: SparkSession, loaded: Loaded, command: Any) -> None:
        self._spark = spark
        self.jvm = jvm_of(spark)
        self._loaded = loaded
        self._command = command
        self._read: dict[str, BlockFile] = {}
        """The blocks that the statement reads, by id."""

    def description(self) -> str:
        return f"fuse {str(self._command.toString()).lower()}"

    def command(self) -> Any:
        return self._command

    def newScanBuilder(self, _options: Any) -> Any:  # noqa: N802 - Spark's names, here and below
        snapshot = self._loaded.snapshot
        check_may_change(snapshot)
        if hidden := hidden_schema(snapshot.schema).names():
            raise InvalidInputError(
                "a statement that rewrites blocks would lose the hidden columns of the rows: use "
                "fuse.merge, fuse.update or fuse.delete",
                columns=list(hidden),
            )
        return _GroupScanBuilder(self._spark, self._loaded, self._read)

    def newWriteBuilder(self, info: Any) -> Any:  # noqa: N802
        operation = Operation(str(self._command.toString()).lower())
        return _GroupWrite(self._spark, self._loaded, operation, info, self._read)

    def requiredMetadataAttributes(self) -> Any:  # noqa: N802
        return references(self.jvm, ())

    class Java:
        implements = (f"{_WRITE}.RowLevelOperation",)


class _GroupScanBuilder(SpeakingProxy):
    def __init__(self, spark: SparkSession, loaded: Loaded, read: dict[str, BlockFile]) -> None:
        self._spark = spark
        self.jvm = jvm_of(spark)
        self._loaded = loaded
        self._read = read
        self._filters: list[Any] = []
        self._wanted: Any = None

    def pushFilters(self, filters: Any) -> Any:  # noqa: N802
        self._filters = [filters.apply(at) for at in range(filters.size())]
        return filters

    def pushedFilters(self) -> Any:  # noqa: N802
        return java_array(self.jvm, f"{_CONNECTOR}.expressions.filter.Predicate", ())

    def pruneColumns(self, wanted: Any) -> None:  # noqa: N802
        self._wanted = wanted

    def build(self) -> Any:
        snapshot, table = self._loaded.snapshot, self._loaded.table
        schema = snapshot.schema
        wanted = schema if self._wanted is None else narrowed(schema, self._wanted)
        # `format("fuse")`, which leaves hidden rows out, reads all blocks.
        hides = bool(snapshot.deletion_files)
        selection = Selection(
            schema=schema,
            read=schema,
            predicate=None if hides else read_filters(scala_seq(self.jvm, self._filters), schema),
        )
        blocks = tuple(SnapshotBlocks(table.metadata, snapshot, selection).matching(None))
        self._read.update((block.block_id, block) for block in blocks)
        chosen = ChosenBlocks(schema=wanted, blocks=blocks, options={})

        @cache
        def inner() -> Any:
            if hides:
                return portable_scan(self._spark, table, snapshot, wanted)
            return parquet_scan(self._spark, chosen, ())

        return TableScan(
            self.jvm,
            inner,
            chosen,
            _no_stream,
            row_count=sum(block.live_rows for block in blocks),
            byte_count=sum(block.byte_count for block in blocks),
        )

    class Java:
        implements = (
            f"{_CONNECTOR}.read.ScanBuilder",
            f"{_CONNECTOR}.read.SupportsPushDownRequiredColumns",
            f"{_SQL}.internal.connector.SupportsPushDownCatalystFilters",
        )


def _no_stream() -> SpeakingProxy:
    raise NotImplementedError("a statement that changes rows reads no stream")


class _GroupWrite(SpeakingProxy):
    """The write of a statement: its builder, and its batch."""

    def __init__(
        self,
        spark: SparkSession,
        loaded: Loaded,
        operation: Operation,
        info: Any,
        read: dict[str, BlockFile],
    ) -> None:
        self._spark = spark
        self.jvm = jvm_of(spark)
        self._table, self._head = loaded.table, loaded.snapshot
        self._operation = operation
        self._info = info
        self._read = read
        head = loaded.snapshot
        schema, columns = resolve(
            head.schema, columns_of_spark(fields_of(info.schema())), case_sensitive=True
        )
        self._schema = schema
        self._writer = TaskWriter(
            store=loaded.table.metadata.store,
            schema=schema,
            columns=columns,
            cluster_key=head.cluster_key,
            target=block_target(head.properties),
        )

    # ---- WriteBuilder, Write

    def build(self) -> _GroupWrite:
        return self

    def description(self) -> str:
        return f"fuse {self._operation}"

    def toBatch(self) -> _GroupWrite:  # noqa: N802
        return self

    def buildForBatch(self) -> Any:  # noqa: N802
        return self

    def buildForStreaming(self) -> Any:  # noqa: N802
        raise NotImplementedError("a statement that changes rows writes no stream")

    def toStreaming(self) -> Any:  # noqa: N802
        raise NotImplementedError("a statement that changes rows writes no stream")

    def supportedCustomMetrics(self) -> Any:  # noqa: N802
        return java_array(self.jvm, f"{_CONNECTOR}.metric.CustomMetric", ())

    def reportDriverMetrics(self) -> Any:  # noqa: N802
        return java_array(self.jvm, f"{_CONNECTOR}.metric.CustomTaskMetric", ())

    # ---- BatchWrite

    def createBatchWriterFactory(self, _info: Any) -> Any:  # noqa: N802
        return writer_factory(self._spark, self._writer.map_in_arrow, self._info.schema())

    def useCommitCoordinator(self) -> bool:  # noqa: N802
        return False  # of several attempts of a task, Spark takes one message

    def onDataWriterCommit(self, message: Any) -> None:  # noqa: N802
        """Do nothing: `commit` gets all messages."""

    def commit(self, messages: Any, *_summary: Any) -> None:
        metadata = self._table.metadata

        def stage(head: Snapshot) -> Staged:
            written = self._writer.gather([collected(returned_rows(messages))])
            found = find_changes(metadata, head, self._read, written, self._schema)
            staged, _ = stage_changes(metadata, head, self._schema, found, self._operation)
            return staged

        intent = Intent(operation=self._operation, **write_options(self._info))
        commit_read(self._table, self._head, intent, stage)

    def abort(self, messages: Any) -> None:
        """Do nothing: vacuum deletes blocks that no commit names."""

    class Java:
        implements = (
            f"{_WRITE}.WriteBuilder",
            f"{_WRITE}.Write",
            f"{_WRITE}.BatchWrite",
        )
