"""One unit in place of commits that have expired: the net difference of two snapshots.

It is the same for whoever asks, as rows: which blocks it is made of may depend on which commits
between the two still stand, and equal rows on both sides are left out where it is read.
"""

from __future__ import annotations

from fuse_stream.errors import (
    CorruptObjectError,
    NotFoundError,
    SnapshotExpiredError,
    StreamIdentityError,
)
from fuse_stream.format.layout import block_key
from fuse_stream.format.records import Snapshot
from fuse_stream.format.source_offset import Offset
from fuse_stream.objects.metadata import Metadata, Stored
from fuse_stream.reading.feed import Change, feed_blocks
from fuse_stream.reading.history import load_version
from fuse_stream.reading.offsets import Unit
from fuse_stream.reading.views import Views
from fuse_stream.reading.way import NetDiff, Retained, diff_net


def net_unit(metadata: Metadata, head: Stored, start: Offset, version: int, views: Views) -> Unit:
    """Return what turns the snapshot that a stream has read into that of `version`.

    Raises:
        SnapshotExpiredError: the old snapshot is gone, or blocks that were removed since.
        StreamIdentityError: another snapshot stands in its place.
        SchemaChangedError: one of the two has columns that the stream has not.
    """
    new = load_version(metadata, head, version).snapshot
    change = Change(
        version=new.version,
        timestamp_us=new.timestamp_us,
        operation=new.operation,
        net=_diff(metadata, head, start, new),
    )
    return Unit(
        version=new.version,
        snapshot_id=new.snapshot_id,
        timestamp_us=new.timestamp_us,
        before=start.version,
        is_whole=True,
        is_net=bool(change.diff.removed and change.diff.inserted),
        floor=head.snapshot.floor,
        blocks=tuple(feed_blocks(change, views)),
    )


def _diff(metadata: Metadata, head: Stored, start: Offset, new: Snapshot) -> NetDiff:
    try:
        old = metadata.load_snapshot(start.branch_id, start.version).snapshot
        if old.snapshot_id != start.snapshot_id:
            raise StreamIdentityError(
                "another snapshot stands under the version that the stream has reached; start a "
                "new checkpoint",
                version=start.version,
                checkpoint=start.snapshot_id,
                here=old.snapshot_id,
            )
        retained = Retained(branch_id=start.branch_id, floor=start.version)
        net = diff_net(metadata, old, new, retained)
        for block in net.blocks.removed:  # vacuum may have taken them
            metadata.store.open_input(block_key(block.id, block.origin)).close()
    except (NotFoundError, SnapshotExpiredError, CorruptObjectError) as error:
        raise SnapshotExpiredError(
            "commits that the stream has yet to read have expired, and the snapshot that it has "
            "read is gone as well, so there is nothing to compare with; start a new checkpoint, "
            "from the table as it is or from the first version there is",
            version=start.version,
            first=head.snapshot.floor,
        ) from error
    return net
