"""Scan Parquet files by Spark's own reader. Spark lists no folder: it asks for the files to read.

It asks when it plans a query, with the query's filters. Each file has constants: columns with one
value for all rows of the file. They reach Spark as the columns of a partition of a table, with one
partition for all files that have the same constants. So one scan reads files that differ in what
their rows are, and Spark splits all of them into tasks.
"""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types

from fuse_stream.spark.jvm.bulk import MANY, Handles, writables
from fuse_stream.spark.jvm.java_errors import NamedProxy, let_errors_through
from fuse_stream.spark.jvm.packing import Packing
from fuse_stream.spark.jvm.proxies import (
    java_class,
    java_strings,
    jvm_of,
    scala_object,
    scala_seq,
)

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

_SOURCES = "org.apache.spark.sql.execution.datasources"
_CATALYST = "org.apache.spark.sql.catalyst"
_TYPES: Mapping[str, spark_types.DataType] = {
    "long": spark_types.LongType(),
    "string": spark_types.StringType(),
    "timestamp": spark_types.TimestampType(),
}
_FILE_STATUS = "org.apache.hadoop.fs.FileStatus"
_BLOCK_BYTES = 128 * 1024 * 1024
"""Of the file system; Spark asks for it only to place tasks near their data."""
ROW_INDEX = "_tmp_metadata_row_index"
"""The name of a column of type `long` that no file has: Spark's reader fills it with the position
of each row in its file, from 0. Asking for `_metadata.row_index` makes a struct for each row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedFile:
    """A Parquet file to read."""

    location: str
    """A path, or a URL with a scheme that Hadoop knows."""
    byte_count: int
    constants: tuple[int | str, ...] = ()
    """The values of the scan's constants; of a timestamp the microseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A column with one value for each file."""

    name: str
    """Other than the names of the files' columns."""
    type: str
    """Spark's name of the type: `long`, `string` or `timestamp`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileListing:
    """The files of a scan."""

    find: Callable[[JavaObject], Sequence[ScannedFile]]
    """Returns the files that may hold a row for which Spark's expressions hold. It is called in any
    thread."""
    byte_count: int
    """Of all files, or an estimate."""
    identity: object
    """For Spark's cache, two listings whose identities have the same `repr` are one."""


class _FileIndex(NamedProxy):
    """A `FileIndex` of a listing."""

    def __init__(self, spark: SparkSession, reader: Any, listing: FileListing, schema: Any) -> None:
        """Keep what lists files; `reader` is the scan's own, for its settings are changed."""
        self._reader = reader
        self._packing = Packing.of(reader)
        self._listing = listing
        identity = hashlib.sha256(repr(listing.identity).encode(errors="surrogatepass"))
        self._name = f"fuse {identity.hexdigest()}"
        self.jvm = jvm_of(spark)
        let_errors_through(spark)
        self._schema = schema

    def listFiles(self, partition_filters: Any, data_filters: Any) -> Any:  # noqa: N802
        files = self._listing.find(data_filters)
        runs = [list(run) for _, run in itertools.groupby(files, key=lambda file: file.constants)]
        found = directories(self.jvm, runs)
        if not partition_filters.isEmpty():
            is_wanted = self._test(partition_filters)
            found = [each for each in found if is_wanted(each.values())]
        self._packing.set_limit(self._reader, [file.byte_count for file in files])
        return scala_seq(self.jvm, found)

    def _test(self, filters: Any) -> Callable[[Any], bool]:
        """Return whether filters hold for constants: Spark does not test these for the rows."""
        tests = []
        binding = scala_object(self.jvm, f"{_CATALYST}.expressions.BindReferences")
        predicate = scala_object(self.jvm, f"{_CATALYST}.expressions.Predicate")
        for at in range(filters.size()):
            attributes = self._attributes(filters.apply(at))
            bound = binding.bindReference(filters.apply(at), attributes, False)  # noqa: FBT003 - Java's
            tests.append(predicate.createInterpreted(bound))
        return lambda row: all(test.eval(row) for test in tests)

    def _attributes(self, expression: Any) -> Any:
        """Return the constants, in their order, as the attributes that an expression has."""
        given = expression.references().toSeq()
        known = {each.name(): each for each in (given.apply(at) for at in range(given.size()))}
        own = java_class(self.jvm, f"{_CATALYST}.types.DataTypeUtils").toAttributes(self._schema)
        in_order = [own.apply(at) for at in range(own.size())]
        made = java_class(self.jvm, f"{_CATALYST}.expressions.package$AttributeSeq")
        return made(scala_seq(self.jvm, [known.get(each.name(), each) for each in in_order]))

    def rootPaths(self) -> Any:  # noqa: N802
        return scala_seq(self.jvm, ())

    def inputFiles(self) -> Any:  # noqa: N802
        files = self._listing.find(scala_seq(self.jvm, ()))
        new_path = java_class(self.jvm, "org.apache.hadoop.fs.Path")
        names = [new_path(hadoop_name(file.location)).toUri().toString() for file in files]
        return java_strings(self.jvm, names)

    def refresh(self) -> None:
        """Do nothing: blocks do not change."""

    def sizeInBytes(self) -> int:  # noqa: N802
        return self._listing.byte_count

    def partitionSchema(self) -> Any:  # noqa: N802
        return self._schema

    def metadataOpsTimeNs(self) -> Any:  # noqa: N802
        return self.jvm.scala.Option.empty()

    def isTimeTravel(self) -> bool:  # noqa: N802
        return False

    def toString(self) -> str:  # noqa: N802
        return self._name

    class Java:
        implements = (f"{_SOURCES}.FileIndex",)


