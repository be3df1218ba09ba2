"""Fetching a small batch to the driver, where one block is made of it at once.

A batch is judged by the ones just before it, never by plan statistics, which know nothing of most
sources. It may be wrong: the fetch itself then fails cleanly, and tasks write the batch.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as spark

from fuse_stream.spark.guard import SPARK_ERRORS, RepeatedGuard, RowLimit, text_lengths
from fuse_stream.spark.identity import is_connect

MAX_ROWS = 65_536
MAX_BYTES = 16 * 1024 * 1024
REMEMBERED = 8
"""Batches that a judgement rests on."""
HEADROOM = 4
"""A batch may be so many times larger than the ones before it."""
SMALLEST_LIMIT = 8_192

_TOO_LARGE = "fuse_stream: this batch is larger than those before it"
_RESULT_TOO_LARGE = "spark.driver.maxResultSize"

_log = logging.getLogger(__name__)


class FetchPolicy:
    """Remembers the batches of one run."""

    def __init__(self) -> None:
        self._rows: deque[int] = deque(maxlen=REMEMBERED)
        self._bytes: deque[int] = deque(maxlen=REMEMBERED)
        self._is_bounded: bool | None = None
        self._guard = RepeatedGuard()

    def note(self, rows: int, byte_count: int) -> None:
        """Remember the size of a batch that was written; bytes are those in memory."""
        self._rows.append(rows)
        self._bytes.append(byte_count)

    @property
    def expects_little(self) -> bool:
        """Whether the next batch is likely small; never so for the first of a run."""
        return bool(self._rows) and max(self._rows) <= MAX_ROWS and max(self._bytes) <= MAX_BYTES

    @property
    def _row_limit(self) -> int:
        """Rows of one partition at which a fetch gives up."""
        # A power of two, so that Spark finds the compiled plan of the batch before again.
        wanted = max(SMALLEST_LIMIT, HEADROOM * max(self._rows, default=0))
        return 1 << (wanted - 1).bit_length()

    def allows(self, df: DataFrame) -> bool:
        """Whether `df` is likely small, and Spark stops the fetch if it is not."""
        if not self.expects_little:
            return False
        if self._is_bounded is None:  # fixed when Spark starts, and asking takes a while
            limit = df.sparkSession.conf.get(_RESULT_TOO_LARGE, "1g")
            # Without that limit a large batch would bring the driver down.
            self._is_bounded = limit not in {"0", "0b"}
        return self._is_bounded

    def fetch(self, df: DataFrame) -> pa.Table | None:
        """Return the rows of `df`; None if it is too large for that, and nothing was kept.

        Times with a zone are in any zone.
        """
        limit = _limit_of(df.schema, self._row_limit)
        try:
            frame: Any = self._guard.guarded(df, limit, _TOO_LARGE)
            if is_connect(df):
                return frame.toArrow()
            # What `toArrow` does, without asking for settings and casting to what they say.
            batches = frame._collect_as_arrow(empty_list_if_zero_records=False)  # noqa: SLF001 - no public way
            return pa.Table.from_batches(batches)
        except SPARK_ERRORS as error:
            if _TOO_LARGE not in str(error) and not is_over_result_limit(error):
                raise
            _log.info("the batch is larger than the ones before it; tasks write it")
            return None


def is_over_result_limit(error: Exception) -> bool:
    """Whether a job failed because it returned more than `spark.driver.maxResultSize`."""
    return _RESULT_TOO_LARGE in str(error)


def _limit_of(schema: spark.StructType, row_count: int) -> RowLimit:
    """Return what a row may hold before a task meets too much."""
    # A tall or a wide batch must fail while it is small: a task holds its whole result in memory
    # before anything counts its bytes.
    return RowLimit(
        lengths=text_lengths(schema.fields),
        most_bytes=MAX_BYTES * HEADROOM // row_count,
        row_count=row_count,
    )
