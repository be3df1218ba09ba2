"""The Spark driver of the demo, which gets killed. Started by run.py, with the run's folder.

Two streams: the flights into a table, and the table's changes into a summary by carrier.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import fuse_stream as fuse
from demo.places import Places, week_of
from demo.session import start_session


def main() -> None:
    """Stream all weeks that are not yet in the table, then end."""
    places = Places(Path(sys.argv[1]))
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("fuse_stream").setLevel(logging.INFO)
    spark = start_session(places.scratch)
    flights = land_flights(spark, places)
    while flights.isActive and flights.lastProgress is None:
        time.sleep(0.1)  # the first batch makes the table that the second stream reads
    if error := flights.exception():
        raise error
    delays = follow_changes(spark, places)
    flights.awaitTermination()
    delays.processAllAvailable()
    delays.stop()
    spark.stop()


def land_flights(spark: SparkSession, places: Places) -> StreamingQuery:
    """Start the main stream: a file is a micro-batch."""
    schema = spark.read.parquet(str(places.source)).schema
    weeks = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    sink = fuse.fuse_sink(str(places.flights))

    def land(batch: DataFrame, batch_id: int) -> None:
        sink(batch, batch_id)
        batch.write.mode("append").parquet(str(places.plain))  # the control: what Spark offers
        wait_at_gate(places, batch_id)

    return (
        weeks.parquet(str(places.source))
        .writeStream.queryName("flights")
        .foreachBatch(land)
        .option("checkpointLocation", str(places.flights_checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def follow_changes(spark: SparkSession, places: Places) -> StreamingQuery:
    """Start the second stream: delays by carrier, from what each commit added and removed."""
    change = f.when(f.col("_change_type").isin("insert", "update_postimage"), 1).otherwise(-1)
    delay = f.col("dep_delay")
    summary = (
        spark.readStream.format("fuse")
        .option("feed", "changes")
        .load(str(places.flights))
        .groupBy("carrier")
        .agg(
            f.sum(change).alias("flights"),
            f.sum(f.when(delay.isNotNull(), change)).alias("departed"),
            f.sum(change * delay).alias("delay_minutes"),
        )
    )
    return (
        summary.writeStream.queryName("delays")
        .outputMode("complete")
        .foreachBatch(fuse.fuse_sink(str(places.delays), mode="overwrite"))
        .option("checkpointLocation", str(places.delays_checkpoint))
        .trigger(processingTime="2 seconds")
        .start()
    )


def wait_at_gate(places: Places, batch_id: int) -> None:
    """Wait here, after all writes and before Spark notes the batch, if the parent asked for it."""
    week, parent = week_of(batch_id), os.getppid()
    if places.hold(week).exists():
        places.held(week).touch()
    while places.hold(week).exists() and os.getppid() == parent:
        time.sleep(0.05)


if __name__ == "__main__":
    main()
