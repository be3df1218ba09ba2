"""Temporary views of tables, for who uses SQL without a catalog."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.layout import MAIN
from fuse_stream.format.names import Version
from fuse_stream.format.times import Timestamp
from fuse_stream.spark.collect import SPARK_ERRORS
from fuse_stream.spark.read import read
from fuse_stream.spark.where import reason_of


def view(
    spark: SparkSession,
    name: str,
    path: str | os.PathLike[str],
    version: Version | None = None,
    *,
    branch: str = MAIN,
    timestamp: Timestamp | None = None,
    storage_options: Mapping[str, object] | None = None,
    origins: Sequence[str] = (),
) -> None:
    """Create or replace the temporary view `name` of a snapshot of the table at `path`.

    The snapshot is chosen now: the view does not see later commits until it is made again. Filters
    of queries rule blocks out, as for `read`. `attach` gives names that follow the table.

    Args:
        spark: the session that gets the view.
        name: the name in SQL.
        path: a local path or an fsspec URL.
        version: as for `read`; the newest if not given.
        branch: the branch to read.
        timestamp: the last snapshot at or before this time.
        storage_options: fsspec's, for a remote store.
        origins: the locations of the origins whose blocks may be read, for a clone.

    Raises:
        InvalidInputError: Spark refuses the name; or as `read`.
        NotFoundError, SnapshotExpiredError, UnsupportedStorageError: as `read`.
    """
    rows = read(
        spark,
        path,
        branch=branch,
        version=version,
        timestamp=timestamp,
        storage_options=storage_options,
        origins=origins,
    )
    try:
        rows.createOrReplaceTempView(name)
    except SPARK_ERRORS as error:
        raise InvalidInputError(
            "Spark refuses the name of the view; use letters, digits and underscores",
            name=name,
            reason=reason_of(error),
        ) from error
