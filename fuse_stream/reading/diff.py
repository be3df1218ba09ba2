"""What one snapshot has that another has not, in blocks.

Pure but for the loading of segments that only one side names. `docs/decisions` says why the feed
is a set difference of block lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fuse_stream.errors import CorruptObjectError, NotFoundError
from fuse_stream.format.records import KEEPS_ROWS, Block, Operation, Snapshot
from fuse_stream.objects.metadata import Metadata


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

    A rewind or a publish is told by the commits that it undoes: `way.diff_commit`.
    """
    if snapshot.operation in KEEPS_ROWS or not snapshot.data_change:
        return BlockDiff()
    if snapshot.operation is Operation.APPEND:
        # A roll-up that was folded in renames segments; what the commit brought stands in `added`.
        added = set(snapshot.added)
        others = {ref.id for ref in snapshot.segments} - added
        return BlockDiff(inserted=tuple(_blocks(metadata, snapshot, without=others)))
    return diff_snapshots(metadata, load_parent(metadata, snapshot), snapshot)


def load_parent(metadata: Metadata, snapshot: Snapshot) -> Snapshot:
    """Return the snapshot that this one, which is not version 0, was built on.

    Raises:
        CorruptObjectError: it is missing, or another one stands in its place.
    """
    assert snapshot.parent is not None
    version = snapshot.parent.version
    try:
        stored = metadata.load_snapshot(snapshot.parent.branch_id, version)
    except NotFoundError as error:
        raise CorruptObjectError(
            "a snapshot is missing from the table's history; restore its slot from a copy",
            version=version,
            path=metadata.store.url,
        ) from error
    if stored.sha256 != snapshot.parent.sha256:
        raise CorruptObjectError(
            "a snapshot is not the one that the next was built on: its slot was changed; restore "
            "it from a copy",
            version=version,
            path=metadata.store.url,
        )
    return stored.snapshot


def _blocks(metadata: Metadata, snapshot: Snapshot, *, without: set[str]) -> Iterator[Block]:
    types = snapshot.schema.leaf_types
    for ref in snapshot.segments:
        if ref.id not in without:
            yield from metadata.load_segment(ref, types).blocks
