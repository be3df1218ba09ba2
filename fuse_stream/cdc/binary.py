"""Bytes that messages have as text; a text that stands for none is refused with `ValueError`."""

from __future__ import annotations

import base64
import binascii

BASE64, HEX, LATIN_1 = "base64", "hex", "latin1"

_STANDARD = str.maketrans("-_", "+/")


def from_base64(text: str) -> bytes:
    """Return the bytes of base64, also in its variant for URLs."""
    return base64.b64decode(text.translate(_STANDARD), validate=True)


def from_hex(text: str) -> bytes:
    """Return the bytes of pairs of hexadecimal digits."""
    return binascii.unhexlify(text)


def from_latin_1(text: str) -> bytes:
    """Return the bytes of a text that has a character for each."""
    return text.encode("latin-1")
