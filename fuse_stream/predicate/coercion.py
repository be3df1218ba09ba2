"""The type in which Spark compares a column with literals, and what that says about the column.

Spark casts the column to the common type. Where that cast keeps order, the comparison becomes one
in the column's own domain, which bounds and blocks can answer exactly: "as a double, the long is
less than 2e18" is "the long is less than the first one that, as a double, is not".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from decimal import Decimal

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
from fuse_stream.predicate.casts import INTEGRAL_BITS, MAX_PRECISION
from fuse_stream.predicate.times import (
    DAY_US,
    skips_near,
    start_of_day,
    to_instant,
)
from fuse_stream.predicate.tree import Op

_INTEGRAL_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}
_ORDER = ("byte", "short", "integer", "long")
_BITS = INTEGRAL_BITS | {"date": 32, "timestamp": 64, "timestamp_ntz": 64}
_Image = Callable[[int], float | int]


def common_type(types: Sequence[str]) -> str | None:
    """Return the type that Spark compares values of `types` in; None if it refuses to."""
    # Spark takes the strings first: with a date and a time they are read as times.
    ordered = sorted(types, key=lambda name: name != "string")
    common: str | None = "null"
    for name in ordered:
        common = common and _wider(common, name)
    return common


def digits_of(type_name: str) -> tuple[int, int] | None:
    """Return precision and scale of an exact number's type, None for another type."""
    if type_name in _INTEGRAL_DIGITS:
        return _INTEGRAL_DIGITS[type_name], 0
    return decimal_of(type_name)


def compare_as(column: BoundColumn, op: Op, value: Value, type_name: str, zone: tzinfo) -> Bound:
    """Return the predicate `CAST(column AS type_name) op value`, in the column's own domain.

    Raises:
        InvalidInputError: the cast does not keep order, so no bounds could answer.
    """
    if column.type == "string" and type_name == "binary" and isinstance(value, bytes):
        return BoundCompare(column=column, op=op, value=_text(value, column))
    if column.type in _BITS or decimal_of(column.type):
        image, key = _image(column, value, type_name, zone)
        return _thresholds(column, image, key).bound(op)
    if column.type == type_name or (column.type, type_name) == ("float", "double"):
        return BoundCompare(column=column, op=op, value=value)
    raise InvalidInputError(
        "Spark would cast every value of the column to compare it, and fail at the first that is "
        "malformed; write the literal in the column's type",
        column=".".join(column.path),
        type=column.type,
        compared_as=type_name,
    )


def compare_any(
    column: BoundColumn,
    values: Sequence[Value],
    type_name: str,
    zone: tzinfo,
    *,
    with_null: bool,
) -> Bound:
    """Return `CAST(column AS type_name) IN (values)`, with a null among them if `with_null`.

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
    """Return what Spark answers for every row, null or not; None if it looks at the rows.

    It answers `whole < 9223372036854775808` while it plans, and so for nulls too. To call these
    null would lose rows that Spark's WHERE keeps.
    """
    if op is Op.EQ or column.type not in INTEGRAL_BITS or not isinstance(value, Decimal):
        return None
    if -(2**63) <= value < 2**63:
        return None
    return (value > 0) == (op in {Op.LT, Op.LE})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Thresholds:
    """Where a comparison's answer changes, in the column's domain as integers."""

    column: BoundColumn
    low: int
    high: int
    """The column's least and greatest value."""
    at: int
    """The first whose image is at least the compared value; `high + 1` if none is."""
    above: int
    """The first whose image is greater."""

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
        return unscaled_to_decimal(item, digits[1]) if digits else item


def unscaled_to_decimal(unscaled: int, scale: int) -> Decimal:
    """Return `unscaled` / 10^scale, whatever the context's precision."""
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _unscaled(value: Decimal, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    power: int = 10 ** (scale + int(exponent))
    number: int = int("".join(map(str, digits))) * power
    return -number if sign else number


def _thresholds(column: BoundColumn, image: _Image, key: float) -> _Thresholds:
    low, high = _limits(column.type)
    # No image is at least NaN, which is right: it is greater than everything.
    return _Thresholds(
        column=column,
        low=low,
        high=high,
        at=_first(lambda item: image(item) >= key, low, high),
        above=_first(lambda item: image(item) > key, low, high),
    )


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    # Not `bisect`: it cannot search a range longer than a C integer.
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
        return lambda item: _rescaled(item, shift), _unscaled(value, target[1])
    if digits and type_name == "double" and isinstance(value, float):
        power = 10 ** digits[1]
        return lambda item: item / power, value  # of integers, so rounded once, as Java does
    if column.type == type_name or (digits and type_name in _ORDER):
        return lambda item: item, int(value)
    if column.type == "date" and type_name == "timestamp":
        return lambda item: start_of_day(item, zone), int(value)
    if column.type == "date" and type_name == "timestamp_ntz":
        return lambda item: item * DAY_US, int(value)
    if column.type == "timestamp_ntz" and type_name == "timestamp":
        if skips_near(int(value), zone):
            raise InvalidInputError(
                "the clocks of the time zone skip an hour near this time, so it has no place among "
                "local times; compare the column with a TIMESTAMP_NTZ literal",
                column=".".join(column.path),
                zone=str(zone),
            )
        return lambda item: to_instant(item, zone), int(value)
    raise InvalidInputError(
        "the column cannot be compared in this type; write the literal in the column's type",
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
            "text is compared with bytes that are no text; write a string literal",
            column=".".join(column.path),
        ) from error


def _wider(left: str, right: str) -> str | None:
    if right in {left, "null"}:
        return left
    if left == "null":
        return right
    if "string" in {left, right}:
        return _wider_than_string(right if left == "string" else left)
    if {left, right} <= {"date", "timestamp", "timestamp_ntz"}:
        return "timestamp" if "timestamp" in {left, right} else "timestamp_ntz"
    if left in _ORDER and right in _ORDER:
        return max(left, right, key=_ORDER.index)
    first, second = digits_of(left), digits_of(right)
    if first and second:
        return _wider_decimal(first, second)
    numbers = all(digits_of(name) or name in {"float", "double"} for name in (left, right))
    return "double" if numbers else None


def _wider_than_string(other: str) -> str:
    if other in _ORDER:
        return "long"
    return "double" if other == "float" or decimal_of(other) else other


def _wider_decimal(first: tuple[int, int], second: tuple[int, int]) -> str:
    scale = max(first[1], second[1])
    whole = max(first[0] - first[1], second[0] - second[1])
    if whole + scale > MAX_PRECISION:  # digits after the point go first
        return f"decimal({MAX_PRECISION},{MAX_PRECISION - whole})"
    return f"decimal({whole + scale},{scale})"
