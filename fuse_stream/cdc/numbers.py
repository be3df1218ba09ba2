"""Numbers from the texts of events: nothing is rounded, cut off or guessed.

A text that is no number of the type is refused with `ValueError`.
"""

from __future__ import annotations

import math
import re
import struct
from decimal import Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow

from fuse_stream.cdc.binary import from_base64
from fuse_stream.predicate.times import BLANK

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,6})?", re.ASCII)
_NO_FINITE = re.compile(r"[+-]?inf(?:inity)?|nan", re.IGNORECASE)
_EXPONENT = re.compile("[eE]")
_SIGNS = str.maketrans("", "", "+-.")
_EXACT_DIGITS = 15
"""A double has this many decimal digits; a number with an exponent and more may be rounded."""
_MOST_BYTES = 16
"""Of the greatest integer that a decimal may hold."""
_MAX_SCALE = 76
_LONG_DIGITS = 20


def integer_of(text: str, least: int, greatest: int) -> int:
    """Return an integer in a range; a fraction of zeros is none."""
    digits = text.removeprefix("-")
    is_plain = digits.isdecimal() and len(digits) < _LONG_DIGITS and digits.isascii()
    number = int(text) if is_plain else int(decimal_of(text, 38, 0))
    if not least <= number <= greatest:
        raise ValueError("the number is too great")
    return number


def float_of(text: str, *, is_single: bool) -> float:
    """Return a double, or a number that a float may hold; beyond the type is no infinity."""
    text = text.strip(BLANK)
    if _NO_FINITE.fullmatch(text):
        return float(text)
    if not _NUMBER.fullmatch(text):
        raise ValueError("this is no number")
    number = float(text)
    if is_single:
        # Raises OverflowError, too.
        (number,) = struct.unpack("f", struct.pack("f", number))
    if math.isinf(number):
        raise ValueError("the number is too great")
    return number


def decimal_of(text: str, precision: int, scale: int) -> Decimal:
    """Return a decimal of a precision and a scale that has just the digits of a text."""
    text = text.strip(BLANK)
    if not _NUMBER.fullmatch(text):
        raise ValueError("this is no number")
    mantissa, *exponent = _EXPONENT.split(text)
    if exponent and len(mantissa.translate(_SIGNS)) > _EXACT_DIGITS:
        raise ValueError("the number may be rounded")
    context = Context(prec=precision, traps=[Inexact, InvalidOperation, Overflow, DivisionByZero])
    return context.quantize(Decimal(text), Decimal((0, (1,), -scale)))


def scaled_text(encoded: str, scale: int) -> str:
    """Return the decimal of an unscaled integer in base64 as text.

    The bytes are big-endian, in two's complement (`java.math.BigInteger.toByteArray`).
    """
    unscaled = from_base64(encoded)
    if not 1 <= len(unscaled) <= _MOST_BYTES or abs(scale) > _MAX_SCALE:
        raise ValueError("this is no decimal in bytes")
    number = int.from_bytes(unscaled, "big", signed=True)
    digits = tuple(map(int, str(abs(number))))
    return format(Decimal((int(number < 0), digits, -scale)), "f")
