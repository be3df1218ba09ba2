"""The blocks of a snapshot, with the rows that it hides.

A snapshot's segments list whole blocks; its deletion files say which of their rows are deleted. No
other module puts the two together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.positions import BlockRows, Positions
from fuse_stream.format.records import Block, SegmentRef, Snapshot
from fuse_stream.objects.slots import Metadata


def hidden_in(metadata: Metadata, snapshot: Snapshot) -> BlockRows:
    """Return the rows that a snapshot hides; errors of `Deletions.hidden_by`."""
    return metadata.deletions.hidden_by(snapshot.deletion_files)


def load_blocks(metadata: Metadata, snapshot: Snapshot, ref: SegmentRef) -> tuple[Block, ...]:
    """Return the blocks of one of a snapshot's segments, with the rows that the snapshot hides.

    Raises:
        CorruptObjectError: the segment or a deletion file is missing or damaged.
    """
    blocks = metadata.load_segment(ref, snapshot.schema.leaf_types).blocks
    return with_hidden(blocks, hidden_in(metadata, snapshot))


def iter_blocks(
    metadata: Metadata, snapshot: Snapshot, *, without: Iterable[str] = ()
) -> Iterator[Block]:
    """Yield the blocks of a snapshot, oldest first, without those of the given segments.

    Raises:
        CorruptObjectError: a segment or a deletion file is missing or damaged.
    """
    left_out = set(without)
    refs = [ref for ref in snapshot.segments if ref.id not in left_out]
    for segment in metadata.iter_segments(refs, snapshot.schema.leaf_types):
        yield from with_hidden(segment.blocks, hidden_in(metadata, snapshot))


def find_segments(metadata: Metadata, snapshot: Snapshot, block_ids: Iterable[str]) -> set[str]:
    """Return the ids of the segments that hold blocks with these ids, searched newest first."""
    missing = set(block_ids)
    found: set[str] = set()
    for ref in reversed(snapshot.segments):
        if not missing:
            break
        held = {block.id for block in metadata.load_segment(ref, snapshot.schema.leaf_types).blocks}
        if not missing.isdisjoint(held):
            found.add(ref.id)
            missing -= held
    return found


def iter_named(
    metadata: Metadata, snapshot: Snapshot, block_ids: Collection[str]
) -> Iterator[Block]:
    """Yield the blocks of a snapshot that have these ids, oldest first."""
    holding = find_segments(metadata, snapshot, block_ids)
    for ref in snapshot.segments:
        if ref.id in holding:
            blocks = load_blocks(metadata, snapshot, ref)
            yield from (block for block in blocks if block.id in block_ids)


def with_hidden(blocks: tuple[Block, ...], hidden: BlockRows) -> tuple[Block, ...]:
    """Return blocks with their hidden rows.

    Raises:
        CorruptObjectError: a hidden row lies past the end of its block.
    """
    if not hidden:
        return blocks
    return tuple(
        _hiding(block, rows) if (rows := hidden.get(block.id)) else block for block in blocks
    )


def _hiding(block: Block, rows: Positions) -> Block:
    if rows.max() >= block.row_count:
        raise CorruptObjectError(
            "a deletion file hides a row past the end of a block; fuse-stream fsck shows which "
            "versions are affected",
            block=block.id,
            row=rows.max(),
            row_count=block.row_count,
        )
    return block.hiding(rows)
