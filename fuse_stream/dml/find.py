"""Find the rows of a head that a change applies to.

The rows of a block that match do not depend on which of them are hidden, and blocks never change.
So each block is read once, however many heads the change is planned on; a new head needs only the
blocks that it does not share with the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from fuse_stream.format.positions import Positions, all_rows, positions_of
from fuse_stream.format.records import Block, Snapshot
from fuse_stream.format.schema import Schema
from fuse_stream.objects.blocks import load_block
from fuse_stream.objects.slots import Metadata
from fuse_stream.predicate.evaluate import filter_mask
from fuse_stream.reading.scan import Selection, prune, stats_must_match
from fuse_stream.storage.parallel import each

THREADS = 4
"""The most blocks that are read at a time."""

Progress = Callable[[int, int], object]
"""Called with the number of blocks that were searched, and of all to search."""


class RowFinder:
    """Finds the matching rows of one head after another."""

    def __init__(self, metadata: Metadata, progress: Progress | None = None) -> None:
        self._metadata = metadata
        self._progress = progress
        self._matching: dict[tuple[str, Schema], Positions] = {}
        """By block and the columns that were looked at: hidden rows included."""

    def find(
        self,
        head: Snapshot,
        selection: Selection,
        keeps: Callable[[pa.Table], pa.Array | pa.ChunkedArray] | None = None,
    ) -> list[Block]:
        """Return the blocks of a head with a matching row, oldest first, showing only such rows.

        Args:
            head: the snapshot.
            selection: the columns to read, and the predicate.
            keeps: returns for each row of these columns whether it is one that the caller wants,
                besides matching the predicate; without nulls.

        Raises:
            CorruptObjectError: a block is missing or damaged.
        """
        blocks = list(prune(self._metadata, head, selection))
        found: list[Block] = []
        for done, (block, matching) in enumerate(self.search(blocks, selection, keeps), 1):
            rows = matching if block.hidden is None else matching - block.hidden
            if rows:
                found.append(block.showing(rows))
            if self._progress is not None:
                self._progress(done, len(blocks))
        return found

    def search(
        self,
        blocks: list[Block],
        selection: Selection,
        keeps: Callable[[pa.Table], pa.Array | pa.ChunkedArray] | None = None,
    ) -> Iterator[tuple[Block, Positions]]:
        """Yield blocks with their matching rows, hidden ones included; errors of `find`."""
        store = self._metadata.store

        def search(block: Block) -> Positions:
            known = self._matching.get((block.id, selection.read))
            if known is not None:
                return known
            matches_whole = stats_must_match(selection, block.col_stats, block.row_count)
            if matches_whole and keeps is None:
                return all_rows(block.row_count)
            rows = load_block(store, block.hiding(None), selection.read)
            mask = np.ones(len(rows), bool)
            if selection.predicate is not None and not matches_whole:
                mask &= filter_mask(selection.predicate, rows).to_numpy(zero_copy_only=False)
            if keeps is not None:
                mask &= keeps(rows).to_numpy(zero_copy_only=False)
            return positions_of(np.flatnonzero(mask))

        threads = min(pa.cpu_count(), THREADS)
        for block, matching in zip(
            blocks, each(search, blocks, store, at_once=threads), strict=True
        ):
            self._matching[block.id, selection.read] = matching
            yield block, matching
