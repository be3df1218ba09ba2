"""Sets of row positions of one block, as compressed bitmaps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from pyroaring import FrozenBitMap64

Positions: TypeAlias = FrozenBitMap64
"""Rows of a block, counted from 0; an immutable set."""

BlockRows: TypeAlias = Mapping[str, Positions]
"""Rows of several blocks, by block id; never an empty set of a block."""

MOST_SLICES = 100
"""With more hidden rows than this, filtering a table takes less time than slicing it."""
FEW_SHARE = 8
"""If at most one row in so many is shown, taking them takes less time than filtering."""


def positions_of(rows: np.ndarray) -> Positions:
    """Return a set of positions, given in any order as integers."""
    return FrozenBitMap64(np.ascontiguousarray(rows, np.uint64))


def all_rows(row_count: int) -> Positions:
    """Return all positions of a block with so many rows."""
    return FrozenBitMap64(range(row_count))


def others(positions: Positions | None, row_count: int) -> Positions:
    """Return the positions of a block with so many rows that are not in `positions`."""
    if not positions:
        return all_rows(row_count)
    found = positions.flip(0, row_count)
    found.run_optimize()
    return found


def union(rows: BlockRows, more: BlockRows) -> dict[str, Positions]:
    """Return the rows that are in one of two sets, or in both."""
    found = dict(rows)
    for block_id, positions in more.items():
        before = found.get(block_id)
        found[block_id] = positions if before is None else before | positions
    return found


def count_rows(rows: BlockRows) -> int:
    """Return how many rows a set has."""
    return sum(map(len, rows.values()))


def common(rows: BlockRows, also: BlockRows) -> dict[str, Positions]:
    """Return the rows that are in both of two sets."""
    both = {
        block_id: positions & also[block_id]
        for block_id, positions in rows.items()
        if block_id in also
    }
    return {block_id: positions for block_id, positions in both.items() if positions}


def minus(rows: BlockRows, without: BlockRows) -> dict[str, Positions]:
    """Return the rows of the first set that are not in the second."""
    left = {
        block_id: positions - without[block_id] if block_id in without else positions
        for block_id, positions in rows.items()
    }
    return {block_id: positions for block_id, positions in left.items() if positions}


def to_numpy(positions: Positions) -> np.ndarray:
    """Return the positions in ascending order."""
    return np.frombuffer(positions.to_array(), np.uint64).astype(np.int64)


def without_hidden(rows: pa.Table, hidden: Positions | None) -> pa.Table:
    """Return the rows of a whole block that are not hidden, in their order."""
    if not hidden:
        return rows
    if _shows_few(rows, hidden):
        return rows.take(pa.array(to_numpy(others(hidden, len(rows)))))
    if len(hidden) > MOST_SLICES:
        mask = np.ones(len(rows), bool)
        mask[to_numpy(hidden)] = False
        return rows.filter(pa.array(mask))
    at = [-1, *hidden, len(rows)]
    return pa.concat_tables(
        [
            rows.slice(before + 1, after - before - 1)
            for before, after in pairwise(at)
            if after - before > 1
        ]
    )


def each_without_hidden(rows: pa.Table, parts: Iterable[Positions | None]) -> Iterator[pa.Table]:
    """Yield what `without_hidden` returns for each of several sets of hidden rows, in order.

    Parts of few rows are taken together: a call for each costs more than its rows.
    """
    held: list[np.ndarray] = []
    for hidden in parts:
        is_few = _shows_few(rows, hidden)
        # At most as many rows as the block has: so much fits into one table.
        if not is_few or sum(map(len, held)) + len(rows) - len(hidden or ()) > len(rows):
            yield from _taken(rows, held)
            held = []
        if is_few:
            held.append(to_numpy(others(hidden, len(rows))))
        else:
            yield without_hidden(rows, hidden)
    yield from _taken(rows, held)


def _taken(rows: pa.Table, parts: Sequence[np.ndarray]) -> Iterator[pa.Table]:
    """Yield the rows at the positions of each part."""
    together = rows.take(pa.array(np.concatenate(parts))) if parts else rows
    start = 0
    for part in parts:
        yield together.slice(start, len(part))
        start += len(part)


def _shows_few(rows: pa.Table, hidden: Positions | None) -> bool:
    return hidden is not None and (len(rows) - len(hidden)) * FEW_SHARE <= len(rows)
