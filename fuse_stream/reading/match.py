"""How many rows of a block match: by its statistics where they decide, else by reading it, once."""

from __future__ import annotations

from fuse_stream.format.records import Block
from fuse_stream.objects.blocks import MAX_WHOLE_BYTES
from fuse_stream.reading.scan import (
    Selection,
    count_matches,
    stats_may_match,
    stats_must_match,
)
from fuse_stream.storage.base import Store


class MatchCounts:
    """Counts the rows of blocks that one predicate matches, and remembers: blocks never change.

    The predicate may be bound to several schemas of a line; what it is for a block depends only on
    the columns that the block holds.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: dict[tuple[object, ...], int] = {}
        self.blocks_read = 0
        """So far."""

    def find(self, block: Block, selection: Selection) -> int | None:
        """Return how many rows match; None if only reading the block would tell."""
        if not stats_may_match(selection, block.col_stats, block.row_count):
            return 0
        if stats_must_match(selection, block.col_stats, block.row_count):
            return block.row_count
        return self._counts.get(_key(block, selection))

    def load(self, block: Block, selection: Selection) -> int:
        """Return how many rows match, reading the block if it must be.

        Raises:
            CorruptObjectError: the block is missing or damaged.
        """
        found = self.find(block, selection)
        if found is None:
            found = count_matches(self._store, block, selection)
            self._counts[_key(block, selection)] = found
            self.blocks_read += 1
        return found


def read_cost(block: Block, selection: Selection) -> int:
    """Return how many bytes it takes to look at a block."""
    if block.file_size <= MAX_WHOLE_BYTES:
        return block.file_size
    return sum(block.col_metas[column].len for column in _held(block, selection))


def _key(block: Block, selection: Selection) -> tuple[object, ...]:
    return block.identity, _held(block, selection)


def _held(block: Block, selection: Selection) -> tuple[int, ...]:
    """Return the ids of the looked-at columns that a block holds; the others are null in it."""
    leaves = (leaf.column.id for leaf in selection.read.leaves())
    return tuple(column for column in leaves if column in block.col_metas)
