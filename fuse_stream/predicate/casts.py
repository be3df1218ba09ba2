"""Casts of literals, as Spark in ANSI mode does them: exact or rounded by its rules, or an error.

What comes out stands in the domain of bounds: see `bound`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

import pyarrow as pa

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.records import Value
from fuse_stream.format.schema import decimal_of
from fuse_stream.predicate.times import (
    BLANK,
    DAY_US,
    read_date,
    read_timestamp,
    start_of_day,
)
from fuse_stream.predicate.times import to_instant as instant_of
from fuse_stream.predicate.tree import Literal, LiteralValue

INTEGRAL_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
MAX_PRECISION = 38

_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)
_SPECIAL = re.compile(r"nan|[+-]?inf(inity)?", re.IGNORECASE)
_BOOLEANS = dict.fromkeys(("t", "true", "y", "yes", "1"), True) | dict.fromkeys(
    ("f", "false", "n", "no", "0"), False
)
_CONTEXT = Context(prec=100, rounding=ROUND_HALF_UP)


def decimal_type(value: Decimal) -> str:
    """Return the type of a decimal literal: the digits that it is written with.

    Raises:
        InvalidInputError: it has more than 38.
    """
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or abs(exponent) > MAX_PRECISION:
        raise _too_many_digits(value)
    scale = max(-exponent, 0)
    precision = max(len(value.as_tuple().digits) + max(exponent, 0), scale)
    if value == 0:
        precision = max(scale, 1)
    if precision > MAX_PRECISION:
        raise _too_many_digits(value)
    return f"decimal({precision},{scale})"


def integral_type(value: int) -> str:
    """Return the type that SQL gives a whole number without a suffix."""
    for name in ("integer", "long"):
        if fits(value, name):
            return name
    return decimal_type(Decimal(value))


def fits(value: int, type_name: str) -> bool:
    """Whether an integral type holds `value`."""
    half = 1 << (INTEGRAL_BITS[type_name] - 1)
    return -half <= value < half


def cast_literal(literal: Literal, type_name: str, zone: tzinfo) -> Value:
    """Return the value of a literal that is not null as one of `type_name`.

    Raises:
        InvalidInputError: the value is malformed or out of range, or there is no such cast here.
    """
    value = literal.value
    if literal.type == "string" or isinstance(value, str):
        return _from_text(str(value), type_name, zone)
    if literal.type == type_name:
        return _known(value)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        if literal.type in {"date", "timestamp_ntz"}:
            return _from_local(int(value), literal.type, type_name, zone)
        if literal.type != "timestamp":
            return _from_number(value, type_name)
    raise _no_cast(literal.type, type_name)


def _from_number(value: float | Decimal, type_name: str) -> Value:
    if type_name == "double":
        return float(value)
    if type_name == "float":
        return _float32(str(value))
    exact = not isinstance(value, float)
    if decimal_of(type_name) and exact:
        return _to_decimal(Decimal(value), type_name)
    if type_name in INTEGRAL_BITS and isinstance(value, int):
        return _in_range(value, type_name)
    raise _no_cast("number", type_name)


def _from_local(value: int, from_type: str, type_name: str, zone: tzinfo) -> Value:
    if from_type == "date" and type_name == "timestamp":
        return start_of_day(value, zone)
    if from_type == "date" and type_name == "timestamp_ntz":
        return value * DAY_US
    if from_type == "timestamp_ntz" and type_name == "timestamp":
        return instant_of(value, zone)
    raise _no_cast(from_type, type_name)


def _from_text(text: str, type_name: str, zone: tzinfo) -> Value:
    if type_name == "timestamp":
        return read_timestamp(text, zone)
    if decimal_of(type_name):
        return _to_decimal(_number(text, type_name), type_name)
    if type_name in INTEGRAL_BITS:
        trimmed = text.strip(BLANK)
        if not _INTEGER.fullmatch(trimmed) or len(trimmed) > 100:
            raise _malformed(text, type_name)
        return _in_range(int(trimmed), type_name)
    if type_name not in _READERS:
        raise _no_cast("string", type_name)
    return _READERS[type_name](text)


def _boolean(text: str) -> bool:
    value = _BOOLEANS.get(text.strip(BLANK).lower())
    if value is None:
        raise _malformed(text, "boolean")
    return value


def _double(text: str) -> float:
    return float(_floating(text, "double"))


def _float32(text: str) -> float:
    trimmed = _floating(text, "float")
    if _SPECIAL.fullmatch(trimmed):
        return float(trimmed)
    # Through a double it would be rounded twice.
    return float(pa.scalar(trimmed.lstrip("+")).cast(pa.float32()).as_py())


def _floating(text: str, type_name: str) -> str:
    trimmed = text.strip(BLANK)
    if _SPECIAL.fullmatch(trimmed):
        return trimmed
    if trimmed[-1:] in {"d", "D", "f", "F"}:  # Java reads these
        trimmed = trimmed[:-1]
    if not _NUMBER.fullmatch(trimmed):
        raise _malformed(text, type_name)
    return trimmed


def _number(text: str, type_name: str) -> Decimal:
    trimmed = text.strip(BLANK)
    if not _NUMBER.fullmatch(trimmed):
        raise _malformed(text, type_name)
    return Decimal(trimmed)


def _to_decimal(value: Decimal, type_name: str) -> Decimal:
    precision, scale = decimal_of(type_name) or (0, 0)
    try:
        rounded = value.quantize(Decimal((0, (1,), -scale)), context=_CONTEXT)
    except InvalidOperation:
        raise _out_of_range(value, type_name) from None
    if len(rounded.as_tuple().digits) > precision and rounded != 0:
        raise _out_of_range(value, type_name)
    return rounded


def _in_range(value: int, type_name: str) -> int:
    if not fits(value, type_name):
        raise _out_of_range(value, type_name)
    return value


def _known(value: LiteralValue) -> Value:
    if value is None:
        raise InvalidInputError("a null has no value to compare with; use IS NULL")
    return value


def finite(value: float, text: str) -> float:
    """Return `value`, which the number `text` in SQL stands for.

    Raises:
        InvalidInputError: it overflowed.
    """
    if not math.isfinite(value):
        raise _out_of_range(text, "double")
    return value


_READERS: dict[str, Callable[[str], Value]] = {
    "boolean": _boolean,
    "float": _float32,
    "double": _double,
    "string": str,
    "binary": str.encode,
    "date": read_date,
    "timestamp_ntz": lambda text: read_timestamp(text, None),
}


def _malformed(text: str, type_name: str) -> InvalidInputError:
    return InvalidInputError(
        "the text cannot be read as the type that it is compared in; correct the literal",
        text=text[:100],
        type=type_name,
    )


def _out_of_range(value: object, type_name: str) -> InvalidInputError:
    return InvalidInputError(
        "the literal is out of the range of its type", value=str(value)[:100], type=type_name
    )


def _too_many_digits(value: Decimal) -> InvalidInputError:
    return InvalidInputError(
        "a decimal literal has at most 38 digits; write a double (1e40)", value=str(value)[:100]
    )


def _no_cast(from_type: str, type_name: str) -> InvalidInputError:
    return InvalidInputError(
        "this cast of a literal is not supported; write the literal in the type itself",
        literal=from_type,
        type=type_name,
    )
