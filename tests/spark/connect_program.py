"""What a user of Spark Connect does: `python -m tests.spark.connect_program <folder>`.

Prints one JSON object: the error of each step, empty where it succeeded.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import fuse_stream as fuse
from tests.spark import conftest, streams


def read_by_conditions(spark: SparkSession, path: str, step: Callable[..., None]) -> None:
    def ids(where: str) -> list[int]:
        return [row.id for row in fuse.read(spark, path, where=where, columns=["id"]).collect()]

    step("rows by a function", lambda: ids("length(key) = 5 AND id >= 28"))
    step("a broken where", lambda: ids("id >"))
    spark.conf.set("spark.sql.ansi.enabled", "false")
    step("rows outside ANSI mode", lambda: ids("id IN ('25.0', 26, 'x')"))
    spark.conf.unset("spark.sql.ansi.enabled")


def read_left_rows(spark: SparkSession, path: str, step: Callable[..., None]) -> None:
    read_events(spark, step)
    retry_messages(spark, f"{path}-events", step)
    fuse.write(spark.range(10), path)
    fuse.Table.open(path).delete("id IN (0, 3, 9)")
    step("rows that are left", lambda: fuse.read(spark, path).collect())
    step(
        "rows that are left, by a condition",
        lambda: fuse.read(spark, path, where="6 div id > 1").collect(),
    )


def read_events(spark: SparkSession, step: Callable[..., None]) -> None:
    message = '{"op":"c","after":{"id":7},"source":{"connector":"postgresql","lsn":5}}'
    kafka = spark.createDataFrame([(message.encode(),)], "value binary")
    events = fuse.from_debezium(kafka, "id bigint", keys=["id"]).select("id", "_op", "_error")
    step("change events", lambda: [list(row) for row in events.collect()])


def retry_messages(spark: SparkSession, path: str, step: Callable[..., None]) -> None:
    message = '{"op":"c","after":{"id":7},"source":{"connector":"postgresql","lsn":5}'
    kafka = spark.createDataFrame(
        [(message.encode(), "t", 0, 3)], "value binary, topic string, partition int, offset bigint"
    )
    fuse.write(fuse.from_debezium(kafka, "id bigint"), path, mode="upsert", keys=["id"])

    def mended(df: DataFrame) -> DataFrame:
        texts = df.selectExpr(
            "concat(CAST(value AS STRING), '}') AS value", "topic", "partition", "offset"
        )
        return fuse.from_debezium(texts, "id bigint")

    step("messages that are read again", lambda: fuse.retry(spark, path, mended).inserted)


def main() -> None:
    folder = Path(sys.argv[1])
    builder: Any = SparkSession.builder.remote("local[2]")
    for name, value in conftest.SETTINGS.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    told: dict[str, object] = {}

    def step(name: str, work: Callable[[], object]) -> None:
        try:
            told[name] = work() or ""
        except (PySparkException, fuse.FuseError) as error:
            told[name] = str(error)

    def stream(scenario: Path, **options: Any) -> None:
        sink = fuse.fuse_sink(str(folder / "table"), **options)
        streams.run(streams.read_stream(spark, scenario), sink, scenario / "checkpoint")

    odd = spark.range(3).selectExpr("id AS `a.b`", "id AS `we``ird`")
    first, second = folder / "first", folder / "second"
    known = {"app_id": "connected", "checkpoint": str(first / "checkpoint")}
    streams.deliver(first, range(2))
    step("a stream", lambda: stream(first, **known))
    streams.drop_log(first / "checkpoint", "commits", 1)
    streams.deliver(first, range(2, 3))
    step("after a lost commit", lambda: stream(first, **known))
    streams.deliver(second, range(3, 4))
    step("no app_id", lambda: stream(second, checkpoint=str(second / "checkpoint")))
    step("no checkpoint", lambda: stream(second, app_id="second"))
    elsewhere = {"app_id": "second", "checkpoint": str(folder / "nothing here")}
    step("a wrong checkpoint", lambda: stream(second, **elsewhere))
    step("rows", lambda: fuse.read(spark, str(folder / "table"), where="id >= 25").collect())
    read_by_conditions(spark, str(folder / "table"), step)
    step("write odd", lambda: fuse.write(odd, str(folder / "odd")).version)
    step("write", lambda: fuse.write(spark.range(3), str(folder / "written")).version)
    for _ in range(3):
        fuse.write(spark.range(2), str(folder / "packed"))
    step("compact", lambda: fuse.compact(spark, str(folder / "packed")).blocks_before)
    read_left_rows(spark, str(folder / "deleted"), step)
    kept = folder / "kept"
    fuse.Table.create(
        kept / "table",
        pa.schema([("id", pa.int64()), ("key", pa.string())]),
        properties={"fuse.optimize.blocks": "4"},
    )
    streams.deliver(kept, range(6))
    sink = fuse.fuse_sink(
        str(kept / "table"), app_id="kept", checkpoint=str(kept / "checkpoint"), optimize="auto"
    )
    step("a kept stream", lambda: wait_for_compaction(spark, sink, kept))
    print(json.dumps(told, default=list))  # noqa: T201 - the test reads it
    spark.stop()


def wait_for_compaction(spark: SparkSession, sink: streams.BatchFunction, kept: Path) -> int:
    """Return the number of blocks after a compaction, while a query waits for more rows."""
    writer = streams.read_stream(spark, kept).writeStream.foreachBatch(sink)
    query = writer.option("checkpointLocation", str(kept / "checkpoint")).start()
    end_s = time.monotonic() + streams.PATIENCE_S / 4
    try:
        while "compact" not in {
            str(one.operation) for one in fuse.Table.open(kept / "table").log()
        }:
            if time.monotonic() > end_s:
                return -1
            time.sleep(0.1)
        query.processAllAvailable()
    finally:
        query.stop()
    return len(fuse.Table.open(kept / "table").blocks())


if __name__ == "__main__":
    main()
