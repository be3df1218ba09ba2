"""Bloom filters: Spark's tasks write them, and Spark's plans use them."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from fuse_stream.objects.snapshot_blocks import iter_blocks
from fuse_stream.spark.block_list import BlockFile, SnapshotBlocks
from fuse_stream.spark.merge import merge
from fuse_stream.spark.read import read
from fuse_stream.spark.write import write
from fuse_stream.table.handle import Table

BLOCKS = 6
ARROW = pa.schema(
    [
        ("k", pa.int32()),
        ("name", pa.string()),
        ("money", pa.decimal128(12, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("v", pa.int64()),
    ]
)
FILTERED = {"fuse.bloom.columns": "k,name,money,at"}
MICROS = 1_000_000


def rows_of(block: int) -> pa.Table:
    keys = [-1, *range(block, 600, BLOCKS), 601]  # the bounds of all blocks are alike
    return pa.table(
        {
            "k": keys,
            "name": [f"n{key}" for key in keys],
            "money": [Decimal(key) for key in keys],
            "at": pa.array([key * MICROS for key in keys], pa.int64()).cast(ARROW.field("at").type),
            "v": [block] * len(keys),
        },
        schema=ARROW,
    )


def make(path: Path) -> Table:
    table = Table.create(path, ARROW, properties=FILTERED)
    for block in range(BLOCKS):
        table.append(rows_of(block))
    return table


def filtered_columns(table: Table) -> list[set[int]]:
    """Return the columns with filters of each block, oldest first."""
    blocks = iter_blocks(table.metadata, table.head())
    return [
        {column for column, meta in block.col_metas.items() if meta.bloom is not None}
        for block in blocks
    ]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of blocks that Spark was given, in turn."""
    found: list[int] = []
    matching: Callable[..., list[BlockFile]] = SnapshotBlocks.matching  # type: ignore[assignment]

    def counted(self: SnapshotBlocks, where: object) -> list[BlockFile]:
        files = matching(self, where)
        found.append(len(files))
        return files

    monkeypatch.setattr(SnapshotBlocks, "matching", counted)
    return found


def found_by(frame: DataFrame) -> list[int]:
    return sorted(row.k for row in frame.collect())


WHERES = [
    ("k = 100", 1, [100]),
    ("name = 'n100'", 1, [100]),
    ("money = 100.00", 1, [100]),
    ("at = TIMESTAMP '1970-01-01 00:01:40 UTC'", 1, [100]),
    ("k IN (100, 103) AND v >= 0", 2, [100, 103]),
    ("name <=> 'n100' OR k = 101", 2, [100, 101]),
    ("k = 100 AND name = 'n101'", 0, []),
    ("k = 602", 0, []),
    ("k = 9999999999", 0, []),
]


@pytest.mark.parametrize("where", WHERES, ids=[where for where, *_ in WHERES])
def test_a_filter_of_a_data_frame_is_looked_up_in_the_filters_of_blocks(
    spark: SparkSession, tmp_path: Path, asked: list[int], where: tuple[str, int, list[int]]
) -> None:
    text, blocks, expected = where
    make(tmp_path / "t")

    assert found_by(read(spark, str(tmp_path / "t")).where(text)) == expected
    assert max(asked, default=0) <= blocks + 1  # one by a false positive
    assert found_by(read(spark, str(tmp_path / "t"), where=text)) == expected


def test_a_widened_column_is_looked_up_by_the_type_of_each_file(
    spark: SparkSession, tmp_path: Path, asked: list[int]
) -> None:
    table = make(tmp_path / "t")
    wider = ARROW.set(0, pa.field("k", pa.int64()))
    table.append(rows_of(0).cast(wider), merge_schema=True)
    table.delete("k = 100 AND v = 4")

    assert found_by(read(spark, str(tmp_path / "t")).where("k = 102")) == [102, 102]
    assert asked[-1] <= 3  # two and a false positive
    assert found_by(read(spark, str(tmp_path / "t")).where("k = 100")) == []


def test_each_way_of_sparks_to_write_rows_writes_filters(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = str(tmp_path / "t")
    table = make(tmp_path / "t")
    frame = spark.createDataFrame(rows_of(3))
    write(frame, place)
    frame.write.format("fuse").mode("append").save(place)
    source = spark.createDataFrame(rows_of(4).slice(1, 5))
    merge(source, place, on="t.k = s.k").when_matched().update_all().execute()
    before = len(filtered_columns(table))
    table.compact()

    assert before > BLOCKS
    assert filtered_columns(table) == [{1, 2, 3, 4}] * len(filtered_columns(table))
    assert table.fsck(deep=True).is_sound
