"""Streams against plain Spark: micro-batches into a table, and the feed of its changes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import fuse_stream as fuse
from benchmarks.batch import noop
from benchmarks.measure import Result, in_turn, percentile, seconds

Sink = Callable[[DataFrame, int], None]
THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
LOG_CLEANUP = "spark.sql.streaming.fileSource.log.cleanupDelay"


def trigger_times(spark: SparkSession, files: Path, sink: Sink, checkpoint: Path) -> list[float]:
    """Stream `files` into `sink`, one per batch; return the milliseconds of every trigger."""
    shutil.rmtree(checkpoint, ignore_errors=True)
    schema = spark.read.parquet(str(next(files.glob("*.parquet")))).schema
    query = (
        spark.readStream.schema(schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(files))
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [
        float(progress["durationMs"]["triggerExecution"])
        for progress in query.recentProgress
        if progress["numInputRows"]
    ]


def plain_sink(folder: Path) -> Sink:
    """Return the sink that people write without a table format."""

    def append(df: DataFrame, _batch_id: int) -> None:
        df.write.mode("append").parquet(str(folder))

    return append


def micro_batches(spark: SparkSession, files: Path, work: Path, *, runs: int) -> list[Result]:
    """Micro-batches of 2,000 rows into a table and into a folder of Parquet files.

    Each has a warm-up run first: Spark needs hundreds of batches to get fast.
    The optimizer is off: this measures the sink; `optimiser` measures the optimizer.
    """
    table, plain = work / "stream", work / "stream_plain"
    ours: list[list[float]] = []
    theirs: list[list[float]] = []
    for _ in range(1 + runs):
        shutil.rmtree(table, ignore_errors=True)
        shutil.rmtree(plain, ignore_errors=True)
        sink = fuse.fuse_sink(str(table), optimize="off")
        ours.append(trigger_times(spark, files, sink, work / "ck"))
        theirs.append(trigger_times(spark, files, plain_sink(plain), work / "ck_plain"))
    our_times, their_times = (list(chain(*times[1:])) for times in (ours, theirs))
    count = len(ours[0])
    against = 'foreachBatch with df.write.mode("append").parquet'
    return [
        Result(
            work=f"micro-batch of 2,000 rows, trigger p50 over {count} batches, {runs} runs",
            against=against,
            ours=our_times,
            theirs=their_times,
            limit=0.85,
            unit="ms",
        ),
        Result(
            work="the same, p99",
            against=against,
            ours=[percentile(our_times, 99)],
            theirs=[percentile(their_times, 99)],
            unit="ms",
        ),
    ]


def long_stream(spark: SparkSession, files: Path, work: Path) -> list[Result]:
    """One query over thousands of micro-batches: its last ones against its first ones.

    The optimizer is off, so that the table grows.
    """
    table = work / "stream_long"
    shutil.rmtree(table, ignore_errors=True)
    sink = fuse.fuse_sink(str(table), optimize="off")
    in_sink: list[float] = []

    def timed(df: DataFrame, batch_id: int) -> None:
        in_sink.append(1000 * seconds(partial(sink, df, batch_id)))

    # Spark's file source keeps a file a batch for ten minutes and lists them all in every trigger:
    # at five batches a second that alone takes 60 ms more after 2,400 batches.
    delay = spark.conf.get(LOG_CLEANUP)
    spark.conf.set(LOG_CLEANUP, "10s")
    times = trigger_times(spark, files, timed, work / "ck_long")
    spark.conf.set(LOG_CLEANUP, str(delay))
    last = len(times)
    return [
        Result(
            work=f"batches {last - 100:,}-{last:,} of one query, {kind}",
            against="batches 100-200",
            ours=samples[-100:],
            theirs=samples[100:200],
            limit=1.15,
            unit="ms",
        )
        for kind, samples in (("trigger", times), ("in the sink", in_sink))
    ]


def feed(spark: SparkSession, files: list[Path], work: Path, *, runs: int) -> list[Result]:
    """Read the changes of one commit a file as a stream, and the same files as a batch."""
    table = work / "followed"
    shutil.rmtree(table, ignore_errors=True)
    handle = fuse.Table.create(table, pq.read_schema(files[0]))
    for file in files:
        handle.append(pq.read_table(file))
    paths = [str(file) for file in files]

    def ours() -> None:
        checkpoint = work / "ck_feed"
        shutil.rmtree(checkpoint, ignore_errors=True)
        (
            spark.readStream.format("fuse")
            .option("feed", "changes")
            .option("startingVersion", 0)  # commit by commit, not the table as it is
            .load(str(table))
            .writeStream.format("noop")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    def theirs() -> None:
        noop(spark.read.parquet(*paths))

    work_name = f"change feed, AvailableNow over {len(files):,} commits of 2,000 rows"
    against = "spark.read.parquet of the same files"
    samples = in_turn(ours, theirs, runs=runs)
    default = spark.conf.get(THRESHOLD)
    spark.conf.set(THRESHOLD, str(len(files) + 1))
    theirs()
    raised = [seconds(theirs) for _ in range(runs)]
    spark.conf.set(THRESHOLD, str(default))
    return [
        Result(
            work=work_name,
            against=f"{against}, Spark's defaults",
            ours=samples[0],
            theirs=samples[1],
            limit=1.0,
        ),
        Result(
            work=work_name,
            against=f"{against}, discovery threshold raised",
            ours=samples[0],
            theirs=raised,
        ),
    ]
