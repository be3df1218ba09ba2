"""The scan of a statement that changes rows: where each row is comes with the row.

Rules:
- What the statement asks of the rows rules blocks out. Spark evaluates all of it for the rows.
- A hidden row is not read: Spark would take it for a row of the table. If some of the blocks hide
  rows, the rows of all of them are read one by one, and a class of the package, in tasks, passes
  the hidden ones over.
- A block has the same number in all scans of a statement.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from fuse_stream.errors import InvalidInputError
from fuse_stream.reading.scan import Selection
from fuse_stream.spark.block_list import BlockFile, SnapshotBlocks
from fuse_stream.spark.jvm.file_scan import ROW_INDEX, Constant, ScannedFile
from fuse_stream.spark.jvm.java_classes import new_instance
from fuse_stream.spark.jvm.java_errors import SpeakingProxy
from fuse_stream.spark.jvm.loaded_table import Loaded
from fuse_stream.spark.jvm.planned_scan import READ, ScanColumns, ScanWork, WorkReader
from fuse_stream.spark.jvm.proxies import java_array, java_longs, jvm_of, scala_seq
from fuse_stream.spark.jvm.table_scan import Statistics
from fuse_stream.spark.where import read_filters

_SQL = "org.apache.spark.sql"
BLOCK = "_fuse_block"
"""The column with the number of a row's block. The row's position in the block is `ROW_INDEX`."""


class BlockNumbers:
    """The numbers of the blocks that a statement reads."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._ids: list[str] = []

    def number_of(self, block_id: str) -> int:
        """Return the number of a block; a new one if it has none."""
        if block_id not in self._numbers:
            self._numbers[block_id] = len(self._ids)
            self._ids.append(block_id)
        return self._numbers[block_id]

    def block_of(self, number: str) -> str:
        """Return the id of the block with a number."""
        return self._ids[int(number)]

    def __len__(self) -> int:
        return len(self._ids)


class RowScanBuilder(SpeakingProxy):
    """Collects what a statement reads of the rows that it may change."""

    def __init__(self, spark: SparkSession, loaded: Loaded, numbers: BlockNumbers) -> None:
        self._spark = spark
        self.jvm = jvm_of(spark)
        self._loaded = loaded
        self._numbers = numbers
        self._filters: list[Any] = []
        schema = loaded.snapshot.schema
        if ROW_INDEX in schema.names():
            raise InvalidInputError(
                "Spark's Parquet reader fills a column of this name itself, so no statement can "
                "change the rows of the table: use the methods of Table",
                column=ROW_INDEX,
            )
        constants = (Constant(name=BLOCK, type="long"),)
        self._columns = ScanColumns(schema=schema, has_row_index=True, constants=constants)
        self._wanted = self._columns

    def pushFilters(self, filters: Any) -> Any:  # noqa: N802 - Spark's names, here and below
        self._filters = [filters.apply(at) for at in range(filters.size())]
        return filters  # Spark evaluates all of them for the rows

    def pushedFilters(self) -> Any:  # noqa: N802
        return java_array(self.jvm, f"{_SQL}.connector.expressions.filter.Predicate", ())

    def pruneColumns(self, wanted: Any) -> None:  # noqa: N802
        # The places are read anyway: hidden rows are found by them.
        self._wanted = self._columns.only((*wanted.fieldNames(), ROW_INDEX, BLOCK))

    def build(self) -> Any:
        snapshot = self._loaded.snapshot
        schema = snapshot.schema
        selection = Selection(
            schema=schema,
            read=schema,
            predicate=read_filters(scala_seq(self.jvm, self._filters), schema),
        )
        blocks = SnapshotBlocks(self._loaded.table.metadata, snapshot, selection).matching(None)
        leaves = sum(1 for _ in schema.leaves())
        wanted = sum(1 for _ in self._wanted.schema.leaves())
        return RowScan(
            self._spark,
            WorkReader(self._spark, self._columns, self._wanted),
            blocks,
            self._numbers,
            byte_count=sum(block.byte_count for block in blocks) * wanted // leaves,
            row_at=self._wanted.names().index(ROW_INDEX),
        )

    class Java:
        implements = (
            f"{READ}.ScanBuilder",
            f"{READ}.SupportsPushDownRequiredColumns",
            f"{_SQL}.internal.connector.SupportsPushDownCatalystFilters",
        )


