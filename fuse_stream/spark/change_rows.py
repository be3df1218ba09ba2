"""Commit the changes of rows that a DataFrame computes: `fuse.delete`, `fuse.update`, merges.

Rules:
- The plan runs once for a head: its tasks write the new images of rows as blocks, and return which
  rows of which blocks go. On another head the plan runs again, `ATTEMPTS` times at most.
- So the commit has the effect of running alone on the head on which it lands.
- In a table with a key, no commit brings a second row of a key.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.functions import col, expr, lit, raise_error, when

from fuse_stream.commit.plan import Intent, NothingToDoError, Staged, check_may_change
from fuse_stream.dml.result import ChangeResult
from fuse_stream.errors import (
    ConflictError,
    InvalidInputError,
    UnsupportedStorageError,
)
from fuse_stream.format.evolve import check_not_hidden, resolve
from fuse_stream.format.layout import MAIN
from fuse_stream.format.properties import block_target
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.format.schema import Schema
from fuse_stream.objects.slots import Stored
from fuse_stream.spark.change_writer import (
    KIND,
    RESULT_SCHEMA,
    ChangeWriter,
    Kind,
    gathered,
)
from fuse_stream.spark.collect import SPARK_ERRORS, RowMapper, mean_row_bytes
from fuse_stream.spark.read import FILE, ROW, read_with_places
from fuse_stream.spark.staged_changes import commit_read, stage_changes
from fuse_stream.spark.task_writer import TaskWriter
from fuse_stream.spark.types import columns_of_spark, is_case_sensitive, quoted, spark_schema
from fuse_stream.spark.where import reason_of
from fuse_stream.table.handle import Table, open_at
from fuse_stream.table.location import TableLocation

ATTEMPTS = 5
"""The most heads on which a plan runs."""

_MISFIT = "fuse_stream: a value does not fit the type of its column"

_NUMBERS = (
    spark_types.ByteType,
    spark_types.ShortType,
    spark_types.IntegerType,
    spark_types.LongType,
    spark_types.FloatType,
    spark_types.DoubleType,
    spark_types.DecimalType,
)


def delete(
    spark: SparkSession,
    path: str | os.PathLike[str],
    where: str,
    *,
    branch: str = MAIN,
    message: str = "",
    author: str = "",
    storage_options: Mapping[str, object] | None = None,
    origins: Sequence[str] = (),
    unsafe_single_writer: bool = False,
) -> ChangeResult:
    """Delete the rows for which a condition of Spark's SQL holds, as one snapshot.

    Like `Table.delete`, with any expression that Spark knows, subqueries among them.

    Args:
        spark: a classic session; Spark Connect has `Table.delete`.
        path: the table: a local path or an fsspec URL.
        where: a SQL condition on the table's columns.
        branch: the branch to change.
        message: shown by the log.
        author: shown by the log; never taken from the system.
        storage_options: fsspec's, for a remote store.
        origins: the locations of the origins whose blocks may be read, for a clone.
        unsafe_single_writer: allow a store that cannot tell two writers apart.

    Raises:
        InvalidInputError: Spark refuses the condition; nothing was written.
        ConflictError: other writers won every attempt; nothing was committed.
        CommitStateUnknownError: the store failed; the commit may have landed.
    """
    location = TableLocation.of(
        path, branch, storage_options, origins, unsafe_single_writer=unsafe_single_writer
    )
    intent = Intent(operation=Operation.DELETE, message=message, author=author)
    return commit_changes(spark, location, deletes(where), intent)


def update(
    spark: SparkSession,
    path: str | os.PathLike[str],
    where: str,
    values: Mapping[str, str],
    *,
    branch: str = MAIN,
    message: str = "",
    author: str = "",
    storage_options: Mapping[str, object] | None = None,
    origins: Sequence[str] = (),
    unsafe_single_writer: bool = False,
) -> ChangeResult:
    """Set columns of the rows for which a condition of Spark's SQL holds, as one snapshot.

    Like `Table.update`, but each new value is a SQL expression on the row: `{"a": "a + 1"}`. All
    rows that match are written, also those that have these values already.

    Args:
        spark: a classic session; Spark Connect has `Table.update`.
        path: the table: a local path or an fsspec URL.
        where: a SQL condition on the table's columns.
        values: the expression of each column to set.
        branch: the branch to change.
        message: shown by the log.
        author: shown by the log; never taken from the system.
        storage_options: fsspec's, for a remote store.
        origins: the locations of the origins whose blocks may be read, for a clone.
        unsafe_single_writer: allow a store that cannot tell two writers apart.

    Raises:
        InvalidInputError: Spark refuses an expression, or a column is unknown or of the key.
        SchemaMismatchError: a value's type does not fit its column; nothing was written.
        ConflictError: other writers won every attempt; nothing was committed.
        CommitStateUnknownError: the store failed; the commit may have landed.
    """
    location = TableLocation.of(
        path, branch, storage_options, origins, unsafe_single_writer=unsafe_single_writer
    )
    given: object = values
    if not isinstance(given, Mapping) or not all(
        isinstance(name, str) and isinstance(text, str) for name, text in given.items()
    ):
        raise InvalidInputError(
            'values are SQL expressions by column, such as {"a": "a + 1"}', values=values
        )
    intent = Intent(operation=Operation.UPDATE, message=message, author=author)
    return commit_changes(spark, location, updates(where, values), intent)


Plan = Callable[[DataFrame, Schema], DataFrame]
"""Returns the changed rows of a head (`change_writer`), of its rows with their places."""


def deletes(where: str | Column) -> Plan:
    """Return a plan that deletes the rows for which a condition holds."""

    def plan(rows: DataFrame, schema: Schema) -> DataFrame:
        kind = lit(int(Kind.DELETE)).alias(KIND)
        return rows.where(as_column(where)).select(kind, FILE, ROW, *_nulls(schema))

    return plan


def updates(where: str | Column, values: Mapping[str, str] | Mapping[str, Column]) -> Plan:
    """Return a plan that sets columns of the rows for which a condition holds."""

    def plan(rows: DataFrame, schema: Schema) -> DataFrame:
        given = by_column(rows.sparkSession, schema, values)
        new = (as_column(given.get(name, col(quoted(name)))) for name in schema.names())
        named = [value.alias(name) for name, value in zip(schema.names(), new, strict=True)]
        kind = lit(int(Kind.UPDATE)).alias(KIND)
        return rows.where(as_column(where)).select(kind, FILE, ROW, *named)

    return plan


def as_column(expression: str | Column) -> Column:
    """Return a SQL expression as a column."""
    return expr(expression) if isinstance(expression, str) else expression


def by_column(spark: SparkSession, schema: Schema, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` by the names that the table's columns have.

    Raises:
        InvalidInputError: a column is unknown, hidden, or named twice.
    """
    check_not_hidden(values)
    is_exact = is_case_sensitive(spark)
    known = {name if is_exact else name.casefold(): name for name in schema.names()}
    found: dict[str, Any] = {}
    for name, value in values.items():
        column = known.get(name if is_exact else name.casefold())
        if column is None or column in found:
            problem = "the table has no such column" if column is None else "a column is set twice"
            raise InvalidInputError(problem, column=name, columns=list(schema.visible.names()))
        found[column] = value
    if not found:
        raise InvalidInputError(
            "name at least one column to set", columns=list(schema.visible.names())
        )
    return found