def scan_files(
    spark: SparkSession,
    reader: JavaObject,
    listing: FileListing,
    *,
    fields: JavaObject,
    constants: Sequence[Constant] = (),
    options: Mapping[str, str],
    is_streaming: bool = False,
) -> Any:
    """Return a Dataset of the JVM with the rows of files: the `fields`, then the constants.

    Args:
        spark: a classic session.
        reader: the session of the JVM whose settings the Parquet reader has.
        listing: the files to read. A file may be there twice, with other constants.
        fields: the `StructType` of the JVM with the columns to read, perhaps also `ROW_INDEX`.
        constants: the columns of which each file has a value, in this order.
        options: of the Parquet reader.
        is_streaming: True for the rows of a micro-batch.
    """
    jvm = jvm_of(spark)
    schema = reader.parseDataType(constants_struct(constants).json())
    own = reader.cloneSession()
    relation = java_class(jvm, f"{_SOURCES}.HadoopFsRelation")(
        _FileIndex(spark, own, listing, schema),
        schema,
        fields,
        jvm.scala.Option.empty(),
        java_class(jvm, f"{_SOURCES}.parquet.ParquetFileFormat")(),
        _map(jvm, options),
        own,
    )
    plan = scala_object(jvm, f"{_SOURCES}.LogicalRelation").apply(relation, is_streaming)
    return java_class(jvm, "org.apache.spark.sql.classic.Dataset").ofRows(reader, plan)


def hadoop_path(jvm: Any, location: str) -> Any:
    """Return a location as Hadoop's `Path`."""
    return java_class(jvm, "org.apache.hadoop.fs.Path")(hadoop_name(location))


def hadoop_name(location: str) -> str:
    """Return the text of a location for Hadoop's `Path`, in which no character has a meaning."""
    # Without a scheme the path would be one of `fs.defaultFS`.
    return f"file:{location}" if is_local(location) else location


def is_local(location: str) -> bool:
    """True for a path, False for a URL."""
    return "://" not in location


def unsafe_row(values: Sequence[int | str]) -> bytes:
    """Return values as the bytes of Spark's `UnsafeRow`; none of them is null.

    A bit for each null, in words of 64; then a word for each value. The word of a text is its
    offset in the row, times 2^32, plus its length; the text itself follows, padded to whole words.
    """
    null_bytes = -(-len(values) // 64) * 8
    at = null_bytes + 8 * len(values)
    words, texts = [], b""
    for value in values:
        if isinstance(value, str):
            text = value.encode()
            words.append((at + len(texts)) << 32 | len(text))
            texts += text + bytes(-len(text) % 8)
        else:
            words.append(value)
    return bytes(null_bytes) + struct.pack(f"<{len(words)}q", *words) + texts


def directories(jvm: Any, runs: Sequence[Sequence[ScannedFile]]) -> Iterable[Any]:
    """Return a `PartitionDirectory` of Spark for each run of files with the same constants."""
    statuses = file_statuses(jvm, runs)
    values = [unsafe_row(run[0].constants) for run in runs]
    width = len(runs[0][0].constants) if runs else 0
    make = scala_object(jvm, f"{_SOURCES}.PartitionDirectory")
    if len(runs) >= MANY:
        handles = Handles(jvm)
        directory = handles.result_of(
            make,
            "apply",
            handles.kind(f"{_SOURCES}.PartitionDirectory"),
            (handles.kind(f"{_CATALYST}.InternalRow"), handles.unsafe_rows(width, values)),
            (handles.kind(f"[L{_FILE_STATUS};"), handles.item_of(statuses)),
        )
        made: Iterable[Any] = handles.call(directory, len(runs))
        return made
    rows = []
    for data in values:
        row = java_class(jvm, f"{_CATALYST}.expressions.UnsafeRow")(width)
        row.pointTo(data, len(data))
        rows.append(row)
    return [make.apply(row, statuses[at]) for at, row in enumerate(rows)]


def file_statuses(jvm: Any, runs: Sequence[Sequence[ScannedFile]]) -> Any:
    """Return an array of the JVM with an array of Hadoop's `FileStatus` for each run of files."""
    return writables(jvm, _FILE_STATUS, [[_status(file) for file in run] for run in runs])


def _status(file: ScannedFile) -> bytes:
    """Return the bytes of a `FileStatus`, as it writes and reads itself.

    They are the message `FileStatusProto` of Hadoop's `FSProtos.proto`.
    """
    path = hadoop_name(file.location).encode()
    message = b"".join(
        (
            _field(1, 2),  # a file
            _number(2 << 3 | 2) + _number(len(path)) + path,
            _field(3, file.byte_count),
            _field(10, 1),  # replication
            _field(11, _BLOCK_BYTES),
        )
    )
    return struct.pack(">i", len(message)) + message


def _field(number: int, value: int) -> bytes:
    return _number(number << 3) + _number(value)


def _number(value: int) -> bytes:
    """Return a number as protobuf writes it: seven bits a byte, the lowest ones first."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def constants_struct(constants: Sequence[Constant]) -> spark_types.StructType:
    """Return the columns of constants; none of their values is null."""
    return spark_types.StructType(
        [
            spark_types.StructField(each.name, _TYPES[each.type], nullable=False)
            for each in constants
        ]
    )


def _map(jvm: Any, items: Mapping[str, str]) -> Any:
    found = scala_object(jvm, "scala.collection.immutable.Map").empty()
    for name, value in items.items():
        found = found.updated(name, value)
    return found
