"""Decimals that Kafka Connect writes as bytes: an unscaled integer in base64, and a scale."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql.functions import (
    concat,
    conv,
    greatest,
    left,
    length,
    lit,
    lpad,
    repeat,
    right,
    translate,
    try_add,
    try_multiply,
    try_subtract,
    try_to_binary,
    when,
)
from pyspark.sql.functions import hex as hexadecimal

from fuse_stream.spark.cdc.binding import let

_HALF, _WHOLE = 16, 32
"""Hexadecimal digits of a long, and of the greatest integer that a decimal may hold."""
_TWO_64, _ALL_ONES = "18446744073709551616", "18446744073709551615"
_MAX_SCALE = 76


def scaled_text(encoded: Column, scale: Column) -> Column:
    """Return the decimal of an unscaled integer in base64 as text; null if it is none.

    The bytes are big-endian, in two's complement (`java.math.BigInteger.toByteArray`).
    """
    digits = let(hexadecimal(try_to_binary(encoded, lit("base64"))), _integer_text)
    return when(
        scale.between(-_MAX_SCALE, _MAX_SCALE), let(digits, lambda known: _pointed(known, scale))
    )


def _integer_text(digits: Column) -> Column:
    is_negative = left(digits, lit(1)) >= "8"
    full = lpad(digits, lit(_WHOLE), when(is_negative, lit("F")).otherwise(lit("0")))
    # Of a negative number the other bits are one less than its size, which always fits.
    halves = [_unsigned(left(full, lit(_HALF))), _unsigned(right(full, lit(_HALF)))]
    all_ones = _wide(_ALL_ONES)
    high, low = (when(is_negative, all_ones - half).otherwise(half) for half in halves)
    size = try_add(try_multiply(high, _wide(_TWO_64)), low)
    value = when(is_negative, try_subtract(try_multiply(size, _wide("-1")), _wide("1"))).otherwise(
        size
    )
    return when(length(digits).between(1, _WHOLE), value.cast("string"))


def _wide(digits: str) -> Column:
    return lit(digits).cast("decimal(20,0)")


def _unsigned(digits: Column) -> Column:
    return conv(digits, 16, 10).try_cast("decimal(20,0)")


def _pointed(digits: Column, scale: Column) -> Column:
    """Return the digits of an integer with a point before the last `scale` of them."""
    sign = when(digits.startswith("-"), lit("-")).otherwise(lit(""))
    body = translate(digits, "-", "")
    zeros = when(body != "0", repeat(lit("0"), -scale)).otherwise(lit(""))
    padded = lpad(body, greatest(length(body), scale + 1), lit("0"))
    fraction = concat(left(padded, length(padded) - scale), lit("."), right(padded, scale))
    return concat(sign, when(scale <= 0, concat(body, zeros)).otherwise(fraction))
