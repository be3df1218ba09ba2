"""The difference of two snapshots, in blocks.

Pure, except that segments are loaded which only one side names, or which hold a block of which the
two sides hide other rows. `docs/decisions` says why the feed is a set difference of block lists.

A block that both sides list is in the difference if they hide other rows of it: it then shows only
the rows that differ.

Every snapshot was made from the content of one other: its parent, or, for a rewind or a publish,
the snapshot whose content it took. So all snapshots of a table, over all branches, are one tree.
The path between two snapshots leads over their last common ancestor: the commits from the old
snapshot back to it are undone, those from it to the new snapshot are applied. Times decrease
towards the root, so comparing times finds the ancestor.

A row of a block that one commit inserts and another removes cancels out, and commits that keep all
rows are left out. So blocks that a compaction merged are not sent again. Equal rows can be left in
different blocks of both sides only where a commit replaced what a compaction had merged, or wrote a
row again that it had removed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from fuse_stream.errors import NotFoundError
from fuse_stream.format.one_line import one_line
from fuse_stream.format.operations import CHANGES_ROWS, KEEPS_ROWS
from fuse_stream.format.positions import BlockRows, Positions
from fuse_stream.format.records import TAKES_CONTENT, Block, Operation, Snapshot, rows_of
from fuse_stream.format.schema import Schema
from fuse_stream.objects.refs import find_branch
from fuse_stream.objects.slots import Metadata
from fuse_stream.objects.snapshot_blocks import (
    find_segments,
    hidden_in,
    iter_blocks,
    iter_named,
    with_hidden,
)
from fuse_stream.reading.history import History, load_parent

_ADDS_ALONE = CHANGES_ROWS | {Operation.APPEND}
"""Operations that do no more than add segments and deletion files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockDiff:
    """The blocks to remove and to insert to turn one snapshot into another."""

    removed: tuple[Block, ...] = ()
    inserted: tuple[Block, ...] = ()
    updated: BlockRows = field(default_factory=dict)
    """Rows of these blocks that one commit updated: removed as they were, inserted as they became.
    """

    __repr__ = one_line("removed inserted")


def diff_blocks(old: Iterable[Block], new: Iterable[Block]) -> BlockDiff:
    """Return the set difference of two lists of blocks' rows, each side in its own order."""
    before = {block.id: block for block in old}
    after = {block.id: block for block in new}
    return BlockDiff(
        removed=tuple(_without(before.values(), after)),
        inserted=tuple(_without(after.values(), before)),
    )


def _without(blocks: Iterable[Block], others: Mapping[str, Block]) -> Iterator[Block]:
    """Yield the blocks, each showing only the rows, at least one, that none of `others` shows."""
    for block in blocks:
        other = others.get(block.id)
        if other is None:
            if block.live_rows:
                yield block
        elif other.hidden is not None and other.hidden != block.hidden:
            rows = other.hidden - (block.hidden or Positions())
            if rows:
                yield block.showing(rows)


def diff_snapshots(metadata: Metadata, old: Snapshot, new: Snapshot) -> BlockDiff:
    """Return the blocks that turn `old` into `new`; load no other segments than needed."""
    before = {ref.id for ref in old.segments}
    after = {ref.id for ref in new.segments}
    changed = _changed(hidden_in(metadata, old), hidden_in(metadata, new))
    return diff_blocks(
        _differing(metadata, old, after, changed), _differing(metadata, new, before, changed)
    )


def _changed(before: BlockRows, after: BlockRows) -> set[str]:
    """Return the ids of the blocks of which two snapshots hide other rows."""
    return {
        block_id
        for block_id in before.keys() | after.keys()
        if (rows := before.get(block_id)) is not after.get(block_id) and rows != after.get(block_id)
    }


def _differing(
    metadata: Metadata, snapshot: Snapshot, shared: Collection[str], changed: set[str]
) -> Iterator[Block]:
    """Yield the blocks of segments that are not shared, and the changed blocks of the others."""
    holding = find_segments(metadata, snapshot, changed)
    refs = [ref for ref in snapshot.segments if ref.id not in shared or ref.id in holding]
    segments = metadata.iter_segments(refs, snapshot.schema.leaf_types)
    for ref, segment in zip(refs, segments, strict=True):
        blocks = with_hidden(segment.blocks, hidden_in(metadata, snapshot))
        yield from (block for block in blocks if ref.id not in shared or block.id in changed)


