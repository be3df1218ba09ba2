"""List and release a table's consumers: the position of each, and when its lease lapses."""

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
from fuse_stream.format.one_line import one_line
from fuse_stream.format.records import Operation
from fuse_stream.format.refs import BranchRef, Lease
from fuse_stream.format.times import iso_time
from fuse_stream.objects.leases import (
    StoredLease,
    delete_lease,
    find_lease,
    iter_leases,
    load_lease,
    load_store_time_us,
)
from fuse_stream.objects.refs import iter_branch_heads
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.reading.history import History


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerState:
    """A named consumer, as its lease describes it."""

    consumer: str
    branch: str | None
    """The branch's name; None if the branch was deleted."""
    version: int
    """The last version that the consumer has read, or that it is reading as a whole table."""
    versions_behind: int | None
    """The number of versions from there to the head; None if the branch was deleted."""
    rows_to_read: int | None
    """The number of deleted and inserted rows of the feed after `version`, without a filter. None
    if the snapshots between were deleted. While the consumer is in the middle of its first read or
    of one commit, an upper bound."""
    behind_us: int | None
    """The time from that version to the head; None if the snapshot was deleted."""
    is_live: bool
    """True if the lease still keeps what the consumer has yet to read."""
    lapses_us: int
    """When the lease lapses unless it is renewed, by the store's time."""
    owner_id: str
    """The id of the reader that wrote the lease last."""

    __repr__ = one_line("consumer branch version versions_behind rows_to_read is_live lapses_us")


def list_consumers(metadata: Metadata, now_us: int) -> tuple[ConsumerState, ...]:
    """Return the consumers of all branches, by name.

    Args:
        metadata: the table's.
        now_us: the store's time; an estimate will do, since it only decides `is_live`.

    Raises:
        CorruptObjectError: a lease cannot be read.
    """
    leases = list(iter_leases(metadata))
    if not leases:
        return ()
    read = {standing.lease.branch_id for standing in leases}
    branches = {
        branch.branch_id: (branch, head) for branch, head in iter_branch_heads(metadata, read)
    }
    return tuple(
        _state(metadata, standing, branches.get(standing.lease.branch_id), now_us)
        for standing in leases
    )


def release(metadata: Metadata, consumer: str, *, force: bool = False) -> None:
    """Delete a consumer's lease; arguments and errors of `Table.release`.

    A damaged lease is deleted as well: its reader cannot use it either. With `force`, so is a lease
    that seems to be written by a newer release.
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
                "this consumer's lease is live: a restarted stream can still continue from it. "
                "Wait until the lease lapses, or release it with force if no stream will continue, "
                "or only a fork, from an earlier position",
                consumer=consumer,
                position=standing.lease.version,
                lapses=iso_time(standing.lapses_us),
            )
    delete_lease(metadata, consumer)


def _state(
    metadata: Metadata,
    standing: StoredLease,
    branch: tuple[BranchRef, Stored] | None,
    now_us: int,
) -> ConsumerState:
    lease = standing.lease
    head = None if branch is None else branch[1]
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
        branch=None if branch is None else branch[0].name,
        version=lease.version,
        versions_behind=None if head is None else head.snapshot.version - lease.version,
        rows_to_read=rows,
        behind_us=behind_us,
        is_live=standing.is_live(now_us),
        lapses_us=standing.lapses_us,
        owner_id=lease.owner_id,
    )


def _rows(history: History, lease: Lease) -> Iterator[int]:
    """Yield the row counts of what is to be read; appends are counted without loading segments."""
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
            yield sum(block.live_rows for block in diff.removed + diff.inserted)
        before = snapshot
