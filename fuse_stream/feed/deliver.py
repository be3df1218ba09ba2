"""What a batch of a stream delivers, as Arrow batches of the schema that the reader demands.

Runs where the rows are read, far from the `Follower` that planned them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from fuse_stream.feed.changes import DELETE, INSERT
from fuse_stream.feed.net import read_net
from fuse_stream.feed.tasks import NetTask, Piece
from fuse_stream.feed.units import unit_change
from fuse_stream.format.columns import value_to_json
from fuse_stream.format.jsonio import dump_canonical
from fuse_stream.format.records import Block, ColumnStats
from fuse_stream.format.schema import Schema
from fuse_stream.format.stats import live_rows
from fuse_stream.objects.slots import Metadata
from fuse_stream.reading.history import History
from fuse_stream.reading.scan import BATCH_ROWS, Selection, read_block
from fuse_stream.storage.base import Store

BLOCK_ROWS_A_BATCH = 4096

SHARED_BATCH_ROWS = 8192
"""Small blocks share a batch of about so many rows, which a processor's cache holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRange:
    """Some blocks of a unit, without naming them."""

    version: int
    is_table: bool
    floor: int
    """Of the branch when the unit was planned."""
    first: int
    stop: int


def iter_rows(
    store: Store, pieces: Iterable[Piece], selection: Selection, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted rows of `pieces`, in order, in batches of at most `BATCH_ROWS` rows.

    `schema` is that of the selection and then, where it is longer, of the feed's own columns.
    Small blocks share a batch. A piece that says how it is read is read so, and not as `selection`
    says.
    """
    held: list[tuple[Piece, pa.Table]] = []
    rows = 0
    for piece in pieces:
        table = read_block(store, piece.block, piece.selection or selection)
        if not len(table):
            continue
        if held and rows + len(table) > SHARED_BATCH_ROWS:
            yield from _batches(held, schema)
            held, rows = [], 0
        held.append((piece, table))
        rows += len(table)
    if held:
        yield from _batches(held, schema)


def iter_net_rows(
    store: Store, task: NetTask, selection: Selection, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted rows of a task that have no equal on the other side, as `iter_rows` does."""
    first = task.pieces[0]
    sides = {
        kind: [
            (piece.block, piece.selection or selection)
            for piece in task.pieces
            if piece.change_type == kind
        ]
        for kind in (DELETE, INSERT)
    }
    found = read_net(
        store, sides[DELETE], sides[INSERT], selection.schema, share=task.share, of=task.of
    )
    for kind, rows in zip(sides, found, strict=True):
        if len(rows):
            yield from _batches([(dataclasses.replace(first, change_type=kind), rows)], schema)


def iter_block_rows(
    metadata: Metadata, branch_id: str, ranges: Iterable[BlockRange], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield one row a block: the feed `blocks`."""
    for part in ranges:
        stored = metadata.load_snapshot(branch_id, part.version)
        history = History(metadata, stored).with_floor(part.floor)
        change = unit_change(history, stored.snapshot, is_table=part.is_table)
        listed = [(side, block) for side in change.sides for block in side.blocks]
        for first in range(part.first, part.stop, BLOCK_ROWS_A_BATCH):
            blocks = listed[first : min(first + BLOCK_ROWS_A_BATCH, part.stop)]
            columns = (
                [side.change_type for side, _ in blocks],
                [block.id for _, block in blocks],
                [live_rows(block) for _, block in blocks],
                [block.file_size for _, block in blocks],
                [stats_json(block, side.schema) for side, block in blocks],
                [change.version] * len(blocks),
                [change.timestamp_us] * len(blocks),
            )
            arrays = [
                pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def stats_json(block: Block, schema: Schema) -> str:
    """Return a block's statistics as a JSON object, by the dotted path of each column.

    Values are written as in the table's metadata (`docs/format.md`): 64-bit integers and decimals
    as text, a date as days, a time as microseconds. Columns below an array or a map have none.
    """
    return dump_canonical(
        {
            ".".join(leaf.path): _stats_item(block.col_stats[leaf.column.id], leaf.column.type)
            for leaf in schema.leaves()
            if leaf.column.id in block.col_stats
        }
    ).decode()


def _stats_item(stats: ColumnStats, type_name: str) -> dict[str, object]:
    item: dict[str, object] = {
        "null_count": stats.null_count,
        "nan_count": stats.nan_count,
        "in_memory_size": stats.in_memory_size,
        "distinct_of_values": stats.distinct_of_values,
    }
    for name, bound in (("min", stats.min), ("max", stats.max)):
        if bound is not None:
            item[name] = value_to_json(bound, type_name)
    return item


def _batches(held: list[tuple[Piece, pa.Table]], schema: pa.Schema) -> list[pa.RecordBatch]:
    """Return the rows of some blocks, with those of the feed's columns that `schema` has."""
    pieces, tables = zip(*held, strict=True)
    rows = pa.concat_tables(tables)
    marks = zip(*((p.change_type, p.version, p.timestamp_us) for p in pieces), strict=True)
    columns = [
        pa.chunked_array(
            [
                pa.repeat(pa.scalar(value, field.type), len(table))
                for value, table in zip(values, tables, strict=True)
            ]
        )
        for field, values in zip(list(schema)[rows.num_columns :], marks, strict=False)
    ]
    marked = pa.Table.from_arrays([*rows.columns, *columns], schema=schema)
    if len(tables) > 1:
        marked = marked.combine_chunks()
    return marked.to_batches(max_chunksize=BATCH_ROWS)  # type: ignore[no-any-return]
