"""The rows of a snapshot that have some of the arriving keys."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
import pyarrow as pa

from fuse_stream.dml.keys import KeySearch
from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.positions import Positions, positions_of, to_numpy
from fuse_stream.format.records import Block, Snapshot
from fuse_stream.format.schema import Schema
from fuse_stream.objects.blocks import load_block
from fuse_stream.objects.slots import Metadata


class StoredRows:
    """Rows that some blocks show, numbered from 0, in the order of the blocks."""

    def __init__(self, metadata: Metadata, blocks: Iterable[Block]) -> None:
        self._metadata = metadata
        self.blocks = tuple(block for block in blocks if block.live_rows)
        """They show just these rows."""

        self._ends = np.cumsum([block.live_rows for block in self.blocks])

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def load(self, schema: Schema, numbers: np.ndarray | None = None) -> pa.Table:
        """Return rows in the columns of `schema`: all, or those with the given ascending numbers.

        Raises:
            CorruptObjectError: a block is missing or damaged.
        """
        blocks = self.blocks if numbers is None else self._of(numbers)
        tables = [load_block(self._metadata.store, block, schema) for block in blocks]
        return pa.concat_tables([arrow_schema(schema).empty_table(), *tables])

    def load_cached(self, schema: Schema) -> pa.Table:
        """Return all rows in few narrow columns, which the next batches will ask for, too.

        Raises:
            CorruptObjectError: a block is missing or damaged.
        """
        tables = self._metadata.block_columns.iter_tables(self.blocks, schema)
        rows = [table.take(pa.array(at)) for table, at in zip(tables, self._shown, strict=True)]
        return pa.concat_tables([arrow_schema(schema).empty_table(), *rows])

    def only(self, numbers: np.ndarray) -> StoredRows:
        """Return the rows with the given ascending numbers, numbered anew."""
        return StoredRows(self._metadata, self._of(numbers))

    def positions(self, numbers: np.ndarray) -> dict[str, Positions]:
        """Return where the rows with the given ascending numbers are, by block."""
        return {block.id: block.shown for block in self._of(numbers)}

    def _of(self, numbers: np.ndarray) -> list[Block]:
        found, start = [], 0
        for block, shown, end in zip(self.blocks, self._shown, self._ends, strict=True):
            own = numbers[np.searchsorted(numbers, start) : np.searchsorted(numbers, end)] - start
            if len(own):
                found.append(block.showing(positions_of(shown[own])))
            start = end
        return found

    @cached_property
    def _shown(self) -> list[np.ndarray]:
        return [to_numpy(block.shown) for block in self.blocks]


def find_keys(metadata: Metadata, head: Snapshot, keys: Schema, wanted: pa.Table) -> StoredRows:
    """Return the rows that a snapshot shows and that have one of the keys, which differ."""
    if not len(wanted):
        return StoredRows(metadata, ())
    return StoredRows(metadata, KeySearch(keys, wanted).find(metadata, head).blocks)


def union_of_rows(blocks: Iterable[Block], more: Iterable[Block]) -> list[Block]:
    """Return blocks that show the rows that either of two lists of blocks shows."""
    found = {block.id: block for block in blocks}
    for block in more:
        known = found.get(block.id)
        shown = block.shown if known is None else known.shown | block.shown
        found[block.id] = block.showing(shown)
    return list(found.values())
