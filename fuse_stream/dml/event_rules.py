"""How a table takes events: the arguments of an upsert that has sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fuse_stream.dml.events import ENVELOPE, OP, SEQUENCE, Array, Events, events_of, has_envelope
from fuse_stream.errors import InvalidInputError
from fuse_stream.format.arrow import adapt, columns_of_arrow
from fuse_stream.format.batch_sums import BatchSums, batch_sums
from fuse_stream.format.evolve import relaxed
from fuse_stream.format.names import flag_in, names_in, nearest
from fuse_stream.format.properties import Duration, duration_of
from fuse_stream.format.schema import Schema
from fuse_stream.predicate.evaluate import filter_mask
from fuse_stream.reading.scan import select_matches

MARKS = ("_fuse_sequence", "_fuse_is_delete", "_fuse_is_truncate")
"""Columns that Spark adds to events: the sequence, and whether they are deletes or truncates."""

_DELETES, _TRUNCATES = f"{OP} = 'd'", f"{OP} = 't'"
"""Of the frames that `from_debezium` and its siblings make."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRules:
    """How a table takes events. Names and predicates as they were given."""

    sequence_by: tuple[str, ...] = ()
    """Columns, compared one after the other; none if it was not given."""
    apply_as_deletes: str | None = None
    apply_as_truncates: str | None = None
    except_column_list: tuple[str, ...] = ()
    ignore_null_updates: bool = False
    scd_type: int = 1
    track_history: tuple[str, ...] | None = None
    tombstones_us: int | None = None
    """How long a deleted key is remembered; None for ever."""
    quarantines: bool = True
    """Bad events are kept; else they are an error."""
    forgives: bool = False
    """Events that may be older than a forgotten tombstone are applied."""

    def take_events(self, names: Sequence[str]) -> bool:
        """Return whether rows with these columns are events with sequences.

        Raises:
            InvalidInputError: they are not, but the rules are given; or they have some of the
                columns of `from_debezium` and its siblings, and no sequence.
        """
        if self.sequence_by or has_envelope(names):
            return True
        given = [name for name in ENVELOPE if name in names]
        if OP in given and len(given) > 1:
            raise InvalidInputError(
                "the rows have some of the columns that make them events, and lack others: pass "
                f"{OP} to {ENVELOPE[-1]} as the reader gives them, name sequence_by, or drop them "
                "all if the rows are no events",
                columns=given,
                missing=[name for name in ENVELOPE if name not in names],
            )
        if self != EventRules():
            raise InvalidInputError(
                "the arguments about events need sequence_by: name the column that orders the "
                "events of a key"
            )
        return False

    def sequence_of(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the columns of the sequence of rows with these columns.

        Raises:
            InvalidInputError: there is no such column.
        """
        found = self.sequence_by or (SEQUENCE,)
        for name in (*found, *self.except_column_list):
            if name not in names:
                raise InvalidInputError(
                    "the events have no such column",
                    column=name,
                    nearest=nearest(name, names),
                    columns=list(names),
                )
        return found

    def deletes_of(self, names: Sequence[str]) -> str | None:
        """Return the predicate of the deletes among rows with these columns."""
        return self.apply_as_deletes or (_DELETES if has_envelope(names) else None)

    def truncates_of(self, names: Sequence[str]) -> str | None:
        """Return the predicate of the truncates among rows with these columns."""
        return self.apply_as_truncates or (_TRUNCATES if has_envelope(names) else None)

    def data_of(self, names: Sequence[str]) -> list[str]:
        """Return those of an event's columns that the table gets."""
        dropped = {*self.except_column_list}
        if has_envelope(names):
            dropped |= {*ENVELOPE}
        return [name for name in names if name not in dropped]

    def read_marked(self, rows: pa.Table) -> Events:
        """Return the events in `rows`, which have the columns `MARKS`.

        Raises:
            InvalidInputError: the sequence cannot be ordered, or two columns have one name.
        """
        _check_names(rows)
        sequence, is_delete, is_truncate = (rows.column(name) for name in MARKS)
        return events_of(
            rows,
            self.data_of([name for name in rows.column_names if name not in MARKS]),
            sequence=sequence,
            is_delete=is_delete,
            is_truncate=is_truncate,
            ops=self._ops,
        )

    def read(self, rows: pa.Table) -> Events:
        """Return the events in `rows`.

        Raises:
            InvalidInputError: a column is missing, a predicate is broken, or the sequence cannot be
                ordered; or two columns have one name.
        """
        _check_names(rows)
        names = rows.column_names
        schema = _schema_of(rows)
        whole = adapt(rows, schema.columns, schema)
        return events_of(
            rows,
            self.data_of(names),
            sequence=_sequence(rows, self.sequence_of(names)),
            is_delete=_mask(whole, schema, self.deletes_of(names)),
            is_truncate=_mask(whole, schema, self.truncates_of(names)),
            ops=self._ops,
        )

    @property
    def _ops(self) -> tuple[str, ...] | None:
        """The values that `_op` may have; None if predicates say what events do."""
        is_open = self.apply_as_deletes is None and self.apply_as_truncates is None
        return ("u", "d", "t") if is_open else None


def event_rules(
    mode: str,
    *,
    sequence_by: str | Sequence[str] | None,
    apply_as_deletes: str | None,
    apply_as_truncates: str | None,
    except_column_list: Sequence[str],
    ignore_null_updates: bool,
    stored_as_scd_type: int,
    track_history_column_list: Sequence[str] | None,
    tombstones: Duration | None,
    on_bad: str,
) -> EventRules:
    """Return the rules that the arguments of a write give.

    Raises:
        InvalidInputError: an argument is not valid.
    """
    if isinstance(sequence_by, str):
        sequence_by = (sequence_by,)
    texts = {"apply_as_deletes": apply_as_deletes, "apply_as_truncates": apply_as_truncates}
    for name, text in texts.items():
        given: object = text
        if given is not None and (not isinstance(given, str) or not given.strip()):
            raise InvalidInputError(f"{name} is a SQL predicate, such as \"op = 'd'\"", value=text)
    if stored_as_scd_type not in (1, 2) or isinstance(stored_as_scd_type, bool):
        raise InvalidInputError("stored_as_scd_type is 1 or 2", value=stored_as_scd_type)
    if track_history_column_list is not None and stored_as_scd_type != 2:
        raise InvalidInputError("track_history_column_list needs stored_as_scd_type=2")
    if tombstones is not None and stored_as_scd_type == 2:
        raise InvalidInputError(
            "tombstones= is for stored_as_scd_type=1: a history keeps its deletes"
        )
    if track_history_column_list is not None and not tuple(track_history_column_list):
        raise InvalidInputError(
            "track_history_column_list names columns; leave it out to track all of them"
        )
    if on_bad not in ("quarantine", "error"):
        raise InvalidInputError('on_bad is "quarantine" or "error"', on_bad=on_bad)
    rules = EventRules(
        sequence_by=() if sequence_by is None else names_in("sequence_by", sequence_by),
        apply_as_deletes=apply_as_deletes,
        apply_as_truncates=apply_as_truncates,
        except_column_list=names_in("except_column_list", except_column_list),
        ignore_null_updates=flag_in("ignore_null_updates", ignore_null_updates),
        scd_type=stored_as_scd_type,
        track_history=(
            None
            if track_history_column_list is None
            else names_in("track_history_column_list", track_history_column_list)
        ),
        tombstones_us=None if tombstones is None else duration_of(tombstones),
        quarantines=on_bad == "quarantine",
    )
    if mode != "upsert" and rules != EventRules():
        raise InvalidInputError('the arguments about events are for mode="upsert"', mode=mode)
    return rules


def sums_of(rows: pa.Table) -> BatchSums:
    """Return the sums of a batch of events, by which a replay is told from another batch."""
    ordered = rows.select(sorted(rows.column_names))
    schema = _schema_of(ordered)
    return batch_sums(adapt(ordered, schema.columns, schema).combine_chunks(), schema)


def _check_names(rows: pa.Table) -> None:
    names = rows.column_names
    if doubles := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidInputError(
            "two columns of the events have the same name; rename one", columns=doubles
        )


def _schema_of(rows: pa.Table) -> Schema:
    columns = columns_of_arrow(rows.schema)
    return relaxed(Schema(id=0, last_column_id=0, columns=columns))


def _sequence(rows: pa.Table, names: tuple[str, ...]) -> Array:
    if len(names) == 1:
        return rows.column(names[0])
    parts = [rows.column(name).combine_chunks() for name in names]
    is_null = np.logical_or.reduce(
        [part.is_null().to_numpy(zero_copy_only=False) for part in parts]
    )
    return pa.StructArray.from_arrays(parts, names=list(names), mask=pa.array(is_null))


def _mask(rows: pa.Table, schema: Schema, predicate: str | None) -> Array | None:
    if predicate is None:
        return None
    bound = select_matches(schema, predicate).predicate
    return pa.array([True] * len(rows)) if bound is None else filter_mask(bound, rows)
