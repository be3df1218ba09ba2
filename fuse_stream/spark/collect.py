"""Collect a DataFrame that is to be written: fetch its rows, or run Python over them in tasks.

- A small batch is fetched to the driver and becomes one block. Whether a batch is small is guessed
  from the sizes of the batches just before it, never from plan statistics, which are missing for
  most sources. If the guess is wrong, the fetch fails cleanly and tasks write the batch.
- Spark keeps an Arrow batch below `spark.sql.execution.arrow.maxBytesPerBatch` by measuring all of
  it after every row, which takes as long as all other work on the rows together. Here a batch has
  a fixed number of rows instead. A guard in the plan fails the task at a row that is too long for
  that; only then does the plan run again, with measured batches. No batch exceeds Spark's limit.
- Columns are named with `col`, never within SQL text, where a quoted name may be a regular
  expression (`spark.sql.parser.quotedRegexColumnNames`).
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row
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

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.records import Snapshot
from fuse_stream.spark.identity import is_connect
from fuse_stream.spark.types import quoted

MAX_ROWS = 65_536
MAX_BYTES = 16 * 1024 * 1024
REMEMBERED = 8
"""Batches whose sizes are remembered."""
HEADROOM = 4
"""A batch that is fetched may be this many times larger than the ones before it."""
SMALLEST_LIMIT = 8_192

_TOO_LARGE = "fuse_stream: this batch is larger than those before it"
_RESULT_TOO_LARGE = "spark.driver.maxResultSize"

_log = logging.getLogger(__name__)


class FetchPolicy:
    """Decides whether a batch is fetched, from the sizes of the last batches of the run."""

    def __init__(self) -> None:
        self._rows: deque[int] = deque(maxlen=REMEMBERED)
        self._bytes: deque[int] = deque(maxlen=REMEMBERED)
        self._is_bounded: bool | None = None
        self._guard = RepeatedGuard()

    def note(self, rows: int, byte_count: int) -> None:
        """Remember the size of a batch that was written; `byte_count` is its size in memory."""
        self._rows.append(rows)
        self._bytes.append(byte_count)

    @property
    def expects_little(self) -> bool:
        """True if the next batch is likely small; always False for the first batch of a run."""
        return bool(self._rows) and max(self._rows) <= MAX_ROWS and max(self._bytes) <= MAX_BYTES

    def allows(self, df: DataFrame) -> bool:
        """True if `df` is likely small, and Spark will stop the fetch if it is not."""
        if not self.expects_little:
            return False
        if self._is_bounded is None:  # fixed when Spark starts, and slow to read
            limit = df.sparkSession.conf.get(_RESULT_TOO_LARGE, "1g")
            # Without this limit, a large batch would crash the driver.
            self._is_bounded = limit not in {"0", "0b"}
        return self._is_bounded

    def fetch(self, df: DataFrame) -> pa.Table | None:
        """Return the rows of `df`; None if they are too many, and then nothing is kept.

        The zone of times with a zone is not defined.
        """
        wanted = max(SMALLEST_LIMIT, HEADROOM * max(self._rows, default=0))
        # A power of two, so that Spark can reuse the compiled plan of the previous batch.
        row_count = 1 << (wanted - 1).bit_length()
        # Too many or too long rows must fail early: a task holds its whole result in memory before
        # Spark counts its bytes.
        limit = RowLimit(
            lengths=text_lengths(df.schema.fields),
            most_bytes=MAX_BYTES * HEADROOM // row_count,
            row_count=row_count,
        )
        try:
            frame: Any = self._guard.guarded(df, limit, _TOO_LARGE)
            if is_connect(df):
                return frame.toArrow()
            # As `toArrow`, but without reading settings and casting to the types that they name.
            batches = frame._collect_as_arrow(empty_list_if_zero_records=False)  # noqa: SLF001 - no public way
            return pa.Table.from_batches(batches)
        except SPARK_ERRORS as error:
            if _TOO_LARGE not in str(error) and not is_over_result_limit(error):
                raise
            _log.info("the batch is larger than the ones before it; tasks write it")
            return None


def fetch_all(df: DataFrame) -> pa.Table:
    """Return all rows of `df`.

    Raises:
        InvalidInputError: they are larger than `spark.driver.maxResultSize`.
    """
    try:
        if is_connect(df):
            return df.toArrow()
        # As `toArrow`, but without reading settings and casting to the types that they name.
        batches = df._collect_as_arrow(empty_list_if_zero_records=False)  # type: ignore[operator]  # noqa: SLF001 - no public way
        return pa.Table.from_batches(batches)
    except SPARK_ERRORS as error:
        if not is_over_result_limit(error):
            raise
        raise InvalidInputError(
            "the rows of a batch go through the driver, and are more than it may hold: limit the "
            "batches (maxRowsPerTrigger), or raise spark.driver.maxResultSize"
        ) from error


def is_over_result_limit(error: Exception) -> bool:
    """True if the job failed because it returned more than `spark.driver.maxResultSize`."""
    return _RESULT_TOO_LARGE in str(error)


def mean_row_bytes(snapshot: Snapshot) -> int:
    """Return the mean size of a table's rows, uncompressed; 0 for an empty table."""
    return snapshot.summary.uncompressed_byte_size // max(snapshot.stored_rows, 1)