class RowScan(SpeakingProxy):
    """A scan of blocks, and its batch."""

    def __init__(
        self,
        spark: SparkSession,
        reader: WorkReader,
        blocks: Sequence[BlockFile],
        numbers: BlockNumbers,
        *,
        byte_count: int,
        row_at: int,
    ) -> None:
        self._spark = spark
        self.jvm = reader.jvm
        self._reader = reader
        self._blocks = blocks
        self._numbers = numbers
        self._byte_count = byte_count
        self._row_at = row_at

    # ---- Scan

    def readSchema(self) -> Any:  # noqa: N802
        return self._reader.read_schema

    def description(self) -> str:
        return f"fuse rows of {len(self._blocks)} blocks"

    def toBatch(self) -> RowScan:  # noqa: N802
        return self

    def toMicroBatchStream(self, _checkpoint: str) -> Any:  # noqa: N802
        raise NotImplementedError("a statement that changes rows reads no stream")

    def toContinuousStream(self, _checkpoint: str) -> Any:  # noqa: N802
        raise NotImplementedError("a statement that changes rows reads no stream")

    def supportedCustomMetrics(self) -> Any:  # noqa: N802
        return self._reader.nothing(f"{_SQL}.connector.metric.CustomMetric")

    def reportDriverMetrics(self) -> Any:  # noqa: N802
        return self._reader.nothing(f"{_SQL}.connector.metric.CustomTaskMetric")

    def columnarSupportMode(self) -> Any:  # noqa: N802
        return self._reader.by_partition()

    def estimateStatistics(self) -> Any:  # noqa: N802
        rows = sum(block.live_rows for block in self._blocks)
        return Statistics(self.jvm, self._byte_count, rows)

    def estimateSizeInBytes(self) -> Any:  # noqa: N802
        return self.jvm.java.util.OptionalLong.of(self._byte_count)

    def reflectsFullyPushedDownFilters(self) -> bool:  # noqa: N802
        return False

    # ---- Batch

    def planInputPartitions(self) -> Any:  # noqa: N802
        files = [
            ScannedFile(
                location=block.location,
                byte_count=block.byte_count,
                constants=(self._numbers.number_of(block.block_id),),
            )
            for block in self._blocks
        ]
        return self._reader.plan(ScanWork(files=files))

    def createReaderFactory(self) -> Any:  # noqa: N802
        rows = self._reader.factory()
        hiding = [block for block in self._blocks if block.hidden is not None]
        if not hiding:
            return rows
        words = [block.hidden.words() for block in hiding if block.hidden is not None]
        firsts = [0, *itertools.accumulate(map(len, words))]
        for block in self._blocks:
            self._numbers.number_of(block.block_id)
        starts = np.full(len(self._numbers), -1)
        for block, first in zip(hiding, firsts[:-1], strict=True):
            starts[self._numbers.number_of(block.block_id)] = first
        context: Any = self._spark.sparkContext._jsc  # noqa: SLF001 - pyspark offers no public way
        bits, places = (
            context.broadcast(java_longs(self.jvm, numbers))
            for numbers in (np.concatenate(words), starts)
        )
        # The constant is the last column.
        block_at = len(self.readSchema().fieldNames()) - 1
        return new_instance(
            self._spark, "ShownRowsFactory", rows, bits, places, block_at, self._row_at
        )

    def toString(self) -> str:  # noqa: N802
        return self.description()

    class Java:
        implements = (f"{READ}.Scan", f"{READ}.Batch", f"{READ}.SupportsReportStatistics")
