"""The Spark driver of the CDC demo, which gets killed. Started by cdc.py.

Three queries, each with a checkpoint: Debezium's messages into bronze, bronze's changes into
silver, and silver's changes into gold.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import fuse_stream as fuse
from demo.cdc_topic import KAFKA, UNIT
from demo.driver import wait_at_gate
from demo.places import Places, batch_of
from demo.session import start_session
from fuse_stream.errors import NotFoundError

ORDERS = (
    "id bigint, customer int, status string, amount_cents bigint, note string, updated_at timestamp"
)
CENTS_A_EURO = 100
RIGHT, WRONG = "right", "wrong"
"""The code of bronze. The wrong one takes the cents for euros."""
_RESTARTS = 3
MENDING = 0
"""Round 0 does not exist: its gate is where the driver waits before it mends the quarantine."""


def main() -> None:
    """Stream all rounds into the three tables, then mend the quarantine if that is asked for."""
    places, checkpoints, code = Places(Path(sys.argv[1])), Path(sys.argv[2]), sys.argv[3]
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("fuse_stream").setLevel(logging.INFO)
    spark = start_session(places.scratch)
    mends = places.hold(MENDING).exists()
    bronze = start_bronze(spark, places, checkpoints / "bronze", code)
    tables = places.root / "tables"
    wait_for(tables / "bronze", bronze)
    silver = started(lambda: start_silver(spark, tables, checkpoints / "silver"))
    wait_for(tables / "silver", silver)
    gold = started(lambda: start_gold(spark, tables, checkpoints / "gold"))
    bronze.awaitTermination()
    for follower in (silver, gold):
        follower.processAllAvailable()
    if mends:
        wait_at_gate(places, batch_of(MENDING))
        mend(spark, tables / "bronze")
        for follower in (silver, gold):
            follower.processAllAvailable()
    for follower in (silver, gold):
        follower.stop()
    spark.stop()


def started(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query, again if the machine is too busy: Spark gives it ten seconds."""
    query = start()
    for _ in range(_RESTARTS):
        while query.isActive and query.status["message"].startswith("Initializing"):
            time.sleep(0.1)
        if "failed to connect back" not in str(query.exception()):
            break
        query = start()
    return query


def start_bronze(
    spark: SparkSession, places: Places, checkpoint: Path, code: str
) -> StreamingQuery:
    """Start the first query: the latest state of each order. A file is a micro-batch."""
    kafka = spark.readStream.schema(KAFKA).option("maxFilesPerTrigger", 1)
    orders = read_orders(kafka.parquet(str(places.source)))
    if code == WRONG:
        orders = orders.withColumn("amount_cents", f.col("amount_cents") * CENTS_A_EURO)
    path = places.root / "tables" / "bronze"
    sink = fuse.fuse_sink(str(path), mode="upsert", keys=["id"], app_id="bronze")

    def land(batch: DataFrame, batch_id: int) -> None:
        sink(batch, batch_id)
        wait_at_gate(places, batch_id)

    writer = orders.writeStream.queryName("bronze").foreachBatch(land)
    writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def start_silver(spark: SparkSession, tables: Path, checkpoint: Path) -> StreamingQuery:
    """Start the second query: real orders, in euros, with one spelling of each status."""
    status = f.lower(f.trim("status")).alias("status")
    amount = (f.col("amount_cents") / CENTS_A_EURO).cast("decimal(12, 2)").alias("amount")
    changes = follow(spark, tables / "bronze")
    orders = changes.select(
        "id", "customer", status, amount, "_change_type", "_commit_version"
    ).where("status <> 'test'")  # an update may also make an order a test: its old image goes
    sink = fuse.fuse_sink(str(tables / "silver"), mode="upsert", keys=["id"], app_id="silver")
    writer = fuse.from_changes(orders).writeStream.queryName("silver").foreachBatch(sink)
    writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.trigger(processingTime="500 milliseconds").start()


def start_gold(spark: SparkSession, tables: Path, checkpoint: Path) -> StreamingQuery:
    """Start the third query: what each customer has ordered."""
    sign = f.when(f.col("_change_type").isin("insert", "update_postimage"), 1).otherwise(-1)
    totals = (
        follow(spark, tables / "silver")
        .groupBy("customer")
        .agg(
            f.sum(sign).alias("orders"),
            f.sum(sign * f.col("amount")).cast("decimal(14, 2)").alias("amount"),
        )
    )
    sink = fuse.fuse_sink(str(tables / "gold"), mode="upsert", keys=["customer"], app_id="gold")
    writer = totals.writeStream.queryName("gold").outputMode("update").foreachBatch(sink)
    writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.trigger(processingTime="500 milliseconds").start()


def read_orders(messages: DataFrame) -> DataFrame:
    """Return the events in Debezium's messages."""
    return fuse.from_debezium(messages, ORDERS, keys=["id"], time_precision="us")


def follow(spark: SparkSession, table: Path) -> DataFrame:
    """Return the changes of a table as a stream, a commit a micro-batch."""
    reader = spark.readStream.format("fuse").option("feed", "changes")
    reader = reader.option("startingVersion", 1).option("maxCommitsPerTrigger", 1)
    return reader.load(str(table))


def wait_for(table: Path, query: StreamingQuery) -> None:
    """Wait until the first batch of a query is in its table, which the next query reads."""
    while query.isActive and rounds_in(table) == 0:
        time.sleep(0.1)
    if error := query.exception():
        raise error


def rounds_in(table: Path) -> int:
    """Return how many batches the query of a table has brought."""
    try:
        entries = fuse.Table.open(table).head().ledger.entries
    except NotFoundError:
        return 0
    return max((entry.batch_id + 1 for entry in entries.values()), default=0)


def mend(spark: SparkSession, bronze: Path) -> None:
    """Apply the orders of the old program, whose texts are in the quarantine.

    This is safe at any time: an order that has changed since keeps its later state.
    """
    kept = fuse.read(spark, str(bronze), side="quarantine").where(f.col("raw").contains(UNIT))
    place = f.split("source", "/")
    texts = kept.select(
        f.regexp_replace("raw", f'"(\\d+){UNIT}"', "$1").alias("value"),
        place[0].alias("topic"),
        place[1].cast("int").alias("partition"),
        place[2].cast("bigint").alias("offset"),
    )
    message = "orders of the old program, mended"
    fuse.write(read_orders(texts), str(bronze), mode="upsert", keys=["id"], message=message)


if __name__ == "__main__":
    main()
