"""Read a snapshot as a DataFrame, through Spark's own Parquet reader.

Rules:
- Segments and blocks are pruned here; Spark reads the remaining blocks as files. Blocks that hide
  rows are a second scan, with a filter; without such blocks the plan is one scan of all files.
- Columns are found by id, not by name. Reader options cannot switch that on, so the files are
  resolved in a session of their own, and the analyzed plan is moved to the user's session.
- The plan runs in the user's session: its time zone, its shuffles, its cache.

On Spark Connect, the rows come through `format("fuse")`. There Spark's resolved predicate cannot be
read. The format reads a predicate as in ANSI mode, so it gets the predicate only if the session's
settings give it the same meaning. In other sessions every block is read, and Spark filters alone.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.functions import col, lit

from fuse_stream.errors import CorruptObjectError, InvalidInputError, UnsupportedStorageError
from fuse_stream.format.layout import MAIN, block_key
from fuse_stream.format.names import Version, pin
from fuse_stream.format.records import Block, ColumnStats, Snapshot
from fuse_stream.format.schema import Column, Schema
from fuse_stream.format.side_schemas import shown_side
from fuse_stream.format.times import Timestamp
from fuse_stream.objects.slots import Metadata
from fuse_stream.reading.scan import Selection, prune, select
from fuse_stream.spark.collect import SPARK_ERRORS
from fuse_stream.spark.hidden_rows import HidingFile, place_of, without_hidden
from fuse_stream.spark.types import is_case_sensitive, quoted, spark_schema
from fuse_stream.spark.where import Condition, analyse, refused
from fuse_stream.table.handle import Table, open_at
from fuse_stream.table.location import TableLocation

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

FIELD_ID = "parquet.field.id"

FILE, ROW = "_fuse_file", "_fuse_row"
"""The columns of a row's place: the name of its block's file, and its position there, from 0."""

_FLOATS = frozenset({"float", "double"})

READER_SETTINGS: Mapping[str, str] = {
    # If off, a renamed or added column is silently read as nulls. Filters on row groups still go by
    # name: with renaming, they must be off for blocks that are older than the new name.
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.fieldId.read.ignoreMissing": "true",
    # Names that differ in case are different columns.
    "spark.sql.caseSensitive": "true",
    # Blocks use the proleptic Gregorian calendar; Spark refuses files without its own mark of that.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.parquet.filterPushdown": "true",
    "spark.sql.parquet.mergeSchema": "false",
    # A missing or damaged block is an error, even if the user allows missing files elsewhere.
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    # Above this number of paths, Spark starts a job to list them: 3.5 s for a thousand.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": str(2**31 - 1),
    "spark.sql.sources.useV1SourceList": "parquet",
}

LOCAL_SETTINGS: Mapping[str, str] = {
    # Opening a block on a local disk takes as long as reading this many bytes. Spark's default,
    # 4 MB, is for object stores: a few small blocks would count as much as all others, and one task
    # would read nearly all rows.
    "spark.sql.files.openCostInBytes": str(256 * 1024)
}
"""Used unless the user has set them."""


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
        spark: the session; on Spark Connect the rows come through `format("fuse")`.
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
            timestamp, or columns that differ only in case in a session that ignores case.
        UnsupportedStorageError: Spark has no file system for this store.
    """
    location = TableLocation.of(path, branch, storage_options, origins)
    table = open_at(location)
    snapshot = table.snapshot(version, timestamp=timestamp)
    if side is not None:
        snapshot = shown_side(snapshot, side)
    case_sensitive = is_case_sensitive(spark)
    selection = select(snapshot.schema, columns=columns, case_sensitive=case_sensitive)
    if not hasattr(spark, "_jsparkSession"):
        _check_distinct(selection.schema, case_sensitive=case_sensitive)
        options = {
            "path": location.path,
            "branch": branch,
            "storageOptions": json.dumps(dict(location.storage_options)),
            "origins": json.dumps(location.origins),
            "versionAsOf": pin(version, snapshot.version, branch=branch),
            **({} if side is None else {"side": side}),
        }
        return read_on_connect(spark, options, snapshot.schema, selection, where)
    kept = None
    if where is not None:
        condition, kept = analyse(spark, snapshot.schema, where)
        selection = _restricted(selection, snapshot.schema, condition)
    _check_distinct(selection.read, case_sensitive=case_sensitive)
    rows = _read(spark, table.metadata, snapshot, selection, with_places=False)
    if kept is not None:
        rows = DataFrame(rows._jdf.filter(kept), spark)  # noqa: SLF001 - the Column that was analysed
    return _plain(rows, selection.schema.names())


