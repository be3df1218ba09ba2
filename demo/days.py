"""The flights of January, delivered day by day: a file a day, so a micro-batch a day."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from demo.weeks import KEY, load_flights

SCHEMA = "time_hour timestamp, carrier string, flight int, origin string, dest string, delay int"
_COLUMNS = [*KEY, "origin", "dest", "dep_delay"]
_FIRST_S = 1_700_000_000


def load_days(count: int) -> list[pa.Table]:
    """Return the flights of the first days, one table a day; `delay` is null where cancelled."""
    flights = load_flights().slice(0, 40_000)  # January has 27,004
    january = flights.filter(pc.equal(flights["month"], 1))
    return [
        january.filter(pc.equal(january["day"], day)).select(_COLUMNS).rename_columns(_names())
        for day in range(1, count + 1)
    ]


def deliver(days: list[pa.Table], source: Path, numbers: Iterable[int]) -> None:
    """Put the days with these numbers, from 0, into a stream's source."""
    source.mkdir(exist_ok=True)
    for number in numbers:
        hidden = source / f".{number}"  # Spark sees a file when it is whole
        pq.write_table(days[number], hidden)
        os.utime(hidden, (_FIRST_S + number,) * 2)  # the order in which Spark takes them
        hidden.rename(source / f"day_{number + 1:02}.parquet")


def read_days(spark: SparkSession, source: Path) -> DataFrame:
    """Return such a source as a stream, a file a micro-batch."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(source))


def _names() -> list[str]:
    return [part.split()[0] for part in SCHEMA.split(", ")]
