"""Split blocks into tasks of similar size, and return each task's rows in batches.

Pure, except that the tables of `iter_batches` may be read lazily.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from fuse_stream.format.records import Block
from fuse_stream.reading.scan import BATCH_ROWS

OPEN_BYTES = 128 * 1024
"""The cost of opening a block: the number of bytes that could be read in that time."""

LEAST_TASK_BYTES = 32 * 1024 * 1024
"""About a second of work. Less is one task: starting a task takes a tenth of a second."""
MOST_TASK_BYTES = 64 * 1024 * 1024
WANTED_TASKS = 16
"""The number of tasks if their size is within those bounds. It is fixed: a source does not know the
number of cores, and a repeated batch should have the same tasks."""

SHARED_BATCH_ROWS = 8192
"""Small tables are combined to batches of about this many rows, which fit into a CPU cache."""


def work_bytes(block: Block) -> int:
    """Return the cost of reading a block, in bytes."""
    return block.file_size + OPEN_BYTES


def split_work(costs: Sequence[int]) -> list[slice]:
    """Return the slices of a list of blocks with these costs, one per task, in order.

    Many small blocks are one task: 1,000 small commits are not 1,000 tasks.
    """
    total = sum(costs)
    # A power of two, as most numbers of cores are: then all cores finish together.
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
    """Return a block without statistics and column locations, which is small to send."""
    return dataclasses.replace(block, col_stats={}, col_metas={}, cluster_stats=None)


def iter_batches(
    tables: Iterable[tuple[tuple[object, ...], pa.Table]], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `tables`, in order, in batches of at most `BATCH_ROWS` rows of `schema`.

    Each table is given with the values of the columns that `schema` has after the table's own: one
    value per column, the same in all rows. Surplus values are ignored.
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
