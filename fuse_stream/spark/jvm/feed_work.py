"""The work of a scan that reads a batch of a table's feed.

Blocks whose rows are delivered as they are, are files with the feed's columns as constants. If some
rows must be left out or compared, or a block is read with columns of its own, tasks read the batch;
and also if Spark's own reader cannot open the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from fuse_stream.feed.change_modes import (
    ChangeMode,
    ComparedTask,
    plan_changes,
    read_changes_task,
)
from fuse_stream.feed.changes import Piece
from fuse_stream.feed.offsets import Batch
from fuse_stream.feed.tasks import BlocksTask, Task, plain_pieces, plan_compared_tasks
from fuse_stream.format.feed_columns import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from fuse_stream.format.layout import block_key
from fuse_stream.format.schema import Schema
from fuse_stream.reading.scan import Selection
from fuse_stream.spark.format_stream import FuseStreamReader
from fuse_stream.spark.jvm.file_scan import Constant, ScannedFile
from fuse_stream.spark.jvm.planned_scan import ScanColumns, ScanWork
from fuse_stream.spark.task_source import TaskReader, TaskWork
from fuse_stream.storage.base import Store

MARKS = (
    Constant(name=CHANGE_TYPE, type="string"),
    Constant(name=COMMIT_VERSION, type="long"),
    Constant(name=COMMIT_TIMESTAMP, type="timestamp"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendReader:
    """Reads tasks of the feed `append`."""

    stream: FuseStreamReader

    def read(self, task: object, _schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        assert isinstance(task, Task | BlocksTask)
        return self.stream.read_task(task)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesReader:
    """Reads tasks of changes in a mode."""

    stream: FuseStreamReader
    mode: ChangeMode

    def read(self, task: object, _schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        assert isinstance(task, Task | ComparedTask)
        # Rows are compared in all columns, also if the query reads some of them.
        schema = to_arrow_schema(self.stream.schema, timezone="UTC")
        store = self.stream.options.location.store()
        rows = read_changes_task(store, task, self.mode, schema)
        return self.stream.name_expired(task.version_of, rows)


def append_work(batch: Batch, stream: FuseStreamReader, *, has_files: bool) -> ScanWork:
    """Return what reads a batch of the feed `append`; its columns are the table's.

    `has_files` says that Spark's own reader can open the store.
    """
    plain = plain_pieces(batch)
    if has_files and not plan_compared_tasks(batch) and are_files(plain, batch.selection):
        files = scanned_files(stream.options.location.store(), plain, lambda _piece: ())
        return ScanWork(files=files)
    return _tasks(AppendReader(stream=stream), stream.tasks(batch))


def changes_work(
    batch: Batch, mode: ChangeMode, stream: FuseStreamReader, *, has_files: bool
) -> ScanWork:
    """Return what reads changes in a mode; their columns are the table's, then `MARKS`.

    `has_files` says that Spark's own reader can open the store.

    Raises:
        InvalidInputError: updates across commits are wanted, and the table has no key.
    """
    plan = plan_changes(batch, mode)
    if not has_files or plan.tasks or not are_files(plan.plain, batch.selection):
        return _tasks(ChangesReader(stream=stream, mode=mode), plan.as_tasks(batch.selection))

    def marks(piece: Piece) -> tuple[str | int, ...]:
        return mode.change_type(piece), piece.version, piece.timestamp_us

    return ScanWork(files=scanned_files(stream.options.location.store(), plan.plain, marks))


def feed_columns(selection: Selection, constants: tuple[Constant, ...]) -> ScanColumns:
    """Return the columns of a scan with a selection."""
    return ScanColumns(schema=selection.schema, constants=constants)


def are_files(pieces: Sequence[Piece], selection: Selection) -> bool:
    """True if a Parquet reader of the selection's columns delivers the rows of pieces."""
    known: dict[int, bool] = {}
    for piece in pieces:
        if piece.block.hidden:
            return False
        own = piece.selection
        if own is not None:
            if id(own) not in known:
                known[id(own)] = _is_read_alike(own.schema, selection.schema)
            if not known[id(own)]:
                return False
    return True


def _is_read_alike(own: Schema, reader: Schema) -> bool:
    """True if the reader's columns, found by id, are what the feed reads from older blocks."""
    return all(
        mine == wanted or min(mine.id, wanted.id) > own.last_column_id  # neither is in the blocks
        for mine, wanted in zip(own.columns, reader.columns, strict=True)
    )


def scanned_files(
    store: Store, pieces: Sequence[Piece], constants: Callable[[Piece], tuple[str | int, ...]]
) -> list[ScannedFile]:
    """Return the files of pieces, with the constants of each."""
    return [
        ScannedFile(
            location=store.location(block_key(piece.block.id, piece.block.origin)),
            byte_count=piece.block.file_size,
            constants=constants(piece),
        )
        for piece in pieces
    ]


def _tasks(reader: TaskReader, tasks: Sequence[object]) -> ScanWork:
    return ScanWork(tasks=TaskWork(reader=reader, tasks=tasks))
