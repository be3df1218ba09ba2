"""Events of a source: rows that say what became of a key, and when. Pure.

An event is an upsert, a delete or, for all keys, a truncate; its sequence says when it happened. An
event that cannot be applied is bad, with the reason: it is kept, never dropped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.errors import InvalidInputError

UPSERT, DELETE, TRUNCATE = 0, 1, 2
"""What an event is."""

OP, SEQUENCE, UNSET, ERROR, RAW, SOURCE = "_op", "_seq", "_unset", "_error", "_raw", "_source"
ENVELOPE = (OP, SEQUENCE, UNSET, ERROR, RAW, SOURCE)
"""The columns that `from_debezium` and its siblings add. A frame that has all is made by them."""

UNKNOWN_OP = "unknown op"
"""Why an event is bad that is no upsert, delete or truncate; with `: x` for the operation x."""
NO_KEY, NO_SEQUENCE, TIE, TOO_LATE = "no key", "no sequence", "tie", "too late"
"""Why an event of a known form is bad. `TIE`: another event of its key has the same sequence."""

Array: TypeAlias = pa.Array | pa.ChunkedArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """A batch of events, in any order."""

    rows: pa.Table
    """The columns of the table that the events bring."""
    kind: np.ndarray
    """`UPSERT`, `DELETE` or `TRUNCATE`."""
    sequence: pa.Array
    """A value that can be ordered, or a struct of such, compared field by field."""
    unset: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """By column, for each event whether it gives the column no value; not for columns of which
    every event gives one. A column that they do not have at all is given no value either."""
    error: pa.Array
    """Why the event is bad, as its reader found; null if it is good."""
    raw: pa.Array
    """The event as it came, as text; null if that is not known."""
    source: pa.Array
    """Where the event was read, as text; null if that is not known."""

    def __len__(self) -> int:
        return len(self.kind)

    def take(self, at: np.ndarray) -> Events:
        """Return some of the events."""
        numbers = pa.array(at)
        return Events(
            rows=self.rows.take(numbers),
            kind=self.kind[at],
            sequence=self.sequence.take(numbers),
            unset={name: mask[at] for name, mask in self.unset.items()},
            error=self.error.take(numbers),
            raw=self.raw.take(numbers),
            source=self.source.take(numbers),
        )


def has_envelope(names: Iterable[str]) -> bool:
    """Return whether rows with these columns are events as readers of messages make them."""
    return set(ENVELOPE) <= set(names)


def events_of(
    rows: pa.Table,
    names: Sequence[str],
    *,
    sequence: Array,
    is_delete: Array | None = None,
    is_truncate: Array | None = None,
    ops: Sequence[str] | None = None,
) -> Events:
    """Return the events in `rows`, whose envelope's columns are read and left out.

    Args:
        rows: the columns of the table, and those of the envelope, if there is one.
        names: the columns of the table.
        sequence: of each event.
        is_delete: which events are deletes; null is no.
        is_truncate: which events are truncates; null is no.
        ops: if given, an event whose `_op` is none of these is bad.

    Raises:
        InvalidInputError: the sequence has a type that cannot be ordered, or a column of the
            envelope another one than it has.
    """
    order = _one(sequence)
    _check_orderable(order.type)
    kind = np.where(_mask(is_delete, len(rows)), DELETE, UPSERT)
    kind = np.where(_mask(is_truncate, len(rows)), TRUNCATE, kind).astype(np.int8)
    data = rows.select(list(names))
    text = pa.nulls(len(rows), pa.string())
    events = Events(rows=data, kind=kind, sequence=order, error=text, raw=text, source=text)
    if not has_envelope(rows.column_names):
        return events
    try:
        return dataclasses.replace(
            events,
            unset=unset_of(_one(rows.column(UNSET)).cast(pa.list_(pa.string())), data),
            error=_errors(rows, ops),
            raw=_one(rows.column(RAW)).cast(pa.string()),
            source=_texts(_one(rows.column(SOURCE))),
        )
    except (pa.ArrowException, NotImplementedError) as error:
        raise InvalidInputError(
            "the columns that say what an event is have other types than from_debezium gives them: "
            "_unset is a list of texts, _error and _raw are texts",
            types={name: str(rows.column(name).type) for name in ENVELOPE},
        ) from error


def with_nulls_unset(events: Events, keys: Sequence[str]) -> Events:
    """Return the events, with each null in an upsert as a value that is not given."""
    unset = dict(events.unset)
    is_upsert = events.kind == UPSERT
    for name in events.rows.column_names:
        nulls = events.rows.column(name)
        if name not in keys and nulls.null_count:
            mask = nulls.is_null().to_numpy() & is_upsert
            unset[name] = unset[name] | mask if name in unset else mask
    return dataclasses.replace(events, unset=unset)


def no_value(column: str) -> str:
    """Return why an event is bad that leaves null in a column that takes none."""
    return f"no value: {column}"


def without_values(reason: str) -> str:
    """Return why an event is bad, without the values that some reasons show; to count reasons."""
    return reason.partition("=")[0]


def flaws_of(events: Events, keys: Sequence[str]) -> np.ndarray:
    """Return for each event why it is bad, or None, as objects."""
    flaws = np.full(len(events), None, object)
    is_keyed = events.kind != TRUNCATE
    for name in keys:
        lacks = events.rows.column(name).is_null().to_numpy()
        if name in events.unset:
            lacks = lacks | events.unset[name]
        flaws[lacks & is_keyed] = NO_KEY
    flaws[events.sequence.is_null().to_numpy(zero_copy_only=False)] = NO_SEQUENCE
    known = events.error.is_valid().to_numpy(zero_copy_only=False)
    flaws[known] = events.error.to_numpy(zero_copy_only=False)[known]
    return flaws


def _one(values: Array) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _mask(values: Array | None, count: int) -> np.ndarray:
    if values is None:
        return np.zeros(count, bool)
    mask: np.ndarray = pc.fill_null(_one(values), fill_value=False).to_numpy(zero_copy_only=False)
    return mask


def _errors(rows: pa.Table, ops: Sequence[str] | None) -> pa.Array:
    """Return why events are bad: as their reader found, or because of another operation."""
    error = _one(rows.column(ERROR)).cast(pa.string())
    if ops is None:
        return error
    op = _one(rows.column(OP)).cast(pa.string())
    is_odd = pc.invert(pc.is_in(op, value_set=pa.array(ops, pa.string())))
    reason = pc.coalesce(pc.binary_join_element_wise(UNKNOWN_OP, op, ": "), pa.scalar(UNKNOWN_OP))
    return pc.if_else(pc.and_(is_odd, error.is_null()), reason, error)


def _texts(values: pa.Array) -> pa.Array:
    """Return the positions of events in their source, as text."""
    if not pa.types.is_struct(values.type):
        return values.cast(pa.string())
    parts = [part.cast(pa.string()) for part in values.flatten()]
    return pc.binary_join_element_wise(
        *parts, pa.scalar("/"), null_handling="replace", null_replacement=""
    )


def unset_of(names: pa.Array, rows: pa.Table) -> dict[str, np.ndarray]:
    """Return `Events.unset` from lists of the names of columns that events do not give."""
    at = pc.list_parent_indices(names).to_numpy()
    values = names.flatten()
    found = {}
    for name in pc.unique(values).to_pylist():
        if name in rows.column_names:
            mask = np.zeros(len(rows), bool)
            is_named = pc.fill_null(pc.equal(values, name), fill_value=False)  # a list with nulls
            mask[at[is_named.to_numpy(zero_copy_only=False)]] = True
            found[name] = mask
    return found


def names_given(events: Events) -> pa.Array:
    """Return for each event the names of the columns to which it gives a value."""
    names = np.array(events.rows.column_names, object)
    is_given = np.ones((len(events), len(names)), bool)
    for number, name in enumerate(names):
        is_given[:, number] = ~events.unset.get(name, np.zeros(len(events), bool))
    offsets = np.concatenate([[0], np.cumsum(is_given.sum(axis=1))]).astype(np.int32)
    given = pa.array(names[np.nonzero(is_given)[1]], pa.string())
    return pa.ListArray.from_arrays(pa.array(offsets), given)


def unset_of_given(names: pa.Array, rows: pa.Table) -> dict[str, np.ndarray]:
    """Return `Events.unset` from lists of the names of columns that events give."""
    given = unset_of(names, rows)
    nothing = np.zeros(len(rows), bool)
    unset = {name: ~given.get(name, nothing) for name in rows.column_names}
    return {name: mask for name, mask in unset.items() if mask.any()}


def _check_orderable(arrow: pa.DataType) -> None:
    types = pa.types
    if types.is_struct(arrow) and arrow.num_fields:
        for field in arrow:
            _check_orderable(field.type)
    elif types.is_nested(arrow) or types.is_floating(arrow) or types.is_null(arrow):
        raise InvalidInputError(
            "a sequence is a number without a fraction, a decimal, a time, a text, or a struct of "
            "them: cast the column of sequence_by",
            type=str(arrow),
        )
