"""The states of aggregates: computed of rows, and merged. Pure.

A state holds what a result needs so that the states of blocks can be merged: of `avg` the sum and
the count, of `stddev` the count, the mean and the sum of squared differences from it.

Where Arrow is not Spark:
- Sums of Arrow wrap at 64 and at 128 bits. So long values are summed as decimals of 38 digits, and
  decimals as such of 76, which no number of rows can fill.
- 0.0 and -0.0, and all NaN, are one group. NaN is greater than all other values.
- Threads would add floating-point numbers in another order each time, so there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.format.schema import decimal_of
from fuse_stream.indexes.spec import (
    FLOATS,
    MOMENTS,
    Aggregate,
    BoundColumn,
    arrow_type,
)

# pyarrow has no type annotations: this name replaces one.
_Values: TypeAlias = Any

COUNT, SUM, LEAST, GREATEST, MEAN, SQUARES = "n", "s", "l", "g", "m", "q"
"""The kinds of states, which are the first letters of the names of their columns; the number of the
column of the result follows."""
KEY = "k"
"""The same for a column by which rows are grouped."""
ALL = "all"
"""The name of a constant column, by which rows are grouped where the statement has no GROUP BY."""

_KINDS = {
    "count": (COUNT,),
    "sum": (SUM,),
    "min": (LEAST,),
    "max": (GREATEST,),
    "avg": (SUM, COUNT),
    **dict.fromkeys(MOMENTS, (COUNT, MEAN, SQUARES)),
}
_LONG_SUM = pa.decimal128(38, 0)
_ROW, _GROUP = "row", "group"
_IF_ANY = pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """How Arrow computes some states of groups."""

    values: dict[str, _Values]
    """The columns that it needs, by names of their own."""
    functions: tuple[tuple[str, str, Any], ...]
    """For each: the column, Arrow's function, and its options."""
    take: Callable[[pa.Table], dict[str, _Values]]
    """Returns the states, by name, from a table of the groups."""


def state_schema(aggregate: Aggregate) -> pa.Schema:
    """Return the Arrow schema of the states of groups."""
    fields = [
        pa.field(f"{KEY}{at}", arrow_type(one.result))
        for at, one in enumerate(aggregate.columns)
        if one.is_key
    ]
    fields = fields or [pa.field(ALL, pa.bool_())]
    for at, one in _measures(aggregate):
        fields += [pa.field(f"{kind}{at}", _state_type(kind, one)) for kind in _kinds(one)]
    return pa.schema(fields)


def states_of_rows(aggregate: Aggregate, rows: pa.Table) -> pa.Table:
    """Return the states of rows, one row for each group; `rows` has the columns of `read`."""
    keys = {
        f"{KEY}{at}": _normal(rows.column(one.column.name), one.column.type)
        for at, one in enumerate(aggregate.columns)
        if one.is_key and one.column is not None
    }
    keys = keys or {ALL: pa.repeat(pa.scalar(value=True), len(rows))}
    steps = [
        _of_rows(at, one, None if one.column is None else rows.column(one.column.name), len(rows))
        for at, one in _measures(aggregate)
    ]
    return _computed(aggregate, keys, steps)


def states_of_count(aggregate: Aggregate, row_count: int) -> pa.Table:
    """Return the states of rows that an aggregate without columns counts."""
    states: dict[str, _Values] = {ALL: pa.array([True])}
    for at, _ in _measures(aggregate):
        states[f"{COUNT}{at}"] = pa.array([row_count], pa.int64())
    return pa.table(states, schema=state_schema(aggregate))


def merge_states(aggregate: Aggregate, parts: Iterable[pa.Table]) -> pa.Table:
    """Return the states of groups of which each part has some rows."""
    schema = state_schema(aggregate)
    table = pa.concat_tables([schema.empty_table(), *parts])
    names = key_names(aggregate)
    moments = [at for at, one in _measures(aggregate) if one.shown.function in MOMENTS]
    known: dict[str, _Values] = {}
    keys = {name: table.column(name) for name in names}
    if moments:
        table, group_of, known = _by_group(table, names)
        keys = {_GROUP: group_of}
        for at in moments:
            known |= _merged_moments(table, group_of, at)
    steps = [
        _merging(f"{kind}{at}", kind, one, table)
        for at, one in _measures(aggregate)
        if at not in moments
        for kind in _kinds(one)
    ]
    return _computed(aggregate, keys, steps, known)


