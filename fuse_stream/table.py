"""The handle on one branch of a table. It delegates: decisions and I/O live below."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from fuse_stream.clock import SYSTEM_CLOCK, Clock
from fuse_stream.commit.ledger import DEFAULT_APPLICATION, Batch
from fuse_stream.commit.plan import Intent, Staged, create_snapshot
from fuse_stream.commit.publish import Committer, Outcome
from fuse_stream.commit.stage import ReaderRows, Rows, TableRows, stage_rows
from fuse_stream.errors import AlreadyExistsError, FuseError, InvalidInputError, NotFoundError
from fuse_stream.format.arrow import arrow_schema, columns_of_arrow
from fuse_stream.format.codec import encode_snapshot
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.layout import MAIN, probe_key, slot_key
from fuse_stream.format.properties import check_properties, grace_us
from fuse_stream.format.records import (
    Block,
    LedgerEntry,
    LedgerKey,
    Operation,
    SegmentRef,
    Snapshot,
    TableFile,
)
from fuse_stream.format.schema import Schema
from fuse_stream.objects.metadata import Metadata, Stored
from fuse_stream.read.diff import diff_snapshots
from fuse_stream.read.feed import iter_changes, read_changes
from fuse_stream.read.history import Timestamp, Version, find_snapshot, iter_log, version_number
from fuse_stream.read.netdiff import read_diff
from fuse_stream.read.scan import prune, read_blocks, select
from fuse_stream.storage.base import Store
from fuse_stream.storage.open import open_store
from fuse_stream.storage.probe import probe

Data = pa.Table | pa.RecordBatchReader


class Table:
    """One branch of a table.

    Readers see the newest snapshot at each call. A handle may be kept: it notices when its table
    is moved, removed or replaced. It is not for several threads at once; open one for each.
    """

    def __init__(
        self, metadata: Metadata, table_file: TableFile, *, branch_id: str = MAIN, probed: bool
    ) -> None:
        """Use `create` or `open`."""
        self.metadata = metadata
        self.table_id = table_file.table_id
        self.committer = Committer(metadata, branch_id, grace_us=table_file.grace_us)
        self._probed = probed

    def __repr__(self) -> str:
        return f"Table({self.metadata.store.url!r}, branch={self.committer.branch_id!r})"

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
            InvalidInputError: the schema or a property cannot stand.
            UnsupportedTypeError: a column's type is not one of the format's.
            UnsupportedStorageError: the store cannot create an object exactly once.
        """
        store = open_store(
            path, storage_options=storage_options, unsafe_single_writer=unsafe_single_writer
        )
        return create_table(
            store,
            first_schema(columns_of_arrow(schema)),
            cluster_by=cluster_by,
            properties=properties,
            probe_store=not unsafe_single_writer,
        )

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        branch: str = MAIN,
        storage_options: Mapping[str, object] | None = None,
        unsafe_single_writer: bool = False,
    ) -> Table:
        """Open the table at `path`.

        Raises:
            NotFoundError: there is no table, or no such branch.
            UnsupportedFormatError: a newer release wrote it.
        """
        store = open_store(
            path, storage_options=storage_options, unsafe_single_writer=unsafe_single_writer
        )
        return open_table(store, branch=branch, probe_store=not unsafe_single_writer)

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
        return self.commit_rows(intent, _rows(data), merge_schema=merge_schema).stored.snapshot

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
        """Replace all rows by those of `data`, as one snapshot; arguments and errors of `append`."""
        batch = _api_batch(app_id, batch_id, writer)
        intent = Intent(operation=Operation.OVERWRITE, batch=batch, message=message, author=author)
        return self.commit_rows(intent, _rows(data), merge_schema=merge_schema).stored.snapshot

    def commit_rows(self, intent: Intent, rows: Rows, *, merge_schema: bool = False) -> Outcome:
        """Commit `rows` as `intent` says; the sink's way in."""
        self.prepare_to_write()
        return self.committer.commit(
            intent,
            lambda head, before: stage_rows(
                self.metadata, head, before, rows, merge_schema=merge_schema
            ),
        )

    def prepare_to_write(self) -> None:
        """Try the store out, once for this handle.

        Raises:
            UnsupportedStorageError: it cannot create an object exactly once.
        """
        if not self._probed:
            self.committer.clock_offset_us = _probe(self.metadata)
            self._probed = True

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
        if on_conflict not in {"error", "replan"}:
            raise InvalidInputError('on_conflict is "error" or "replan"', on_conflict=on_conflict)
        self.prepare_to_write()

        def stage(head: Stored, _before: Staged | None) -> Staged:
            return Staged(schema=head.snapshot.schema)

        self.committer.head()
        outcome = self.committer.commit(intent, stage, replan=on_conflict == "replan")
        return outcome.stored.snapshot

    # ---- reading

    def scan(
        self,
        *,
        version: Version | None = None,
        timestamp: Timestamp | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        time_zone: str = "UTC",
    ) -> pa.RecordBatchReader:
        """Return the rows of a snapshot, read as they are asked for.

        Args:
            version: a version; the newest if neither is given.
            timestamp: the last snapshot at or before this time.
            columns: the wanted columns, in this order; all if not given.
            where: a SQL predicate with Spark's semantics.
            time_zone: in which the predicate's times without a zone are meant.

        Raises:
            InvalidInputError: an unknown column, a broken predicate, or both kinds of version.
            NotFoundError: no such version.
            SnapshotExpiredError: the version has expired.
        """
        snapshot = self._find(version, timestamp).snapshot
        selection = select(snapshot.schema, columns=columns, where=where, time_zone=time_zone)
        blocks = prune(self.metadata, snapshot, selection)
        return read_blocks(self.metadata.store, blocks, selection)

    def to_arrow(
        self,
        *,
        version: Version | None = None,
        timestamp: Timestamp | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        time_zone: str = "UTC",
    ) -> pa.Table:
        """Return what `scan` reads, as one table in memory."""
        return self.scan(
            version=version, timestamp=timestamp, columns=columns, where=where, time_zone=time_zone
        ).read_all()

    def changes(
        self,
        starting_version: Version,
        ending_version: Version | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        time_zone: str = "UTC",
    ) -> pa.RecordBatchReader:
        """Return what every commit from one version to another did, both inclusive.

        The columns are the table's (of the ending version) and `_change_type` ("insert" or
        "delete"), `_commit_version` (int64), `_commit_timestamp` (UTC microseconds).

        Raises:
            InvalidInputError: the end lies before the start.
            NotFoundError: a version lies past the head.
            SnapshotExpiredError: the first version has expired.
        """
        head = self.committer.head()
        start = version_number(starting_version)
        end = self._find(ending_version, None) if ending_version is not None else head
        if start > end.snapshot.version:
            raise InvalidInputError(
                "the first version lies past the last",
                starting_version=start,
                ending_version=end.snapshot.version,
            )
        selection = select(end.snapshot.schema, columns=columns, where=where, time_zone=time_zone)
        changes = iter_changes(self.metadata, head, start, end.snapshot.version)
        return read_changes(self.metadata.store, changes, selection)

    def diff(
        self, a: Version, b: Version, *, columns: Sequence[str] | None = None
    ) -> pa.RecordBatchReader:
        """Return the rows that turn version `a` into version `b`, net.

        The columns are the table's (of version `b`) and `_change_type` ("insert" or "delete").
        A row that stands in both is not there, however it was rewritten.
        """
        old, new = self._find(a, None).snapshot, self._find(b, None).snapshot
        selection = select(new.schema, columns=columns)
        return read_diff(
            self.metadata.store, diff_snapshots(self.metadata, old, new), selection
        )

    def head(self) -> Snapshot:
        """Return the newest snapshot."""
        return self.committer.head().snapshot

    def snapshot(
        self, version: Version | None = None, *, timestamp: Timestamp | None = None
    ) -> Snapshot:
        """Return one snapshot; the newest if none is named."""
        return self._find(version, timestamp).snapshot

    def log(self, limit: int | None = None) -> Iterator[Snapshot]:
        """Yield snapshots, newest first, down to the first that has not expired."""
        for count, stored in enumerate(iter_log(self.metadata, self.committer.head())):
            if limit is not None and count >= limit:
                return
            yield stored.snapshot

    def segments(self, version: Version | None = None) -> tuple[SegmentRef, ...]:
        """Return the segments of a snapshot, oldest first."""
        return self._find(version, None).snapshot.segments

    def blocks(self, version: Version | None = None) -> tuple[Block, ...]:
        """Return the blocks of a snapshot, oldest segment first."""
        snapshot = self._find(version, None).snapshot
        return tuple(prune(self.metadata, snapshot, select(snapshot.schema)))

    def ledger(self) -> Mapping[LedgerKey, LedgerEntry]:
        """Return who committed what last, by (application, writer)."""
        return self.head().ledger.entries

    @property
    def schema(self) -> pa.Schema:
        """The newest snapshot's columns."""
        return arrow_schema(self.head().schema)

    @property
    def properties(self) -> Mapping[str, str]:
        """The newest snapshot's properties."""
        return self.head().properties

    def _find(self, version: Version | None, timestamp: Timestamp | None) -> Stored:
        return find_snapshot(
            self.metadata, self.committer.head(), version=version, timestamp=timestamp
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
    checked = check_properties(properties or {}, creating=True)
    metadata = Metadata(store, clock)
    clock_offset_us = _probe(metadata) if probe_store else 0
    table_file = TableFile(
        table_id=clock.new_id(),
        created_us=clock.now_us(),
        snapshot_id=clock.new_id(),
        schema=schema,
        cluster_key=cluster_key(schema, cluster_by),
        properties=checked,
        grace_us=grace_us(checked),
    )
    try:
        metadata.store_table_file(table_file)
    except FuseError as error:
        # The table file itself says whose it is; this call's own put may have landed all the same.
        standing = _table_file_if_any(metadata)
        if standing is None:
            raise
        if standing.table_id != table_file.table_id:
            raise AlreadyExistsError(
                "there is a table here already; open it, or use another path", path=store.url
            ) from error
    _finish_create(metadata, table_file)
    table = Table(metadata, table_file, probed=True)
    table.committer.clock_offset_us = clock_offset_us
    return table


def open_table(
    store: Store, *, branch: str = MAIN, clock: Clock = SYSTEM_CLOCK, probe_store: bool = True
) -> Table:
    """Open the table in `store`; errors of `Table.open`."""
    metadata = Metadata(store, clock)
    table_file = metadata.load_table_file()
    if branch != MAIN:
        raise NotFoundError("there is no such branch", branch=branch, path=store.url)
    table = Table(metadata, table_file, probed=not probe_store)
    try:
        table.committer.head()
    except NotFoundError:
        # `_fuse.json` without version 0: whoever created the table died in between.
        _finish_create(metadata, table_file)
        table.committer.head()
    return table


def cluster_key(schema: Schema, names: Sequence[str]) -> tuple[int, ...]:
    """Return the ids of the columns of a cluster key.

    Raises:
        InvalidInputError: a column is not there, stands twice, or has no order.
    """
    if isinstance(names, str):
        raise InvalidInputError("cluster_by is a list of names", cluster_by=names)
    known = {column.name: column for column in schema.columns}
    if len(set(names)) != len(names):
        raise InvalidInputError("a column stands twice in cluster_by", cluster_by=list(names))
    for name in names:
        if name not in known or known[name].children:
            raise InvalidInputError(
                "cluster_by names columns of the table that are not nested",
                column=name,
                columns=list(known),
            )
    return tuple(known[name].id for name in names)


def _finish_create(metadata: Metadata, table_file: TableFile) -> None:
    """Put version 0, which `_fuse.json` determines: whoever comes by may do it."""
    data = encode_snapshot(create_snapshot(table_file))
    try:
        metadata.store.put_if_absent(slot_key(MAIN, 0), data)
    except AlreadyExistsError:
        return
    except FuseError:
        metadata.reload(MAIN, 0)  # it may have landed; the error stands if it has not


def _table_file_if_any(metadata: Metadata) -> TableFile | None:
    try:
        return metadata.load_table_file()
    except NotFoundError:
        return None


def _probe(metadata: Metadata) -> int:
    clock = metadata.clock
    key = probe_key(clock.new_id())
    return probe(metadata.store, key=key, now_us=clock.now_us).clock_offset_us


def _rows(data: Data) -> Rows:
    if isinstance(data, pa.Table):
        return TableRows(data)
    if isinstance(data, pa.RecordBatch):
        return TableRows(pa.Table.from_batches([data]))
    if isinstance(data, pa.RecordBatchReader):
        return ReaderRows(data)
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
    if isinstance(batch_id, bool) or not isinstance(batch_id, int) or batch_id < 0:
        raise InvalidInputError("a batch_id is a number from 0", batch_id=batch_id)
    return Batch(application=app_id or DEFAULT_APPLICATION, writer=writer, batch_id=batch_id)
