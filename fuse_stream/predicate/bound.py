"""Predicates bound to a schema: with resolved columns, and literals as values of `ColumnStats`.

Rules:
- A value has the form of a bound: times are integers, decimals have the column's scale.
- A value is always one that the column could have, so no comparison overflows.
- Values compare as in Spark: NaN equals itself and is the greatest value, -0.0 equals 0.0, text
  and binary compare as unsigned bytes.
- In a LIKE pattern `_` is one character and `%` any number of characters, line ends included.
- A text in Spark is bytes, which need not be UTF-8. Spark matches the simplest patterns byte by
  byte; for all others it replaces each malformed sequence with U+FFFD.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.records import Value
from fuse_stream.predicate.tree import Op

MAX_PATTERN_LENGTH = 4096
"""Characters; RE2 refuses much longer patterns with an unhelpful message."""
REPLACEMENT = "\ufffd"


@dataclass(frozen=True, slots=True, kw_only=True)
class BytePattern:
    """A pattern that Spark matches byte by byte: `a%`, `%a`, `a%b` or `%a%`."""

    first: bytes = b""
    within: bytes = b""
    last: bytes = b""
    char_count: int = 0
    """The least number of characters of a match of `a%b`."""

    def matches(self, value: bytes) -> bool:
        return (
            value.startswith(self.first)
            and value.endswith(self.last)
            and self.within in value
            and (not self.char_count or len(_SKIPPED.findall(value)) >= self.char_count)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LikePattern:
    """A parsed LIKE pattern."""

    regex: str
    """For RE2, anchored at both ends."""
    prefix: str
    """The beginning of every match."""
    is_literal: bool
    """True if the pattern matches only the text `prefix`."""
    by_bytes: BytePattern | None
    """How to match bytes that are not UTF-8; None: match the result of `decode_like_java`."""


def translate_like(pattern: str, escape: str) -> LikePattern:
    """Return the parsed LIKE pattern.

    Raises:
        InvalidInputError: Spark refuses the pattern too, or it is too long.
    """
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise InvalidInputError(
            "the LIKE pattern is too long; split the predicate",
            length=len(pattern),
            max_length=MAX_PATTERN_LENGTH,
        )
    pieces = list(_pieces(pattern, escape))
    wildcards = [index for index, (_, wild) in enumerate(pieces) if wild]
    prefix = "".join(text for text, _ in pieces[: wildcards[0] if wildcards else None])
    body = "".join(_WILD[text] if wild else _quoted(text) for text, wild in pieces)
    plain = None if escape in pattern else _PLAIN.fullmatch(_RUN.sub("%", pattern))
    by_bytes = None if plain is None or not wildcards else _byte_pattern(plain)
    is_decoded = by_bytes is None and (bool(wildcards) or escape in pattern)
    if is_decoded:  # REPLACEMENT matches malformed bytes too, so the prefix ends before it
        prefix, replaced, _ = prefix.partition(REPLACEMENT)
    else:
        replaced = ""
    return LikePattern(
        regex=rf"(?s)\A{body}\z",
        prefix=prefix,
        is_literal=not wildcards and not replaced,
        by_bytes=by_bytes,
    )


def decode_like_java(value: bytes) -> str:
    """Return `value` as text; malformed sequences are replaced as Java does it."""
    # An encoded surrogate is one malformed sequence in Java, but one per byte in Python.
    return _SURROGATE.sub(b"\xff", value).decode(errors="replace")


_WILD = {"_": ".", "%": ".*"}
_PLAIN = re.compile(
    "(?P<first>[^_%]+)%(?P<last>[^_%]+)?|%(?P<end>[^_%]+)|%(?P<within>[^_%]+)%|[^_%]*"
)
"""Patterns that Spark's query optimizer replaces, unless they have the escape character."""
_RUN = re.compile("%+")
"""Spark's query optimizer reads several `%` as one."""
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_SKIPPED = re.compile(rb"[\xc2-\xdf].?|[\xe0-\xef].{0,2}|[\xf0-\xf4].{0,3}|.", re.DOTALL)
"""The bytes that Spark counts as one character: the first byte decides how many follow."""


def _byte_pattern(plain: re.Match[str]) -> BytePattern:
    first, last, end, within = (plain[name] for name in ("first", "last", "end", "within"))
    return BytePattern(
        first=(first or "").encode(),
        within=(within or "").encode(),
        last=(last or end or "").encode(),
        char_count=len(first) + len(last) if first and last else 0,
    )


def _pieces(pattern: str, escape: str) -> Iterator[tuple[str, bool]]:
    # Yields each character, and whether it is a wildcard.
    if len(escape) != 1:
        raise InvalidInputError("ESCAPE takes exactly one character", escape=escape)
    rest = iter(pattern)
    for char in rest:
        if char == escape:
            escaped = next(rest, "")
            if escaped not in {"_", "%", escape}:
                raise InvalidInputError(
                    "in a LIKE pattern the escape character may only come before _, % or itself; "
                    "double it, or choose another one with ESCAPE",
                    pattern=pattern,
                    escape=escape,
                )
            yield escaped, False
        else:
            yield char, char in _WILD


def _quoted(char: str) -> str:
    return char if char.isalnum() or ord(char) > 0x7F else rf"\x{{{ord(char):x}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundColumn:
    """A column, by the exact names in the schema."""

    path: tuple[str, ...]
    type: str
    """As in `schema.Column`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundConstant:
    """The same result for every row; None is null."""

    value: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCompare:
    """`column op value`; null if the column is null."""

    column: BoundColumn
    op: Op
    value: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundOneOf:
    """`column IN (values)`; null if the column is null, even without values."""

    column: BoundColumn
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundIsNull:
    """`column IS NULL`; never null itself."""

    column: BoundColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundLike:
    """`column LIKE pattern`, for a pattern that is not a literal; null if the column is null."""

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
    """NOT `operand`; null if the operand is null."""

    operand: Bound


BoundLeaf = BoundConstant | BoundCompare | BoundOneOf | BoundIsNull | BoundLike
Bound = BoundLeaf | BoundAnd | BoundOr | BoundNot


def with_leaves(bound: Bound, change: Callable[[BoundLeaf], Bound]) -> Bound:
    """Return a predicate with each of its leaves changed: the parts that are no AND, OR or NOT."""
    match bound:
        case BoundNot(operand=operand):
            return BoundNot(operand=with_leaves(operand, change))
        case BoundAnd(operands=operands):
            return BoundAnd(operands=tuple(with_leaves(one, change) for one in operands))
        case BoundOr(operands=operands):
            return BoundOr(operands=tuple(with_leaves(one, change) for one in operands))
        case _:
            return change(bound)
