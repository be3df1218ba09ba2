"""A Python data source that runs tasks which the driver has planned.

Spark's connectors for Java read a scan's partitions by a factory of one kind. Where rows must be
computed by Python, that factory is the one of Spark's Python data sources, and this is the source.
It is registered in the session under a name that no user needs to know.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

NAME = "fuse_tasks"
WORK = "work"
"""The option with the pickled work."""


class TaskReader(Protocol):
    """Reads tasks, in a worker."""

    def read(self, task: object, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task, with at least the columns of `schema`, in any order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWork:
    """Tasks, and what reads them."""

    reader: TaskReader
    tasks: Sequence[object]

    def to_option(self) -> str:
        """Return the work as the text of an option."""
        return base64.b64encode(pickle.dumps(self)).decode()


class TaskSource(DataSource):
    """The source `fuse_tasks`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))

    @classmethod
    def name(cls) -> str:
        return NAME

    def reader(self, schema: StructType) -> DataSourceReader:
        work = pickle.loads(base64.b64decode(self.options[WORK]))  # noqa: S301 - the driver's
        return _Reader(work, schema)


class _Reader(DataSourceReader):
    def __init__(self, work: TaskWork, schema: StructType) -> None:
        self._reader = work.reader
        self._tasks = work.tasks
        self._schema = schema

    def __getstate__(self) -> dict[str, object]:
        # Each worker gets this reader and the one task that it reads.
        return {**self.__dict__, "_tasks": ()}

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(task) for task in self._tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # Spark's stand-in where there is nothing to read
            return
        schema = to_arrow_schema(self._schema, timezone="UTC")
        for batch in self._reader.read(partition.value, schema):
            yield batch.select(schema.names).cast(schema)


def register_tasks(spark: SparkSession) -> None:
    """Let a session of the JVM find the source."""
    session: Any = spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
    if session.sessionState().dataSourceManager().dataSourceExists(NAME):
        return
    try:
        spark.dataSource.register(TaskSource)
    except AnalysisException as error:  # another thread has registered it meanwhile
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
