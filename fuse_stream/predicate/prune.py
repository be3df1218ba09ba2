"""Evaluate a bound predicate on statistics: which blocks have no match, and which match as a whole.

Rules:
- The result may be loose, never wrong: of true, false and null, it has every outcome that the
  statistics do not exclude.
- A missing bound, or a column without statistics, excludes nothing.
- If NaN is counted, a value is greater than the upper bound.
- A bound need not be one of the values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Flag
from functools import reduce
from math import isnan
from typing import Any

from fuse_stream.format.records import ColumnStats, Value
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
)
from fuse_stream.predicate.tree import Op

StatsOf = Callable[[tuple[str, ...]], ColumnStats | None]
"""The statistics of the leaf column at a path; None where there are none."""


def may_match(bound: Bound, stats: StatsOf, row_count: int) -> bool:
    """False if certainly no row matches; `row_count` is the number of rows behind `stats`."""
    return row_count > 0 and Outcome.TRUE in outcomes(bound, stats, row_count)


def must_match(bound: Bound, stats: StatsOf, row_count: int) -> bool:
    """True if certainly every row matches; `row_count` is the number of rows behind `stats`."""
    return row_count == 0 or outcomes(bound, stats, row_count) == Outcome.TRUE


class Outcome(Flag):
    """The possible results of a predicate for the rows of a block."""

    NEVER = 0
    TRUE = 1
    FALSE = 2
    NULL = 4
    ANY = 7


def outcomes(bound: Bound, stats: StatsOf, row_count: int) -> Outcome:
    """Return all outcomes that a row may have; no row has another one."""
    match bound:
        case BoundConstant(value=None):
            return Outcome.NULL
        case BoundConstant(value=value):
            return _either(true=bool(value), false=not value)
        case BoundNot(operand=operand):
            return _NOT[outcomes(operand, stats, row_count)]
        case BoundAnd(operands=operands):
            return reduce(_and, (outcomes(item, stats, row_count) for item in operands))
        case BoundOr(operands=operands):
            negated = (_NOT[outcomes(item, stats, row_count)] for item in operands)
            return _NOT[reduce(_and, negated)]
        case BoundIsNull(column=column):
            extent = _extent(column, stats, row_count)
            return _either(true=extent.nulls, false=extent.known)
        case BoundCompare(column=column):
            return _of_values(_extent(column, stats, row_count), lambda it: _compare(it, bound))
        case BoundOneOf(column=column):
            return _of_values(_extent(column, stats, row_count), lambda it: _one_of(it, bound))
        case BoundLike(column=column):
            return _of_values(_extent(column, stats, row_count), lambda it: _like(it, bound))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extent:
    """The values that a column may have in a block."""

    low: Value | None = None
    high: Value | None = None
    nulls: bool = True
    known: bool = True
    """May have values that are not null."""
    numbers: bool = True
    """May have values that are neither null nor NaN."""
    nan: bool = True


def _extent(column: BoundColumn, stats: StatsOf, row_count: int) -> _Extent:
    found = stats(column.path)
    if found is None:
        return _Extent(nan=column.type in {"float", "double"})
    bounded = found.min is not None or found.max is not None
    return _Extent(
        low=found.min,
        high=found.max,
        nulls=found.null_count > 0,
        known=bounded or found.null_count < row_count,
        numbers=bounded or found.null_count + found.nan_count < row_count,
        nan=found.nan_count > 0,
    )


def _of_values(extent: _Extent, judge: Callable[[_Extent], Outcome]) -> Outcome:
    of_values = judge(extent) if extent.known else Outcome.NEVER
    return of_values | Outcome.NULL if extent.nulls else of_values


def _compare(extent: _Extent, bound: BoundCompare) -> Outcome:
    value = bound.value
    found = Outcome.NEVER
    if isinstance(value, float) and isnan(value):
        if extent.nan:
            found |= _either(true=bound.op in _REFLEXIVE, false=bound.op not in _REFLEXIVE)
        if extent.numbers:
            less = bound.op in {Op.LT, Op.LE}
            found |= _either(true=less, false=not less)
        return found
    if extent.nan:
        greater = bound.op in {Op.GT, Op.GE}
        found |= _either(true=greater, false=not greater)
    if extent.numbers:
        found |= _compare_range(extent.low, extent.high, bound.op, value)
    return found


def _compare_range(low: Any, high: Any, op: Op, value: Any) -> Outcome:
    # `Any`: bounds and value have the same type, which the type checker cannot know.
    may_less = low is None or low < value
    may_equal = (low is None or low <= value) and (high is None or value <= high)
    may_greater = high is None or high > value
    may = {Op.LT: may_less, Op.EQ: may_equal, Op.GT: may_greater}
    true = any(may[part] for part in _PARTS[op])
    false = any(may[part] for part in may if part not in _PARTS[op])
    return _either(true=true, false=false)


def _one_of(extent: _Extent, bound: BoundOneOf) -> Outcome:
    each = [
        _compare(extent, BoundCompare(column=bound.column, op=Op.EQ, value=value))
        for value in bound.values
    ]
    true = any(Outcome.TRUE in found for found in each)
    false = all(Outcome.FALSE in found for found in each)
    return _either(true=true, false=false)


def _like(extent: _Extent, bound: BoundLike) -> Outcome:
    prefix = bound.pattern.prefix
    low, high = extent.low, extent.high
    above = isinstance(low, str) and low[: len(prefix)] > prefix
    below = isinstance(high, str) and high < prefix
    return _either(true=not above and not below, false=True)


def _either(*, true: bool, false: bool) -> Outcome:
    return (Outcome.TRUE if true else Outcome.NEVER) | (Outcome.FALSE if false else Outcome.NEVER)


def _negated(found: Outcome) -> Outcome:
    return _either(true=Outcome.FALSE in found, false=Outcome.TRUE in found) | found & Outcome.NULL


def _and(left: Outcome, right: Outcome) -> Outcome:
    # It is unknown which row has which outcome, so every combination of the two sides may occur.
    if not left or not right:
        return Outcome.NEVER
    both = Outcome.TRUE | Outcome.NULL
    found = (left & right & Outcome.TRUE) | ((left | right) & Outcome.FALSE)
    if left & both and right & both and (left | right) & Outcome.NULL:
        found |= Outcome.NULL
    return found


_NOT = {found: _negated(found) for found in map(Outcome, range(8))}
_PARTS = {
    Op.EQ: {Op.EQ},
    Op.LT: {Op.LT},
    Op.LE: {Op.LT, Op.EQ},
    Op.GT: {Op.GT},
    Op.GE: {Op.GT, Op.EQ},
}
_REFLEXIVE = {Op.EQ, Op.LE, Op.GE}
