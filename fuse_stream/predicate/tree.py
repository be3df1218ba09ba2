"""Predicates as values: what SQL text becomes, before any schema is known.

Rules:
- The meaning is Spark's (ANSI mode), three-valued: a comparison with null is null.
- One column stands against literals; a literal keeps the type that it was written with.
- `a <> b` is `Not(a = b)`, BETWEEN an `And`, IS DISTINCT FROM a `Not(NullSafeEqual)`.
- Nothing is checked here: `bind` resolves names and types, and refuses what makes no sense.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

LiteralValue = bool | int | float | Decimal | str | bytes | None


class Op(StrEnum):
    """A comparison, the column on the left."""

    EQ = "="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="

    def mirrored(self) -> Op:
        """Return the comparison that says the same with its sides exchanged."""
        return _MIRRORED[self]


_MIRRORED = {Op.EQ: Op.EQ, Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column, or a part of a struct; as a predicate, a boolean one that is true."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """A constant; as a predicate, a boolean or a null."""

    value: LiteralValue
    """Dates in days and times in microseconds since 1970; None is null. A `timestamp` may be text,
    as written: without a zone of its own it is read in the session's, which only `bind` knows."""
    type: str
    """A primitive type's name in `schema`, `decimal(p,s)`, or `null`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """`column op literal`."""

    column: Column
    op: Op
    literal: Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class NullSafeEqual:
    """`column <=> literal`: never null, and true where both are."""

    column: Column
    literal: Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class In:
    """`column IN (literals)`; as in Spark all are compared in one type common to the whole list."""

    column: Column
    literals: tuple[Literal, ...]
    """None at all: false, even for a null."""


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
    """All of `operands`, of which there is at least one."""

    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Or:
    """Any of `operands`, of which there is at least one."""

    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Not:
    """The opposite; of null, null."""

    operand: Predicate


Predicate = Column | Literal | Compare | NullSafeEqual | In | IsNull | Like | And | Or | Not

TRUE = Literal(value=True, type="boolean")
FALSE = Literal(value=False, type="boolean")
NULL = Literal(value=None, type="null")
