"""Read the rows that blocks show, in Python workers, by the tasks of `task_source`.

So rows are read that Spark's own reader cannot read: it knows nothing of hidden rows, and it has no
file system for some stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.format.positions import Positions, to_numpy
from fuse_stream.format.records import Block, Snapshot
from fuse_stream.format.schema import Schema
from fuse_stream.objects.blocks import load_block
from fuse_stream.objects.slots import Metadata
from fuse_stream.objects.snapshot_blocks import iter_named
from fuse_stream.reading.history import expiry_reported
from fuse_stream.reading.scan import BATCH_ROWS
from fuse_stream.reading.tasks import split_work, without_statistics, work_bytes
from fuse_stream.spark.task_source import TaskWork
from fuse_stream.storage.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceColumns:
    """The names of two more columns, which say where a row is."""

    block: str
    """What the driver calls the row's block: a text or a number."""
    row: str
    """The row's position in the block, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRows:
    """Reads blocks of a snapshot; a task is some of them, each with what the driver calls it."""

    store: Store
    schema: Schema
    version_of: tuple[str, int]
    """The branch's id and the version of the snapshot."""
    places: PlaceColumns | None = None

    def read(self, task: object, schema: pa.Schema) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Yield the rows of blocks.

        Raises:
            SnapshotExpiredError: the snapshot has expired, and a block is gone.
            CorruptObjectError: a block is missing or damaged.
        """
        assert isinstance(task, tuple)
        with expiry_reported(Metadata(self.store, SYSTEM_CLOCK), self.version_of):
            for name, block in task:
                yield from self._rows(name, block).to_batches(max_chunksize=BATCH_ROWS)

    def _rows(self, name: str | int, block: Block) -> pa.Table:
        rows = load_block(self.store, block, self.schema)
        if self.places is None:
            return rows
        kind = pa.string() if isinstance(name, str) else pa.int64()
        rows = rows.append_column(self.places.block, pa.repeat(pa.scalar(name, kind), len(rows)))
        return rows.append_column(self.places.row, pa.array(shown_positions(block), pa.int64()))


def shown_positions(block: Block) -> np.ndarray:
    """Return the positions of the rows that a block shows, in order."""
    positions = np.arange(block.row_count)
    if block.hidden is None:
        return positions
    return to_numpy(Positions(positions) - block.hidden)


def shown_work(
    metadata: Metadata,
    snapshot: Snapshot,
    block_ids: Sequence[str],
    schema: Schema,
    *,
    places: PlaceColumns | None = None,
    name_of: Callable[[str], str | int] = str,
) -> TaskWork:
    """Return what reads blocks of a snapshot in Python workers.

    Args:
        metadata: the table's.
        snapshot: of the table.
        block_ids: the blocks' ids.
        schema: the columns to read.
        places: two more columns, if any.
        name_of: returns what the first of these says of a block, from the block's id.
    """
    blocks = [
        (name_of(block.id), without_statistics(block))
        for block in iter_named(metadata, snapshot, block_ids)
    ]
    reader = ShownRows(
        store=metadata.store,
        schema=schema,
        version_of=(snapshot.branch_id, snapshot.version),
        places=places,
    )
    parts = split_work([work_bytes(block) for _, block in blocks])
    return TaskWork(reader=reader, tasks=[tuple(blocks[part]) for part in parts])
