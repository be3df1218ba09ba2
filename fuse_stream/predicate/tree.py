"""Predicates as values: the result of parsing SQL, without a schema.

Rules:
- The meaning is Spark's (ANSI mode), three-valued: a comparison with null is null.
- A comparison has one column and literals; a literal keeps the type in which it was written.
- `a <> b` is `Not(a = b)`, BETWEEN is an `And`, IS DISTINCT FROM is a `Not(NullSafeEqual)`.
- Nothing is checked here: `bind` resolves names and types, and refuses invalid comparisons.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

LiteralValue = bool | int | float | Decimal | str | bytes | None


class Op(StrEnum):
    """A comparison operator, with the column on its left."""

    EQ = "="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="

    def mirrored(self) -> Op:
        """Return the operator that means the same with the two sides exchanged."""
        return _MIRRORED[self]


_MIRRORED = {Op.EQ: Op.EQ, Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column or a struct's field; as a predicate, a boolean column."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """A constant; as a predicate, a boolean or a null."""

    value: LiteralValue
    """Dates in days and times in microseconds since 1970; None is null. A `timestamp` may still be
    text: without a zone it is in the session's time zone, which only `bind` knows."""
    type: str
    """The name of a primitive type in `schema`, `decimal(p,s)`, or `null`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """`column op literal`."""

    column: Column
    op: Op
    literal: Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class NullSafeEqual:
    """`column <=> literal`: never null, and true if both are null."""

    column: Column
    literal: Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class In:
    """`column IN (literals)`; as in Spark, column and literals are cast to one common type."""

    column: Column
    literals: tuple[Literal, ...]
    """Without literals the result is false, even for a null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsNull:
    """`column IS NULL`, for a column of any type."""

    column: Column


@dataclass(frozen=True, slots=True, kw_only=True)
class Like:
    """`column LIKE pattern ESCAPE escape`."""

    column: Column
    pattern: str | None
    escape: str = "\\"


@dataclass(frozen=True, slots=True, kw_only=True)
class And:
    """`operands` joined by AND; there is at least one."""

    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Or:
    """`operands` joined by OR; there is at least one."""

    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Not:
    """NOT `operand`; null if the operand is null."""

    operand: Predicate


Predicate = Column | Literal | Compare | NullSafeEqual | In | IsNull | Like | And | Or | Not

TRUE = Literal(value=True, type="boolean")
FALSE = Literal(value=False, type="boolean")
NULL = Literal(value=None, type="null")
