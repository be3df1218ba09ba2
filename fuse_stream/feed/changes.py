"""The units of the change feed: the blocks that the feed delivers for each commit.

The feed is a sequence of units. A unit is the change of one commit; or the table at one version,
which a first full read delivers; or the net difference of two snapshots, which replaces commits
that have expired. The rows of a net difference are the same in every process, though its blocks
may depend on which commits between the two snapshots have not expired yet.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from fuse_stream.errors import (
    CorruptObjectError,
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
    StreamIdentityError,
)
from fuse_stream.feed.diff import NET_OPERATIONS, BlockDiff, NetDiff, diff_commit, diff_net
from fuse_stream.feed.net import read_net
from fuse_stream.feed.views import Request, Views
from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.feed_columns import DELETE, FEED_FIELDS, INSERT, change_type_of
from fuse_stream.format.layout import block_key
from fuse_stream.format.one_line import one_line
from fuse_stream.format.operations import KEEPS_ROWS
from fuse_stream.format.records import TAKES_CONTENT, Block, Operation, Snapshot
from fuse_stream.format.schema import Schema
from fuse_stream.format.source_offset import Offset
from fuse_stream.reading.history import History
from fuse_stream.reading.line import Step
from fuse_stream.reading.scan import Selection, filters_may_match, prune, select, stats_may_match
from fuse_stream.reading.tasks import MOST_TASK_BYTES, without_statistics, work_bytes
from fuse_stream.storage.base import Store

_REMOVED = (
    "a commit removes rows, which feed=append cannot show. Read feed=changes (of a table by its "
    "name: spark.readStream.changes) and apply its deletions; or leave such commits out with "
    "skipChangeCommits; or start a new checkpoint at this version or after it"
)
_TAKEN_BACK = (
    "the table has taken rows back that this query has read, which feed=append cannot show. If the "
    "query was rewound too, start its fork. If not, rewind the tables that it writes as well, from "
    "this checkpoint to a new folder. Or read feed=changes and apply its deletions; or start a new "
    "checkpoint at this version or after it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Rows of a block that the feed delivers; they are planned, sent to a task and read there."""

    block: Block
    """The block without its statistics, showing these rows."""
    version: int
    """The commit's version, which its rows carry as `_commit_version`."""
    timestamp_us: int
    removed_from: int | None = None
    """A version that shows the rows, if the commit removed them; None if it inserted them."""
    is_update: bool = False
    """True if the rows were updated: removed as they were, or inserted as they became."""
    selection: Selection | None = None
    """How the block's rows are read; None where the reader's own selection fits their schema."""
    is_wanted: bool = True
    """True if the block may hold a row that the reader wants; others are not read."""

    @property
    def is_removed(self) -> bool:
        return self.removed_from is not None

    @property
    def change_type(self) -> str:
        return change_type_of(is_removed=self.is_removed, is_update=self.is_update)

    @property
    def needs_version(self) -> int:
        """A version that shows the rows."""
        return self.version if self.removed_from is None else self.removed_from


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Pieces that the feed delivers together, in canonical order: removed ones first."""

    version: int
    snapshot_id: str
    base: int | None
    """The version from which the unit leads to its own; None for the table at its version, which a
    first full read delivers."""
    is_whole: bool = False
    """True if the unit must not be split between batches: a rewind, revert or publish. Its
    difference is computed from several commits, and from other blocks once those have expired."""
    floor: int = 0
    """The branch's floor when the unit was planned."""
    first: int = 0
    """How many pieces of the unit were delivered before `pieces`."""
    pieces: tuple[Piece, ...] = ()

    @property
    def is_table(self) -> bool:
        return self.base is None

    @property
    def is_net(self) -> bool:
        """True if rows may be both removed and inserted; such pairs must be left out."""
        return self.is_whole and len({piece.is_removed for piece in self.pieces}) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The blocks that one commit inserted and removed, or the rows of blocks."""

    version: int
    timestamp_us: int
    operation: Operation
    diff: BlockDiff

    __repr__ = one_line(
        "version operation removed=diff.removed inserted=diff.inserted at_us=timestamp_us"
    )

    @property
    def blocks(self) -> tuple[tuple[str, Block], ...]:
        """("delete" or "insert", block) in the feed's canonical order: removed ones first."""
        return (
            *((DELETE, block) for block in self.diff.removed),
            *((INSERT, block) for block in self.diff.inserted),
        )


