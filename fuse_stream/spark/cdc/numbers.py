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
    try_to_binary,
    when,
)
from pyspark.sql.functions import hex as hexadecimal

from fuse_stream.spark.cdc.binding import let

_HALF, _WHOLE = 16, 32
"""Hexadecimal digits of a long, and of the greatest integer that a decimal may hold."""
_TWO_64 = "18446744073709551616"
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
    two_64, zero = (lit(text).cast("decimal(20,0)") for text in (_TWO_64, "0"))
    high = _unsigned(left(full, lit(_HALF))) - when(is_negative, two_64).otherwise(zero)
    value = try_add(try_multiply(high, two_64), _unsigned(right(full, lit(_HALF))))
    return when(length(digits).between(1, _WHOLE), value.cast("string"))


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
