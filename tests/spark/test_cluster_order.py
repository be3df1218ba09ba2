"""Every writer sorts the rows of each block by the cluster key, and records that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from fuse_stream.objects.blocks import load_block
from fuse_stream.optimize.overlap import is_sorted_by
from fuse_stream.spark.sink import fuse_sink
from fuse_stream.spark.task_writer import HANDED_OVER_BYTES
from fuse_stream.spark.write import write
from fuse_stream.table.handle import Table
from tests.spark.streams import PATIENCE_S, deliver, read_stream, run

Write = Callable[[SparkSession, Path], None]


def falling(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, numPartitions=2).selectExpr(
        "id", "concat('key ', pmod(-id, 7)) AS key"
    )


def by_sink(spark: SparkSession, folder: Path) -> None:
    deliver(folder, range(4))  # the first batch by tasks, those after it fetched
    sink = fuse_sink(str(folder / "table"), cluster_by=["key", "id"])
    run(read_stream(spark, folder), sink, folder / "checkpoint")


def by_write(spark: SparkSession, folder: Path) -> None:
    write(falling(spark, 1000), str(folder / "table"), cluster_by=["key", "id"])


def by_tasks(spark: SparkSession, folder: Path) -> None:
    rows = HANDED_OVER_BYTES // 4  # too many to be sent to the driver
    write(falling(spark, rows), str(folder / "table"), cluster_by=["key", "id"])


def by_format(spark: SparkSession, folder: Path) -> None:
    writer = falling(spark, 1000).write.format("fuse").mode("append")
    writer.option("clusterBy", "key,id").save(str(folder / "table"))


def by_stream_format(spark: SparkSession, folder: Path) -> None:
    deliver(folder, range(3))
    writer = read_stream(spark, folder).writeStream.format("fuse").trigger(availableNow=True)
    writer = writer.option("clusterBy", "key,id").option("path", str(folder / "table"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    try:
        assert query.awaitTermination(PATIENCE_S)
    finally:
        query.stop()


@pytest.mark.parametrize("write_rows", [by_sink, by_write, by_tasks, by_format, by_stream_format])
def test_blocks_are_sorted_by_the_cluster_key_of_a_table_that_the_writer_made(
    spark: SparkSession, tmp_path: Path, write_rows: Write
) -> None:
    write_rows(spark, tmp_path)

    table = Table.open(tmp_path / "table")
    head = table.head()
    names = {column.id: column.name for column in head.schema.columns}
    blocks = table.blocks()
    assert [names[column] for column in head.cluster_key] == ["key", "id"]
    assert blocks
    for block in blocks:
        rows = load_block(table.metadata.store, block, head.schema)
        keys = list(zip(rows["key"].to_pylist(), rows["id"].to_pylist(), strict=True))
        assert keys == sorted(keys)
        assert is_sorted_by(block, head.cluster_key)
    assert table.clustering().unsorted_count == 0
