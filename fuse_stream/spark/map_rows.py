"""Running Python over the rows of a DataFrame, in its tasks.

Spark keeps an Arrow batch below `spark.sql.execution.arrow.maxBytesPerBatch` by measuring all of
it after every row, which takes as long as all other work on the rows together. Here a batch has a
fixed number of rows instead, and a guard in the plan stops a row that is too long for that; only
then is the work done again with measured batches. A batch never gets larger than Spark allows.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, Row

from fuse_stream.spark.guard import (
    SPARK_ERRORS,
    RowLimit,
    guarded,
    is_repeated,
    leaf_count,
    tells_apart,
    text_lengths,
)
from fuse_stream.spark.identity import is_connect

BATCH_ROWS = 4_096
FIXED_BYTES = 16
"""Of a value that is no text, at the most."""

_TOO_LONG = "fuse_stream: this row is too long for batches that are not measured"
_UNMEASURED = 2**31 - 1
_ODD = re.compile(r"[.`*]")

_log = logging.getLogger(__name__)

MapRows = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class RowMapper:
    """Runs functions over the rows of DataFrames. Remembers whether rows were too long."""

    def __init__(self) -> None:
        self._has_long_rows = False

    def collect(
        self, df: DataFrame, function: MapRows, schema: str, *, mean_row_bytes: int
    ) -> list[Row]:
        """Run `function` over the rows of each task of `df` and return what it yields.

        As `df.mapInArrow(function, schema).collect()`; the plan may run twice. Rows that will be
        of about `mean_row_bytes` are not tried if that is much. The function gets the columns in
        their order, some under other names.
        """
        df = _renamed(df)
        unmeasured = None if self._has_long_rows else _unmeasured(df, mean_row_bytes)
        if unmeasured is not None:
            try:
                return _collected(unmeasured.mapInArrow(function, schema), df)
            except SPARK_ERRORS as error:
                if _TOO_LONG not in str(error):
                    raise
                _log.info("there are rows too long for batches of a fixed size; done again")
                self._has_long_rows = True
        return df.mapInArrow(function, schema).collect()


def _renamed(df: DataFrame) -> DataFrame:
    # pyspark's mapInArrow looks each name up: it takes `a.b` for a field of a struct, `*` for all
    # columns, and goes by the thread's session where names differ in case.
    if tells_apart(df.columns) and not any(_ODD.search(name) for name in df.columns):
        return df
    return df.toDF(*(f"c{place}" for place in range(len(df.columns))))


def _collected(moved: DataFrame, df: DataFrame) -> list[Row]:
    rows = moved.collect()
    # What the user observes on the way is told where they ask: in the session of `df`.
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
