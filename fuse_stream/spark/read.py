"""Read a snapshot as a DataFrame, through Spark's own Parquet reader.

Spark's planner asks for the blocks that its filters need (`block_list`), and reads these as files
(`block_scan`).

On Spark Connect, and where Spark has no file system for the store, the rows come through
`format("fuse")`. Connect does not show Spark's resolved predicate. The format reads a predicate as
in ANSI mode, so it gets the predicate only if the session's settings give it the same meaning. In
other sessions every block is read, and Spark filters alone.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.types import LongType, StringType, StructField, StructType

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.layout import MAIN, block_key
from fuse_stream.format.names import Version, pin
from fuse_stream.format.records import Snapshot
from fuse_stream.format.schema import Schema
from fuse_stream.format.side_schemas import shown_side
from fuse_stream.format.times import Timestamp
from fuse_stream.objects.slots import Metadata
from fuse_stream.objects.snapshot_blocks import iter_blocks
from fuse_stream.reading.scan import Selection, select
from fuse_stream.spark.block_list import SnapshotBlocks
from fuse_stream.spark.block_scan import (
    BlockScan,
    columns_of,
    filter_options,
    plain_columns,
    read_blocks,
)
from fuse_stream.spark.collect import SPARK_ERRORS
from fuse_stream.spark.jvm.file_systems import find_reader_problem
from fuse_stream.spark.jvm.proxies import jvm_of
from fuse_stream.spark.shown_rows import PlaceColumns, shown_work
from fuse_stream.spark.task_source import NAME, WORK, register_tasks
from fuse_stream.spark.types import is_case_sensitive, quoted, spark_schema
from fuse_stream.spark.where import Condition, analyse, refused
from fuse_stream.table.handle import Table, open_at
from fuse_stream.table.location import TableLocation

FILE, ROW = "_fuse_file", "_fuse_row"
"""The columns of a row's place: the name of its block's file, and its position there, from 0."""


def read(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    branch: str = MAIN,
    version: Version | None = None,
    timestamp: Timestamp | None = None,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    side: str | None = None,
    storage_options: Mapping[str, object] | None = None,
    origins: Sequence[str] = (),
) -> DataFrame:
    """Return a snapshot of the table at `path` as a DataFrame.

    The snapshot is chosen now: the DataFrame does not see later commits.

    Args:
        spark: the session; on Spark Connect, and where it has no file system for the store, the
            rows come through `format("fuse")`.
        path: a local path or an fsspec URL.
        branch: the branch to read.
        version: a number; a tag, "HEAD", or 7 hex digits or more of a snapshot's id; or a number or
            id on another branch, "branch@12"; "branch@" is its head. The newest if not given.
        timestamp: the last snapshot at or before this time.
        columns: the wanted columns, in this order; all if not given.
        where: a SQL condition on the table's columns, with the meaning of `df.where` in this
            session. It prunes blocks, then filters rows.
        side: the rows that the snapshot keeps beside the table's, by their name: "tombstones",
            "quarantine" or "coalesced". It may be empty where rows come from events.
        storage_options: fsspec's, for a remote store. Spark's reader takes Hadoop's settings
            instead.
        origins: the locations of the origins whose blocks may be read, for a clone.

    Returns:
        The table's columns, all nullable, as in Spark's reads of files.

    Raises:
        NotFoundError: there is no table, no such version, or the version has no such side.
        SnapshotExpiredError: the version has expired.
        InvalidInputError: an unknown column, a predicate that Spark refuses, a version and a
            timestamp, columns that differ only in case in a session that ignores case, or a clone
            whose blocks are in a table that `origins` does not name.
        UnsupportedStorageError: Spark's own file system for this store cannot be set up.
    """
    location = TableLocation.of(path, branch, storage_options, origins)
    table = open_at(location)
    snapshot = table.snapshot(version, timestamp=timestamp)
    if side is not None:
        snapshot = shown_side(snapshot, side)
    case_sensitive = is_case_sensitive(spark)
    selection = select(snapshot.schema, columns=columns, case_sensitive=case_sensitive)
    if find_reader_problem(spark, location) is not None:
        _check_distinct(selection.schema, case_sensitive=case_sensitive)
        options = {
            "path": location.path,
            "branch": branch,
            "storageOptions": json.dumps(dict(location.storage_options)),
            "origins": json.dumps(location.origins),
            "versionAsOf": pin(version, snapshot.version, branch=branch),
            **({} if side is None else {"side": side}),
        }
        return read_by_format(spark, options, snapshot.schema, selection, where)
    kept = None
    if where is not None:
        condition, kept = analyse(spark, snapshot.schema, where)
        selection = _restricted(selection, snapshot.schema, condition)
    _check_distinct(selection.read, case_sensitive=case_sensitive)
    rows = _read(spark, table.metadata, snapshot, selection, with_places=False)
    if kept is not None:
        rows = rows.filter(kept)  # the Column that was analysed
    return _named(spark, rows, selection.schema.names())


def read_rows(
    spark: SparkSession, metadata: Metadata, snapshot: Snapshot, selection: Selection
) -> DataFrame:
    """Return the rows of a snapshot that a selection names; it has no predicate for the rows.

    Raises:
        UnsupportedStorageError: Spark has no file system for this store.
    """
    rows = _read(spark, metadata, snapshot, selection, with_places=False)
    return _named(spark, rows, selection.schema.names())


def read_with_places(spark: SparkSession, table: Table, snapshot: Snapshot) -> DataFrame:
    """Return the rows of a snapshot, and where each of them is: its columns `FILE` and `ROW`.

    Hidden columns are among the others.

    Raises:
        InvalidInputError: columns differ only in case in a session that ignores case.
        UnsupportedStorageError: Spark's own file system for this store cannot be set up.
    """
    selection = Selection(schema=snapshot.schema, read=snapshot.schema)
    _check_distinct(selection.read, case_sensitive=is_case_sensitive(spark))
    if find_reader_problem(spark, table.location) is not None:
        return _read_by_python(spark, table, snapshot)
    rows = _read(spark, table.metadata, snapshot, selection, with_places=True)
    return _named(spark, rows, (*selection.schema.names(), FILE, ROW))


def _read_by_python(spark: SparkSession, table: Table, snapshot: Snapshot) -> DataFrame:
    """Return the rows of a snapshot and their places, by Python workers."""
    work = shown_work(
        table.metadata,
        snapshot,
        [block.id for block in iter_blocks(table.metadata, snapshot)],
        snapshot.schema,
        places=PlaceColumns(block=FILE, row=ROW),
        name_of=lambda block_id: block_key(block_id).rpartition("/")[2],
    )
    columns = spark_schema(snapshot.schema).fields
    fields = StructType([StructField(each.name, each.dataType) for each in columns])
    fields = fields.add(FILE, StringType()).add(ROW, LongType())
    register_tasks(spark)
    reader = spark.read.format(NAME).schema(fields)
    return reader.option(WORK, work.to_option()).load()


def _read(
    spark: SparkSession,
    metadata: Metadata,
    snapshot: Snapshot,
    selection: Selection,
    *,
    with_places: bool,
) -> Any:
    blocks = SnapshotBlocks(metadata, snapshot, selection)
    if metadata.is_clone():
        blocks.matching(None)  # an origin that may not be read is an error of this call
    scan = BlockScan(
        schema=selection.read,
        blocks=blocks,
        options=filter_options(selection.read, snapshot.schema, snapshot.summary.col_stats),
        places=(FILE, ROW) if with_places else None,
    )
    return read_blocks(spark, scan)


def _named(spark: SparkSession, rows: Any, names: Sequence[str]) -> DataFrame:
    jvm = jvm_of(spark)
    return DataFrame(plain_columns(jvm, rows, columns_of(jvm, names)), spark)


def _check_distinct(schema: Schema, *, case_sensitive: bool) -> None:
    """Raise if columns differ only in case and the session ignores case."""
    names: dict[str, str] = {}
    for name in schema.names():
        if (other := names.setdefault(name.lower(), name)) != name and not case_sensitive:
            raise InvalidInputError(
                "columns differ only in case, and this session ignores case: set "
                "spark.sql.caseSensitive to true, or name only one of them in columns",
                columns=[other, name],
            )


def _restricted(selection: Selection, table: Schema, condition: Condition) -> Selection:
    """Return the selection with the predicate, and with the columns of `table` that it uses."""
    wanted = {column.id for column in selection.schema.columns}
    looked_at = condition.columns
    read = tuple(
        column
        for column in table.columns
        if column.id in wanted or looked_at is None or column.name in looked_at
    )
    return dataclasses.replace(
        selection,
        read=dataclasses.replace(table, columns=read),
        predicate=condition.bound,
        leaf_ids=table.bounded_ids,
    )


TIME_ZONE = "spark.sql.session.timeZone"
_PLAIN = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""Settings under which Spark reads a predicate as the format does."""
_OTHERS = ("spark.sql.ansi.", "spark.sql.legacy.", "spark.sql.parser.", "spark.sql.session.")
"""Prefixes of other settings that may change a predicate's meaning."""


