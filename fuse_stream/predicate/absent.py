"""Rewrite a bound predicate with the knowledge that a column lacks some values. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fuse_stream.format.records import Value
from fuse_stream.predicate.bound import (
    Bound,
    BoundAnd,
    BoundColumn,
    BoundCompare,
    BoundLeaf,
    BoundNot,
    BoundOneOf,
    BoundOr,
    with_leaves,
)
from fuse_stream.predicate.tree import Op

IsAbsent = Callable[[BoundColumn, Value], bool]


def iter_equalities(bound: Bound) -> Iterator[tuple[BoundColumn, Value]]:
    """Yield each column and value of which a predicate asks whether they are equal."""
    match bound:
        case BoundCompare(column=column, op=Op.EQ, value=value):
            yield column, value
        case BoundOneOf(column=column, values=values):
            for value in values:
                yield column, value
        case BoundNot(operand=operand):
            yield from iter_equalities(operand)
        case BoundAnd(operands=operands) | BoundOr(operands=operands):
            for operand in operands:
                yield from iter_equalities(operand)
        case _:
            return


def without_absent(bound: Bound, is_absent: IsAbsent) -> Bound:
    """Return a predicate with the same result for each row of some whose columns lack values.

    `is_absent` says which. A comparison with such a value becomes one with no value: null for null,
    else false.
    """

    def changed(leaf: BoundLeaf) -> Bound:
        match leaf:
            case BoundCompare(column=column, op=Op.EQ, value=value):
                return BoundOneOf(column=column, values=()) if is_absent(column, value) else leaf
            case BoundOneOf(column=column, values=values):
                left = tuple(value for value in values if not is_absent(column, value))
                return BoundOneOf(column=column, values=left)
            case _:
                return leaf

    return with_leaves(bound, changed)
