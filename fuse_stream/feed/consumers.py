"""Who follows a table under a name: how far each has come, and how long its lease still lives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fuse_stream.errors import (
    ConsumerBusyError,
    CorruptObjectError,
    NotFoundError,
    SnapshotExpiredError,
    UnsupportedFormatError,
)
from fuse_stream.feed.diff import diff_commit
from fuse_stream.format.names import check_name
from fuse_stream.format.records import Operation
from fuse_stream.format.refs import Lease
from fuse_stream.objects.leases import (
    StoredLease,
    delete_lease,
    find_lease,
    iter_leases,
    load_lease,
    load_store_time_us,
)
from fuse_stream.objects.refs import iter_branches
from fuse_stream.objects.slots import Metadata
from fuse_stream.reading.history import History, iso_time


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerState:
    """A named consumer, as its lease describes it."""

    consumer: str
    branch: str | None
    """By name; None if the branch was deleted."""
    version: int
    """The last that it has read, or the one whose table it is reading."""
    versions_behind: int | None
    """From there to the head; None, as below, where the snapshots between are gone."""
    rows_to_read: int | None
    """Deleted and inserted ones that the feed holds from there on, without a filter; at the most,
    if the first read or a huge commit is under way."""
    behind_us: int | None
    """From the time of that version to the time of the head."""
    is_live: bool
    """Whether the lease still keeps what is to be read."""
    lapses_us: int
    """When it does no longer, by the store's time, unless it is renewed."""
    owner_id: str
    """Of the reader that wrote it last."""


def list_consumers(metadata: Metadata, now_us: int) -> tuple[ConsumerState, ...]:
    """Return the consumers of all branches, by name.

    Args:
        metadata: the table's.
        now_us: the store's time, as well as it is known: it only decides what is shown as alive.

    Raises:
        CorruptObjectError: a lease cannot be read.
    """
    leases = list(iter_leases(metadata))
    if not leases:
        return ()
    names = {branch.branch_id: branch.name for branch in iter_branches(metadata)}
    return tuple(
        _state(metadata, standing, names.get(standing.lease.branch_id), now_us)
        for standing in leases
    )


def release(metadata: Metadata, consumer: str, *, force: bool = False) -> None:
    """Delete a consumer's lease, so that it keeps nothing any more.

    A damaged lease is deleted as well: its reader cannot use it either. With `force`, so is one
    that looks as if a newer release wrote it.

    Args:
        metadata: the table's.
        consumer: its name.
        force: even if the lease lives. A reader that still runs writes it anew.

    Raises:
        NotFoundError: there is no such consumer.
        ConsumerBusyError: its lease lives.
        UnsupportedFormatError: a newer release wrote it, or it is damaged.
        InvalidInputError: this is no name.
    """
    try:
        load_lease(metadata, check_name(consumer))
    except CorruptObjectError:
        delete_lease(metadata, consumer)
        return
    except UnsupportedFormatError:
        if not force:
            raise
    if not force:
        now_us = load_store_time_us(metadata)
        standing = find_lease(metadata, consumer)
        if standing is not None and standing.is_live(now_us):
            raise ConsumerBusyError(
                "this consumer's lease lives: a reader that starts again can go on from it. Wait "
                "until it lapses, or release it with force if nobody is to go on",
                consumer=consumer,
                position=standing.lease.version,
                lapses=iso_time(standing.lapses_us),
            )
    delete_lease(metadata, consumer)


def _state(
    metadata: Metadata, standing: StoredLease, branch: str | None, now_us: int
) -> ConsumerState:
    lease = standing.lease
    head = None if branch is None else metadata.load_head(lease.branch_id)
    behind_us = rows = None
    if head is not None:
        try:
            read = metadata.load_snapshot(lease.branch_id, lease.version).snapshot
            behind_us = head.snapshot.timestamp_us - read.timestamp_us
            rows = sum(_rows(History(metadata, head), lease))
        except (NotFoundError, SnapshotExpiredError, CorruptObjectError):
            rows = None  # a lapsed lease keeps nothing
    return ConsumerState(
        consumer=lease.consumer,
        branch=branch,
        version=lease.version,
        versions_behind=None if head is None else head.snapshot.version - lease.version,
        rows_to_read=rows,
        behind_us=behind_us,
        is_live=standing.is_live(now_us),
        lapses_us=standing.lapses_us,
        owner_id=lease.owner_id,
    )


def _rows(history: History, lease: Lease) -> Iterator[int]:
    """Yield the rows of what is to be read; appended ones are counted without opening segments."""
    metadata = history.metadata
    before = metadata.load_snapshot(lease.branch_id, lease.version).snapshot
    if lease.resumes and lease.resumes[0].index < 0:
        yield before.summary.row_count  # the first read
    kept = history.with_floor(lease.version)
    for version in range(lease.version + 1, history.head.snapshot.version + 1):
        snapshot = metadata.load_snapshot(lease.branch_id, version).snapshot
        if snapshot.operation is Operation.APPEND:
            yield snapshot.summary.row_count - before.summary.row_count
        else:
            diff = diff_commit(kept, snapshot).blocks
            yield sum(block.row_count for block in diff.removed + diff.inserted)
        before = snapshot
