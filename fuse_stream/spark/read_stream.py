"""`fuse.read_stream`: a table's changes as a streaming DataFrame, read by Spark's own reader."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from fuse_stream.format.layout import MAIN
from fuse_stream.format.names import Version, flag_in, names_in
from fuse_stream.format.times import Timestamp
from fuse_stream.spark.format_stream import stream_schema
from fuse_stream.spark.jvm.file_systems import find_reader_problem
from fuse_stream.spark.jvm.stream import Condition, StreamSource, streaming_frame
from fuse_stream.spark.option_values import Feed
from fuse_stream.spark.options import parse_read_options
from fuse_stream.spark.read import TIME_ZONE, is_read_alike
from fuse_stream.spark.wait_for_table import wait_for_table as wait_for_table_of
from fuse_stream.table.handle import open_at
from fuse_stream.table.location import TableLocation


def read_stream(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    feed: Feed = "changes",
    branch: str = MAIN,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    time_zone: str | None = None,
    starting_version: Version | None = None,
    starting_timestamp: Timestamp | None = None,
    ending_version: Version | None = None,
    ending_timestamp: Timestamp | None = None,
    max_rows_per_trigger: int | None = None,
    max_bytes_per_trigger: int | str | None = None,
    max_commits_per_trigger: int | None = None,
    skip_change_commits: bool = False,
    consumer: str | None = None,
    on_expired: str | None = None,
    wait_for_table: str | None = None,
    storage_options: Mapping[str, object] | None = None,
    origins: Sequence[str] = (),
) -> DataFrame:
    """Return a stream of the changes of the table at `path`, commit by commit.

    It is the stream of `spark.readStream.format("fuse")`, with the same options and offsets: a
    query may change from one to the other with its checkpoint. But blocks are read by Spark's own
    Parquet reader, with the columns alone that the query uses. On Spark Connect, with a Spark whose
    interfaces are not known, and where Spark has no file system for the store, it is that stream.

    Args:
        spark: the session.
        path: a local path or an fsspec URL.
        feed: "changes"; "append", plain rows; "upserts", without updated rows as they were; or
            "blocks", a row for each block.
        branch: the branch to follow.
        columns: the wanted columns, in this order; all if not given.
        where: a SQL condition on the table's columns. It prunes blocks, then filters rows.
        time_zone: the zone of the condition's times without a zone; the session's if not given.
        starting_version: the first commit to deliver, without the table before it; or "latest",
            what comes after the start. The table at the start, then its changes, if not given.
        starting_timestamp: start at the first commit at or after this time.
        ending_version: the last commit to deliver.
        ending_timestamp: end with the last commit at or before this time.
        max_rows_per_trigger: the most rows of a batch.
        max_bytes_per_trigger: the most bytes of a batch, or text such as "100m".
        max_commits_per_trigger: the most commits of a batch.
        skip_change_commits: with feed "append", leave out commits that remove rows.
        consumer: the name under which a lease keeps the versions that are not read yet.
        on_expired: "fail" or "resync": what a consumer does whose commits have expired.
        wait_for_table: how long to wait for a table that is not there yet, such as "60s".
        storage_options: fsspec's, for a remote store. Spark's reader takes Hadoop's settings
            instead.
        origins: the locations of the origins whose blocks may be read, for a clone.

    Returns:
        The table's columns; except for feed "append", also `_change_type`, `_commit_version` and
        `_commit_timestamp`.

    Raises:
        NotFoundError: there is no table, or no such branch.
        InvalidInputError: an argument is wrong, or has no meaning beside another one.
    """
    location = TableLocation.of(path, branch, storage_options, origins)
    if where is not None and time_zone is None:
        time_zone = spark.conf.get(TIME_ZONE)
    given = {
        "path": location.path,
        "feed": feed,
        "branch": branch,
        "columns": None if columns is None else json.dumps(names_in("columns", columns)),
        "where": where,
        "timeZone": time_zone,
        "startingVersion": starting_version,
        "startingTimestamp": _text(starting_timestamp),
        "endingVersion": ending_version,
        "endingTimestamp": _text(ending_timestamp),
        "maxRowsPerTrigger": max_rows_per_trigger,
        "maxBytesPerTrigger": max_bytes_per_trigger,
        "maxCommitsPerTrigger": max_commits_per_trigger,
        "skipChangeCommits": str(flag_in("skip_change_commits", skip_change_commits)).lower(),
        "consumer": consumer,
        "onExpired": on_expired,
        "waitForTable": wait_for_table,
        "storageOptions": json.dumps(dict(location.storage_options)),
        "origins": json.dumps(location.origins),
    }
    options = {name: str(value) for name, value in given.items() if value is not None}
    parsed = parse_read_options(options, streaming=True)
    if find_reader_problem(spark, location) is not None:
        return spark.readStream.format("fuse").options(**options).load()
    wait_for_table_of(parsed)
    schema = stream_schema(parsed)
    condition = None
    if where is not None and time_zone is not None:
        table = open_at(location).snapshot().schema
        if is_read_alike(spark, table, where, time_zone=time_zone):
            condition = Condition(spark, where, time_zone=time_zone)
    return streaming_frame(spark, StreamSource(spark, parsed, schema, condition=condition))


def _text(timestamp: Timestamp | None) -> str | None:
    return timestamp.isoformat() if isinstance(timestamp, dt.datetime) else timestamp
