r"""Search bytes and texts for the values that a predicate compares columns with.

Rules:
- A text or binary value is searched in the bytes of every object, a number only in texts: its few
  bytes occur by chance. Shorter values than `LEAST` are not searched in bytes for the same reason.
- In a text a value counts only as a whole word: `Ada` is not in `Adam`. In the bytes of blocks,
  which have no words, it counts wherever it is.
- In a text each character may be as JSON escapes it: `Zo\u00eb` is Zoë.
- In a JSON record, only values count, and the names of properties: the names of fields are fixed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.jsonio import load_json
from fuse_stream.format.records import Value

LEAST = 3
"""Characters or bytes of the shortest value that is searched in bytes."""
LEAST_DIGITS = 6
"""Digits of the shortest number that is searched in texts."""

_USERS_KEYS = "properties"
"""The field of a record whose keys are a user's."""
_WORD = rb"[0-9A-Za-z_]"
_SHORT = dict(zip('"\\/\b\f\n\r\t', (b'"', b"\\", b"/", b"b", b"f", b"n", b"r", b"t"), strict=True))
"""What stands after a backslash in JSON for a character that has a short escape."""


Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A value with which the predicate compares a column by `=` or `IN`."""

    path: Path
    """The column's."""
    value: Value
    """As in `ColumnStats`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needle:
    """A value, as it may be in bytes."""

    value: Value
    raw: bytes | None
    """Its bytes in Parquet and in UTF-8; None for a number."""
    text: re.Pattern[bytes] | None
    """Finds it in a text, escaped or not; None for bytes that are no text."""

    @property
    def shown(self) -> str:
        """The value, for people."""
        return repr(self.value)


def needles_of(given: tuple[Given, ...]) -> tuple[Needle, ...]:
    """Return what to search for in bytes, each value once."""
    found: dict[str, Needle] = {}
    for item in given:
        needle = needle_of(item.value)
        if needle is not None:
            found.setdefault(needle.shown, needle)
    return tuple(found.values())


def needle_of(value: Value) -> Needle | None:
    """Return what to search for in bytes; None for a value that is too short."""
    if isinstance(value, bytes):
        return Needle(value=value, raw=value, text=None) if len(value) >= LEAST else None
    if isinstance(value, str):
        raw = value.encode(errors="surrogatepass")
        if len(raw) < LEAST:
            return None
        return Needle(value=value, raw=raw, text=_as_word(value))
    if type(value) is int and len(str(abs(value))) >= LEAST_DIGITS:
        return Needle(value=value, raw=None, text=_as_word(str(value)))
    return None


def _as_word(value: str) -> re.Pattern[bytes]:
    raw = value.encode(errors="surrogatepass")
    begins = rb"(?:(?<!%s)|(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{4}))" % _WORD  # or after an escape
    before = begins if re.match(_WORD, raw) else b""
    after = rb"(?!%s)" % _WORD if re.match(_WORD, raw[-1:]) else b""
    return re.compile(before + b"".join(map(_spelt, value)) + after)


def _spelt(char: str) -> bytes:
    """Return a pattern of a character: itself, or as JSON escapes it, in JSON within JSON too."""
    units = char.encode("utf-16-be", errors="surrogatepass").hex()
    escaped = b"".join(rb"\\+u" + units[at : at + 4].encode() for at in range(0, len(units), 4))
    forms = [re.escape(char.encode(errors="surrogatepass")), b"(?i:%s)" % escaped]
    if char in _SHORT:
        forms.append(rb"\\+" + re.escape(_SHORT[char]))
    return b"(?:%s)" % b"|".join(forms)


def in_bytes(needles: tuple[Needle, ...], data: bytes) -> list[Needle]:
    """Return the values that are in the bytes of an object, wherever they are."""
    return [needle for needle in needles if needle.raw is not None and needle.raw in data]


def in_text(needles: tuple[Needle, ...], data: bytes) -> list[Needle]:
    """Return the values that are words of a text."""
    return [
        needle
        for needle in needles
        if (needle.text is not None and needle.text.search(data))
        or (needle.text is None and needle.raw is not None and needle.raw in data)
    ]


def in_record(needles: tuple[Needle, ...], data: bytes) -> list[Needle]:
    """Return the values that a JSON record has; of bytes that are no JSON, those in the text."""
    try:
        record = load_json(data)
    except CorruptObjectError:
        return in_text(needles, data)
    texts = b"\n".join(
        text.encode(errors="surrogatepass") for text in _texts(record, is_named=False)
    )
    return in_text(needles, texts)


def _texts(item: Any, *, is_named: bool) -> Iterator[str]:
    """Yield the values in a JSON value, and its keys if a user named them."""
    if isinstance(item, dict):
        for key, value in item.items():
            if is_named:
                yield str(key)
            yield from _texts(value, is_named=key == _USERS_KEYS)
    elif isinstance(item, list):
        for value in item:
            yield from _texts(value, is_named=False)
    elif item is not None:
        yield str(item)
