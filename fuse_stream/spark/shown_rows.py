"""Read the rows that blocks show, in Python workers, each block with its number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from fuse_stream.format.records import Block
from fuse_stream.format.schema import Schema
from fuse_stream.objects.blocks import load_block
from fuse_stream.reading.scan import BATCH_ROWS
from fuse_stream.storage.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedBlock:
    """A task of `task_source`."""

    number: int
    block: Block


class ShownRows:
    """Reads numbered blocks."""

    def __init__(self, store: Store, schema: Schema, number: str) -> None:
        """Read the columns of `schema`, and the column called `number`."""
        self._store = store
        self._schema = schema
        self._number = number

    def read(self, task: object, schema: pa.Schema) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Yield the rows of a block; errors of `load_block`."""
        assert isinstance(task, NumberedBlock)
        rows = load_block(self._store, task.block, self._schema)
        numbers = pa.repeat(pa.scalar(task.number, pa.int64()), len(rows))
        yield from rows.append_column(self._number, numbers).to_batches(max_chunksize=BATCH_ROWS)
