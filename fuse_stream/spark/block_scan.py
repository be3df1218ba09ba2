"""Read blocks as Parquet files, through Spark's own reader.

Rules:
- Segments name all that Spark must know of a file; nothing is listed. So that a missing block or a
  store without access is found before tasks start, local files are looked for here; of others the
  first one.
- Columns are found by id, not by name. Reader options cannot switch that on, so the files are
  resolved in a session of their own, and the analyzed plan is moved to the user's session.
- The plan runs in the user's session: its time zone, its shuffles, its cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types

from fuse_stream.errors import CorruptObjectError, UnsupportedStorageError
from fuse_stream.format.layout import block_key
from fuse_stream.format.records import Block, ColumnStats
from fuse_stream.format.schema import Column, Schema
from fuse_stream.spark.hidden_rows import (
    HiddenRows,
    first_words,
    fits_plan,
    without_hidden,
)
from fuse_stream.spark.jvm.file_scan import Constant, ScannedFile, hadoop_path, scan_files
from fuse_stream.spark.jvm.proxies import java_class, jvm_of, scala_seq
from fuse_stream.spark.types import quoted, spark_schema, unused_name
from fuse_stream.storage.base import Store

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

FIELD_ID = "parquet.field.id"

_FIRST_WORD, _FILE, _ROW = "_fuse_first_word", "_fuse_block_file", "_fuse_block_row"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFile:
    """The file of a block, and which of its rows are read."""

    location: str
    byte_count: int
    hidden: HiddenRows | None
    """None if all rows are read."""
    constants: tuple[int | str, ...] = ()
    """The values of the scan's constants in all rows."""


