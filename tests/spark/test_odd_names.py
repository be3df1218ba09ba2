"""Columns whose names SQL would misread: dots, backticks, blanks, and names that differ in case."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from fuse_stream.errors import InvalidInputError
from fuse_stream.spark.compact import compact
from fuse_stream.spark.format import register
from fuse_stream.spark.read import read
from fuse_stream.spark.sink import fuse_sink
from fuse_stream.spark.types import quoted
from fuse_stream.spark.write import write
from fuse_stream.table.handle import Table
from tests.spark.streams import deliver, read_stream, run

NAMES = ["a.b", "we`ird", "x y", "e\u0301", "`.`", "*", ".x y"]
CLUSTER_KEY = ["a.b", "we`ird"]


def odd(df: DataFrame) -> DataFrame:
    """Return ids under odd names, with the struct and the field that `a.b` may be confused with."""
    columns = [f"id + {place} AS {quoted(name)}" for place, name in enumerate(NAMES)]
    within = ", ".join(f"'{name}', id" for name in NAMES)
    return df.selectExpr(
        *columns, "named_struct('b', -id) AS a", f"named_struct({within}) AS `s.s`"
    )


def by_write(spark: SparkSession, folder: Path) -> None:
    for start in (0, 10):
        rows = odd(spark.range(start, start + 10, numPartitions=2))
        write(rows, str(folder / "table"), cluster_by=CLUSTER_KEY)


def by_format(spark: SparkSession, folder: Path) -> None:
    for start in (0, 10):
        writer = odd(spark.range(start, start + 10)).write.format("fuse").mode("append")
        writer.option("clusterBy", json.dumps(CLUSTER_KEY)).save(str(folder / "table"))


def by_sink(spark: SparkSession, folder: Path) -> None:
    # The first batch is written by tasks, the second one fetched.
    deliver(folder, range(2))
    sink = fuse_sink(str(folder / "table"), cluster_by=CLUSTER_KEY)
    run(odd(read_stream(spark, folder)), sink, folder / "checkpoint")


@pytest.mark.long
@pytest.mark.parametrize(
    "door",
    [*(pytest.param(door, marks=pytest.mark.long) for door in (by_write, by_format)), by_sink],
)
def test_odd_names_are_written_pruned_followed_and_compacted(
    spark: SparkSession, tmp_path: Path, door: Callable[[SparkSession, Path], None]
) -> None:
    register(spark)
    path = str(tmp_path / "table")

    door(spark, tmp_path)

    expected = odd(spark.range(20)).toArrow().to_pylist()
    where = "`a.b` >= 10 AND `we``ird` < 16 AND `s.s`.`a.b` <> 12 AND a.b <> -11"
    kept = [row for row in expected if row["a.b"] in {10, 13, 14}]
    table = Table.open(path)
    changes = (
        spark.read.format("fuse").option("feed", "append").option("startingVersion", 0).load(path)
    )
    by_python = spark.read.format("fuse").option("where", where)
    for frame, rows in (
        (read(spark, path), expected),
        (read(spark, path, where=where), kept),
        (by_python.load(path), kept),
        (changes, expected),
    ):
        assert sorted(frame.toArrow().to_pylist(), key=lambda row: row["a.b"]) == rows
    chosen = read(spark, path, where=where, columns=["`.`", "a.b"])
    assert sorted(map(tuple, chosen.collect())) == [(14, 10), (17, 13), (18, 14)]
    assert len(read(spark, path, where=where).inputFiles()) == 1
    before = len(table.blocks())
    assert compact(spark, path).blocks_before == before
    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["a.b"]) == expected


@pytest.mark.long
def test_a_stream_copies_odd_names_from_table_to_table(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    by_write(spark, tmp_path)
    source = spark.readStream.format("fuse").option("feed", "append")
    frame = source.option("where", "`a.b` < 15").load(str(tmp_path / "table"))

    run(frame, fuse_sink(str(tmp_path / "copy")), tmp_path / "checkpoint")

    rows = Table.open(tmp_path / "copy").to_arrow().sort_by("a.b").to_pylist()
    assert rows == odd(spark.range(15)).toArrow().to_pylist()


# ---- case


@pytest.fixture
def case_sensitive(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    session.conf.set("spark.sql.caseSensitive", "TRUE")  # Spark takes any case
    register(session)
    return session


def add_by_write(spark: SparkSession, folder: Path) -> None:
    rows = spark.range(10, 20).selectExpr("id AS a", "-id AS A")
    write(rows, str(folder / "table"), merge_schema=True)


def add_by_format(spark: SparkSession, folder: Path) -> None:
    rows = spark.range(10, 20).selectExpr("id AS a", "-id AS A")
    options = {"mergeSchema": "true", "caseSensitive": "true"}
    rows.write.format("fuse").mode("append").options(**options).save(str(folder / "table"))


def add_by_sink(spark: SparkSession, folder: Path) -> None:
    deliver(folder, range(1))
    rows = read_stream(spark, folder).selectExpr("id + 10 AS a", "-10 - id AS A")
    run(rows, fuse_sink(str(folder / "table"), merge_schema=True), folder / "checkpoint")


@pytest.mark.long
@pytest.mark.parametrize("door", [add_by_write, add_by_format, add_by_sink])
def test_a_case_sensitive_session_adds_a_column_that_differs_in_case(
    spark: SparkSession,
    case_sensitive: SparkSession,
    tmp_path: Path,
    door: Callable[[SparkSession, Path], None],
) -> None:
    path = str(tmp_path / "table")
    write(case_sensitive.range(10).withColumnRenamed("id", "a"), path)

    door(case_sensitive, tmp_path)

    expected = [(a, None if a < 10 else -a) for a in range(20)]
    frame = read(case_sensitive, path)
    assert frame.columns == ["a", "A"]
    assert sorted(map(tuple, frame.collect())) == expected
    assert sorted(map(tuple, case_sensitive.read.format("fuse").load(path).collect())) == expected
    assert read(case_sensitive, path, where="A = -12").collect() == [(12, -12)]
    assert read(case_sensitive, path, where="a = 12", columns=["A"]).collect() == [(-12,)]
    with pytest.raises(InvalidInputError, match=r"set spark\.sql\.caseSensitive to true"):
        read(spark, path)
    with pytest.raises(InvalidInputError, match="ambiguous"):
        read(spark, path, where="a = 1", columns=["a"])
    assert read(spark, path, columns=["A"]).where("A < -18").collect() == [(-19,)]


def widen_by_write(spark: SparkSession, folder: Path) -> None:
    rows = spark.range(10, 20).selectExpr("id AS a", "id AS c")
    write(rows, str(folder / "table"), merge_schema=True)


def widen_by_format(spark: SparkSession, folder: Path) -> None:
    rows = spark.range(10, 20).selectExpr("id AS a", "id AS c")
    writer = rows.write.format("fuse").mode("append").option("mergeSchema", "true")
    writer.save(str(folder / "table"))


def widen_by_sink(spark: SparkSession, folder: Path) -> None:
    deliver(folder, range(1))
    rows = read_stream(spark, folder).selectExpr("id + 10 AS a", "id + 10 AS c")
    run(rows, fuse_sink(str(folder / "table"), merge_schema=True), folder / "checkpoint")


@pytest.mark.parametrize("door", [widen_by_write, widen_by_format, widen_by_sink])
def test_other_columns_can_be_added_beside_columns_that_differ_in_case(
    spark: SparkSession,
    case_sensitive: SparkSession,
    tmp_path: Path,
    door: Callable[[SparkSession, Path], None],
) -> None:
    register(spark)
    path = tmp_path / "table"
    write(case_sensitive.range(10).selectExpr("id AS a", "-id AS A"), str(path))

    door(spark, tmp_path)

    rows = Table.open(path).to_arrow().sort_by("a").to_pylist()
    assert rows[9:11] == [{"a": 9, "A": -9, "c": None}, {"a": 10, "A": None, "c": 10}]
    with pytest.raises(InvalidInputError, match="differ only in case"):
        write(spark.range(1).selectExpr("id AS a", "id AS C"), str(path), merge_schema=True)


def test_a_column_whose_name_means_all_columns_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.range(3).selectExpr("id AS `*`", "-id AS b")

    write(frame, str(tmp_path / "table"))

    assert read(spark, tmp_path / "table", where="`*` > 1").collect() == [(2, -2)]
