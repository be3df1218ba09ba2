"""The difference of two snapshots, in blocks.

Pure but for the loading of segments that only one side names. `docs/decisions` says why the feed
is a set difference of block lists.

Every snapshot was made from the content of one other: its parent, or for a rewind or a publish the
snapshot whose content it took. So all snapshots of a table, over all branches, are one tree, and
the way between two leads over the last snapshot that both come from: the commits of the one are
undone, those of the other done. Times fall towards the root, which finds that snapshot.

Commits cancel by blocks, and commits that keep the rows do not count. So what a compaction merged
is not sent again, and what is left may have equal rows on both sides in different blocks only
where a commit replaced what a compaction had merged, or wrote a row again that it had removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fuse_stream.format.records import (
    KEEPS_ROWS,
    TAKES_CONTENT,
    Block,
    Operation,
    Snapshot,
)
from fuse_stream.format.schema import Schema
from fuse_stream.objects.slots import Metadata
from fuse_stream.reading.history import History, load_parent


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockDiff:
    """The blocks that appeared and disappeared; together they turn one snapshot into another."""

    removed: tuple[Block, ...] = ()
    inserted: tuple[Block, ...] = ()


def diff_blocks(old: Iterable[Block], new: Iterable[Block]) -> BlockDiff:
    """Return the set difference of two block lists, each side in its own order."""
    before = {block.identity: block for block in old}
    after = {block.identity: block for block in new}
    return BlockDiff(
        removed=tuple(block for key, block in before.items() if key not in after),
        inserted=tuple(block for key, block in after.items() if key not in before),
    )


def diff_snapshots(metadata: Metadata, old: Snapshot, new: Snapshot) -> BlockDiff:
    """Return the blocks that turn `old` into `new`; opens only segments that one side names."""
    before = {ref.id for ref in old.segments}
    after = {ref.id for ref in new.segments}
    return diff_blocks(
        _blocks(metadata, old, without=after), _blocks(metadata, new, without=before)
    )


def diff_plain_commit(metadata: Metadata, snapshot: Snapshot) -> BlockDiff:
    """Return what one commit did to its parent's blocks; nothing for one that keeps the rows.

    A rewind or a publish is described by the commits that it undoes: `diff_commit`.
    """
    if snapshot.operation in KEEPS_ROWS or not snapshot.data_change:
        return BlockDiff()
    if snapshot.operation is Operation.APPEND:
        # A roll-up that was folded in renames segments; what the commit brought is in `added`.
        added = set(snapshot.added)
        others = {ref.id for ref in snapshot.segments} - added
        return BlockDiff(inserted=tuple(_blocks(metadata, snapshot, without=others)))
    return diff_snapshots(metadata, load_parent(metadata, snapshot), snapshot)


def _blocks(metadata: Metadata, snapshot: Snapshot, *, without: set[str]) -> Iterator[Block]:
    types = snapshot.schema.leaf_types
    for ref in snapshot.segments:
        if ref.id not in without:
            yield from metadata.load_segment(ref, types).blocks


NET_OPERATIONS = TAKES_CONTENT | {Operation.REVERT}
"""Operations that undo: the change feed sends only the rows that really differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPath:
    """The commits that lie between two snapshots, those that change no row left out."""

    back: tuple[Snapshot, ...]
    """To be undone, newest first."""
    forth: tuple[Snapshot, ...]
    """To be done, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetDiff:
    """The blocks that turn one snapshot into another, by the line whose schema reads them."""

    back: BlockDiff = BlockDiff()
    """On the old snapshot's line."""
    forth: BlockDiff = BlockDiff()
    """On the new snapshot's line."""
    old: Schema
    """Reads the rows of `back`."""
    new: Schema
    """Reads the rows of `forth`."""

    @property
    def sides(self) -> tuple[tuple[bool, Schema, tuple[Block, ...]], ...]:
        """The blocks by schema, with whether they were removed; removed ones first, none empty."""
        sides = (
            (True, self.old, self.back.removed),
            (True, self.new, self.forth.removed),
            (False, self.old, self.back.inserted),
            (False, self.new, self.forth.inserted),
        )
        return tuple(side for side in sides if side[2])

    @property
    def blocks(self) -> BlockDiff:
        """The blocks, whatever schema reads them."""
        return BlockDiff(
            removed=self.back.removed + self.forth.removed,
            inserted=self.back.inserted + self.forth.inserted,
        )