def read_with_places(spark: SparkSession, table: Table, snapshot: Snapshot) -> DataFrame:
    """Return the rows of a snapshot, and where each of them is: its columns `FILE` and `ROW`.

    Hidden columns are among the others.

    Raises:
        InvalidInputError: columns differ only in case in a session that ignores case.
        UnsupportedStorageError: Spark has no file system for this store.
    """
    selection = Selection(schema=snapshot.schema, read=snapshot.schema)
    _check_distinct(selection.read, case_sensitive=is_case_sensitive(spark))
    rows = _read(spark, table.metadata, snapshot, selection, with_places=True)
    return _plain(rows, (*selection.schema.names(), FILE, ROW))


def _read(
    spark: SparkSession,
    metadata: Metadata,
    snapshot: Snapshot,
    selection: Selection,
    *,
    with_places: bool,
) -> DataFrame:
    whole: list[str] = []
    hiding: list[HidingFile] = []
    unsafe = _UnsafeFilters(selection.read, snapshot.schema, snapshot.summary.col_stats)
    for block in prune(metadata, snapshot, selection):  # the records are large: not kept
        file = metadata.store.location(block_key(block.id, block.origin))
        if block.hidden is None:
            whole.append(file)
        else:
            hiding.append(HidingFile(location=file, row_count=block.row_count, hidden=block.hidden))
        unsafe.add(block)
    files = _Files(
        whole=whole, hiding=hiding, options=unsafe.reader_options(), with_places=with_places
    )
    try:
        return _rows(spark, selection.read, files)
    except CorruptObjectError as error:
        error.context.update(path=metadata.store.url, version=snapshot.version)
        raise


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


class _UnsafeFilters:
    """Finds the filters of Parquet's reader that would lose rows of the blocks to read."""

    def __init__(
        self, schema: Schema, table: Schema, table_stats: Mapping[int, ColumnStats]
    ) -> None:
        floats = [leaf for leaf in schema.leaves() if leaf.column.type in _FLOATS]
        bounded = frozenset(schema.bounded_ids.values())
        is_unknown = any(not (leaf.repeated or leaf.column.id in bounded) for leaf in floats)
        known = {
            leaf.column.id: table_stats[leaf.column.id]
            for leaf in floats
            if leaf.column.id in bounded and leaf.column.id in table_stats
        }
        # A value that the table's statistics exclude is in no block.
        self._nan_in = [leaf for leaf, stats in known.items() if stats.nan_count]
        self._zero_in = [leaf for leaf, stats in known.items() if _may_hold_zero(stats)]
        self._nan = self._zero = is_unknown
        self._dotted = any("." in name for leaf in table.leaves() for name in leaf.path)

    def add(self, block: Block) -> None:
        stats = block.col_stats
        if not self._nan:
            self._nan = any(stats[leaf].nan_count for leaf in self._nan_in if leaf in stats)
        if not self._zero:
            self._zero = any(_may_hold_zero(stats[leaf]) for leaf in self._zero_in if leaf in stats)

    def reader_options(self) -> dict[str, str]:
        options = {}
        # Parquet's bounds leave NaN out: `x > 1` would lose rows, as NaN is the greatest in Spark.
        if self._nan:
            options["parquet.filter.stats.enabled"] = "false"
        # Its dictionaries distinguish -0.0 from 0.0: `x = 0` would lose rows; Spark takes them for
        # equal. And it finds a dictionary by the path with dots: for column `a.b`, field b of a.
        if self._zero or self._dotted:
            options["parquet.filter.dictionary.enabled"] = "false"
        return options


def _may_hold_zero(stats: ColumnStats) -> bool:
    low, high = stats.min, stats.max
    is_above = isinstance(low, float) and low > 0
    is_below = isinstance(high, float) and high < 0
    return not (is_above or is_below)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """The files of the blocks to read."""

    whole: Sequence[str]
    """The locations of those of which all rows are read."""
    hiding: Sequence[HidingFile]
    options: Mapping[str, str]
    """The reader's, for all of them."""
    with_places: bool
    """True to add the columns `FILE` and `ROW`."""