def feed_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of the feed: the columns of `schema`, then those of the feed."""
    return pa.schema([*arrow_schema(schema), *FEED_FIELDS])


def change_of(history: History, snapshot: Snapshot) -> Change:
    """Return the change that the commit of `snapshot` made."""
    return Change(
        version=snapshot.version,
        timestamp_us=snapshot.timestamp_us,
        operation=snapshot.operation,
        diff=diff_commit(history, snapshot).blocks,
    )


def iter_changes(history: History, start: int, end: int) -> Iterator[Change]:
    """Yield the changes of the commits from `start` to `end`, both inclusive, oldest first."""
    for stored in history.iter_between(start, end):
        yield change_of(history, stored.snapshot)


def unit_of(
    store: Store,
    snapshot: Snapshot,
    net: NetDiff,
    views: Views,
    *,
    base: int | None,
    is_whole: bool,
) -> Unit:
    """Return the unit of `net`: what changed from version `base` to `snapshot`; all for None.

    Raises:
        SchemaChangedError: a block has columns that the views cannot hold.
    """
    pieces: list[Piece] = []
    blocks: list[tuple[Block, Selection]] = []
    schema = view = None
    for part in iter_parts(net):
        if view is None or part.schema is not schema:  # to hash one costs more than all else here
            schema, view = part.schema, views.find(part.schema, version=snapshot.version)
        block = part.block
        piece = Piece(
            block=without_statistics(block),
            version=snapshot.version,
            timestamp_us=snapshot.timestamp_us,
            removed_from=base if part.is_removed else None,
            is_update=part.is_update,
            selection=view.sent,
            is_wanted=stats_may_match(view.selection, block.col_stats, block.row_count),
        )
        pieces.append(piece)
        blocks.append((block, view.selection))
    wanted = _ruled_in(store, pieces, blocks)
    return Unit(
        version=snapshot.version,
        snapshot_id=snapshot.snapshot_id,
        base=base,
        is_whole=is_whole,
        pieces=tuple(wanted),
    )


def _ruled_in(
    store: Store, pieces: list[Piece], blocks: list[tuple[Block, Selection]]
) -> list[Piece]:
    """Return the pieces, those not wanted whose block's Bloom filters rule out a wanted row."""
    at = [
        place
        for place, (piece, (block, selection)) in enumerate(zip(pieces, blocks, strict=True))
        if piece.is_wanted and selection.predicate is not None and block.index_size
    ]
    found = list(pieces)
    kept = filters_may_match(store, [blocks[place] for place in at])
    for place, is_wanted in zip(at, kept, strict=True):
        found[place] = dataclasses.replace(found[place], is_wanted=is_wanted)
    return found


class Part(NamedTuple):
    """Rows of a block that a difference removes or inserts, and the schema that reads them."""

    is_removed: bool
    is_update: bool
    schema: Schema
    block: Block

    @property
    def change_type(self) -> str:
        return change_type_of(is_removed=self.is_removed, is_update=self.is_update)


def iter_parts(net: NetDiff) -> Iterator[Part]:
    """Yield the rows of a difference in canonical order; updates apart from other rows."""
    for is_removed, schema, blocks in net.sides:
        for block in blocks:
            updates = block.shown & net.updated[block.id] if block.id in net.updated else None
            rest = block.shown - updates if updates else None
            if not updates or rest:
                shown = block.showing(rest) if rest else block
                yield Part(is_removed, False, schema, shown)  # noqa: FBT003 - named above
            if updates:
                shown = block.showing(updates) if rest else block
                yield Part(is_removed, True, schema, shown)  # noqa: FBT003 - named above


