"""The writers of `format("fuse")`: Spark's tasks write blocks, the driver commits them.

Spark makes a writer in one Python process, runs `write` in the executors' workers and `commit` in
another process. They share only the pickled writer and the tasks' messages.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from fuse_stream.commit.ledger import Batch, Verdict, application_of
from fuse_stream.commit.plan import Intent, Staged
from fuse_stream.commit.stage import stage_blocks
from fuse_stream.errors import ConflictError, InvalidInputError
from fuse_stream.format.batch_sums import BatchSums
from fuse_stream.format.evolve import resolve
from fuse_stream.format.properties import block_target
from fuse_stream.format.records import Operation
from fuse_stream.format.schema import Column, Schema
from fuse_stream.objects.slots import Stored
from fuse_stream.spark.frame import open_or_create
from fuse_stream.spark.identity import QUERY_ID_PROPERTY, QueryCheckpoint
from fuse_stream.spark.options import WriteOptions
from fuse_stream.spark.task_writer import TaskResult, TaskWriter
from fuse_stream.spark.types import columns_of_spark
from fuse_stream.table.handle import Table


@dataclass
class TaskMessage(WriterCommitMessage):
    """A task's result, for the driver."""

    result: TaskResult
    query_id: str | None = None
    default_root: str | None = None
    """The session's folder of checkpoints: Spark tells it to tasks, but not to the driver."""


class _Writer:
    """The common part of the batch and the stream writer."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        self.options = options
        self.operation = Operation.OVERWRITE if overwrite else Operation.APPEND
        self.columns = columns_of_spark(schema)
        table = self._open()
        head = table.committer.known_head()
        self.epoch = head.snapshot.epoch
        """The epoch of the head that the tasks write for."""
        resolved, columns = self._resolved(head.snapshot.schema)
        self.tasks = TaskWriter(
            store=table.metadata.store,
            schema=resolved,
            columns=columns,
            cluster_key=head.snapshot.cluster_key,
            target=block_target(head.snapshot.properties),
            is_numbered=options.batch_id is not None,
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write the rows of one task as blocks, or return few rows; runs on an executor."""
        context = TaskContext.get()
        query_id = root = None
        if context is not None:
            query_id = context.getLocalProperty(QUERY_ID_PROPERTY)
            root = context.getLocalProperty("spark.sql.streaming.checkpointLocation")
        result = self.tasks.write(iterator)
        return TaskMessage(result=result, query_id=query_id, default_root=root)

    def commit_batch(self, messages: list[TaskMessage], batch: Batch | None) -> None:
        """Commit the tasks' results as one snapshot; do nothing for an empty append."""
        table = self._open()
        head = table.committer.known_head()
        results = [message.result for message in messages]
        blocks = self.tasks.gather(results)
        is_numbered = batch is not None and batch.is_numbered
        sums = sum((result.batch_sums for result in results), BatchSums()) if is_numbered else None
        clears = self.operation is Operation.OVERWRITE and head.snapshot.summary.row_count > 0
        is_replay = is_numbered and table.committer.examine(batch).verdict is Verdict.REPLAY
        if not (blocks or clears or is_replay or self.options.commit_empty):
            return

        def stage(head: Stored, _before: Staged | None) -> Staged:
            snapshot = head.snapshot
            schema = self._fitting(snapshot.schema)
            staged = stage_blocks(table.metadata, snapshot, schema, blocks, epoch=self.epoch)
            return dataclasses.replace(staged, sums=sums)

        intent = Intent(
            operation=self.operation,
            batch=batch,
            message=self.options.message,
            author=self.options.author,
        )
        measure = None if sums is None else lambda _head: sums
        table.committer.commit(intent, stage, measure=measure)

    def _fitting(self, head: Schema) -> Schema:
        """Return the table's schema after the commit of the tasks' blocks on `head`."""
        schema, columns = self._resolved(head)
        types = {column.id: column.type for column in schema.columns}
        written = {column.id: column.type for column in self.tasks.schema.columns}
        same_ids = columns == self.tasks.columns
        if not same_ids or any(types[column] != written[column] for column in written):
            raise ConflictError(
                "the table's schema changed while the batch was written; write it again",
                schema_id=head.id,
            )
        return schema

    def _resolved(self, head: Schema) -> tuple[Schema, tuple[Column, ...]]:
        return resolve(
            head,
            self.columns,
            merge_schema=self.options.merge_schema,
            case_sensitive=self.options.case_sensitive,
        )

    def _open(self) -> Table:
        options = self.options
        return open_or_create(
            options.location,
            self.columns,
            cluster_by=options.cluster_by,
            case_sensitive=options.case_sensitive,
        )


class FuseWriter(_Writer, DataSourceArrowWriter):
    """`df.write.format("fuse")`."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if (options.app_id is None) != (options.batch_id is None):
            raise InvalidInputError(
                "appId and batchId go together: give both, or neither",
                appId=options.app_id,
                batchId=options.batch_id,
            )
        super().__init__(options, schema, overwrite=overwrite)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the results of all tasks as one snapshot."""
        options, batch = self.options, None
        if options.app_id is not None and options.batch_id is not None:
            batch = Batch(
                application=options.app_id, writer=options.writer, batch_id=options.batch_id
            )
        self.commit_batch(_known(messages), batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: blocks that no snapshot names are invisible, and vacuum deletes them."""


class FuseStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream.format("fuse")`."""

    def __init__(
        self, options: WriteOptions, schema: StructType, *, overwrite: bool, query_name: str | None
    ) -> None:
        if options.checkpoint_location is None and query_name is None:
            raise _without_checkpoint()  # Spark draws the folder's name
        self.query_name = query_name
        super().__init__(options, schema, overwrite=overwrite)

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Commit the results of all tasks as the micro-batch `batchId`, exactly once."""
        known = _known(messages)
        if not known and self.operation is Operation.APPEND:
            return  # a plan without partitions has no tasks, and no rows
        options = self.options
        query_ids = {message.query_id for message in known}
        if len(query_ids) != 1 or None in query_ids:
            raise InvalidInputError(
                "the tasks have no query id, or several; use fuse_sink in foreachBatch",
                query_ids=sorted(map(str, query_ids)),
            )
        (query_id,) = query_ids
        checkpoint = QueryCheckpoint(options.checkpoint_location)
        if options.checkpoint_location is None:
            checkpoint = QueryCheckpoint(f"{known[0].default_root}/{self.query_name}")
            if checkpoint.find_query_id() != query_id:
                raise _without_checkpoint(query=query_id)
        batch = Batch(
            application=application_of(options.app_id),
            writer=options.writer,
            query_id=query_id,
            batch_id=batchId,
            offsets=checkpoint.find_offsets(batchId),
            sources=checkpoint.find_sources(batchId),
            adopt=options.adopt,
            checkpoint=checkpoint,
        )
        self.commit_batch(known, batch)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Do nothing: blocks that no snapshot names are invisible, and vacuum deletes them."""


def _without_checkpoint(**context: str | None) -> InvalidInputError:
    return InvalidInputError(
        "the query's checkpoint is not known, and without it a replay cannot be told from another "
        'batch: pass option("checkpointLocation", …), or use fuse_sink in foreachBatch',
        **context,
    )


def _known(messages: list[WriterCommitMessage | None]) -> list[TaskMessage]:
    return [message for message in messages if isinstance(message, TaskMessage)]
