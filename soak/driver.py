"""A Spark driver of the soak: `python -m soak.driver <folder> <name>`, a writer or a follower.

It ends by itself when the supervisor announces the end and all rows have been read.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import fuse_stream as fuse
from soak.places import SLOW, WRITERS, Places, Settings, write_whole
from soak.tally import changes_of, store_batch

HEAP = "512m"
HEAP_EVERY_S = 20.0
PROMPT = "1 second"


def main() -> None:
    """Run the stream of this name until the supervisor ends it."""
    places, name = Places(Path(sys.argv[1])), sys.argv[2]
    settings = places.load_settings()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("fuse_stream").setLevel(logging.INFO)
    spark = _session(places, name)
    threading.Thread(target=_watch_heap, args=(spark, places, name), daemon=True).start()
    if name in WRITERS:
        _drain(_write(spark, places, settings, name), places.no_more_rows)
    else:
        every = f"{settings.slow_s} seconds" if name == SLOW else PROMPT
        consumer = name if name == SLOW or settings.killed_has_lease else None
        query = _follow(spark, places, name, every, consumer)
        _wait(query, places.no_more_commits)
        query.stop()  # it may sleep for minutes; a restart continues from its checkpoint
        _drain(_follow(spark, places, name, PROMPT, consumer), places.no_more_commits)
    spark.stop()


def _write(spark: SparkSession, places: Places, settings: Settings, name: str) -> StreamingQuery:
    schema = fuse.read(spark, str(places.table)).schema
    # Otherwise every batch lists all files since the start.
    files = spark.readStream.schema(schema).option("cleanSource", "delete")
    rows = files.option("maxFileAge", "1h").parquet(str(places.source(name)))
    sink = fuse.fuse_sink(str(places.table), app_id=name, optimize="off")
    return _start(rows, sink, places, name, f"{settings.beat_s / 2} seconds")


def _follow(
    spark: SparkSession, places: Places, name: str, every: str, consumer: str | None
) -> StreamingQuery:
    table = fuse.Table.open(places.table)
    schema = table.head().schema
    reader = spark.readStream.format("fuse").option("feed", "changes")
    if consumer is not None:
        reader = reader.option("consumer", consumer)

    def note(batch: DataFrame, batch_id: int) -> None:
        store_batch(places.feed(name), batch_id, changes_of(batch.toArrow(), schema))
        # Memory that Arrow's pool keeps for the next batch is not growth.
        pa.default_memory_pool().release_unused()

    return _start(reader.load(str(places.table)), note, places, name, every)


def _start(rows: DataFrame, sink: Any, places: Places, name: str, every: str) -> StreamingQuery:
    query = rows.writeStream.queryName(name).foreachBatch(sink)
    query = query.option("checkpointLocation", str(places.checkpoint(name)))
    return query.trigger(processingTime=every).start()


def _wait(query: StreamingQuery, sign: Path) -> None:
    """Wait for the announced end.

    Raises:
        StreamingQueryException: the query failed meanwhile.
    """
    while not sign.exists():
        if not query.isActive:
            query.awaitTermination()  # raises the query's error
            raise RuntimeError("the query ended by itself")
        time.sleep(0.5)


def _drain(query: StreamingQuery, sign: Path) -> None:
    _wait(query, sign)
    query.processAllAvailable()
    query.stop()


def _watch_heap(spark: SparkSession, places: Places, name: str) -> None:
    """Record at intervals what the JVM's heap holds after a collection: a leak shows there."""
    jvm: Any = spark._jvm  # noqa: SLF001 - pyspark offers no public way
    heap = jvm.java.lang.management.ManagementFactory.getMemoryMXBean()
    while True:
        time.sleep(HEAP_EVERY_S)
        jvm.java.lang.System.gc()
        write_whole(places.heap(name), str(heap.getHeapMemoryUsage().getUsed()))


def _session(places: Places, name: str) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    scratch = places.scratch / name
    scratch.mkdir(parents=True, exist_ok=True)
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",  # a container's own host name may not resolve
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": HEAP,
        # No page is touched ahead: memory that is flat because all of it was allocated at once
        # would hide a leak. And the heap shrinks when it is cleaned, so that what is resident
        # tells what is in use.
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch} -XX:-UsePerfData "
        "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=20",
        "spark.local.dir": str(scratch),
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        # Spark's UI data grows for a thousand batches, and is not judged here.
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "200",
        "spark.sql.ui.retainedExecutions": "20",
        "spark.sql.streaming.numRecentProgressUpdates": "2",
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName(f"soak {name}")
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    main()
