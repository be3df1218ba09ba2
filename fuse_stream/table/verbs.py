"""The verbs that touch more than one table handle: they open what they are told, and act."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypedDict, Unpack, overload

from fuse_stream.check.audit import AuditReport, audit_stores
from fuse_stream.commit.committer import may_replan
from fuse_stream.commit.ledger import DEFAULT_APPLICATION
from fuse_stream.errors import InvalidInputError
from fuse_stream.format.layout import MAIN
from fuse_stream.format.names import Version
from fuse_stream.objects.slots import Metadata
from fuse_stream.reading.history import Timestamp
from fuse_stream.recovery.rebuild_checkpoint import RebuiltCheckpoint
from fuse_stream.recovery.rebuild_checkpoint import rebuild_checkpoint as rebuild
from fuse_stream.recovery.rewind import PipelineRewind, Rewind, rewind_tables
from fuse_stream.recovery.target import Goal, Progress
from fuse_stream.refs.clone import Clone
from fuse_stream.refs.clone import clone as clone_branch
from fuse_stream.storage.base import Store
from fuse_stream.storage.open import open_store
from fuse_stream.table.handle import open_at, open_table
from fuse_stream.table.location import TableLocation

Path = str | os.PathLike[str]


class _RewindOptions(TypedDict, total=False):
    branch: str
    version: Version | None
    timestamp: Timestamp | None
    after_batch: int | None
    app_id: str | None
    checkpoints: Mapping[Any, Path] | None
    retire: Collection[str]
    dry_run: bool
    on_conflict: str
    message: str
    author: str
    storage_options: Mapping[str, object] | None
    checkpoint_options: Mapping[str, object] | None
    origins: Sequence[Path]
    unsafe_single_writer: bool
    progress: Progress | None


@overload
def rewind(path: Path, **options: Unpack[_RewindOptions]) -> Rewind: ...
@overload
def rewind(
    path: list[Any] | tuple[Path, ...], **options: Unpack[_RewindOptions]
) -> PipelineRewind: ...
def rewind(
    path: Path | list[Any] | tuple[Path, ...],
    *,
    branch: str = MAIN,
    version: Version | None = None,
    timestamp: Timestamp | None = None,
    after_batch: int | None = None,
    app_id: str | None = None,
    checkpoints: Mapping[Any, Path] | None = None,
    retire: Collection[str] = (),
    dry_run: bool = False,
    on_conflict: str = "error",
    message: str = "",
    author: str = "",
    storage_options: Mapping[str, object] | None = None,
    checkpoint_options: Mapping[str, object] | None = None,
    origins: Sequence[Path] = (),
    unsafe_single_writer: bool = False,
    progress: Progress | None = None,
) -> Rewind | PipelineRewind:
    """Set a table, its ledger and the checkpoints of its streams back to a good point.

    One new snapshot has the content of an earlier one; history is kept, and a rewind can be
    rewound. A query that has committed since then goes on from a fork of its checkpoint, a copy
    that is cut back and has a query id of its own; the old query is refused from then on. Stop the
    queries first. A call that died half way is finished by the same call.

    A query that writes several tables has one checkpoint: name all of these tables, as a list. The
    goal is that of the first one; the others go back to the same batch of the query. They are
    published one by one, and no query starts on the forks before all of them are.

    Args:
        path: the table: a local path or an fsspec URL; or a list of those that a query writes.
        branch: which branch of it, or of each of them.
        version: the snapshot to go back to, or
        timestamp: the last snapshot at or before this time, or
        after_batch: the last snapshot before any writer of `app_id` stood past this batch. Its
            forks keep the batches up to this one, empty ones too.
        app_id: the application of `after_batch`; "default" if not given.
        checkpoints: by the path of a checkpoint, the new folder of its fork.
        retire: applications (all their writers) that are given up knowingly: their queries are
            refused from then on, and numbered batches after the target are to be delivered again.
            "*" is every application that has no fork here, also one that wrote in commits which
            have expired or are lost.
        dry_run: only tell what would be done, and what stands in the way.
        on_conflict: "error" if another writer commits in between, or "replan".
        message: what the log shows.
        author: what the log shows; never taken from the system.
        storage_options: fsspec's, for a remote table.
        checkpoint_options: fsspec's, for remote checkpoints; the table's if not given.
        origins: where the tables are whose blocks may be read, if some of `path` are clones.
        unsafe_single_writer: allow stores that cannot tell two writers apart.
        progress: called with what is being done, how much of it is done, and how much there is.

    Returns:
        What was done, or would be; for a list of tables one record a table, in its `tables`.

    Raises:
        StreamIdentityError: an application would go back, and neither a fork of its checkpoint nor
            its name in `retire` was given; or a checkpoint is not the one that wrote. Nothing was
            written.
        NotFoundError: there is no such version or checkpoint, or Spark has cleaned up the batch.
        SnapshotExpiredError: the version has expired; or commits after it have, and may have
            brought rows of queries that nothing names any more.
        CorruptObjectError: a snapshot after it is lost.
        AlreadyExistsError: the folder of a fork is not empty.
        InvalidInputError: the point is not named, not on this branch, or is the head.
        ConflictError: another writer committed in between; nothing was, and the forks cannot start.
        CommitStateUnknownError: the store failed; the same call finds out.
    """
    paths = _paths(path)
    location = TableLocation.of(
        paths[0],
        branch=branch,
        storage_options=storage_options,
        origins=origins,
        unsafe_single_writer=unsafe_single_writer,
    )
    if app_id is not None and after_batch is None:
        raise InvalidInputError("app_id says whose batch after_batch is; give that", app_id=app_id)
    committers = [open_at(location.at(each)).committer for each in paths]
    _check_batch(after_batch)
    named = Goal(version=version, timestamp=timestamp, after_batch=after_batch)
    goal = named if app_id is None else dataclasses.replace(named, application=app_id)
    pairs = _stores(
        checkpoints or {},
        checkpoint_options or storage_options,
        unsafe_single_writer=unsafe_single_writer,
    )
    tables = [committer.metadata.store.url for committer in committers]
    for _, fork in pairs:
        if any(_is_below(fork.url, table) for table in tables):
            raise InvalidInputError(
                "the fork of a checkpoint needs a folder outside the tables", folder=fork.url
            )
    done = rewind_tables(
        committers,
        goal,
        checkpoints=pairs,
        retire=retire,
        dry_run=dry_run,
        replan=may_replan(on_conflict),
        message=message,
        author=author,
        progress=progress,
    )
    return done.alone() if isinstance(path, str | os.PathLike) else done


def _check_batch(after_batch: object) -> None:
    match after_batch:
        case None:
            return
        case int() if not isinstance(after_batch, bool) and after_batch >= 0:
            return
        case _:
            raise InvalidInputError(
                "after_batch is the last batch to keep, a whole number from 0; to go back to "
                "before the first batch, name a version that lacks it (fuse-stream log)",
                after_batch=after_batch,
            )


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
    """Make a new table with the content and the ledger of one snapshot; no block is copied.

    The clone goes its own way from there on. It reads the origin's blocks where they are, and only
    for those who allow it: `Table.open(new_path, origins=[path])`. The origin keeps a pin, so that
    the blocks stay; `Table.unpin` removes it once the clone is gone. A call that died half way is
    finished by the same call.

    Args:
        path: the table: a local path or an fsspec URL.
        new_path: where the clone is to be.
        branch: which branch of the table.
        version: the snapshot; the branch's head if not given.
        storage_options: fsspec's, for a remote table.
        new_storage_options: fsspec's, for a remote clone; the table's if not given.
        origins: where the tables are whose blocks the table names, if it is a clone itself: they
            keep a pin as well.
        unsafe_single_writer: allow stores that cannot tell two writers apart.

    Raises:
        AlreadyExistsError: there is a table at `new_path`.
        NotFoundError: there is no such version; or an origin no longer keeps what it kept for the
            table.
        SnapshotExpiredError: the version has expired.
        InvalidInputError: the table is a clone, and an origin is not named; or one folder lies
            within the other.
        UnsupportedStorageError: the clone's store cannot hold a table, or the origin's no pin.
        CommitStateUnknownError: the store failed; the same call finds out.
    """
    location = TableLocation.of(
        path,
        branch=branch,
        storage_options=storage_options,
        origins=origins,
        unsafe_single_writer=unsafe_single_writer,
    )
    store = location.store()
    place = open_store(
        new_path,
        storage_options=new_storage_options or storage_options,
        unsafe_single_writer=unsafe_single_writer,
    )
    old, new = store.url, place.url
    if old == new or _is_below(old, new) or _is_below(new, old):
        raise InvalidInputError(
            "a clone needs a folder of its own, beside the table's", path=old, new_path=new
        )
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
    """Make the lost checkpoint of a query again, from the source offsets in the ledger.

    For queries without state, and sources whose offsets stand for themselves: Kafka and fuse; the
    file and rate sources if their folders in the old checkpoint's `sources` survive. The query runs
    the last batch that a table holds again, which that table takes for the replay that it is: the
    driver may have died before another table of the query had the batch.

    Args:
        path: the table: a local path or an fsspec URL; or a list of all that the query writes, of
            which each holds what it has got.
        new_checkpoint: a new folder.
        app_id: whose query it was; in the first of several tables.
        version: whose ledger tells, of the first table; the newest if not given.
        branch: which branch of the table.
        survivors: what is left of the old checkpoint.
        storage_options: fsspec's, for a remote table.
        checkpoint_options: fsspec's, for remote checkpoints; the table's if not given.
        origins: where the tables are whose blocks may be read, if some of `path` are clones.
        unsafe_single_writer: allow stores that cannot tell two writers apart.

    Returns:
        The id of the query, and what its sink needs as `adopt`, if anything.

    Raises:
        InvalidInputError: the offsets do not tell enough, or the query keeps state; says what to do
            instead.
        StreamIdentityError: the table stands past the batch.
        NotFoundError: nobody has committed under this application.
        AlreadyExistsError: the new folder is not empty.
    """
    paths = _paths(path)
    location = TableLocation.of(
        paths[0],
        branch=branch,
        storage_options=storage_options,
        origins=origins,
        unsafe_single_writer=unsafe_single_writer,
    )
    first, *others = (open_at(location.at(each)).committer for each in paths)
    options = checkpoint_options or storage_options
    old = None if survivors is None else open_store(survivors, storage_options=options)
    new = open_store(
        new_checkpoint, storage_options=options, unsafe_single_writer=unsafe_single_writer
    )
    return rebuild(
        first,
        new,
        application=app_id,
        version=version,
        survivors=old,
        others=others,
    )


def audit(
    path: Path,
    checkpoint: Path,
    *,
    app_id: str = DEFAULT_APPLICATION,
    writer: str | None = None,
    branch: str = MAIN,
    storage_options: Mapping[str, object] | None = None,
    checkpoint_options: Mapping[str, object] | None = None,
    origins: Sequence[Path] = (),
) -> AuditReport:
    """Compare a table with the checkpoint of a query that writes to it; changes neither.

    Empty batches write no snapshot. One before the table's last batch is proven to be empty; one
    after it is taken for empty only if its sources had not moved. So a filter that drops all rows
    of the newest batches makes them look missing; `commit_empty=True` removes the doubt.
    A table that was restored from an older copy, and written to since, has such a gap as well.

    Args:
        path: of the table.
        checkpoint: the query's `checkpointLocation`.
        app_id: as given to the sink.
        writer: one of the query's sinks; all of them if not given.
        branch: that the query writes to.
        storage_options: fsspec's, for a remote table.
        checkpoint_options: the same for a remote checkpoint.
        origins: where the tables are whose blocks may be read, if the table is a clone.

    Raises:
        NotFoundError: there is no table, branch or checkpoint.
        CorruptObjectError: one of them is damaged; `fsck` tells what is lost of a table.
        InvalidInputError: the checkpoint is a fork that was not finished.
    """
    location = TableLocation.of(
        path, branch=branch, storage_options=storage_options, origins=origins
    )
    return audit_stores(
        location.store(),
        open_store(checkpoint, storage_options=checkpoint_options),
        app_id=app_id,
        writer=writer,
        branch=branch,
    )


def _paths(path: Path | list[Any] | tuple[Path, ...]) -> Sequence[Path]:
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    if not paths:
        raise InvalidInputError("name the table, or the tables that the query writes", path=paths)
    return paths


def _stores(
    checkpoints: Mapping[Any, Path],
    options: Mapping[str, object] | None,
    *,
    unsafe_single_writer: bool,
) -> list[tuple[Store, Store]]:
    def opened(place: Path) -> Store:
        return open_store(place, storage_options=options, unsafe_single_writer=unsafe_single_writer)

    pairs = [(opened(old), opened(new)) for old, new in checkpoints.items()]
    urls = [store.url for pair in pairs for store in pair]
    if len(set(urls)) != len(urls) or any(_is_below(a, b) for a in urls for b in urls):
        raise InvalidInputError(
            "each fork of a checkpoint needs a folder of its own, beside the others", folders=urls
        )
    return pairs


def _is_below(folder: str, other: str) -> bool:
    return folder.startswith(f"{other.rstrip('/')}/")
