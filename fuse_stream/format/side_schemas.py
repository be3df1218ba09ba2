"""The columns of the sides of tables whose rows come from events. Pure.

A side that has no rows yet may be missing in a snapshot. It is read as an empty one, for whether an
event was ever bad is no reason to fail.
"""

from __future__ import annotations

import dataclasses

import pyarrow as pa

from fuse_stream.format.arrow import arrow_schema, columns_of_arrow
from fuse_stream.format.evolve import first_schema, relaxed
from fuse_stream.format.hidden_columns import (
    AT,
    COLUMN_SEQUENCES,
    KIND,
    LAST_COLUMN,
    ROW_SEQUENCE,
    UNSET_COLUMNS,
    given,
)
from fuse_stream.format.records import Snapshot
from fuse_stream.format.schema import Column, Schema, with_columns
from fuse_stream.format.sides import SideName, side_or_empty

FIRST_OWN_ID = 1_000_000_000
"""Ids of columns that only a side has; columns of tables have smaller ones."""


def shown_side(snapshot: Snapshot, name: str) -> Snapshot:
    """Return a view of a side of a snapshot; an empty one if its events left nothing there.

    Raises:
        NotFoundError: there is no such side; names those that there are.
    """
    if name in list(snapshot.sides) or snapshot.sequence is None or name not in list(SideName):
        return snapshot.side(name)
    schema, key = snapshot.schema, snapshot.sequence.keys
    if name == SideName.TOMBSTONES:
        of_side = tombstone_schema(schema, key)
    elif name == SideName.COALESCED:
        of_side = coalesced_schema(schema)
    else:
        of_side = quarantine_schema(schema)
    return dataclasses.replace(side_or_empty(snapshot, name), schema=of_side)


def sequence_schema(schema: Schema) -> Schema:
    """Return the column of the rows' sequences, as a schema; nullable at each depth."""
    columns = tuple(column for column in schema.columns if column.name == ROW_SEQUENCE)
    return relaxed(dataclasses.replace(schema, columns=columns))


def tombstone_schema(schema: Schema, key: tuple[int, ...]) -> Schema:
    """Return the schema of the tombstones of a table, whose columns have the table's ids."""
    own = (
        Column(id=FIRST_OWN_ID, name=AT, type="timestamp"),
        Column(id=FIRST_OWN_ID + 1, name=KIND, type="string"),
    )
    columns = (*with_columns(schema, key, [ROW_SEQUENCE]).columns, *own)
    return relaxed(Schema(id=schema.id, last_column_id=FIRST_OWN_ID + 1, columns=columns))


def coalesced_schema(schema: Schema) -> Schema:
    """Return the schema of the rows that are not shown, whose columns have the table's ids."""
    own = (ROW_SEQUENCE, COLUMN_SEQUENCES, UNSET_COLUMNS, LAST_COLUMN)
    names = [name for name in own if name in schema.names()]
    return relaxed(with_columns(schema, (), [*given(schema).names(), *names]))


def quarantine_schema(schema: Schema) -> Schema:
    """Return the schema of the quarantine of a table that has had no bad event yet."""
    sequence = arrow_schema(sequence_schema(schema)).field(0).type
    event = pa.struct([field.remove_metadata() for field in arrow_schema(given(schema))])
    fields = {
        **dict.fromkeys(("id", "reason", "op"), pa.string()),
        "sequence": sequence,
        "event": event,
        "given": pa.list_(pa.string()),
        **dict.fromkeys(("raw", "source", "app_id", "writer"), pa.string()),
        "batch_id": pa.int64(),
        "at": pa.timestamp("us", tz="UTC"),
    }
    columns = columns_of_arrow(pa.schema([pa.field(name, kind) for name, kind in fields.items()]))
    return first_schema(columns, nullable=True, case_sensitive=True)
