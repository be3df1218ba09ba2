"""The handle's methods that read: rows, changes, snapshots, blocks, ledger and consumers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from sys import maxsize
from typing import TYPE_CHECKING

import pyarrow as pa

from fuse_stream.commit.committer import Committer
from fuse_stream.errors import InvalidInputError
from fuse_stream.feed.changes import Change, iter_changes
from fuse_stream.feed.diff import BlockDiff, diff_net
from fuse_stream.feed.tasks import read_changes, read_diff
from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.names import Version, flag_in
from fuse_stream.format.records import Block, LedgerEntry, LedgerKey, SegmentRef, Snapshot
from fuse_stream.format.refs import BranchRef, TagRef
from fuse_stream.format.side_schemas import shown_side
from fuse_stream.format.times import Timestamp
from fuse_stream.objects.refs import iter_branches, iter_tags
from fuse_stream.objects.snapshot_blocks import iter_blocks
from fuse_stream.on_demand import OnDemand
from fuse_stream.reading.history import History
from fuse_stream.reading.scan import count_snapshot, select, select_matches
from fuse_stream.table.scan import Scan

if TYPE_CHECKING:
    from fuse_stream.feed import consumers
    from fuse_stream.feed.consumers import ConsumerState
else:
    consumers = OnDemand("fuse_stream.feed.consumers")


class BranchReader:
    """The methods of a handle that read its branch. Each call reads the newest snapshot."""

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
        side: str | None = None,
    ) -> Scan:
        """Return the rows of a snapshot, read lazily, as a reader of record batches.

        Args:
            version: a number; a tag, "HEAD", or 7 hex digits or more of a snapshot's id; or a
                number or id on another branch, "branch@12"; "branch@" is its head. The newest if
                not given.
            timestamp: the last snapshot at or before this time.
            columns: the wanted columns, in this order; all if not given.
            where: a SQL predicate with Spark's semantics.
            time_zone: the zone of the predicate's times without a zone.
            side: the rows that the snapshot keeps beside the table's, by their name: "tombstones",
                "quarantine" or "coalesced". It may be empty where rows come from events.

        Raises:
            InvalidInputError: an unknown column, a broken predicate, or a version and a timestamp.
            NotFoundError: no such version, tag or branch; a prefix of an id is searched in the
                newest 1,000 snapshots. Or the snapshot has no such side.
            SnapshotExpiredError: the version has expired, perhaps while its rows were read: for a
                read longer than the table's grace, create a tag first.
        """
        snapshot = self.snapshot(version, timestamp=timestamp)
        if side is not None:
            snapshot = shown_side(snapshot, side)
        selection = select(snapshot.schema, columns=columns, where=where, time_zone=time_zone)
        return Scan(self.metadata, snapshot, selection)

    def to_arrow(
        self,
        *,
        version: Version | None = None,
        timestamp: Timestamp | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        time_zone: str = "UTC",
        side: str | None = None,
    ) -> pa.Table:
        """Return the rows of `scan` as one table in memory."""
        scan = self.scan(
            version=version,
            timestamp=timestamp,
            columns=columns,
            where=where,
            time_zone=time_zone,
            side=side,
        )
        return scan.read_all()

    def count(
        self,
        where: str | None = None,
        *,
        version: Version | None = None,
        timestamp: Timestamp | None = None,
        time_zone: str = "UTC",
    ) -> int:
        """Return the number of rows of a snapshot that match a predicate; of all without one.

        Blocks whose statistics decide are not read.

        Args:
            where: a SQL predicate with Spark's semantics.
            version: as for `scan`; the newest if not given.
            timestamp: the last snapshot at or before this time.
            time_zone: the zone of the predicate's times without a zone.

        Raises:
            InvalidInputError: an unknown column or a broken predicate.
            NotFoundError, SnapshotExpiredError: as `scan`.
        """
        snapshot = self.snapshot(version, timestamp=timestamp)
        if where is None:
            return snapshot.summary.row_count
        selection = select_matches(snapshot.schema, where, time_zone=time_zone)
        return count_snapshot(self.metadata, snapshot, selection)

    def changes(
        self,
        starting_version: Version,
        ending_version: Version | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        time_zone: str = "UTC",
    ) -> pa.RecordBatchReader:
        """Return the rows that each commit from one version to another added and removed.

        Both versions are included. The columns are those of the ending version, and `_change_type`
        ("insert" or "delete"), `_commit_version` (int64), `_commit_timestamp` (UTC microseconds).
        Each commit is read with its own schema; columns are matched by name.

        Raises:
            SchemaChangedError: during the read, a commit has columns that the ending version lacks,
                and `columns` does not leave them out.
            InvalidInputError: the end is before the start, or a version is on another branch.
            NotFoundError: a version is past the head.
            SnapshotExpiredError: the first version has expired.
        """
        history = history_of(self)
        first, last = history.get_span(starting_version, ending_version, branch=self.branch)
        return read_changes(history, first, last, columns=columns, where=where, time_zone=time_zone)

    def block_changes(
        self, starting_version: Version, ending_version: Version | None = None
    ) -> Iterator[Change]:
        """Yield the blocks that each commit added and removed, as `changes` does rows."""
        history = history_of(self)
        first, last = history.get_span(starting_version, ending_version, branch=self.branch)
        return iter_changes(history, first.version, last.version)

    def diff(
        self, a: Version, b: Version, *, columns: Sequence[str] | None = None
    ) -> pa.RecordBatchReader:
        """Return the net difference from version `a` to version `b`, as rows.

        The versions may be on different branches. The columns are those of `b` (of `a` if it has
        more) and `_change_type` ("insert" or "delete"). A row that is in both versions is left out,
        even if its block was rewritten.

        Raises:
            InvalidInputError: an unknown column, or one whose types on two branches do not fit.
            NotFoundError: no such version, tag or branch.
            SnapshotExpiredError: a version has expired.
        """
        history = history_of(self)
        old, new = (history.get_snapshot(version).snapshot for version in (a, b))
        return read_diff(history, old, new, columns=columns)

    def block_diff(self, a: Version, b: Version) -> BlockDiff:
        """Return the blocks that differ between version `a` and version `b`, as `diff` reads them.

        If both sides have blocks, a row may be in both; `diff` leaves such rows out.
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
        """Yield the snapshots that have not expired, newest first; at most `limit` of them."""
        if limit is not None and (type(limit) is not int or limit < 0):
            raise InvalidInputError("limit is a number from 0", limit=limit)
        for stored in islice(history_of(self).iter_back(), limit and min(limit, maxsize)):
            yield stored.snapshot

    def segments(self, version: Version | None = None) -> tuple[SegmentRef, ...]:
        """Return the segments of a snapshot, oldest first."""
        return self.snapshot(version).segments

    def blocks(self, version: Version | None = None) -> tuple[Block, ...]:
        """Return the blocks of a snapshot, oldest segment first."""
        snapshot = self.snapshot(version)
        return tuple(iter_blocks(self.metadata, snapshot))

    def ledger(self) -> Mapping[LedgerKey, LedgerEntry]:
        """Return the ledger of the head: the last batch of each (application, writer)."""
        return self.head().ledger.entries

    @property
    def schema(self) -> pa.Schema:
        """The newest snapshot's columns, without hidden ones."""
        return arrow_schema(self.head().schema.visible)

    @property
    def properties(self) -> Mapping[str, str]:
        """The newest snapshot's properties."""
        return self.head().properties

    @property
    def branch(self) -> str:
        """The name of the branch."""
        return self.committer.branch.name

    def branches(self) -> tuple[BranchRef, ...]:
        """Return the table's branches, `main` first, then by name.

        `main`, which has no ref, was created with the table.
        """
        main, *others = iter_branches(self.metadata)
        created_us = self.metadata.load_table_file().created_us
        return (dataclasses.replace(main, created_us=created_us), *others)

    def tags(self) -> tuple[TagRef, ...]:
        """Return the table's tags, sorted by name, without those that have lapsed."""
        return tuple(iter_tags(self.metadata))

    def consumers(self) -> tuple[ConsumerState, ...]:
        """Return the consumers of all branches, each with its position.

        Raises:
            CorruptObjectError: a lease cannot be read; `release` removes it.
        """
        now_us = self.metadata.clock.now_us() + self.committer.clock_offset_us
        return consumers.list_consumers(self.metadata, now_us)

    def release(self, consumer: str, *, force: bool = False) -> None:
        """Delete the lease of a consumer that will not read again.

        A vacuum then deletes the files that only this lease kept.

        Args:
            consumer: its name, from `consumers`.
            force: delete the lease even if it is live. A running reader writes a new one.

        Raises:
            NotFoundError: there is no such consumer.
            ConsumerBusyError: the lease is live.
            UnsupportedFormatError: a newer release wrote the lease, or it is damaged.
            InvalidInputError: the name is not valid.
        """
        consumers.release(self.metadata, consumer, force=flag_in("force", force))


def history_of(table: BranchReader) -> History:
    """Return the history of a handle's branch, up to its newest snapshot."""
    return History(table.metadata, table.committer.head())