def stored_as(value: Column, have: spark_types.DataType, want: spark_types.DataType) -> Column:
    """Return a number or a null as a column holds it; a number that does not fit is an error.

    A float may lose digits.
    """
    if isinstance(have, spark_types.NullType):
        return value.cast(want)
    if have == want or not isinstance(have, _NUMBERS) or not isinstance(want, _NUMBERS):
        return value
    held = value.try_cast(want)
    is_lost = value.isNotNull() & held.isNull()
    if not isinstance(want, spark_types.FloatType | spark_types.DoubleType):
        is_lost = is_lost | (held.try_cast(have) != value)
    error = raise_error(lit(f"{_MISFIT}, {want.simpleString()}")).cast(want)
    return when(is_lost, error).otherwise(held)


def _nulls(schema: Schema) -> list[Column]:
    return [
        lit(None).cast(field.dataType).alias(field.name) for field in spark_schema(schema).fields
    ]


def commit_changes(
    spark: SparkSession,
    location: TableLocation,
    plan: Plan,
    intent: Intent,
    *,
    merge_schema: bool = False,
) -> ChangeResult:
    """Commit the changes that `plan` computes on the newest head; errors of `delete`."""
    if not hasattr(spark, "_jsparkSession"):
        raise UnsupportedStorageError(
            "Spark Connect cannot read which row of which file a row is: use Table.delete, "
            "Table.update and Table.upsert there"
        )
    table = open_at(location)
    for _ in range(ATTEMPTS):
        run = _Run(spark, table, plan, intent, merge_schema=merge_schema)
        try:
            outcome = table.committer.commit(intent, run.stage, replan=False)
        except NothingToDoError:
            return ChangeResult()
        except ConflictError:
            if table.committer.was_behind():
                continue
            raise
        if outcome.snapshot.replayed:
            return ChangeResult(snapshot=outcome.snapshot)
        return dataclasses.replace(run.result, snapshot=outcome.snapshot)
    raise ConflictError(
        "other writers won every attempt; nothing was committed, try again", attempts=ATTEMPTS
    )


