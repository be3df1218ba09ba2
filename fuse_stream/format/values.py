"""Bounds as JSON. Exact, and told apart by the column's type alone.

`docs/format.md`, section "Bounds": decimals and 64-bit integers are strings, floats are exact with
"inf" and "-inf", binary is hex, dates are days and timestamps microseconds since 1970.
A widened column's old bounds read as its new type's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from functools import cache

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.records import Value
from fuse_stream.format.schema import decimal_of

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,37})(\.[0-9]{1,38})?")

Json = bool | int | float | str


def value_to_json(value: Value, type_name: str) -> Json:
    """Return the JSON form of a bound of a column of `type_name`."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if type_name == "long" else value


def value_from_json(item: object, type_name: str) -> Value:
    """Return the bound that `item` is the JSON form of.

    Raises:
        CorruptObjectError: `item` is no bound of that type.
    """
    try:
        return _reader_of(type_name)(item)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise CorruptObjectError(
            "this is not a bound of the column's type", type=type_name, value=str(item)[:100]
        ) from error


@cache
def _reader_of(type_name: str) -> Callable[[object], Value]:
    return _READERS["decimal" if decimal_of(type_name) else type_name]


def _boolean(item: object) -> bool:
    if not isinstance(item, bool):
        raise TypeError("not a boolean")
    return item


def _integer(item: object) -> int:
    if type(item) is not int and not isinstance(item, str):
        raise TypeError("not an integer")
    if isinstance(item, str) and not _INTEGER.fullmatch(item):
        raise ValueError("not spelt as an integer")
    number = int(item)
    if not -(2**63) <= number < 2**63:
        raise ValueError("not a 64-bit integer")
    return number


def _floating(item: object) -> float:
    if type(item) is float:
        return item
    if isinstance(item, bool) or not isinstance(item, int | float | str):
        raise TypeError("not a number")
    if isinstance(item, str) and item not in {"inf", "-inf"}:
        raise ValueError("not an infinity")  # JSON has no NaN, and no bound is one
    return float(item)


def _decimal(item: object) -> Decimal:
    text = _string(item)
    if not _DECIMAL.fullmatch(text):  # an exponent would unfold into any number of digits
        raise ValueError("not a decimal of up to 38 digits")
    return Decimal(text)


def _string(item: object) -> str:
    if not isinstance(item, str):
        raise TypeError("not a string")
    return item


def _binary(item: object) -> bytes:
    return bytes.fromhex(_string(item))


_READERS: dict[str, Callable[[object], Value]] = {
    "boolean": _boolean,
    "byte": _integer,
    "short": _integer,
    "integer": _integer,
    "long": _integer,
    "date": _integer,
    "timestamp": _integer,
    "timestamp_ntz": _integer,
    "float": _floating,
    "double": _floating,
    "decimal": _decimal,
    "string": _string,
    "binary": _binary,
}
