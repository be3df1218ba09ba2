"""Write in Spark's tasks: a task stores its rows as blocks, or returns few rows to the driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.format.arrow import adapt, arrow_schema
from fuse_stream.format.batch_sums import BatchSums, MeasuredTables
from fuse_stream.format.jsonio import dump_canonical, from_json, load_json, to_json
from fuse_stream.format.properties import BlockTarget
from fuse_stream.format.records import Block
from fuse_stream.format.schema import Column, Schema
from fuse_stream.objects.blocks import store_blocks
from fuse_stream.storage.base import Store
from fuse_stream.storage.parallel import background_puts

HANDED_OVER_BYTES = 1024 * 1024
"""A task with at most this many bytes returns its rows; the driver merges them into blocks."""

GATHERED_BYTES = 4 * HANDED_OVER_BYTES
"""Spark's batches are small; this many bytes of them are adapted to the table together."""

RESULT_SCHEMA = "block string, rows binary, sums string"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """One task's stored blocks and returned rows. Small: Spark sends it to the driver."""

    blocks: tuple[str, ...] = ()
    """Records of blocks that are in the store, as JSON."""
    rows: tuple[bytes, ...] = ()
    """Rows in Arrow's stream format, with the columns of the table's schema."""
    sums: tuple[str, ...] = ()
    """The `BatchSums` of all rows, as JSON, if the batch is numbered."""

    @property
    def batch_sums(self) -> BatchSums:
        """The sums of all rows of a numbered batch."""
        parts = (from_json(BatchSums, load_json(part.encode()), {}) for part in self.sums)
        return sum(parts, BatchSums())


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWriter:
    """Writes the rows of one task. Made on the driver, used on executors."""

    store: Store
    schema: Schema
    columns: tuple[Column, ...]
    """The columns of the rows, with their ids in `schema`."""
    cluster_key: tuple[int, ...]
    target: BlockTarget
    is_numbered: bool = False
    """Whether to sum up the rows, because a program numbers the batch."""
    handed_over_bytes: int = HANDED_OVER_BYTES

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskResult:
        """Store the rows of a task as blocks, and return their records; or return few rows."""
        adapted = self._adapted(batches)
        if not self.is_numbered:
            return self._written(adapted)
        measured = MeasuredTables(adapted, self.schema)
        result = self._written(measured)
        return replace(result, sums=(_to_text(measured.sums),))

    def measure_in_arrow(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the sums of a task's rows as a row of `RESULT_SCHEMA`; write nothing."""
        measured = MeasuredTables(self._adapted(batches), self.schema)
        for _ in measured:
            pass
        yield _as_rows(TaskResult(sums=(_to_text(measured.sums),)))

    def map_in_arrow(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of a task; yield its result as rows of `RESULT_SCHEMA`."""
        yield _as_rows(self.write(batches))

    def gather(self, results: Iterable[TaskResult]) -> tuple[Block, ...]:
        """Return the blocks of all tasks; store the returned rows as further blocks."""
        types = self.schema.leaf_types
        blocks: list[Block] = []
        handed_over: list[pa.Table] = []
        for result in results:
            blocks += [
                from_json(Block, load_json(block.encode()), types) for block in result.blocks
            ]
            for rows in result.rows:
                with pa.ipc.open_stream(rows) as reader:
                    handed_over.append(reader.read_all().cast(arrow_schema(self.schema)))
        merged = [pa.concat_tables(handed_over)] if handed_over else []
        return (*blocks, *self._put(merged))

    def _adapted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        return (adapt(table, self.columns, self.schema) for table in _gathered(batches))

    def _written(self, tables: Iterator[pa.Table]) -> TaskResult:
        first = next(tables, None)
        if first is None:
            return TaskResult()
        if first.nbytes <= self.handed_over_bytes:  # then there are no other tables
            return TaskResult(rows=(_to_ipc(first),))
        blocks = self._put(chain([first], tables))
        types = self.schema.leaf_types
        return TaskResult(
            blocks=tuple(dump_canonical(to_json(block, types)).decode() for block in blocks)
        )

    def _put(self, tables: Iterable[pa.Table]) -> tuple[Block, ...]:
        with background_puts(self.store) as puts:
            blocks = store_blocks(
                puts,
                tables,
                self.schema,
                self.cluster_key,
                target=self.target,
                clock=SYSTEM_CLOCK,
            )
            return tuple(blocks)


def collected(rows: Iterable[Any]) -> TaskResult:
    """Return the results of all tasks as one, from their rows of `RESULT_SCHEMA`."""
    rows = list(rows)
    return TaskResult(
        blocks=tuple(row.block for row in rows if row.block is not None),
        rows=tuple(bytes(row.rows) for row in rows if row.rows is not None),
        sums=tuple(row.sums for row in rows if row.sums is not None),
    )


def _as_rows(result: TaskResult) -> pa.RecordBatch:
    blocks, rows, sums = len(result.blocks), len(result.rows), len(result.sums)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([*result.blocks, *[None] * (rows + sums)], pa.string()),
            pa.array([*[None] * blocks, *result.rows, *[None] * sums], pa.binary()),
            pa.array([*[None] * (blocks + rows), *result.sums], pa.string()),
        ],
        names=["block", "rows", "sums"],
    )


def _to_text(sums: BatchSums) -> str:
    return dump_canonical(to_json(sums, {})).decode()


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of `batches` in tables of `GATHERED_BYTES` or a little more; none is empty."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
        if size >= GATHERED_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _to_ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
