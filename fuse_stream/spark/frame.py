"""Write a DataFrame as one commit: its rows are fetched if few, else written by Spark's tasks."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, Row

from fuse_stream.commit.create import column_ids
from fuse_stream.commit.plan import Staged, check_may_add, may_be_gone
from fuse_stream.commit.stage import stage_blocks, stage_tables
from fuse_stream.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from fuse_stream.format.arrow import adapt
from fuse_stream.format.batch_sums import BatchSums
from fuse_stream.format.evolve import first_schema, resolve
from fuse_stream.format.layout import MAIN
from fuse_stream.format.names import names_in
from fuse_stream.format.properties import block_target
from fuse_stream.format.records import Block, Operation, Snapshot
from fuse_stream.format.schema import Column, Schema
from fuse_stream.objects.slots import Stored
from fuse_stream.on_demand import OnDemand
from fuse_stream.spark.collect import (
    SPARK_ERRORS,
    FetchPolicy,
    MapRows,
    RowMapper,
    is_over_result_limit,
    mean_row_bytes,
)
from fuse_stream.spark.task_writer import RESULT_SCHEMA, TaskWriter, collected
from fuse_stream.spark.types import columns_of_spark
from fuse_stream.table.handle import Table, create_at, open_at
from fuse_stream.table.location import TableLocation

if TYPE_CHECKING:
    from fuse_stream.dml import upsert
else:  # the workers of Spark load this module
    upsert = OnDemand("fuse_stream.dml.upsert")

_NO_PACKAGE = "No module named 'fuse_stream'"


def open_or_create(
    location: TableLocation,
    columns: tuple[Column, ...],
    *,
    cluster_by: tuple[str, ...],
    case_sensitive: bool,
    operation: Operation = Operation.APPEND,
    keys: tuple[str, ...] | None = None,
) -> Table:
    """Return the open table; create it with `columns`, all nullable, if there is none.

    `keys` are the columns of the key, for an upsert.

    Raises:
        InvalidInputError: a table cannot have these columns, or the table has another cluster key.
        AlreadyExistsError: there is no table, and the folder holds something else.
    """
    try:
        table = open_at(location)
    except NotFoundError:
        if location.branch != MAIN:
            raise
        # Nullable even if the batch is not: spark.range is NOT NULL, and later rows may hold nulls.
        schema = first_schema(columns, nullable=True, case_sensitive=case_sensitive)
        if operation is Operation.UPSERT:
            _check_keys(schema, keys)
        try:
            return create_at(location, schema, cluster_by=cluster_by)
        except AlreadyExistsError as taken:
            try:
                table = open_at(location)  # another query may have created it first
            except NotFoundError:
                raise taken from None
    head = table.committer.known_head().snapshot
    names = {column.id: column.name for column in head.schema.columns}
    current = tuple(names[column] for column in head.cluster_key)
    if cluster_by and cluster_by != current:
        raise InvalidInputError(
            "the table has another cluster key; leave cluster_by out: it is for new tables",
            cluster_by=list(cluster_by),
            table=list(current),
        )
    return table


def _check_keys(schema: Schema, keys: tuple[str, ...] | None) -> None:
    """Raise InvalidInputError if a new table cannot have this key."""
    if not keys:
        raise InvalidInputError(
            "there is no table yet, and so no key: name the columns by which rows are unique, "
            'keys=["id"]'
        )
    column_ids(schema, keys, argument="keys")


def keys_in(mode: str, keys: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the argument `keys` of a write, checked.

    Raises:
        InvalidInputError: it is not a list of names; or the mode is not "upsert".
    """
    if keys is None:
        return None
    if mode != "upsert":
        raise InvalidInputError('keys are for mode="upsert"', mode=mode, keys=keys)
    return tuple(names_in("keys", keys))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """A DataFrame's columns, resolved against a table's schema."""

    table: Schema
    schema: Schema
    """The table's schema after the commit."""
    columns: tuple[Column, ...]
    """The DataFrame's columns, with their ids in `schema`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """The blocks that tasks wrote for a head."""

    base: Snapshot
    """The head's snapshot, read before the tasks wrote."""
    schema: Schema
    blocks: tuple[Block, ...]
    sums: BatchSums | None = None


