"""The same predicate on columns that have other names. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from fuse_stream.predicate.bound import Bound, BoundAnd, BoundConstant, BoundNot, BoundOr

Paths = Mapping[tuple[str, ...], tuple[str, ...]]


def renamed(bound: Bound, paths: Paths) -> Bound:
    """Return a predicate with the path of each column replaced by the one that `paths` gives."""
    match bound:
        case BoundConstant():
            return bound
        case BoundNot(operand=operand):
            return BoundNot(operand=renamed(operand, paths))
        case BoundAnd(operands=operands):
            return BoundAnd(operands=tuple(renamed(one, paths) for one in operands))
        case BoundOr(operands=operands):
            return BoundOr(operands=tuple(renamed(one, paths) for one in operands))
        case _:
            column = dataclasses.replace(bound.column, path=paths[bound.column.path])
            return dataclasses.replace(bound, column=column)
