"""Reading one branch of a table: rows, changes, history, and what it is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa

from fuse_stream.commit.committer import Committer
from fuse_stream.errors import InvalidInputError
from fuse_stream.feed.changes import Change, iter_changes
from fuse_stream.feed.diff import BlockDiff, diff_net
from fuse_stream.feed.tasks import read_changes, read_diff
from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.names import Version
from fuse_stream.format.records import (
    Block,
    LedgerEntry,
    LedgerKey,
    SegmentRef,
    Snapshot,
)
from fuse_stream.format.refs import BranchRef, TagRef
from fuse_stream.objects.refs import iter_branches, iter_tags
from fuse_stream.on_demand import OnDemand
from fuse_stream.reading.history import History, Timestamp
from fuse_stream.reading.scan import prune, scan_snapshot, select

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
        snapshot = self.snapshot(version, timestamp=timestamp)
        return scan_snapshot(
            self.metadata, snapshot, columns=columns, where=where, time_zone=time_zone
        )

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
        history = history_of(self)
        first, last = history.get_span(starting_version, ending_version, branch=self.branch)
        return read_changes(history, first, last, columns=columns, where=where, time_zone=time_zone)

    def block_changes(
        self, starting_version: Version, ending_version: Version | None = None
    ) -> Iterator[Change]:
        """Yield what every commit from one version to another did to the blocks; see `changes`."""
        history = history_of(self)
        first, last = history.get_span(starting_version, ending_version, branch=self.branch)
        return iter_changes(history, first.version, last.version)

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
        history = history_of(self)
        old, new = (history.get_snapshot(version).snapshot for version in (a, b))
        return read_diff(history, old, new, columns=columns)

    def block_diff(self, a: Version, b: Version) -> BlockDiff:
        """Return the blocks that turn version `a` into version `b`, as `diff` reads them.

        Where both sides have blocks, rows may stand on both: `diff` leaves those out.
        """
        history = history_of(self)
        old, new = (history.get_snapshot(version).snapshot for version in (a, b))
        return diff_net(history, old, new).blocks

    def head(self) -> Snapshot:
        """Return the newest snapshot."""
        return self.committer.head().snapshot

    def snapshot(
        self, version: Version | None = None, *, timestamp: Timestamp | None = None
    ) -> Snapshot:
        """Return one snapshot; the newest if none is named."""
        return history_of(self).get_snapshot(version, timestamp=timestamp).snapshot

    def log(self, limit: int | None = None) -> Iterator[Snapshot]:
        """Yield snapshots, newest first, down to the first that has not expired."""
        if limit is not None and (type(limit) is not int or limit < 0):
            raise InvalidInputError("limit is a number from 0", limit=limit)
        for stored in islice(history_of(self).iter_back(), limit):
            yield stored.snapshot

    def segments(self, version: Version | None = None) -> tuple[SegmentRef, ...]:
        """Return the segments of a snapshot, oldest first."""
        return self.snapshot(version).segments

    def blocks(self, version: Version | None = None) -> tuple[Block, ...]:
        """Return the blocks of a snapshot, oldest segment first."""
        snapshot = self.snapshot(version)
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


def history_of(table: BranchReader) -> History:
    """Return the history of a handle's branch, from its newest snapshot on."""
    return History(table.metadata, table.committer.head())
