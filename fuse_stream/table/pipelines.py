"""The public functions for several tables that are made from one another."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypedDict, Unpack, overload

from fuse_stream.commit.committer import Committer, may_replan
from fuse_stream.commit.ledger import application_of
from fuse_stream.errors import InvalidInputError
from fuse_stream.format.layout import MAIN
from fuse_stream.format.names import Version, flag_in, head_in
from fuse_stream.format.refs import BranchRef
from fuse_stream.format.times import Timestamp
from fuse_stream.recovery.branch_off import PipelineBranch, branch_tables
from fuse_stream.recovery.publish import Publication, publish_tables
from fuse_stream.recovery.result import Rewind
from fuse_stream.recovery.rewind import PipelineRewind, rewind_tables
from fuse_stream.recovery.target import Goal, Progress
from fuse_stream.storage.secrets import StorageOptions
from fuse_stream.table.handle import open_at
from fuse_stream.table.location import TableLocation
from fuse_stream.table.places import Path, forks_outside, open_all, open_source, paths_of


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
    """Set a table, its ledger and the checkpoints of its queries back to an earlier version.

    One new snapshot has the content of the earlier one. The history is kept, and a rewind can be
    undone by another rewind. A query that has committed since then continues from a fork of its
    checkpoint: a copy that ends with an earlier batch and has a new query id. The old query is
    retired. Stop the queries first. If the call dies, call it again: it finishes the work.

    A query that writes several tables has one checkpoint: name all of these tables, as a list. Name
    also the tables that are made from them, with the checkpoints of their queries. The target is
    chosen in the first table. Each query goes back to its last batch that has read nothing that
    goes back, and each table to its newest version without a later batch of its queries. The tables
    are published one by one, and no query can start on the forks before all are.

    Args:
        path: the table: a local path or an fsspec URL; or a list of tables, the first one first.
        branch: the branch to rewind, in each table.
        version: the snapshot to go back to, or
        timestamp: the last snapshot at or before this time, or
        after_batch: the last snapshot in which no writer of `app_id` is past this batch. The
            forks keep the batches up to this one, empty ones too.
        app_id: the application of `after_batch`; "default" if not given.
        checkpoints: for each checkpoint, the new folder of its fork.
        retire: applications (all their writers) to retire: their queries are refused from then on;
            batches after the target that a program numbers must be delivered again. "*" is every
            application that has no fork here, also one whose commits have expired or are lost.
        dry_run: return what would be done and what prevents it; write nothing.
        on_conflict: "error" if another writer commits in between, or "replan".
        message: shown by the log.
        author: shown by the log; never taken from the system.
        storage_options: fsspec's, for a remote table.
        checkpoint_options: fsspec's, for remote checkpoints; the table's if not given.
        origins: the locations of the origins whose blocks may be read, if there are clones.
        unsafe_single_writer: allow stores that cannot tell two writers apart.
        progress: called with the current step, how much of it is done, and its total.

    Returns:
        A report; for a list of tables, its `tables` has one record for each.

    Raises:
        StreamIdentityError: an application's ledger entry would go back, and the call names neither
            a fork of its checkpoint nor retires it; or a checkpoint is another query's. Nothing was
            written.
        NotFoundError: there is no such version or checkpoint, or Spark has cleaned up the batch.
        SnapshotExpiredError: the version has expired; or commits after it have, and may have
            brought rows of queries that no object names any more.
        CorruptObjectError: a snapshot after the version is lost.
        AlreadyExistsError: the folder of a fork is not empty.
        InvalidInputError: no target is given, or the target is the head or on another branch.
        ConflictError: another writer committed first; nothing was committed, and no query can start
            on the forks.
        CommitStateUnknownError: the store failed; call it again to find out.
    """
    storage_options = StorageOptions(storage_options)
    checkpoint_options = StorageOptions(checkpoint_options)
    location, committers = open_all(
        path, branch, storage_options, origins, unsafe_single_writer=unsafe_single_writer
    )
    _check_after_batch(after_batch, app_id)
    name = application_of(app_id)
    goal = Goal(version=version, timestamp=timestamp, application=name, after_batch=after_batch)
    pairs = forks_outside(
        committers,
        checkpoints,
        checkpoint_options or storage_options,
        unsafe_single_writer=unsafe_single_writer,
    )
    done = rewind_tables(
        committers,
        goal,
        checkpoints=pairs,
        retire=retire,
        dry_run=flag_in("dry_run", dry_run),
        replan=may_replan(on_conflict),
        message=message,
        author=author,
        progress=progress,
        open_source=partial(open_source, location),
    )
    return done.alone() if isinstance(path, str | os.PathLike) else done


def branch(
    path: Path | list[Any] | tuple[Path, ...],
    name: str,
    *,
    checkpoints: Mapping[Any, Path] | None = None,
    after_batch: int | None = None,
    app_id: str | None = None,
    branch: str = MAIN,
    message: str = "",
    author: str = "",
    storage_options: Mapping[str, object] | None = None,
    checkpoint_options: Mapping[str, object] | None = None,
    origins: Sequence[Path] = (),
    unsafe_single_writer: bool = False,
    progress: Progress | None = None,
) -> PipelineBranch:
    """Give several tables a branch of one name, with forks of the queries that write them.

    The forks write to the branches and read the branches of their sources, so a fix is tried on
    all tables at once. The old queries may run meanwhile, and go on. If the call dies, call it
    again: it finishes the work. `publish` takes the branches over; `Table.delete_branch` drops one.

    Args:
        path: the tables, as a list: first the one that the others are made from.
        name: the name of the new branches.
        checkpoints: for each checkpoint of a query of these tables, the new folder of its fork.
        after_batch: set the branches back to this batch of `app_id`, as `rewind` does; without it,
            each branch has all that its table has.
        app_id: the application of `after_batch`, which writes the first table.
        branch: the branch of each table from which the new one forks off.
        message: shown by the log.
        author: shown by the log; never taken from the system.
        storage_options: fsspec's, for remote tables.
        checkpoint_options: fsspec's, for remote checkpoints; the tables' if not given.
        origins: the locations of the origins whose blocks may be read, if there are clones.
        unsafe_single_writer: allow stores that cannot tell two writers apart.
        progress: called with the current step, how much of it is done, and its total.

    Raises:
        AlreadyExistsError: a table has a branch of this name, with commits of its own, or without
            commits that the table has got since; or the folder of a fork is not empty.
        InvalidInputError: a table was named twice.
        FuseError: what `rewind` raises.
    """
    storage_options = StorageOptions(storage_options)
    checkpoint_options = StorageOptions(checkpoint_options)
    location, committers = open_all(
        path, branch, storage_options, origins, unsafe_single_writer=unsafe_single_writer
    )
    _check_after_batch(after_batch, app_id)
    return branch_tables(
        committers,
        name,
        Goal(
            application=application_of(app_id),
            after_batch=after_batch,
            at_head=after_batch is None,
        ),
        on_branch=partial(_on_branch, location, _by_url(path, committers)),
        checkpoints=forks_outside(
            committers,
            checkpoints,
            checkpoint_options or storage_options,
            unsafe_single_writer=unsafe_single_writer,
        ),
        message=message,
        author=author,
        progress=progress,
    )


def publish(
    path: Path | list[Any] | tuple[Path, ...],
    name: str,
    *,
    expected_head: Mapping[Any, int] | None = None,
    retire: Collection[str] = (),
    branch: str = MAIN,
    on_conflict: str = "error",
    message: str = "",
    author: str = "",
    storage_options: Mapping[str, object] | None = None,
    origins: Sequence[Path] = (),
    unsafe_single_writer: bool = False,
) -> tuple[Publication | None, ...]:
    """Publish a branch of each of several tables, as `Table.publish` does for one.

    Stop the queries first. What prevents it is raised before anything is written. If the call dies,
    call it again: it finishes the work. Then start the queries on the forks without the branch:
    each goes on from where it was on the branches.

    A table whose branch has no commits of its own is published too: it loses the commits that it
    got since the fork point, as the other tables do.

    Args:
        path: the tables, as a list.
        name: the name of the branches to publish.
        expected_head: for each table, as it is named in `path`, the head to replace; needed where
            it has commits since the branch forked off.
        retire: applications to retire, where a branch lacks batches of them.
        branch: the branch of each table that takes the content.
        on_conflict: "error" if another writer commits in between, or "replan".
        message: shown by the log.
        author: shown by the log; never taken from the system.
        storage_options: fsspec's, for remote tables.
        origins: the locations of the origins whose blocks may be read, if there are clones.
        unsafe_single_writer: allow stores that cannot tell two writers apart.

    Returns:
        For each table its publication; None if an earlier call has published it.

    Raises:
        InvalidInputError: there is nothing to publish; `expected_head` names another table; or a
            table was named twice.
        FuseError: what `Table.publish` raises.
    """
    storage_options = StorageOptions(storage_options)
    location, committers = open_all(
        path, branch, storage_options, origins, unsafe_single_writer=unsafe_single_writer
    )
    heads = dict(expected_head or {})
    paths = paths_of(path)
    if unknown := heads.keys() - {*paths}:
        raise InvalidInputError(
            "expected_head names the tables as path does", unknown=sorted(map(str, unknown))
        )
    return publish_tables(
        committers,
        name,
        on_branch=partial(_on_branch, location, _by_url(path, committers)),
        expected_heads=[head_in("expected_head", heads.get(each)) for each in paths],
        retire=retire,
        replan=may_replan(on_conflict),
        message=message,
        author=author,
    )


def _check_after_batch(after_batch: int | None, app_id: str | None) -> None:
    """Raise InvalidInputError unless the two name a batch of an application, or no batch."""
    if app_id is not None and after_batch is None:
        raise InvalidInputError("app_id needs after_batch, the last batch to keep", app_id=app_id)
    if after_batch is not None and (type(after_batch) is not int or after_batch < 0):
        raise InvalidInputError(
            "after_batch is the last batch to keep, a whole number from 0; to go back to "
            "before the first batch, name a version that lacks it (fuse-stream log)",
            after_batch=after_batch,
        )


def _by_url(path: Any, committers: Sequence[Committer]) -> dict[str, Path]:
    urls = (committer.metadata.store.url for committer in committers)
    return dict(zip(urls, paths_of(path), strict=True))


def _on_branch(
    location: TableLocation, paths: Mapping[str, Path], committer: Committer, ref: BranchRef
) -> Committer:
    """Return the committer of another branch of a table."""
    place = location.at(paths[committer.metadata.store.url])
    return open_at(dataclasses.replace(place, branch=ref.name)).committer
