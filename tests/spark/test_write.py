"""Batch DataFrames written by `fuse.write`, and `format("fuse")` as a sink, with restarts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import fuse_stream
from fuse_stream.errors import (
    AlreadyExistsError,
    CorruptObjectError,
    InvalidInputError,
    StreamIdentityError,
)
from fuse_stream.format.records import Operation
from fuse_stream.spark import read
from fuse_stream.spark.format import register
from fuse_stream.spark.format_write import FuseStreamWriter, TaskMessage
from fuse_stream.spark.options import WriteOptions
from fuse_stream.spark.sink import fuse_sink
from fuse_stream.spark.task_writer import TaskResult
from fuse_stream.spark.types import spark_schema
from fuse_stream.spark.write import write
from fuse_stream.table.handle import Table
from fuse_stream.table.location import TableLocation
from tests.spark.streams import (
    PATIENCE_S,
    deliver,
    drop_log,
    ids_delivered,
    ids_of,
    objects_of,
    read_stream,
    replace_folder,
    run,
    versions_of,
)

ROOT = Path(__file__).parents[2]


def test_the_package_has_the_functions_that_need_spark() -> None:
    assert fuse_stream.read is read.read
    assert fuse_stream.write is write


# ---- fuse.write


def test_each_mode_does_what_its_name_says(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")

    created = write(spark.range(3), path, mode="errorifexists", cluster_by=["id"], message="new")
    appended = write(spark.range(3, 5), path)
    with pytest.raises(AlreadyExistsError, match='"append" or "overwrite"'):
        write(spark.range(9), path, mode="errorifexists")
    ignored = write(spark.range(9), path, mode="ignore")
    overwritten = write(spark.range(7, 8), path, mode="overwrite", author="someone")

    assert (created.version, created.operation, created.message) == (1, Operation.APPEND, "new")
    assert (appended.version, appended.summary.row_count) == (2, 5)
    assert ignored == appended
    assert (overwritten.version, overwritten.operation) == (3, Operation.OVERWRITE)
    assert overwritten.author == "someone"
    assert ids_of(tmp_path / "table", version=2) == list(range(5))
    assert ids_of(tmp_path / "table") == [7]


def test_ignore_creates_a_table_where_there_is_none(spark: SparkSession, tmp_path: Path) -> None:
    assert write(spark.range(3), str(tmp_path / "table"), mode="ignore").version == 1
    assert ids_of(tmp_path / "table") == [0, 1, 2]


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "upsert"},
        {"app_id": "loader"},
        {"app_id": "", "batch_id": 3},
        {"app_id": [], "batch_id": 3},
        {"app_id": "loader", "batch_id": "3"},
        {"batch_id": 3},
        {"cluster_by": ["no"]},
        {"cluster_by": "id"},
        {"cluster_by": None},
    ],
    ids=repr,
)
def test_an_invalid_argument_writes_nothing(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInputError):
        write(spark.range(3), str(tmp_path / "table"), **options)

    assert not (tmp_path / "table" / "_fuse.json").exists()


def test_no_table_is_created_over_a_history_that_has_lost_its_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    write(spark.range(3), str(path))
    (path / "_fuse.json").unlink()
    with pytest.raises(CorruptObjectError, match=r"_fuse\.json"):
        write(spark.range(3), str(path))
    deliver(tmp_path, range(1))
    rows = read_stream(spark, tmp_path)
    with pytest.raises(StreamingQueryException, match=r"_fuse\.json"):
        run(rows, fuse_sink(str(path), optimize="off"), tmp_path / "checkpoint")

    assert not (path / "_fuse.json").exists()
    assert len(list((path / "_ss" / "main").iterdir())) == 2


def test_no_writer_creates_a_table_in_a_folder_that_holds_something_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    (path / "_delta_log").mkdir(parents=True)
    deliver(tmp_path, range(1))
    sink = fuse_sink(str(path), optimize="off")
    with pytest.raises(AlreadyExistsError, match="a Delta table"):
        write(spark.range(3), str(path))
    with pytest.raises(PySparkException, match="a Delta table"):
        save(spark.range(3), path)
    with pytest.raises(StreamingQueryException, match="a Delta table"):
        run(read_stream(spark, tmp_path), sink, tmp_path / "checkpoint")

    assert [each.name for each in path.iterdir()] == ["_delta_log"]


@pytest.mark.long
def test_workers_of_another_python_are_named(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')  # -S: no installed package
    bare.chmod(0o755)
    program = f"""
