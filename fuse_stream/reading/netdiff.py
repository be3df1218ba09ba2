"""The rows that turn one snapshot into another: block difference, equal rows cancelled."""

from __future__ import annotations

import pyarrow as pa

from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.records import Block
from fuse_stream.reading.diff import BlockDiff, cancel_equal_rows
from fuse_stream.reading.feed import DELETE, FEED_FIELDS, INSERT
from fuse_stream.reading.scan import Selection, read_block
from fuse_stream.storage.base import Store


def read_diff(store: Store, diff: BlockDiff, selection: Selection) -> pa.RecordBatchReader:
    """Return the rows of `diff` with `_change_type`: those removed first, then those inserted."""
    removed = _rows(store, diff.removed, selection)
    inserted = _rows(store, diff.inserted, selection)
    removed, inserted = cancel_equal_rows(removed, inserted)
    field = FEED_FIELDS[0]
    schema = pa.schema([*arrow_schema(selection.schema), field])
    parts = [
        pa.Table.from_arrays(
            [*rows.columns, pa.repeat(pa.scalar(kind, field.type), len(rows))], schema=schema
        )
        for kind, rows in ((DELETE, removed), (INSERT, inserted))
    ]
    return pa.concat_tables(parts).to_reader()


def _rows(store: Store, blocks: tuple[Block, ...], selection: Selection) -> pa.Table:
    empty = arrow_schema(selection.schema).empty_table()
    return pa.concat_tables([empty, *(read_block(store, block, selection) for block in blocks)])
