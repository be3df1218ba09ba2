"""The native stream against Spark's own stream of Parquet files."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import fuse_stream as fuse
from benchmarks.batch import noop
from benchmarks.measure import Result, in_turn
from benchmarks.streams import THRESHOLD

COLUMN = "distance"
"""The one column that is read of a wide table."""
WARM_UP = 10
"""Commits that a follower gets before the first one that is timed."""
PATIENCE_S = 60


def scans(spark: SparkSession, files: Path, work: Path, *, runs: int) -> list[Result]:
    """A first batch of a whole table, against a first batch of the same files."""
    paths = sorted(files.glob("*.parquet"))
    table = _commits(work / "native_rows", paths)
    schema = spark.read.parquet(str(paths[0])).schema
    row_count = sum(pq.read_metadata(path).num_rows for path in paths)

    def ours() -> DataFrame:
        return fuse.read_stream(spark, table, feed="append")

    def theirs() -> DataFrame:
        return spark.readStream.schema(schema).parquet(str(files))

    views: dict[str, Callable[[DataFrame], DataFrame]] = {
        "all columns": lambda df: df,
        "one column": lambda df: df.select(COLUMN),
        "no column": lambda df: df.selectExpr("1 AS one"),
    }
    results = []
    for name, view in views.items():
        samples = in_turn(
            lambda view=view: _drain(view(ours()), work / "ck_native"),  # type: ignore[misc]
            lambda view=view: _drain(view(theirs()), work / "ck_parquet"),  # type: ignore[misc]
            runs=runs,
        )
        results.append(
            Result(
                work=f"native stream, AvailableNow over {row_count:,} rows, {name}",
                against="Spark's stream of the same Parquet files",
                ours=samples[0],
                theirs=samples[1],
                limit=1.15,
            )
        )
    return results


def many_commits(spark: SparkSession, files: Sequence[Path], work: Path, *, runs: int) -> Result:
    """The changes of one commit a file as a stream, against a batch read of the same files."""
    table = _commits(work / "native_commits", files)
    paths = [str(file) for file in files]
    default = spark.conf.get(THRESHOLD)
    spark.conf.set(THRESHOLD, str(len(files) + 1))
    try:
        samples = in_turn(
            lambda: _drain(
                fuse.read_stream(spark, table, feed="changes", starting_version=0),
                work / "ck_native",
            ),
            lambda: noop(spark.read.parquet(*paths)),
            runs=runs,
        )
    finally:
        spark.conf.set(THRESHOLD, str(default))
    return Result(
        work=f"native stream, AvailableNow over {len(files):,} commits of 2,000 rows",
        against="spark.read.parquet of the same files, discovery threshold raised",
        ours=samples[0],
        theirs=samples[1],
        limit=1.5,
    )


def latency(spark: SparkSession, files: Sequence[Path], work: Path, *, count: int) -> Result:
    """The time from a commit of 2,000 rows to the end of its batch in a running query."""
    table, folder = work / "native_followed", work / "native_source"
    for path in (table, folder):
        shutil.rmtree(path, ignore_errors=True)
    folder.mkdir(parents=True)
    handle = fuse.Table.create(table, pq.read_schema(files[0]))
    schema = spark.read.parquet(str(files[0])).schema
    followers = [
        _Follower(fuse.read_stream(spark, table, feed="append"), work / "ck_native"),
        _Follower(spark.readStream.schema(schema).parquet(str(folder)), work / "ck_parquet"),
    ]
    samples: tuple[list[float], list[float]] = [], []
    try:
        for number in range(WARM_UP + count):
            rows = pq.read_table(files[number % len(files)])
            for follower in followers:
                follower.forget()
            handle.append(rows)
            ours = followers[0].wait_for_batch()
            hidden = folder / f".{number}"
            pq.write_table(rows, hidden)
            hidden.rename(folder / f"{number:05}.parquet")
            theirs = followers[1].wait_for_batch()
            if number >= WARM_UP:
                samples[0].append(1000 * ours)
                samples[1].append(1000 * theirs)
    finally:
        for follower in followers:
            follower.query.stop()
    return Result(
        work=f"native stream, from a commit of 2,000 rows to the end of its batch, p50 of {count}",
        against="Spark's stream of Parquet files, from a new file on",
        ours=samples[0],
        theirs=samples[1],
        unit="ms",
    )


class _Follower:
    """A running query that tells when a batch with rows has ended."""

    def __init__(self, frame: DataFrame, checkpoint: Path) -> None:
        shutil.rmtree(checkpoint, ignore_errors=True)
        self._is_done = threading.Event()
        self.query: StreamingQuery = (
            frame.writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(checkpoint))
            .start()
        )

    def _take(self, frame: DataFrame, _batch_id: int) -> None:
        noop(frame)
        self._is_done.set()

    def forget(self) -> None:
        """Let a batch that has ended not count; the first one of a query may have no rows."""
        self._is_done.clear()

    def wait_for_batch(self) -> float:
        """Return the seconds from now to the end of the next batch."""
        start = time.perf_counter()
        if not self._is_done.wait(PATIENCE_S):
            raise TimeoutError(f"no batch in {PATIENCE_S} s: {self.query.exception()}")
        return time.perf_counter() - start


def _commits(folder: Path, files: Sequence[Path]) -> Path:
    """Make a table with one commit a file."""
    shutil.rmtree(folder, ignore_errors=True)
    handle = fuse.Table.create(folder, pq.read_schema(files[0]))
    for file in files:
        handle.append(pq.read_table(file))
    return folder


def _drain(frame: DataFrame, checkpoint: Path) -> None:
    """Run a new query over all that a stream has."""
    shutil.rmtree(checkpoint, ignore_errors=True)
    (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
