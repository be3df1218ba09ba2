"""The key columns of blocks, cached: blocks never change, and every upsert looks at them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

import pyarrow as pa

from fuse_stream.format.grouping import grouping_keys
from fuse_stream.format.records import Block
from fuse_stream.format.schema import Column, Schema
from fuse_stream.objects.blocks import load_block
from fuse_stream.storage.base import Store
from fuse_stream.storage.parallel import each

CACHED_BYTES = 256 * 1024 * 1024
"""The limit of the columns in the cache."""
THREADS = 4
"""The most blocks that are read at a time."""


class KeyColumns:
    """The key columns of blocks, those used last; hidden rows are included."""

    def __init__(self, store: Store, limit: int = CACHED_BYTES) -> None:
        self._store = store
        self._limit = limit
        self._tables: OrderedDict[tuple[str, tuple[Column, ...]], pa.Table] = OrderedDict()
        self._bytes = 0

    def iter_keys(self, blocks: Sequence[Block], keys: Schema) -> Iterator[tuple[Block, pa.Table]]:
        """Yield the columns of `keys` of each block, as `grouping_keys`; read several at a time."""

        def load(block: Block) -> pa.Table:
            known = self._tables.get((block.id, keys.columns))
            if known is not None:
                return known
            return grouping_keys(load_block(self._store, block.hiding(None), keys))

        threads = min(pa.cpu_count(), THREADS)
        found = each(load, blocks, self._store, at_once=threads)
        for block, table in zip(blocks, found, strict=True):
            self._keep((block.id, keys.columns), table)
            yield block, table

    def _keep(self, at: tuple[str, tuple[Column, ...]], table: pa.Table) -> None:
        if at in self._tables:
            self._tables.move_to_end(at)
            return
        self._tables[at] = table
        self._bytes += table.nbytes
        while self._bytes > self._limit and self._tables:
            _, dropped = self._tables.popitem(last=False)
            self._bytes -= dropped.nbytes