import os
import sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
import fuse_stream as fuse
from tests.spark.conftest import builder
os.environ["PYSPARK_PYTHON"] = {str(bare)!r}
spark = builder(Path({str(tmp_path)!r})).master("local[1]").getOrCreate()
try:
    fuse.write(spark.range(3), {str(tmp_path / "t")!r})
except fuse.InvalidInputError as error:
    print("refused:", error)
"""

    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": str(bare), "PYTHONPATH": ""},
    )

    assert "refused: the Python of Spark's workers lacks fuse_stream" in done.stdout
    assert str(bare) in done.stdout


def test_a_batch_delivered_again_is_in_the_table_once(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    runs = spark.sparkContext.accumulator(0)

    def counted(batches: Any) -> Any:
        runs.add(1)
        yield from batches

    frame = spark.range(0, 3, 1, 1).mapInArrow(counted, "id long")

    first = write(frame, path, app_id="loader", batch_id=4)
    before = objects_of(tmp_path / "table")
    again = write(frame, path, app_id="loader", batch_id=4)

    assert again == first
    assert (first.replayed, again.replayed) == (False, True)
    assert runs.value == 2  # its rows are compared
    assert objects_of(tmp_path / "table") == before
    with pytest.raises(StreamIdentityError):
        write(frame, path, app_id="loader", batch_id=3)
    write(spark.range(3, 5), path, app_id="loader", batch_id=5)
    write(spark.range(5, 6), path, app_id="loader", batch_id=4, writer="other")
    assert ids_of(tmp_path / "table") == list(range(6))


@pytest.mark.parametrize("rows", [100, 200_000])  # sent to the driver; written by tasks
def test_a_replay_is_known_by_its_rows_however_spark_divides_them(
    spark: SparkSession, tmp_path: Path, rows: int
) -> None:
    path = str(tmp_path / "table")
    frame = spark.range(0, rows, 1, 3).selectExpr("id", "array(cast(id % 7 AS string)) AS tags")
    write(frame, path, app_id="loader", batch_id=4)
    again = write(frame.repartition(2).orderBy("tags"), path, app_id="loader", batch_id=4)
    before = objects_of(tmp_path / "table")

    assert again.replayed
    for other in (frame.where("id > 0"), frame.selectExpr("id", "array('x') AS tags")):
        with pytest.raises(StreamIdentityError, match="next batch_id"):
            write(other, path, app_id="loader", batch_id=4)
    assert objects_of(tmp_path / "table") == before


@pytest.mark.parametrize(
    ("rows", "partitions", "blocks"),
    [
        (200_000, 1, [60_000, 60_000, 60_000, 20_000]),  # more than a task sends to the driver
        (100, 8, [100]),
    ],
    ids=["a large one is split at the target size", "small partitions become one"],
)
def test_blocks_have_the_target_size(
    spark: SparkSession, tmp_path: Path, rows: int, partitions: int, blocks: list[int]
) -> None:
    table = Table.create(
        tmp_path / "table",
        pa.schema({"id": pa.int64()}),
        properties={"fuse.block.rows": "60000"},
    )

    write(spark.range(0, rows, 1, partitions), str(tmp_path / "table"))

    assert [block.row_count for block in table.blocks()] == blocks
    assert ids_of(tmp_path / "table") == list(range(rows))


# ---- format("fuse"), a batch


def save(frame: DataFrame, path: Path, *, mode: str = "append", **options: str) -> None:
    frame.write.format("fuse").mode(mode).options(**options).save(str(path))


def test_a_dataframe_is_saved_in_format_fuse(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"

    save(spark.range(3), table, message="from SQL people", clusterBy="id")
    save(spark.range(3, 5), table)
    appended = ids_of(table)
    save(spark.range(9, 10), table, mode="overwrite")

    created, first, second, third = reversed(list(Table.open(table).log()))
    assert [first.operation, second.operation, third.operation] == [
        Operation.APPEND,
        Operation.APPEND,
        Operation.OVERWRITE,
    ]
    assert created.cluster_key == (1,)
    assert first.message == "from SQL people"
    assert len(Table.open(table).blocks(version=1)) == 1
    assert appended == list(range(5))
    assert ids_of(table) == [9]


def test_a_batch_saved_again_under_its_number_is_in_the_table_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = tmp_path / "table"

    save(spark.range(3), table, appId="loader", batchId="4")
    save(spark.range(3).orderBy("id", ascending=False), table, appId="loader", batchId="4")

    assert versions_of(table) == [0, 1]
    for other in (spark.range(1, 4), spark.range(0)):
        with pytest.raises(PySparkException, match="next batch_id"):
            save(other, table, appId="loader", batchId="4")
    assert ids_of(table) == [0, 1, 2]
    with pytest.raises(PySparkException, match="StreamIdentityError"):
        save(spark.range(3), table, appId="loader", batchId="3")
    with pytest.raises(PySparkException, match="appId and batchId go together"):
        save(spark.range(3), table, appId="loader")


def test_narrower_values_are_widened_by_every_writer(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "table"
    Table.create(path, pa.schema([("id", pa.int64()), ("delay", pa.float64())]))
    columns = "CAST(id AS INT) AS id", "CAST(id AS FLOAT) AS delay"
    deliver(tmp_path, range(1))
    write(spark.range(-2, 0).selectExpr(*columns), str(path))
    save(spark.range(-4, -2).selectExpr(*columns), path)
    rows = read_stream(spark, tmp_path).selectExpr(*columns)
    run(rows, fuse_sink(str(path), optimize="off"), tmp_path / "checkpoint")

    found = Table.open(path).to_arrow()
    assert sorted(found["id"].to_pylist()) == [-4, -3, -2, -1, *ids_delivered(1)]
    assert found["delay"].to_pylist() == [float(value) for value in found["id"].to_pylist()]
    assert Table.open(path).head().schema.id == 0


def test_a_batch_that_does_not_fit_is_refused_before_it_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    save(spark.range(3), table)
    before = objects_of(table)

    with pytest.raises(PySparkException, match="SchemaMismatchError"):
        save(spark.range(3).selectExpr("id", "1 AS more"), table)
    assert objects_of(table) == before

    save(spark.range(3, 5).selectExpr("id", "1 AS more"), table, mergeSchema="true")
    assert ids_of(table) == list(range(5))


# ---- format("fuse"), a stream


def run_into(
    frame: DataFrame, folder: Path, *, output_mode: str = "append", **options: str
) -> None:
    """Run to its end a query that writes a scenario's table by `writeStream`."""
    writer = frame.writeStream.format("fuse").outputMode(output_mode).trigger(availableNow=True)
    writer = writer.options(checkpointLocation=str(folder / "checkpoint"), **options)
    run_to_the_end(writer, folder)


