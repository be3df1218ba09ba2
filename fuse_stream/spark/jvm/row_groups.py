"""Statements that change rows, by whole blocks: tasks write all of their rows anew.

Tasks without classes of the package cannot say which row became which. So they write Parquet files
beside the table, by Spark's own writer; the driver compares the rows before and after, and the
commit has only those that differ: it hides the old ones, and adds the new ones. So the table and
its feed are as after the same statement by `row_deltas`, but a MERGE has no updates: an updated row
is a delete and an insert.

Rules:
- What the statement asks of the rows rules out blocks, but no row of the others: the statement
  leaves as they are the rows that it does not change.
- Rows are equal if all bits are: an update of 0.0 to -0.0 is one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from fuse_stream.commit.plan import Intent, Staged, check_may_change
from fuse_stream.errors import InvalidInputError, UnsupportedStorageError
from fuse_stream.format.evolve import resolve
from fuse_stream.format.layout import staged_prefix
from fuse_stream.format.records import Snapshot
from fuse_stream.spark.block_scan import session_like
from fuse_stream.spark.compared_rows import StagedFiles, find_changes
from fuse_stream.spark.jvm.file_scan import hadoop_name, hadoop_path
from fuse_stream.spark.jvm.java_errors import SpeakingProxy
from fuse_stream.spark.jvm.loaded_table import hidden_schema
from fuse_stream.spark.jvm.proxies import java_class, jvm_of, scala_seq
from fuse_stream.spark.jvm.row_deltas import fields_of
from fuse_stream.spark.jvm.row_scan import (
    BLOCK,
    GroupScan,
    RowScanBuilder,
    RowSource,
    references,
)
from fuse_stream.spark.jvm.row_write import RowWrite
from fuse_stream.spark.staged_changes import commit_read, stage_changes
from fuse_stream.spark.types import columns_of_spark

_LOG = logging.getLogger(__name__)
_SQL = "org.apache.spark.sql"
_CONNECTOR = f"{_SQL}.connector"
_WRITE = f"{_CONNECTOR}.write"
_SOURCES = f"{_SQL}.execution.datasources"
_WRITER_SETTINGS = {
    # Arrow reads what these settings write without losing anything.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.compression.codec": "snappy",
    "spark.sql.caseSensitive": "true",
    "spark.sql.sources.commitProtocolClass": (f"{_SOURCES}.SQLHadoopMapReduceCommitProtocol"),
}


class GroupOperation(SpeakingProxy):
    """One statement."""

    def __init__(
        self, spark: SparkSession, source: RowSource, command: Any, intent: Intent
    ) -> None:
        self._spark = spark
        self.jvm = jvm_of(spark)
        self._source = source
        self._command = command
        self._intent = intent
        self._scan: GroupScan | None = None

    def description(self) -> str:
        return f"fuse {str(self._command.toString()).lower()}"

    def command(self) -> Any:
        return self._command

    def newScanBuilder(self, _options: Any) -> Any:  # noqa: N802 - Spark's names, here and below
        snapshot = self._source.loaded.snapshot
        check_may_change(snapshot)
        if not self._source.has_files:
            raise UnsupportedStorageError(
                "a statement that rewrites blocks writes files by Spark's own writer, and Spark "
                "has no file system for this store: give it the jar, or use fuse.merge, "
                "fuse.update or fuse.delete",
                path=self._source.loaded.table.location.path,
            )
        if hidden := hidden_schema(snapshot.schema).names():
            raise InvalidInputError(
                "a statement that rewrites blocks would lose the hidden columns of the rows: use "
                "fuse.merge, fuse.update or fuse.delete",
                columns=list(hidden),
            )
        return RowScanBuilder(self._spark, self._source, make=self._made)

    def _made(self, *arguments: Any) -> GroupScan:
        self._scan = GroupScan(*arguments)
        return self._scan

    def newWriteBuilder(self, info: Any) -> Any:  # noqa: N802
        return _GroupWrite(self._spark, self._source, self._intent, info, self._read)

    def _read(self) -> list[str]:
        """Return the ids of the blocks that were read."""
        assert self._scan is not None  # Spark reads before it writes
        return [block.block_id for block in self._scan.blocks]

    def requiredMetadataAttributes(self) -> Any:  # noqa: N802
        return references(self.jvm, (BLOCK,))

    class Java:
        implements = (f"{_WRITE}.RowLevelOperation",)


class _GroupWrite(RowWrite):
    """The write of a statement: its builder, and its batch."""

    def __init__(
        self,
        spark: SparkSession,
        source: RowSource,
        intent: Intent,
        info: Any,
        read: Callable[[], list[str]],
    ) -> None:
        self._spark = spark
        self.jvm = jvm_of(spark)
        self._table, self._head = source.loaded.table, source.loaded.snapshot
        self.intent = intent
        self._info = info
        self._read = read
        metadata = self._table.metadata
        row = fields_of(info.schema())
        schema, columns = resolve(self._head.schema, columns_of_spark(row), case_sensitive=True)
        self._schema = schema
        self._staged = StagedFiles(
            store=metadata.store,
            prefix=staged_prefix(metadata.clock.new_id()),
            columns=columns,
            schema=schema,
        )
        self._files: Any = None
        """Spark's own write of the files."""

    def _file_write(self) -> Any:
        jvm = self.jvm
        writer = session_like(self._spark, _WRITER_SETTINGS)
        # By their place: names may be such as Parquet's writer refuses.
        row = fields_of(self._info.schema())
        named = StructType(
            [StructField(f"c{at}", field.dataType) for at, field in enumerate(row.fields)]
        )
        fields = writer.parseDataType(named.json())
        options = java_class(jvm, f"{_SQL}.util.CaseInsensitiveStringMap").empty()
        table = java_class(jvm, f"{_SOURCES}.v2.parquet.ParquetTable")(
            "staged rows",
            writer,
            options,
            scala_seq(jvm, [hadoop_name(self._staged.location)]),
            jvm.scala.Some(fields),
            java_class(jvm, "java.lang.Class").forName(f"{_SOURCES}.parquet.ParquetFileFormat"),
        )
        nothing = jvm.java.util.Optional.empty()
        info = java_class(jvm, f"{_WRITE}.LogicalWriteInfoImpl")(
            self._info.queryId(), fields, options, nothing, nothing
        )
        sessions = java_class(jvm, f"{_SQL}.classic.SparkSession")
        active = sessions.active()
        sessions.setActiveSession(writer)  # Spark takes the settings of this one
        try:
            return table.newWriteBuilder(info).build().toBatch()
        finally:
            sessions.setActiveSession(active)

    # ---- BatchWrite

    def createBatchWriterFactory(self, info: Any) -> Any:  # noqa: N802
        # Not before: if Spark fails to look which blocks have a row to change, it aborts nothing.
        self._files = self._file_write()
        return self._files.createBatchWriterFactory(info)

    def useCommitCoordinator(self) -> bool:  # noqa: N802
        return bool(self._files.useCommitCoordinator())

    def onDataWriterCommit(self, message: Any) -> None:  # noqa: N802
        self._files.onDataWriterCommit(message)

    def commit(self, messages: Any, *_summary: Any) -> None:
        self._files.commit(messages)

        def stage(head: Snapshot) -> Staged:
            metadata = self._table.metadata
            found = find_changes(metadata, head, self._read(), self._staged)
            staged, _ = stage_changes(metadata, head, self._schema, found, self.intent.operation)
            return staged

        commit_read(self._table, self._head, self.intent, stage)
        self._delete_files()

    def abort(self, messages: Any) -> None:
        self._files.abort(messages)
        self._delete_files()

    def _delete_files(self) -> None:
        session: Any = self._spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
        folder = hadoop_path(self.jvm, self._staged.location)
        try:
            files = folder.getFileSystem(session.sessionState().newHadoopConf())
            files.delete(folder, True)  # noqa: FBT003 - Java's: with what is in it
        except Py4JJavaError as error:  # the statement has ended without it
            _LOG.warning("vacuum will delete the files of a statement in _staged/: %s", error)

    class Java:
        implements = (
            f"{_WRITE}.WriteBuilder",
            f"{_WRITE}.Write",
            f"{_WRITE}.BatchWrite",
        )
