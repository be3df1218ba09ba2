"""The scans of a statement that changes rows: where each row is comes with the row.

Rules:
- What the statement asks of the rows rules blocks out. Spark evaluates all of it for the rows.
- A hidden row is not read: Spark would take it for a row of the table. If some of the blocks hide
  rows, the rows of all of them are read one by one, and a class of Java in the tasks passes the
  hidden ones over. Without that class Python workers read the blocks, as they do where Spark's own
  reader cannot open the store.
- A block has the same number in all scans of a statement.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
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
from fuse_stream.spark.jvm.planned_scan import READ, PlannedScan, ScanColumns, ScanWork, WorkReader
from fuse_stream.spark.jvm.proxies import java_array, java_class, java_longs, jvm_of, scala_seq
from fuse_stream.spark.jvm.table_scan import Statistics
from fuse_stream.spark.shown_rows import PlaceColumns, shown_work
from fuse_stream.spark.task_source import TaskWork
from fuse_stream.spark.where import read_filters

_SQL = "org.apache.spark.sql"
_CONNECTOR = f"{_SQL}.connector"
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

    def block_of(self, number: int | str) -> str:
        """Return the id of the block with a number."""
        return self._ids[int(number)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSource:
    """What the scans of one statement read."""

    loaded: Loaded
    numbers: BlockNumbers
    has_classes: bool
    """True if tasks can run the package's classes of Java."""
    has_files: bool
    """True if Spark's own reader can open the store."""

    @property
    def passes_over(self) -> bool:
        """True if Spark's own reader reads hidden rows too, which a class in the tasks drops."""
        return self.has_classes and self.has_files


class RowScanBuilder(SpeakingProxy):
    """Collects what a statement reads of the rows that it may change."""

    def __init__(
        self,
        spark: SparkSession,
        source: RowSource,
        *,
        has_positions: bool = False,
        make: Callable[..., RowScan] | None = None,
    ) -> None:
        """Build a scan; `has_positions` adds the positions of rows, `make` makes another scan."""
        self._spark = spark
        self.jvm = jvm_of(spark)
        self._source = source
        self._filters: list[Any] = []
        self._make = make or RowScan
        schema = source.loaded.snapshot.schema
        if ROW_INDEX in schema.names():
            raise InvalidInputError(
                "Spark's Parquet reader fills a column of this name itself, so no statement can "
                "change the rows of the table: use the methods of Table",
                column=ROW_INDEX,
            )
        constants = (Constant(name=BLOCK, type="long"),)
        self._columns = ScanColumns(schema=schema, has_row_index=True, constants=constants)
        self._always = {BLOCK, ROW_INDEX} if has_positions else {BLOCK}
        self._wanted = self._columns

    def pushFilters(self, filters: Any) -> Any:  # noqa: N802 - Spark's names, here and below
        self._filters = [filters.apply(at) for at in range(filters.size())]
        return filters  # Spark evaluates all of them for the rows

    def pushedFilters(self) -> Any:  # noqa: N802
        return java_array(self.jvm, f"{_CONNECTOR}.expressions.filter.Predicate", ())

    def pruneColumns(self, wanted: Any) -> None:  # noqa: N802
        self._wanted = self._columns.only((*wanted.fieldNames(), *self._always))

    def build(self) -> RowScan:
        loaded = self._source.loaded
        snapshot, schema = loaded.snapshot, loaded.snapshot.schema
        selection = Selection(
            schema=schema,
            read=schema,
            predicate=read_filters(scala_seq(self.jvm, self._filters), schema),
        )
        blocks = SnapshotBlocks(loaded.table.metadata, snapshot, selection).matching(None)
        wanted = self._wanted
        if any(block.hidden is not None for block in blocks) and self._source.passes_over:
            wanted = dataclasses.replace(wanted, has_row_index=True)
        reader = WorkReader(self._spark, self._columns, wanted)
        return self._make(self._spark, reader, wanted, self._source, blocks)

    class Java:
        implements = (
            f"{READ}.ScanBuilder",
            f"{READ}.SupportsPushDownRequiredColumns",
            f"{_SQL}.internal.connector.SupportsPushDownCatalystFilters",
        )


