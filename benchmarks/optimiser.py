"""The cost of the optimizer for its stream, and its gain for readers."""

from __future__ import annotations

import os
import shutil
import time
from functools import partial
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, SparkSession

import fuse_stream as fuse
from benchmarks.batch import noop
from benchmarks.measure import Result, in_turn, percentile
from benchmarks.streams import LOG_CLEANUP, Sink, trigger_times
from fuse_stream.optimizer import sidecar

SETTLED_S = 120.0
"""How long the optimizer may compact after the end of the stream."""


def beside_a_stream(
    spark: SparkSession, files: Path, work: Path, *, warm_up: int, runs: int
) -> list[Result]:
    """Micro-batches of 2,000 rows with the optimizer on and off; then a scan of the table.

    The optimizer's process is pinned to one core. Batches before `warm_up` do not count: it takes
    Spark hundreds of them to get fast.
    """
    on, off, whole = (work / f"optimised_{name}" for name in ("on", "off", "whole"))
    delay = spark.conf.get(LOG_CLEANUP)
    spark.conf.set(LOG_CLEANUP, "10s")  # otherwise each trigger lists thousands of files
    times = {}
    for table, optimize in ((off, "off"), (on, "auto")):
        shutil.rmtree(table, ignore_errors=True)
        sink = pinned(fuse.fuse_sink(str(table), optimize=optimize))
        checkpoint = work / f"ck_{table.name}"
        times[optimize] = trigger_times(spark, files, sink, checkpoint)[warm_up:]
    spark.conf.set(LOG_CLEANUP, str(delay))
    settle(on)
    sidecar.stop()
    shutil.rmtree(whole, ignore_errors=True)
    fuse.write(spark.read.parquet(str(files)), str(whole))
    stats = fuse.Table.open(on).stats()
    scans = in_turn(
        partial(scan, spark, on),
        partial(scan, spark, whole),
        runs=runs,
    )
    count = len(times["auto"])
    return [
        Result(
            work=f"micro-batch of 2,000 rows, trigger p{percent} over {count:,}, optimiser on",
            against="the same, off",
            ours=[percentile(times["auto"], percent)],
            theirs=[percentile(times["off"], percent)],
            limit=limit,
            unit="ms",
        )
        for percent, limit in ((50, 1.1), (99, 1.5))
    ] + [
        Result(
            work="scan of the table that they made, optimiser on",
            against="the same rows written in one batch",
            ours=scans[0],
            theirs=scans[1],
            limit=1.2,
            note=f"{stats.block_count} blocks after {stats.compaction.commit_count} compactions "
            "among the newest 1,000 versions",
        )
    ]


def pinned(sink: Sink) -> Sink:
    """Return `sink`; the optimizer that it starts runs on the last core only."""
    seen: set[int] = set()

    def deliver(df: DataFrame, batch_id: int) -> None:
        sink(df, batch_id)
        pid = sidecar.process_id()
        if pid is not None and pid not in seen:
            psutil.Process(pid).cpu_affinity([max(os.sched_getaffinity(0))])
            seen.add(pid)

    return deliver


def settle(table: Path) -> None:
    """Wait until the optimizer has nothing more to do."""
    handle = fuse.Table.open(table)
    end_s = time.monotonic() + SETTLED_S
    while time.monotonic() < end_s and handle.stats().imperfect_block_count >= 25:
        time.sleep(1)


def scan(spark: SparkSession, table: Path) -> None:
    """Read all columns."""
    noop(fuse.read(spark, str(table)))
