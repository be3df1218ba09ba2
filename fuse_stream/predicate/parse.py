"""Parse SQL text to a predicate, by Spark's grammar.

Rules:
- A form that is not in `SUPPORTED` is an error that names it.
- Length and nesting are limited before the text is parsed, so hostile text costs little.
- Literals are numbers with and without suffix, strings, times, and casts of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from decimal import Decimal

from sqlglot import exp
from sqlglot.dialects import Spark
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.schema import decimal_of
from fuse_stream.predicate.casts import cast_literal, decimal_type, finite, fits, integral_type
from fuse_stream.predicate.parse_errors import (
    SUPPORTED,
    unexpected,
    unreadable,
    unsupported,
    unsupported_text,
)
from fuse_stream.predicate.times import read_timestamp
from fuse_stream.predicate.tree import (
    FALSE,
    NULL,
    TRUE,
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

MAX_TEXT_LENGTH = 1 << 18
"""Characters."""

_OPS: dict[type[exp.Expr], Op] = {
    exp.EQ: Op.EQ,
    exp.NEQ: Op.EQ,
    exp.LT: Op.LT,
    exp.LTE: Op.LE,
    exp.GT: Op.GT,
    exp.GTE: Op.GE,
}
_PREFIXES = {TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE}
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}


def parse_where(text: str) -> Predicate:
    """Return the predicate of `text`, the condition of a WHERE clause.

    Raises:
        InvalidInputError: the text is not a SQL condition, is too long or nested too deeply, or
            has an unsupported part; the error says which part, and where.
    """
    return _predicate(_parsed(text))


def parse_literal(text: str) -> Literal:
    """Return the literal of `text`.

    Raises:
        InvalidInputError: the text is not one SQL literal.
    """
    node = _parsed(text)
    literal = find_literal(node)
    if literal is None:
        raise unsupported(node)
    return literal


def _parsed(text: str) -> exp.Expr:
    """Return the syntax tree of a text that is short, and not nested too deeply."""
    if len(text) > MAX_TEXT_LENGTH:
        raise InvalidInputError(
            "the predicate is too long; split it", length=len(text), max_length=MAX_TEXT_LENGTH
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            "the predicate has a lone surrogate, which is half a character; remove it",
            position=error.start,
        ) from error
    dialect = Spark()
    try:
        tokens = _joined(dialect.tokenize(text), text)
        _check_depth(tokens)
        trees = dialect.parser().parse(tokens, text)
    except ParseError as error:
        raise unexpected(error) from None
    except SqlglotError as error:
        raise unreadable(error, text) from None
    except RecursionError:
        raise too_deep() from None
    tree: exp.Expr | None = trees[0] if len(trees) == 1 else None
    if tree is None:
        raise InvalidInputError("the predicate is not one condition", supported=SUPPORTED)
    return tree


def _joined(tokens: list[Token], text: str) -> list[Token]:
    # Spark concatenates adjacent strings, and reads a doubled quote inside a string as a quote.
    joined: list[Token] = []
    for token in tokens:
        last = joined[-1] if joined else None
        if token.token_type == TokenType.HEX_STRING and text[token.start] == "0":
            part = text[token.start : token.end + 1]  # to Spark a column's name
            raise unsupported_text(part, line=token.line, column=token.col)
        if last and {last.token_type, token.token_type} == {TokenType.STRING}:
            quote = text[token.start]
            doubled = last.end + 1 == token.start and text[last.end] == quote
            last.text += f"{quote}{token.text}" if doubled else token.text
            last.end = token.end
        else:
            joined.append(token)
    return joined


def _check_depth(tokens: list[Token]) -> None:
    depth = prefixes = 0
    for token in tokens:
        prefixes = prefixes + 1 if token.token_type in _PREFIXES else 0
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth + prefixes > MAX_DEPTH:
            raise too_deep()


def _predicate(node: exp.Expr) -> Predicate:
    match node:
        case exp.Paren():
            return _predicate(node.this)
        case exp.And():
            return And(operands=tuple(map(_predicate, _flat(node, exp.And))))
        case exp.Or():
            return Or(operands=tuple(map(_predicate, _flat(node, exp.Or))))
        case exp.Not():
            return Not(operand=_predicate(node.this))
        case _:
            return _leaf(node)


def _leaf(node: exp.Expr) -> Predicate:
    match node:
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            found = _compare(node.left, _OPS[type(node)], node.right, node)
            return Not(operand=found) if isinstance(node, exp.NEQ) else found
        case exp.NullSafeEQ() | exp.NullSafeNEQ():
            same = _null_safe(node.left, node.right, node)
            return Not(operand=same) if isinstance(node, exp.NullSafeNEQ) else same
        case exp.In():
            return _in(node)
        case exp.Between():
            return _between(node)
        case exp.Is():
            return _is(node)
        case exp.Like() | exp.Escape():
            return _like(node)
        case _:
            return _column(node) or _constant(node)


def _flat(node: exp.Expr, kind: type[exp.Expr]) -> Iterator[exp.Expr]:
    # A loop, not recursion: a chain of 1,000 ANDs is a tree 1,000 levels deep on its left side.
    operands = []
    while isinstance(node, kind):
        operands.append(node.expression)
        node = node.this
    yield node
    yield from reversed(operands)


def _compare(left: exp.Expr, op: Op, right: exp.Expr, node: exp.Expr) -> Predicate:
    column, literal = _column(left), find_literal(right)
    if column and literal:
        return Compare(column=column, op=op, literal=literal)
    column, literal = _column(right), find_literal(left)
    if column and literal:
        return Compare(column=column, op=op.mirrored(), literal=literal)
    first, second = find_literal(left), find_literal(right)
    if first and second and op is Op.EQ:
        return _same(first, second, node)
    raise unsupported(node)


def _same(first: Literal, second: Literal, node: exp.Expr) -> Predicate:
    # For `1 = 1`, which programs write as an empty condition.
    if first.value is None or second.value is None:
        return NULL
    exact = all(isinstance(item.value, int | Decimal) for item in (first, second))
    if first.type == second.type != "timestamp" or (
        exact and "boolean" not in {first.type, second.type}
    ):
        return TRUE if first.value == second.value else FALSE
    raise unsupported(node)


def _null_safe(left: exp.Expr, right: exp.Expr, node: exp.Expr) -> Predicate:
    column = _column(left) or _column(right)
    literal = find_literal(right) or find_literal(left)
    if column is None or literal is None:
        raise unsupported(node)
    return NullSafeEqual(column=column, literal=literal)


def _in(node: exp.In) -> Predicate:
    column = _column(node.this)
    literals = [find_literal(item) for item in node.expressions]
    if column is None or not literals or any(node.args.get(name) for name in _NOT_LISTS):
        raise unsupported(node)
    if any(literal is None for literal in literals):
        raise unsupported(node)
    return In(column=column, literals=tuple(item for item in literals if item))


def _between(node: exp.Between) -> Predicate:
    if node.args.get("symmetric"):
        raise unsupported(node)
    return And(
        operands=(
            _compare(node.this, Op.GE, node.args["low"], node),
            _compare(node.this, Op.LE, node.args["high"], node),
        )
    )


def _is(node: exp.Is) -> Predicate:
    column = _column(node.this)
    literal = find_literal(node.expression)
    if column is None or literal not in (NULL, TRUE, FALSE):
        raise unsupported(node)
    if literal == NULL:
        return IsNull(column=column)
    return NullSafeEqual(column=column, literal=literal)


def _like(node: exp.Expr) -> Predicate:
    escape = "\\"
    like = node
    if isinstance(node, exp.Escape):
        like, given = node.this, find_literal(node.expression)
        if given is None or not isinstance(given.value, str):
            raise unsupported(node)
        escape = given.value
    column = _column(like.this) if isinstance(like, exp.Like) else None
    pattern = find_literal(like.expression) if column else None
    if column is None or pattern is None or pattern.type not in {"string", "null"}:
        raise unsupported(node)
    text = pattern.value if isinstance(pattern.value, str) else None
    found = Like(column=column, pattern=text, escape=escape)
    return Not(operand=found) if like.args.get("negate") else found


def _column(node: exp.Expr) -> Column | None:
    names: list[str] = []
    while isinstance(node, exp.Dot):
        if not isinstance(node.expression, exp.Identifier):
            return None
        names.append(node.expression.name)
        node = node.this
    if isinstance(node, exp.Paren) and not names:
        return _column(node.this)
    if not isinstance(node, exp.Column) or any(
        not isinstance(part, exp.Identifier) for part in node.parts
    ):
        return None
    return Column(path=(*(part.name for part in node.parts), *reversed(names)))


def _constant(node: exp.Expr) -> Literal:
    literal = find_literal(node)
    if literal is None or literal.type not in {"boolean", "null"}:
        raise unsupported(node)
    return literal


_NOT_LISTS = ("query", "unnest", "field", "is_global")


MAX_DEPTH = 32
"""The most levels of nested parentheses, casts and prefix operators."""

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
_MAX_DIGITS = 400  # more than a double can have before its point


def find_literal(node: exp.Expr, *, negative: bool = False) -> Literal | None:
    """Return the literal of a syntax tree; None if the tree is not a literal.

    Raises:
        InvalidInputError: the literal is malformed, out of range or nested too deeply.
    """
    _check_tree_depth(node)
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
    """Return the error for a predicate with too many nested levels."""
    return InvalidInputError("the predicate is nested too deeply; simplify it", max_depth=MAX_DEPTH)


def _check_tree_depth(node: exp.Expr) -> None:
    # Casts with `::` nest without an opening token, which `_check_depth` would count.
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
    return Literal(value=value, type=decimal_type(value))


def _cast(node: exp.Cast, *, negative: bool) -> Literal | None:
    type_name = _type_of(node.to)
    inner = node.this
    if type_name is None:
        return None
    if isinstance(inner, exp.Literal) and not inner.is_string:
        # sqlglot parses a suffix as a cast; the suffix applies to the sign and the written digits.
        text = f"-{inner.name}" if negative else inner.name
        return _number_as(text, type_name)
    if node.to.this == exp.DType.DECIMAL and "nested" not in node.to.args:
        return _decimal(f"-{inner.name}" if negative else inner.name)  # the suffix BD
    literal = find_literal(inner)
    if literal is None or (negative and type_name not in _NUMERIC and not decimal_of(type_name)):
        return None
    found = _cast_literal(literal, type_name)
    return _negated(found) if negative else found


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
        read_timestamp(str(literal.value), UTC)  # only a check; `bind` knows the time zone
        return Literal(value=literal.value, type="timestamp")
    if literal.type == "timestamp":
        raise InvalidInputError(
            "a timestamp cannot be cast in a predicate; write the literal in the target type",
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
