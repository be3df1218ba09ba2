"""Predicates bound to a schema: columns resolved, literals in the domain of the column's bounds.

LIKE patterns: `_` is one character, `%` any number of them, line ends included.

Spark holds text as bytes, which need not be UTF-8. It matches the plainest patterns byte by byte,
and for all others reads each malformed sequence as U+FFFD.

Rules:
- A value is what `ColumnStats` would hold: times as integers, decimals in the column's scale.
- A value is always one that the column could hold, so nothing overflows where it is compared.
- Values compare as Spark's: NaN equals itself and is the greatest, -0.0 equals 0.0, text and bytes
  compare as unsigned bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.records import Value
from fuse_stream.predicate.tree import Op

MAX_PATTERN_LENGTH = 4096
"""Characters; RE2 refuses much longer ones, in words that help nobody."""
REPLACEMENT = "\ufffd"


@dataclass(frozen=True, slots=True, kw_only=True)
class BytePattern:
    """A pattern that Spark matches byte by byte: `a%`, `%a`, `a%b` or `%a%`."""

    first: bytes = b""
    within: bytes = b""
    last: bytes = b""
    char_count: int = 0
    """A match of `a%b` has at least so many characters."""

    def matches(self, value: bytes) -> bool:
        """Whether `value` matches."""
        return (
            value.startswith(self.first)
            and value.endswith(self.last)
            and self.within in value
            and (not self.char_count or _char_count(value) >= self.char_count)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LikePattern:
    """What a pattern asks of text."""

    regex: str
    """RE2, anchored at both ends."""
    prefix: str
    """What every match starts with."""
    is_literal: bool
    """It matches `prefix` and nothing else."""
    by_bytes: BytePattern | None
    """How bytes that are not UTF-8 match; None: after `decode_like_java`."""


def translate_like(pattern: str, escape: str) -> LikePattern:
    """Return what a LIKE pattern asks.

    Raises:
        InvalidInputError: the pattern is one that Spark refuses too, or too long.
    """
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise InvalidInputError(
            "the LIKE pattern is too long; split the predicate",
            length=len(pattern),
            max_length=MAX_PATTERN_LENGTH,
        )
    pieces = list(_pieces(pattern, escape))
    wildcards = [place for place, (_, wild) in enumerate(pieces) if wild]
    prefix = "".join(text for text, _ in pieces[: wildcards[0] if wildcards else None])
    body = "".join(_WILD[text] if wild else _quoted(text) for text, wild in pieces)
    plain = None if escape in pattern else _PLAIN.fullmatch(_RUN.sub("%", pattern))
    by_bytes = None if plain is None or not wildcards else _byte_pattern(plain)
    is_decoded = by_bytes is None and (bool(wildcards) or escape in pattern)
    if is_decoded:  # text starts with this character where it is malformed
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
    """Return `value` as text, malformed sequences replaced as Java does."""
    # Python reads half of a surrogate pair as one malformed sequence a byte, Java as one.
    return _SURROGATE.sub(b"\xff", value).decode(errors="replace")


_WILD = {"_": ".", "%": ".*"}
_PLAIN = re.compile(
    "(?P<first>[^_%]+)%(?P<last>[^_%]+)?|%(?P<end>[^_%]+)|%(?P<within>[^_%]+)%|[^_%]*"
)
"""Patterns that Spark's optimizer replaces, unless the escape character stands in them."""
_RUN = re.compile("%+")
"""The optimizer takes several of them for one."""
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_SKIPPED = re.compile(rb"[\xc2-\xdf].?|[\xe0-\xef].{0,2}|[\xf0-\xf4].{0,3}|.", re.DOTALL)
"""What Spark counts as one character: the first byte says how many follow, whatever they are."""


def _byte_pattern(plain: re.Match[str]) -> BytePattern:
    first, last, end, within = (plain[name] for name in ("first", "last", "end", "within"))
    return BytePattern(
        first=(first or "").encode(),
        within=(within or "").encode(),
        last=(last or end or "").encode(),
        char_count=len(first) + len(last) if first and last else 0,
    )


def _char_count(value: bytes) -> int:
    return sum(1 for _ in _SKIPPED.finditer(value))


def _pieces(pattern: str, escape: str) -> Iterator[tuple[str, bool]]:
    # One character at a time, and whether it is a wildcard.
    if len(escape) != 1:
        raise InvalidInputError("ESCAPE takes exactly one character", escape=escape)
    rest = iter(pattern)
    for char in rest:
        if char == escape:
            escaped = next(rest, "")
            if escaped not in {"_", "%", escape}:
                raise InvalidInputError(
                    "in a LIKE pattern the escape character stands before _, % or itself only; "
                    "double it, or choose another with ESCAPE",
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
