"""LIKE patterns: `_` is one character, `%` any number of them, line ends included."""

from __future__ import annotations

from collections.abc import Iterator

from fuse_stream.errors import InvalidInputError

MAX_PATTERN_LENGTH = 4096
"""Characters; RE2 refuses much longer ones, in words that help nobody."""


def translate_like(pattern: str, escape: str) -> tuple[str, str, bool]:
    """Return the RE2 expression of a pattern, the text before its first wildcard, and whether any.

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
    return rf"(?s)\A{body}\z", prefix, bool(wildcards)


def literal_pattern(text: str) -> str:
    """Return the pattern, with the usual escape, that matches `text` and nothing else."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


_WILD = {"_": ".", "%": ".*"}


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