class RowScan(PlannedScan):
    """A scan of blocks, and its batch."""

    def __init__(
        self,
        spark: SparkSession,
        reader: WorkReader,
        columns: ScanColumns,
        source: RowSource,
        blocks: Sequence[BlockFile],
    ) -> None:
        super().__init__(reader, self._work, description="fuse rows")
        self._spark = spark
        self._columns = columns
        self._source = source
        self.blocks = blocks
        # Spark may take the factory of readers before it rules out blocks: how they are read stays.
        leaves_out = any(block.hidden is not None for block in blocks)
        self._passes_over = leaves_out and source.passes_over
        self._is_by_python = not source.has_files or (leaves_out and not source.passes_over)
        self._partitions: Any = None
        self._factory: Any = None

    # ---- Scan

    def description(self) -> str:
        return f"fuse rows of {len(self.blocks)} blocks"

    def estimateStatistics(self) -> Any:  # noqa: N802
        return Statistics(self.jvm, self._byte_count(), sum(b.live_rows for b in self.blocks))

    def estimateSizeInBytes(self) -> Any:  # noqa: N802
        return self.jvm.java.util.OptionalLong.of(self._byte_count())

    def _byte_count(self) -> int:
        wanted = sum(1 for _ in self._columns.schema.leaves())
        leaves = sum(1 for _ in self._source.loaded.snapshot.schema.leaves())
        return sum(block.byte_count for block in self.blocks) * wanted // leaves

    def reflectsFullyPushedDownFilters(self) -> bool:  # noqa: N802
        return False

    # ---- Batch

    def planInputPartitions(self) -> Any:  # noqa: N802
        if self._partitions is None:  # Spark asks more than once
            self._partitions = super().planInputPartitions()
        return self._partitions

    def _work(self) -> ScanWork:
        number_of = self._source.numbers.number_of
        if self._is_by_python:
            return ScanWork(tasks=self._tasks())
        files = [
            ScannedFile(
                location=block.location,
                byte_count=block.byte_count,
                constants=(number_of(block.block_id),),
            )
            for block in self.blocks
        ]
        return ScanWork(files=files)

    def createReaderFactory(self) -> Any:  # noqa: N802
        if self._factory is None:
            self._factory = self._made_factory()
        return self._factory

    def _made_factory(self) -> Any:
        rows = super().createReaderFactory()
        if not self._passes_over:
            return rows
        numbers = [self._source.numbers.number_of(block.block_id) for block in self.blocks]
        words = {block.block_id: block.hidden.words() for block in self.blocks if block.hidden}
        starts, first = np.full(max(numbers) + 1, -1), 0
        for block, number in zip(self.blocks, numbers, strict=True):
            if block.block_id in words:
                starts[number] = first
                first += len(words[block.block_id])
        context: Any = self._spark.sparkContext._jsc  # noqa: SLF001 - pyspark offers no public way
        sent = [
            context.broadcast(java_longs(self.jvm, numbers))
            for numbers in (np.concatenate(list(words.values())), starts)
        ]
        names = self._columns.names()
        places = names.index(BLOCK), names.index(ROW_INDEX)
        return new_instance(self._spark, "ShownRowsFactory", rows, *sent, *places)

    def _tasks(self) -> TaskWork:
        loaded = self._source.loaded
        return shown_work(
            loaded.table.metadata,
            loaded.snapshot,
            [block.block_id for block in self.blocks],
            self._columns.schema,
            places=PlaceColumns(block=BLOCK, row=ROW_INDEX),
            name_of=self._source.numbers.number_of,
        )

    def toString(self) -> str:  # noqa: N802
        return self.description()

    class Java:
        implements = (f"{READ}.Scan", f"{READ}.Batch", f"{READ}.SupportsReportStatistics")


class GroupScan(RowScan):
    """A scan of blocks of which all rows are read, if any. Spark may rule out blocks before.

    For that it looks first which blocks have a row that the statement may change.
    """

    def filterAttributes(self) -> Any:  # noqa: N802
        return references(self.jvm, (BLOCK,))

    def filter(self, predicates: Any) -> None:
        for predicate in predicates:
            if str(predicate.name()) != "IN":
                continue
            _, *values = predicate.children()
            found = {self._source.numbers.block_of(int(value.value())) for value in values}
            self.blocks = [block for block in self.blocks if block.block_id in found]
        self._partitions = None

    def pushedPredicates(self) -> Any:  # noqa: N802
        return self.reader.nothing(f"{_CONNECTOR}.expressions.filter.Predicate")

    def supportsIterativePushdown(self) -> bool:  # noqa: N802
        return False

    class Java:
        implements = (
            *RowScan.Java.implements,
            f"{READ}.SupportsRuntimeV2Filtering",
        )


@lru_cache(maxsize=64)  # Spark asks some 20 times in a statement
def references(jvm: Any, names: tuple[str, ...]) -> Any:
    """Return columns as Spark's connectors name them."""
    column = java_class(jvm, f"{_CONNECTOR}.expressions.FieldReference").column
    return java_array(jvm, f"{_CONNECTOR}.expressions.NamedReference", map(column, names))
