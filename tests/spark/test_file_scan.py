"""Scans of known files: their constants, and filters of these."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from fuse_stream.spark.jvm.bulk import MANY
from fuse_stream.spark.jvm.file_scan import (
    Constant,
    FileListing,
    ScannedFile,
    directories,
    scan_files,
)
from fuse_stream.spark.jvm.proxies import jvm_of

FILES = [("insert", 1, 10), ("insert", 1, 20), ("delete", 2, 30), ("ünïcode", -3, 40)]
"""For each file its constants, and the value in it."""


@pytest.fixture
def frame(spark: SparkSession, tmp_path: Path) -> DataFrame:
    files = []
    for at, (kind, version, value) in enumerate(FILES):
        path = tmp_path / f"{at} %{at}.parquet"
        pq.write_table(pa.table({"x": pa.array([value] * 3, pa.int64())}), path)
        constants = kind, version, version * 1_000_000
        file = ScannedFile(location=str(path), byte_count=path.stat().st_size, constants=constants)
        files.append(file)
    session = spark._jsparkSession  # noqa: SLF001 - no other way
    rows = scan_files(
        spark,
        session,
        FileListing(find=lambda _filters: files, byte_count=1000, identity=str(tmp_path)),
        fields=session.parseDataType(
            '{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}}]}'
        ),
        constants=[
            Constant(name="kind", type="string"),
            Constant(name="version", type="long"),
            Constant(name="at", type="timestamp"),
        ],
        options={},
    )
    return DataFrame(rows, spark)


def values(frame: DataFrame) -> list[int]:
    return sorted({row.x for row in frame.collect()})


def test_each_row_has_the_constants_of_its_file(frame: DataFrame) -> None:
    found = frame.selectExpr("kind", "version", "x", "unix_seconds(at) AS s").distinct().collect()

    assert sorted((row.kind, row.version, row.x) for row in found) == sorted(FILES)
    assert all(row.s == row.version for row in found)
    assert frame.count() == 12


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("kind = 'insert'", [10, 20]),
        ("kind <> 'insert' AND version = 2", [30]),
        ("version < 0 OR x = 20", [20, 40]),
        ("kind IN ('delete', 'ünïcode') AND x > 30", [40]),
        ("at > TIMESTAMP '1970-01-01 00:00:01Z'", [30]),
        ("version + x = 21", [20]),
        ("upper(kind) = 'DELETE'", [30]),
        ("kind IS NULL", []),
    ],
)
def test_filters_of_constants_hold(frame: DataFrame, where: str, expected: list[int]) -> None:
    assert values(frame.where(where)) == expected


def test_constants_are_grouped_and_joined(frame: DataFrame) -> None:
    kinds = {row.kind: row["count"] for row in frame.groupBy("kind").count().collect()}
    other = frame.select("version", frame.x.alias("y")).distinct()

    assert kinds == {"insert": 6, "delete": 3, "ünïcode": 3}
    assert values(frame.where("kind = 'delete'").join(other, "version")) == [30]


@pytest.mark.parametrize("width", [0, 3])
def test_many_partitions_are_those_that_are_made_one_by_one(
    spark: SparkSession, width: int
) -> None:
    runs = [
        [
            ScannedFile(
                location=f"/lake/{at}/{number}.parquet",
                byte_count=2**40 + number,
                constants=("x" * at, -at, at)[:width],
            )
            for number in range(1 + at % 3)
        ]
        for at in range(MANY)
    ]
    jvm = jvm_of(spark)

    together = [each.toString() for each in directories(jvm, runs)]

    assert together == [each.toString() for run in runs for each in directories(jvm, [run])]
    assert len(set(together)) == MANY


def test_without_files_there_is_no_partition(spark: SparkSession) -> None:
    assert list(directories(jvm_of(spark), [])) == []
