"""Three tables, each made from the one before, and what must be in them.

- bronze: the flights as they are delivered, some of them twice;
- silver: each flight that was flown, once. Its query remembers the flights of the last days;
- gold: the flights that left late, and what that cost.

With `feed=changes` silver and gold are copies instead: they also lose what the table before loses,
and silver has a flight as often as bronze.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import fuse_stream as fuse
from demo.days import read_days
from demo.weeks import KEY

TABLES = ("bronze", "silver", "gold")
SUMMED = {"bronze": "delay", "silver": "delay", "gold": "cost"}
"""The column of each table that is summed."""
APPEND, CHANGES = "append", "changes"
"""The feeds by which silver and gold may follow."""

LATE_MINUTES = 15
DOLLARS_A_MINUTE = 75
_REPEATED_EVERY = 10

Code: TypeAlias = Callable[[DataFrame], DataFrame]
"""What the first query makes of the flights."""


def as_delivered(flights: DataFrame) -> DataFrame:
    """Return the flights as they come: this code is right."""
    return flights


def in_seconds(flights: DataFrame) -> DataFrame:
    """Return them with delays in seconds."""
    return flights.withColumn("delay", f.col("delay") * 60)


def a_year_ahead(flights: DataFrame) -> DataFrame:
    """Return them with times of the year after."""
    return flights.withColumn("time_hour", f.expr("time_hour + interval 1 year"))


class Pipeline:
    """The three queries, with the folders that they write to."""

    def __init__(
        self,
        spark: SparkSession,
        *,
        source: Path,
        tables: Path,
        checkpoints: Mapping[str, Path],
        feed: str,
    ) -> None:
        self.spark = spark
        self.feed = feed
        self._source = source
        self._tables = tables
        self._checkpoints = checkpoints
        self._running: dict[str, StreamingQuery] = {}

    def on_forks(self, folder: Path, names: Sequence[str] = TABLES) -> Pipeline:
        """Return the same queries, some with other checkpoints; they do not run yet."""
        return Pipeline(
            self.spark,
            source=self._source,
            tables=self._tables,
            checkpoints={**self._checkpoints, **in_folder(folder, names)},
            feed=self.feed,
        )

    def table(self, name: str) -> Path:
        """Return the path of one of the tables."""
        return self._tables / name

    def open(self, name: str) -> fuse.Table:
        """Open one of the tables."""
        return fuse.Table.open(self.table(name))

    def checkpoint(self, name: str) -> Path:
        """Return the folder of the checkpoint of the query that writes a table."""
        return self._checkpoints[name]

    def start(self) -> None:
        """Start the three queries; they run until they are stopped."""
        for name in TABLES:
            is_new = not self.table(name).exists()
            self._running[name] = self.start_one(name)
            if is_new:  # the next query is loaded when this table has its first rows
                self._running[name].processAllAvailable()

    def deploy(self, code: Code) -> None:
        """Give the first query other code, while the two others run."""
        self._running["bronze"].stop()
        self._running["bronze"] = self.start_one("bronze", code)

    def catch_up(self) -> None:
        """Wait until each query has taken what the one before it has written."""
        for query in self._running.values():
            query.processAllAvailable()

    def stop(self) -> None:
        """Stop the three queries."""
        for query in self._running.values():
            query.stop()

    def follow(self) -> None:
        """Run the queries of silver and gold alone, until they have followed bronze."""
        for name in TABLES[1:]:
            query = self.start_one(name)
            query.processAllAvailable()
            query.stop()

    def start_one(self, name: str, code: Code = as_delivered) -> StreamingQuery:
        """Start the query that writes one of the tables; `code` is that of the first one."""
        match name:
            case "bronze":
                rows = code(read_days(self.spark, self._source))
            case "silver":
                rows = self._silver()
            case _:
                rows = self._gold()
        mode = "replicate" if name != "bronze" and self.feed == CHANGES else "append"
        sink = fuse.fuse_sink(str(self.table(name)), app_id=name, mode=mode)
        writer = rows.writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", str(self.checkpoint(name)))
        return writer.trigger(processingTime="500 milliseconds").start()

    def _silver(self) -> DataFrame:
        flown = self._read("bronze").where("delay is not null")
        if self.feed == CHANGES:
            return flown
        return flown.withWatermark("time_hour", "3 days").dropDuplicatesWithinWatermark(KEY)

    def _gold(self) -> DataFrame:
        late = self._read("silver").where(f.col("delay") > LATE_MINUTES)
        cost = (f.col("delay") * DOLLARS_A_MINUTE).alias("cost")
        return late.select(*KEY, cost, *(["_change_type"] if self.feed == CHANGES else []))

    def _read(self, name: str) -> DataFrame:
        reader = self.spark.readStream.format("fuse").option("feed", self.feed)
        return reader.load(str(self.table(name)))


def with_repeats(days: Sequence[pa.Table]) -> list[pa.Table]:
    """Return what is delivered each day: its flights, and some of the day before again."""
    again = [day.take(list(range(0, len(day), _REPEATED_EVERY))) for day in days]
    return [days[0], *(pa.concat_tables(pair) for pair in zip(days[1:], again, strict=False))]


def in_folder(folder: Path, names: Sequence[str] = TABLES) -> dict[str, Path]:
    """Return a folder for each of some tables."""
    return {name: folder / name for name in names}


def expected(days: Sequence[pa.Table], feed: str, without: str = "") -> dict[str, pa.Table]:
    """Return what must be in each table after these days, computed without a stream.

    Args:
        days: the flights of each day.
        feed: by which silver and gold follow.
        without: an airline whose flights were deleted from bronze; empty for none.
    """
    bronze = pa.concat_tables(with_repeats(days)).filter(pc.field("carrier") != without)
    delivered = bronze if feed == CHANGES else pa.concat_tables(days)
    silver = delivered.filter(pc.field("delay").is_valid())
    late = silver.filter(pc.field("delay") > LATE_MINUTES)
    cost = pc.multiply(late["delay"], DOLLARS_A_MINUTE)
    gold = late.select(KEY).append_column("cost", cost)
    return {"bronze": bronze, "silver": silver, "gold": gold}
