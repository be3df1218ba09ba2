"""Blocks as the work of tasks: cut evenly where a read is planned, read in batches by each task.

Pure but for `iter_batches`, whose tables may be read as they are asked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from fuse_stream.format.records import Block
from fuse_stream.reading.scan import BATCH_ROWS

OPEN_BYTES = 128 * 1024
"""The cost of opening a block, as the bytes that could be read in that time."""

LEAST_TASK_BYTES = 32 * 1024 * 1024
"""About a second's work. What is less is one task: to start one takes a tenth of a second."""
MOST_TASK_BYTES = 64 * 1024 * 1024
WANTED_TASKS = 16
"""Between those bounds. Fixed, for a source is not told how many cores there are, and a batch that
runs again elsewhere should be cut the same way."""

SHARED_BATCH_ROWS = 8192
"""Small tables share a batch of about this many rows, which a processor's cache holds."""


def work_bytes(block: Block) -> int:
    """Return the cost of reading a block, in bytes."""
    return block.file_size + OPEN_BYTES


def split_work(costs: Sequence[int]) -> list[slice]:
    """Return where to cut a list of blocks with these costs into tasks; its order is kept.

    Many small blocks make one task: a thousand small commits are not a thousand tasks.
    """
    total = sum(costs)
    # A power of two: cores mostly are one, and then none of them waits for the last task.
    count = WANTED_TASKS
    while count > 1 and total < count * LEAST_TASK_BYTES:
        count //= 2
    size = min(-(-total // count), MOST_TASK_BYTES)
    tasks: dict[int, slice] = {}
    before = 0
    for at, cost in enumerate(costs):
        number = (before + cost // 2) // size
        tasks[number] = slice(tasks[number].start if number in tasks else at, at + 1)
        before += cost
    return list(tasks.values())


def without_statistics(block: Block) -> Block:
    """Return a block that only says where its rows are: small to send."""
    return dataclasses.replace(block, col_stats={}, col_metas={}, cluster_stats=None)


def iter_batches(
    tables: Iterable[tuple[tuple[object, ...], pa.Table]], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `tables`, in order, in batches of at most `BATCH_ROWS` rows of `schema`.

    Each table comes with the values of the columns that `schema` has after the table's own: one
    value a column, the same in all rows. Values past the last column are left out.
    """
    held: list[tuple[tuple[object, ...], pa.Table]] = []
    rows = 0
    for values, table in tables:
        if not len(table):
            continue
        if held and rows + len(table) > SHARED_BATCH_ROWS:
            yield from _batches(held, schema)
            held, rows = [], 0
        held.append((values, table))
        rows += len(table)
    if held:
        yield from _batches(held, schema)


def _batches(
    held: list[tuple[tuple[object, ...], pa.Table]], schema: pa.Schema
) -> list[pa.RecordBatch]:
    constants, tables = zip(*held, strict=True)
    rows = pa.concat_tables(tables)
    columns = [
        pa.chunked_array(
            [
                pa.repeat(pa.scalar(value, field.type), len(table))
                for value, table in zip(values, tables, strict=True)
            ]
        )
        for field, values in zip(
            list(schema)[rows.num_columns :], zip(*constants, strict=True), strict=False
        )
    ]
    marked = pa.Table.from_arrays([*rows.columns, *columns], schema=schema)
    if len(tables) > 1:
        marked = marked.combine_chunks()
    return marked.to_batches(max_chunksize=BATCH_ROWS)  # type: ignore[no-any-return]
