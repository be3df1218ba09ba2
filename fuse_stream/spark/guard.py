"""A guard in the plan of a DataFrame: a task fails at the first row that it must not take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import types as spark
from pyspark.sql.functions import expr

from fuse_stream.spark.identity import is_connect
from fuse_stream.spark.types import quoted

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""What a failed job raises: Spark does not translate each of its errors for Python."""

_TEXT = (spark.StringType, spark.BinaryType)
_REPEATED = (spark.ArrayType, spark.MapType)


def guarded(df: DataFrame, condition: str, message: str) -> DataFrame:
    """Return `df`, of which a task fails with `message` at a row where `condition` is true.

    The guard stands in a column: Spark would move a filter to below where columns are computed,
    and so have them computed twice.
    """
    name = df.columns[0]
    guard = f"CASE WHEN {condition} THEN raise_error('{message}') ELSE {quoted(name)} END"
    if tells_apart(df.columns):
        return df.withColumn(name, expr(guard))
    # `withColumn` goes by the thread's session, and may take `A` for `a`.
    others = [expr(quoted(other)) for other in df.columns[1:]]
    return df.select(expr(guard).alias(name), *others)


def tells_apart(names: Sequence[str]) -> bool:
    """Whether names differ in more than case."""
    return len({name.lower() for name in names}) == len(names)


@dataclass(frozen=True, slots=True)
class _Analysed:
    """A guard on top of a plan, as Spark analysed it, and what it takes to put it on another."""

    condition: str
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

    def guarded(self, df: DataFrame, condition: str, message: str) -> DataFrame:
        """Return what the function `guarded` does; `message` is always the same."""
        if is_connect(df):
            return guarded(df, condition, message)
        below = df._jdf.queryExecution().analyzed()  # noqa: SLF001 - pyspark offers no public way
        output, last = below.output(), self._last
        if last is not None and last.condition == condition and output.equals(last.output):
            plan = last.make_project(last.columns, below)
            plan.setAnalyzed()
            session = df.sparkSession
            return DataFrame(last.make_dataset(session._jsparkSession, plan), session)  # noqa: SLF001 - the same
        found = guarded(df, condition, message)
        top = found._jdf.queryExecution().analyzed()  # noqa: SLF001 - the same
        if top.nodeName() == "Project":
            sql: Any = df.sparkSession._jvm.org.apache.spark.sql  # type: ignore[union-attr]  # noqa: SLF001 - the same
            self._last = _Analysed(
                condition,
                output,
                top.projectList(),
                sql.catalyst.plans.logical.Project,
                sql.classic.Dataset.ofRows,
            )
        return found


def text_lengths(fields: Sequence[spark.StructField], path: str = "") -> list[str]:
    """Return SQL expressions for the bytes of every text in a row, within structs too."""
    lengths = []
    for field in fields:
        name = path + quoted(field.name)
        if isinstance(field.dataType, _TEXT):
            lengths.append(f"coalesce(octet_length({name}), 0)")
        elif isinstance(field.dataType, spark.StructType):
            lengths += text_lengths(field.dataType.fields, f"{name}.")
        elif isinstance(field.dataType, _REPEATED):
            lengths.append(f"coalesce(octet_length(CAST({name} AS STRING)), 0)")
    return lengths


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
