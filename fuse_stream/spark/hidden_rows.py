"""Leave the hidden rows of blocks out of a scan by Spark's Parquet reader.

Rules:
- The filter is a part of the scan's generated code: it tests one bit for each row.
- Each file has a constant: the index of its first word of bits. Within the file a bit is found by
  the position of the row, which counts from the start of the file, also if several tasks read parts
  of it.
- The bits of many rows would make each task large. They are broadcast as a table, with one row for
  each file, and joined by the constant.
- A predicate of the user is never evaluated for a hidden row: it might raise. Beside the filter,
  Spark tests the predicate later, and still passes it to Parquet. Through a join it would move the
  predicate down to all rows, so it is stopped there.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from fuse_stream.format.positions import Positions, to_numpy
from fuse_stream.spark.jvm.proxies import java_longs, scala_seq
from fuse_stream.spark.types import quoted, unused_name

WORD_BITS = 64
MOST_WORDS = 1024 * 1024
"""The most words in a plan: 8 MB, for 64 million rows. Each task gets them."""
NOTHING_HIDDEN = -1
"""The constant of a file of which all rows are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenRows:
    """The rows of a file that are not read."""

    row_count: int
    """Of the file."""
    hidden: Positions

    @property
    def word_count(self) -> int:
        """The number of words that hold one bit for each row."""
        return -(-self.row_count // WORD_BITS)

    def words(self) -> np.ndarray:
        """Return the bits of the rows, set for hidden ones; row 0 is the lowest bit of word 0."""
        bits = np.zeros(self.word_count * WORD_BITS, bool)
        bits[to_numpy(self.hidden)] = True
        return np.packbits(bits, bitorder="little").view("<i8")


def first_words(files: Sequence[HiddenRows]) -> list[int]:
    """Return the constant of each file."""
    return [0, *itertools.accumulate(file.word_count for file in files)][: len(files)]


def fits_plan(files: Sequence[HiddenRows]) -> bool:
    """True if the bits of the files are a part of the plan; else they are joined."""
    return sum(file.word_count for file in files) <= MOST_WORDS


def without_hidden(
    spark: SparkSession, rows: Any, start: Any, row: Any, files: Sequence[HiddenRows]
) -> Any:
    """Return a Dataset of the JVM without the hidden rows of the files that it reads.

    Args:
        spark: a classic session.
        rows: the Dataset that reads the files. Its session compares names with their case.
        start: its column with the constant of a row's file: that of `first_words`, or
            `NOTHING_HIDDEN`. If the bits do not fit into the plan, each file must have some.
        row: its column with the position of a row in its file.
        files: the files that hide rows.
    """
    if fits_plan(files):
        return _filtered(spark, rows, start, row, files)
    return _joined(spark, rows, start, row, files)


def _filtered(
    spark: SparkSession, rows: Any, start: Any, row: Any, hiding: Sequence[HiddenRows]
) -> Any:
    jvm: Any = spark._jvm  # noqa: SLF001 - pyspark offers no public way
    sql = jvm.org.apache.spark.sql.functions
    words = _array(jvm, np.concatenate([file.words() for file in hiding]))
    is_whole = start.lt(sql.lit(0))
    return rows.filter(getattr(is_whole, "or")(_is_shown(sql, words, start, row)))


def _joined(
    spark: SparkSession, rows: Any, start: Any, row: Any, hiding: Sequence[HiddenRows]
) -> Any:
    jvm: Any = spark._jvm  # noqa: SLF001 - the same
    sql = jvm.org.apache.spark.sql.functions
    names = list(rows.columns())
    key, value = unused_name("start", names), unused_name("words", names)
    table = pa.table(
        {
            key: pa.array(first_words(hiding), pa.int64()),
            value: pa.array([file.words() for file in hiding], pa.list_(pa.int64())),
        }
    )
    bits = spark.createDataFrame(table)._jdf  # noqa: SLF001 - the same
    both = rows.join(sql.broadcast(bits), start.equalTo(bits.col(key)))
    shown = both.filter(_is_shown(sql, bits.col(value), sql.lit(0), row))
    # Always true, but not deterministic: Spark moves no predicate of the user below it.
    shown = shown.filter(sql.monotonically_increasing_id().geq(sql.lit(0)))
    return shown.select(scala_seq(jvm, (sql.col(quoted(column)) for column in names)))


def _is_shown(sql: Any, words: Any, start: Any, row: Any) -> Any:
    """Return a column that is true if the bit of `row` is not set in the words from `start` on."""
    word = sql.get(words, sql.shiftright(row, 6).plus(start).cast("int"))
    bit = row.bitwiseAND(sql.lit(WORD_BITS - 1)).cast("int")
    return sql.getbit(word, bit).equalTo(sql.lit(0))


def _array(jvm: Any, numbers: np.ndarray) -> Any:
    """Return a constant column that is an array of longs, without nulls."""
    array = java_longs(jvm, numbers)
    expressions = jvm.org.apache.spark.sql.catalyst.expressions
    # Not Spark's usual array: that one is boxed, and the texts of plans would show each number.
    data = expressions.UnsafeArrayData.fromPrimitiveArray(array)
    types = jvm.org.apache.spark.sql.types
    literal = expressions.Literal(data, types.ArrayType(types.DataType.fromDDL("bigint"), False))  # noqa: FBT003 - Java's
    return jvm.org.apache.spark.sql.classic.ExpressionUtils.column(literal)