def diff_plain_commit(metadata: Metadata, snapshot: Snapshot) -> BlockDiff:
    """Return the blocks that one commit removed and inserted; none if it keeps all rows.

    Not for a rewind or a publish, whose difference follows from other commits: see `diff_commit`.
    """
    if snapshot.operation in KEEPS_ROWS or not snapshot.data_change:
        return BlockDiff()
    if snapshot.operation not in _ADDS_ALONE:
        return diff_snapshots(metadata, load_parent(metadata, snapshot), snapshot)
    # A roll-up in the same commit also makes new objects; these lists have those with its changes.
    others = {ref.id for ref in snapshot.segments}.difference(snapshot.added)
    own = [ref for ref in snapshot.deletion_files if ref.id in snapshot.deletion_files_added]
    gone = metadata.deletions.hidden_by(own)
    diff = BlockDiff(
        removed=tuple(
            block.showing(gone[block.id]) for block in iter_named(metadata, snapshot, gone)
        ),
        inserted=tuple(
            block for block in iter_blocks(metadata, snapshot, without=others) if block.live_rows
        ),
    )
    if snapshot.operation is Operation.UPDATE:
        updated: BlockRows = rows_of((*diff.removed, *diff.inserted))
    else:
        updated = metadata.deletions.updated_by(own)
    return dataclasses.replace(diff, updated=updated)


NET_OPERATIONS = TAKES_CONTENT | {Operation.REVERT, Operation.ERASE}
"""Operations that undo commits, or move rows and remove others: the change feed sends only the rows
that really differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPath:
    """The commits on the path between two snapshots, except those that change no row."""

    undone: tuple[Snapshot, ...]
    """Commits to undo, newest first."""
    applied: tuple[Snapshot, ...]
    """Commits to apply, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetDiff:
    """The blocks that turn one snapshot into another, with the schema that reads them."""

    undone: BlockDiff = BlockDiff()
    """Blocks of the commits that are undone."""
    applied: BlockDiff = BlockDiff()
    """Blocks of the commits that are applied."""
    old: Schema
    """The old snapshot's schema, which reads the rows of `undone`."""
    new: Schema
    """The new snapshot's schema, which reads the rows of `applied`."""
    updated: BlockRows = field(default_factory=dict)
    """As in `BlockDiff`, if the difference is that of one commit."""

    @property
    def sides(self) -> tuple[tuple[bool, Schema, tuple[Block, ...]], ...]:
        """(is removed, schema, blocks) for each part that has blocks; removed ones first."""
        sides = (
            (True, self.old, self.undone.removed),
            (True, self.new, self.applied.removed),
            (False, self.old, self.undone.inserted),
            (False, self.new, self.applied.inserted),
        )
        return tuple(side for side in sides if side[2])

    @property
    def blocks(self) -> BlockDiff:
        """All blocks, whatever schema reads them."""
        return BlockDiff(
            removed=self.undone.removed + self.applied.removed,
            inserted=self.undone.inserted + self.applied.inserted,
            updated=self.updated,
        )


def find_commit_path(history: History, old: Snapshot, new: Snapshot) -> CommitPath | None:
    """Return the commits between `old` and `new`; None if a snapshot between them has expired."""
    undone: list[Snapshot] = []
    applied: list[Snapshot] = []
    kept = _KeptElsewhere(history)
    while (old.branch_id, old.version) != (new.branch_id, new.version):
        is_undone = old.timestamp_us > new.timestamp_us
        later = old if is_undone else new
        source = history.find_named(later.source, by=later, may_be_lost=True)
        if source is None or not kept.has(source.snapshot):
            return None
        if later.data_change and later.operation not in KEEPS_ROWS | TAKES_CONTENT:
            (undone if is_undone else applied).append(later)
        old, new = (source.snapshot, new) if is_undone else (old, source.snapshot)
    return CommitPath(undone=tuple(undone), applied=tuple(reversed(applied)))


