"""Scan known Parquet files by Spark's own reader. Spark lists no folder and asks for no file.

Each file has constants: columns with one value for all rows of the file. They reach Spark as the
columns of a partition of a table, with one partition for all files that have the same constants. So
one scan reads files that differ in what their rows are, and Spark splits all of them into tasks.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types

from fuse_stream.spark.jvm.proxies import Proxy, jvm_of, scala_object, scala_seq

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

_SOURCES = "org.apache.spark.sql.execution.datasources"
_TYPES: Mapping[str, spark_types.DataType] = {
    "long": spark_types.LongType(),
    "string": spark_types.StringType(),
    "timestamp": spark_types.TimestampType(),
}
_BLOCK_BYTES = 128 * 1024 * 1024
"""Of the file system; Spark asks for it only to place tasks near their data."""


FindLocations = Callable[[Sequence[Any]], Collection[str]]


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


class _FileList(Proxy):
    """A `FileIndex` of known files. For Spark's cache, two with the same files are equal."""

    def __init__(
        self,
        spark: SparkSession,
        files: Sequence[ScannedFile],
        schema: Any,
        find_locations: FindLocations | None,
    ) -> None:
        self._files = tuple(files)
        self._find_locations = find_locations
        self._gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - pyspark offers no public way
        self._jvm = jvm_of(spark)
        self._schema = schema
        self._directories = self._make_directories(self._files)

    def listFiles(self, _partition_filters: Any, data_filters: Any) -> Any:  # noqa: N802
        if self._find_locations is None or data_filters.isEmpty():
            return self._directories
        filters = [data_filters.apply(at) for at in range(data_filters.size())]
        wanted = self._find_locations(filters)
        if len(wanted) >= len({file.location for file in self._files}):
            return self._directories
        return self._make_directories([file for file in self._files if file.location in wanted])

    def rootPaths(self) -> Any:  # noqa: N802
        return scala_seq(self._jvm, ())

    def inputFiles(self) -> Any:  # noqa: N802
        names = [hadoop_path(self._jvm, file.location).toUri().toString() for file in self._files]
        return self._array(self._jvm.java.lang.String, names)

    def refresh(self) -> None:
        """Do nothing: blocks do not change."""

    def sizeInBytes(self) -> int:  # noqa: N802
        return sum(file.byte_count for file in self._files)

    def partitionSchema(self) -> Any:  # noqa: N802
        return self._schema

    def metadataOpsTimeNs(self) -> Any:  # noqa: N802
        return self._jvm.scala.Option.empty()

    def isTimeTravel(self) -> bool:  # noqa: N802
        return False

    def toString(self) -> str:  # noqa: N802
        return "fuse"

    def hashCode(self) -> int:  # noqa: N802
        return hash(self._files) & 0x7FFF_FFFF

    def equals(self, other: object) -> bool:
        return isinstance(other, _FileList) and other._files == self._files  # noqa: SLF001

    def _make_directories(self, chosen: Sequence[ScannedFile]) -> Any:
        width = self._schema.size()
        make = scala_object(self._jvm, f"{_SOURCES}.PartitionDirectory").apply
        found = []
        for constants, run in itertools.groupby(chosen, key=lambda file: file.constants):
            files = self._array(
                self._jvm.org.apache.hadoop.fs.FileStatus, [self._status(file) for file in run]
            )
            row = self._jvm.org.apache.spark.sql.catalyst.expressions.UnsafeRow(width)
            data = unsafe_row(constants)
            row.pointTo(data, len(data))
            found.append(make(row, files))
        return scala_seq(self._jvm, found)

    def _status(self, file: ScannedFile) -> Any:
        path = hadoop_path(self._jvm, file.location)
        make = self._jvm.org.apache.hadoop.fs.FileStatus
        return make(file.byte_count, False, 1, _BLOCK_BYTES, 0, path)  # noqa: FBT003 - Java's

    def _array(self, of: Any, items: Sequence[Any]) -> Any:
        found = self._gateway.new_array(of, len(items))
        for at, item in enumerate(items):
            found[at] = item
        return found

    class Java:
        implements = (f"{_SOURCES}.FileIndex",)


def scan_files(
    spark: SparkSession,
    reader: JavaObject,
    files: Sequence[ScannedFile],
    *,
    fields: JavaObject,
    constants: Sequence[Constant] = (),
    options: Mapping[str, str],
    is_streaming: bool = False,
    find_locations: FindLocations | None = None,
) -> Any:
    """Return a Dataset of the JVM with the rows of `files`: the `fields`, then the constants.

    Args:
        spark: a classic session.
        reader: the session of the JVM whose settings the Parquet reader has.
        files: those to read. A file may be there twice, with other constants.
        fields: the `StructType` of the JVM with the columns to read.
        constants: the columns of which each file has a value, in this order.
        options: of the Parquet reader.
        is_streaming: True for the rows of a micro-batch.
        find_locations: given filters of Spark, returns where rows may be for which they hold.
    """
    jvm = jvm_of(spark)
    sources = jvm.org.apache.spark.sql.execution.datasources
    schema = reader.parseDataType(constants_struct(constants).json())
    relation = sources.HadoopFsRelation(
        _FileList(spark, files, schema, find_locations),
        schema,
        fields,
        jvm.scala.Option.empty(),
        sources.parquet.ParquetFileFormat(),
        _map(jvm, options),
        reader,
    )
    plan = scala_object(jvm, f"{_SOURCES}.LogicalRelation").apply(relation, is_streaming)
    return jvm.org.apache.spark.sql.classic.Dataset.ofRows(reader, plan)


def hadoop_path(jvm: Any, location: str) -> Any:
    """Return a location as Hadoop's `Path`, in which no character has a meaning."""
    # Without a scheme the path would be one of `fs.defaultFS`.
    return jvm.org.apache.hadoop.fs.Path(location if "://" in location else f"file:{location}")


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
