"""Casts as in Spark's ANSI mode: of literals, and of columns that are compared with literals.

A literal is cast exactly or rounded by Spark's rules, or the cast is an error; the value has the
form of a bound (see `bound`). Spark casts a column to the common type of column and literals. If
that cast keeps order, the comparison is rewritten for the column's own type, where bounds and
blocks give an exact result: `CAST(long AS DOUBLE) < 2e18` becomes `long < x`, where x is the
smallest long whose cast is not less than 2e18.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

import pyarrow as pa

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.records import Value
from fuse_stream.format.schema import decimal_of
from fuse_stream.predicate.bound import (
    Bound,
    BoundAnd,
    BoundColumn,
    BoundCompare,
    BoundConstant,
    BoundNot,
    BoundOneOf,
    BoundOr,
)
from fuse_stream.predicate.times import (
    BLANK,
    DAY_US,
    read_date,
    read_timestamp,
    skips_near,
    start_of_day,
    to_instant,
)
from fuse_stream.predicate.tree import Literal, Op

_INTEGRAL_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_MAX_PRECISION = 38

_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)
_SPECIAL = re.compile(r"nan|[+-]?inf(inity)?", re.IGNORECASE)
_BOOLEANS = dict.fromkeys(("t", "true", "y", "yes", "1"), True) | dict.fromkeys(
    ("f", "false", "n", "no", "0"), False
)
_CONTEXT = Context(prec=100, rounding=ROUND_HALF_UP)

_INTEGRAL_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}
_ORDER = tuple(_INTEGRAL_DIGITS)
_BITS = _INTEGRAL_BITS | {"date": 32, "timestamp": 64, "timestamp_ntz": 64}
_Image = Callable[[int], float | int]


def decimal_type(value: Decimal) -> str:
    """Return the type of a decimal literal; its precision is the number of written digits.

    Raises:
        InvalidInputError: the literal has more than 38 digits.
    """
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or abs(exponent) > _MAX_PRECISION:
        raise _too_many_digits(value)
    scale = max(-exponent, 0)
    precision = max(len(value.as_tuple().digits) + max(exponent, 0), scale)
    if value == 0:
        precision = max(scale, 1)
    if precision > _MAX_PRECISION:
        raise _too_many_digits(value)
    return f"decimal({precision},{scale})"


def integral_type(value: int) -> str:
    """Return the SQL type of an integer literal without a suffix."""
    for name in ("integer", "long"):
        if fits(value, name):
            return name
    return decimal_type(Decimal(value))


def fits(value: int, type_name: str) -> bool:
    """True if the integral type has the value."""
    low, high = _limits(type_name)
    return low <= value <= high


def cast_literal(literal: Literal, type_name: str, zone: tzinfo) -> Value:
    """Return the value of a non-null literal cast to `type_name`.

    Raises:
        InvalidInputError: the value is malformed or out of range, or the cast is not supported.
    """
    value = literal.value
    if literal.type == "string" or isinstance(value, str):
        return _from_text(str(value), type_name, zone)
    if literal.type == type_name:
        if value is None:
            raise InvalidInputError("a null cannot be compared; use IS NULL")
        return value
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
    if type_name in _INTEGRAL_BITS and isinstance(value, int):
        return _in_range(value, type_name)
    raise _no_cast("number", type_name)


def _from_local(value: int, from_type: str, type_name: str, zone: tzinfo) -> Value:
    if from_type == "date" and type_name == "timestamp":
        return start_of_day(value, zone)
    if from_type == "date" and type_name == "timestamp_ntz":
        return value * DAY_US
    if from_type == "timestamp_ntz" and type_name == "timestamp":
        return to_instant(value, zone)
    raise _no_cast(from_type, type_name)


def _from_text(text: str, type_name: str, zone: tzinfo) -> Value:
    if type_name == "timestamp":
        return read_timestamp(text, zone)
    if decimal_of(type_name):
        return _to_decimal(_number(text, type_name), type_name)
    if type_name in _INTEGRAL_BITS:
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


def _float32(text: str) -> float:
    trimmed = _floating(text, "float")
    if _SPECIAL.fullmatch(trimmed):
        return float(trimmed)
    # Not through a double, which would round twice.
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


def finite(value: float, text: str) -> float:
    """Return `value`, the double of the SQL number `text`.

    Raises:
        InvalidInputError: the number is too large for a double.
    """
    if not math.isfinite(value):
        raise _out_of_range(text, "double")
    return value


_READERS: dict[str, Callable[[str], Value]] = {
    "boolean": _boolean,
    "float": _float32,
    "double": lambda text: float(_floating(text, "double")),
    "string": str,
    "binary": str.encode,
    "date": read_date,
    "timestamp_ntz": lambda text: read_timestamp(text, None),
}


def _malformed(text: str, type_name: str) -> InvalidInputError:
    return InvalidInputError(
        "the text cannot be cast to the type of the comparison; correct the literal",
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
        "this cast of a literal is not supported; write the literal in the type of the column",
        literal=from_type,
        type=type_name,
    )


def common_type(types: Sequence[str]) -> str | None:
    """Return the type in which Spark compares values of `types`; None if it refuses to."""
    # Spark handles strings first: with a date and a timestamp they are cast to timestamps.
    ordered = sorted(types, key=lambda name: name != "string")
    common: str | None = "null"
    for name in ordered:
        common = common and _wider(common, name)
    return common


def digits_of(type_name: str) -> tuple[int, int] | None:
    """Return precision and scale of an integral or decimal type; None for another type."""
    if type_name in _INTEGRAL_DIGITS:
        return _INTEGRAL_DIGITS[type_name], 0
    return decimal_of(type_name)


def compare_as(column: BoundColumn, op: Op, value: Value, type_name: str, zone: tzinfo) -> Bound:
    """Return `CAST(column AS type_name) op value` as a predicate without a cast.

    Raises:
        InvalidInputError: the cast does not keep order, so bounds cannot answer it.
    """
    if column.type == "string" and type_name == "binary" and isinstance(value, bytes):
        return BoundCompare(column=column, op=op, value=_text(value, column))
    if column.type in _BITS or decimal_of(column.type):
        image, key = _image(column, value, type_name, zone)
        return _thresholds(column, image, key).bound(op)
    if column.type == type_name or (column.type, type_name) == ("float", "double"):
        return BoundCompare(column=column, op=op, value=value)
    raise InvalidInputError(
        "Spark would cast every value of the column for this comparison, and fail at the first "
        "malformed one; write the literal in the column's type",
        column=".".join(column.path),
        type=column.type,
        compared_as=type_name,
    )


def compare_any(
    column: BoundColumn, values: Sequence[Value], type_name: str, zone: tzinfo, *, with_null: bool
) -> Bound:
    """Return `CAST(column AS type_name) IN (values)` as a predicate without a cast.

    With `with_null` the list has a null too.

    Raises:
        InvalidInputError: as `compare_as`.
    """
    same: list[Value] = []
    others: list[Bound] = []
    for value in values:
        bound = compare_as(column, Op.EQ, value, type_name, zone)
        if isinstance(bound, BoundCompare):
            same.append(bound.value)
        else:
            others.append(bound)
    one_of = BoundOneOf(column=column, values=tuple(dict.fromkeys(same)))
    nulls = [BoundConstant(value=None)] if with_null else []
    return BoundOr(operands=(one_of, *others, *nulls)) if others or nulls else one_of


def beyond_longs(column: BoundColumn, op: Op, value: object) -> bool | None:
    """Return Spark's result for all rows, nulls included; None if it depends on the row.

    Spark evaluates `integral < 9223372036854775808` at planning time, so the result is true for
    null rows too. A result of null would lose rows that Spark's WHERE keeps.
    """
    if op is Op.EQ or column.type not in _INTEGRAL_BITS or not isinstance(value, Decimal):
        return None
    if -(2**63) <= value < 2**63:
        return None
    return (value > 0) == (op in {Op.LT, Op.LE})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Thresholds:
    """The values at which a comparison's result changes; the image of a value is its cast."""

    column: BoundColumn
    low: int
    high: int
    """The column's least and greatest value."""
    at: int
    """The first value whose image is at least the literal; `high + 1` if there is none."""
    above: int
    """The first value whose image is greater than the literal; `high + 1` if there is none."""

    def bound(self, op: Op) -> Bound:
        if op is Op.EQ:
            if self.above == self.at + 1:
                return BoundCompare(column=self.column, op=Op.EQ, value=self._value(self.at))
            if self.above == self.at:
                return self._never()
            return BoundAnd(operands=(self._at_least(self.at), self._less(self.above)))
        if op in {Op.LT, Op.GE}:
            return self._less(self.at) if op is Op.LT else self._at_least(self.at)
        return self._less(self.above) if op is Op.LE else self._at_least(self.above)

    def _less(self, limit: int) -> Bound:
        if limit <= self.low:
            return self._never()
        if limit > self.high:
            return BoundNot(operand=self._never())
        return BoundCompare(column=self.column, op=Op.LT, value=self._value(limit))

    def _at_least(self, limit: int) -> Bound:
        if limit <= self.low:
            return BoundNot(operand=self._never())
        if limit > self.high:
            return self._never()
        return BoundCompare(column=self.column, op=Op.GE, value=self._value(limit))

    def _never(self) -> Bound:
        return BoundOneOf(column=self.column, values=())

    def _value(self, item: int) -> Value:
        digits = decimal_of(self.column.type)
        return _CONTEXT.scaleb(Decimal(item), -digits[1]) if digits else item


