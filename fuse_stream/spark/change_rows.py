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

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.functions import col, expr, lit, raise_error, when

from fuse_stream.commit.plan import Intent, NothingToDoError, Staged, check_may_change
from fuse_stream.commit.stage import stage_blocks, stage_deletions
from fuse_stream.dml.event_sides import stage_by_hand
from fuse_stream.dml.keys import KeySearch, check_keys, key_schema
from fuse_stream.dml.result import ChangeResult
from fuse_stream.errors import (
    AmbiguousMergeError,
    ConflictError,
    InvalidInputError,
    UnsupportedStorageError,
)
from fuse_stream.format.evolve import check_not_hidden, relaxed, resolve
from fuse_stream.format.grouping import codes_of, grouping_keys
from fuse_stream.format.hidden_columns import COLUMN_SEQUENCES, LAST_COLUMN, ROW_SEQUENCE
from fuse_stream.format.layout import MAIN
from fuse_stream.format.positions import BlockRows, all_rows, minus, union
from fuse_stream.format.properties import block_target
from fuse_stream.format.records import Operation, Snapshot, rows_of
from fuse_stream.format.schema import Schema, with_columns
from fuse_stream.objects.blocks import load_block
from fuse_stream.objects.slots import Stored
from fuse_stream.objects.snapshot_blocks import iter_named
from fuse_stream.spark.change_writer import (
    KIND,
    RESULT_SCHEMA,
    ChangedRows,
    ChangeWriter,
    Kind,
    gathered,
)
from fuse_stream.spark.collect import SPARK_ERRORS, RowMapper, mean_row_bytes
from fuse_stream.spark.read import FILE, ROW, read_with_places
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
        head, metadata = on.snapshot, self._table.metadata
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
        return self._staged(head, schema, gathered(writer, results))

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

    def _staged(self, head: Snapshot, schema: Schema, found: ChangedRows) -> Staged:
        metadata = self._table.metadata
        if found.ambiguous:
            raise self._ambiguous(head, found.ambiguous)
        blocks, hidden = (*found.updates, *found.inserts), union(found.deleted, found.updated)
        self.result = ChangeResult(
            inserted=sum(block.row_count for block in found.inserts),
            updated=sum(map(len, found.updated.values())),
            deleted=sum(map(len, found.deleted.values())),
        )
        if not blocks and not hidden and not self._is_numbered:
            raise NothingToDoError
        staged = stage_blocks(metadata, head, schema, blocks, epoch=head.epoch)
        if head.key and blocks:
            self._check_keys(head, schema, staged, hidden)
        if head.sequence is not None and found.updates:
            self._check_same_keys(head, schema, found)
        updates: BlockRows = {}
        if self._operation is Operation.MERGE:
            new = {block.id: all_rows(block.row_count) for block in found.updates}
            updates = union(found.updated, new)
        deleted = (
            block.showing(found.deleted[block.id])
            for block in iter_named(metadata, head, found.deleted)
        )
        return dataclasses.replace(
            staged,
            deletions=stage_deletions(metadata, hidden, updates),
            sides=stage_by_hand(metadata, head, deleted),
            is_for_one_head=True,
        )

    def _check_keys(
        self, head: Snapshot, schema: Schema, staged: Staged, hidden: BlockRows
    ) -> None:
        """Raise unless the rows of the table are unique by its key after the commit.

        Raises:
            AmbiguousMergeError: two rows would have one key.
            InvalidInputError: a key would have a null.
        """
        metadata, keys = self._table.metadata, key_schema(schema, head.key)
        assert staged.ref is not None
        blocks = metadata.load_segment(staged.ref, schema.leaf_types).blocks
        arriving = pa.concat_tables(load_block(metadata.store, block, keys) for block in blocks)
        check_keys(arriving, keys)
        found = KeySearch(keys, arriving).find(metadata, head)
        if doubles := minus(rows_of(found.blocks), hidden):
            raise AmbiguousMergeError(
                "the changes would bring second rows of keys that the table has",
                key=list(keys.names()),
                rows=sum(map(len, doubles.values())),
            )

    def _check_same_keys(self, head: Snapshot, schema: Schema, found: ChangedRows) -> None:
        """Raise InvalidInputError if an update gives rows, which come from events, other keys.

        Sequences are of keys: two rows that exchange their keys must not exchange these.
        """
        metadata, keys = self._table.metadata, key_schema(schema, head.key)
        own = (ROW_SEQUENCE, COLUMN_SEQUENCES, LAST_COLUMN)
        kept = with_columns(schema, head.key, [name for name in own if name in schema.names()])
        old = [
            block.showing(found.updated[block.id])
            for block in iter_named(metadata, head, found.updated)
        ]
        wanted = relaxed(kept)
        rows = [load_block(metadata.store, block, wanted) for block in (*old, *found.updates)]
        codes = codes_of(grouping_keys(pa.concat_tables(rows)))
        count = sum(block.live_rows for block in old)
        if set(codes[:count].tolist()) != set(codes[count:].tolist()):
            raise InvalidInputError(
                "the key of rows that come from events cannot be updated: send a delete of the old "
                "key and an upsert of the new one",
                key=list(keys.names()),
            )

    def _ambiguous(self, head: Snapshot, rows: BlockRows) -> AmbiguousMergeError:
        metadata = self._table.metadata
        block = next(iter_named(metadata, head, rows))
        names = {column.id: column for column in head.schema.columns}
        columns = tuple(names[at] for at in head.key) or head.schema.columns
        wanted = dataclasses.replace(head.schema, columns=columns)
        example = load_block(metadata.store, block.showing(rows[block.id]), wanted).slice(0, 1)
        return AmbiguousMergeError(
            "several rows of the source act on one row of the table, so what becomes of it is not "
            "certain: let the source have one row for each",
            row=str(example.to_pylist()[0])[:200],
            rows=sum(map(len, rows.values())),
        )
