"""Where a rewrite has moved rows: from positions in its inputs to positions in its outputs.

A rewrite keeps the order of the rows that its inputs show, or sorts all of them by the cluster key.
The sort is stable, so its order follows from the columns of the key: they are read again when a row
was hidden during the rewrite, and nothing has to be kept for the other rewrites.
"""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pyarrow as pa

from fuse_stream.commit.stage import Rewritten
from fuse_stream.format.positions import BlockRows, Positions, positions_of, to_numpy
from fuse_stream.format.schema import Schema
from fuse_stream.objects.blocks import load_block, sort_order
from fuse_stream.storage.base import Store


def find_moved(
    store: Store, schema: Schema, group: Rewritten, rows: BlockRows
) -> dict[str, Positions]:
    """Return the positions in the outputs of a group that some rows of its inputs have now.

    Args:
        store: holds the inputs.
        schema: the schema with which the group was rewritten.
        group: the inputs, as they were read for the rewrite, and the outputs.
        rows: rows that the inputs show, by block id.
    """
    if not rows:
        return {}
    starts = np.cumsum([0, *(block.live_rows for block in group.inputs)])
    at = np.concatenate(
        [
            start + _shown_before(to_numpy(rows[block.id]), block.hidden)
            for start, block in zip(starts[:-1], group.inputs, strict=True)
            if block.id in rows
        ]
    )
    if key := _sort_key(group):
        at = _inverse(_order(store, schema, group, key))[at]
    ends = np.cumsum([0, *(block.row_count for block in group.outputs)])
    moved = {
        block.id: positions_of(at[(at >= first) & (at < end)] - first)
        for (first, end), block in zip(pairwise(ends), group.outputs, strict=True)
    }
    return {block_id: positions for block_id, positions in moved.items() if positions}


def _shown_before(rows: np.ndarray, hidden: Positions | None) -> np.ndarray:
    """Return for each row how many rows before it are shown."""
    return rows if hidden is None else rows - np.searchsorted(to_numpy(hidden), rows)


def _sort_key(group: Rewritten) -> tuple[int, ...]:
    stats = group.outputs[0].cluster_stats
    return stats.range.columns if stats else ()


def _order(store: Store, schema: Schema, group: Rewritten, key: tuple[int, ...]) -> np.ndarray:
    """Return for each row of the outputs its number among the rows that the inputs show."""
    columns = tuple(column for column in schema.columns if column.id in key)
    keys = dataclasses.replace(schema, columns=columns)
    shown = pa.concat_tables([load_block(store, block, keys) for block in group.inputs])
    order: np.ndarray = sort_order(shown.combine_chunks(), keys, key).to_numpy()
    return order


def _inverse(order: np.ndarray) -> np.ndarray:
    places: np.ndarray = np.empty_like(order)
    places[order] = np.arange(len(order), dtype=order.dtype)
    return places