def run_to_the_end(writer: DataStreamWriter, folder: Path) -> None:
    query = writer.start(str(folder / "table"))
    try:
        assert query.awaitTermination(PATIENCE_S)
    finally:
        query.stop()


@pytest.mark.long
def test_an_appending_stream_in_format_fuse_is_exact_after_a_lost_commit_entry(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Peers: the native sinks of Delta and Iceberg are right here too."""
    deliver(tmp_path, range(3))
    run_into(read_stream(spark, tmp_path), tmp_path)
    before = versions_of(tmp_path / "table")
    drop_log(tmp_path / "checkpoint", "commits", 2)

    run_into(read_stream(spark, tmp_path), tmp_path)
    replayed = versions_of(tmp_path / "table")
    deliver(tmp_path, range(3, 4))
    run_into(read_stream(spark, tmp_path), tmp_path)

    (entry,) = Table.open(tmp_path / "table").ledger().values()
    assert entry.fingerprint is None  # offsets identify a query's batches
    assert replayed == before == [0, 1, 2, 3]
    assert ids_of(tmp_path / "table") == ids_delivered(4)
    assert {item.batch_id: item.text for item in entry.offsets} == {
        batch_id: (tmp_path / "checkpoint" / "offsets" / str(batch_id)).read_text()
        for batch_id in (2, 3)
    }


@pytest.mark.long
def test_a_complete_stream_in_format_fuse_is_exact_after_a_lost_commit_entry(
    spark: SparkSession, tmp_path: Path
) -> None:
    deliver(tmp_path, range(2))
    counts = read_stream(spark, tmp_path).groupBy("key").count()
    run_into(counts, tmp_path, output_mode="complete")
    drop_log(tmp_path / "checkpoint", "commits", 1)
    deliver(tmp_path, range(2, 3))

    run_into(counts, tmp_path, output_mode="complete")

    assert versions_of(tmp_path / "table") == [0, 1, 2, 3]
    assert sorted(Table.open(tmp_path / "table").to_arrow().to_pylist(), key=repr) == [
        {"key": f"key {key}", "count": 10} for key in range(3)
    ]


def test_a_stream_in_format_fuse_under_a_new_checkpoint_is_refused_until_it_adopts(
    spark: SparkSession, tmp_path: Path
) -> None:
    deliver(tmp_path, range(2))
    run_into(read_stream(spark, tmp_path), tmp_path)
    (entry,) = Table.open(tmp_path / "table").ledger().values()
    later = tmp_path / "later"
    deliver(later, range(2, 3))
    (later / "table").symlink_to(tmp_path / "table")

    with pytest.raises(StreamingQueryException, match="StreamIdentityError"):
        run_into(read_stream(spark, later), later)
    assert ids_of(tmp_path / "table") == ids_delivered(2)

    assert entry.query_id is not None
    run_into(read_stream(spark, later), later, adopt=entry.query_id)
    assert ids_of(tmp_path / "table") == ids_delivered(3)


def run_under_default(spark: SparkSession, folder: Path, name: str | None) -> None:
    """Run a scenario's stream with the checkpoint that the session's setting gives it."""
    session = spark.newSession()
    session.conf.set("spark.sql.streaming.checkpointLocation", str(folder / "default"))
    register(session)
    writer = read_stream(session, folder).writeStream.format("fuse").trigger(availableNow=True)
    if name is not None:
        writer = writer.queryName(name)
    run_to_the_end(writer, folder)


def test_a_stream_in_format_fuse_finds_the_checkpoint_of_the_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "default" / "a query"
    deliver(tmp_path, range(2))
    run_under_default(spark, tmp_path, "a query")
    (entry,) = Table.open(tmp_path / "table").ledger().values()
    shutil.copytree(checkpoint, tmp_path / "copy")
    deliver(tmp_path, range(2, 3))
    run_under_default(spark, tmp_path, "a query")
    replace_folder(checkpoint, tmp_path / "copy")

    assert {item.batch_id: item.text for item in entry.offsets} == {
        batch_id: (checkpoint / "offsets" / str(batch_id)).read_text() for batch_id in (0, 1)
    }
    with pytest.raises(StreamingQueryException, match=r"StreamIdentityError.*source offsets"):
        run_under_default(spark, tmp_path, "a query")
    assert ids_of(tmp_path / "table") == ids_delivered(3)


def test_a_stream_in_format_fuse_whose_checkpoint_cannot_be_found_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    deliver(tmp_path, range(1))

    with pytest.raises(StreamingQueryException, match=r'option\("checkpointLocation", …\)'):
        run_under_default(spark, tmp_path, None)
    assert not (tmp_path / "table").exists()


def test_a_checkpoint_of_the_session_that_is_not_the_querys_is_refused(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "table", pa.schema([("id", pa.int64())]))
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "metadata").write_text('{"id": "another"}')
    options = WriteOptions(location=TableLocation(path=str(tmp_path / "table")), commit_empty=True)
    schema = spark_schema(table.head().schema)
    writer = FuseStreamWriter(options, schema, overwrite=False, query_name="q")

    def commit(query_id: str, root: str | None) -> None:
        message = TaskMessage(result=TaskResult(), query_id=query_id, default_root=root)
        writer.commit([message], 0)

    for root in (str(tmp_path), f"{tmp_path}/none", None):
        with pytest.raises(InvalidInputError, match="fuse_sink"):
            commit("mine", root)
    commit("another", str(tmp_path))
    assert table.head().version == 1


def test_empty_batches_of_a_stream_in_format_fuse_make_no_snapshot(
    spark: SparkSession, tmp_path: Path
) -> None:
    deliver(tmp_path, range(3))

    run_into(read_stream(spark, tmp_path).where("id >= 20"), tmp_path)

    assert versions_of(tmp_path / "table") == [0, 1]
    assert ids_of(tmp_path / "table") == ids_delivered(3)[20:]