def key_names(aggregate: Aggregate) -> list[str]:
    """Return the names of the columns of states by which they are grouped."""
    places = [f"{KEY}{at}" for at, one in enumerate(aggregate.columns) if one.is_key]
    return places or [ALL]


def _computed(
    aggregate: Aggregate,
    keys: dict[str, _Values],
    steps: Sequence[_Step],
    known: dict[str, _Values] | None = None,
) -> pa.Table:
    """Return the states of the groups of `keys`.

    With `known`, groups are numbered, and it has some columns in the order of the numbers.
    """
    columns, wanted = dict(keys), list[tuple[str, str, Any]]()
    for step in steps:
        columns |= step.values
        wanted += step.functions
    grouped = pa.table(columns).group_by([*keys], use_threads=False).aggregate(wanted)
    if known:
        grouped = grouped.sort_by(_GROUP)  # Arrow keeps no order of groups
    states = {name: grouped.column(name) for name in keys} | (known or {})
    for step in steps:
        states |= step.take(grouped)
    schema = state_schema(aggregate)
    return pa.table({field.name: states[field.name].cast(field.type) for field in schema}, schema)


def _measures(aggregate: Aggregate) -> list[tuple[int, BoundColumn]]:
    return [(at, one) for at, one in enumerate(aggregate.columns) if not one.is_key]


def _kinds(one: BoundColumn) -> tuple[str, ...]:
    return _KINDS[one.shown.function or ""]


def _state_type(kind: str, one: BoundColumn) -> pa.DataType:
    if kind == COUNT:
        return pa.int64()
    if kind in (MEAN, SQUARES):
        return pa.float64()
    if kind in (LEAST, GREATEST):
        return arrow_type(one.result)
    decimal = decimal_of(one.source_type)
    if decimal is not None:
        return pa.decimal256(76, decimal[1])
    return pa.float64() if one.source_type in FLOATS else _LONG_SUM


def _normal(values: _Values, type_name: str) -> _Values:
    """Return values of which those that Spark groups together are equal to Arrow."""
    if type_name not in FLOATS:
        return values
    nan = pa.scalar(float("nan"), values.type)
    return pc.if_else(pc.is_nan(values), nan, pc.add(values, pa.scalar(0.0, values.type)))


# ---- of rows


def _of_rows(at: int, one: BoundColumn, values: _Values | None, row_count: int) -> _Step:
    if values is None:  # count(*)
        return _summing(f"{COUNT}{at}", pa.repeat(pa.scalar(1, pa.int8()), row_count))
    function = one.shown.function
    if function in MOMENTS:
        # Not safe: a long value may have no exact double.
        return _first_moments(at, values.cast(pa.float64(), safe=False))
    steps = []
    for kind in _kinds(one):
        name = f"{kind}{at}"
        if kind == COUNT:
            steps.append(_summing(name, pc.cast(pc.is_valid(values), pa.int8())))
        elif kind == SUM:
            steps.append(_summing(name, values.cast(_state_type(kind, one))))
        else:
            steps.append(_extreme(name, kind, one, values))
    return _together(steps)


def _merging(name: str, kind: str, one: BoundColumn, states: pa.Table) -> _Step:
    values = states.column(name)
    return (
        _extreme(name, kind, one, values) if kind in (LEAST, GREATEST) else _summing(name, values)
    )


def _together(steps: Sequence[_Step]) -> _Step:
    def take(grouped: pa.Table) -> dict[str, _Values]:
        return {name: found for step in steps for name, found in step.take(grouped).items()}

    return _Step(
        values={name: values for step in steps for name, values in step.values.items()},
        functions=tuple(one for step in steps for one in step.functions),
        take=take,
    )


def _summing(name: str, values: _Values) -> _Step:
    return _Step(
        values={name: values},
        functions=((name, "sum", _IF_ANY),),
        take=lambda grouped: {name: grouped.column(f"{name}_sum")},
    )


