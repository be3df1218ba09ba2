"""Forked and rebuilt checkpoints under the real Spark: a query continues as the old one would."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from fuse_stream.checkpoint.files import (
    METADATA,
    UNFINISHED,
    list_files,
    load_checkpoint,
    load_offsets,
)
from fuse_stream.checkpoint.fork import plan_fork
from fuse_stream.checkpoint.rebuild import plan_rebuild
from fuse_stream.checkpoint.write_fork import finish_fork, new_query_id, store_fork
from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.spark.format import FuseDataSource
from fuse_stream.spark.identity import query_id_of
from fuse_stream.storage.local import LocalStore
from fuse_stream.table.handle import Table
from tests.kit.strides import NIGHT
from tests.spark import streams

FILES = 5
LOGGED = 23
"""Entries of a file source's log: it is compacted at 9 and at 19."""

Batches = dict[int, list[tuple[Any, ...]]]

_STORE = "spark.sql.streaming.stateStore"
_ROCKSDB = {
    f"{_STORE}.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}
PROVIDERS = {
    "hdfs": {},
    "rocksdb": _ROCKSDB,
    "rocksdb-v2": _ROCKSDB | {f"{_STORE}.checkpointFormatVersion": "2"},
    "rocksdb-v2-changelog": _ROCKSDB
    | {
        f"{_STORE}.checkpointFormatVersion": "2",
        f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    },
}


def run(frame: DataFrame, checkpoint: Path, *, output_mode: str = "append") -> Batches:
    """Run a query to its end; return the rows of each of its batches."""
    seen: Batches = {}

    def look(df: DataFrame, batch_id: int) -> None:
        assert batch_id not in seen
        seen[batch_id] = sorted(tuple(row) for row in df.collect())

    streams.run(frame, look, checkpoint, output_mode=output_mode)
    return seen


def since(first: int, batches: Batches) -> Batches:
    return {batch: rows for batch, rows in batches.items() if batch >= first}


def fork(old: Path, new: Path, offsets_through: int | None, commits_through: int | None) -> str:
    """Make the fork `new`; return its query id."""
    source, target, query_id = LocalStore(old), LocalStore(new), new_query_id(SYSTEM_CLOCK)
    plan = plan_fork(
        load_checkpoint(source),
        offsets_through=offsets_through,
        commits_through=commits_through,
        offsets=None if offsets_through is None else load_offsets(source, offsets_through),
    )
    store_fork(source, target, plan, {"query_id": query_id})
    finish_fork(target, query_id)
    return query_id


def rebuild(
    batch_id: int, texts: dict[int, str], new: Path, survivors: Path, query_id: str
) -> None:
    source, target = LocalStore(survivors), LocalStore(new)
    plan = plan_rebuild(
        batch_id,
        offsets=texts[batch_id],
        previous=texts.get(batch_id - 1),
        survivors=list_files(source),
    )
    store_fork(source, target, plan, {"query_id": query_id})
    finish_fork(target, query_id)


def texts_of(checkpoint: Path) -> dict[int, str]:
    store = LocalStore(checkpoint)
    return {batch: load_offsets(store, batch) for batch in load_checkpoint(store).offsets}


def count(session: SparkSession, folder: Path) -> DataFrame:
    return streams.read_stream(session, folder).groupBy("key").count()


def join(session: SparkSession, folder: Path) -> DataFrame:
    """Join each row with one of the same or the previous batch: both sides have state."""
    rows = streams.read_stream(session, folder)
    left = rows.selectExpr("id", "timestamp_seconds(id) as t").withWatermark("t", "15 seconds")
    right = rows.selectExpr("id as id2", "timestamp_seconds(id) as t2")
    right = right.withWatermark("t2", "15 seconds")
    return left.join(right, expr("id2 = id - 7 and t >= t2 and t <= t2 + interval 10 seconds"))


def session_for(spark: SparkSession, provider: str) -> SparkSession:
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    for name, value in PROVIDERS[provider].items():
        session.conf.set(name, value)
    return session


@pytest.mark.parametrize(
    ("provider", "plan", "cuts"),
    [
        ("hdfs", count, [(2, 2)]),
        pytest.param("hdfs", count, [(3, 2), (0, None)], marks=pytest.mark.long),
        pytest.param("hdfs", join, [(2, 2)], marks=NIGHT),
        pytest.param("rocksdb", count, [(2, 2), (3, 2), (None, None)], marks=NIGHT),
        pytest.param("rocksdb-v2", count, [(2, 2), (3, 2)], marks=pytest.mark.long),
        ("rocksdb-v2-changelog", count, [(3, 2)]),
    ],
)
def test_a_stateful_query_continues_from_an_earlier_batch(
    spark: SparkSession,
    tmp_path: Path,
    provider: str,
    plan: Callable[[SparkSession, Path], DataFrame],
    cuts: list[tuple[int | None, int | None]],
) -> None:
    streams.deliver(tmp_path, range(FILES))
    session, mode = session_for(spark, provider), "update" if plan is count else "append"
    old = tmp_path / "old"
    undisturbed = run(plan(session, tmp_path), old, output_mode=mode)
    assert all(undisturbed[batch] for batch in (1, 3, 4))

    for number, (offsets, commits) in enumerate(cuts):
        new = tmp_path / f"new-{number}"
        query_id = fork(old, new, offsets, commits)
        went_on = run(plan(session, tmp_path), new, output_mode=mode)

        first = 0 if commits is None else commits + 1
        assert went_on == since(first, undisturbed)
        assert query_id_of(str(new)) == query_id != query_id_of(str(old))
    fork(tmp_path / "new-0", tmp_path / "again", 3, 3)  # a fork can be forked
    assert run(plan(session, tmp_path), tmp_path / "again", output_mode=mode) == since(
        4, undisturbed
    )


def test_of_two_state_files_of_one_version_the_committed_one_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    streams.deliver(tmp_path, range(2))
    session, old = session_for(spark, "rocksdb-v2"), tmp_path / "old"
    first = run(count(session, tmp_path), old, output_mode="update")
    streams.drop_log(old, "commits", 1)
    assert run(count(session, tmp_path), old, output_mode="update") == since(1, first)
    assert len(list(old.glob("state/0/0/2_*.zip"))) == 2
    fork(old, tmp_path / "new", 1, 1)
    streams.deliver(tmp_path, range(2, 3))

    went_on = run(count(session, tmp_path), tmp_path / "new", output_mode="update")
    assert went_on == {2: [("key 0", 10), ("key 1", 10), ("key 2", 10)]}


@pytest.fixture(scope="module")
def logged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Batches]:
    """A query over files whose log was compacted twice, and its batches."""
    folder = tmp_path_factory.mktemp("logged")
    streams.deliver(folder, range(LOGGED))
    return folder, run(streams.read_stream(spark, folder), folder / "checkpoint")


