"""Blocks as records of the keys that they hold, and how sorting changes them, without a store."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import count

from fuse_stream.format.properties import BlockTarget
from fuse_stream.format.records import (
    Block,
    ClusterStats,
    ColumnStats,
    KeyRange,
    Value,
)
from fuse_stream.optimize.rewrite import Group, row_counts

KEY = (1,)
ROW_BYTES = 8
_ids = count()

Row = Value | None


class Blocks:
    """Records of blocks, and the rows of each."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {}
        self.rewrites: dict[str, list[int]] = {}
        """By block, how often each of its rows was rewritten."""

    def make(self, rows: Iterable[Row], *, level: int = 0, rewrites: int = 0) -> Block:
        """Return the record of a block that holds one key a row."""
        held = list(rows)
        block = block_of(held, level=level)
        self.rows[block.id] = held
        self.rewrites[block.id] = [rewrites] * len(held)
        return block

    def rewrite(self, group: Group, target: BlockTarget) -> tuple[Block, ...]:
        """Return the blocks into which a group is rewritten."""
        rows = sorted((row for each in group.inputs for row in self.rows[each.id]), key=in_order)
        rewrites = 1 + max(most for each in group.inputs for most in self.rewrites[each.id])
        outputs, start = [], 0
        for size in row_counts(group.inputs, target):
            part = rows[start : start + size]
            outputs.append(self.make(part, level=group.level, rewrites=rewrites))
            start += size
        return tuple(outputs)

    def rewritten(self, blocks: Iterable[Block]) -> list[int]:
        """Return how often each row of `blocks` was rewritten."""
        return [count for block in blocks for count in self.rewrites[block.id]]


def block_of(rows: Sequence[Row], *, level: int = 0, key: tuple[int, ...] = KEY) -> Block:
    """Return the record of a block with one key a row, written for the cluster key `key`."""
    values = [row for row in rows if row is not None and not _is_nan(row)]
    stats = ColumnStats(
        min=min(values, default=None),
        max=max(values, default=None),
        null_count=sum(row is None for row in rows),
        nan_count=sum(_is_nan(row) for row in rows),
        in_memory_size=ROW_BYTES * len(rows),
    )
    return Block(
        id=f"{next(_ids):032x}",
        row_count=len(rows),
        block_size=ROW_BYTES * len(rows),
        file_size=ROW_BYTES * len(rows),
        sha256="0" * 64,
        schema_id=0,
        col_stats=dict.fromkeys(key, stats),
        col_metas={},
        cluster_stats=ClusterStats(
            range=KeyRange(columns=key, min=(stats.min,) * len(key), max=(stats.max,) * len(key)),
            level=level,
        ),
        compression="zstd",
    )


def in_order(row: Row) -> tuple[int, Row]:
    """Return a sort key in the order of blocks: values, NaN, null."""
    if row is None:
        return 2, None
    return (1, None) if _is_nan(row) else (0, row)


def _is_nan(row: Row) -> bool:
    return isinstance(row, float) and math.isnan(row)
