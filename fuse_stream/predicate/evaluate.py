"""Evaluate a bound predicate on rows: those that Spark's WHERE would keep."""

from __future__ import annotations

from functools import reduce
from math import isnan
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.format.arrow import PRIMITIVES
from fuse_stream.format.records import Value
from fuse_stream.format.schema import decimal_of
from fuse_stream.predicate.bound import (
    Bound,
    BoundAnd,
    BoundColumn,
    BoundCompare,
    BoundConstant,
    BoundIsNull,
    BoundLike,
    BoundNot,
    BoundOneOf,
    BoundOr,
    LikePattern,
    decode_like_java,
)
from fuse_stream.predicate.tree import Op

# pyarrow has no type annotations: these names replace them.
_Mask: TypeAlias = Any
"""`pa.BooleanArray` of a batch, `pa.ChunkedArray` of a table."""
_Values: TypeAlias = Any

_LOGICAL = {name: PRIMITIVES[name] for name in ("date", "timestamp", "timestamp_ntz")}
_PHYSICAL = {
    **PRIMITIVES,
    "float": pa.float64(),  # the type of the literals, as in Spark
    "date": pa.int32(),
    "timestamp": pa.int64(),
    "timestamp_ntz": pa.int64(),
}
_COMPARE = {
    Op.EQ: pc.equal,
    Op.LT: pc.less,
    Op.LE: pc.less_equal,
    Op.GT: pc.greater,
    Op.GE: pc.greater_equal,
}


def filter_mask(bound: Bound, batch: pa.RecordBatch | pa.Table) -> _Mask:
    """Return a mask without nulls: true for each row that Spark's WHERE would keep.

    The columns in `bound` have the types that it was bound to.
    """
    return pc.fill_null(_evaluate(bound, batch), fill_value=False)


def _evaluate(bound: Bound, batch: pa.RecordBatch | pa.Table) -> _Mask:
    match bound:
        case BoundConstant(value=value):
            same = pa.repeat(pa.scalar(value, pa.bool_()), batch.num_rows)
            return pa.chunked_array([same]) if isinstance(batch, pa.Table) else same
        case BoundNot(operand=operand):
            return pc.invert(_evaluate(operand, batch))
        case BoundAnd(operands=operands):
            return reduce(pc.and_kleene, (_evaluate(item, batch) for item in operands))
        case BoundOr(operands=operands):
            return reduce(pc.or_kleene, (_evaluate(item, batch) for item in operands))
        case BoundIsNull(column=column):
            return pc.is_null(_column(batch, column))
        case BoundCompare(column=column, op=op, value=value):
            values = _physical(_column(batch, column), column)
            if isinstance(value, float):
                return _compare_floats(values, op, value)
            return _COMPARE[op](values, pa.scalar(value, values.type))
        case BoundOneOf(column=column, values=items):
            return _one_of(_physical(_column(batch, column), column), items)
        case BoundLike(column=column, pattern=pattern):
            return _like(_physical(_column(batch, column), column), pattern)


def _column(batch: pa.RecordBatch | pa.Table, column: BoundColumn) -> _Values:
    values = batch.column(column.path[0])
    for name in column.path[1:]:
        # By index: Arrow takes a name that begins with a dot for a path.
        values = pc.struct_field(values, values.type.get_field_index(name))
    return values


def _physical(values: _Values, column: BoundColumn) -> _Values:
    if digits := decimal_of(column.type):
        return pc.cast(values, pa.decimal128(*digits))
    if column.type in _LOGICAL:
        values = pc.cast(values, _LOGICAL[column.type])
    return pc.cast(values, _PHYSICAL[column.type])


def _compare_floats(values: _Values, op: Op, value: float) -> _Mask:
    # In Arrow NaN equals nothing; in Spark it equals itself and is greater than all other values.
    if isnan(value):
        nan = pc.is_nan(values)
        if op in {Op.EQ, Op.GE}:
            return nan
        if op is Op.LT:
            return pc.invert(nan)
        return _where_known(values, matches=op is Op.LE)
    found = _COMPARE[op](values, pa.scalar(value, values.type))
    return pc.or_(found, pc.is_nan(values)) if op in {Op.GT, Op.GE} else found


def _one_of(values: _Values, items: tuple[Value, ...]) -> _Mask:
    if not items:
        return _where_known(values, matches=False)
    if pa.types.is_floating(values.type):
        # Arrow compares the bits; adding 0.0 turns -0.0 into 0.0.
        values = pc.add(values, 0.0)
        items = tuple(item + 0.0 if isinstance(item, float) else item for item in items)
    found = pc.is_in(values, value_set=pa.array(items, values.type))
    return pc.if_else(pc.is_null(values), pa.scalar(None, pa.bool_()), found)


def _like(values: _Values, pattern: LikePattern) -> _Mask:
    found = pc.match_substring_regex(values, pattern.regex)
    raw = pc.cast(values, pa.binary())
    try:
        pc.cast(raw, pa.string())
    except pa.ArrowInvalid:  # RE2 never matches a text that is not UTF-8
        return _where_odd(found, raw.to_pylist(), pattern)
    return found


def _where_odd(found: _Mask, values: list[bytes | None], pattern: LikePattern) -> _Mask:
    """Return `found` with the right results for values that are not UTF-8."""
    odd = {
        index: value
        for index, value in enumerate(values)
        if value is not None and decode_like_java(value).encode() != value
    }
    if pattern.by_bytes is not None:
        answers = [pattern.by_bytes.matches(value) for value in odd.values()]
    else:
        texts = pa.array(map(decode_like_java, odd.values()), pa.string())
        answers = pc.match_substring_regex(texts, pattern.regex).to_pylist()
    every = found.to_pylist()
    for index, answer in zip(odd, answers, strict=True):
        every[index] = answer
    mask = pa.array(every, pa.bool_())
    return pa.chunked_array([mask]) if isinstance(found, pa.ChunkedArray) else mask


def _where_known(values: _Values, *, matches: bool) -> _Mask:
    return pc.if_else(pc.is_null(values), pa.scalar(None, pa.bool_()), matches)
