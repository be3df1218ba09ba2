"""Read blocks as Parquet files, through Spark's own reader.

Rules:
- Segments name all that Spark must know of a file; nothing is listed. On a remote store the first
  block is looked for, so that a store without access is found before tasks start.
- Columns are found by id, and have the names that they have in files: Spark tests filters by names,
  and prunes nested columns by them. A projection gives the columns the names of the schema; Spark
  sees through it.
- Columns are found by id, not by name. Reader options cannot switch that on, so the files are
  resolved in a session of their own, and the analyzed plan is moved to the user's session.
- The plan runs in the user's session: its time zone, its shuffles, its cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types

from fuse_stream.errors import (
    InvalidInputError,
    UnsupportedStorageError,
)
from fuse_stream.format.records import ColumnStats
from fuse_stream.format.schema import Column, Schema, current_paths, stored_form
from fuse_stream.predicate.renamed import renamed
from fuse_stream.spark.block_list import BlockFile, BlockList, BlocksOfAKind, missing_block
from fuse_stream.spark.hidden_rows import (
    NOTHING_HIDDEN,
    first_words,
    fits_plan,
    without_hidden,
)
from fuse_stream.spark.jvm.file_scan import (
    ROW_INDEX,
    Constant,
    FileListing,
    ScannedFile,
    hadoop_path,
    is_local,
    scan_files,
)
from fuse_stream.spark.jvm.proxies import java_class, jvm_of, scala_seq
from fuse_stream.spark.types import quoted, spark_schema, unused_name
from fuse_stream.spark.where import read_filters

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

FIELD_ID = "parquet.field.id"

_FIRST_WORD, _FILE = "_fuse_first_word", "_fuse_file"

_FLOATS = frozenset({"float", "double"})

READER_SETTINGS: Mapping[str, str] = {
    # If off, the columns of files that another writer made are found by name.
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
class BlockScan:
    """A scan of blocks by Spark's Parquet reader."""

    schema: Schema
    """The columns to read, with their ids in the files."""
    blocks: BlockList
    options: Mapping[str, str]
    """The reader's; see `filter_options`."""
    constants: tuple[Constant, ...] = ()
    places: tuple[str, str] | None = None
    """The names of two more columns: of a row's file, and of the row's position there, from 0."""
    is_streaming: bool = False


def read_blocks(spark: SparkSession, scan: BlockScan) -> Any:
    """Return a Dataset of the JVM in the session `spark`, with the rows of a scan.

    Its columns are those of the schema, with their ids, then the constants, then the places.

    Raises:
        CorruptObjectError: a deletion file, or a segment whose blocks hide rows, is missing or
            damaged.
        InvalidInputError: a column has a name that Spark's reader gives a meaning.
        UnsupportedStorageError: Spark has no file system for this store.
    """
    user: JavaObject = spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
    reader = reader_session(spark, is_local=is_local(scan.blocks.folder))
    return in_session(jvm_of(spark), user, scan_blocks(spark, reader, scan))


def scan_blocks(spark: SparkSession, reader: JavaObject, scan: BlockScan) -> Any:
    """Return the Dataset of `read_blocks`, in a session that `reader_session` made.

    Raises: the errors of `read_blocks`.
    """
    if ROW_INDEX in {*scan.schema.names(), *stored_form(scan.schema).names()}:
        raise InvalidInputError(
            "Spark's Parquet reader fills a column of this name itself: leave it out of columns, "
            'or read with spark.read.format("fuse")',
            column=ROW_INDEX,
        )
    if not is_local(scan.blocks.folder):
        _file_system(jvm_of(spark), reader, scan.blocks.folder)
    hiding = scan.blocks.hiding()
    if not hiding:
        return _scanned(spark, reader, scan, scan.blocks, [])
    if fits_plan([block.hidden for block in hiding if block.hidden is not None]):
        return _scanned(spark, reader, scan, scan.blocks, hiding)
    # A join reads its rows without the user's filters.
    whole = _scanned(spark, reader, scan, BlocksOfAKind(scan.blocks, is_hiding=False), [])
    others = BlocksOfAKind(scan.blocks, is_hiding=True)
    return whole.union(_scanned(spark, reader, scan, others, hiding))


def in_session(jvm: Any, session: JavaObject, rows: Any) -> Any:
    """Return a Dataset of the JVM, with what is added to its plan resolved in another session."""
    analyzed = rows.queryExecution().analyzed()
    return java_class(jvm, "org.apache.spark.sql.classic.Dataset").ofRows(session, analyzed)


