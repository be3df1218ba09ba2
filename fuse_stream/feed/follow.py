"""Follow one branch: from an offset to the next one, and to the blocks between the two.

This is what a stream's driver does, without Spark. Rules:
- A stream reads along the line of its last version, which is the head's unless an option names an
  earlier one: what was undone before the stream came to it is never delivered. A rewind or publish
  delivers the difference between the version before it on the line and itself.
- A commit that was delivered in part is delivered to its end, also if it was undone meanwhile.
- What is between two offsets is the same in every process: it follows from immutable snapshots
  alone, along the line of the second one. Only the end of the next batch depends on the head and
  the limits.
- A stream has one schema. It reads every commit with that commit's own schema and converts the
  rows to the stream's columns, with nulls and widening. If the stream's columns cannot hold a
  commit's rows, or the table has other columns from a commit on, the stream delivers everything
  before that commit and then raises `SchemaChangedError`.
- An offset names its table and its snapshot, and both are checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from fuse_stream.clock import SYSTEM_CLOCK, Clock
from fuse_stream.errors import (
    FuseError,
    InvalidInputError,
    NotFoundError,
    SchemaChangedError,
    SnapshotExpiredError,
    StreamIdentityError,
)
from fuse_stream.feed.changes import Unit, Units, expired
from fuse_stream.feed.offsets import Batch, plan_end, plan_slices, steps_ahead
from fuse_stream.feed.views import LATEST, NO_LIMITS, Request, SchemaTracker, select_columns
from fuse_stream.format.layout import MAIN
from fuse_stream.format.schema import Column
from fuse_stream.format.source_offset import FIRST_READ, FROM_NOW, RESYNC, Offset
from fuse_stream.format.times import timestamp_us
from fuse_stream.objects.entry import entering
from fuse_stream.objects.refs import find_branch, load_branch
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.reading.history import History, load_history
from fuse_stream.reading.line import Line, Run, find_publish, load_line, was_published
from fuse_stream.reading.scan import Selection
from fuse_stream.storage.base import Store


class Follower:
    """Follows a branch for one query. Caches what it has read, so a trigger makes few calls."""

    def __init__(
        self,
        store: Store,
        request: Request,
        columns: tuple[Column, ...] | None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Open the branch.

        `columns` are the stream's, by name and type; their ids are not used. None where the
        stream's schema does not depend on the table's.

        Raises:
            NotFoundError: there is no table, or no such branch.
            UnsupportedFormatError: a newer release wrote the table.
        """
        self.metadata = Metadata(store, clock)
        self._request = request
        self._table_file = self.metadata.load_table_file()
        self.branch = load_branch(self.metadata, request.branch)
        self.kept_from: int | None = None
        """The first version that a lease keeps, even if it is below the floor."""
        self._head: Stored | None = None
        self._is_pinned = False
        self._columns = columns
        self._tracker = SchemaTracker(request, columns)
        self._units = Units(request)
        self._end = request.ending_version
        self._trusted: Offset | None = None

    def first_offset(self) -> Offset:
        """Return the offset where a stream without a checkpoint starts; the same in every call.

        Raises:
            NotFoundError: the start is past the head.
            SnapshotExpiredError: a commit from the start on has expired; names the first one left.
        """
        history, request = self._load_history(), self._request
        if request.starting_version == LATEST:
            return self._undecided(FROM_NOW)
        if request.after_version is not None:
            read = request.after_version
            if read + 1 < history.floor:
                raise expired(read + 1, history.floor)
            return self._offset(read, history.load(read).snapshot.snapshot_id)
        if request.starting_version is not None:
            start = request.starting_version
        elif request.starting_timestamp is not None:
            start = self._first_version_from(request.starting_timestamp, history)
        else:
            return self._undecided(FIRST_READ)
        if start > history.head.snapshot.version:
            raise NotFoundError(
                "the stream should start past the head; wait for that version, or start at "
                '"latest" to get what comes next',
                starting_version=start,
                head=history.head.snapshot.version,
            )
        if start > (last := self._last(history)):
            raise InvalidInputError(
                "the stream ends before it starts", starting_version=start, ending_version=last
            )
        if start < history.floor:
            raise expired(start, history.floor)
        snapshot = history.load(start).snapshot
        if start == 0:  # version 0 holds no row, so its offset is also the start
            return self._offset(0, snapshot.snapshot_id)
        return self._offset(start - 1, snapshot.prev_snapshot_id or "")

    def next_offset(self, asked: Offset, *, is_limited: bool) -> Offset:
        """Return the end of the batch that starts at `asked`; `asked` if there is nothing new.

        Raises:
            SchemaChangedError: the next commit has another schema.
            InvalidInputError: the next commit removes rows, and the feed is `append`.
            StreamIdentityError: another table, or another history, is at this path now.
            SnapshotExpiredError: the next commit has expired.
        """
        history = self._load_history()
        start = self._own(asked.settled, history)
        if start.branch_id != self.branch.branch_id:
            return self._next_from_published(start, history, is_limited=is_limited)
        self._check(start, history)
        last = self._last(history)
        if start.is_undecided and start.index == FROM_NOW:
            newest = history.head.snapshot
            return self._offset(newest.version, newest.snapshot_id)
        if not start.is_undecided and start.index == 0 and start.version >= last:
            return asked
        line = self._load_line(history, start, last)
        reach = self._tracker.get_reach(history, line, since=_delivered(start))
        refused: list[FuseError] = []
        ahead = steps_ahead(start, line, min(last, reach.last_version))
        units = self._units.iter_ahead(*ahead, history, reach.views)
        limits = self._request.limits if is_limited else NO_LIMITS
        end = plan_end(start, _until_error(units, refused), limits)
        if end == start and refused:
            raise refused[0]
        if end == start:
            raise self._tracker.changed_after(reach, history)
        self._trusted = end
        return end

    def resync_offset(self, asked: Offset) -> Offset:
        """Return the end of the batch that is the net difference from `asked` to the head.

        Raises:
            SnapshotExpiredError: the snapshot at `asked` is gone, or blocks removed since then.
            SchemaChangedError: no retained version has the stream's schema.
        """
        history = self._load_history()
        last = self._last(history)
        line = self._load_line(history, asked, last)
        reach = self._tracker.get_reach(history, line, since=_delivered(asked))
        version = min(last, reach.last_version)
        snapshot = history.load(version).snapshot
        end = self._offset(version, snapshot.snapshot_id, RESYNC)
        self._plan_batch(asked, end, history)
        return end

    def head_offset(self) -> Offset | None:
        """Return the last offset that the stream can reach, by the cached head; None if unknown."""
        if self._head is None:
            return None
        try:
            history = self._history(self._head)
            last = history.load(self._last(history)).snapshot
        except (NotFoundError, SnapshotExpiredError):
            return None
        return self._offset(last.version, last.snapshot_id)

    def pin_head(self) -> None:
        """Make the present head the end of the stream."""
        self._load_history()
        self._is_pinned = True

    def read_between(self, start: Offset, end: Offset) -> Batch:
        """Return the batch between two offsets; raises what `next_offset` raises."""
        if end.version > self.seen_head().snapshot.version:
            self._load_history()
        if end.branch_id != self.branch.branch_id and end.table_id == self._table_file.table_id:
            return self._on_branch(end).read_between(start, end)
        return self._plan_batch(start, end, self._history(self.seen_head()))

    def forget_before(self, end: Offset) -> None:
        """Drop the cached units that were delivered before `end`."""
        self._units.forget_before(end.version)

    # ---- for a consumer, which holds a lease

    def seen_head(self) -> Stored:
        """Return the cached head; read it from the store only the first time."""
        if self._head is None:
            self._load_history()
        assert self._head is not None
        return self._head

    def check_history(self, offset: Offset) -> None:
        """Raise if `offset` is of another table, or, above the floor, of another history."""
        history = self._load_history()
        settled = self._own(offset.settled, history)
        if settled.branch_id != self.branch.branch_id:
            self._find_publish(settled, history)
        elif settled.version >= history.floor:
            self._check(settled, history)
        else:
            self._check_table(settled)

    def lose_before(self, floor: int) -> None:
        """Treat the versions below `floor` as expired, also if the head is pinned."""
        self.kept_from = None
        if self._head is not None:
            self._head = History(self.metadata, self._head).with_floor(floor).head

    # ---- parts

    def _plan_batch(self, start: Offset, end: Offset, history: History) -> Batch:
        is_net, end = end.index == RESYNC, end.settled
        start = read_from = self._own(start.settled, history)
        if not is_net:
            self._check(start, history)
        elif start.branch_id == self.branch.branch_id:
            self._check_table(start)  # `load_net` checks its snapshot
        else:
            self._find_publish(start, history)
            start = replace(start, version=end.version - 1)
        self._check(end, history)
        line = self._load_line(history, start, end.version)
        now = self._load_line(history, start, max(end.version, self._last(history)))
        since = _delivered(start)
        reach = self._tracker.get_reach(history, now, line, since=since, end=end.version)
        if end.version > reach.last_version:
            raise self._tracker.changed_after(reach, history)
        units: Iterable[Unit]
        if is_net:
            units = [self._units.get_net(read_from, end.version, history, reach.views)]
        else:
            ahead = steps_ahead(start, line, end.version)
            units = self._units.iter_ahead(*ahead, history, reach.views)
        return Batch(selection=reach.selection, units=tuple(plan_slices(start, end, units)))

    # ---- offsets on a branch that was published to this one

    def _own(self, offset: Offset, history: History) -> Offset:
        """Return an offset on this branch if the branch that it names shares its version.

        That branch is one from which this one was forked, was published to it, or has no commit of
        its own. From any other one the offset is returned as it is: the query is to read that one.
        """
        own = self.branch.branch_id
        if offset.branch_id == own or offset.table_id != self._table_file.table_id:
            return offset
        if not (offset.is_undecided or history.shares(offset)):
            return offset
        forked_from = {fork.branch_id for fork in self.metadata.forks_of(own)}
        is_here = (
            offset.branch_id in forked_from
            or was_published(history, offset)
            or self._has_all_of(offset.branch_id, history)
        )
        return replace(offset, branch_id=own) if is_here else offset

    def _has_all_of(self, branch_id: str, history: History) -> bool:
        """True if another branch has no commit that this one lacks: nothing is left to publish."""
        if find_branch(self.metadata, branch_id) is None:
            return False
        return history.contains(self.metadata.load_head(branch_id).snapshot)

    def _next_from_published(self, start: Offset, history: History, *, is_limited: bool) -> Offset:
        """Return the end of the batch from an offset on a branch that was published to this one.

        What the stream is within is finished on that branch. Then the batch is the net difference
        to the publish.
        """
        version = self._find_publish(start, history)
        if start.index != 0:
            return self._on_branch(start).next_offset(start, is_limited=is_limited)
        snapshot = history.load(version).snapshot
        end = self._offset(version, snapshot.snapshot_id, RESYNC)
        self._plan_batch(start, end, history)
        return end

    def _find_publish(self, offset: Offset, history: History) -> int:
        """Return the first version on the line that has the content of an offset's branch.

        Raises:
            StreamIdentityError: the branch, up to this offset, was not published to this one.
        """
        version = None
        if offset.table_id == self._table_file.table_id:
            version = find_publish(history, history.head, offset)
        if version is not None:
            return version
        raise self._other_table(offset)

    def _on_branch(self, offset: Offset) -> Follower:
        """Return what follows the branch of an offset, up to its version."""
        branch = find_branch(self.metadata, offset.branch_id)
        if branch is None:
            raise StreamIdentityError(
                "the stream has read a part of a commit on a branch that was deleted since it was "
                "published: start a new checkpoint",
                branch=offset.branch_id,
                version=offset.version,
            )
        request = replace(self._request, branch=branch.name, ending_version=offset.version)
        return Follower(self.metadata.store, request, self._columns, clock=self.metadata.clock)

    def _load_line(self, history: History, start: Offset, last: int) -> Line:
        """Return the line of version `last`, after the version that `start` has reached."""
        reached = max(-1 if start.is_undecided else start.version, history.floor - 1)
        if self._request.is_history:
            return Line(start=reached, runs=(Run(reached, reached + 1, last),))
        return load_line(history, reached, history.load(last))

    # ---- the head

    def _load_history(self) -> History:
        if self._head is None or not self._is_pinned:
            self._check_branch()
            self._head = self.metadata.load_head(self.branch.branch_id, self._head)
        return self._history(self._head)

    def _history(self, head: Stored) -> History:
        """Return the history up to `head`, with the versions that a lease keeps below the floor."""
        history = History(self.metadata, head)
        if self.kept_from is None or history.floor <= self.kept_from:
            return history
        return history.with_floor(self.kept_from)

    def _check_branch(self) -> None:
        name = self._request.branch
        if name != MAIN and load_branch(self.metadata, name).branch_id != self.branch.branch_id:
            raise StreamIdentityError(
                "the branch was deleted while the stream ran, and another branch has its name now; "
                "start a new checkpoint to follow the new branch",
                branch=name,
            )

    def _last(self, history: History) -> int:
        """Return the last version that the stream may deliver now."""
        request, newest = self._request, history.head.snapshot
        if self._end is None and request.ending_timestamp is not None:
            end_us = timestamp_us(request.ending_timestamp)
            if end_us < newest.timestamp_us:  # otherwise a later commit may be before that time
                self._end = history.get_at_or_before(end_us).snapshot.version
        return newest.version if self._end is None else min(self._end, newest.version)

    def _first_version_from(self, timestamp: str, history: History) -> int:
        start_us, head = timestamp_us(timestamp), history.head
        if start_us > head.snapshot.timestamp_us:
            raise NotFoundError(
                "the stream should start past the head, which is older than that time; wait, or "
                'start at the version "latest" to get what comes next',
                starting_timestamp=timestamp,
                head=head.snapshot.version,
            )
        found = history.get_first_from(start_us).snapshot
        if found.version == history.floor > 0 and found.timestamp_us > start_us:
            # Commits between that time and the floor may have expired: they must not be skipped.
            raise expired(found.version - 1, found.version)
        return found.version

    # ---- offsets

    def _offset(self, version: int, snapshot_id: str, index: int = 0) -> Offset:
        return Offset(
            table_id=self._table_file.table_id,
            branch_id=self.branch.branch_id,
            version=version,
            snapshot_id=snapshot_id,
            index=index,
        )

    def _undecided(self, index: int) -> Offset:
        return self._offset(0, self._table_file.snapshot_id, index)

    def _check(self, offset: Offset, history: History) -> None:
        """Raise unless `offset` was made on this history."""
        self._check_table(offset)
        if offset == self._trusted or offset.is_undecided:
            return
        newest, floor = history.head.snapshot.version, history.floor
        if offset.version > newest:
            raise StreamIdentityError(
                "the table ends before the version that the stream has reached: it was replaced by "
                "an older copy; put the newer table back, or start a new checkpoint",
                version=offset.version,
                head=newest,
            )
        if (next_version := offset.version + (offset.index == 0)) < floor:
            raise expired(next_version, floor)
        if offset.version >= floor:
            found = history.load(offset.version).snapshot.snapshot_id
        else:
            after = history.load(offset.version + 1).snapshot
            found = after.prev_snapshot_id or ""
        if found != offset.snapshot_id:
            raise StreamIdentityError(
                "another snapshot has the version that the stream has reached: the table was "
                "restored from a copy and written to since; start a new checkpoint",
                version=offset.version,
                checkpoint=offset.snapshot_id,
                here=found,
            )

    def _check_table(self, offset: Offset) -> None:
        here = self._table_file.table_id, self.branch.branch_id
        if (offset.table_id, offset.branch_id) != here:
            raise self._other_table(offset)

    def _other_table(self, offset: Offset) -> StreamIdentityError:
        is_own = offset.table_id == self._table_file.table_id
        branch = find_branch(self.metadata, offset.branch_id) if is_own else None
        if branch is not None:
            return StreamIdentityError(
                "the checkpoint reads another branch of this table, which was not published to "
                "this one: name it (branch), publish it, or start a new checkpoint",
                path=self.metadata.store.url,
                checkpoint=branch.name,
                here=self.branch.name,
            )
        return StreamIdentityError(
            "the checkpoint was made on another table or branch than the one at this path; put "
            "that table back, or name that branch, or publish it to this one; or start a new "
            "checkpoint",
            path=self.metadata.store.url,
            checkpoint=(offset.table_id, offset.branch_id),
            here=(self._table_file.table_id, self.branch.branch_id),
        )


def _delivered(start: Offset) -> int | None:
    """Return the version up to which a stream has delivered rows; None if it has delivered none."""
    return None if start.is_undecided else start.version


def _until_error(units: Iterator[Unit], refused: list[FuseError]) -> Iterator[Unit]:
    """Yield the units before the first one that raises; append its error to `refused`."""
    try:
        yield from units
    except (InvalidInputError, SchemaChangedError) as error:
        refused.append(error)


def head_selection(store: Store, request: Request, *, clock: Clock = SYSTEM_CLOCK) -> Selection:
    """Return the selection with which a stream that starts now reads the table.

    Raises:
        NotFoundError: there is no table, or no such branch.
        InvalidInputError: a column is unknown, or the predicate is invalid.
    """
    metadata = Metadata(store, clock)
    with entering(metadata, request.branch):
        metadata.load_table_file()
        head = load_history(metadata, request.branch).head
    return select_columns(request, head.snapshot.schema)