def iter_units(history: History, start: int, end: int, views: Views) -> Iterator[Unit]:
    """Yield the units of the commits from `start` to `end`, both inclusive, oldest first.

    Raises:
        SchemaChangedError: a commit has columns that the views cannot hold.
    """
    for stored in history.iter_between(start, end):
        snapshot = stored.snapshot
        net, base = diff_commit(history, snapshot), snapshot.version - 1
        is_whole = snapshot.operation in NET_OPERATIONS
        store = history.metadata.store
        yield unit_of(store, snapshot, net, views, base=base, is_whole=is_whole)


def load_diff(history: History, snapshot: Snapshot, *, base: int | None) -> NetDiff:
    """Return the blocks, with statistics, that changed since version `base`; all for None.

    `base` is the version before the snapshot's on its line.

    Raises:
        SnapshotExpiredError: blocks that the commit removed were in a version below the floor.
    """
    if base is None:
        blocks = tuple(prune(history.metadata, snapshot, select(snapshot.schema)))
        applied = BlockDiff(inserted=blocks)
        return NetDiff(applied=applied, old=snapshot.schema, new=snapshot.schema)
    may_remove = snapshot.operation not in KEEPS_ROWS | {Operation.APPEND}
    if may_remove and base < history.floor:
        raise expired(snapshot.version, history.floor + 1)
    if base == snapshot.version - 1:
        return diff_commit(history, snapshot)
    return diff_net(history, history.load(base).snapshot, snapshot)


