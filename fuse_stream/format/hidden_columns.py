"""The columns that a table keeps for itself: hidden, unless a reader names them. Pure."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.format.evolve import added
from fuse_stream.format.schema import ARRAY, MAP, Column, Schema, is_hidden

ROW_SEQUENCE = "_fuse_seq"
"""The sequence of the greatest upsert that wrote the row; in `tombstones`, of the delete."""
COLUMN_SEQUENCES = "_fuse_seqs"
"""The sequences of the columns that have another one than the row, by column id; null for none."""
UNSET_COLUMNS = "_fuse_unset"
"""In a row of a history: the ids of the columns to which its last event gave no value."""
LAST_COLUMN = "_fuse_last_column"
"""The greatest id of a column that the table had when the row was written: columns with greater ids
were not given to it. Null for those that are older than the sequence of the table."""
START_AT, END_AT = "__START_AT", "__END_AT"
"""In a row of a history: the sequences of its first event, and of the one that ended it. They are
not hidden."""
AT, KIND = "_fuse_at", "_fuse_kind"
"""In `tombstones`: when the row was written, and what it says."""

_ANY = Column(id=1, name="", type="integer", nullable=False)


def is_computed(name: str) -> bool:
    """True if the table computes a column of this name from events, which do not have it."""
    return is_hidden(name) or name in {START_AT, END_AT}


def given(schema: Schema) -> Schema:
    """Return the columns of a table that events give."""
    columns = tuple(column for column in schema.columns if not is_computed(column.name))
    return dataclasses.replace(schema, columns=columns)


def with_computed(schema: Schema, table: Schema) -> Schema:
    """Return the schema that `given(table)` has become, with the computed columns of `table`."""
    columns = (*schema.columns, *(one for one in table.columns if is_computed(one.name)))
    return dataclasses.replace(schema, columns=columns)


def sequences_column(like: Column) -> Column:
    """Return the column of the sequences of a row's columns, which have the type of `like`."""
    key = dataclasses.replace(_ANY, name="key")
    value = dataclasses.replace(like, name="value", nullable=True)
    return Column(id=1, name=COLUMN_SEQUENCES, type=MAP, children=(key, value))


def history_columns(like: Column) -> tuple[Column, ...]:
    """Return the columns that rows of a history have; sequences have the type of `like`."""
    starts, ends = (dataclasses.replace(like, name=name) for name in (START_AT, END_AT))
    element = dataclasses.replace(_ANY, name="element")
    unset = Column(id=1, name=UNSET_COLUMNS, type=ARRAY, children=(element,))
    return starts, ends, unset


def last_column() -> Column:
    """Return the column that says which columns a row is older than."""
    return dataclasses.replace(_ANY, name=LAST_COLUMN)


def later_columns(schema: Schema) -> tuple[Column, ...]:
    """Return the columns that a table of events got after its first events, if any."""
    since = next((one.id for one in schema.columns if one.name == ROW_SEQUENCE), None)
    own = given(schema).columns
    return () if since is None else tuple(column for column in own if column.id > since)


def last_columns_of(rows: pa.Table, schema: Schema) -> np.ndarray:
    """Return for each row the greatest id of a column that it may have been given.

    `rows` have the column `LAST_COLUMN`, if the table with this schema has it.
    """
    newest = np.full(len(rows), schema.last_column_id)
    if not later_columns(schema):
        return newest
    since = next(one.id for one in schema.columns if one.name == ROW_SEQUENCE)
    last: np.ndarray = pc.fill_null(rows.column(LAST_COLUMN), since).to_numpy()
    return last


def with_last_column(rows: pa.Table, schema: Schema) -> pa.Table:
    """Return rows that know all columns of a schema, if a table with it says so of its rows."""
    if LAST_COLUMN not in schema.names():
        return rows
    last = pa.repeat(pa.scalar(schema.last_column_id, pa.int32()), len(rows))
    if LAST_COLUMN in rows.column_names:
        return rows.set_column(rows.column_names.index(LAST_COLUMN), LAST_COLUMN, last)
    return rows.append_column(LAST_COLUMN, last)


def adding(schema: Schema, *columns: Column) -> Schema:
    """Return a schema with those of `columns` that it lacks by name, nullable, with new ids."""
    known = set(schema.names())
    lacking = [column for column in columns if column.name not in known]
    if not lacking:
        return schema
    next_id = iter(range(schema.last_column_id + 1, 1_000_000_000)).__next__
    new = tuple(added(column, next_id) for column in lacking)
    return Schema(id=schema.id + 1, last_column_id=next_id() - 1, columns=(*schema.columns, *new))
