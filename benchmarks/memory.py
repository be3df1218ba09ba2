"""The peak memory of writing: of each Python process and of the driver's JVM."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import Result

GIB = 1024**3
_SESSION = """
import sys
from pyspark.sql import SparkSession
import fuse_stream as fuse
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
"""
_APPEND = (
    _SESSION
    + """
rows = spark.read.parquet(sys.argv[2])
for _ in range(int(sys.argv[3]) - 1):
    rows = rows.unionAll(spark.read.parquet(sys.argv[2]))
fuse.write(rows, sys.argv[1])
"""
)
_LARGE_AFTER_TINY = (
    _SESSION
    + """
source = spark.readStream.schema("text string").option("maxFilesPerTrigger", 1)
sink = fuse.fuse_sink(sys.argv[1], optimize="off")
query = (source.parquet(sys.argv[2]).writeStream.foreachBatch(sink)
         .option("checkpointLocation", sys.argv[1] + "_checkpoint")
         .trigger(availableNow=True).start())
query.awaitTermination()
print("ROWS", fuse.Table.open(sys.argv[1]).head().summary.row_count)
"""
)


def append(rows: Path, work: Path, *, times: int) -> list[Result]:
    """Append the rows `times` times in one commit."""
    peaks, _ = _run(_APPEND, str(work / f"memory_{os.getpid()}"), str(rows), str(times))
    return _results(f"append of {times} times 5.05M rows", peaks)


def large_after_tiny(work: Path, *, tiny: int) -> list[Result]:
    """Stream a batch of 2 GiB after many tiny ones."""
    source = work / "large_after_tiny"
    rows = _write_source(source, tiny)
    peaks, output = _run(_LARGE_AFTER_TINY, str(work / f"large_{os.getpid()}"), str(source))
    landed = int(output.split("ROWS")[1].split()[0])
    if landed != rows:
        raise RuntimeError(f"{landed} of {rows} rows landed")
    return _results(f"a batch of 2 GiB after {tiny} tiny ones", peaks)


def _write_source(source: Path, tiny: int) -> int:
    source.mkdir(parents=True, exist_ok=True)
    for old in source.glob("*.parquet"):
        old.unlink()
    moment = time.time() - 3600
    for number in range(tiny):
        file = source / f"{number:05}.parquet"
        pq.write_table(pa.table({"text": ["a few words"] * 10}), file)
        os.utime(file, (moment + number, moment + number))
    large = source / "large.parquet"
    chunk = pa.table({"text": [f"{number:08}" * 128 for number in range(65_536)]})
    with pq.ParquetWriter(large, chunk.schema) as writer:
        for _ in range(32):
            writer.write_table(chunk)
    os.utime(large, (moment + tiny, moment + tiny))
    return tiny * 10 + 32 * len(chunk)


def _run(script: str, *args: str) -> tuple[dict[str, int], str]:
    """Run a driver; return the largest resident set of its JVM and of any Python process."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    driver = subprocess.Popen(
        [sys.executable, "-c", script, *args],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    peaks = {"python": 0, "java": 0}
    watcher = threading.Thread(target=_watch, args=(driver, peaks))
    watcher.start()
    output = driver.communicate()[0]
    watcher.join()
    if driver.returncode:
        raise RuntimeError(f"the driver ended with {driver.returncode}")
    return peaks, output


def _watch(driver: subprocess.Popen[str], peaks: dict[str, int]) -> None:
    root = psutil.Process(driver.pid)
    while driver.poll() is None:
        try:
            for process in [root, *root.children(recursive=True)]:
                kind = "java" if "java" in process.name() else "python"
                peaks[kind] = max(peaks[kind], process.memory_info().rss)
        except psutil.Error:
            pass  # a process that has just ended takes no memory
        time.sleep(0.1)


def _results(work: str, peaks: dict[str, int]) -> list[Result]:
    bounds = {"python": 1.5, "java": 2.0}
    names = {"python": "largest Python process", "java": "driver JVM"}
    return [
        Result(
            work=f"{work}: {names[kind]}",
            against=f"{bound} GiB",
            ours=[peaks[kind] / GIB],
            theirs=[bound],
            limit=1.0,
            unit="GiB",
        )
        for kind, bound in bounds.items()
    ]