class Units:
    """The units that a stream reads. Those of one trigger are cached: Spark asks for them twice."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._cached: dict[tuple[int, int | None], Unit] = {}
        """By the version and its base; a base of None is for the whole table."""
        self._selection: Selection | None = None

    def iter_ahead(
        self, table_version: int | None, steps: Iterable[Step], history: History, views: Views
    ) -> Iterator[Unit]:
        """Yield the unit of the table at `table_version`, if given, then those of `steps`.

        Raises:
            InvalidInputError: a commit removes rows, and the feed is `append`; or the feed is
                `upserts`, and the table has no key.
            SchemaChangedError: a commit has columns that the stream does not have.
            SnapshotExpiredError: a commit, or what it removed, has expired.
        """
        if views.selection != self._selection:
            self._cached.clear()  # the new predicate may rule out other blocks
            self._selection = views.selection
        if table_version is not None:
            yield self._unit(table_version, None, history, views)
        for base, version in steps:
            yield self._unit(version, base, history, views)

    def forget_before(self, version: int) -> None:
        """Drop the cached units of earlier versions."""
        for key in [key for key in self._cached if key[0] < version]:
            del self._cached[key]

    def _unit(self, version: int, base: int | None, history: History, views: Views) -> Unit:
        known = self._cached.get((version, base))
        if known is not None:
            return known
        snapshot = history.load(version).snapshot
        net = load_diff(history, snapshot, base=base)
        # Only as a whole can a unit show which of its rows are removed and inserted again.
        is_refused = self._request.feed == "append" and bool(net.blocks.removed)
        is_whole = base is not None and (is_refused or snapshot.operation in NET_OPERATIONS)
        store = history.metadata.store
        unit = unit_of(store, snapshot, net, views, base=base, is_whole=is_whole)
        if is_refused:
            unit = self._as_appended(unit, snapshot, history, views)
        if self._request.feed == "upserts":
            unit = _as_upserted(unit, snapshot)
        unit = dataclasses.replace(unit, floor=history.floor)
        self._cached[version, base] = unit
        return unit

    def get_net(self, start: Offset, version: int, history: History, views: Views) -> Unit:
        """Return the net difference from `start`, on any branch; errors also those of `load_net`.

        Raises:
            InvalidInputError: it removes rows, and the feed is `append`.
        """
        unit = load_net(history, start, version, views)
        if self._request.feed == "upserts":
            return _as_upserted(unit, history.load(version).snapshot)
        if self._request.feed != "append":
            return unit
        return self._as_appended(unit, history.load(version).snapshot, history, views)

    def _as_appended(self, unit: Unit, snapshot: Snapshot, history: History, views: Views) -> Unit:
        """Return a unit for feed=append; without pieces if it removes rows and may be skipped."""
        if not _removes_rows(history.metadata.store, unit, views.selection):
            return unit
        if self._request.skip_change_commits:
            return dataclasses.replace(unit, pieces=())
        raise InvalidInputError(
            _TAKEN_BACK if snapshot.operation in TAKES_CONTENT else _REMOVED,
            version=snapshot.version,
            operation=str(snapshot.operation),
        )


def _as_upserted(unit: Unit, snapshot: Snapshot) -> Unit:
    """Return a unit for feed=upserts: without updated rows as they were.

    Raises:
        InvalidInputError: the table has no key, by which rows could be replaced.
    """
    if unit.pieces and not snapshot.key:
        raise InvalidInputError(
            "feed=upserts is for tables with a key (set_key): read feed=changes, or start at a "
            "version that has the key",
            version=snapshot.version,
        )
    pieces = tuple(
        dataclasses.replace(piece, is_wanted=False)
        if piece.is_update and piece.is_removed
        else piece
        for piece in unit.pieces
    )
    return dataclasses.replace(unit, pieces=pieces)


def count_shares(pieces: Iterable[Piece]) -> int:
    """Return how many tasks share the rows of a net unit's pieces."""
    return -(-sum(work_bytes(piece.block) for piece in pieces) // MOST_TASK_BYTES)


def read_share(
    store: Store, pieces: Sequence[Piece], selection: Selection, *, share: int, of: int
) -> tuple[pa.Table, pa.Table]:
    """Return the rows that the pieces of a net unit remove and insert: those of one share."""
    removed, inserted = (
        [(p.block, p.selection or selection) for p in pieces if p.is_removed is is_removed]
        for is_removed in (True, False)
    )
    return read_net(store, removed, inserted, selection.schema, share=share, of=of)


def _removes_rows(store: Store, unit: Unit, selection: Selection) -> bool:
    """True if a unit removes wanted rows that it does not insert again; reads the rows."""
    pieces = [piece for piece in unit.pieces if piece.is_wanted]
    shares = count_shares(pieces)
    return any(piece.is_removed for piece in pieces) and any(
        len(read_share(store, pieces, selection, share=share, of=shares)[0])
        for share in range(shares)
    )


def load_net(history: History, start: Offset, version: int, views: Views) -> Unit:
    """Return the net difference from the snapshot that a stream has read to that of `version`.

    Raises:
        SnapshotExpiredError: the old snapshot is gone, or blocks that were removed since.
        StreamIdentityError: the stream's version now has another snapshot.
        SchemaChangedError: one of the two has columns that the stream does not have.
    """
    new = history.load(version).snapshot
    net = _diff_since(history, start, new)
    store = history.metadata.store
    return unit_of(store, new, net, views, base=start.version, is_whole=True)


def expired(version: int, first: int) -> SnapshotExpiredError:
    """Return the error for a stream whose next commit, `version`, has expired."""
    return SnapshotExpiredError(
        "commits that the stream has yet to read have expired; start a new checkpoint, from the "
        "table as it is or from the first version there is",
        version=version,
        first=first,
    )


def _diff_since(history: History, start: Offset, new: Snapshot) -> NetDiff:
    metadata = history.metadata
    try:
        old = metadata.load_snapshot(start.branch_id, start.version).snapshot
        if old.snapshot_id != start.snapshot_id:
            raise StreamIdentityError(
                "another snapshot has the version that the stream has reached; start a new "
                "checkpoint",
                version=start.version,
                checkpoint=start.snapshot_id,
                here=old.snapshot_id,
            )
        net = diff_net(history.with_floor(start.version), old, new)
        for block in net.blocks.removed:  # vacuum may have deleted them
            metadata.store.open_input(block_key(block.id, block.origin)).close()
    except (NotFoundError, SnapshotExpiredError, CorruptObjectError) as error:
        raise SnapshotExpiredError(
            "commits that the stream has yet to read have expired, and the snapshot that it has "
            "read is deleted as well, so there is nothing to compare with; start a new checkpoint, "
            "from the table as it is or from the first version there is",
            version=start.version,
            first=history.floor,
        ) from error
    return net
