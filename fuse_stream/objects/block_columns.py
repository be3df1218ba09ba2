"""Columns of blocks, cached: blocks never change, and every upsert looks at the same columns."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import pyarrow as pa

from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.records import Block
from fuse_stream.format.schema import Column, Schema
from fuse_stream.objects.blocks import load_block
from fuse_stream.storage.base import Store
from fuse_stream.storage.parallel import each

CACHED_BYTES = 256 * 1024 * 1024
"""The limit of the columns in the cache."""
THREADS = 4
"""The most blocks that are read at a time."""


class BlockColumns:
    """Columns of blocks, those used last; hidden rows are included."""

    def __init__(self, store: Store, limit: int = CACHED_BYTES) -> None:
        self._store = store
        self._limit = limit
        self._columns: OrderedDict[tuple[str, Column], pa.ChunkedArray] = OrderedDict()
        self._bytes = 0

    def iter_tables(self, blocks: Sequence[Block], schema: Schema) -> Iterator[pa.Table]:
        """Yield all rows of each block in the columns of `schema`; read several at a time.

        Raises:
            CorruptObjectError: a block is missing or damaged.
        """
        threads = min(pa.cpu_count(), THREADS)
        lacking = [
            block
            for block in blocks
            if any(values is None for values in self._known(block, schema))
        ]
        awaited = {block.id for block in lacking}

        def load(block: Block) -> pa.Table:
            return self._load(block, schema)

        loaded = each(load, lacking, self._store, at_once=threads)
        for block in blocks:
            table = next(loaded) if block.id in awaited else load(block)
            for column, values in zip(schema.columns, table.columns, strict=True):
                self._keep((block.id, column), values)
            yield table

    def _known(self, block: Block, schema: Schema) -> list[pa.ChunkedArray | None]:
        return [self._columns.get((block.id, column)) for column in schema.columns]

    def _load(self, block: Block, schema: Schema) -> pa.Table:
        """Return all rows of a block, and read the columns that are not in the cache."""
        known = dict(zip(schema.columns, self._known(block, schema), strict=True))
        lacking = tuple(column for column, values in known.items() if values is None)
        if lacking:
            wanted = dataclasses.replace(schema, columns=lacking)
            rows = load_block(self._store, block.hiding(None), wanted)
            known |= dict(zip(lacking, rows.columns, strict=True))
        return pa.Table.from_arrays(list(known.values()), schema=arrow_schema(schema))

    def _keep(self, at: tuple[str, Column], values: pa.ChunkedArray) -> None:
        if at in self._columns:
            self._columns.move_to_end(at)
            return
        self._columns[at] = values
        self._bytes += values.nbytes
        while self._bytes > self._limit and self._columns:
            _, dropped = self._columns.popitem(last=False)
            self._bytes -= dropped.nbytes
