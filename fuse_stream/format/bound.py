"""Predicates bound to a schema: columns resolved, literals in the domain of the column's bounds.

Rules:
- A value is what `ColumnStats` would hold: times as integers, decimals in the column's scale.
- A value is always one that the column could hold, so nothing overflows where it is compared.
- Values compare as Spark's: NaN equals itself and is the greatest, -0.0 equals 0.0, text and bytes
  compare as unsigned bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuse_stream.format.like import LikePattern
from fuse_stream.format.predicate import Op
from fuse_stream.format.records import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundColumn:
    """A column by its names in the schema, in the schema's own spelling."""

    path: tuple[str, ...]
    type: str
    """As in `schema.Column`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundConstant:
    """The same for every row; None is null."""

    value: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCompare:
    """`column op value`; null where the column is."""

    column: BoundColumn
    op: Op
    value: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundOneOf:
    """Whether the column is one of `values`; null where the column is, even with no values."""

    column: BoundColumn
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundIsNull:
    """Whether the column is null; never null itself."""

    column: BoundColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundLike:
    """Whether text matches a pattern that is not one text alone; null where the column is."""

    column: BoundColumn
    pattern: LikePattern


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundAnd:
    """All of `operands`."""

    operands: tuple[Bound, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundOr:
    """Any of `operands`."""

    operands: tuple[Bound, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundNot:
    """The opposite; of null, null."""

    operand: Bound


Bound = (
    BoundConstant
    | BoundCompare
    | BoundOneOf
    | BoundIsNull
    | BoundLike
    | BoundAnd
    | BoundOr
    | BoundNot
)
