"""Predicates of Spark's connectors, as those of this package.

Only a predicate that means the same here is translated: comparisons of a column with a constant of
its type, tests for null, and their combinations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from fuse_stream.predicate.tree import (
    FALSE,
    TRUE,
    And,
    Column,
    Compare,
    In,
    IsNull,
    Like,
    Literal,
    LiteralValue,
    Not,
    NullSafeEqual,
    Op,
    Or,
    Predicate,
)

_CONSTANTS = {"ALWAYS_TRUE": TRUE, "ALWAYS_FALSE": FALSE}
_PLAIN = frozenset({"boolean", "byte", "short", "integer", "long", "float", "double"})
_TIMES = frozenset({"date", "timestamp", "timestamp_ntz"})
"""Their values are days and microseconds since 1970, here as there."""


def find_predicate(predicates: Sequence[Any]) -> Predicate | None:
    """Return all of `predicates`, joined by AND; None if one of them cannot be translated."""
    found = _all(_predicate, predicates)
    if found is None:
        return None
    return And(operands=found) if found else TRUE


def _predicate(predicate: Any) -> Predicate | None:
    name = str(predicate.name()) if hasattr(predicate, "name") else ""
    children = list(predicate.children())
    if name in _CONSTANTS:
        return _CONSTANTS[name]
    if name in {"AND", "OR"}:
        operands = _all(_predicate, children)
        if operands is None:
            return None
        return And(operands=operands) if name == "AND" else Or(operands=operands)
    if name == "NOT":
        operand = _predicate(children[0])
        return None if operand is None else Not(operand=operand)
    column = _column(children[0]) if children else None
    if column is None:
        return _mirrored(name, children)
    return _test(name, column, children[1:])


def _mirrored(name: str, children: Sequence[Any]) -> Predicate | None:
    """Return a comparison whose column is on the right."""
    mirrors = {"=": "=", "<>": "<>", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
    if name not in mirrors or len(children) != 2:
        return None
    column = _column(children[1])
    return None if column is None else _test(mirrors[name], column, children[:1])


def _test(name: str, column: Column, values: Sequence[Any]) -> Predicate | None:
    if name == "IS_NULL":
        return IsNull(column=column)
    if name == "IS_NOT_NULL":
        return Not(operand=IsNull(column=column))
    literals = _all(_literal, values)
    if literals is None or not literals:
        return None
    make = _TESTS.get(name)
    return None if make is None else make(column, literals)


def _like(column: Column, literals: tuple[Literal, ...], form: str) -> Like:
    value = literals[0].value
    if value is None:
        return Like(column=column, pattern=None)
    return Like(column=column, pattern=form.format(re.sub(r"([\\%_])", r"\\\1", str(value))))


_TESTS: Mapping[str, Callable[[Column, tuple[Literal, ...]], Predicate]] = {
    "IN": lambda column, literals: In(column=column, literals=literals),
    "STARTS_WITH": lambda column, literals: _like(column, literals, "{}%"),
    "ENDS_WITH": lambda column, literals: _like(column, literals, "%{}"),
    "CONTAINS": lambda column, literals: _like(column, literals, "%{}%"),
    "<=>": lambda column, literals: NullSafeEqual(column=column, literal=literals[0]),
    "<>": lambda column, literals: Not(
        operand=Compare(column=column, op=Op.EQ, literal=literals[0])
    ),
    **{
        str(op): lambda column, literals, op=op: Compare(  # type: ignore[misc]
            column=column, op=op, literal=literals[0]
        )
        for op in Op
    },
}


def _column(expression: Any) -> Column | None:
    # Other expressions, such as a cast, have children; a column has a name of parts.
    if expression.getClass().getSimpleName() != "FieldReference":
        return None
    return Column(path=tuple(expression.fieldNames()))


def _literal(expression: Any) -> Literal | None:
    if expression.getClass().getSimpleName() != "LiteralValue":
        return None
    type_name = str(expression.dataType().typeName())
    value = expression.value()
    if value is None:
        return Literal(value=None, type="null")
    kept: LiteralValue
    if type_name in _PLAIN or type_name in _TIMES:
        kept = value
    elif type_name == "string":
        kept = str(value if isinstance(value, str) else value.toString())
    elif type_name == "binary":
        kept = bytes(value)
    elif type_name.startswith("decimal"):
        kept = Decimal(value.toString() if hasattr(value, "toString") else value)
    else:
        return None
    return Literal(value=kept, type=type_name)


def _all(find: Callable[[Any], Any], items: Sequence[Any]) -> tuple[Any, ...] | None:
    found = tuple(find(item) for item in items)
    return None if None in found else found
