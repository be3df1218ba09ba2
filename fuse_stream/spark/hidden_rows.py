"""Leave the hidden rows of blocks out of a scan by Spark's Parquet reader.

Rules:
- The filter is a part of the scan's generated code: it tests one bit for each row.
- A bit is found by the name of the row's file and the row's position in it. A name is unique; the
  size of a file is not. The position is Spark's `_metadata.row_index`: it counts from the start of
  the file, also if several tasks read parts of one file.
- The name's hash is looked up in a table in which no two of the files meet. So the test of a row
  has no loop and compares no names.
- The bits of many rows would make each task large. They are broadcast as a table, with one row for
  each file, and joined by the file's name.
- A predicate of the user is never evaluated for a hidden row: it might raise. Beside the filter,
  Spark tests the predicate later, and still passes it to Parquet. Through a join it would move the
  predicate down to all rows, so it is stopped there.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from fuse_stream.format.positions import Positions, to_numpy
from fuse_stream.spark.types import quoted

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

WORD_BITS = 64
MOST_WORDS = 1024 * 1024
"""The most words in a plan: 8 MB, for 64 million rows. Each task gets them."""
MOST_FILES = 1024
"""The most files in a plan: the table in which they do not meet grows with their square."""
MOST_LENGTHS = 10_000
"""How many lengths of this table are tried. Most files need a few dozen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HidingFile:
    """The file of a block that hides rows."""

    location: str
    row_count: int
    hidden: Positions

    @property
    def name(self) -> str:
        """The last part of the location."""
        return self.location.rpartition("/")[2]

    @property
    def word_count(self) -> int:
        """The number of words that hold one bit for each row."""
        return -(-self.row_count // WORD_BITS)

    def words(self) -> np.ndarray:
        """Return the bits of the rows, set for hidden ones; row 0 is the lowest bit of word 0."""
        bits = np.zeros(self.word_count * WORD_BITS, bool)
        bits[to_numpy(self.hidden)] = True
        return np.packbits(bits, bitorder="little").view("<i8")


def without_hidden(spark: SparkSession, files: JavaObject, hiding: Sequence[HidingFile]) -> Any:
    """Return a Dataset of the JVM without the rows that the files of `hiding` hide.

    `files` reads these files and no others. Its session compares names with their case.
    """
    if sum(file.word_count for file in hiding) <= MOST_WORDS and len(hiding) <= MOST_FILES:
        starts = word_starts(hiding)
        if starts is not None:
            return _filtered(spark, files, hiding, starts)
    return _joined(spark, files, hiding)


def word_starts(files: Sequence[HidingFile]) -> np.ndarray | None:
    """Return the index of each file's first word, at its name's hash modulo the array's length.

    The words of the files follow each other. None if two names have one hash.
    """
    hashes = np.array([spark_hash(file.name) for file in files], np.int64)
    # From here on, one length in fifty has no two hashes at one place.
    least = max(len(files), len(files) ** 2 // 8)
    for length in range(least, least + MOST_LENGTHS):
        places = hashes % length
        if len(np.unique(places)) == len(files):
            starts = np.zeros(length, np.int32)
            starts[places] = [0, *itertools.accumulate(file.word_count for file in files[:-1])]
            return starts
    return None


_U32 = 0xFFFF_FFFF
_SEED = 42


def spark_hash(text: str) -> int:
    """Return what Spark's SQL function `hash` returns for a string: a signed 32-bit integer.

    Murmur3, but each byte after the last group of four is mixed in like a group.
    """
    data = text.encode()
    whole = len(data) // 4 * 4
    groups = [int.from_bytes(data[at : at + 4], "little") for at in range(0, whole, 4)]
    signed = [byte - 256 if byte > 127 else byte for byte in data[whole:]]
    found = _SEED
    for group in (*groups, *signed):
        mixed = (group * 0xCC9E2D51) & _U32
        mixed = (_rotated(mixed, 15) * 0x1B873593) & _U32
        found = (_rotated(found ^ mixed, 13) * 5 + 0xE6546B64) & _U32
    found ^= len(data)
    found = ((found ^ (found >> 16)) * 0x85EBCA6B) & _U32
    found = ((found ^ (found >> 13)) * 0xC2B2AE35) & _U32
    found ^= found >> 16
    return found - 2**32 if found >= 2**31 else found


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> (32 - bits)) & _U32


def _filtered(
    spark: SparkSession, files: Any, hiding: Sequence[HidingFile], starts: np.ndarray
) -> Any:
    jvm: Any = spark._jvm  # noqa: SLF001 - pyspark offers no public way
    sql = jvm.org.apache.spark.sql.functions
    name, row = place_of(files)
    words = _array(jvm, np.concatenate([file.words() for file in hiding]))
    at = sql.pmod(sql.hash(_seq(jvm, name)), sql.lit(len(starts)))
    return files.filter(_is_shown(sql, words, sql.get(_array(jvm, starts), at), row))


def _joined(spark: SparkSession, files: Any, hiding: Sequence[HidingFile]) -> Any:
    jvm: Any = spark._jvm  # noqa: SLF001 - the same
    sql = jvm.org.apache.spark.sql.functions
    names = list(files.columns())
    key, value = "file", "words"
    while key in names or value in names:
        key, value = f"{key}_", f"{value}_"
    rows = pa.table(
        {
            key: [file.name for file in hiding],
            value: pa.array([file.words() for file in hiding], pa.list_(pa.int64())),
        }
    )
    bits = spark.createDataFrame(rows)._jdf  # noqa: SLF001 - the same
    name, row = place_of(files)
    both = files.join(sql.broadcast(bits), name.equalTo(bits.col(key)))
    shown = both.filter(_is_shown(sql, bits.col(value), sql.lit(0), row))
    # Always true, but not deterministic: Spark moves no predicate of the user below it.
    shown = shown.filter(sql.monotonically_increasing_id().geq(sql.lit(0)))
    return shown.select(_seq(jvm, *(sql.col(quoted(column)) for column in names)))


def place_of(files: Any) -> tuple[Any, Any]:
    """Return the columns of the name of a row's file, and of the row's position in the file."""
    # Not by the name `_metadata`: the table may have a column of this name.
    metadata = files.metadataColumn("_metadata")
    return metadata.getField("file_name"), metadata.getField("row_index")


def _is_shown(sql: Any, words: Any, start: Any, row: Any) -> Any:
    """Return a column that is true if the bit of `row` is not set in the words from `start` on."""
    word = sql.get(words, sql.shiftright(row, 6).cast("int").plus(start))
    bit = row.bitwiseAND(sql.lit(WORD_BITS - 1)).cast("int")
    return sql.getbit(word, bit).equalTo(sql.lit(0))


def _array(jvm: Any, numbers: np.ndarray) -> Any:
    """Return a constant column that is an array of the type of `numbers`, without nulls."""
    is_long = numbers.dtype.itemsize == 8
    big_endian = numbers.astype(numbers.dtype.newbyteorder(">")).tobytes()
    buffer = jvm.java.nio.ByteBuffer.wrap(big_endian)
    number = jvm.java.lang.Long if is_long else jvm.java.lang.Integer
    array = jvm.java.lang.reflect.Array.newInstance(number.TYPE, len(numbers))
    (buffer.asLongBuffer() if is_long else buffer.asIntBuffer()).get(array)
    expressions = jvm.org.apache.spark.sql.catalyst.expressions
    # Not Spark's usual array: that one is boxed, and the texts of plans would show each number.
    data = expressions.UnsafeArrayData.fromPrimitiveArray(array)
    types = jvm.org.apache.spark.sql.types
    element = types.DataType.fromDDL("bigint" if is_long else "int")
    literal = expressions.Literal(data, types.ArrayType(element, False))  # noqa: FBT003 - Java's
    return jvm.org.apache.spark.sql.classic.ExpressionUtils.column(literal)


def _seq(jvm: Any, *columns: Any) -> Any:
    found = jvm.java.util.ArrayList()
    for column in columns:
        found.add(column)
    return jvm.PythonUtils.toSeq(found)