class _KeptElsewhere:
    """Finds out whether snapshots of other branches have expired: their slots may still exist.

    A snapshot that only a branch keeps that was forked off its own counts as expired.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._floors: dict[str, float] = {}

    def has(self, snapshot: Snapshot) -> bool:
        """False if a snapshot of another branch has expired, or its branch was deleted."""
        branch_id = snapshot.branch_id
        if self._history.contains(snapshot):
            return True
        if branch_id not in self._floors:
            self._floors[branch_id] = self._floor_of(branch_id)
        return snapshot.version >= self._floors[branch_id]

    def _floor_of(self, branch_id: str) -> float:
        metadata = self._history.metadata
        with suppress(NotFoundError):  # it is deleted now
            if find_branch(metadata, branch_id) is not None:
                return metadata.load_head(branch_id).snapshot.floor
        return math.inf


def diff_net(history: History, old: Snapshot, new: Snapshot) -> NetDiff:
    """Return the blocks that turn `old` into `new`, from the commits between that are retained.

    If there are both removed and inserted blocks, a row may be in both. If there are only removed
    or only inserted ones, their rows are the exact difference.
    """
    direct = diff_snapshots(history.metadata, old, new)
    if direct.removed and direct.inserted:
        path = find_commit_path(history, old, new)
        if path is not None:
            return compose(history.metadata, path, old.schema, new.schema)
    return _net_of(direct, old.schema, new.schema)


def diff_commit(history: History, snapshot: Snapshot) -> NetDiff:
    """Return the blocks that any one commit removed and inserted; none if it keeps all rows."""
    metadata = history.metadata
    if snapshot.operation in TAKES_CONTENT:
        return diff_net(history, load_parent(metadata, snapshot), snapshot)
    diff = diff_plain_commit(metadata, snapshot)
    old = load_parent(metadata, snapshot) if diff.removed else snapshot
    return _net_of(diff, old.schema, snapshot.schema)


def _net_of(direct: BlockDiff, old: Schema, new: Schema) -> NetDiff:
    return NetDiff(
        undone=BlockDiff(removed=direct.removed),
        applied=BlockDiff(inserted=direct.inserted),
        old=old,
        new=new,
        updated=direct.updated,
    )


def compose(metadata: Metadata, path: CommitPath, old: Schema, new: Schema) -> NetDiff:
    """Return the net difference of a path, without blocks that were both inserted and removed.

    `old` and `new` are the schemas at its two ends. Between an end and the common ancestor no
    commit drops a column, so each end's schema has all columns of the commits on its side.
    """
    removed: dict[str, Positions] = {}
    inserted: dict[str, Positions] = {}
    seen: dict[str, tuple[Block, bool]] = {}
    for is_undone, is_inserted, block in _iter_effects(metadata, path):
        seen.setdefault(block.id, (block, is_undone))
        here, opposite = (inserted, removed) if is_inserted else (removed, inserted)
        taken_back = opposite.get(block.id, Positions()) & block.shown
        if taken_back:
            opposite[block.id] -= taken_back
        here[block.id] = here.get(block.id, Positions()) | (block.shown - taken_back)

    def blocks(rows: BlockRows, *, is_undone: bool) -> tuple[Block, ...]:
        return tuple(
            block.showing(rows[block.id])
            for block, was_undone in seen.values()
            if was_undone is is_undone and rows.get(block.id)
        )

    undone, applied = (
        BlockDiff(
            removed=blocks(removed, is_undone=is_undone),
            inserted=blocks(inserted, is_undone=is_undone),
        )
        for is_undone in (True, False)
    )
    return NetDiff(undone=undone, applied=applied, old=old, new=new)


def _iter_effects(metadata: Metadata, path: CommitPath) -> Iterator[tuple[bool, bool, Block]]:
    """Yield (is undone, is inserted, block) for each block on a path."""
    for is_undone, commits in ((True, path.undone), (False, path.applied)):
        for commit in commits:
            diff = diff_plain_commit(metadata, commit)
            yield from ((is_undone, is_undone, block) for block in diff.removed)
            yield from ((is_undone, not is_undone, block) for block in diff.inserted)
