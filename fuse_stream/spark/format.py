"""`format("fuse")`: the Python data source that Spark calls; it returns the readers and writers.

Rules:
- Spark makes a source from its options, asks for the columns, and only later says whether a batch
  or a stream will read them. The first call is the same for both.
- The snapshot of a batch is chosen in `load()`; its version is part of the pickled source.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from fuse_stream.errors import FuseError, InvalidInputError
from fuse_stream.format.feed_columns import CHANGE_TYPE
from fuse_stream.format.names import pin
from fuse_stream.spark import metadata_functions as functions
from fuse_stream.spark.format_metadata import FuseMetadataReader, find_version, metadata_schema
from fuse_stream.spark.format_read import FuseBatchReader, FuseFeedReader, find_rows
from fuse_stream.spark.format_stream import FuseStreamReader, RefusingStreamReader, stream_schema
from fuse_stream.spark.format_write import FuseStreamWriter, FuseWriter
from fuse_stream.spark.options import ReadOptions, parse_read_options, parse_write_options
from fuse_stream.spark.types import spark_schema
from fuse_stream.spark.wait_for_table import wait_for_table
from fuse_stream.table.handle import open_at


class FuseDataSource(DataSource):
    """The source and sink `fuse`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._loaded: StructType | None = None
        self._version: str | None = None

    @classmethod
    def name(cls) -> str:
        return "fuse"

    def schema(self) -> StructType:
        """Return the columns of the snapshot or feed that the options name.

        Raises:
            NotFoundError: there is no table, also after the time of `waitForTable`; or no such
                version.
            InvalidInputError: an option is wrong, or the path is missing.
        """
        options = parse_read_options(self.options, streaming=None)
        wait_for_table(options)
        if options.metadata is not None:
            self._loaded = metadata_schema(options)
            self._version = find_version(options)
        elif _is_feed(options):
            self._loaded = stream_schema(options)
        else:
            snapshot, selection = find_rows(options, open_at(options.location))
            self._loaded = spark_schema(selection.schema)
            self._version = pin(
                options.version_as_of, snapshot.version, branch=options.location.branch
            )
        return self._loaded

    def reader(self, schema: StructType) -> FuseBatchReader | FuseFeedReader | FuseMetadataReader:
        options = parse_read_options(self.options, streaming=False)
        self._check_schema(schema)
        if _is_feed(options):
            return FuseFeedReader(options, schema)
        options = dataclasses.replace(options, version_as_of=self._version, timestamp_as_of=None)
        if options.metadata is not None:
            return FuseMetadataReader(options, schema)
        return FuseBatchReader(options, schema)

    def streamReader(  # noqa: N802 - Spark's name
        self, schema: StructType
    ) -> FuseStreamReader | RefusingStreamReader:
        try:
            return self._stream_reader(schema)
        except FuseError as error:
            return RefusingStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> FuseWriter:  # noqa: FBT001 - Spark's call
        options = parse_write_options(self.options, streaming=False)
        return FuseWriter(options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's call
    ) -> FuseStreamWriter:
        options = parse_write_options(self.options, streaming=True)
        name = self.options.get("queryname")  # added by Spark
        return FuseStreamWriter(options, schema, overwrite=overwrite, query_name=name)

    def _stream_reader(self, schema: StructType) -> FuseStreamReader:
        options = parse_read_options(self.options, streaming=True)
        self._check_schema(schema)
        if options.feed is None and CHANGE_TYPE not in schema.fieldNames():
            raise InvalidInputError(
                'a stream names its feed: add option("feed", "changes"), or "append", "upserts" or '
                '"blocks". '
                "Spark asks a Python source for its columns before it says that a stream will "
                "read them; without the option, Spark got the columns of the table"
            )
        return FuseStreamReader(options, schema)

    def _check_schema(self, schema: StructType) -> None:
        """Raise if the user gave a schema other than the table's; Spark then asks for none."""
        if self._loaded is not None:
            return
        found = self.schema()
        if schema != found:
            raise InvalidInputError(
                "these columns are not the table's: leave out schema(), and choose columns with "
                "the option `columns` or with select()",
                given=schema.simpleString(),
                table=found.simpleString(),
            )


def _is_feed(options: ReadOptions) -> bool:
    if options.feed is not None:
        return options.feed != "table"
    # A batch without a feed refuses all of these options, so this is a stream.
    return any(
        value is not None
        for value in (
            options.starting_version,
            options.starting_timestamp,
            options.ending_version,
            options.ending_timestamp,
            options.max_rows_per_trigger,
            options.max_bytes_per_trigger,
            options.max_commits_per_trigger,
        )
    )


def register(spark: SparkSession, storage_options: Mapping[str, object] | None = None) -> None:
    """Register `format("fuse")` and the functions of SQL that show a table's metadata in a session.

    The functions are `fuse_snapshot`, `fuse_segment`, `fuse_block`, `fuse_column`,
    `fuse_statistic`, `fuse_tag`, `fuse_branch`, `fuse_ledger`, `fuse_consumer` and
    `clustering_information`, each with the arguments `path`, `branch` and `version`. docs/seeing.md
    lists their columns.

    Spark finds the format by itself if the package is installed for the Python of its workers,
    unless another `pyspark_*` module is broken.

    Args:
        spark: the session.
        storage_options: fsspec's, with which the functions open tables in remote stores.
    """
    spark.dataSource.register(FuseDataSource)
    functions.register_functions(spark, storage_options)