class FrameRows:
    """The rows of a DataFrame that is written to a table. `collect` runs its plan."""

    def __init__(
        self,
        df: DataFrame,
        table: Table,
        mapper: RowMapper,
        *,
        merge_schema: bool,
        case_sensitive: bool,
        operation: Operation,
        is_numbered: bool = False,
    ) -> None:
        self._df = df
        self._operation = operation
        self._is_numbered = is_numbered
        self._mapper = mapper
        self._table = table
        self._merge_schema = merge_schema
        self._case_sensitive = case_sensitive
        self._fit: _Fit | None = None
        self._fetched: pa.Table | None = None
        self._written: _Written | None = None
        self.row_count = 0
        self.byte_count = 0
        """In memory, uncompressed."""

    def collect(self, head: Stored, policy: FetchPolicy | None) -> None:
        """Run the plan: fetch the rows, or have tasks write them as blocks that fit `head`.

        Raises:
            SchemaMismatchError: the columns are not the table's; nothing was written.
        """
        # A mismatch must raise before the plan runs, which may take long.
        check_may_add(head.snapshot, self._operation)
        self._fit_to(head.snapshot.schema)
        if policy is not None and policy.allows(self._df):
            rows = policy.fetch(self._df)
            if rows is not None:
                self._fetched = rows
                self.row_count, self.byte_count = len(rows), rows.nbytes
                return
        self._write_by_tasks(head)

    def stage(self, head: Stored, before: Staged | None) -> Staged:
        """Store the collected rows as a segment that fits `head`; return it."""
        metadata = self._table.metadata
        if self._fetched is not None:
            fit = self._fit_to(head.snapshot.schema)
            rows = adapt(self._fetched, fit.columns, fit.schema)
            return stage_tables(metadata, head.snapshot, fit.schema, [rows])
        base = None if self._written is None else self._written.base
        if (
            base is None
            or before is not None
            or base.schema != head.snapshot.schema
            or may_be_gone(base.epoch, head.snapshot)
        ):
            self._write_by_tasks(head)
        written = self._written
        assert written is not None
        staged = stage_blocks(
            metadata, head.snapshot, written.schema, written.blocks, epoch=written.base.epoch
        )
        return dataclasses.replace(staged, sums=written.sums)

    def upsert_by(
        self, keys: Sequence[str] | None, *, may_be_empty: bool
    ) -> Callable[[Stored, Staged | None], Staged]:
        """Return what stages an upsert of the collected rows; arguments of `UpsertStaging`."""
        return upsert.UpsertStaging(
            self._table.metadata,
            self.stage,
            keys=keys,
            may_be_empty=may_be_empty,
        ).stage

    def measure(self, head: Stored) -> BatchSums:
        """Return the sums of the rows in the columns of `head`; run the plan, but write nothing.

        Raises:
            SchemaMismatchError: a column cannot be held by the table's.
        """
        snapshot = head.snapshot
        columns = columns_of_spark(self._df.schema)
        fit = _fit(snapshot.schema, columns, merge_schema=True, case_sensitive=True)
        writer = self._writer(snapshot, fit)
        return collected(self._results(writer.measure_in_arrow, snapshot)).batch_sums

    def _write_by_tasks(self, head: Stored) -> None:
        snapshot = head.snapshot
        fit = self._fit_to(snapshot.schema)
        writer = self._writer(snapshot, fit)
        try:
            results = self._results(writer.map_in_arrow, snapshot)
        except SPARK_ERRORS as error:
            if _NO_PACKAGE in str(error):
                raise InvalidInputError(
                    "the Python of Spark's workers lacks fuse_stream: set PYSPARK_PYTHON to one "
                    "that has it before Spark starts, and check it with fuse-stream doctor",
                    workers=os.environ.get("PYSPARK_PYTHON", "python3"),
                ) from error
            if not is_over_result_limit(error):
                raise
            # Each task returned few bytes, but all of them together exceed the limit.
            writer = dataclasses.replace(writer, handed_over_bytes=0)
            results = self._results(writer.map_in_arrow, snapshot)
        result = collected(results)
        blocks = writer.gather([result])
        self.row_count = sum(block.row_count for block in blocks)
        self.byte_count = sum(block.block_size for block in blocks)
        sums = result.batch_sums if self._is_numbered else None
        self._written = _Written(base=snapshot, schema=fit.schema, blocks=blocks, sums=sums)

    def _writer(self, snapshot: Snapshot, fit: _Fit) -> TaskWriter:
        return TaskWriter(
            store=self._table.metadata.store,
            schema=fit.schema,
            columns=fit.columns,
            cluster_key=snapshot.cluster_key,
            target=block_target(snapshot.properties),
            is_numbered=self._is_numbered,
        )

    def _results(self, function: MapRows, before: Snapshot) -> list[Row]:
        return self._mapper.collect(
            self._df,
            function,
            RESULT_SCHEMA,
            mean_row_bytes=mean_row_bytes(before),
        )

    def _fit_to(self, table: Schema) -> _Fit:
        """Return the columns resolved against `table`; each schema is resolved once."""
        if self._fit is None or self._fit.table != table:
            self._fit = _fit(
                table,
                columns_of_spark(self._df.schema),
                merge_schema=self._merge_schema,
                case_sensitive=self._case_sensitive,
            )
        return self._fit


def _fit(
    table: Schema, columns: tuple[Column, ...], *, merge_schema: bool, case_sensitive: bool
) -> _Fit:
    schema, resolved = resolve(
        table, columns, merge_schema=merge_schema, case_sensitive=case_sensitive
    )
    return _Fit(table=table, schema=schema, columns=resolved)
