"""Literals of SQL, from sqlglot's tree: numbers with and without suffix, text, times, casts."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC
from decimal import Decimal

from sqlglot import exp

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.literals import cast_literal, decimal_type, finite, fits, integral_type
from fuse_stream.format.predicate import FALSE, NULL, TRUE, Literal
from fuse_stream.format.schema import decimal_of
from fuse_stream.format.times import read_timestamp

MAX_DEPTH = 32
"""Parentheses, casts and prefix operators that stand within one another."""

_TYPES = {
    exp.DType.BOOLEAN: "boolean",
    exp.DType.TINYINT: "byte",
    exp.DType.SMALLINT: "short",
    exp.DType.INT: "integer",
    exp.DType.BIGINT: "long",
    exp.DType.FLOAT: "float",
    exp.DType.DOUBLE: "double",
    exp.DType.TEXT: "string",
    exp.DType.BINARY: "binary",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMP: "timestamp",
    exp.DType.TIMESTAMPTZ: "timestamp",
    exp.DType.TIMESTAMPLTZ: "timestamp",
    exp.DType.TIMESTAMPNTZ: "timestamp_ntz",
}
_WHOLE = re.compile(r"\d+", re.ASCII)
_POINT = re.compile(r"\d+\.\d*|\.\d+", re.ASCII)
_EXPONENT = re.compile(r"(?:\d+\.?\d*|\.\d+)[eE][+-]?\d+", re.ASCII)
_MAX_DIGITS = 400  # more than any double has before its point


def find_literal(node: exp.Expr, *, negative: bool = False) -> Literal | None:
    """Return the literal that `node` stands for, None if it is not one.

    Raises:
        InvalidInputError: it is one, but malformed, out of range or nested too deeply.
    """
    _check_depth(node)
    inner = node.this
    match node:
        case exp.Paren():
            return find_literal(inner, negative=negative)
        case exp.Neg():
            return find_literal(inner, negative=not negative)
        case exp.Literal() if not node.is_string:
            return _number(f"-{node.name}" if negative else node.name)
        case exp.Cast() if not node.args.get("safe") and not node.args.get("format"):
            return _cast(node, negative=negative)
        case _:
            return None if negative else _plain(node)


def too_deep() -> InvalidInputError:
    """Return the error for a predicate of which too much stands within one another."""
    return InvalidInputError("the predicate is nested too deeply; simplify it", max_depth=MAX_DEPTH)


def _check_depth(node: exp.Expr) -> None:
    # Casts by `::` nest, though nothing in the text opens.
    depth = 0
    while isinstance(node, exp.Cast | exp.Paren | exp.Neg):
        depth += 1
        node = node.this
        if depth > MAX_DEPTH:
            raise too_deep()


def _plain(node: exp.Expr) -> Literal | None:
    match node:
        case exp.Literal() | exp.RawString():
            return Literal(value=node.name, type="string")
        case exp.Boolean():
            return TRUE if node.this else FALSE
        case exp.Null():
            return NULL
        case exp.HexString():
            digits = node.name
            return Literal(value=bytes.fromhex("0" * (len(digits) % 2) + digits), type="binary")
        case _:
            return None


def _number(text: str) -> Literal:
    digits = text.removeprefix("-")
    if len(text) > _MAX_DIGITS:
        raise InvalidInputError("the number has too many digits", number=text[:100])
    if _WHOLE.fullmatch(digits):
        value = int(text)
        type_name = integral_type(value)
        return Literal(value=Decimal(value) if decimal_of(type_name) else value, type=type_name)
    if _POINT.fullmatch(digits):
        return _decimal(text)
    if _EXPONENT.fullmatch(digits):
        return Literal(value=finite(float(text), text), type="double")
    raise InvalidInputError("this is not a number; correct the literal", number=text[:100])


def _decimal(text: str) -> Literal:
    value = Decimal(text)
    if value.as_tuple().exponent and value == 0:
        value = abs(value)  # a decimal has no negative zero
    type_name = decimal_type(value)
    return Literal(value=value, type=type_name)


def _cast(node: exp.Cast, *, negative: bool) -> Literal | None:
    type_name = _type_of(node.to)
    inner = node.this
    if type_name is None:
        return None
    if isinstance(inner, exp.Literal) and not inner.is_string:
        # A suffix reads like a cast here; it takes the sign and the digits as they are written.
        text = f"-{inner.name}" if negative else inner.name
        return _number_as(text, type_name)
    if node.to.this == exp.DType.DECIMAL and "nested" not in node.to.args:
        return _decimal(f"-{inner.name}" if negative else inner.name)  # the suffix BD
    literal = find_literal(inner)
    if literal is None or (negative and type_name not in _NUMERIC and not decimal_of(type_name)):
        return None
    return (
        _negated(_cast_literal(literal, type_name))
        if negative
        else _cast_literal(literal, type_name)
    )


def _number_as(text: str, type_name: str) -> Literal:
    if type_name in {"float", "double"}:
        as_text = Literal(value=text, type="string")
        value = cast_literal(as_text, type_name, UTC)
        return Literal(value=finite(float(value), text), type=type_name)
    return _cast_literal(_number(text), type_name)


def _cast_literal(literal: Literal, type_name: str) -> Literal:
    if literal.value is None:
        return NULL
    if type_name == "timestamp":
        if literal.type not in {"string", "timestamp"}:
            raise InvalidInputError(
                "this cast depends on the session's time zone; write TIMESTAMP '…'",
                literal=literal.type,
            )
        read_timestamp(str(literal.value), UTC)  # is it one? Which, is for `bind` to say
        return Literal(value=literal.value, type="timestamp")
    if literal.type == "timestamp":
        raise InvalidInputError(
            "a time cannot be cast in a predicate; write the literal in the type itself",
            type=type_name,
        )
    return Literal(value=cast_literal(literal, type_name, UTC), type=type_name)


def _negated(literal: Literal) -> Literal:
    value = literal.value
    if value is None:
        return literal
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise InvalidInputError("only a number can be negative", literal=literal.type)
    if isinstance(value, int) and not fits(-value, literal.type):
        raise InvalidInputError("the number is out of range", number=str(-value))
    return replace(literal, value=value.copy_negate() if isinstance(value, Decimal) else -value)


def _type_of(node: exp.DataType) -> str | None:
    if node.this == exp.DType.DECIMAL:
        sizes = [int(size.name) for size in node.expressions if size.name.isdecimal()]
        precision, scale = [*sizes, *((10, 0)[len(sizes) :])][:2]
        valid = len(sizes) == len(node.expressions) <= 2 and scale <= precision <= 38
        return f"decimal({precision},{scale})" if valid else None
    return None if node.expressions else _TYPES.get(node.this)


_NUMERIC = frozenset({"byte", "short", "integer", "long", "float", "double"})