@pytest.mark.long
@pytest.mark.parametrize(
    "through",
    [pytest.param(4, marks=pytest.mark.long), 9, pytest.param(12, marks=pytest.mark.long)],
)
def test_a_file_source_continues_before_at_and_after_a_compaction_of_its_log(
    spark: SparkSession, logged: tuple[Path, Batches], tmp_path: Path, through: int
) -> None:
    folder, undisturbed = logged
    fork(folder / "checkpoint", tmp_path / "new", through, through)

    went_on = run(streams.read_stream(spark, folder), tmp_path / "new")
    assert went_on == since(through + 1, undisturbed)


@pytest.mark.parametrize("batch_id", [pytest.param(4, marks=pytest.mark.long), 12])
def test_a_lost_file_source_continues_with_a_part_of_a_compacted_log(
    spark: SparkSession, logged: tuple[Path, Batches], tmp_path: Path, batch_id: int
) -> None:
    folder, undisturbed = logged
    left = tmp_path / "left"
    shutil.copytree(folder / "checkpoint/sources", left / "sources")
    for entry in range(19):
        (left / f"sources/0/{entry}").unlink(missing_ok=True)
    (left / "sources/0/9.compact").unlink()
    rebuild(
        batch_id,
        texts_of(folder / "checkpoint"),
        tmp_path / "new",
        left,
        "0" * 8 + "-0000" * 3 + "-" + "0" * 12,
    )

    went_on = run(streams.read_stream(spark, folder), tmp_path / "new")
    assert went_on == since(batch_id + 1, undisturbed)