def _extreme(name: str, kind: str, one: BoundColumn, values: _Values) -> _Step:
    function = "min" if kind == LEAST else "max"
    if one.source_type not in FLOATS:
        return _Step(
            values={name: values},
            functions=((name, function, _IF_ANY),),
            take=lambda grouped: {name: grouped.column(f"{name}_{function}")},
        )
    nan = pa.scalar(float("nan"), values.type)
    is_nan, flag = pc.fill_null(pc.is_nan(values), fill_value=False), f"{name}_nan"

    def take(grouped: pa.Table) -> dict[str, _Values]:
        number, has_nan = grouped.column(f"{name}_{function}"), grouped.column(f"{flag}_any")
        wins = pc.and_(has_nan, pc.is_null(number)) if kind == LEAST else has_nan
        return {name: pc.if_else(pc.fill_null(wins, fill_value=False), nan, number)}

    return _Step(
        values={name: pc.if_else(is_nan, pa.scalar(None, values.type), values), flag: is_nan},
        functions=((name, function, _IF_ANY), (flag, "any", _IF_ANY)),
        take=take,
    )


# ---- moments


def _first_moments(at: int, values: _Values) -> _Step:
    name = f"{MEAN}{at}"

    def take(grouped: pa.Table) -> dict[str, _Values]:
        count = grouped.column(f"{name}_count")
        variance = grouped.column(f"{name}_variance")
        return {
            f"{COUNT}{at}": count,
            f"{MEAN}{at}": pc.fill_null(grouped.column(f"{name}_mean"), 0.0),
            f"{SQUARES}{at}": pc.fill_null(pc.multiply(variance, count.cast(pa.float64())), 0.0),
        }

    return _Step(
        values={name: values},
        functions=(
            (name, "count", pc.CountOptions(mode="only_valid")),
            (name, "mean", _IF_ANY),
            (name, "variance", pc.VarianceOptions(ddof=0, skip_nulls=True, min_count=1)),
        ),
        take=take,
    )


def _by_group(table: pa.Table, keys: Sequence[str]) -> tuple[pa.Table, _Values, dict[str, _Values]]:
    """Return a table sorted by its groups, the numbers of these, and the keys by number."""
    rows = table.select([*keys]).append_column(_ROW, pa.array(range(len(table)), pa.int64()))
    grouped = rows.group_by([*keys], use_threads=False).aggregate([(_ROW, "list")])
    lists = grouped.column(f"{_ROW}_list").combine_chunks()
    by_number = {name: grouped.column(name) for name in keys}
    return table.take(pc.list_flatten(lists)), pc.list_parent_indices(lists), by_number


def _merged_moments(states: pa.Table, group_of: _Values, at: int) -> dict[str, _Values]:
    """Return the moments of groups; `states` are sorted by group."""
    count, mean, squares = (states.column(f"{kind}{at}") for kind in (COUNT, MEAN, SQUARES))
    weight = count.cast(pa.float64())
    is_empty = pc.equal(count, 0)
    sums = _summed(group_of, {COUNT: count, MEAN: _without(is_empty, pc.multiply(weight, mean))})
    total = sums.column(f"{COUNT}_sum")
    safe = pc.if_else(pc.equal(total, 0), 1, total).cast(pa.float64())
    means = pc.divide(sums.column(f"{MEAN}_sum"), safe)
    apart = pc.subtract(mean, pc.take(means, group_of))
    more = _without(is_empty, pc.multiply(weight, pc.multiply(apart, apart)))
    both = _summed(group_of, {SQUARES: pc.add(squares, more)})
    return {
        f"{COUNT}{at}": total,
        f"{MEAN}{at}": means,
        f"{SQUARES}{at}": both.column(f"{SQUARES}_sum"),
    }


def _without(is_empty: _Values, values: _Values) -> _Values:
    return pc.if_else(is_empty, 0.0, values)


def _summed(group_of: _Values, values: dict[str, _Values]) -> pa.Table:
    table = pa.table({_GROUP: group_of, **values})
    by = table.group_by([_GROUP], use_threads=False)
    return by.aggregate([(name, "sum", _IF_ANY) for name in values]).sort_by(_GROUP)