def _rows(spark: SparkSession, schema: Schema, files: _Files) -> DataFrame:
    jvm: Any = spark._jvm  # noqa: SLF001 - pyspark offers no public way
    user: JavaObject = spark._jsparkSession  # noqa: SLF001 - the same
    locations = [*files.whole, *(file.location for file in files.hiding)]
    is_local = bool(locations) and "://" not in locations[0]
    reader = _reader_session(jvm, user, LOCAL_SETTINGS if is_local else {})
    fields = reader.parseDataType(_struct(schema.columns, spark_schema(schema)).json())
    if not locations:
        nothing = DataFrame(user.createDataFrame(jvm.java.util.ArrayList(), fields), spark)
        if not files.with_places:
            return nothing
        places = {FILE: lit(None).cast("string"), ROW: lit(None).cast("long")}
        return nothing.withColumns(places)

    def scan(places: Sequence[str]) -> Any:
        # One call: py4j would send a list path by path.
        paths = jvm.java.util.regex.Pattern.compile("\0").split("\0".join(places))
        found = reader.read().options(files.options).schema(fields).parquet(paths)
        if not files.with_places:
            return found
        name, row = place_of(found)
        return found.withColumn(FILE, name).withColumn(ROW, row)

    try:
        parts = [scan(files.whole)] if files.whole else []
        if files.hiding:
            hiding = scan([file.location for file in files.hiding])
            parts.append(without_hidden(spark, hiding, files.hiding))
        analyzed = reduce(lambda some, more: some.union(more), parts).queryExecution().analyzed()
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        raise CorruptObjectError(
            "a block is missing: fuse-stream fsck on this path shows what else is, and which "
            "versions still work",
            reason=str(error)[:300],
        ) from error
    except Py4JJavaError as error:
        raise UnsupportedStorageError(
            "Spark's own reader cannot open this store: give Spark the store's file system (its "
            'jar and its settings), or read with spark.read.format("fuse")',
            location=locations[0],
        ) from error
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(user, analyzed), spark)


def _reader_session(jvm: Any, user: JavaObject, unless_set: Mapping[str, str]) -> JavaObject:
    session = user.newSession()
    settings = jvm.java.util.Properties()
    settings.putAll(dict(unless_set))
    # The user's settings for files (splits, S3) apply to these files too.
    settings.putAll(user.sessionState().conf().settings())
    settings.putAll(dict(READER_SETTINGS))
    session.sessionState().conf().setConf(settings)
    return session


def _plain(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return the named columns without the ids, which Spark would write into the user's files."""
    jdf = rows._jdf  # noqa: SLF001 - pyspark's alias() cannot remove metadata
    jvm: Any = rows.sparkSession._jvm  # noqa: SLF001 - the same
    nothing = jvm.org.apache.spark.sql.types.Metadata.empty()
    columns = jvm.java.util.ArrayList()
    for name in names:
        # Not `jdf.col`, which compares case as the thread's session does.
        column = jvm.org.apache.spark.sql.functions.col(quoted(name))
        columns.add(getattr(column, "as")(name, nothing))
    chosen = jdf.select(jvm.PythonUtils.toSeq(columns))
    return DataFrame(chosen, rows.sparkSession)


def _struct(columns: Sequence[Column], fields: spark_types.StructType) -> spark_types.StructType:
    return spark_types.StructType(
        [
            spark_types.StructField(
                field.name,
                _data_type(column, field.dataType),
                nullable=True,
                metadata={FIELD_ID: column.id},
            )
            for column, field in zip(columns, fields.fields, strict=True)
        ]
    )


def _data_type(column: Column, data_type: spark_types.DataType) -> spark_types.DataType:
    match data_type:
        case spark_types.StructType():
            return _struct(column.children, data_type)
        case spark_types.ArrayType():
            return spark_types.ArrayType(_data_type(column.children[0], data_type.elementType))
        case spark_types.MapType():
            key, value = column.children
            return spark_types.MapType(
                _data_type(key, data_type.keyType), _data_type(value, data_type.valueType)
            )
        case _:
            return data_type


_TIME_ZONE = "spark.sql.session.timeZone"
_PLAIN = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""Settings under which Spark reads a predicate as the format does."""
_OTHERS = ("spark.sql.ansi.", "spark.sql.legacy.", "spark.sql.parser.", "spark.sql.session.")
"""Prefixes of other settings that may change a predicate's meaning."""


def read_on_connect(
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
    zone = str(spark.conf.get(_TIME_ZONE))
    is_literal = "${" not in where  # else Spark replaces it by a setting's value
    if is_literal and is_plain(spark.conf.getAll) and _is_supported(table, where, zone):
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


def is_plain(settings: Mapping[str, str]) -> bool:
    """True if a session reads predicates as in ANSI mode; `settings` are all that it has set."""
    for name, value in settings.items():
        if name in _PLAIN:
            if value.lower() != _PLAIN[name].lower():
                return False
        elif name != _TIME_ZONE and name.startswith(_OTHERS):
            return False
    return True


def _is_supported(table: Schema, where: str, zone: str) -> bool:
    try:
        select(table, where=where, time_zone=zone)
    except InvalidInputError:
        return False
    return True
