"""The rows that turn one snapshot into another: those of the way between, equal ones cancelled.

The two may have gone apart, and given one id to different columns. So the rows of each line are
read with that line's schema, and columns of one name are one column.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import pyarrow as pa

from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.evolve import merged
from fuse_stream.format.records import Block
from fuse_stream.format.schema import Schema
from fuse_stream.reading.cancel import cancel_equal_rows
from fuse_stream.reading.feed import DELETE, FEED_FIELDS, INSERT
from fuse_stream.reading.scan import read_block, select
from fuse_stream.reading.way import NetDiff
from fuse_stream.storage.base import Store


def read_diff(
    store: Store,
    net: NetDiff,
    old: Schema,
    new: Schema,
    *,
    columns: Sequence[str] | None = None,
) -> pa.RecordBatchReader:
    """Return the rows of `net` with `_change_type`: those removed first, then those inserted.

    Raises:
        InvalidInputError: an unknown column.
        SchemaMismatchError: a column has types on the two lines that do not fit each other.
    """
    wanted = arrow_schema(_wanted(old, new, columns))
    sides = ((net.back, old), (net.forth, new))
    removed = [_rows(store, diff.removed, line, wanted) for diff, line in sides]
    inserted = [_rows(store, diff.inserted, line, wanted) for diff, line in sides]
    found = cancel_equal_rows(pa.concat_tables(removed), pa.concat_tables(inserted))
    field = FEED_FIELDS[0]
    schema = pa.schema([*wanted, field])
    parts = [
        pa.Table.from_arrays(
            [*rows.columns, pa.repeat(pa.scalar(kind, field.type), len(rows))], schema=schema
        )
        for kind, rows in zip((DELETE, INSERT), found, strict=True)
    ]
    return pa.concat_tables(parts).to_reader()


def _wanted(old: Schema, new: Schema, columns: Sequence[str] | None) -> Schema:
    if columns is None:
        return merged(new, old)
    known = {column.name: column for column in (*old.columns, *new.columns)}
    select(dataclasses.replace(new, columns=tuple(known.values())), columns=columns)
    sides = (
        dataclasses.replace(side, columns=tuple(c for c in side.columns if c.name in columns))
        for side in (new, old)
    )
    return select(merged(*sides), columns=columns).schema


def _rows(store: Store, blocks: Iterable[Block], line: Schema, wanted: pa.Schema) -> pa.Table:
    """Return the rows of one line's blocks with the wanted columns."""
    shared = [name for name in wanted.names if name in line.names()]
    parts = [wanted.empty_table()]
    for block in blocks:
        rows = read_block(store, block, select(line, columns=shared or None))
        columns = [
            rows.column(field.name).cast(field.type)
            if field.name in shared
            else pa.nulls(len(rows), field.type)
            for field in wanted
        ]
        parts.append(pa.Table.from_arrays(columns, schema=wanted))
    return pa.concat_tables(parts)
