"""A stream of changes into a table without a key: `fuse_sink(mode="replicate")`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import fuse_stream as fuse
from fuse_stream.table.handle import Table
from tests.spark.streams import EACH_DOOR, follow_table

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])


def rows(*values: tuple[int | None, str]) -> pa.Table:
    return pa.table([[k for k, _ in values], [s for _, s in values]], schema=SCHEMA)


def held(path: Path, version: int | None = None) -> Counter[tuple[object, ...]]:
    found = Table.open(path).to_arrow(version=version).to_pylist()
    return Counter((row["k"], row["s"]) for row in found)


def follow(
    spark: SparkSession, folder: Path, door: str = "native", *, commits: int | None = None
) -> None:
    limit = {} if commits is None else {"maxCommitsPerTrigger": commits}
    query = (
        follow_table(spark, folder / "bronze", door, **limit)
        .writeStream.foreachBatch(fuse.fuse_sink(folder / "silver", mode="replicate"))
        .option("checkpointLocation", str(folder / "ckpt"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


@EACH_DOOR
@pytest.mark.parametrize("commits", [pytest.param(None, marks=pytest.mark.long), 1])
def test_a_table_equals_the_one_that_its_stream_follows(
    spark: SparkSession, tmp_path: Path, door: str, commits: int | None
) -> None:
    bronze = Table.create(tmp_path / "bronze", SCHEMA)
    bronze.append(rows((1, "a"), (1, "a"), (2, "b"), (None, "c")))
    bronze.append(rows((1, "a"), (3, "d")))
    follow(spark, tmp_path, door, commits=commits)
    bronze.delete("k = 1 AND s = 'a'")
    bronze.append(rows((1, "a"), (4, "e")))
    bronze.update("k = 2", {"s": "new"})
    bronze.compact()
    bronze.overwrite(rows((None, "c"), (9, "z")))
    follow(spark, tmp_path, door, commits=commits)
    assert held(tmp_path / "silver") == held(tmp_path / "bronze")

    fuse.rewind(tmp_path / "bronze", version=3)
    follow(spark, tmp_path, door, commits=commits)
    assert held(tmp_path / "silver") == held(tmp_path / "bronze", version=3)


def test_a_row_that_is_not_there_stops_the_query(spark: SparkSession, tmp_path: Path) -> None:
    bronze = Table.create(tmp_path / "bronze", SCHEMA)
    bronze.append(rows((1, "a")))
    follow(spark, tmp_path)
    Table.open(tmp_path / "silver").delete("k = 1")
    bronze.delete("k = 1")

    with pytest.raises(StreamingQueryException, match="does not have"):
        follow(spark, tmp_path)