BATCH_ROWS = 4_096
FIXED_BYTES = 16
"""The most bytes of a value that is no text."""

_TOO_LONG = "fuse_stream: this row is too long for batches that are not measured"
_UNMEASURED = 2**31 - 1
_ODD = re.compile(r"[.`*]")


MapRows = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class RowMapper:
    """Runs functions over the rows of DataFrames; remembers that rows were too long."""

    def __init__(self) -> None:
        self._has_long_rows = False

    def collect(
        self, df: DataFrame, function: MapRows, schema: str, *, mean_row_bytes: int
    ) -> list[Row]:
        """Return the rows that `function` yields, run over the rows of each task of `df`.

        Like `df.mapInArrow(function, schema).collect()`, but the plan may run twice. If
        `mean_row_bytes` is large, batches are measured at once. The function gets the columns in
        their order; some may have other names.
        """
        df = _renamed(df)
        unmeasured = None if self._has_long_rows else _unmeasured(df, mean_row_bytes)
        if unmeasured is not None:
            try:
                return _collected(unmeasured.mapInArrow(function, schema), df)
            except SPARK_ERRORS as error:
                if _TOO_LONG not in str(error):
                    raise
                _log.info("some rows are too long for batches of a fixed size; the plan runs again")
                self._has_long_rows = True
        return df.mapInArrow(function, schema).collect()


def _renamed(df: DataFrame) -> DataFrame:
    # pyspark's mapInArrow resolves each name: it takes `a.b` for a field of a struct, `*` for all
    # columns, and compares case as the thread's session does.
    if tells_apart(df.columns) and not any(_ODD.search(name) for name in df.columns):
        return df
    return df.toDF(*(f"c{place}" for place in range(len(df.columns))))


def _collected(moved: DataFrame, df: DataFrame) -> list[Row]:
    rows = moved.collect()
    # The user reads the results of `observe` in the session of `df`.
    observations = df.sparkSession._jsparkSession.observationManager()  # noqa: SLF001 - no public way
    observations.tryComplete(moved._jdf.queryExecution())  # noqa: SLF001 - the same
    return rows


