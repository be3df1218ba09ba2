"""Tables with an aggregate that covers blocks, and a plain model of its result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import pyarrow as pa

from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.tables import temporary_table

SCHEMA = pa.schema([("city", pa.string()), ("x", pa.int64())])
BLOCK_ROWS = 20
AGING = {"fuse.block.rows": str(BLOCK_ROWS), "fuse.grace": "0s", "fuse.vacuum.age": "1s"}
"""Properties of a table whose garbage goes after seconds."""
NAME = "by_city"
SQL = "SELECT city, count(*) AS n, sum(x) AS total, max(x) AS most FROM t GROUP BY city"


def city_rows(first: int, count: int = BLOCK_ROWS) -> pa.Table:
    """Return rows of two cities, with numbers from `first` on."""
    numbers = range(first, first + count)
    cities = ["Oslo" if number % 3 else "Rome" for number in numbers]
    return pa.table({"city": cities, "x": list(numbers)}, schema=SCHEMA)


def covered_table(
    store: Store | None = None, *, blocks: int = 3, properties: Mapping[str, str] | None = None
) -> Table:
    """Return a table whose blocks an aggregate covers."""
    given = {"fuse.block.rows": str(BLOCK_ROWS), **(properties or {})}
    table = temporary_table(SCHEMA, store=store or MemoryStore(), properties=given)
    for number in range(blocks):
        table.append(city_rows(number * BLOCK_ROWS))
    table.create_aggregate(NAME, SQL)
    assert table.refresh_indexes().block_count == blocks
    return table


def covered(table: Table) -> int:
    """Return how many blocks of the head its only index covers."""
    [state] = table.indexes()
    return state.covered_blocks


def by_city(rows: pa.Table) -> list[dict[str, Any]]:
    """Return what the aggregate of `covered_table` has to be, sorted."""
    found: dict[str, list[int]] = {}
    for row in rows.to_pylist():
        found.setdefault(row["city"], []).append(row["x"])
    return [
        {"city": city, "n": len(values), "total": sum(values), "most": max(values)}
        for city, values in sorted(found.items())
    ]


def answer(table: Table, **where: Any) -> list[dict[str, Any]]:
    """Return what the table says of it, sorted."""
    found = table.aggregate(NAME, **where).to_pylist()
    return sorted(found, key=lambda row: row["city"])


# ---- a model of all functions


def grouped(
    rows: Iterable[dict[str, Any]], keys: Sequence[str]
) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Return rows by their groups, as Spark groups them."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(group_of(row[key]) for key in keys), []).append(row)
    return found


def group_of(value: Any) -> Any:
    """Return what equals for all values of one group."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def expected(function: str, values: list[Any]) -> Any:
    """Return the result of a function of the values of a column, nulls included."""
    known = [value for value in values if value is not None]
    if function == "count":
        return len(known)
    if not known:
        return None
    if function in {"min", "max"}:
        return (min if function == "min" else max)(known, key=_rank)
    if function == "sum":
        return _float_sum(known) if isinstance(known[0], float) else _exact(sum, known)
    if function == "avg":
        return _average(known)
    numbers = [float(value) for value in known]
    if not all(map(math.isfinite, numbers)):
        is_sample = function in {"stddev", "variance", "var_samp"}
        return None if is_sample and len(numbers) == 1 else math.nan
    mean = math.fsum(numbers) / len(numbers)
    squares = math.fsum((number - mean) ** 2 for number in numbers)
    divisor = len(numbers) - (function in {"stddev", "variance", "var_samp"})
    if not divisor:
        return None
    variance = squares / divisor
    return math.sqrt(variance) if function.startswith("stddev") else variance


def _average(known: list[Any]) -> Any:
    if isinstance(known[0], Decimal):
        exponent = known[0].as_tuple().exponent
        assert isinstance(exponent, int)
        unit = Decimal(1).scaleb(exponent - 4)
        return _exact(lambda all_: (sum(all_) / len(all_)).quantize(unit, ROUND_HALF_UP), known)
    if isinstance(known[0], float):
        return _float_sum(known) / len(known)
    return sum(known) / len(known)


def _float_sum(values: list[float]) -> float:
    finite = all(map(math.isfinite, values))
    return math.fsum(values) if finite else float(sum(values))


def _exact(act: Callable[[list[Any]], Any], values: list[Any]) -> Any:
    with localcontext(prec=80):
        return act(values)


def _rank(value: Any) -> Any:
    return (math.isnan(value), value) if isinstance(value, float) else value


def is_close(one: Any, other: Any) -> bool:
    """True if two results are equal but for the rounding of floating-point numbers."""
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    return bool(one == other)