def _scanned(
    spark: SparkSession,
    reader: JavaObject,
    scan: BlockScan,
    blocks: BlockList,
    hiding: Sequence[BlockFile],
) -> Any:
    """Return the rows of some blocks of a scan, in the session `reader`."""
    jvm = jvm_of(spark)
    in_files = stored_form(scan.schema)
    names = [*in_files.names(), *(each.name for each in scan.constants)]
    first_word, file = (unused_name(name, names) for name in (_FIRST_WORD, _FILE))
    fields, constants = struct_of(in_files), [*scan.constants]
    if scan.places is not None or hiding:
        fields.add(ROW_INDEX, "long")
    if scan.places is not None:
        constants.append(Constant(name=file, type="string"))
    if hiding:
        constants.append(Constant(name=first_word, type="long"))
    hidden = [block.hidden for block in hiding if block.hidden is not None]
    starts = dict(zip((block.key for block in hiding), first_words(hidden), strict=True))

    def constants_of(block: BlockFile) -> tuple[int | str, ...]:
        name = () if scan.places is None else (block.location.rpartition("/")[2],)
        start = (starts.get(block.key, NOTHING_HIDDEN),) if hiding else ()
        return (*block.constants, *name, *start)

    def find(filters: JavaObject) -> list[ScannedFile]:
        where = read_filters(filters, in_files)
        if where is not None and in_files is not scan.schema:
            where = renamed(where, current_paths(scan.schema))
        found = blocks.matching(where)
        _check_first(jvm, reader, found)
        return [
            ScannedFile(
                location=block.location,
                byte_count=block.byte_count,
                constants=constants_of(block),
            )
            for block in found
        ]

    listing = FileListing(find=find, byte_count=blocks.byte_count, identity=blocks.identity)
    rows = scan_files(
        spark,
        reader,
        listing,
        fields=reader.parseDataType(fields.json()),
        constants=constants,
        options=scan.options,
        is_streaming=scan.is_streaming,
    )
    shown = rows
    if hidden:
        start, row = (rows.col(quoted(name)) for name in (first_word, ROW_INDEX))
        shown = without_hidden(spark, rows, start, row, hidden)
    columns = {
        **_current_columns(jvm, reader, scan.schema),
        **columns_of(jvm, (each.name for each in scan.constants)),
    }
    if scan.places is not None:
        for name, place in zip(scan.places, (file, ROW_INDEX), strict=True):
            columns[name] = getattr(columns_of(jvm, [place])[place], "as")(name)
    return shown.select(scala_seq(jvm, columns.values()))


def _current_columns(jvm: Any, reader: JavaObject, schema: Schema) -> dict[str, Any]:
    """Return the columns of a schema by their names, made of those that files have."""
    in_files = stored_form(schema)
    columns = columns_of(jvm, in_files.names())
    if in_files is schema:
        return columns
    found = {}
    fields = struct_of(schema).fields
    for column, stored, field in zip(schema.columns, in_files.columns, fields, strict=True):
        values = columns[stored.name]
        if column.children and column != stored and column.children != stored.children:
            # By position: both have the same fields, with other names.
            values = values.cast(reader.parseDataType(_plain(field.dataType).json()))
        found[column.name] = getattr(values, "as")(column.name)
    return found


def _plain(data_type: spark_types.DataType) -> spark_types.DataType:
    """Return a type without the ids of its columns."""
    match data_type:
        case spark_types.StructType():
            return spark_types.StructType(
                [
                    spark_types.StructField(field.name, _plain(field.dataType), field.nullable)
                    for field in data_type.fields
                ]
            )
        case spark_types.ArrayType():
            return spark_types.ArrayType(_plain(data_type.elementType), data_type.containsNull)
        case spark_types.MapType():
            key, value = _plain(data_type.keyType), _plain(data_type.valueType)
            return spark_types.MapType(key, value, data_type.valueContainsNull)
        case _:
            return data_type


def _check_first(jvm: Any, reader: JavaObject, blocks: Sequence[BlockFile]) -> None:
    """Raise if the first block on a remote store is missing or cannot be read."""
    first = next((block for block in blocks if not is_local(block.location)), None)
    if first is None:
        return
    files = _file_system(jvm, reader, first.location)
    try:
        is_there = files.exists(hadoop_path(jvm, first.location))
    except Py4JJavaError as error:
        raise _unreadable(first.location, error) from error
    if not is_there:
        raise missing_block(first)


def _file_system(jvm: Any, reader: JavaObject, location: str) -> Any:
    """Return Hadoop's file system of a location; it is not asked for anything."""
    try:
        return hadoop_path(jvm, location).getFileSystem(reader.sessionState().newHadoopConf())
    except Py4JJavaError as error:
        raise _unreadable(location, error) from error


def _unreadable(location: str, error: Py4JJavaError) -> UnsupportedStorageError:
    return UnsupportedStorageError(
        "Spark's own reader cannot open this store: give Spark the store's file system "
        '(its jar and its settings), or read with spark.read.format("fuse")',
        location=location,
        reason=str(error.java_exception.toString()).partition("\n")[0][:300],
    )


def filter_options(
    schema: Schema, table: Schema, table_stats: Mapping[int, ColumnStats] | None
) -> dict[str, str]:
    """Return the options that switch off the filters of Parquet's reader that would lose rows.

    Args:
        schema: the columns to read.
        table: all columns of the table.
        table_stats: of all blocks to read; without them, any value may be there.
    """
    floats = [leaf for leaf in schema.leaves() if leaf.column.type in _FLOATS]
    bounded = frozenset(() if table_stats is None else schema.bounded_ids.values())
    table_stats = table_stats or {}
    is_unknown = any(not (leaf.repeated or leaf.column.id in bounded) for leaf in floats)
    known = [
        table_stats[leaf.column.id]
        for leaf in floats
        if leaf.column.id in bounded and leaf.column.id in table_stats
    ]
    options = {}
    # Parquet's bounds leave NaN out: `x > 1` would lose rows, as NaN is the greatest in Spark.
    if is_unknown or any(stats.nan_count for stats in known):
        options["parquet.filter.stats.enabled"] = "false"
    # Its dictionaries distinguish -0.0 from 0.0: `x = 0` would lose rows; Spark takes them for
    # equal. And it finds a dictionary by the path with dots: for column `a.b`, field b of a.
    is_dotted = any("." in name for leaf in table.leaves() for name in leaf.stored_path)
    if is_unknown or is_dotted or any(map(_may_hold_zero, known)):
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
    found = java_class(jvm_of(spark), "java.util.Properties")()
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
    col = java_class(jvm, "org.apache.spark.sql.functions").col
    return {name: col(quoted(name)) for name in names}