def test_spark_refuses_an_unfinished_checkpoint_and_leaves_it_alone(
    spark: SparkSession, logged: tuple[Path, Batches], tmp_path: Path
) -> None:
    folder, undisturbed = logged
    source, target = LocalStore(folder / "checkpoint"), LocalStore(tmp_path / "new")
    plan = plan_fork(
        load_checkpoint(source),
        offsets_through=20,
        commits_through=20,
        offsets=load_offsets(source, 20),
    )
    store_fork(source, target, plan, {})
    begun = tmp_path / "begun"
    begun.mkdir()
    shutil.copy(tmp_path / "new" / METADATA, begun)
    for left in (tmp_path / "new", begun):
        files = {path: path.read_bytes() for path in left.rglob("*") if path.is_file()}

        with pytest.raises(streams.STOPPED_BY_RIVAL, match=UNFINISHED.decode()):
            run(streams.read_stream(spark, folder), left)
        assert {path: path.read_bytes() for path in left.rglob("*") if path.is_file()} == files

    finish_fork(target, new_query_id(SYSTEM_CLOCK))
    assert run(streams.read_stream(spark, folder), tmp_path / "new") == since(21, undisturbed)


@pytest.mark.long
def test_a_lost_follower_of_a_table_continues_under_its_id(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.dataSource.register(FuseDataSource)
    table = Table.create(str(tmp_path / "table"), pa.schema([("id", pa.int64())]))
    reader = spark.readStream.format("fuse").option("feed", "changes")
    reader = reader.option("startingVersion", 0).option("maxCommitsPerTrigger", 1)
    for number in range(3):
        table.append(pa.table({"id": [number]}))
    frame = reader.load(str(tmp_path / "table")).select("id")
    lost = tmp_path / "lost"
    assert [rows for _, rows in sorted(run(frame, lost).items())][-1] == [(2,)]
    query_id, texts = query_id_of(str(lost)), texts_of(lost)
    last = max(texts)
    assert last > 0
    shutil.rmtree(lost)
    rebuild(last, texts, tmp_path / "new", lost, query_id)
    table.append(pa.table({"id": [3]}))

    assert run(frame, tmp_path / "new") == {last + 1: [(3,)]}
    assert query_id_of(str(tmp_path / "new")) == query_id


def test_a_lost_rate_source_continues_from_its_start_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.readStream.format("rate").option("rowsPerSecond", 3).load().select("value")
    lost = tmp_path / "lost"
    values: list[int] = []

    def take(checkpoint: Path, until: int) -> None:
        def look(df: DataFrame, _batch_id: int) -> None:
            values.extend(row.value for row in df.collect())

        writer = frame.writeStream.foreachBatch(look)
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        deadline = time.monotonic() + 60
        while len(values) < until and time.monotonic() < deadline:
            time.sleep(0.1)
        query.stop()

    take(lost, 6)
    done = max(load_checkpoint(LocalStore(lost)).commits)
    query_id, texts = query_id_of(str(lost)), texts_of(lost)
    left = tmp_path / "left"
    shutil.copytree(lost / "sources", left / "sources")
    shutil.rmtree(lost)
    values[:] = range(3 * int(texts[done].splitlines()[-1]))
    rebuild(done, texts, tmp_path / "new", left, query_id)
    take(tmp_path / "new", len(values) + 3)

    assert sorted(values) == list(range(len(values)))


@pytest.mark.parametrize("provider", ["hdfs", "rocksdb", "rocksdb-v2"])
def test_a_rebuilt_checkpoint_without_its_state_fails_instead_of_counting_from_zero(
    spark: SparkSession, tmp_path: Path, provider: str
) -> None:
    streams.deliver(tmp_path, range(2))
    session = session_for(spark, provider)
    old, left = tmp_path / "old", tmp_path / "left"
    run(count(session, tmp_path), old, output_mode="update")
    shutil.copytree(old / "sources", left / "sources")
    rebuild(1, texts_of(old), tmp_path / "new", left, query_id_of(str(old)))
    streams.deliver(tmp_path, range(2, 3))
    seen: list[int] = []

    said = streams.refusal_of(
        count(session, tmp_path),
        lambda df, batch_id: seen.append(df.count()),
        tmp_path / "new",
        output_mode="update",
    )
    assert seen == []
    assert "STATE" in said
