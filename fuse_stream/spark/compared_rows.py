"""Find which rows of blocks a statement changed, from all rows of the blocks before and after."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa

from fuse_stream.feed.net import in_share
from fuse_stream.format.grouping import find_unequal_rows
from fuse_stream.format.positions import Positions, positions_of, to_numpy
from fuse_stream.format.properties import block_target
from fuse_stream.format.records import Block, Snapshot
from fuse_stream.format.schema import Schema
from fuse_stream.objects.blocks import load_block, store_blocks
from fuse_stream.objects.slots import Metadata
from fuse_stream.objects.snapshot_blocks import iter_named
from fuse_stream.spark.change_writer import ChangedRows

_MOST_ROWS = 4_000_000
"""Rows that are compared at a time."""


def find_changes(
    metadata: Metadata,
    head: Snapshot,
    read: Collection[str],
    written: Sequence[Block],
    schema: Schema,
) -> ChangedRows:
    """Return the rows of blocks that go, and those that come, put as new blocks.

    Args:
        metadata: the table's.
        head: the snapshot that was read.
        read: the ids of the blocks that were read; hidden rows were left out.
        written: blocks with all rows of these blocks as they are now, and new ones.
        schema: that of the rows that were written.
    """
    before = list(iter_named(metadata, head, read))
    count = sum(block.live_rows for block in (*before, *written))
    shares = max(1, -(-count // _MOST_ROWS))
    gone: dict[str, list[np.ndarray]] = {block.id: [] for block in before}
    came: list[pa.Table] = []
    for share in range(shares):
        old = [_Rows(metadata, block, schema, share, shares) for block in before]
        new = [_Rows(metadata, block, schema, share, shares) for block in written]
        differ, arrive = find_unequal_rows(_compared(old, schema), _compared(new, schema))
        if len(arrive):
            came.append(pa.concat_tables(part.rows for part in new).take(arrive))
        at = differ.to_numpy()
        first = 0
        for part in old:
            own = at[(at >= first) & (at < first + len(part.rows))] - first
            gone[part.block.id].append(part.positions[own])
            first += len(part.rows)
    deleted = {block_id: positions_of(np.concatenate(rows)) for block_id, rows in gone.items()}
    inserts = store_blocks(
        metadata.store,
        came,
        schema,
        head.cluster_key,
        target=block_target(head.properties),
        clock=metadata.clock,
    )
    return ChangedRows(
        updates=(),
        inserts=tuple(inserts),
        deleted={block_id: rows for block_id, rows in deleted.items() if rows},
        updated={},
        ambiguous={},
    )


class _Rows:
    """The rows of a block that are in a share, and their positions."""

    def __init__(
        self, metadata: Metadata, block: Block, schema: Schema, share: int, of: int
    ) -> None:
        self.block = block
        self.rows = load_block(metadata.store, block, schema)
        self.positions = np.arange(block.row_count)
        if block.hidden is not None:
            self.positions = to_numpy(Positions(self.positions) - block.hidden)
        if of > 1:
            kept = in_share(self.rows, share, of)
            self.rows = self.rows.filter(kept)
            self.positions = self.positions[kept.to_numpy(zero_copy_only=False)]


def _compared(parts: Sequence[_Rows], schema: Schema) -> pa.Table:
    """Return rows with the bits of floating-point numbers in place of these."""
    if not parts:
        return pa.table({name: [] for name in schema.names()})
    rows = pa.concat_tables(part.rows for part in parts)
    for at, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            bits = pa.int64() if pa.types.is_float64(field.type) else pa.int32()
            chunks = [chunk.view(bits) for chunk in rows.column(at).chunks]
            rows = rows.set_column(at, field.name, pa.chunked_array(chunks, bits))
    return rows
