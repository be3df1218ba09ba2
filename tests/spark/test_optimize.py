"""Compaction in Spark's tasks, with the results of the local one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import fuse_stream as fuse
from fuse_stream.errors import NotFoundError
from fuse_stream.format.records import Operation
from fuse_stream.table.handle import Table

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def made(folder: Path, appends: int, **options: object) -> Table:
    table = Table.create(folder, SCHEMA, properties={"fuse.block.rows": "10"}, **options)  # type: ignore[arg-type]
    for number in range(appends):
        table.append(pa.table({"id": [number, -number], "name": ["a", None]}, schema=SCHEMA))
    return table


def test_groups_are_rewritten_in_tasks_and_committed_together(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = made(tmp_path / "t", 23)
    before = table.to_arrow()
    result = fuse.compact(spark, tmp_path / "t")
    head = table.head()

    assert table.to_arrow() == before
    assert (result.group_count, result.blocks_before, result.blocks_after) == (4, 23, 4)
    assert result.snapshot == head
    assert (head.operation, head.version) == (Operation.COMPACT, 24)
    assert [block.row_count for block in table.blocks()] == [10, 10, 10, 16]
    assert table.fsck(deep=True).is_sound
    assert fuse.compact(spark, tmp_path / "t").snapshot is None


def test_a_clustered_table_is_sorted_within_its_blocks(spark: SparkSession, tmp_path: Path) -> None:
    table = made(tmp_path / "t", 5, cluster_by=["id"])
    fuse.compact(spark, tmp_path / "t", limit=4)

    assert table.to_arrow()["id"].to_pylist() == [-3, -2, -1, 0, 0, 1, 2, 3, -4, 4]


def test_a_missing_table_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        fuse.compact(spark, tmp_path / "none")
