"""What one snapshot has that another has not: blocks, and from them rows.

Pure but for the loading of segments that only one side names. `docs/decisions` says why the feed
is a set difference of block lists.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from fuse_stream.format.records import Block, Operation, Snapshot
from fuse_stream.objects.metadata import Metadata

KEEPS_ROWS = frozenset(
    {
        Operation.CREATE,
        Operation.ALTER,
        Operation.COMPACT,
        Operation.RECLUSTER,
        Operation.EXPIRE,
    }
)
"""Operations that the change feed passes over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockDiff:
    """The blocks that appeared and disappeared; together they turn one snapshot into another."""

    removed: tuple[Block, ...] = ()
    inserted: tuple[Block, ...] = ()


def diff_blocks(old: Iterable[Block], new: Iterable[Block]) -> BlockDiff:
    """Return the set difference of two block lists, each side in its own order."""
    before = {block.identity: block for block in old}
    after = {block.identity: block for block in new}
    return BlockDiff(
        removed=tuple(block for key, block in before.items() if key not in after),
        inserted=tuple(block for key, block in after.items() if key not in before),
    )


def diff_snapshots(metadata: Metadata, old: Snapshot, new: Snapshot) -> BlockDiff:
    """Return the blocks that turn `old` into `new`; opens only segments that one side names."""
    before = {ref.id for ref in old.segments}
    after = {ref.id for ref in new.segments}
    return diff_blocks(
        _blocks(metadata, old, without=after), _blocks(metadata, new, without=before)
    )


def diff_commit(metadata: Metadata, snapshot: Snapshot) -> BlockDiff:
    """Return what one commit did to its parent's blocks; nothing for one that keeps the rows."""
    if snapshot.operation in KEEPS_ROWS or not snapshot.data_change:
        return BlockDiff()
    if snapshot.operation is Operation.APPEND:
        # A roll-up that was folded in renames segments; what the commit brought stands in `added`.
        added = set(snapshot.added)
        others = {ref.id for ref in snapshot.segments} - added
        return BlockDiff(inserted=tuple(_blocks(metadata, snapshot, without=others)))
    assert snapshot.parent is not None  # version 0 keeps its rows
    parent = metadata.load_snapshot(snapshot.parent.branch_id, snapshot.parent.version).snapshot
    return diff_snapshots(metadata, parent, snapshot)


def cancel_equal_rows(removed: pa.Table, inserted: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return both sides without the rows that stand on both, counted as often as they stand.

    Rows are equal as Spark groups them: null equals null, NaN equals NaN.
    """
    if not len(removed) or not len(inserted):
        return removed, inserted
    removed_keys, inserted_keys = _row_keys(removed), _row_keys(inserted)
    keep_removed = _without_partner(removed_keys, inserted_keys)
    keep_inserted = _without_partner(inserted_keys, removed_keys)
    return removed.filter(pa.array(keep_removed)), inserted.filter(pa.array(keep_inserted))


def _without_partner(rows: list[object], others: list[object]) -> list[bool]:
    """Return for each row whether no equal one is left among `others`, each used once."""
    left = Counter(others)
    alone = []
    for row in rows:
        alone.append(not left[row])
        if left[row]:
            left[row] -= 1
    return alone


def _row_keys(rows: pa.Table) -> list[object]:
    columns = [_keyed(rows.column(name)) for name in rows.column_names]
    return list(zip(*columns, strict=True))


def _keyed(column: pa.ChunkedArray) -> list[object]:
    values = column.cast(_plain(column.type)).to_pylist()
    exact = not (pa.types.is_nested(column.type) or pa.types.is_floating(column.type))
    return list(values) if exact else [_hashable(value) for value in values]


def _plain(arrow: pa.DataType) -> pa.DataType:
    # Times past Python's and texts that are not UTF-8 have keys, too.
    types = pa.types
    if types.is_string(arrow):
        return pa.binary()
    if types.is_date32(arrow):
        return pa.int32()
    if types.is_timestamp(arrow):
        return pa.int64()
    if types.is_struct(arrow):
        return pa.struct([field.with_type(_plain(field.type)) for field in arrow])
    if types.is_map(arrow):
        return pa.map_(_plain(arrow.key_type), _plain(arrow.item_type))
    if types.is_list(arrow):
        return pa.list_(_plain(arrow.value_type))
    return arrow


def _hashable(value: object) -> object:
    if isinstance(value, dict):
        return tuple(_hashable(part) for part in value.values())
    if isinstance(value, list | tuple):
        return tuple(_hashable(part) for part in value)
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def _blocks(metadata: Metadata, snapshot: Snapshot, *, without: set[str]) -> Iterator[Block]:
    types = snapshot.schema.leaf_types
    for ref in snapshot.segments:
        if ref.id not in without:
            yield from metadata.load_segment(ref, types).blocks
