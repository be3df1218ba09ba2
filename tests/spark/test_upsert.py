"""Upserts by Spark: `fuse.write` and the sink replace the rows that have the same keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit, raise_error

import fuse_stream as fuse
from fuse_stream.errors import AmbiguousMergeError, InvalidInputError, SchemaMismatchError
from fuse_stream.table.handle import Table


def rows(spark: SparkSession, start: int, end: int, value: int) -> DataFrame:
    return spark.range(start, end).withColumn("v", lit(value))


def held(path: Path, version: int | None = None) -> dict[int, int]:
    found = Table.open(path).to_arrow(version=version).to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["v"] for row in found}


def test_a_write_replaces_the_rows_that_have_its_keys(spark: SparkSession, tmp_path: Path) -> None:
    fuse.write(rows(spark, 0, 10, 1), tmp_path / "t", mode="upsert", keys=["id"])
    fuse.write(rows(spark, 5, 15, 2), tmp_path / "t", mode="upsert")

    assert held(tmp_path / "t") == {n: 1 if n < 5 else 2 for n in range(15)}
    assert held(tmp_path / "t", version=1) == dict.fromkeys(range(10), 1)


def test_a_numbered_upsert_is_repeated_safely(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    fuse.write(rows(spark, 0, 3, 1), path, mode="upsert", keys=["id"], app_id="a", batch_id=0)
    again = fuse.write(rows(spark, 0, 3, 1), path, mode="upsert", app_id="a", batch_id=0)

    assert again.replayed
    assert Table.open(path).head().version == 1


def test_rows_written_by_tasks_are_upserted_too(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    wide = rows(spark, 0, 4000, 1).repartition(4)
    fuse.write(wide, path, mode="upsert", keys=["id"])
    fuse.write(wide.where("id % 2 = 0").withColumn("v", lit(2)), path, mode="upsert")

    assert held(path) == {n: 2 - n % 2 for n in range(4000)}
    assert fuse.read(spark, str(path)).where("v = 2").count() == 2000


def test_two_rows_of_one_key_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    doubled = rows(spark, 0, 3, 1).unionAll(rows(spark, 2, 4, 2))

    with pytest.raises(AmbiguousMergeError) as caught:
        fuse.write(doubled, tmp_path / "t", mode="upsert", keys=["id"])

    assert caught.value.context["doubles"] == [2]
    assert Table.open(tmp_path / "t").head().version == 0


def test_keys_without_an_upsert_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="upsert"):
        fuse.write(rows(spark, 0, 1, 1), tmp_path / "t", keys=["id"])
    with pytest.raises(InvalidInputError, match="upsert"):
        fuse.fuse_sink(tmp_path / "t", keys=["id"])


def test_an_append_to_a_keyed_table_is_refused_before_the_plan_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    fuse.write(rows(spark, 0, 3, 1), tmp_path / "t", mode="upsert", keys=["id"])
    broken = rows(spark, 0, 3, 1).select(
        raise_error(lit("the plan ran")).cast("long").alias("id"), "v"
    )

    with pytest.raises(SchemaMismatchError, match="upsert"):
        fuse.write(broken, tmp_path / "t")

    assert held(tmp_path / "t") == dict.fromkeys(range(3), 1)


def test_a_stream_of_upserts_keeps_one_row_of_each_key(spark: SparkSession, tmp_path: Path) -> None:
    source, target, checkpoint = (str(tmp_path / name) for name in ("in", "out", "ckpt"))

    def run() -> None:
        (
            spark.readStream.schema("id BIGINT, v INT")
            .option("maxFilesPerTrigger", 1)
            .parquet(source)
            .writeStream.foreachBatch(fuse.fuse_sink(target, mode="upsert", keys=["id"]))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    for value in range(3):
        frame = rows(spark, value, value + 5, value).coalesce(1)
        frame.write.mode("append").parquet(source)
        run()

    assert held(Path(target)) == {0: 0, 1: 1, **dict.fromkeys(range(2, 7), 2)}
    found = spark.read.format("fuse").option("feed", "changes").option("startingVersion", 1)
    kinds = {
        row["_change_type"]: row["count"]
        for row in found.load(target).groupBy("_change_type").count().collect()
    }
    assert kinds == {"insert": 7, "update_preimage": 8, "update_postimage": 8}


def test_the_feed_of_upserts_leaves_out_rows_as_they_were(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    fuse.write(rows(spark, 0, 3, 1), path, mode="upsert", keys=["id"])
    fuse.write(rows(spark, 2, 4, 2), path, mode="upsert")
    Table.open(path).delete("id = 0")
    reader = spark.read.format("fuse").option("feed", "upserts").option("startingVersion", 2)
    found = reader.load(str(path)).select("_commit_version", "_change_type", "id", "v").collect()

    assert sorted(tuple(row) for row in found) == [
        (2, "insert", 3, 2),
        (2, "update_postimage", 2, 2),
        (3, "delete", 0, 1),
    ]


def test_the_feed_of_upserts_needs_a_key_and_no_predicate(
    spark: SparkSession, tmp_path: Path
) -> None:
    fuse.write(rows(spark, 0, 3, 1), tmp_path / "t")
    reader = spark.read.format("fuse").option("feed", "upserts").option("startingVersion", 1)

    with pytest.raises(PySparkException, match="set_key"):
        reader.load(str(tmp_path / "t")).collect()
    with pytest.raises(PySparkException, match="no longer matches"):
        reader.option("where", "id = 1").load(str(tmp_path / "t")).collect()