def block_file(store: Store, block: Block, constants: tuple[int | str, ...] = ()) -> BlockFile:
    """Return the file of a block of the table in `store`."""
    hidden = block.hidden
    return BlockFile(
        location=store.location(block_key(block.id, block.origin)),
        byte_count=block.file_size,
        hidden=None if hidden is None else HiddenRows(row_count=block.row_count, hidden=hidden),
        constants=constants,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockScan:
    """A scan of blocks by Spark's Parquet reader."""

    schema: Schema
    """The columns to read, with their ids in the files."""
    blocks: Sequence[BlockFile]
    options: Mapping[str, str]
    """The reader's; see `UnsafeFilters`."""
    constants: tuple[Constant, ...] = ()
    places: tuple[str, str] | None = None
    """The names of two more columns: of a row's file, and of the row's position there, from 0."""
    is_streaming: bool = False

    @property
    def is_local(self) -> bool:
        return bool(self.blocks) and is_local(self.blocks[0].location)


def is_local(location: str) -> bool:
    """True for a path, False for a URL."""
    return "://" not in location


def read_blocks(spark: SparkSession, scan: BlockScan) -> Any:
    """Return a Dataset of the JVM in the session `spark`, with the rows of a scan.

    Its columns are those of the schema, with their ids, then the constants, then the places.

    Raises:
        CorruptObjectError: a block is missing.
        UnsupportedStorageError: Spark has no file system for this store.
    """
    user: JavaObject = spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
    reader = reader_session(spark, is_local=scan.is_local)
    return in_session(jvm_of(spark), user, scan_blocks(spark, reader, scan))


def scan_blocks(spark: SparkSession, reader: JavaObject, scan: BlockScan) -> Any:
    """Return the Dataset of `read_blocks`, in a session that `reader_session` made.

    Raises:
        CorruptObjectError: a block is missing.
        UnsupportedStorageError: Spark has no file system for this store.
    """
    _check_present(jvm_of(spark), reader, scan)
    parts = [scan.blocks]
    if not fits_plan([block.hidden for block in scan.blocks]):
        # The join reads its rows without the user's filters.
        whole = [block for block in scan.blocks if block.hidden is None]
        parts = [whole, [block for block in scan.blocks if block.hidden is not None]]
    rows = [_shown(spark, reader, scan, blocks) for blocks in parts]
    return reduce(lambda some, more: some.union(more), rows)


def in_session(jvm: Any, session: JavaObject, rows: Any) -> Any:
    """Return a Dataset of the JVM, with what is added to its plan resolved in another session."""
    analyzed = rows.queryExecution().analyzed()
    return java_class(jvm, "org.apache.spark.sql.classic.Dataset").ofRows(session, analyzed)


def _shown(
    spark: SparkSession, reader: JavaObject, scan: BlockScan, blocks: Sequence[BlockFile]
) -> Any:
    """Return the rows of some blocks of a scan, in the session `reader`."""
    names = [*scan.schema.names(), *(each.name for each in scan.constants)]
    hidden = [block.hidden for block in blocks]
    is_whole = all(rows is None for rows in hidden)
    first_word, file, row = (unused_name(name, names) for name in (_FIRST_WORD, _FILE, _ROW))
    constants = [] if is_whole else [Constant(name=first_word, type="long")]
    files = [
        ScannedFile(
            location=block.location,
            byte_count=block.byte_count,
            constants=block.constants if is_whole else (*block.constants, start),
        )
        for block, start in zip(blocks, first_words(hidden), strict=True)
    ]
    places = scan.places or (None if is_whole else (file, row))
    rows = scan_files(
        spark,
        reader,
        files,
        fields=reader.parseDataType(struct_of(scan.schema).json()),
        constants=(*scan.constants, *constants),
        places=places,
        options=scan.options,
        is_streaming=scan.is_streaming,
    )
    if is_whole or places is None:
        return rows
    jvm = jvm_of(spark)
    start, at = (rows.col(quoted(name)) for name in (first_word, places[1]))
    shown = without_hidden(spark, rows, start, at, hidden)
    wanted = columns_of(jvm, [*names, *(scan.places or ())])
    return shown.select(scala_seq(jvm, wanted.values()))


def _check_present(jvm: Any, reader: JavaObject, scan: BlockScan) -> None:
    """Raise if a block is missing, as far as that is known without a request for each."""
    if scan.is_local:
        for block in scan.blocks:
            if not Path(block.location).exists():
                raise _missing(block.location)
        return
    for block in scan.blocks[:1]:
        path = hadoop_path(jvm, block.location)
        try:
            files = path.getFileSystem(reader.sessionState().newHadoopConf())
            is_there = files.exists(path)
        except Py4JJavaError as error:
            raise UnsupportedStorageError(
                "Spark's own reader cannot open this store: give Spark the store's file system "
                '(its jar and its settings), or read with spark.read.format("fuse")',
                location=block.location,
            ) from error
        if not is_there:
            raise _missing(block.location)


def _missing(location: str) -> CorruptObjectError:
    return CorruptObjectError(
        "a block is missing: fuse-stream fsck on this path shows what else is, and which versions "
        "still work",
        location=location,
    )


class UnsafeFilters:
    """Finds the filters of Parquet's reader that would lose rows of the blocks to read."""

    def __init__(
        self, schema: Schema, table: Schema, table_stats: Mapping[int, ColumnStats] | None
    ) -> None:
        """Look at blocks for a scan of `schema`; without statistics, any value may be there."""
        floats = [leaf for leaf in schema.leaves() if leaf.column.type in _FLOATS]
        bounded = frozenset(() if table_stats is None else schema.bounded_ids.values())
        table_stats = table_stats or {}
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


def reader_session(spark: SparkSession, *, is_local: bool) -> JavaObject:
    """Return a new session of the JVM in which blocks are read."""
    # The user's settings for files (splits, S3) apply to these files too.
    return session_like(spark, READER_SETTINGS, unless_set=LOCAL_SETTINGS if is_local else {})


def session_like(
    spark: SparkSession, settings: Mapping[str, str], *, unless_set: Mapping[str, str] | None = None
) -> JavaObject:
    """Return a new session of the JVM, with the settings that a session has now and with others."""
    user: JavaObject = spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
    found = jvm_of(spark).java.util.Properties()
    found.putAll(dict(unless_set or {}))
    found.putAll(user.sessionState().conf().settings())
    found.putAll(dict(settings))
    session = user.newSession()
    session.sessionState().conf().setConf(found)
    return session


def struct_of(schema: Schema) -> spark_types.StructType:
    """Return the columns of a schema, with their ids, as Spark's Parquet reader takes them."""
    return _struct(schema.columns, spark_schema(schema))


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


def plain_columns(jvm: Any, rows: Any, columns: Mapping[str, Any]) -> Any:
    """Return a Dataset of the JVM with columns by their names.

    They are without the ids, which Spark would write into the user's files.
    """
    return rows.select(scala_seq(jvm, without_ids(jvm, columns)))


def without_ids(jvm: Any, columns: Mapping[str, Any]) -> list[Any]:
    """Return columns with their names and nothing else that Spark knows of them."""
    nothing = java_class(jvm, "org.apache.spark.sql.types.Metadata").empty()
    return [getattr(column, "as")(name, nothing) for name, column in columns.items()]


def columns_of(jvm: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return columns by their names."""
    # Not those of a Dataset, which compares case as the thread's session does.
    sql = java_class(jvm, "org.apache.spark.sql.functions")
    return {name: sql.col(quoted(name)) for name in names}
