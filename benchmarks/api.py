"""The Python API without Spark, and the cost of the format's first use in Spark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pyarrow as pa

from benchmarks.measure import Result, percentile, seconds
from fuse_stream.table.handle import Table

_FIRST_USE = """
import sys, time
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(10).write.format("noop").mode("overwrite").save()
for _ in range(2):
    start = time.perf_counter()
    spark.read.format("fuse").load(sys.argv[1]).schema
    print("FIRST", time.perf_counter() - start)
"""


def commits(flights: pa.Table, work: Path, *, count: int) -> list[Result]:
    """Append 1,000 rows at a time: the time of one commit, and its growth."""
    folder = work / "api"
    shutil.rmtree(folder, ignore_errors=True)
    table = Table.create(folder, flights.schema)
    batches = [flights.slice(start, 1000) for start in range(0, len(flights) - 1000, 1000)]
    times = [
        seconds(partial(table.append, batches[at % len(batches)])) * 1000 for at in range(count)
    ]
    bounded = count > 200
    return [
        Result(
            work=f"one commit of the Python API, 1,000 rows, {count:,} commits",
            against="-",
            ours=times,
            unit="ms",
            note=f"p99 {percentile(times, 99):.1f} ms",
        ),
        Result(
            work=f"commits {count - 100:,}-{count:,}",
            against="commits 100-200",
            ours=times[-100:],
            theirs=times[100:200],
            limit=1.2 if bounded else None,
            unit="ms",
        ),
    ]


def first_use(work: Path, *, runs: int) -> list[Result]:
    """Start a new Spark and use the format for the first and for the second time."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    samples: list[list[float]] = []
    for _ in range(runs):
        output = subprocess.run(
            [sys.executable, "-c", _FIRST_USE, str(work / "scanned")],
            check=True,
            capture_output=True,
            text=True,
            env=environment,
        ).stdout
        samples.append(
            [float(line.split()[1]) for line in output.splitlines() if line.startswith("FIRST")]
        )
    return [
        Result(
            work='first use of format("fuse") in a session',
            against="the second use",
            ours=[sample[0] for sample in samples],
            theirs=[sample[1] for sample in samples],
        )
    ]
