"""Events in the columns of a table, after the table got the columns that they bring. Pure."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.dml.events import UPSERT, Events, flaws_of, no_value, with_nulls_unset
from fuse_stream.errors import InvalidInputError, SchemaMismatchError
from fuse_stream.format.arrow import adapt, columns_of_arrow
from fuse_stream.format.evolve import differences, relaxed, resolve, with_ids_of
from fuse_stream.format.grouping import joined
from fuse_stream.format.hidden_columns import (
    ROW_SEQUENCE,
    adding,
    given,
    history_columns,
    is_computed,
    last_column,
    later_columns,
    sequences_column,
    with_computed,
)
from fuse_stream.format.schema import MAP, NESTED, STRUCT, Column, Schema
from fuse_stream.format.side_schemas import sequence_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedEvents:
    """Events that fit a table."""

    schema: Schema
    """The table's schema after the commit, hidden columns included."""
    data: Schema
    """Its columns that events give, all nullable."""
    key: tuple[int, ...]
    """The ids of the columns of the key."""
    events: Events
    """Their rows have the columns of `data`, and their sequences the type of the table's."""
    flaws: np.ndarray
    """Why an event is bad, as text; None for a good one."""
    tracked: tuple[int, ...] = ()
    """The ids of the columns of which a change begins a new row of a history; none for all."""

    @property
    def key_names(self) -> list[str]:
        """The names of the columns of the key."""
        known = {column.id: column.name for column in self.schema.columns}
        return [known[column] for column in self.key]

    def take(self, at: np.ndarray) -> FittedEvents:
        """Return some of the events."""
        return dataclasses.replace(self, events=self.events.take(at), flaws=self.flaws[at])

    def keys_of(self, rows: pa.Table) -> pa.Table:
        """Return the columns of the key."""
        return rows.select(self.key_names)


def fit_columns(
    events: Events,
    table: Schema,
    *,
    merge_schema: bool,
    case_sensitive: bool,
    scd_type: int,
    ignores_nulls: bool,
) -> tuple[Schema, tuple[Column, ...]]:
    """Return the table's schema with the columns of the events, and these columns with its ids.

    Args:
        events: the events.
        table: the schema of the table, hidden columns included.
        merge_schema: let the events add columns and widen types.
        case_sensitive: whether columns whose names differ in case are different ones.
        scd_type: 1 or 2.
        ignores_nulls: whether a null in an upsert is a value that is not given.

    Raises:
        SchemaMismatchError: the columns are not the table's, or the sequence has another type.
        InvalidInputError: a column has a name of those that a history has.
    """
    if taken := [name for name in events.rows.column_names if is_computed(name.upper())]:
        raise InvalidInputError(
            "tables of events have a column of this name of their own: rename the column",
            column=taken[0],
        )
    shown, columns = resolve(
        given(table),
        columns_of_arrow(events.rows.schema),
        merge_schema=merge_schema,
        case_sensitive=case_sensitive,
    )
    like = _sequence_like(events)
    schema = adding(with_computed(shown, table), like)
    later = (last_column(),) if later_columns(schema) else ()
    is_partial = ignores_nulls or bool(events.unset) or len(columns) < len(shown.columns)
    parts = (sequences_column(like),) if is_partial or later else ()
    more = parts if scd_type == 1 else history_columns(like)
    schema = adding(schema, *more, *later)
    stored = sequence_schema(schema)
    if lines := differences(stored, (like,)):
        raise SchemaMismatchError(
            "the sequence has another type than the sequences in the table: cast the column of "
            "sequence_by, or start a new table:\n  " + "\n  ".join(lines)
        )
    return schema, columns


def fit(
    events: Events,
    schema: Schema,
    columns: tuple[Column, ...],
    key: tuple[int, ...],
    *,
    ignores_nulls: bool = False,
) -> FittedEvents:
    """Return events in the columns of a table; arguments from `fit_columns`.

    With `ignores_nulls` a null in an upsert is a value that is not given.

    Raises:
        InvalidInputError: a value does not fit its column.
    """
    data = relaxed(given(schema))
    stored = sequence_schema(schema)
    like = with_ids_of(stored.columns, (_sequence_like(events),), lambda: 0)
    sequences = adapt(pa.table({ROW_SEQUENCE: events.sequence}), like, stored)
    by_id = {column.id: column.name for column in schema.columns}
    names = {column.name: by_id[column.id] for column in columns}
    unset = {names[name]: mask for name, mask in events.unset.items()}
    lacking = set(data.names()) - set(names.values())
    unset |= dict.fromkeys(lacking, events.kind == UPSERT)
    fitted = dataclasses.replace(
        events,
        rows=adapt(events.rows, columns, data),
        sequence=sequences.column(0).combine_chunks(),
        unset=unset,
    )
    keys = [by_id[column] for column in key]
    if ignores_nulls:
        fitted = with_nulls_unset(fitted, keys)
    flaws = flaws_of(fitted, keys)
    _find_nulls(fitted, schema, flaws)
    return FittedEvents(schema=schema, data=data, key=key, events=fitted, flaws=flaws)


def _sequence_like(events: Events) -> Column:
    (like,) = columns_of_arrow(pa.schema([pa.field(ROW_SEQUENCE, events.sequence.type)]))
    return like


def _find_nulls(events: Events, schema: Schema, flaws: np.ndarray) -> None:
    """Note the upserts that give null to a column that takes none."""
    is_open = (events.kind == UPSERT) & (flaws == None)  # noqa: E711 - of each item
    for column in schema.columns:
        if column.name not in events.rows.column_names or not _needs_values(column):
            continue
        lacks = _lacks(joined([events.rows.column(column.name)]), column)
        is_given = ~events.unset.get(column.name, np.zeros(len(events), bool))
        flaws[is_open & lacks & is_given] = no_value(column.name)


def _needs_values(column: Column) -> bool:
    """True if the column, or a part of it, takes no null."""
    parts = column.children[1:] if column.type == MAP else column.children
    return not column.nullable or any(map(_needs_values, parts))


def _lacks(values: pa.Array, column: Column) -> np.ndarray:
    """Return which values are null, or have a null inside, where the column takes none."""
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    lacks: np.ndarray = is_null.copy() if not column.nullable else np.zeros(len(values), bool)
    if column.type == STRUCT:
        for part, child in zip(values.flatten(), column.children, strict=True):
            lacks |= _lacks(part, child) & ~is_null
    elif column.type in NESTED:
        if column.type == MAP:
            items, child = pa.array(values.items), column.children[1]
            values = pa.ListArray.from_arrays(values.offsets, items, mask=values.is_null())
        else:
            (child,) = column.children
        parents = pc.list_parent_indices(values).to_numpy()
        lacks[parents[_lacks(values.flatten(), child)]] = True
    return lacks
