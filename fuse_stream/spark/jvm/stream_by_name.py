"""Streams of tables that SQL names: `readStream.table`, `FROM STREAM`, and `toTable`.

Reading follows the table as the feed `append` does: first the table as it is, then what commits
add. A commit that removes rows is an error, or is skipped with `skipChangeCommits`. Spark asks such
a stream for all columns; `fuse.read_stream` reads the columns that are named.

Writing is that of `format("fuse")`: the rows go through Python workers, and the ledger gets the
query's id, its batch and what the batch has read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from fuse_stream.format.schema import Schema
from fuse_stream.spark.format_stream import FuseStreamReader
from fuse_stream.spark.jvm.changelog import stream_options
from fuse_stream.spark.jvm.feed_work import append_work
from fuse_stream.spark.jvm.file_systems import find_reader_problem
from fuse_stream.spark.jvm.java_errors import SpeakingProxy
from fuse_stream.spark.jvm.micro_batches import PlannedStream
from fuse_stream.spark.jvm.planned_scan import ScanColumns, WorkReader, python_table
from fuse_stream.spark.jvm.proxies import is_called_by, java_class, jvm_of, options_of
from fuse_stream.spark.options import location_options
from fuse_stream.table.location import TableLocation

_FUSE = "fuse"
_STREAM = re.compile(r"STREAM\s*\(|STREAM\s+\S", re.IGNORECASE)
_READER = "DataStreamReader.table"


def is_for_stream(jvm: Any) -> bool:
    """True if Spark resolves, in the call that it makes now, a name that a stream reads.

    For a stream it asks a catalog as for a batch. The text of the SQL that it resolves tells them
    apart; where there is no text, the caller that is on the stack.
    """
    origin = java_class(jvm, "org.apache.spark.sql.catalyst.trees.CurrentOrigin").get()
    if origin.sqlText().isDefined() and origin.startIndex().isDefined():
        text = str(origin.sqlText().get())
        found = text[origin.startIndex().get() : origin.stopIndex().get() + 1]
        return _STREAM.match(found) is not None
    return is_called_by(jvm, _READER)


def open_append_stream(
    spark: SparkSession, location: TableLocation, schema: Schema, options: Mapping[str, str]
) -> SpeakingProxy:
    """Return the stream of a query that reads a table by its name.

    Args:
        spark: the session of the catalog.
        location: the table's.
        schema: the columns of the stream, in this order.
        options: those of `format("fuse")` for the feed `append`.

    Raises:
        InvalidInputError: an option is unknown, or has no meaning here.
    """
    columns = ScanColumns(schema=schema)
    reader = FuseStreamReader(
        stream_options(options, location, feed="append", bounds={}), columns.struct()
    )
    work = WorkReader(spark, columns, columns)
    has_files = find_reader_problem(spark, location) is None
    return PlannedStream(
        spark, reader, work, lambda batch: append_work(batch, reader, has_files=has_files)
    )


def streaming_write(spark: SparkSession, location: TableLocation, info: Any) -> Any:
    """Return the `StreamingWrite` of `format("fuse")` to a table.

    Args:
        spark: the session of the catalog.
        location: the table's.
        info: Spark's `LogicalWriteInfo`.
    """
    jvm = jvm_of(spark)
    options = options_of(info.options())
    options |= location_options(location)
    if location.unsafe_single_writer:
        options["unsafeSingleWriter"] = "true"
    table, given = python_table(spark, _FUSE, info.schema(), options)
    nothing = jvm.java.util.Optional.empty()
    made = java_class(jvm, "org.apache.spark.sql.connector.write.LogicalWriteInfoImpl")(
        info.queryId(), info.schema(), given, nothing, nothing
    )
    return table.newWriteBuilder(made).build().toStreaming()
