"""The handle on one branch of a table. It delegates: decisions and I/O live below."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa

from fuse_stream.clock import SYSTEM_CLOCK, Clock
from fuse_stream.commit.committer import Committer, Outcome, may_replan
from fuse_stream.commit.create import (
    check_clock,
    cluster_key,
    create_objects,
    finish_create,
)
from fuse_stream.commit.create import probe_store as probe_store_of
from fuse_stream.commit.ledger import DEFAULT_APPLICATION, Batch
from fuse_stream.commit.plan import Intent, Staged
from fuse_stream.commit.stage import Rows, stage_rows
from fuse_stream.errors import InvalidInputError, NotFoundError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.layout import MAIN
from fuse_stream.format.properties import check_properties
from fuse_stream.format.records import Operation, Snapshot, TableFile
from fuse_stream.format.refs import BranchRef
from fuse_stream.format.schema import Schema
from fuse_stream.objects.refs import MAIN_BRANCH, load_branch
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.storage.base import Store
from fuse_stream.table.history import BranchHistory
from fuse_stream.table.location import TableLocation
from fuse_stream.table.optimize import BranchMaintenance

Data: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader


class Table(BranchHistory, BranchMaintenance):
    """One branch of a table.

    Readers see the newest snapshot at each call. A handle may be kept: it notices when its table
    is moved, removed or replaced. It is not for several threads at once; open one for each.
    """

    def __init__(
        self,
        location: TableLocation,
        metadata: Metadata,
        table_file: TableFile,
        *,
        branch: BranchRef = MAIN_BRANCH,
        is_probed: bool,
    ) -> None:
        """Use `create` or `open`."""
        super().__init__(
            Committer(metadata, branch, grace_us=table_file.grace_us, is_probed=is_probed)
        )
        self.location = location.at(metadata.store.url)
        """Whatever becomes of the working directory."""
        self.table_id = table_file.table_id

    def __repr__(self) -> str:
        return f"Table({self.metadata.store.url!r}, branch={self.branch!r})"

    # ---- handles

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        schema: pa.Schema,
        *,
        cluster_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        storage_options: Mapping[str, object] | None = None,
        unsafe_single_writer: bool = False,
    ) -> Table:
        """Create a table at `path` with the columns of an Arrow schema, and open it.

        Args:
            path: a local path or an fsspec URL.
            schema: the columns; their nullability is kept.
            cluster_by: columns in whose order the rows of a block stand.
            properties: see `docs/format.md`; names outside `fuse.` are free.
            storage_options: fsspec's, for a remote store.
            unsafe_single_writer: allow a store that cannot tell two writers apart.

        Raises:
            AlreadyExistsError: there is a table.
            CorruptObjectError: there is one that has lost `_fuse.json`; nothing was written.
            InvalidInputError: the schema or a property cannot stand.
            UnsupportedTypeError: a column's type is not one of the format's.
            UnsupportedStorageError: the store cannot create an object exactly once.
        """
        location = TableLocation.of(
            path, storage_options=storage_options, unsafe_single_writer=unsafe_single_writer
        )
        if not isinstance(schema, pa.Schema):
            raise InvalidInputError("schema is a pyarrow.Schema", type=type(schema).__name__)
        columns = first_schema(columns_of_arrow(schema))
        return create_at(location, columns, cluster_by=cluster_by, properties=properties)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        branch: str = MAIN,
        storage_options: Mapping[str, object] | None = None,
        origins: Sequence[str | os.PathLike[str]] = (),
        unsafe_single_writer: bool = False,
    ) -> Table:
        """Open the table at `path`.

        Args:
            path: a local path or an fsspec URL.
            branch: which branch of it.
            storage_options: fsspec's, for remote stores.
            origins: where the tables are whose blocks it may read, if it is a clone. Nothing else
                is followed; without them a clone's history can be looked at, not its rows.
            unsafe_single_writer: allow a store that cannot tell two writers apart.

        Raises:
            NotFoundError: there is no table, or no such branch; or a clone that is not whole.
            CorruptObjectError: the table file or the newest snapshot is damaged or lost.
            UnsupportedFormatError: a newer release wrote it.
        """
        location = TableLocation.of(
            path,
            branch=branch,
            storage_options=storage_options,
            origins=origins,
            unsafe_single_writer=unsafe_single_writer,
        )
        return open_at(location)

    # ---- writing

    def append(
        self,
        data: Data,
        *,
        app_id: str | None = None,
        batch_id: int | None = None,
        writer: str = "",
        merge_schema: bool = False,
        message: str = "",
        author: str = "",
    ) -> Snapshot:
        """Add the rows of `data` as one snapshot, and return it.

        With `app_id` and `batch_id` the call is safe to repeat: an equal batch is a replay, which
        writes nothing and returns the snapshot in which the batch was found.

        Args:
            data: rows whose columns are the table's, in any order.
            app_id: who delivers the batch.
            batch_id: which delivery it is; grows.
            writer: tells the streams of one application apart.
            merge_schema: add new columns, widen types.
            message: what the log shows.
            author: what the log shows; never taken from the system.

        Raises:
            SchemaMismatchError: the columns are not the table's; nothing was written.
            InvalidInputError: a value does not fit; nothing was committed.
            StreamIdentityError: a batch lower than the last one; nothing was committed.
            ConflictError: other writers won every attempt; nothing was committed.
            CommitStateUnknownError: the store failed; the commit may have landed.
        """
        batch = _api_batch(app_id, batch_id, writer)
        intent = Intent(operation=Operation.APPEND, batch=batch, message=message, author=author)
        return self.commit_rows(intent, data, merge_schema=merge_schema).stored.snapshot

    def overwrite(
        self,
        data: Data,
        *,
        app_id: str | None = None,
        batch_id: int | None = None,
        writer: str = "",
        merge_schema: bool = False,
        message: str = "",
        author: str = "",
    ) -> Snapshot:
        """Replace all rows by those of `data`, as one snapshot; otherwise like `append`."""
        batch = _api_batch(app_id, batch_id, writer)
        intent = Intent(operation=Operation.OVERWRITE, batch=batch, message=message, author=author)
        return self.commit_rows(intent, data, merge_schema=merge_schema).stored.snapshot

    def commit_rows(self, intent: Intent, data: Data, *, merge_schema: bool = False) -> Outcome:
        """Commit `data` as `intent` says, and return what became of it; raises what `append` does.

        For rows in Arrow. Writers in Spark stage DataFrames and call the committer themselves.
        """
        rows = _rows(data)
        return self.committer.commit(
            intent,
            lambda head, before: stage_rows(
                self.metadata, head, before, rows, merge_schema=merge_schema
            ),
        )

    def set_properties(
        self, properties: Mapping[str, str], *, on_conflict: str = "error"
    ) -> Snapshot:
        """Merge `properties` into the table's, as a snapshot.

        Raises:
            InvalidInputError: a property cannot stand, or is fixed at create.
            ConflictError: another writer committed first and `on_conflict` is not "replan".
        """
        checked = check_properties(properties, creating=False)
        return self._alter(Intent(operation=Operation.ALTER, properties=checked), on_conflict)

    def cluster_by(self, columns: Sequence[str], *, on_conflict: str = "error") -> Snapshot:
        """Set the cluster key, as a snapshot; no columns for none.

        What is written from now on stands in its order. Blocks that stand already keep theirs
        until `recluster` or `compact` rewrites them.

        Args:
            columns: names of columns that are not nested; rows are sorted by the first of them,
                equal ones by the next.
            on_conflict: "error", or "replan" to look again if another writer is faster.

        Raises:
            InvalidInputError: a column is not there, stands twice, or has no order.
            ConflictError: another writer committed first and `on_conflict` is not "replan".
        """
        key = cluster_key(self.committer.head().snapshot.schema, columns)
        names = ", ".join(columns)
        message = f"cluster by {names}" if key else "no cluster key"
        intent = Intent(operation=Operation.ALTER, cluster_key=key, message=message)
        return self._alter(intent, on_conflict)

    def forget(self, app_id: str, *, on_conflict: str = "error") -> Snapshot:
        """Drop the ledger entries of an application, as a snapshot; its next batch counts as new.

        Raises:
            NotFoundError: the ledger has no such application.
            ConflictError: another writer committed first and `on_conflict` is not "replan".
        """
        known = {application for application, _ in self.ledger()}
        if app_id not in known:
            raise NotFoundError(
                "the ledger has no such application", app_id=app_id, known=sorted(known)
            )
        return self._alter(Intent(operation=Operation.ALTER, forget=app_id), on_conflict)

    def _alter(self, intent: Intent, on_conflict: str) -> Snapshot:
        replan = may_replan(on_conflict)

        def stage(head: Stored, _before: Staged | None) -> Staged:
            return Staged(schema=head.snapshot.schema)

        self.committer.head()
        outcome = self.committer.commit(intent, stage, replan=replan)
        return outcome.stored.snapshot


def create_at(
    location: TableLocation,
    schema: Schema,
    *,
    cluster_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> Table:
    """Create a table at a location; errors of `Table.create`."""
    return _create(
        location, Metadata(location.store(), SYSTEM_CLOCK), schema, cluster_by, properties
    )


def create_table(
    store: Store,
    schema: Schema,
    *,
    cluster_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    clock: Clock = SYSTEM_CLOCK,
    probe_store: bool = True,
) -> Table:
    """Create a table in `store`; errors of `Table.create`."""
    location = TableLocation(path=store.url, unsafe_single_writer=not probe_store)
    return _create(location, Metadata(store, clock), schema, cluster_by, properties)


def _create(
    location: TableLocation,
    metadata: Metadata,
    schema: Schema,
    cluster_by: Sequence[str],
    properties: Mapping[str, str] | None,
) -> Table:
    offset_us = 0 if location.unsafe_single_writer else probe_store_of(metadata)
    clock = metadata.clock
    check_clock(clock.now_us(), clock.now_us() + offset_us)
    table_file = create_objects(metadata, schema, cluster_by=cluster_by, properties=properties)
    table = Table(location, metadata, table_file, is_probed=True)
    table.committer.clock_offset_us = offset_us
    return table


def open_at(location: TableLocation) -> Table:
    """Open the table at a location; errors of `Table.open`."""
    return _open(location, Metadata(location.store(), SYSTEM_CLOCK))


def open_table(
    store: Store, *, branch: str = MAIN, clock: Clock = SYSTEM_CLOCK, probe_store: bool = True
) -> Table:
    """Open the table in `store`; errors of `Table.open`."""
    location = TableLocation(path=store.url, branch=branch, unsafe_single_writer=not probe_store)
    return _open(location, Metadata(store, clock))


def _open(location: TableLocation, metadata: Metadata) -> Table:
    table_file = metadata.load_table_file()
    ref = load_branch(metadata, location.branch)
    is_probed = location.unsafe_single_writer
    table = Table(location, metadata, table_file, branch=ref, is_probed=is_probed)
    try:
        head = table.head()
    except NotFoundError:
        if location.branch != MAIN:  # its history is lost, and is not that of a new table
            raise
        # `_fuse.json` without version 0: whoever created the table died in between.
        finish_create(metadata, table_file)
        head = table.head()
    if table_file.origins and head.version == 0:
        # A commit now would take the place of the one that brings the clone's content.
        raise NotFoundError(
            "a clone was begun here and is not whole; make the same clone again, which finishes "
            "it, or remove the folder",
            path=metadata.store.url,
            clone_id=table_file.table_id,
        )
    return table


def _rows(data: Data) -> Rows:
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.Table | pa.RecordBatchReader):
        return data
    raise InvalidInputError(
        "data is a pyarrow.Table or RecordBatchReader; convert it, as pa.Table.from_pandas does",
        type=type(data).__name__,
    )


def _api_batch(app_id: str | None, batch_id: int | None, writer: str) -> Batch | None:
    if batch_id is None:
        if app_id is not None or writer:
            raise InvalidInputError(
                "app_id and writer say whose batch this is; give its batch_id too", app_id=app_id
            )
        return None
    if type(batch_id) is not int or batch_id < 0:  # a bool is no number here
        raise InvalidInputError("a batch_id is a number from 0", batch_id=batch_id)
    return Batch(application=app_id or DEFAULT_APPLICATION, writer=writer, batch_id=batch_id)
