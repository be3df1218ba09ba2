"""Sought rows in the quarantine: events, whose fields a predicate can judge, and mere texts.

Rules:
- A predicate on the table's columns is one on the fields of `event`. A truncate is never sought.
- A text that could not be read as an event is sought only if the predicate is made of `=`, `IN`,
  `AND` and `OR`, and the text has the values as words, or the message has that it keeps in base64.
  Values that are too short to be searched in texts (`traces`) are in none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.dml.event_sides import EVENT, OP, OPERATIONS
from fuse_stream.dml.events import DELETE, UPSERT
from fuse_stream.erasure.traces import needle_of
from fuse_stream.format import raw_text
from fuse_stream.format.records import Value
from fuse_stream.predicate.bound import Bound, BoundAnd, BoundCompare, BoundOneOf, BoundOr
from fuse_stream.predicate.evaluate import filter_mask
from fuse_stream.predicate.tree import (
    And,
    Column,
    Compare,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    NullSafeEqual,
    Op,
    Or,
    Predicate,
)

RAW = "raw"
_OF_KEYS = pa.array([OPERATIONS[UPSERT], OPERATIONS[DELETE]])


def inside(predicate: Predicate) -> Predicate:
    """Return a predicate on the table's columns as one on the fields of `event`."""
    match predicate:
        case Literal():
            return predicate
        case Column(path=path):
            return Column(path=(EVENT, *path))
        case And(operands=operands):
            return And(operands=tuple(map(inside, operands)))
        case Or(operands=operands):
            return Or(operands=tuple(map(inside, operands)))
        case Not(operand=operand):
            return Not(operand=inside(operand))
        case Compare() | NullSafeEqual() | In() | IsNull() | Like():
            return replace(predicate, column=Column(path=(EVENT, *predicate.column.path)))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineTest:
    """Judges rows of the quarantine: those are read with `op`, `raw` and the predicate's fields."""

    predicate: Bound | None
    """On the fields of `event`."""
    can_judge: bool
    """False if the events lack a column of the predicate."""
    texts: Bound | None
    """On the table's columns: its values are searched in texts."""

    def matching(self, rows: pa.Table) -> pa.ChunkedArray:
        """True for the events that match, and for the texts with the values."""
        ops = rows.column(OP)
        is_event = pc.is_in(ops, value_set=_OF_KEYS)
        if self.can_judge and self.predicate is not None:
            is_event = pc.and_(is_event, filter_mask(self.predicate, rows))
        elif not self.can_judge:
            is_event = pc.and_(is_event, pa.scalar(value=False))
        is_text = pc.is_null(ops).to_pylist()
        found = [
            has_no_op and text is not None and _is_in(self.texts, text)
            for has_no_op, text in zip(is_text, rows.column(RAW).to_pylist(), strict=True)
        ]
        return pc.or_(is_event, pa.chunked_array([pa.array(found, pa.bool_())]))

    def unjudged(self, rows: pa.Table) -> pa.ChunkedArray:
        """True for the texts without the values, and for events without the columns."""
        ops = rows.column(OP)
        is_open = pc.is_null(ops)
        if not self.can_judge:
            is_open = pc.or_(is_open, pc.is_in(ops, value_set=_OF_KEYS))
        return pc.and_(is_open, pc.invert(self.matching(rows)))


def _is_in(predicate: Bound | None, text: str) -> bool:
    """True if a text has the values for which a predicate would be true."""
    match predicate:
        case BoundAnd(operands=operands):
            return all(_is_in(operand, text) for operand in operands)
        case BoundOr(operands=operands):
            return any(_is_in(operand, text) for operand in operands)
        case BoundCompare(op=Op.EQ, value=value):
            return _has(text, value)
        case BoundOneOf(values=values):
            return any(_has(text, value) for value in values)
    return False


def _has(text: str, value: Value) -> bool:
    needle = needle_of(value)
    if needle is None or needle.text is None:
        return False
    # The bytes of the message: the text of one that is no UTF-8 shows none of its words.
    return needle.text.search(raw_text.bytes_of(text)) is not None