def _unmeasured(df: DataFrame, mean_row_bytes: int) -> DataFrame | None:
    """Return `df` in a session whose batches have a fixed number of rows, each guarded."""
    if is_connect(df) or any(is_repeated(field.dataType) for field in df.schema.fields):
        return None
    user = df.sparkSession._jsparkSession  # noqa: SLF001 - pyspark offers no public way
    settings = user.sessionState().conf()
    rows = min(settings.arrowMaxRecordsPerBatch(), BATCH_ROWS)
    most = settings.arrowMaxBytesPerBatch() // max(rows, 1)
    fixed = FIXED_BYTES * sum(leaf_count(field.dataType) for field in df.schema.fields)
    if rows < 1 or fixed + mean_row_bytes > most // 4:
        return None
    session = user.cloneSession()
    session.conf().set("spark.sql.execution.arrow.maxRecordsPerBatch", str(rows))
    session.conf().set("spark.sql.execution.arrow.maxBytesPerBatch", str(_UNMEASURED))
    jvm = df.sparkSession._jvm  # noqa: SLF001 - the same
    assert jvm is not None
    analyzed = df._jdf.queryExecution().analyzed()  # noqa: SLF001 - the same
    moved = jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, analyzed)
    frame = DataFrame(moved, df.sparkSession)
    limit = RowLimit(lengths=text_lengths(df.schema.fields), most_bytes=most - fixed)
    return guarded(frame, limit, _TOO_LONG)


SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""What a failed job raises: Spark does not translate each of its errors for Python."""

_TEXT = (spark.StringType, spark.BinaryType)
_REPEATED = (spark.ArrayType, spark.MapType)
_POSITION = 2**33 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLength:
    """The length of one column or struct field, in bytes."""

    path: tuple[str, ...]
    is_repeated: bool
    """True for an array or a map: its text form is measured."""

    def as_column(self) -> Column:
        value = col(".".join(map(quoted, self.path)))
        return coalesce(octet_length(value.cast("string") if self.is_repeated else value), lit(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLimit:
    """The limits of a guard. Equal limits make equal guards."""

    lengths: tuple[TextLength, ...]
    most_bytes: int
    """The most bytes of all texts of a row together."""
    row_count: int | None = None
    """The most rows of a partition; None for any number."""

    def exceeded(self) -> Column | None:
        """Return a boolean column, true at a row beyond the limits; None if no row can be."""
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
    """Return `df` with a guard: a task fails with `message` at a row that exceeds `limit`.

    The guard is part of a column. Spark would move a filter below the projection that computes the
    columns, and compute them twice.
    """
    exceeded = limit.exceeded()
    if exceeded is None:
        return df
    name = df.columns[0]
    guard = when(exceeded, raise_error(lit(message))).otherwise(col(quoted(name)))
    if tells_apart(df.columns):
        return df.withColumn(name, guard)
    # `withColumn` compares case as the thread's session does, and may take `A` for `a`.
    others = [col(quoted(other)) for other in df.columns[1:]]
    return df.select(guard.alias(name), *others)


def tells_apart(names: Sequence[str]) -> bool:
    """True if no two names are equal but for case."""
    return len({name.lower() for name in names}) == len(names)


@dataclass(frozen=True, slots=True)
class _Analysed:
    """An analysed guard, and the JVM's constructors that put it on another plan."""

    limit: RowLimit
    output: Any
    """The columns of the plan below the guard."""
    columns: Any
    make_project: Any
    make_dataset: Any


class RepeatedGuard:
    """Guards the DataFrames of consecutive batches of a query, and analyses the guard once.

    The plans of these batches have the same columns, with the same ids of Spark's, so a guard that
    was analysed for one batch fits the next. An analysis takes as long as fetching 1,000 rows.
    """

    def __init__(self) -> None:
        self._last: _Analysed | None = None

    def guarded(self, df: DataFrame, limit: RowLimit, message: str) -> DataFrame:
        """Return `df` with a guard, as function `guarded`; `message` must not change."""
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
    """Return the length of each text, array and map in a row, including those in structs."""
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
    """True if the type is or contains an array or a map."""
    if isinstance(data_type, spark.StructType):
        return any(is_repeated(field.dataType) for field in data_type.fields)
    return isinstance(data_type, _REPEATED)


def leaf_count(data_type: spark.DataType) -> int:
    """Return how many values one value of this type holds; an array or a map counts as one."""
    if isinstance(data_type, spark.StructType):
        return sum(leaf_count(field.dataType) for field in data_type.fields)
    return 1
