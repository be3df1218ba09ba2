"""The public functions for several tables, or for a table and a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fuse_stream.check.audit import AuditReport, audit_stores
from fuse_stream.commit.ledger import DEFAULT_APPLICATION, application_of
from fuse_stream.errors import InvalidInputError
from fuse_stream.format.jsonio import is_storable
from fuse_stream.format.layout import MAIN
from fuse_stream.format.names import Version
from fuse_stream.objects.slots import Metadata
from fuse_stream.reading.history import History
from fuse_stream.recovery.rebuild_checkpoint import RebuiltCheckpoint
from fuse_stream.recovery.rebuild_checkpoint import rebuild_checkpoint as rebuild
from fuse_stream.refs.clone import Clone
from fuse_stream.refs.clone import clone as clone_branch
from fuse_stream.storage.open import open_store
from fuse_stream.storage.secrets import StorageOptions
from fuse_stream.table.handle import Table, open_at, open_table
from fuse_stream.table.location import TableLocation
from fuse_stream.table.places import Path, is_below, open_source, paths_of
from fuse_stream.trace.lineage import Lineage, trace_sources


def clone(
    path: Path,
    new_path: Path,
    *,
    branch: str = MAIN,
    version: Version | None = None,
    storage_options: Mapping[str, object] | None = None,
    new_storage_options: Mapping[str, object] | None = None,
    origins: Sequence[Path] = (),
    unsafe_single_writer: bool = False,
) -> Clone:
    """Create a table with the content and the ledger of one snapshot; no block is copied.

    The clone is a table of its own from then on. It reads the origin's blocks where they are, and
    only if the opener allows it: `Table.open(new_path, origins=[path])`. A pin in the origin keeps
    the blocks; `Table.unpin` removes it after the clone was deleted. If the call dies, call it
    again: it finishes the work.

    Args:
        path: the table: a local path or an fsspec URL.
        new_path: the folder of the clone.
        branch: the branch of the table.
        version: the snapshot; the branch's head if not given.
        storage_options: fsspec's, for a remote table.
        new_storage_options: fsspec's, for a remote clone; the table's if not given.
        origins: the locations of the table's own origins, if it is a clone itself: they get a pin
            as well.
        unsafe_single_writer: allow stores that cannot tell two writers apart.

    Raises:
        AlreadyExistsError: there is a table at `new_path`, or the folder holds something else.
        NotFoundError: there is no such version; or an origin no longer has the table's own pin.
        SnapshotExpiredError: the version has expired.
        InvalidInputError: the table is a clone, and `origins` lacks an origin; or one folder is
            within the other.
        UnsupportedStorageError: the clone's store cannot hold a table, or the origin's no pin.
        CommitStateUnknownError: the store failed; call it again to find out.
    """
    storage_options = StorageOptions(storage_options)
    new_storage_options = StorageOptions(new_storage_options)
    location = TableLocation.of(
        path, branch, storage_options, origins, unsafe_single_writer=unsafe_single_writer
    )
    store = location.store()
    place = open_store(
        new_path,
        storage_options=new_storage_options or storage_options,
        unsafe_single_writer=unsafe_single_writer,
    )
    old, new = store.url, place.url
    if old == new or is_below(old, new) or is_below(new, old):
        raise InvalidInputError(
            "a clone needs a folder of its own, beside the table's", path=old, new_path=new
        )
    for url in (old, new, *(origin.url for origin in store.allowed)):
        if not is_storable(url):  # a clone and its origins record each other's paths
            raise InvalidInputError("UTF-8 cannot encode this path; rename the folder", path=url)
    probe = not unsafe_single_writer
    committer = open_table(store, branch=branch, probe_store=probe).committer
    return clone_branch(
        committer,
        Metadata(place, committer.metadata.clock),
        version=version,
        origin_of=store.origin,
        probe_place=probe,
    )


def rebuild_checkpoint(
    path: Path | list[Any] | tuple[Path, ...],
    new_checkpoint: Path,
    *,
    app_id: str = DEFAULT_APPLICATION,
    version: Version | None = None,
    branch: str = MAIN,
    survivors: Path | None = None,
    storage_options: Mapping[str, object] | None = None,
    checkpoint_options: Mapping[str, object] | None = None,
    origins: Sequence[Path] = (),
    unsafe_single_writer: bool = False,
) -> RebuiltCheckpoint:
    """Rebuild the lost checkpoint of a query, from the source offsets in the ledger.

    For queries without state, whose sources need nothing but offsets: Kafka and fuse; the file and
    rate sources if their folders in the old checkpoint's `sources` survive. The query runs the last
    batch of the table again, which is a replay there: the driver may have died before another table
    of the query had the batch.

    Args:
        path: the table: a local path or an fsspec URL; or a list of all tables of the query.
        new_checkpoint: a new folder.
        app_id: the query's application, in the first of several tables.
        version: the snapshot of the first table whose ledger is read; the newest if not given.
        branch: the branch of each table.
        survivors: the folder with what is left of the old checkpoint.
        storage_options: fsspec's, for a remote table.
        checkpoint_options: fsspec's, for remote checkpoints; the table's if not given.
        origins: the locations of the origins whose blocks may be read, if there are clones.
        unsafe_single_writer: allow stores that cannot tell two writers apart.

    Returns:
        The query's id, and the value that its sink needs as `adopt`, if any.

    Raises:
        InvalidInputError: the offsets do not suffice, or the query keeps state; says what to do.
        StreamIdentityError: the table's ledger is past the batch.
        NotFoundError: the application has no ledger entry.
        AlreadyExistsError: the new folder is not empty.
    """
    storage_options = StorageOptions(storage_options)
    checkpoint_options = StorageOptions(checkpoint_options)
    paths = paths_of(path)
    location = TableLocation.of(
        paths[0], branch, storage_options, origins, unsafe_single_writer=unsafe_single_writer
    )
    first, *others = (open_at(location.at(each)).committer for each in paths)
    options = checkpoint_options or storage_options
    old = None if survivors is None else open_store(survivors, storage_options=options)
    new = open_store(
        new_checkpoint, storage_options=options, unsafe_single_writer=unsafe_single_writer
    )
    name = application_of(app_id)
    return rebuild(first, new, application=name, version=version, survivors=old, others=others)


def audit(
    path: Path,
    checkpoint: Path,
    *,
    app_id: str | None = None,
    writer: str | None = None,
    branch: str = MAIN,
    storage_options: Mapping[str, object] | None = None,
    checkpoint_options: Mapping[str, object] | None = None,
    origins: Sequence[Path] = (),
) -> AuditReport:
    """Compare a table with the checkpoint of a query that writes to it, and return a report.

    Empty batches write no snapshot. A batch without a snapshot before the table's last batch was
    empty. After the last batch, it counts as empty only if the offsets of its sources did not move.
    So if a filter drops all rows of the newest batches, they are reported as missing;
    `commit_empty=True` prevents that. A table that was restored from an older copy, and written to
    since, has such a gap as well.

    Args:
        path: the table: a local path or an fsspec URL.
        checkpoint: the query's `checkpointLocation`.
        app_id: as given to the sink; if not given, that under which the query has committed.
        writer: one of the query's sinks; all of them if not given.
        branch: the branch that the query writes to.
        storage_options: fsspec's, for a remote table.
        checkpoint_options: fsspec's, for a remote checkpoint.
        origins: the locations of the origins whose blocks may be read, for a clone.

    Raises:
        NotFoundError: there is no table, branch or checkpoint.
        CorruptObjectError: one of them is damaged; `fsck` reports what a table has lost.
        InvalidInputError: the checkpoint is a fork that was not finished; or its query has
            committed under several applications, and none was named.
    """
    storage_options = StorageOptions(storage_options)
    checkpoint_options = StorageOptions(checkpoint_options)
    location = TableLocation.of(path, branch, storage_options, origins)
    return audit_stores(
        location.store(),
        open_store(checkpoint, storage_options=checkpoint_options),
        app_id=app_id,
        writer=writer,
        branch=branch,
    )


def lineage(
    path: Path,
    *,
    branch: str = MAIN,
    storage_options: Mapping[str, object] | None = None,
    origins: Sequence[Path] = (),
) -> Lineage:
    """Return the tables upstream of a table, and how far its last batches have read them.

    The ledger names the tables that each query has read; their ledgers name those upstream of
    them. Each is opened at the path under which its reader knew it. One that is not there, that
    cannot be read, or whose path is not known is told as such.

    Args:
        path: the table: a local path or an fsspec URL.
        branch: its branch.
        storage_options: fsspec's, for the table, and for those upstream on the same store.
        origins: the locations of the origins whose blocks may be read, if it is a clone.

    Raises:
        NotFoundError: there is no such table or branch.
        CorruptObjectError: the table's own head is damaged.
    """
    storage_options = StorageOptions(storage_options)
    return lineage_of(open_at(TableLocation.of(path, branch, storage_options, origins)))


def lineage_of(table: Table) -> Lineage:
    """Return the tables upstream of a table; as `lineage`."""
    history = History(table.metadata, table.committer.head())
    ref = table.committer.branch
    opened = partial(open_source, table.location)
    return trace_sources(history, path=table.location.path, ref=ref, open_source=opened)
