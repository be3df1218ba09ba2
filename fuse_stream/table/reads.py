"""Reading one branch of a table: rows, changes, history, and what it is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from fuse_stream.commit.committer import Committer
from fuse_stream.errors import InvalidInputError
from fuse_stream.feed.changes import Change, iter_changes, read_changes, read_diff
from fuse_stream.feed.diff import BlockDiff, NetDiff, diff_net, retained_by
from fuse_stream.feed.views import Request, Views
from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.names import Version, parse_version
from fuse_stream.format.records import (
    Block,
    LedgerEntry,
    LedgerKey,
    SegmentRef,
    Snapshot,
)
from fuse_stream.format.refs import BranchRef, TagRef
from fuse_stream.objects.refs import iter_branches, iter_tags
from fuse_stream.objects.slots import Stored
from fuse_stream.on_demand import OnDemand
from fuse_stream.reading.history import (
    Timestamp,
    find_on_line,
    find_snapshot,
    iter_log,
    load_version,
    while_they_stand,
)
from fuse_stream.reading.scan import prune, read_blocks, select

if TYPE_CHECKING:
    from fuse_stream.feed import consumers
    from fuse_stream.feed.consumers import ConsumerState
else:
    consumers = OnDemand("fuse_stream.feed.consumers")


class BranchReader:
    """The reading half of a table's handle. Every call sees the newest snapshot."""

    def __init__(self, committer: Committer) -> None:
        self.committer = committer
        self.metadata = committer.metadata

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
            version: a number, a tag, 7 hex digits or more of a snapshot's id, or one of these on
                another branch, "branch@12"; "branch@" is its head. The newest if not given.
            timestamp: the last snapshot at or before this time.
            columns: the wanted columns, in this order; all if not given.
            where: a SQL predicate with Spark's semantics.
            time_zone: in which the predicate's times without a zone are meant.

        Raises:
            InvalidInputError: an unknown column, a broken predicate, or both kinds of version.
            NotFoundError: no such version, tag or branch; the start of an id is looked for among
                the newest 1,000.
            SnapshotExpiredError: the version has expired, perhaps while its rows were read: who
                reads for longer than the table's grace makes a tag first.
        """
        snapshot = self._find(version, timestamp).snapshot
        selection = select(snapshot.schema, columns=columns, where=where, time_zone=time_zone)
        blocks = prune(self.metadata, snapshot, selection)
        rows = read_blocks(self.metadata.store, blocks, selection)
        return self._read_while_it_stands(rows, snapshot)

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
        "delete"), `_commit_version` (int64), `_commit_timestamp` (UTC microseconds). Each commit
        is read with its own schema, its columns matched by name.

        Raises:
            SchemaChangedError: while it is read, a commit has columns that the ending version has
                not, and `columns` does not say that they are to be left out.
            InvalidInputError: the end lies before the start, or a version is on another branch.
            NotFoundError: a version lies past the head.
            SnapshotExpiredError: the first version has expired.
        """
        first, last, changes = self._changes(starting_version, ending_version)
        selection = select(last.schema, columns=columns, where=where, time_zone=time_zone)
        names = None if columns is None else tuple(columns)
        views = Views(Request(columns=names, where=where, time_zone=time_zone), selection)
        rows = read_changes(self.metadata.store, changes, views)
        return self._read_while_it_stands(rows, first)

    def block_changes(
        self, starting_version: Version, ending_version: Version | None = None
    ) -> Iterator[Change]:
        """Yield what every commit from one version to another did to the blocks; see `changes`."""
        return self._changes(starting_version, ending_version)[2]

    def diff(
        self, a: Version, b: Version, *, columns: Sequence[str] | None = None
    ) -> pa.RecordBatchReader:
        """Return the rows that turn version `a` into version `b`, net.

        The two may be on different branches. The columns are those of `b` (of `a` if it has more)
        and `_change_type` ("insert" or "delete"). A row that stands in both is not there, however
        it was rewritten.

        Raises:
            InvalidInputError: an unknown column, or one whose types on two branches do not fit.
            NotFoundError: no such version, tag or branch.
            SnapshotExpiredError: a version has expired.
        """
        old, new, net = self._net(a, b)
        change = Change(
            version=new.version,
            timestamp_us=new.timestamp_us,
            operation=new.operation,
            net=net,
        )
        places = ((snapshot.branch_id, snapshot.version) for snapshot in (old, new))
        with while_they_stand(self.metadata, *places):
            return read_diff(self.metadata.store, change, columns=columns)

    def block_diff(self, a: Version, b: Version) -> BlockDiff:
        """Return the blocks that turn version `a` into version `b`, as `diff` reads them.

        Where both sides have blocks, rows may stand on both: `diff` leaves those out.
        """
        return self._net(a, b)[2].blocks

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
        if limit is not None and (type(limit) is not int or limit < 0):
            raise InvalidInputError("limit is a number from 0", limit=limit)
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

    @property
    def branch(self) -> str:
        """The name of the branch."""
        return self.committer.branch.name

    def branches(self) -> tuple[BranchRef, ...]:
        """Return the table's branches, `main` first, then by name."""
        return tuple(iter_branches(self.metadata))

    def tags(self) -> tuple[TagRef, ...]:
        """Return the table's tags by name, without those whose time is up."""
        return tuple(iter_tags(self.metadata))

    def consumers(self) -> tuple[ConsumerState, ...]:
        """Return who follows the table under a name, and how far each has come; all branches.

        Raises:
            CorruptObjectError: a lease cannot be read; `release` removes it.
        """
        now_us = self.metadata.clock.now_us() + self.committer.clock_offset_us
        return consumers.list_consumers(self.metadata, now_us)

    def release(self, consumer: str, *, force: bool = False) -> None:
        """Delete the lease of a consumer that is not to go on; what it kept goes with a vacuum.

        Args:
            consumer: its name, as `consumers` has it.
            force: even if the lease lives. A reader that still runs writes it anew.

        Raises:
            NotFoundError: there is no such consumer.
            ConsumerBusyError: its lease lives.
            InvalidInputError: this is no name.
        """
        consumers.release(self.metadata, consumer, force=force)

    def _version_here(self, version: Version, head: Stored) -> int:
        spelling = parse_version(version)
        if spelling.number is not None and spelling.branch is None:
            return spelling.number
        found = find_on_line(self.metadata, head, version, branch=self.branch)
        return found.snapshot.version

    def _changes(
        self, starting_version: Version, ending_version: Version | None
    ) -> tuple[Snapshot, Snapshot, Iterator[Change]]:
        head = self.committer.head()
        start = self._version_here(starting_version, head)
        end = head
        if ending_version is not None:
            end = load_version(self.metadata, head, self._version_here(ending_version, head))
        last = end.snapshot
        if start > last.version:
            raise InvalidInputError(
                "the first version lies past the last",
                starting_version=start,
                ending_version=last.version,
            )
        first = load_version(self.metadata, head, start).snapshot
        return first, last, iter_changes(self.metadata, head, start, last.version)

    def _read_while_it_stands(
        self, rows: pa.RecordBatchReader, snapshot: Snapshot
    ) -> pa.RecordBatchReader:
        def batches() -> Iterator[pa.RecordBatch]:
            with while_they_stand(self.metadata, (snapshot.branch_id, snapshot.version)):
                yield from rows

        return pa.RecordBatchReader.from_batches(rows.schema, batches())

    def _net(self, a: Version, b: Version) -> tuple[Snapshot, Snapshot, NetDiff]:
        old, new = self._find(a, None).snapshot, self._find(b, None).snapshot
        return old, new, diff_net(self.metadata, old, new, retained_by(self.committer.head()))

    def _find(self, version: Version | None, timestamp: Timestamp | None) -> Stored:
        return find_snapshot(
            self.metadata, self.committer.head(), version=version, timestamp=timestamp
        )
