"""The batch reader of `format("fuse")` with the option `metadata`: rows about a table.

One task makes them: they come from the table's records, and no block is opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.names import pin
from fuse_stream.on_demand import OnDemand
from fuse_stream.spark.options import ReadOptions
from fuse_stream.spark.types import spark_schema_of
from fuse_stream.table.handle import open_at

if TYPE_CHECKING:
    from fuse_stream.table import metadata_tables
else:
    metadata_tables = OnDemand("fuse_stream.table.metadata_tables")


def metadata_schema(options: ReadOptions) -> StructType:
    """Return the columns of the metadata table that the options name.

    Raises:
        InvalidInputError: there is no such metadata table.
    """
    assert options.metadata is not None
    return spark_schema_of(metadata_tables.get_kind(options.metadata).schema)


def find_version(options: ReadOptions) -> str | None:
    """Return the version of the rows, with its branch; None for rows that are about no version.

    Raises:
        NotFoundError, SnapshotExpiredError: there is no such table or version.
        InvalidInputError: a version of rows that are about no version.
    """
    assert options.metadata is not None
    table = open_at(options.location)
    metadata_tables.check_version(options.metadata, options.version_as_of)
    if not metadata_tables.get_kind(options.metadata).is_of_version:
        return None
    snapshot = table.snapshot(options.version_as_of)
    return str(pin(options.version_as_of, snapshot.version, branch=table.branch))


class FuseMetadataReader(DataSourceReader):
    """Reads one metadata table."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        if metadata_schema(options) != schema:
            raise InvalidInputError(
                "a metadata table has columns of its own: leave out schema(), and select from the "
                "DataFrame",
                metadata=options.metadata,
            )

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, _: InputPartition) -> Iterator[pa.RecordBatch]:
        assert self.options.metadata is not None
        table = open_at(self.options.location)
        yield from metadata_tables.iter_batches(
            table, self.options.metadata, self.options.version_as_of
        )