def commit_inserts(df: DataFrame, table: Table, read: Snapshot, intent: Intent) -> None:
    """Commit the rows that a merge inserts, computed from the snapshot `read`.

    Raises:
        ConflictError: `read` is not the head any more; nothing was committed.
        AmbiguousMergeError: rows of a table with a key would not be unique.
        CommitStateUnknownError: the store failed; the commit may have landed.
    """

    def plan(_rows: DataFrame, _schema: Schema) -> DataFrame:
        nowhere = lit(None).cast("string").alias(FILE), lit(None).cast("long").alias(ROW)
        columns = (col(quoted(name)) for name in df.columns)
        return df.select(lit(int(Kind.INSERT)).alias(KIND), *nowhere, *columns)

    run = _Run(df.sparkSession, table, plan, intent, merge_schema=False)
    commit_read(table, read, intent, run.stage_on)


class _Run:
    """One run of a plan, for the head on which its changes are committed."""

    def __init__(
        self,
        spark: SparkSession,
        table: Table,
        plan: Plan,
        intent: Intent,
        *,
        merge_schema: bool,
    ) -> None:
        self.result = ChangeResult()
        """What was staged; without the commit."""

        self._spark = spark
        self._table = table
        self._plan = plan
        self._operation = intent.operation
        self._is_numbered = intent.batch is not None
        self._merge_schema = merge_schema

    def stage(self, on: Stored, _before: Staged | None) -> Staged:
        return self.stage_on(on.snapshot)

    def stage_on(self, head: Snapshot) -> Staged:
        metadata = self._table.metadata
        check_may_change(head)
        changed = self._planned(head)
        fields = spark_types.StructType(changed.schema.fields[3:])
        schema, columns = resolve(
            head.schema,
            columns_of_spark(fields),
            merge_schema=self._merge_schema,
            case_sensitive=is_case_sensitive(self._spark),
            with_hidden=True,
        )
        writer = TaskWriter(
            store=metadata.store,
            schema=schema,
            columns=columns,
            cluster_key=head.cluster_key,
            target=block_target(head.properties),
        )
        try:
            results = RowMapper().collect(
                changed.sortWithinPartitions(KIND),
                ChangeWriter(writer=writer).map_in_arrow,
                RESULT_SCHEMA,
                mean_row_bytes=mean_row_bytes(head),
            )
        except SPARK_ERRORS as error:
            at = str(error).find(_MISFIT)
            if at < 0:
                raise
            raise InvalidInputError(
                "a value does not fit the type of its column: cast it, or round it",
                reason=str(error)[at + len("fuse_stream: ") :].partition("\n")[0][:200],
            ) from error
        staged, self.result = stage_changes(
            metadata,
            head,
            schema,
            gathered(writer, results),
            self._operation,
            is_numbered=self._is_numbered,
        )
        return staged

    def _planned(self, head: Snapshot) -> DataFrame:
        """Return the changed rows, numbers in the types of the table.

        Raises:
            InvalidInputError: Spark refuses an expression of the plan.
        """
        try:
            changed = self._plan(read_with_places(self._spark, self._table, head), head.schema)
            have = {field.name: field.dataType for field in changed.schema.fields}
        except SPARK_ERRORS as error:
            raise InvalidInputError(
                "Spark refuses an expression: correct it, or the columns that it names; a text "
                "as a value is in quotes of its own, such as \"'UA'\"",
                reason=reason_of(error),
            ) from error
        want = {field.name: field.dataType for field in spark_schema(head.schema).fields}
        return changed.select(
            KIND,
            FILE,
            ROW,
            *(
                stored_as(col(quoted(name)), have[name], want.get(name, have[name])).alias(name)
                for name in changed.columns[3:]
            ),
        )
