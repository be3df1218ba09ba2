"""The units of a branch's feed, made from its snapshots and kept while they are in use.

One unit in place of commits that have expired: the net difference of two snapshots.

It is the same for whoever asks, as rows: which blocks it is made of may depend on which commits
between the two still stand, and equal rows on both sides are left out where it is read.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuse_stream.errors import (
    CorruptObjectError,
    FuseError,
    InvalidInputError,
    NotFoundError,
    SchemaChangedError,
    SnapshotExpiredError,
    StreamIdentityError,
)
from fuse_stream.feed.changes import (
    Change,
    change_of,
    feed_blocks,
    table_change,
)
from fuse_stream.feed.diff import NET_OPERATIONS, NetDiff, diff_net
from fuse_stream.feed.offsets import FeedBlock, Unit, versions_ahead
from fuse_stream.feed.views import Request, Views
from fuse_stream.format.layout import block_key
from fuse_stream.format.records import KEEPS_ROWS, Operation, Snapshot
from fuse_stream.format.source_offset import Offset
from fuse_stream.reading.history import History
from fuse_stream.reading.scan import Selection, prune, select


class Units:
    """The units ahead of an offset. Those of one trigger are kept: Spark asks for them twice."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._kept: dict[tuple[int, bool], Unit] = {}
        self._selection: Selection | None = None

    def iter_ahead(
        self, start: Offset, last: int, history: History, views: Views
    ) -> Iterator[Unit]:
        """Yield the units from `start` to the end of commit `last`, made when they are asked for.

        Raises:
            InvalidInputError: a commit removes rows, and the feed is of appended ones.
            SchemaChangedError: a commit has columns that the stream has not.
            SnapshotExpiredError: a commit, or what it removed, has expired.
        """
        if views.selection != self._selection:
            self._kept.clear()  # its predicate may rule out other blocks
            self._selection = views.selection
        table_version, commits = versions_ahead(start, last)
        if table_version is not None:
            yield self._unit(table_version, history, views, is_table=True)
        for version in commits:
            yield self._unit(version, history, views, is_table=False)

    def forget_before(self, version: int) -> None:
        """Drop what is kept of the units of earlier versions."""
        for key in [key for key in self._kept if key[0] < version]:
            del self._kept[key]

    def _unit(self, version: int, history: History, views: Views, *, is_table: bool) -> Unit:
        known = self._kept.get((version, is_table))
        if known is not None:
            return known
        snapshot = history.load(version).snapshot
        change = unit_change(history, snapshot, is_table=is_table)
        unit = Unit(
            version=version,
            snapshot_id=snapshot.snapshot_id,
            timestamp_us=snapshot.timestamp_us,
            before=version - 1,
            is_table=is_table,
            is_whole=not is_table and change.operation in NET_OPERATIONS,
            is_net=change.is_net,
            floor=history.floor,
            blocks=self._feed_blocks(change, views),
        )
        self._kept[version, is_table] = unit
        return unit

    def _feed_blocks(self, change: Change, views: Views) -> tuple[FeedBlock, ...]:
        if self._request.feed == "append" and change.diff.removed:
            if self._request.skip_change_commits:
                return ()
            raise InvalidInputError(
                "a commit removes rows, which feed=append cannot tell; read with feed=changes, or "
                "set skipChangeCommits=true to pass over such commits",
                version=change.version,
                operation=str(change.operation),
            )
        return tuple(feed_blocks(change, views))


def unit_change(history: History, snapshot: Snapshot, *, is_table: bool) -> Change:
    """Return a unit's blocks with their statistics: what a commit did, or the whole table.

    Raises:
        SnapshotExpiredError: what the commit removed stood in a version below the floor.
    """
    if is_table:
        return table_change(snapshot, prune(history.metadata, snapshot, select(snapshot.schema)))
    may_remove = snapshot.operation not in KEEPS_ROWS | {Operation.APPEND}
    if may_remove and snapshot.version == history.floor:
        raise expired(snapshot.version, history.floor + 1)
    return change_of(history, snapshot)


def until_refused(units: Iterator[Unit], refused: list[FuseError]) -> Iterator[Unit]:
    """Yield the units before the first that the feed refuses, and note why it does."""
    try:
        yield from units
    except (InvalidInputError, SchemaChangedError) as error:
        refused.append(error)


def expired(version: int, first: int) -> SnapshotExpiredError:
    """Return the error that says that a stream came too late for `version`."""
    return SnapshotExpiredError(
        "commits that the stream has yet to read have expired; start a new checkpoint, from the "
        "table as it is or from the first version there is",
        version=version,
        first=first,
    )


def net_unit(history: History, start: Offset, version: int, views: Views) -> Unit:
    """Return what turns the snapshot that a stream has read into that of `version`.

    Raises:
        SnapshotExpiredError: the old snapshot is gone, or blocks that were removed since.
        StreamIdentityError: another snapshot stands in its place.
        SchemaChangedError: one of the two has columns that the stream has not.
    """
    new = history.load(version).snapshot
    change = Change(
        version=new.version,
        timestamp_us=new.timestamp_us,
        operation=new.operation,
        net=_diff(history, start, new),
    )
    return Unit(
        version=new.version,
        snapshot_id=new.snapshot_id,
        timestamp_us=new.timestamp_us,
        before=start.version,
        is_whole=True,
        is_net=bool(change.diff.removed and change.diff.inserted),
        floor=history.floor,
        blocks=tuple(feed_blocks(change, views)),
    )


def _diff(history: History, start: Offset, new: Snapshot) -> NetDiff:
    metadata = history.metadata
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
        net = diff_net(history.with_floor(start.version), old, new)
        for block in net.blocks.removed:  # vacuum may have taken them
            metadata.store.open_input(block_key(block.id, block.origin)).close()
    except (NotFoundError, SnapshotExpiredError, CorruptObjectError) as error:
        raise SnapshotExpiredError(
            "commits that the stream has yet to read have expired, and the snapshot that it has "
            "read is gone as well, so there is nothing to compare with; start a new checkpoint, "
            "from the table as it is or from the first version there is",
            version=start.version,
            first=history.floor,
        ) from error
    return net
