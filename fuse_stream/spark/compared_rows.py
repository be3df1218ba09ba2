"""Find which rows of blocks a statement changed, from all rows of the blocks before and after."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fuse_stream.feed.net import in_share
from fuse_stream.format.arrow import adapt, arrow_schema
from fuse_stream.format.grouping import find_unequal_rows
from fuse_stream.format.positions import Positions, positions_of, to_numpy
from fuse_stream.format.properties import block_target
from fuse_stream.format.records import Block, Snapshot
from fuse_stream.format.schema import Column, Schema
from fuse_stream.objects.blocks import load_block, store_blocks
from fuse_stream.objects.slots import Metadata
from fuse_stream.objects.snapshot_blocks import iter_named
from fuse_stream.spark.change_writer import ChangedRows
from fuse_stream.storage.base import Store

_MOST_ROWS = 4_000_000
"""Rows that are compared at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFiles:
    """Parquet files that Spark wrote beside a table: rows that are not of the table yet."""

    store: Store
    prefix: str
    """Of the keys of the files."""
    columns: tuple[Column, ...]
    """The columns of the files by their place, with their ids in `schema`."""
    schema: Schema
    """That of the rows, as the table has them."""

    @property
    def location(self) -> str:
        """The folder of the files."""
        return self.store.location(self.prefix.rstrip("/"))

    def iter_rows(self) -> Iterator[pa.Table]:
        """Yield the rows of each file."""
        for key in self._keys(".parquet"):
            rows = pq.read_table(pa.BufferReader(self.store.get(key)))
            named = rows.rename_columns([column.name for column in self.columns])
            yield adapt(named, self.columns, self.schema)

    def delete(self) -> None:
        """Delete the files. It is safe to repeat."""
        self.store.delete_all(self._keys(""))

    def _keys(self, end: str) -> list[str]:
        return sorted(
            found.key for found in self.store.list(self.prefix) if found.key.endswith(end)
        )


def find_changes(
    metadata: Metadata, head: Snapshot, read: Collection[str], written: StagedFiles
) -> ChangedRows:
    """Return the rows of blocks that go, and those that come, put as new blocks.

    Args:
        metadata: the table's.
        head: the snapshot that was read.
        read: the ids of the blocks that were read; hidden rows were left out.
        written: all rows of these blocks as they are now, and new ones.
    """
    schema = written.schema
    before = list(iter_named(metadata, head, read))
    shares = max(1, -(-sum(block.live_rows for block in before) // _MOST_ROWS))
    gone: dict[str, list[np.ndarray]] = {block.id: [] for block in before}
    came: list[pa.Table] = []
    for share in range(shares):
        old = [_Rows(metadata, block, schema, share, shares) for block in before]
        nothing = arrow_schema(schema).empty_table()
        was = pa.concat_tables([nothing, *(part.rows for part in old)])
        now = pa.concat_tables(
            [nothing, *(_of_share(rows, share, shares) for rows in written.iter_rows())]
        )
        differ, arrive = find_unequal_rows(_bits(was), _bits(now))
        if len(arrive):
            came.append(now.take(arrive))
        at, first = differ.to_numpy(), 0
        for part in old:
            end = first + len(part.rows)
            own = at[(at >= first) & (at < end)] - first
            gone[part.block.id].append(part.positions[own])
            first = end
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


def _of_share(rows: pa.Table, share: int, of: int) -> pa.Table:
    return rows if of == 1 else rows.filter(in_share(rows, share, of))


def _bits(rows: pa.Table) -> pa.Table:
    """Return rows with the bits of floating-point numbers in place of these."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            bits = pa.int64() if pa.types.is_float64(field.type) else pa.int32()
            chunks = [chunk.view(bits) for chunk in rows.column(at).chunks]
            rows = rows.set_column(at, field.name, pa.chunked_array(chunks, bits))
    return rows
