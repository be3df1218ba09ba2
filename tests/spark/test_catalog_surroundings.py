"""A catalog in hard surroundings: many threads, garbage collection, other sessions, a cluster."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

import fuse_stream as fuse
from fuse_stream.spark import task_source
from fuse_stream.spark.jvm import doors, session_catalogs
from fuse_stream.spark.jvm.proxies import jvm_of
from fuse_stream.table.handle import Table
from tests.kit.programs import told_by
from tests.spark.driver import ROOT
from tests.spark.lake_tables import SCHEMA, collected, create, rows
from tests.spark.lakes import Lake, attached
from tests.spark.streams import PATIENCE_S

THREADS = 6
ROUNDS = 4


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[Lake]:
    with attached(spark, tmp_path / "lake") as lake:
        yield lake


@contextmanager
def collecting_garbage(spark: SparkSession) -> Iterator[list[int]]:
    """Collect the garbage of the JVM and of Python all the time; yield one item a round."""
    done: list[int] = []
    stop = threading.Event()

    def collect() -> None:
        while not stop.is_set():
            jvm_of(spark).java.lang.System.gc()
            gc.collect()
            done.append(1)
            stop.wait(0.2)

    thread = threading.Thread(target=collect)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join(PATIENCE_S)


def work(lake: Lake, name: str) -> list[Any]:
    """Run statements of each kind on a table of its own; return what they show."""
    lake.sql(f"CREATE TABLE lake.{name} (k BIGINT NOT NULL, v BIGINT) CLUSTER BY (k)")
    for number in range(ROUNDS):
        lake.sql(f"INSERT INTO lake.{name} SELECT id, {number} FROM range(10)")
    lake.sql(f"DELETE FROM lake.{name} WHERE k < 5")
    lake.sql(f"CALL lake.system.create_tag('{name}', 'whole', {ROUNDS})")
    lake.sql(f"CALL lake.system.compact('{name}')")
    return [
        *lake.sql(f"SELECT count(*), sum(k), max(v) FROM lake.{name}"),
        *lake.sql(f"SELECT count(*) FROM lake.{name} VERSION AS OF 'whole' WHERE k = 3"),
        *lake.sql(
            f"SELECT _change_type, count(*) FROM lake.{name} CHANGES FROM VERSION 1 "
            "GROUP BY _change_type ORDER BY _change_type"
        ),
        *lake.sql(f"SELECT version FROM lake.{name}.history WHERE operation = 'compact'"),
    ]


WORKED = [
    (5 * ROUNDS, 35 * ROUNDS, ROUNDS - 1),
    ROUNDS,
    ("delete", 5 * ROUNDS),
    ("insert", 10 * ROUNDS),
    ROUNDS + 2,
]


@pytest.mark.long
def test_threads_use_one_catalog_at_once(lake: Lake) -> None:
    create(lake.root, "shared")

    def run(number: int) -> list[Any]:
        lake.sql(f"INSERT INTO lake.shared VALUES ({number}, 0)")
        return work(lake, f"t{number}")

    with ThreadPoolExecutor(THREADS) as threads:
        found = list(threads.map(run, range(THREADS)))

    assert found == [WORKED] * THREADS
    assert sorted(lake.sql("SELECT k FROM lake.shared")) == list(range(THREADS))
    assert Table.open(lake.root / "shared").head().version == THREADS


@pytest.mark.long
def test_garbage_collection_does_not_take_what_queries_use(lake: Lake) -> None:
    table = create(lake.root, "kept")
    table.append(rows(list(range(100))))
    table.delete("k < 10")
    kept = [
        lake.spark.table("lake.kept").where("k > 50"),
        lake.spark.sql("SELECT * FROM lake.kept VERSION AS OF 1"),
        lake.spark.sql("SELECT * FROM lake.kept CHANGES FROM VERSION 1"),
        lake.spark.sql("SELECT * FROM lake.kept.history"),
    ]

    with collecting_garbage(lake.spark) as done:
        assert work(lake, "t") == WORKED
        for _ in range(ROUNDS):
            assert [frame.count() for frame in kept] == [49, 100, 110, 3]
    assert len(done) > 1


class Taken(task_source.TaskSource):
    """A source whose name Spark has."""

    @classmethod
    def name(cls) -> str:
        return "parquet"


def test_a_source_that_another_thread_registers_at_once_is_no_error(spark: SparkSession) -> None:
    session = spark.newSession()
    tried: list[type[task_source.TaskSource]] = []

    def register(source: type[task_source.TaskSource]) -> None:
        tried.append(source)
        session.dataSource.register(Taken)  # raises what Spark raises in such a race

    raced = SimpleNamespace(
        _jsparkSession=session._jsparkSession,  # noqa: SLF001 - pyspark offers no public way
        dataSource=SimpleNamespace(register=register),
    )
    task_source.register_tasks(cast("SparkSession", raced))

    assert tried == [task_source.TaskSource]


# ---- detach


def test_a_query_that_runs_when_its_catalog_is_detached_ends(lake: Lake) -> None:
    table = create(lake.root)
    table.append(rows(list(range(20))))
    lake.sql("CREATE TABLE lake.hidden AS SELECT * FROM lake.t")
    lake.sql("DELETE FROM lake.hidden WHERE k < 5")
    started = [lake.spark.sql(f"SELECT count(*) FROM {name}") for name in ("lake.t", "lake.hidden")]

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(lambda: collected(started[0]))
        lake.catalog.detach()
        assert running.result(PATIENCE_S) == [(20,)]
    assert collected(started[1]) == [(15,)]
    lake.refuses("SELECT * FROM lake.t", "TABLE_OR_VIEW_NOT_FOUND")


def test_a_stream_goes_on_when_its_catalog_is_detached(lake: Lake, tmp_path: Path) -> None:
    table = create(lake.root)
    table.append(rows([1]))
    seen: list[int] = []

    def note(batch: DataFrame, _number: int) -> None:
        seen.extend(row.k for row in batch.collect())

    for stream in (
        lake.spark.readStream.table("lake.t"),
        fuse.read_stream(lake.spark, lake.root / "t", feed="append"),
    ):
        folder = tmp_path / f"checkpoint{len(seen)}"
        writer = stream.writeStream.foreachBatch(note)
        query = writer.option("checkpointLocation", str(folder)).start()
        try:
            query.processAllAvailable()
            lake.catalog.detach()
            table.append(rows([2]))
            query.processAllAvailable()
        finally:
            query.stop()
        fuse.attach(lake.spark, "lake", lake.root)

    assert seen == [1, 2, 1, 2, 2]


# ---- other sessions


def test_a_function_of_foreach_batch_attaches_in_each_batch(lake: Lake, tmp_path: Path) -> None:
    create(lake.root)
    source = create(lake.root, "source")
    source.append(rows([1]))
    sessions = set()

    def write(batch: DataFrame, number: int) -> None:
        session = batch.sparkSession
        sessions.add(id(session))
        fuse.attach(session, "lake", lake.root)
        batch.createOrReplaceTempView("arrived")
        session.sql(
            f"INSERT INTO lake.t WITH (appId = 'query', batchId = {number}) SELECT * FROM arrived"
        )

    stream = fuse.read_stream(lake.spark, lake.root / "source", feed="append")
    query = (
        stream.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        source.append(rows([2]))
        query.processAllAvailable()
    finally:
        query.stop()

    assert sorted(lake.sql("SELECT k FROM lake.t")) == [1, 2]
    assert lake.sql("SELECT batch_id FROM lake.t.ledger") == [1]


def test_a_view_of_one_session_is_no_view_of_another(lake: Lake) -> None:
    create(lake.root).append(rows([1]))
    other = lake.spark.newSession()
    fuse.attach(other, "lake", lake.root)
    other.sql("CREATE TEMPORARY VIEW few AS SELECT * FROM lake.t")
    lake.sql("INSERT INTO lake.t VALUES (2, 0)")

    assert other.sql("SELECT count(*) FROM few").collect()[0][0] == 2
    lake.refuses("SELECT * FROM few", "TABLE_OR_VIEW_NOT_FOUND")


# ---- a Spark that is not as expected


@pytest.mark.long
def test_without_spark_s_list_of_catalogs_the_portable_ways_work(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(session_catalogs, "FIELD", "elsewhere")
    monkeypatch.setattr(doors, "_found", {})
    session = spark.newSession()
    path = str(tmp_path / "t")

    with pytest.raises(fuse.UnsupportedEnvironmentError, match=r"fuse\.read or") as refused:
        fuse.attach(session, "lake", tmp_path)
    with pytest.raises(fuse.UnsupportedEnvironmentError):
        fuse.attach(session, "lake", tmp_path)
    assert "list of catalogs" in str(refused.value.context["reason"])
    assert [record.levelname for record in caplog.records] == ["WARNING"]

    frame = session.createDataFrame([(1, 0), (2, 0)], "k BIGINT, v BIGINT")
    fuse.write(frame, path)
    frame.write.format("fuse").mode("append").save(path)
    fuse.sql(session, f"UPDATE fuse.`{path}` SET v = k WHERE k % 2 = 0")
    assert sorted(collected(fuse.read(session, path))) == [(1, 0), (1, 0), (2, 2), (2, 2)]
    assert session.read.format("fuse").load(path).count() == 4
    session.sql(f"CREATE TEMPORARY VIEW t USING fuse OPTIONS (path '{path}')")
    assert session.sql("SELECT sum(v) FROM t").collect()[0][0] == 4
    stream = fuse.read_stream(session, path, feed="changes")
    query = stream.writeStream.format("memory").queryName("seen").start()
    try:
        query.processAllAvailable()
        assert session.table("seen").count() == 4
    finally:
        query.stop()


# ---- a cluster


@pytest.mark.long
def test_executors_of_a_cluster_read_and_write_tables_of_the_catalog(tmp_path: Path) -> None:
    Table.create(tmp_path / "lake" / "t", SCHEMA)
    found = told_by(
        "tests.spark.cluster_program",
        str(tmp_path),
        patience_s=2 * PATIENCE_S,
        PYTHONPATH=str(ROOT),
    )

    assert found == {
        "executors": 2,
        "inserted": [1000, 499500],
        "created": 500,
        "deleted": 400,
        "old": 1000,
        "changes": [["delete", 600], ["insert", 1000]],
        "stream": [["delete", 600], ["insert", 1000]],
        "copy": 400,
        "joined": 400,
    }
    assert Table.open(tmp_path / "lake" / "t").to_arrow().num_rows == 400
