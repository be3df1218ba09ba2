"""The handle of one branch of a table. Decisions and I/O are in the lower packages."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pyarrow as pa

from fuse_stream.clock import SYSTEM_CLOCK, Clock
from fuse_stream.commit.committer import Committer, Outcome, may_replan
from fuse_stream.commit.create import (
    check_clock,
    check_folder_is_free,
    cluster_key,
    create_objects,
    finish_create,
)
from fuse_stream.commit.create import probe_store as probe_store_of
from fuse_stream.commit.plan import Intent, Staged, check_texts
from fuse_stream.commit.stage import measure_rows, stage_rows
from fuse_stream.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    SchemaMismatchError,
)
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.bloom import check_filtered
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.layout import MAIN
from fuse_stream.format.names import flag_in, names_in
from fuse_stream.format.private import check_private
from fuse_stream.format.properties import BLOOM, DEFAULTS, PRIVATE, check_properties
from fuse_stream.format.records import Operation, Snapshot, TableFile
from fuse_stream.format.refs import BranchRef
from fuse_stream.format.schema import Schema
from fuse_stream.objects.entry import entering
from fuse_stream.objects.indexes import check_private_indexes
from fuse_stream.objects.refs import MAIN_BRANCH, load_branch
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.storage.base import Store
from fuse_stream.storage.secrets import StorageOptions
from fuse_stream.table.alter import SchemaUpdate
from fuse_stream.table.arriving import Data, api_batch, rows_in
from fuse_stream.table.changes import BranchChanges
from fuse_stream.table.history import BranchHistory
from fuse_stream.table.indexes import BranchIndexes
from fuse_stream.table.location import TableLocation
from fuse_stream.table.optimize import BranchOptimization


class Table(BranchHistory, BranchChanges, BranchOptimization, BranchIndexes):
    """One branch of a table.

    Each call reads the newest snapshot. A handle can be kept open: it notices that its table was
    moved, removed or replaced. It is not thread-safe; open one for each thread.
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
        """Build a handle; callers use `create` or `open`."""
        super().__init__(
            Committer(metadata, branch, grace_us=table_file.grace_us, is_probed=is_probed)
        )
        self.location = location.at(metadata.store.url)
        """With an absolute path, so a change of the working directory does not matter."""
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
        """Create a table at `path` with the columns of an Arrow schema, and return its handle.

        Args:
            path: a local path or an fsspec URL.
            schema: the columns; their nullability is kept.
            cluster_by: the columns that the rows of a block are sorted by.
            properties: see `docs/format.md`; names that do not begin with `fuse.` are free.
            storage_options: fsspec's, for a remote store.
            unsafe_single_writer: allow a store that cannot tell two writers apart.

        Raises:
            AlreadyExistsError: there is a table already, or the folder holds something else;
                nothing was written.
            CorruptObjectError: there is a table that has lost `_fuse.json`; nothing was written.
            InvalidInputError: the schema or a property is not valid.
            UnsupportedTypeError: a column's type is not one of the format's.
            UnsupportedStorageError: the store cannot create an object exactly once.
        """
        storage_options = StorageOptions(storage_options)
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
        """Open a branch of the table at `path`, and return its handle.

        Args:
            path: a local path or an fsspec URL.
            branch: the branch to open.
            storage_options: fsspec's, for remote stores.
            origins: the locations of the origins whose blocks may be read, for a clone. Blocks of
                no other table are read; without them a clone's log can be read, but not its rows.
            unsafe_single_writer: allow a store that cannot tell two writers apart.

        Raises:
            NotFoundError: there is no table or no such branch, or the clone is not finished.
            CorruptObjectError: the table file or the newest snapshot is damaged or lost.
            UnsupportedFormatError: a newer release wrote the table.
        """
        storage_options = StorageOptions(storage_options)
        location = TableLocation.of(
            path, branch, storage_options, origins, unsafe_single_writer=unsafe_single_writer
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
        """Add the rows of `data` as one snapshot, and return the snapshot.

        With `app_id` and `batch_id` the call is safe to repeat: the same rows under an equal number
        are a replay, which writes nothing and returns the snapshot whose ledger already names the
        batch, with `replayed=True`. The rows of a replay are read, to compare them.

        Args:
            data: the rows; their columns are the table's, in any order.
            app_id: the application that delivers the batch.
            batch_id: the batch's number; it grows.
            writer: a name for each stream of batches, if one application has several.
            merge_schema: let the data add columns and widen types.
            message: shown by the log.
            author: shown by the log; never taken from the system.

        Raises:
            SchemaMismatchError: the columns are not the table's; nothing was written.
            InvalidInputError: a value does not fit; nothing was committed.
            StreamIdentityError: a batch lower than the last one, or other rows under its number;
                nothing was committed.
            ConflictError: other writers won every attempt; nothing was committed.
            CommitStateUnknownError: the store failed; the commit may have landed.
        """
        batch = api_batch(app_id, batch_id, writer)
        intent = Intent(operation=Operation.APPEND, batch=batch, message=message, author=author)
        return self.commit_rows(intent, data, merge_schema=merge_schema).snapshot

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
        batch = api_batch(app_id, batch_id, writer)
        intent = Intent(operation=Operation.OVERWRITE, batch=batch, message=message, author=author)
        return self.commit_rows(intent, data, merge_schema=merge_schema).snapshot

    def commit_rows(self, intent: Intent, data: Data, *, merge_schema: bool = False) -> Outcome:
        """Commit `data` with `intent`; return the outcome. Raises the errors of `append`.

        For Arrow data. Writers in Spark stage DataFrames and call the committer themselves.
        """
        rows, merge_schema = rows_in(data), flag_in("merge_schema", merge_schema)
        is_numbered = intent.batch is not None and intent.batch.is_numbered

        def stage(head: Stored, before: Staged | None) -> Staged:
            return stage_rows(
                self.metadata,
                head,
                before,
                rows,
                merge_schema=merge_schema,
                is_numbered=is_numbered,
                operation=intent.operation,
            )

        measure = partial(measure_rows, rows=rows) if is_numbered else None
        try:
            return self.committer.commit(intent, stage, measure=measure)
        except SchemaMismatchError:
            if not self.committer.was_behind():
                raise
        return self.committer.commit(intent, stage, measure=measure)

    def set_properties(
        self, properties: Mapping[str, str], *, on_conflict: str = "error"
    ) -> Snapshot:
        """Merge `properties` into the table's; return the new snapshot.

        Raises:
            InvalidInputError: a property is not valid, can only be set at create, or names columns
                that do not exist, that cannot be private or that cannot have a Bloom filter.
            ConflictError: another writer committed first and `on_conflict` is not "replan".
        """
        checked = check_properties(properties, creating=False)

        def check(head: Snapshot) -> None:
            if PRIVATE in checked:
                check_private(head.schema, checked, head.cluster_key)
                check_private_indexes(self.metadata, head, checked)
            if BLOOM in checked:
                check_filtered(head.schema, checked)

        intent = Intent(operation=Operation.ALTER, properties=checked)
        return self._alter(intent, on_conflict, check)

    def unset_properties(self, names: Sequence[str], *, on_conflict: str = "error") -> Snapshot:
        """Remove properties of the table, whose defaults count again; return the new snapshot.

        Raises:
            NotFoundError: the table has no such property.
            InvalidInputError: a property cannot change after the table was created.
            ConflictError: another writer committed first and `on_conflict` is not "replan".
        """
        names = names_in("names", names)
        missing = [name for name in names if name not in self.properties]
        if missing:
            raise NotFoundError(
                "the table has no such property", properties=missing, known=sorted(self.properties)
            )
        # What has a default is set to it: so the checks of a change apply.
        defaults = {name: DEFAULTS[name] for name in names if name in DEFAULTS}
        intent = Intent(
            operation=Operation.ALTER,
            properties=check_properties(defaults, creating=False),
            unset=frozenset(names) - defaults.keys(),
        )
        return self._alter(intent, on_conflict)

    def update_schema(
        self, *, on_conflict: str = "error", message: str = "", author: str = ""
    ) -> SchemaUpdate:
        """Return changes of the table's columns, which one commit applies.

        No file is rewritten, and each version keeps the columns that it has::

            with t.update_schema() as change:
                change.rename_column("dest", "destination")
                change.add_column("gate", "string", after="destination")

        Args:
            on_conflict: "error", or "replan" to apply the changes to the newest columns if another
                writer is faster.
            message: a text for the log; what changes, if not given.
            author: of the commit.

        Raises:
            InvalidInputError: an argument is not valid.
        """
        check_texts(message=message, author=author)
        return SchemaUpdate(
            self.committer, replan=may_replan(on_conflict), message=message, author=author
        )

    def cluster_by(self, columns: Sequence[str], *, on_conflict: str = "error") -> Snapshot:
        """Set the cluster key, and return the new snapshot; no columns remove the key.

        New blocks are sorted by the key. Existing blocks keep their order until `recluster` or
        `compact` rewrites them.

        Args:
            columns: names of columns that are not nested; rows are sorted by the first one, then
                by the next.
            on_conflict: "error", or "replan" to plan again if another writer is faster.

        Raises:
            InvalidInputError: a column does not exist, is named twice, has no order, or is private.
            ConflictError: another writer committed first and `on_conflict` is not "replan".
        """
        columns = names_in("cluster_by", columns)
        key = cluster_key(self.committer.head().snapshot.schema, columns)
        message = f"cluster by {', '.join(columns)}" if key else "no cluster key"
        intent = Intent(operation=Operation.ALTER, cluster_key=key, message=message)

        def check(head: Snapshot) -> None:
            check_private(head.schema, head.properties, key)
            if cluster_key(head.schema, columns) != key:
                raise ConflictError(
                    "another commit has changed these columns meanwhile; call it again",
                    columns=[*columns],
                )

        return self._alter(intent, on_conflict, check)

    def forget(self, app_id: str, *, on_conflict: str = "error") -> Snapshot:
        """Remove an application's ledger entries, and return the new snapshot.

        The application's next batch counts as new.

        Raises:
            NotFoundError: the ledger has no such application.
            ConflictError: another writer committed first and `on_conflict` is not "replan".
        """
        known = sorted({application for application, _ in self.ledger()})
        if app_id not in known:
            raise NotFoundError(
                "the ledger has no such application; name one that it has",
                app_id=app_id,
                known=known,
            )
        return self._alter(Intent(operation=Operation.ALTER, forget=app_id), on_conflict)

    def _alter(
        self,
        intent: Intent,
        on_conflict: str,
        check: Callable[[Snapshot], None] = lambda _head: None,
    ) -> Snapshot:
        replan = may_replan(on_conflict)

        def stage(head: Stored, _before: Staged | None) -> Staged:
            check(head.snapshot)
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
    """Create a table at a location, and return its handle; raises the errors of `Table.create`."""
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
    """Create a table in `store`, and return its handle; raises the errors of `Table.create`."""
    location = TableLocation(path=store.url, unsafe_single_writer=not probe_store)
    return _create(location, Metadata(store, clock), schema, cluster_by, properties)


def _create(
    location: TableLocation,
    metadata: Metadata,
    schema: Schema,
    cluster_by: Sequence[str],
    properties: Mapping[str, str] | None,
) -> Table:
    check_folder_is_free(metadata)
    offset_us = 0 if location.unsafe_single_writer else probe_store_of(metadata)
    clock = metadata.clock
    check_clock(clock.now_us(), clock.now_us() + offset_us)
    table_file = create_objects(metadata, schema, cluster_by=cluster_by, properties=properties)
    table = Table(location, metadata, table_file, is_probed=True)
    table.committer.clock_offset_us = offset_us
    return table


def open_at(location: TableLocation) -> Table:
    """Return the handle of the table at a location; raises the errors of `Table.open`."""
    return _open(location, Metadata(location.store(), SYSTEM_CLOCK))


def open_table(
    store: Store, *, branch: str = MAIN, clock: Clock = SYSTEM_CLOCK, probe_store: bool = True
) -> Table:
    """Return the handle of the table in `store`; raises the errors of `Table.open`."""
    location = TableLocation(path=store.url, branch=branch, unsafe_single_writer=not probe_store)
    return _open(location, Metadata(store, clock))


def _open(location: TableLocation, metadata: Metadata) -> Table:
    with entering(metadata, location.branch):
        table_file = metadata.load_table_file()
        ref = load_branch(metadata, location.branch)
        is_probed = location.unsafe_single_writer
        table = Table(location, metadata, table_file, branch=ref, is_probed=is_probed)
        try:
            head = table.head()
        except NotFoundError:
            if location.branch != MAIN:  # its snapshots are lost: the table is not new
                raise
            # `_fuse.json` without version 0: the process that created the table died in between.
            finish_create(metadata, table_file)
            head = table.head()
    if table_file.origins and head.version == 0:
        # A commit now would take the slot of the commit that brings the clone's content.
        raise NotFoundError(
            "a clone was begun here and is not finished; call clone again with the same arguments, "
            "which finishes it, or remove the folder",
            path=metadata.store.url,
            clone_id=table_file.table_id,
        )
    return table
