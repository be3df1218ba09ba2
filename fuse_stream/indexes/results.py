"""Turn the states of an aggregate into its result, with Spark's types. Pure."""

from __future__ import annotations

from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.errors import NumberOverflowError
from fuse_stream.format.schema import decimal_of
from fuse_stream.indexes.spec import Aggregate, BoundColumn, arrow_type
from fuse_stream.indexes.states import (
    ALL,
    COUNT,
    GREATEST,
    KEY,
    LEAST,
    SQUARES,
    SUM,
    state_schema,
)

_Values: TypeAlias = Any

_DIVIDING = Context(prec=39, rounding=ROUND_DOWN)
"""Spark divides decimals so, and rounds the quotient half up."""
_ROUNDING = Context(prec=80, rounding=ROUND_HALF_UP)


def result_of(aggregate: Aggregate, states: pa.Table) -> pa.Table:
    """Return the result, one row for each group; without GROUP BY exactly one row.

    Raises:
        NumberOverflowError: a sum or an average does not fit its type.
    """
    if not aggregate.keys and not len(states):
        empty: dict[str, list[Any]] = {
            name: [0 if name.startswith(COUNT) else None] for name in state_schema(aggregate).names
        }
        states = pa.table({**empty, ALL: [True]}, schema=state_schema(aggregate))
    wanted = aggregate.result
    arrays = [
        states.column(f"{KEY}{at}") if one.is_key else _finished(one, at, states)
        for at, one in enumerate(aggregate.columns)
    ]
    cast = [found.cast(field.type) for found, field in zip(arrays, wanted, strict=True)]
    return pa.Table.from_arrays(cast, schema=wanted)


def keys_of(aggregate: Aggregate, states: pa.Table) -> pa.Table:
    """Return the groups of states, in the columns of `key_schema`."""
    places = [at for at, one in enumerate(aggregate.columns) if one.is_key]
    names = aggregate.key_schema.names()
    return pa.table(
        {name: states.column(f"{KEY}{at}") for name, at in zip(names, places, strict=True)}
    )


def _finished(one: BoundColumn, at: int, states: pa.Table) -> _Values:
    function = one.shown.function
    if function == "count":
        return pc.fill_null(states.column(f"{COUNT}{at}"), 0)
    if function in {"min", "max"}:
        return states.column(f"{LEAST if function == 'min' else GREATEST}{at}")
    if function == "sum":
        return _fitting(one, states.column(f"{SUM}{at}"))
    count = states.column(f"{COUNT}{at}")
    if function == "avg":
        return _average(one, states.column(f"{SUM}{at}"), count)
    is_sample = function in {"stddev_samp", "var_samp"}
    divisor = pc.subtract(count, 1 if is_sample else 0)
    is_known = pc.greater(divisor, 0)
    safe = pc.if_else(is_known, divisor, 1).cast(pa.float64())
    variance = pc.divide(states.column(f"{SQUARES}{at}"), safe)
    found = pc.sqrt(variance) if function in {"stddev_samp", "stddev_pop"} else variance
    return pc.if_else(is_known, found, pa.scalar(None, pa.float64()))


def _fitting(one: BoundColumn, sums: _Values) -> _Values:
    try:
        return sums.cast(arrow_type(one.result))
    except pa.ArrowInvalid as error:
        raise _overflow(one) from error


def _average(one: BoundColumn, sums: _Values, count: _Values) -> _Values:
    decimal = decimal_of(one.result.type)
    if decimal is not None:
        return _decimal_average(one, sums, count, decimal)
    safe = pc.if_else(pc.equal(count, 0), 1, count).cast(pa.float64())
    return pc.divide(sums.cast(pa.float64()), safe)


def _decimal_average(
    one: BoundColumn, sums: _Values, count: _Values, decimal: tuple[int, int]
) -> _Values:
    digits, scale = decimal
    unit, most = Decimal(1).scaleb(-scale), Decimal(10) ** (digits - scale)
    found: list[Decimal | None] = []
    for total, rows in zip(sums.to_pylist(), count.to_pylist(), strict=True):
        if total is None or not rows:
            found.append(None)
            continue
        quotient = _DIVIDING.divide(total, Decimal(rows))
        value = _ROUNDING.quantize(quotient, unit)
        if abs(value) >= most:
            raise _overflow(one)
        found.append(value)
    return pa.array(found, pa.decimal128(digits, scale))


def _overflow(one: BoundColumn) -> NumberOverflowError:
    return NumberOverflowError(
        "a sum or average is too large for its type, as Spark's ARITHMETIC_OVERFLOW: keep fewer "
        "rows with where, or widen the column",
        column=one.shown.name,
        type=one.result.type,
    )
