"""Streams of tables that SQL names: `readStream.table`, `FROM STREAM`, and `toTable`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import fuse_stream as fuse
from fuse_stream.errors import InvalidInputError, NotFoundError
from fuse_stream.spark.jvm import planned_scan
from fuse_stream.table.handle import Table
from tests.spark.lake_tables import PATIENCE_S, Row, create, rows, run
from tests.spark.lakes import attached


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    with attached(spark, tmp_path) as found:
        yield found.spark


def keys(found: list[Row]) -> list[int]:
    return sorted(row[0] for row in found)


@pytest.mark.parametrize(
    "statement",
    [
        None,
        "SELECT k FROM STREAM lake.t",
        "WITH x AS (SELECT * FROM STREAM(lake.t) AS y WHERE k > 0) SELECT k FROM x",
    ],
)
@pytest.mark.parametrize("hides", [False, True])
def test_a_table_is_read_as_a_stream_by_its_name(
    lake: SparkSession, tmp_path: Path, statement: str | None, *, hides: bool
) -> None:
    table, found = create(tmp_path), list[Row]()
    table.append(rows([1, 2, 3]))
    if hides:
        table.delete("k = 2")

    def follow() -> None:
        named = lake.readStream.table("lake.t") if statement is None else lake.sql(statement)
        run(named.select("k"), tmp_path / "checkpoint", found)

    follow()
    table.append(rows([4]))
    table.compact()
    table.append(rows([5]))
    follow()
    follow()

    assert keys(found) == ([1, 3, 4, 5] if hides else [1, 2, 3, 4, 5])


def test_its_rows_are_read_by_sparks_reader(
    lake: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_spark: SparkSession) -> None:
        raise AssertionError("tasks of Python would read the rows")

    table, found = create(tmp_path), list[Row]()
    table.append(rows([1, 2]))
    monkeypatch.setattr(planned_scan, "register_tasks", refuse)

    run(lake.readStream.table("lake.t"), tmp_path / "checkpoint", found)

    assert sorted(found) == [(1, 0), (2, 0)]


def test_a_limit_makes_several_batches(lake: SparkSession, tmp_path: Path) -> None:
    table, found = create(tmp_path), list[Row]()
    for key in range(3):
        table.append(rows([key]))
    reader = lake.readStream.option("startingVersion", 1).option("maxCommitsPerTrigger", 1)

    query = run(reader.table("lake.t"), tmp_path / "checkpoint", found)

    assert keys(found) == [0, 1, 2]
    assert [progress["numInputRows"] for progress in query.recentProgress] == [1, 1, 1]


def test_a_commit_that_removes_rows_is_refused_or_skipped(
    lake: SparkSession, tmp_path: Path
) -> None:
    table, found = create(tmp_path), list[Row]()
    table.append(rows([1, 2]))
    table.delete("k = 1")
    table.append(rows([3]))
    reader = lake.readStream.option("startingVersion", 1)

    with pytest.raises(Exception, match="InvalidInputError: a commit removes rows") as caught:
        run(reader.table("lake.t"), tmp_path / "refused", [])
    assert isinstance(caught.value, StreamingQueryException)
    found_error = fuse.stream_error(caught.value)
    assert type(found_error) is InvalidInputError
    assert found_error.context == {"version": 2, "operation": "delete"}
    run(reader.option("skipChangeCommits", "true").table("lake.t"), tmp_path / "skipped", found)

    assert keys(found) == [1, 2, 3]


def test_an_error_of_a_statement_in_a_batch_is_found_by_its_class(
    lake: SparkSession, tmp_path: Path
) -> None:
    create(tmp_path).append(rows([1]))

    def fail(_batch: DataFrame, _batch_id: int) -> None:
        lake.sql("CALL lake.system.create_tag('t', 'good', 99)")

    query = (
        lake.readStream.table("lake.t")
        .writeStream.foreachBatch(fail)
        .option("checkpointLocation", str(tmp_path / "c"))
        .start()
    )
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(PATIENCE_S)

    found = fuse.stream_error(query)
    assert type(found) is NotFoundError
    assert found.context == {"version": 99, "head": 1}


def test_two_names_of_one_table_are_two_streams(lake: SparkSession, tmp_path: Path) -> None:
    found = list[Row]()
    create(tmp_path).append(rows([1, 2]))
    both = lake.readStream.table("lake.t").unionAll(lake.readStream.table("lake.t"))

    run(both.select("k"), tmp_path / "checkpoint", found)

    assert keys(found) == [1, 1, 2, 2]


def test_an_unknown_option_is_refused(lake: SparkSession, tmp_path: Path) -> None:
    create(tmp_path).append(rows([1]))

    with pytest.raises(Exception, match=r"InvalidInputError: .*startingVersion"):
        run(lake.readStream.option("startVersion", 1).table("lake.t"), tmp_path / "c", [])


# ---- writing


def copy(frame: DataFrame, checkpoint: Path, name: str = "lake.sink") -> None:
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).toTable(name)
    assert query.awaitTermination(PATIENCE_S)


def test_a_stream_is_written_to_a_name_exactly_once(lake: SparkSession, tmp_path: Path) -> None:
    source = create(tmp_path)
    lake.sql("CREATE TABLE lake.sink (k BIGINT, v BIGINT)")
    source.append(rows([1, 2]))

    copy(lake.readStream.table("lake.t"), tmp_path / "checkpoint")
    source.append(rows([3]))
    copy(lake.readStream.table("lake.t"), tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "commits" / "1").unlink()  # as if the driver died before it
    (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
    copy(lake.readStream.table("lake.t"), tmp_path / "checkpoint")

    sink = Table.open(tmp_path / "sink")
    assert sorted(sink.to_arrow()["k"].to_pylist()) == [1, 2, 3]
    [(_, entry)] = sink.ledger().items()
    assert entry.batch_id == 1
    assert [snapshot.operation.value for snapshot in sink.log()] == ["append", "append", "create"]


def test_the_ledger_has_what_a_batch_has_read(lake: SparkSession, tmp_path: Path) -> None:
    source = create(tmp_path)
    lake.sql("CREATE TABLE lake.sink (k BIGINT, v BIGINT)")
    source.append(rows([1, 2]))

    copy(lake.readStream.table("lake.t"), tmp_path / "checkpoint")

    [(_, entry)] = Table.open(tmp_path / "sink").ledger().items()
    [read] = entry.sources or ()
    assert (read.offset.table_id, read.version) == (source.table_id, 1)
    assert [offsets.batch_id for offsets in entry.offsets] == [0]


def test_columns_that_the_table_lacks_are_refused(lake: SparkSession, tmp_path: Path) -> None:
    create(tmp_path).append(rows([1]))
    lake.sql("CREATE TABLE lake.sink (k BIGINT)")

    with pytest.raises(Exception, match=r"SchemaMismatchError|INCOMPATIBLE|TOO_MANY"):
        copy(lake.readStream.table("lake.t"), tmp_path / "checkpoint")

    assert Table.open(tmp_path / "sink").to_arrow() == pa.table({"k": pa.array([], pa.int64())})
