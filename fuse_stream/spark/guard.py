"""A guard in the plan of a DataFrame: a task fails at the first row that it must not take.

Columns are named with `col`, never within SQL text: there a quoted name may be a regular expression
(`spark.sql.parser.quotedRegexColumnNames`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import types as spark
from pyspark.sql.functions import (
    coalesce,
    col,
    lit,
    monotonically_increasing_id,
    octet_length,
    raise_error,
    when,
)

from fuse_stream.spark.identity import is_connect
from fuse_stream.spark.types import quoted

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""What a failed job raises: Spark does not translate each of its errors for Python."""

_TEXT = (spark.StringType, spark.BinaryType)
_REPEATED = (spark.ArrayType, spark.MapType)
_POSITION = 2**33 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLength:
    """How many bytes a text holds, within structs too."""

    path: tuple[str, ...]
    is_repeated: bool
    """Whether it is an array or a map, of which the text form is measured."""

    def as_column(self) -> Column:
        value = col(".".join(map(quoted, self.path)))
        return coalesce(octet_length(value.cast("string") if self.is_repeated else value), lit(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLimit:
    """What a row may hold. Equal limits make equal guards."""

    lengths: tuple[TextLength, ...]
    most_bytes: int
    """Of all texts together."""
    row_count: int | None = None
    """Rows of a partition; None: any number."""

    def exceeded(self) -> Column | None:
        """Return whether a row holds more; None where none can."""
        found: Column | None = None
        if self.row_count is not None:
            # The lower 33 bits count the rows of a partition.
            found = monotonically_increasing_id().bitwiseAND(_POSITION) >= self.row_count
        if self.lengths:
            lengths = [length.as_column() for length in self.lengths]
            is_long = sum(lengths[1:], start=lengths[0]) > self.most_bytes
            found = is_long if found is None else found | is_long
        return found


def guarded(df: DataFrame, limit: RowLimit, message: str) -> DataFrame:
    """Return `df`, of which a task fails with `message` at a row that exceeds `limit`.

    The guard stands in a column: Spark would move a filter to below where columns are computed,
    and so have them computed twice.
    """
    exceeded = limit.exceeded()
    if exceeded is None:
        return df
    name = df.columns[0]
    guard = when(exceeded, raise_error(lit(message))).otherwise(col(quoted(name)))
    if tells_apart(df.columns):
        return df.withColumn(name, guard)
    # `withColumn` goes by the thread's session, and may take `A` for `a`.
    others = [col(quoted(other)) for other in df.columns[1:]]
    return df.select(guard.alias(name), *others)


def tells_apart(names: Sequence[str]) -> bool:
    """Whether names differ in more than case."""
    return len({name.lower() for name in names}) == len(names)


@dataclass(frozen=True, slots=True)
class _Analysed:
    """A guard on top of a plan, as Spark analysed it, and what it takes to put it on another."""

    limit: RowLimit
    output: Any
    """The columns of the plan below."""
    columns: Any
    make_project: Any
    make_dataset: Any


class RepeatedGuard:
    """Guards DataFrames that come one after the other, as the batches of a query do.

    Such plans have the same columns, down to Spark's ids for them. So the guard that was analysed
    for one of them fits the next, and Spark is spared a second analysis of each, which takes as
    long as to fetch a thousand rows.
    """

    def __init__(self) -> None:
        self._last: _Analysed | None = None

    def guarded(self, df: DataFrame, limit: RowLimit, message: str) -> DataFrame:
        """Return what the function `guarded` does; `message` is always the same."""
        if is_connect(df):
            return guarded(df, limit, message)
        below = df._jdf.queryExecution().analyzed()  # noqa: SLF001 - pyspark offers no public way
        output, last = below.output(), self._last
        if last is not None and last.limit == limit and output.equals(last.output):
            plan = last.make_project(last.columns, below)
            plan.setAnalyzed()
            session = df.sparkSession
            return DataFrame(last.make_dataset(session._jsparkSession, plan), session)  # noqa: SLF001 - the same
        found = guarded(df, limit, message)
        top = found._jdf.queryExecution().analyzed()  # noqa: SLF001 - the same
        if top.nodeName() == "Project":
            sql: Any = df.sparkSession._jvm.org.apache.spark.sql  # type: ignore[union-attr]  # noqa: SLF001 - the same
            self._last = _Analysed(
                limit,
                output,
                top.projectList(),
                sql.catalyst.plans.logical.Project,
                sql.classic.Dataset.ofRows,
            )
        return found


def text_lengths(
    fields: Sequence[spark.StructField], within: tuple[str, ...] = ()
) -> tuple[TextLength, ...]:
    """Return the lengths of every text in a row, within structs too."""
    lengths: list[TextLength] = []
    for field in fields:
        path = (*within, field.name)
        if isinstance(field.dataType, (*_TEXT, *_REPEATED)):
            is_repeated = isinstance(field.dataType, _REPEATED)
            lengths.append(TextLength(path=path, is_repeated=is_repeated))
        elif isinstance(field.dataType, spark.StructType):
            lengths += text_lengths(field.dataType.fields, path)
    return tuple(lengths)


def is_repeated(data_type: spark.DataType) -> bool:
    """Whether an array or a map stands in this type."""
    if isinstance(data_type, spark.StructType):
        return any(is_repeated(field.dataType) for field in data_type.fields)
    return isinstance(data_type, _REPEATED)


def leaf_count(data_type: spark.DataType) -> int:
    """Return how many values one value of this type holds; an array or a map counts as one."""
    if isinstance(data_type, spark.StructType):
        return sum(leaf_count(field.dataType) for field in data_type.fields)
    return 1
