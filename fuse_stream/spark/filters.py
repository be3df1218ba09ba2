"""The filters that Spark pushes to a Python data source, as predicates."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal

from pyspark.sql import datasource

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.like import literal_pattern
from fuse_stream.format.literals import decimal_type, integral_type
from fuse_stream.format.predicate import (
    NULL,
    And,
    Column,
    Compare,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    NullSafeEqual,
    Op,
    Predicate,
)

_OPS: dict[type[datasource.Filter], Op] = {
    datasource.EqualTo: Op.EQ,
    datasource.GreaterThan: Op.GT,
    datasource.GreaterThanOrEqual: Op.GE,
    datasource.LessThan: Op.LT,
    datasource.LessThanOrEqual: Op.LE,
}
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a naive datetime is a TIMESTAMP_NTZ
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROSECOND = datetime.resolution


def predicate_from_filters(filters: Sequence[datasource.Filter]) -> Predicate | None:
    """Return the predicate that all of `filters` make together; None if none is understood.

    A filter that is not understood is left out: Spark applies every filter itself, so a looser
    predicate keeps too many rows and never too few.
    """
    known = [found for item in filters if (found := predicate_from_filter(item)) is not None]
    return And(operands=tuple(known)) if known else None


def predicate_from_filter(item: datasource.Filter) -> Predicate | None:
    """Return `item` as a predicate that means exactly the same; None if it is not understood."""
    match item:
        case datasource.Not(child=child):
            inner = predicate_from_filter(child)
            return None if inner is None else Not(operand=inner)
        case datasource.IsNull(attribute=path):
            return IsNull(column=Column(path=path))
        case datasource.IsNotNull(attribute=path):
            return Not(operand=IsNull(column=Column(path=path)))
        case datasource.In(attribute=path, value=values):
            literals = [_literal(value) for value in values]
            known = tuple(literal for literal in literals if literal is not None)
            whole = len(known) == len(literals)
            return In(column=Column(path=path), literals=known) if whole else None
        case datasource.StringStartsWith(attribute=path, value=text):
            return Like(column=Column(path=path), pattern=f"{literal_pattern(text)}%")
        case datasource.StringEndsWith(attribute=path, value=text):
            return Like(column=Column(path=path), pattern=f"%{literal_pattern(text)}")
        case datasource.StringContains(attribute=path, value=text):
            return Like(column=Column(path=path), pattern=f"%{literal_pattern(text)}%")
        case _:
            return _comparison(item)


def _comparison(item: datasource.Filter) -> Predicate | None:
    op = _OPS.get(type(item))
    if op is None and not isinstance(item, datasource.EqualNullSafe):
        return None
    literal = _literal(getattr(item, "value", _UNKNOWN))
    if literal is None:
        return None
    column = Column(path=getattr(item, "attribute", ()))
    if op is None:
        return NullSafeEqual(column=column, literal=literal)
    return Compare(column=column, op=op, literal=literal)


_UNKNOWN = object()


def _literal(value: object) -> Literal | None:
    # A datetime is a date too, and a boolean an integer: the narrow type stands first.
    match value:
        case None:
            return NULL
        case bool():
            return Literal(value=value, type="boolean")
        case int():
            return _number(value)
        case float():
            return Literal(value=value, type="double")
        case Decimal():
            return _number(value)
        case str():
            return Literal(value=value, type="string")
        case bytes() | bytearray():
            return Literal(value=bytes(value), type="binary")
        case datetime():
            return _time(value)
        case date():
            return Literal(value=value.toordinal() - _EPOCH_DAY, type="date")
        case _:
            return None


def _number(value: int | Decimal) -> Literal | None:
    try:
        type_name = integral_type(value) if isinstance(value, int) else decimal_type(value)
    except InvalidInputError:
        return None
    return Literal(value=value, type=type_name)


def _time(value: datetime) -> Literal:
    if value.tzinfo is None:
        return Literal(value=(value - _EPOCH) // _MICROSECOND, type="timestamp_ntz")
    instant = value.astimezone(UTC).replace(tzinfo=None)
    return Literal(value=(instant - _EPOCH) // _MICROSECOND, type="timestamp")
