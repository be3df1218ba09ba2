"""The rows that turn one snapshot into another: those of the way between, equal ones cancelled.

The two may have gone apart, and given one id to different columns. So the rows of each line are
read with that line's schema, and columns of one name are one column.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pyarrow as pa

from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.evolve import merged
from fuse_stream.format.schema import Schema
from fuse_stream.reading.feed import FEED_FIELDS, Change, net_rows
from fuse_stream.reading.request import Request
from fuse_stream.reading.scan import select
from fuse_stream.reading.views import Views
from fuse_stream.reading.way import NetDiff
from fuse_stream.storage.base import Store


def read_diff(
    store: Store, change: Change, *, columns: Sequence[str] | None = None
) -> pa.RecordBatchReader:
    """Return the rows of `change` with `_change_type`: those removed first, then those inserted.

    Raises:
        InvalidInputError: an unknown column.
        SchemaMismatchError: a column has types on the two lines that do not fit each other.
    """
    net = change.net
    if columns is not None:
        _check_known(net, columns)
        net = dataclasses.replace(net, old=_only(net.old, columns), new=_only(net.new, columns))
        change = dataclasses.replace(change, net=net)
    wanted = select(merged(net.new, net.old), columns=columns)
    field = FEED_FIELDS[0]
    schema = pa.schema([*arrow_schema(wanted.schema), field])
    parts = [
        pa.Table.from_arrays(
            [*rows.columns, pa.repeat(pa.scalar(kind, field.type), len(rows))], schema=schema
        )
        for kind, rows in net_rows(store, change, Views(Request(), wanted))
    ]
    return pa.concat_tables(parts).to_reader()


def _check_known(net: NetDiff, columns: Sequence[str]) -> None:
    known = {column.name: column for column in (*net.old.columns, *net.new.columns)}
    select(dataclasses.replace(net.new, columns=tuple(known.values())), columns=columns)


def _only(schema: Schema, columns: Sequence[str]) -> Schema:
    chosen = tuple(column for column in schema.columns if column.name in columns)
    return dataclasses.replace(schema, columns=chosen)
