"""Scan known Parquet files by Spark's own reader. Spark lists no folder and asks for no file.

Each file has constants: columns with one value for all rows of the file. So one scan reads files
that differ in what their rows are, and Spark splits all of them into tasks. Rules:

- A constant with one value in all files is a literal. Of another one the plan has an array with the
  value of each file, and the position of a row's file in it is the file's time of modification:
  Spark has that as a column, and uses it for nothing else.
- Constants are not columns of a partition. Of those, Spark leaves the evaluation of filters to the
  list of files.
- The files go to the JVM in one piece: a call for each would take a millisecond a file.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql import SparkSession

from fuse_stream.spark.jvm.proxies import Proxy, java_class, jvm_of, scala_object, scala_seq

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

_SOURCES = "org.apache.spark.sql.execution.datasources"
_CATALYST = "org.apache.spark.sql.catalyst"
_FUNCTIONS = "org.apache.spark.sql.functions"
_METADATA = "_fuse_file_metadata"
"""Not Spark's name: the table may have a column `_metadata`. Names with `_fuse_` are reserved."""
_PLACES = ("file_name", "row_index")
_BLOCK_BYTES = 128 * 1024 * 1024
"""Of the file system; Spark asks for it only to place tasks near their data."""


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

    def __init__(self, spark: SparkSession, files: Sequence[ScannedFile], no_columns: Any) -> None:
        self._files = tuple(files)
        self._gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - pyspark offers no public way
        self._jvm = jvm_of(spark)
        self._no_columns = no_columns
        self._hash = hash(self._files) & 0x7FFF_FFFF
        self._byte_count = sum(file.byte_count for file in files)
        make = scala_object(self._jvm, f"{_SOURCES}.PartitionDirectory").apply
        no_values = scala_object(self._jvm, f"{_CATALYST}.InternalRow").empty()
        self._directories = scala_seq(self._jvm, [make(no_values, file_statuses(self._jvm, files))])

    def listFiles(self, _partition_filters: Any, _data_filters: Any) -> Any:  # noqa: N802
        return self._directories

    def rootPaths(self) -> Any:  # noqa: N802
        return scala_seq(self._jvm, ())

    def inputFiles(self) -> Any:  # noqa: N802
        names = [hadoop_path(self._jvm, file.location).toUri().toString() for file in self._files]
        found = self._gateway.new_array(self._jvm.java.lang.String, len(names))
        for at, name in enumerate(names):
            found[at] = name
        return found

    def refresh(self) -> None:
        """Do nothing: blocks do not change."""

    def sizeInBytes(self) -> int:  # noqa: N802
        return self._byte_count

    def partitionSchema(self) -> Any:  # noqa: N802
        return self._no_columns

    def metadataOpsTimeNs(self) -> Any:  # noqa: N802
        return self._jvm.scala.Option.empty()

    def isTimeTravel(self) -> bool:  # noqa: N802
        return False

    def toString(self) -> str:  # noqa: N802
        return "fuse"

    def hashCode(self) -> int:  # noqa: N802
        return self._hash

    def equals(self, other: object) -> bool:
        if other is self:
            return True
        return isinstance(other, _FileList) and other._files == self._files  # noqa: SLF001

    class Java:
        implements = (f"{_SOURCES}.FileIndex",)


def scan_files(
    spark: SparkSession,
    reader: JavaObject,
    files: Sequence[ScannedFile],
    *,
    fields: JavaObject,
    constants: Sequence[Constant] = (),
    places: tuple[str, str] | None = None,
    options: Mapping[str, str],
    is_streaming: bool = False,
) -> Any:
    """Return a Dataset of the JVM with the rows of `files`: the `fields`, the constants, the places.

    Args:
        spark: a classic session.
        reader: the session of the JVM whose settings the Parquet reader has.
        files: those to read. A file may be there twice, with other constants.
        fields: the `StructType` of the JVM with the columns to read.
        constants: the columns of which each file has a value, in this order.
        places: the names of two more columns: of a row's file, and of the row's position there.
        options: of the Parquet reader.
        is_streaming: True for the rows of a micro-batch.
    """
    jvm = jvm_of(spark)
    no_columns = reader.parseDataType('{"type":"struct","fields":[]}')
    relation = java_class(jvm, f"{_SOURCES}.HadoopFsRelation")(
        _FileList(spark, files, no_columns),
        no_columns,
        fields,
        jvm.scala.Option.empty(),
        java_class(jvm, f"{_SOURCES}.parquet.ParquetFileFormat")(),
        _map(jvm, options),
        reader,
    )
    values = list(zip(*(file.constants for file in files), strict=True)) or [()] * len(constants)
    is_varied = any(len(set(of_files)) > 1 for of_files in values)
    wanted = ("file_modification_time",) if is_varied else ()
    metadata = _Metadata(jvm, (*wanted, *_PLACES) if places else wanted)
    rows = metadata.rows_of(reader, relation, is_streaming=is_streaming)
    added = [
        getattr(_column_of(jvm, metadata, each, of_files), "as")(each.name)
        for each, of_files in zip(constants, values, strict=True)
    ]
    for name, place in zip(places or (), _PLACES, strict=False):
        added.append(getattr(metadata.column(place), "as")(name))
    if added:
        every = java_class(jvm, _FUNCTIONS).col("*")
        rows = rows.select(scala_seq(jvm, [every, *added]))
    return rows.drop(_METADATA) if metadata.fields else rows


