"""A reader downstream: a query that folds the feed of a table into a multiset of rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

Rows: TypeAlias = Counter[tuple[Any, ...]]
"""How often each row is there."""


class Follower:
    """What the feed of a table adds up to, as long as its query runs."""

    def __init__(self, spark: SparkSession, table: Path, checkpoint: Path) -> None:
        self._rows: Rows = Counter()
        feed = spark.readStream.format("fuse").option("feed", "changes").load(str(table))
        query = feed.writeStream.foreachBatch(self._fold)
        query = query.option("checkpointLocation", str(checkpoint))
        self._query = query.trigger(processingTime="1 second").start()

    def catch_up(self) -> Rows:
        """Wait until all that is in the table has come, and return the rows."""
        self._query.processAllAvailable()
        return self._rows

    def stop(self) -> None:
        """End the query."""
        self._query.stop()

    def _fold(self, batch: DataFrame, _batch_id: int) -> None:
        changes = batch.toArrow()
        kinds = changes["_change_type"].to_pylist()
        names = [name for name in changes.column_names if not name.startswith("_")]
        for kind, row in zip(kinds, _tuples(changes.select(names)), strict=True):
            self._rows[row] += 1 if kind in {"insert", "update_postimage"} else -1


def count_rows(table: pa.Table) -> Rows:
    """Return the rows of a table as such a multiset."""
    return Counter(_tuples(table))


def _tuples(table: pa.Table) -> zip[tuple[Any, ...]]:
    return zip(*(table[name].to_pylist() for name in table.column_names), strict=True)
