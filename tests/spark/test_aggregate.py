"""An aggregate has the types and the values of Spark's own GROUP BY."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import DataFrame, SparkSession

import fuse_stream as fuse
from fuse_stream.errors import NumberOverflowError
from fuse_stream.indexes.sql import FUNCTIONS
from fuse_stream.spark.read import read
from fuse_stream.table.handle import Table
from tests.kit.strides import NIGHT

SCHEMA = pa.schema(
    [
        ("g", pa.float64()),
        ("h", pa.string()),
        ("b", pa.int8()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("c", pa.decimal128(9, 2)),
        ("w", pa.decimal128(36, 3)),
        ("t", pa.string()),
        ("y", pa.binary()),
        ("o", pa.bool_()),
        ("e", pa.date32()),
        ("u", pa.timestamp("us", "UTC")),
        ("n", pa.timestamp("us")),
    ]
)
NUMBERS = "bilfdcw"
OF_NUMBERS = ["sum", "avg", "stddev", "stddev_pop", "variance", "var_pop"]
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def random_rows(random: Random, count: int) -> pa.Table:
    nan = float("nan")
    values: dict[str, Any] = {
        "g": lambda: random.choice([0.0, -0.0, nan, 1.5]),
        "h": lambda: random.choice("ab"),
        "b": lambda: random.randint(-128, 127),
        "i": lambda: random.randint(-(2**31), 2**31 - 1),
        "l": lambda: random.randint(-(2**55), 2**55),
        "f": lambda: random.choice([0.0, -0.0, 0.1, 2.5, nan, -7.25, float("inf")]),
        "d": lambda: random.choice([0.0, -0.0, 0.1, 1e9, -3.5]),
        "c": lambda: Decimal(random.randint(-(10**8), 10**8)).scaleb(-2),
        "w": lambda: Decimal(random.randint(-(10**26), 10**26)).scaleb(-3),
        "t": lambda: random.choice(["", "ü", "z", "\U0001f600", "￿", "Z"]),
        "y": lambda: random.randbytes(random.randint(0, 3)),
        "o": lambda: random.random() < 0.5,
        "e": lambda: START.date() + dt.timedelta(days=random.randint(-40_000, 40_000)),
        "u": lambda: START + dt.timedelta(microseconds=random.randint(-(10**15), 10**15)),
        "n": lambda: START.replace(tzinfo=None) + dt.timedelta(seconds=random.randint(0, 10**9)),
    }
    columns = {
        name: [None if random.random() < 0.2 else make() for _ in range(count)]
        for name, make in values.items()
    }
    return pa.table(columns, schema=SCHEMA)


def items() -> list[str]:
    found = [f"{name}({column})" for name in OF_NUMBERS for column in NUMBERS]
    others = [
        f"{name}({column})" for name in ("min", "max", "count") for column in NUMBERS + "tyoeun"
    ]
    return [f"{item} AS c{at}" for at, item in enumerate([*found, *others])]


def by_spark(spark: SparkSession, rows: DataFrame, sql: str) -> DataFrame:
    rows.createOrReplaceTempView("rows_of_aggregate")
    return spark.sql(sql.replace("FROM t", "FROM rows_of_aggregate"))


def canonical(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return bytes(value) if isinstance(value, bytearray) else value


def assert_same(found: DataFrame, wanted: DataFrame, keys: int) -> None:
    assert [(f.name, f.dataType) for f in found.schema] == [
        (f.name, f.dataType) for f in wanted.schema
    ]
    by_key = [
        {
            tuple(map(canonical, row[:keys])): tuple(map(canonical, row[keys:]))
            for row in df.collect()
        }
        for df in (found, wanted)
    ]
    assert by_key[0].keys() == by_key[1].keys()
    for key, row in by_key[0].items():
        for name, one, other in zip(wanted.columns[keys:], row, by_key[1][key], strict=True):
            close = one == other
            if isinstance(one, float) and isinstance(other, float):
                close = math.isclose(one, other, rel_tol=1e-9)
            assert close, (key, name, one, other)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    random = Random(7)
    table = Table.create(tmp_path / "t", SCHEMA, properties={"fuse.block.rows": "400"})
    for count in (400, 400, 30):
        table.append(random_rows(random, count))
    return table


@pytest.mark.parametrize("keys", [("g", "h"), pytest.param(("o",), marks=NIGHT), ()])
def test_an_aggregate_equals_sparks_group_by(
    spark: SparkSession, table: Table, keys: tuple[str, ...]
) -> None:
    path, by = table.location.path, f" GROUP BY {', '.join(keys)}" if keys else ""
    # In two halves: an index has at most 100 columns.
    for number, some in enumerate((items()[:40], items()[40:])):
        sql = f"SELECT {', '.join([*keys, *some, 'count(*) AS n'])} FROM t{by}"
        table.create_aggregate(f"a{number}", sql)
        table.refresh_indexes()
        table.delete(f"i BETWEEN {number * 10**8} AND {(number + 1) * 10**8}")

        assert table.indexes()[number].covered_blocks <= 2
        for version in (None, 2):
            found = fuse.aggregate(spark, path, f"a{number}", version=version)
            wanted = by_spark(spark, read(spark, path, version=version), sql)
            assert_same(found, wanted, len(keys))


def test_names_without_as_and_overflow_are_sparks(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", pa.schema([("x", pa.int64())]))
    table.append(pa.table({"x": [2**62, 1]}))
    sql = f"SELECT count(*), {', '.join(f'{name}(x)' for name in FUNCTIONS)} FROM t"
    table.create_aggregate("all", sql)
    path = table.location.path
    wanted = by_spark(spark, read(spark, path), sql)
    assert_same(fuse.aggregate(spark, path, "all"), wanted, 0)
    table.append(pa.table({"x": [2**62]}))

    with pytest.raises(ArithmeticException, match="OVERFLOW"):
        by_spark(spark, read(spark, path), sql).collect()
    with pytest.raises(NumberOverflowError):
        fuse.aggregate(spark, path, "all")


def test_where_means_what_it_means_in_spark(spark: SparkSession, table: Table) -> None:
    sql = "SELECT g, h, count(*) AS n FROM t GROUP BY g, h"
    table.create_aggregate("a", sql)
    for where in ("g = 0.0D", "g > 1", "h IS NULL", "NOT (g < 1)", "h IN ('a') OR g IS NULL"):
        found = fuse.aggregate(spark, table.location.path, "a", where=where)
        wanted = by_spark(spark, read(spark, table.location.path), sql).where(where)
        assert_same(found, wanted, 2)