def find_commit_path(history: History, old: Snapshot, new: Snapshot) -> CommitPath | None:
    """Return the way from `old` to `new`; None if a snapshot on it has expired."""
    back: list[Snapshot] = []
    forth: list[Snapshot] = []
    while (old.branch_id, old.version) != (new.branch_id, new.version):
        is_back = old.timestamp_us > new.timestamp_us
        later = old if is_back else new
        source = history.find_named(later.source, by=later, may_be_lost=True)
        if source is None:
            return None
        if later.data_change and later.operation not in KEEPS_ROWS | TAKES_CONTENT:
            (back if is_back else forth).append(later)
        old, new = (source.snapshot, new) if is_back else (old, source.snapshot)
    return CommitPath(back=tuple(back), forth=tuple(reversed(forth)))


def diff_net(history: History, old: Snapshot, new: Snapshot) -> NetDiff:
    """Return the blocks that turn `old` into `new`, by the commits between that are retained.

    Where both sides have blocks, equal rows may be on both; where one side is empty, its rows
    are the difference, exactly.
    """
    direct = diff_snapshots(history.metadata, old, new)
    if direct.removed and direct.inserted:
        way = find_commit_path(history, old, new)
        if way is not None:
            return compose(history.metadata, way, old.schema, new.schema)
    return _between(direct, old.schema, new.schema)


def diff_commit(history: History, snapshot: Snapshot) -> NetDiff:
    """Return what one commit did to its parent's blocks; nothing for one that keeps the rows."""
    metadata = history.metadata
    if snapshot.operation in TAKES_CONTENT:
        return diff_net(history, load_parent(metadata, snapshot), snapshot)
    diff = diff_plain_commit(metadata, snapshot)
    old = load_parent(metadata, snapshot) if diff.removed else snapshot
    return _between(diff, old.schema, snapshot.schema)


def _between(direct: BlockDiff, old: Schema, new: Schema) -> NetDiff:
    return NetDiff(
        back=BlockDiff(removed=direct.removed),
        forth=BlockDiff(inserted=direct.inserted),
        old=old,
        new=new,
    )


def compose(metadata: Metadata, way: CommitPath, old: Schema, new: Schema) -> NetDiff:
    """Return what is left of the commits of a way after blocks that came and went cancel.

    `old` and `new` are the schemas at its two ends. Columns only come on a line, so each end's
    schema has all columns of the commits on its side.
    """
    counts: dict[tuple[str, str | None], int] = {}
    seen: dict[tuple[str, str | None], tuple[Block, bool]] = {}
    for is_back, count, block in _steps(metadata, way):
        counts[block.identity] = counts.get(block.identity, 0) + count
        seen.setdefault(block.identity, (block, is_back))

    def side(*, is_back: bool, count: int) -> tuple[Block, ...]:
        return tuple(
            block
            for identity, (block, was_back) in seen.items()
            if was_back is is_back and counts[identity] == count
        )

    back, forth = (
        BlockDiff(removed=side(is_back=is_back, count=-1), inserted=side(is_back=is_back, count=1))
        for is_back in (True, False)
    )
    return NetDiff(back=back, forth=forth, old=old, new=new)


def _steps(metadata: Metadata, way: CommitPath) -> Iterator[tuple[bool, int, Block]]:
    """Yield every block that a way brings (1) or takes (-1), and whether on the way back."""
    for is_back, commits in ((True, way.back), (False, way.forth)):
        for commit in commits:
            diff = diff_plain_commit(metadata, commit)
            sign = -1 if is_back else 1
            yield from ((is_back, -sign, block) for block in diff.removed)
            yield from ((is_back, sign, block) for block in diff.inserted)