def _thresholds(column: BoundColumn, image: _Image, key: float) -> _Thresholds:
    low, high = _limits(column.type)
    # `image >= NaN` is always false, which is right: NaN is greater than every image.
    return _Thresholds(
        column=column,
        low=low,
        high=high,
        at=_first(lambda item: image(item) >= key, low, high),
        above=_first(lambda item: image(item) > key, low, high),
    )


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    # Not `bisect`: its range is limited to a C integer.
    end = high + 1
    while low < end:
        middle = (low + end) // 2
        if holds(middle):
            end = middle
        else:
            low = middle + 1
    return end


def _limits(type_name: str) -> tuple[int, int]:
    if digits := decimal_of(type_name):
        end: int = 10 ** digits[0]
        return 1 - end, end - 1
    half = 1 << (_BITS[type_name] - 1)
    return -half, half - 1


def _image(
    column: BoundColumn, value: Value, type_name: str, zone: tzinfo
) -> tuple[_Image, float | int]:
    digits = digits_of(column.type)
    target = decimal_of(type_name)
    if digits and target and isinstance(value, Decimal):
        shift = target[1] - digits[1]
        return lambda item: _rescaled(item, shift), int(_CONTEXT.scaleb(value, target[1]))
    if digits and type_name == "double" and isinstance(value, float):
        power = 10 ** digits[1]
        return lambda item: item / power, value  # a division of integers rounds once, as in Java
    if column.type == type_name or (digits and type_name in _ORDER):
        return lambda item: item, int(value)
    if column.type == "date" and type_name == "timestamp":
        return lambda item: start_of_day(item, zone), int(value)
    if column.type == "date" and type_name == "timestamp_ntz":
        return lambda item: item * DAY_US, int(value)
    if column.type == "timestamp_ntz" and type_name == "timestamp":
        if skips_near(int(value), zone):
            raise InvalidInputError(
                "the clocks of the time zone skip an hour near this time, so it has no exact local "
                "time; compare the column with a TIMESTAMP_NTZ literal",
                column=".".join(column.path),
                zone=str(zone),
            )
        return lambda item: to_instant(item, zone), int(value)
    raise InvalidInputError(
        "the column cannot be cast for this comparison; write the literal in the column's type",
        column=".".join(column.path),
        type=column.type,
        compared_as=type_name,
    )


