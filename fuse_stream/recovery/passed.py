"""The named consumers that have read past the point to which a branch is set back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fuse_stream.commit.publish import Committer
from fuse_stream.errors import NotFoundError, SnapshotExpiredError
from fuse_stream.objects.leases import is_live, iter_leases
from fuse_stream.objects.metadata import Stored
from fuse_stream.reading.way import Retained, diff_net


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedConsumer:
    """A named consumer that has read what a rewind takes out of the table, or puts back."""

    consumer: str
    version: int
    """The last that it has read."""
    is_live: bool
    """Whether its lease still lives: if not, it may have been given up."""
    deleted_rows: int
    """What it is sent to undo what it has read, at the most: equal rows on both sides are not."""
    inserted_rows: int


def find_passed(committer: Committer, head: Stored, target: Stored) -> tuple[PassedConsumer, ...]:
    """Return the consumers of the head's branch that have read past `target`, by name."""
    return tuple(_iter_passed(committer, head, target))


def _iter_passed(committer: Committer, head: Stored, target: Stored) -> Iterator[PassedConsumer]:
    metadata, line = committer.metadata, head.snapshot.branch_id
    now_us = metadata.clock.now_us() + committer.clock_offset_us  # for people to see
    for standing in iter_leases(metadata):
        lease = standing.lease
        if lease.branch_id != line or lease.version > head.snapshot.version:
            continue
        try:
            read = metadata.load_snapshot(line, lease.version).snapshot
        except (NotFoundError, SnapshotExpiredError):
            continue  # it can only start anew
        # The target may stand on another line, where numbers mean nothing here.
        if read.timestamp_us <= target.snapshot.timestamp_us:
            continue
        floor = min(head.snapshot.floor, lease.version)
        retained = Retained(branch_id=line, floor=floor)
        blocks = diff_net(metadata, read, target.snapshot, retained).blocks
        yield PassedConsumer(
            consumer=lease.consumer,
            version=lease.version,
            is_live=is_live(lease, standing.written_us, now_us),
            deleted_rows=sum(block.row_count for block in blocks.removed),
            inserted_rows=sum(block.row_count for block in blocks.inserted),
        )
