"""Scan Parquet files by Spark's own reader. Spark lists no folder: it asks for the files to read.

It asks when it plans a query, with the query's filters. Each file has constants: columns with one
value for all rows of the file. They reach Spark as the columns of a partition of a table, with one
partition for all files that have the same constants. So one scan reads files that differ in what
their rows are, and Spark splits all of them into tasks.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from fuse_stream.spark.jvm.java_errors import SpeakingProxy, let_errors_through
from fuse_stream.spark.jvm.proxies import jvm_of, scala_object, scala_seq

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

_SOURCES = "org.apache.spark.sql.execution.datasources"
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


class _FileIndex(SpeakingProxy):
    """A `FileIndex` of a listing."""

    def __init__(self, spark: SparkSession, listing: FileListing, schema: Any) -> None:
        self._listing = listing
        identity = hashlib.sha256(repr(listing.identity).encode(errors="surrogatepass"))
        self._name = f"fuse {identity.hexdigest()}"
        self._gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - pyspark offers no public way
        self.jvm = jvm_of(spark)
        let_errors_through(spark)
        self._schema = schema

    def listFiles(self, _partition_filters: Any, data_filters: Any) -> Any:  # noqa: N802
        # Each name in a package is a call of the JVM, so these are looked up once.
        make = scala_object(self.jvm, f"{_SOURCES}.PartitionDirectory").apply
        new_row = self.jvm.org.apache.spark.sql.catalyst.expressions.UnsafeRow
        new_path = self.jvm.org.apache.hadoop.fs.Path
        new_status = self.jvm.org.apache.hadoop.fs.FileStatus
        found = []
        files = self._listing.find(data_filters)
        for constants, run in itertools.groupby(files, key=lambda file: file.constants):
            statuses = [
                new_status(
                    file.byte_count,
                    False,  # noqa: FBT003 - Java's
                    1,
                    _BLOCK_BYTES,
                    0,
                    new_path(hadoop_name(file.location)),
                )
                for file in run
            ]
            row, data = new_row(len(constants)), unsafe_row(constants)
            row.pointTo(data, len(data))
            found.append(make(row, self._array(new_status, statuses)))
        return scala_seq(self.jvm, found)

    def rootPaths(self) -> Any:  # noqa: N802
        return scala_seq(self.jvm, ())

    def inputFiles(self) -> Any:  # noqa: N802
        files = self._listing.find(scala_seq(self.jvm, ()))
        new_path = self.jvm.org.apache.hadoop.fs.Path
        names = [new_path(hadoop_name(file.location)).toUri().toString() for file in files]
        return self._array(self.jvm.java.lang.String, names)

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

    def hashCode(self) -> int:  # noqa: N802
        return hash(self._name) & 0x7FFF_FFFF

    def equals(self, other: Any) -> bool:
        # The other is Java's, also where it is a proxy; its text comes from its Python object.
        return other is not None and bool(other.toString() == self._name)

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
    sources = jvm.org.apache.spark.sql.execution.datasources
    schema = reader.parseDataType(_struct(constants))
    relation = sources.HadoopFsRelation(
        _FileIndex(spark, listing, schema),
        schema,
        fields,
        jvm.scala.Option.empty(),
        sources.parquet.ParquetFileFormat(),
        _map(jvm, options),
        reader,
    )
    plan = scala_object(jvm, f"{_SOURCES}.LogicalRelation").apply(relation, is_streaming)
    return jvm.org.apache.spark.sql.classic.Dataset.ofRows(reader, plan)


def hadoop_name(location: str) -> str:
    """Return the text of a location for Hadoop's `Path`, in which no character has a meaning."""
    # Without a scheme the path would be one of `fs.defaultFS`.
    return location if "://" in location else f"file:{location}"


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


def _struct(constants: Sequence[Constant]) -> str:
    return json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": each.name, "type": each.type, "nullable": False, "metadata": {}}
                for each in constants
            ],
        }
    )


def _map(jvm: Any, items: Mapping[str, str]) -> Any:
    found = scala_object(jvm, "scala.collection.immutable.Map").empty()
    for name, value in items.items():
        found = found.updated(name, value)
    return found