def _rescaled(unscaled: int, shift: int) -> int:
    if shift >= 0:
        factor: int = 10**shift
        return unscaled * factor
    power: int = 10**-shift
    rounded = (abs(unscaled) + power // 2) // power  # half up, away from zero
    return -rounded if unscaled < 0 else rounded


def _text(value: bytes, column: BoundColumn) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            "a string column is compared with bytes that are not UTF-8; write a string literal",
            column=".".join(column.path),
        ) from error


def _wider(left: str, right: str) -> str | None:
    if right in {left, "null"}:
        return left
    if left == "null":
        return right
    if "string" in {left, right}:
        other = right if left == "string" else left
        if other in _ORDER:
            return "long"
        return "double" if other == "float" or decimal_of(other) else other
    if {left, right} <= {"date", "timestamp", "timestamp_ntz"}:
        return "timestamp" if "timestamp" in {left, right} else "timestamp_ntz"
    if left in _ORDER and right in _ORDER:
        return max(left, right, key=_ORDER.index)
    first, second = digits_of(left), digits_of(right)
    if first and second:
        return _wider_decimal(first, second)
    numbers = all(digits_of(name) or name in {"float", "double"} for name in (left, right))
    return "double" if numbers else None


def _wider_decimal(first: tuple[int, int], second: tuple[int, int]) -> str:
    scale = max(first[1], second[1])
    whole = max(first[0] - first[1], second[0] - second[1])
    if whole + scale > _MAX_PRECISION:  # reduce the scale
        return f"decimal({_MAX_PRECISION},{_MAX_PRECISION - whole})"
    return f"decimal({whole + scale},{scale})"
