"""The result of an aggregate as a DataFrame."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from fuse_stream.format.layout import MAIN
from fuse_stream.format.names import Version
from fuse_stream.format.times import Timestamp
from fuse_stream.spark.types import spark_schema_of
from fuse_stream.table.handle import open_at
from fuse_stream.table.location import TableLocation


def aggregate(
    spark: SparkSession,
    path: str | os.PathLike[str],
    name: str,
    *,
    branch: str = MAIN,
    version: Version | None = None,
    timestamp: Timestamp | None = None,
    where: str | None = None,
    time_zone: str = "UTC",
    storage_options: Mapping[str, object] | None = None,
    origins: Sequence[str] = (),
) -> DataFrame:
    """Return the result of an aggregate of the table at `path` as a DataFrame.

    The driver merges what the index holds and reads the other blocks, as `Table.aggregate` does:
    few, if the indexes are refreshed. The result is as of now, and does not see later commits.

    Args:
        spark: the session.
        path: a local path or an fsspec URL.
        name: of the index, see `Table.create_aggregate`.
        branch: the branch to read.
        version: as for `read`; the newest if not given.
        timestamp: the last snapshot at or before this time.
        where: a SQL predicate on the columns by which rows are grouped, read as in ANSI mode.
        time_zone: the zone of the predicate's times without a zone.
        storage_options: fsspec's, for a remote store.
        origins: the locations of the origins whose blocks may be read, for a clone.

    Raises:
        NotFoundError: there is no table, no such index or no such version.
        NumberOverflowError: a sum or an average does not fit its type.
        InvalidInputError, CorruptObjectError, SnapshotExpiredError: as `Table.aggregate`.
    """
    table = open_at(TableLocation.of(path, branch, storage_options, origins))
    found = table.aggregate(
        name, version=version, timestamp=timestamp, where=where, time_zone=time_zone
    )
    return spark.createDataFrame(found, spark_schema_of(found.schema))