class _Metadata:
    """What Spark knows of the file of a row: a column of the relation, with the wanted fields only.

    Of its usual column `_metadata` Spark makes all fields for each row, also if nobody reads them.
    """

    def __init__(self, jvm: Any, fields: Sequence[str]) -> None:
        self.fields = fields
        self._jvm = jvm
        if fields:
            whole = java_class(jvm, f"{_SOURCES}.parquet.ParquetFileFormat")()
            whole = whole.createFileMetadataCol()
            struct = java_class(jvm, "org.apache.spark.sql.types.StructType")()
            for name in fields:
                struct = struct.add(whole.dataType().apply(name))
            self._attribute = whole.withDataType(struct).withName(_METADATA)

    def rows_of(self, reader: JavaObject, relation: JavaObject, *, is_streaming: bool) -> Any:
        """Return the Dataset of a relation, with this column at its end."""
        jvm = self._jvm
        plan = scala_object(jvm, f"{_SOURCES}.LogicalRelation").apply(relation, is_streaming)
        if self.fields:
            nothing = jvm.scala.Option.empty()
            output = plan.output().appended(self._attribute)
            plan = plan.copy(relation, output, nothing, is_streaming, nothing)
        return java_class(jvm, "org.apache.spark.sql.classic.Dataset").ofRows(reader, plan)

    def column(self, field: str) -> Any:
        whole = java_class(self._jvm, "org.apache.spark.sql.classic.ExpressionUtils")
        return whole.column(self._attribute).getField(field)


def _column_of(
    jvm: Any, metadata: _Metadata, constant: Constant, values: Sequence[int | str]
) -> Any:
    """Return the column of a constant, of which each file has a value."""
    sql = java_class(jvm, _FUNCTIONS)
    if constant.type == "string":
        distinct = list(dict.fromkeys(values)) or [""]
        texts = [sql.lit(text) for text in distinct]
        if len(texts) == 1:
            return texts[0]
        codes = {text: code for code, text in enumerate(distinct)}
        place = _number_of(jvm, metadata, [codes[text] for text in values]).cast("int")
        return sql.get(sql.array(scala_seq(jvm, texts)), place)
    number = _number_of(jvm, metadata, [int(value) for value in values] or [0])
    return sql.timestamp_micros(number) if constant.type == "timestamp" else number


def _number_of(jvm: Any, metadata: _Metadata, values: Sequence[int]) -> Any:
    sql = java_class(jvm, _FUNCTIONS)
    if len(set(values)) == 1:
        return sql.lit(values[0]).cast("long")
    place = sql.unix_millis(metadata.column("file_modification_time")).cast("int")
    return sql.get(long_array(jvm, np.array(values, "i8")), place)


def long_array(jvm: Any, numbers: np.ndarray) -> Any:
    """Return a constant column that is an array of longs, without nulls."""
    buffer = java_class(jvm, "java.nio.ByteBuffer").wrap(numbers.astype(">i8").tobytes())
    long = java_class(jvm, "java.lang.Long").TYPE
    array = java_class(jvm, "java.lang.reflect.Array").newInstance(long, len(numbers))
    buffer.asLongBuffer().get(array)
    # Not Spark's usual array: that one is boxed, and the texts of plans would show each number.
    expressions = f"{_CATALYST}.expressions"
    data = java_class(jvm, f"{expressions}.UnsafeArrayData").fromPrimitiveArray(array)
    types = "org.apache.spark.sql.types"
    item = java_class(jvm, f"{types}.DataType").fromDDL("bigint")
    of_longs = java_class(jvm, f"{types}.ArrayType")(item, False)  # noqa: FBT003 - Java's
    literal = java_class(jvm, f"{expressions}.Literal")(data, of_longs)
    return java_class(jvm, "org.apache.spark.sql.classic.ExpressionUtils").column(literal)


def hadoop_path(jvm: Any, location: str) -> Any:
    """Return a location as Hadoop's `Path`, in which no character has a meaning."""
    return java_class(jvm, "org.apache.hadoop.fs.Path")(_with_scheme(location))


def _with_scheme(location: str) -> str:
    # Without a scheme the path would be one of `fs.defaultFS`.
    return location if "://" in location else f"file:{location}"


def file_statuses(jvm: Any, files: Sequence[ScannedFile]) -> Any:
    """Return an array of Hadoop's `FileStatus`; the time of each one is its position, in ms."""
    data = [struct.pack(">i", len(files))]
    for at, file in enumerate(files):
        item = _status(file, at)
        data += [struct.pack(">i", len(item)), item]
    of = java_class(jvm, "java.lang.Class").forName("org.apache.hadoop.fs.FileStatus")
    found = java_class(jvm, "org.apache.hadoop.io.ArrayWritable")(of)
    stream = java_class(jvm, "java.io.ByteArrayInputStream")(b"".join(data))
    found.readFields(java_class(jvm, "java.io.DataInputStream")(stream))
    array = java_class(jvm, "java.lang.reflect.Array").newInstance(of, len(files))
    java_class(jvm, "java.lang.System").arraycopy(found.get(), 0, array, 0, len(files))
    return array


def _status(file: ScannedFile, at: int) -> bytes:
    """Return the bytes of a `FileStatus`, as it writes and reads itself.

    They are the message `FileStatusProto` of Hadoop's `FSProtos.proto`.
    """
    path = _with_scheme(file.location).encode()
    return b"".join(
        (
            _field(1, 2),  # a file
            _number(2 << 3 | 2) + _number(len(path)) + path,
            _field(3, file.byte_count),
            _field(7, at),  # the time of modification
            _field(10, 1),  # replication
            _field(11, _BLOCK_BYTES),
        )
    )


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


def _map(jvm: Any, items: Mapping[str, str]) -> Any:
    found = scala_object(jvm, "scala.collection.immutable.Map").empty()
    for name, value in items.items():
        found = found.updated(name, value)
    return found
