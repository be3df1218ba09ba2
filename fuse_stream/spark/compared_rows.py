"""Find which rows of blocks a statement changed, from all rows of the blocks before and after."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fuse_stream.dml.find import THREADS
from fuse_stream.feed.net import in_share
from fuse_stream.format.arrow import adapt, arrow_schema
from fuse_stream.format.grouping import find_unequal_rows
from fuse_stream.format.positions import positions_of
from fuse_stream.format.properties import block_target
from fuse_stream.format.records import Block, Snapshot
from fuse_stream.format.schema import Column, Schema
from fuse_stream.objects.blocks import load_block, store_blocks
from fuse_stream.objects.slots import Metadata
from fuse_stream.objects.snapshot_blocks import iter_named
from fuse_stream.spark.change_writer import ChangedRows
from fuse_stream.spark.shown_rows import shown_positions
from fuse_stream.storage.base import Store
from fuse_stream.storage.parallel import each

_MOST_ROWS = 4_000_000
"""Rows that are compared at a time."""
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # Knuth's, 2**64 over the golden ratio


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
        keys = [found.key for found in self.store.list(self.prefix)]
        for key in sorted(key for key in keys if key.endswith(".parquet")):
            rows = pq.read_table(pa.BufferReader(self.store.get(key)))
            named = rows.rename_columns([column.name for column in self.columns])
            yield adapt(named, self.columns, self.schema)


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
        load = partial(_Rows, metadata, schema=schema, share=share, of=shares)
        old = list(each(load, before, metadata.store, at_once=THREADS))
        nothing = arrow_schema(schema).empty_table()
        was = pa.concat_tables([nothing, *(part.rows for part in old)])
        now = pa.concat_tables(
            [nothing, *(_of_share(rows, share, shares) for rows in written.iter_rows())]
        )
        at, arrive = _unequal(_bits(was), _bits(now))
        if len(arrive):
            came.append(now.take(pa.array(arrive)))
        first = 0
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
        self, metadata: Metadata, block: Block, *, schema: Schema, share: int, of: int
    ) -> None:
        self.block = block
        self.rows = load_block(metadata.store, block, schema)
        self.positions = shown_positions(block)
        if of > 1:
            kept = in_share(self.rows, share, of)
            self.rows = self.rows.filter(kept)
            self.positions = self.positions[kept.to_numpy(zero_copy_only=False)]


def _of_share(rows: pa.Table, share: int, of: int) -> pa.Table:
    return rows if of == 1 else rows.filter(in_share(rows, share, of))


def _unequal(was: pa.Table, now: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of both tables that are not in their multiset intersection, in order.

    Nearly all rows have one equal row. They are paired by a hash, and each pair is compared; the
    others are grouped, which takes ten times as long a row.
    """
    left, right = np.zeros(len(was), bool), np.zeros(len(now), bool)
    numbers = _numbered(was, now)
    if numbers is not None:
        hashes = np.zeros(len(was) + len(now), np.uint64)
        for column in numbers:
            hashes = (hashes ^ column.view(np.uint64)) * _MULTIPLIER
            hashes ^= hashes >> np.uint64(29)
        ours, theirs = _paired(hashes[: len(was)], hashes[len(was) :])
        is_equal = np.ones(len(ours), bool)
        for column in numbers:
            is_equal &= column[ours] == column[len(was) + theirs]
        left[ours[is_equal]], right[theirs[is_equal]] = True, True
    before, after = np.flatnonzero(~left), np.flatnonzero(~right)
    gone, came = find_unequal_rows(was.take(pa.array(before)), now.take(pa.array(after)))
    return before[gone.to_numpy()], after[came.to_numpy()]


def _numbered(was: pa.Table, now: pa.Table) -> list[np.ndarray] | None:
    """Return columns of numbers, of all rows, that are equal exactly if rows are.

    None if a column has nested values, which Arrow does not number.
    """
    found: list[np.ndarray] = []
    for column in pa.concat_tables([was, now]).columns:
        if pa.types.is_nested(column.type):
            return None
        if column.null_count:
            found.append(column.is_null().to_numpy().astype(np.int64))
        if pa.types.is_boolean(column.type):
            numbers = column.cast(pa.int8()).cast(pa.int64())
        elif pa.types.is_integer(column.type):
            numbers = column.cast(pa.int64())
        elif pa.types.is_date32(column.type):
            numbers = column.cast(pa.int32()).cast(pa.int64())
        elif pa.types.is_timestamp(column.type):
            numbers = column.cast(pa.int64())
        else:
            numbers = column.combine_chunks().dictionary_encode().indices.cast(pa.int64())
        found.append(pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False))
    return found


def _paired(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of hashes that both sides have, each side once."""
    of_left, in_left = _single(left)
    of_right, in_right = _single(right)
    at = np.searchsorted(of_left, of_right)
    at[at == len(of_left)] = 0
    is_there = of_left[at] == of_right if len(of_left) else np.zeros(len(of_right), bool)
    return in_left[at[is_there]], in_right[is_there]


def _single(hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the hashes that are there once, in order, and their places."""
    order = np.argsort(hashes)
    found = hashes[order]
    differs = found[1:] != found[:-1]
    is_single = np.concatenate([[True], differs]) & np.concatenate([differs, [True]])
    is_single = is_single[: len(found)]
    return found[is_single], order[is_single]


def _bits(rows: pa.Table) -> pa.Table:
    """Return rows with the bits of floating-point numbers in place of these."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            bits = pa.int64() if pa.types.is_float64(field.type) else pa.int32()
            chunks = [chunk.view(bits) for chunk in rows.column(at).chunks]
            rows = rows.set_column(at, field.name, pa.chunked_array(chunks, bits))
    return rows
