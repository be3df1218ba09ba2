"""Apply a DataFrame of events as one commit: its rows are fetched to the driver."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as spark
from pyspark.sql.functions import coalesce, col, expr, lit, struct

from fuse_stream.commit.ledger import Batch
from fuse_stream.commit.plan import Staged
from fuse_stream.errors import InvalidInputError
from fuse_stream.format.batch_sums import BatchSums
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.format.schema import Column
from fuse_stream.format.sequenced import Counts
from fuse_stream.objects.slots import Stored
from fuse_stream.on_demand import OnDemand
from fuse_stream.spark.collect import SPARK_ERRORS, FetchPolicy, fetch_all
from fuse_stream.spark.types import columns_of_spark, quoted
from fuse_stream.spark.where import reason_of
from fuse_stream.table.handle import Table

if TYPE_CHECKING:
    from fuse_stream.dml import event_rules, events, sequenced
else:  # the workers of Spark load this module
    event_rules = OnDemand("fuse_stream.dml.event_rules")
    events = OnDemand("fuse_stream.dml.events")
    sequenced = OnDemand("fuse_stream.dml.sequenced")

_log = logging.getLogger(__name__)


def event_columns(schema: spark.StructType, rules: event_rules.EventRules) -> tuple[Column, ...]:
    """Return the columns that events give a table.

    Raises:
        InvalidInputError: a column that the rules name is missing.
    """
    rules.sequence_of(schema.names)
    data = set(rules.data_of(schema.names))
    return columns_of_spark(
        spark.StructType([field for field in schema.fields if field.name in data])
    )


def warn_of_plain_events(names: Iterable[str], operation: Operation, path: str) -> None:
    """Log one warning if events of a reader are about to be stored as plain rows."""
    if operation in {Operation.APPEND, Operation.OVERWRITE} and events.has_envelope(names):
        _log.warning(
            "the rows are events, as from_debezium and its siblings make them, and this %s stores "
            'them as they are and applies none: to apply them pass mode="upsert" and keys=; '
            "path=%s",
            operation,
            path,
        )


class FrameEvents:
    """The events of a DataFrame. `collect` runs its plan."""

    def __init__(
        self,
        df: DataFrame,
        table: Table,
        rules: event_rules.EventRules,
        *,
        keys: Sequence[str] | None,
        batch: Batch | None,
        merge_schema: bool,
        case_sensitive: bool,
    ) -> None:
        self.row_count = 0
        """Events."""
        self.byte_count = 0
        """In memory, uncompressed."""

        self._df = marked(df, rules)
        self._table = table
        self._rules = rules
        self._keys = keys
        self._batch = batch
        self._merge_schema = merge_schema
        self._case_sensitive = case_sensitive
        self._staging: sequenced.SequencedStaging | None = None

    def collect(self, _head: Stored, _policy: FetchPolicy | None) -> None:
        """Run the plan, and fetch the events.

        Raises:
            InvalidInputError: the sequence cannot be ordered, or the events are too many for the
                driver; nothing was written.
        """
        rows = fetch_all(self._df)
        self.row_count, self.byte_count = len(rows), rows.nbytes
        is_numbered = self._batch is not None and self._batch.is_numbered
        self._staging = sequenced.SequencedStaging(
            self._table.metadata,
            self._rules.read_marked(rows),
            self._rules,
            keys=self._keys,
            batch=self._batch,
            merge_schema=self._merge_schema,
            case_sensitive=self._case_sensitive,
            may_be_empty=self._batch is not None,
            sums=event_rules.sums_of(rows) if is_numbered else None,
        )

    def stage(self, head: Stored, before: Staged | None) -> Staged:
        """Stage the collected events for `head`; errors of `Table.upsert`."""
        assert self._staging is not None
        return self._staging.stage(head, before)

    @property
    def counts(self) -> Counts | None:
        """What became of the events on the last head; None if they were not collected."""
        return None if self._staging is None else self._staging.counts

    def warn_of_bad(self, snapshot: Snapshot) -> None:
        """Log one warning if the commit of `snapshot` put events into the quarantine."""
        if self._staging is not None:
            self._staging.warn_of_bad(self._table.committer, snapshot)

    def measure(self, _head: Stored) -> BatchSums:
        """Return the sums of the events; runs the plan."""
        rows: pa.Table = fetch_all(self._df)
        return event_rules.sums_of(rows)


def marked(df: DataFrame, rules: event_rules.EventRules) -> DataFrame:
    """Return events with their sequences, and whether they are deletes or truncates.

    Raises:
        InvalidInputError: Spark refuses a predicate.
    """
    names = df.columns
    parts = [col(quoted(name)) for name in rules.sequence_of(names)]
    sequence = parts[0] if len(parts) == 1 else struct(*parts)
    marks = [sequence.alias(event_rules.MARKS[0])]
    predicates = rules.deletes_of(names), rules.truncates_of(names)
    for name, predicate in zip(event_rules.MARKS[1:], predicates, strict=True):
        mark = lit(False) if predicate is None else coalesce(expr(predicate), lit(False))  # noqa: FBT003 - a value
        marks.append(mark.alias(name))
    try:
        return df.select("*", *marks)
    except SPARK_ERRORS as error:
        raise InvalidInputError(
            "Spark refuses apply_as_deletes, apply_as_truncates or sequence_by: correct it, or the "
            "columns that it names",
            reason=reason_of(error),
        ) from error
