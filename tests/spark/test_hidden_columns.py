"""Hidden columns and Spark: read and fed by name alone, and kept by every change of a row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import fuse_stream as fuse
from fuse_stream.errors import InvalidInputError
from fuse_stream.spark.format import register
from fuse_stream.table.handle import Table, create_at
from fuse_stream.table.location import TableLocation
from tests.kit.hidden import hidden_rows, hidden_schema, write_hidden
from tests.spark.streams import run

ALL = ["k", "v", "_fuse_seq", "_FUSE_Seqs"]


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    """Version 1 has the keys 1 to 3, with their hidden columns."""
    register(spark)
    folder = str(tmp_path / "t")
    table = create_at(TableLocation.of(folder), hidden_schema(), cluster_by=())
    write_hidden(table, hidden_rows(1, 2, 3))
    return folder


def whole(path: str) -> list[tuple[Any, ...]]:
    found = Table.open(path).to_arrow(columns=ALL)
    return sorted(zip(*(found[name].to_pylist() for name in ALL), strict=True), key=repr)


def test_fuse_read_has_hidden_columns_only_by_name(spark: SparkSession, path: str) -> None:
    named = fuse.read(spark, path, columns=["k", "_fuse_seq"], where="_fuse_seq > 10")

    assert fuse.read(spark, path).columns == ["k", "v"]
    assert sorted(map(tuple, named.collect())) == [(2, 20), (3, 30)]
    assert fuse.read(spark, path, where="_fuse_seq = 10").collect() == [(1, "a")]


def test_the_format_has_hidden_columns_only_by_name(spark: SparkSession, path: str) -> None:
    reader = spark.read.format("fuse")
    named = spark.read.format("fuse").option("columns", "k,_fuse_seq").load(path)

    assert reader.load(path).columns == ["k", "v"]
    assert sorted(map(tuple, named.collect())) == [(1, 10), (2, 20), (3, 30)]


@pytest.mark.parametrize("feed", ["changes", "append", "upserts"])
def test_a_stream_has_hidden_columns_only_by_name(
    spark: SparkSession, path: str, feed: str
) -> None:
    plain = spark.readStream.format("fuse").option("feed", feed).load(path)
    named = (
        spark.readStream.format("fuse")
        .option("feed", feed)
        .option("columns", "k,_FUSE_SEQ")
        .load(path)
    )

    assert [name for name in plain.columns if name[:1] != "_"] == ["k", "v"]
    assert "_fuse_seq" in named.columns
    assert not any(name.lower().startswith("_fuse_") for name in plain.columns)


def test_a_stream_goes_on_when_a_hidden_column_comes(
    spark: SparkSession, path: str, tmp_path: Path
) -> None:
    stream = spark.readStream.format("fuse").option("feed", "append").load(path)
    seen: list[int] = []

    def take(df: Any, _: int) -> None:
        seen.extend(row.k for row in df.collect())

    def start() -> None:
        writer = stream.writeStream.foreachBatch(take).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    start()
    write_hidden(Table.open(path), hidden_rows(4).append_column("_fuse_more", pa.array([1])))
    start()

    assert sorted(seen) == [1, 2, 3, 4]


def test_an_update_by_spark_keeps_hidden_values(spark: SparkSession, path: str) -> None:
    fuse.update(spark, path, "k = 2", {"v": "concat(v, 'x')"})
    fuse.delete(spark, path, "k = 3")

    assert whole(path) == [(1, "a", 10, "s1"), (2, "ax", 20, "s2")]


def test_a_merge_keeps_hidden_values_and_puts_null_into_new_rows(
    spark: SparkSession, path: str
) -> None:
    source = spark.createDataFrame([(2, "new"), (4, "new")], "k BIGINT, v STRING")
    merge = fuse.merge(source, path, on="t.k = s.k").when_matched().update_all()
    merge.when_not_matched().insert_all().execute()
    again = spark.createDataFrame([(1, "w"), (5, "w")], "k BIGINT, w STRING")
    wide = fuse.merge(again, path, on="t.k = s.k", merge_schema=True).when_matched().update_all()
    wide.when_not_matched().insert({"k": "s.k"}).execute()

    assert whole(path) == [
        (1, "a", 10, "s1"),
        (2, "new", 20, "s2"),
        (3, "a", 30, "s3"),
        (4, "new", None, None),
        (5, None, None, None),
    ]


def test_a_write_without_hidden_columns_puts_null(spark: SparkSession, path: str) -> None:
    fuse.write(spark.createDataFrame([(4, "b")], "k BIGINT, v STRING"), path)
    spark.createDataFrame([(5, "b")], "k BIGINT, v STRING").write.format("fuse").mode(
        "append"
    ).save(path)

    assert whole(path)[3:] == [(4, "b", None, None), (5, "b", None, None)]


def _merged(spark: SparkSession, path: str) -> object:
    source = spark.createDataFrame([(1, 2)], "k BIGINT, _fuse_x BIGINT")
    merge = fuse.merge(source, path, on="t.k = s.k", merge_schema=True)
    return merge.when_matched().update_all().execute()


def _merged_by_name(spark: SparkSession, path: str) -> object:
    source = spark.createDataFrame([(1,)], "k BIGINT")
    merge = fuse.merge(source, path, on="t.k = s.k")
    return merge.when_matched().update({"_fuse_seq": "1"}).execute()


def _written(spark: SparkSession, path: str) -> object:
    df = spark.createDataFrame([(1, "a", 2)], "k BIGINT, v STRING, _Fuse_seq BIGINT")
    return fuse.write(df, path, merge_schema=True)


def _created(spark: SparkSession, path: str) -> object:
    df = spark.createDataFrame([(1,)], "_fuse_x BIGINT")
    return fuse.write(df, path + "-new")


def _updated(spark: SparkSession, path: str) -> object:
    return fuse.update(spark, path, "k = 1", {"_fuse_seq": "1"})


@pytest.mark.parametrize("act", [_merged, _merged_by_name, _written, _created, _updated])
def test_no_frame_writes_a_hidden_column(
    spark: SparkSession, path: str, act: Callable[[SparkSession, str], object]
) -> None:
    with pytest.raises(InvalidInputError, match="reserved"):
        act(spark, path)

    assert Table.open(path).head().version == 1
    assert not Path(path + "-new").exists()


def test_a_stream_s_frame_with_such_a_column_is_refused(
    spark: SparkSession, path: str, tmp_path: Path
) -> None:
    rows = spark.readStream.format("fuse").option("feed", "append")
    named = rows.option("columns", "k,v,_fuse_seq").load(path)
    sink = fuse.fuse_sink(path + "-copy")

    with pytest.raises(Exception, match="reserved"):
        run(named, sink, tmp_path / "checkpoint")