def read_by_format(
    spark: SparkSession,
    options: Mapping[str, str],
    table: Schema,
    selection: Selection,
    where: str | None,
) -> DataFrame:
    """Return the rows of `selection` for which `where` holds; `options` name the snapshot.

    Raises:
        InvalidInputError: Spark refuses the predicate.
    """
    reader = spark.read.format("fuse").options(**options)
    names = list(selection.schema.names())
    if where is None:
        return reader.option("columns", json.dumps(names)).load()
    zone = str(spark.conf.get(TIME_ZONE))
    if is_read_alike(spark, table, where, time_zone=zone):
        reader = reader.option("columns", json.dumps(names)).option("where", where)
        return reader.option("timeZone", zone).load()
    if table.visible is not table:  # the predicate may name hidden columns
        reader = reader.option("columns", json.dumps(list(table.names())))
    try:
        rows = reader.load().where(where).select(*(col(quoted(name)) for name in names))
        _ = rows.schema  # analyse now, not when the rows are used
    except SPARK_ERRORS as error:
        raise refused(error) from error
    return rows


def is_read_alike(spark: SparkSession, table: Schema, where: str, *, time_zone: str) -> bool:
    """True if the format reads a predicate as the session would in this time zone."""
    is_literal = "${" not in where  # else Spark replaces it by a setting's value
    return is_literal and is_plain(spark.conf.getAll) and _is_supported(table, where, time_zone)


def is_plain(settings: Mapping[str, str]) -> bool:
    """True if a session reads predicates as in ANSI mode; `settings` are all that it has set."""
    for name, value in settings.items():
        if name in _PLAIN:
            if value.lower() != _PLAIN[name].lower():
                return False
        elif name != TIME_ZONE and name.startswith(_OTHERS):
            return False
    return True


def _is_supported(table: Schema, where: str, zone: str) -> bool:
    try:
        select(table, where=where, time_zone=zone)
    except InvalidInputError:
        return False
    return True
