"""Rewritten blocks take the place of their inputs on whatever head there is.

Rules:
- Blocks are matched by identity, never by segment: others may have moved them to other segments.
- A group lands whole or not at all. One of whose inputs is gone is dropped, and so is one written
  for another schema than the head has; the rest lands. So no writer fails, and nor does this.
- New blocks stand at the place of the first input. Segments without an input stay as they are;
  neighbours with inputs become one, up to `MAX_BLOCKS`.
- Two epochs after the first block was put, vacuum may have taken it: then nothing lands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from fuse_stream.commit.committer import Committer, may_be_gone
from fuse_stream.commit.plan import Content, Intent, Staged
from fuse_stream.commit.rollup import MAX_BLOCKS
from fuse_stream.commit.stage import Rewritten, stage_segment
from fuse_stream.format.records import (
    Block,
    Operation,
    Segment,
    SegmentRef,
    Snapshot,
    Summary,
)
from fuse_stream.format.stats import merge_stats
from fuse_stream.objects.slots import Metadata, Stored

Identity = tuple[str, str | None]
Place = tuple[int, int]
"""(segment, block within it), both counted from 0."""

_Kept = tuple[SegmentRef, Summary]


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """What became of groups that were rewritten."""

    snapshot: Snapshot | None
    """None where all of them were dropped, and nothing was committed."""
    landed: tuple[Rewritten, ...] = ()
    dropped: tuple[Rewritten, ...] = ()


def land(
    committer: Committer,
    done: Sequence[Rewritten],
    *,
    operation: Operation,
    message: Callable[[Sequence[Rewritten]], str],
    epoch: int,
    in_order: bool,
) -> Landing:
    """Commit what can still take the place of its inputs.

    Args:
        committer: of the branch.
        done: the groups.
        operation: what the snapshot says it did.
        message: what the log shows, for the groups that land.
        epoch: of the head that was read before the first block was put.
        in_order: whether a group is dropped, too, whose inputs are neighbours no more.

    Raises:
        ConflictError: others won every attempt; nothing was committed, try again.
        CommitStateUnknownError: the store failed; the commit may have landed.
    """
    committer.prepare()
    wanted = tuple(done)
    for _ in range(len(done)):  # each time there are fewer
        if not wanted:
            break
        replacement = Replacement(committer.metadata, wanted, epoch=epoch, in_order=in_order)
        intent = Intent(operation=operation, message=message(wanted))
        try:
            stored = committer.commit(intent, replacement.stage).stored
        except SomeGoneError as gone:
            wanted = gone.left  # the message names what lands, so it is another commit
            continue
        dropped = tuple(group for group in done if group not in wanted)
        return Landing(snapshot=stored.snapshot, landed=wanted, dropped=dropped)
    return Landing(snapshot=None, dropped=tuple(done))


class SomeGoneError(Exception):
    """Not all groups fit the head. A signal between `Replacement` and `land`, never an error."""

    def __init__(self, left: tuple[Rewritten, ...]) -> None:
        super().__init__(f"{len(left)} groups are left")
        self.left = left


class Replacement:
    """Stages groups on one head after the other; what it wrote for one is used for the next."""

    def __init__(
        self, metadata: Metadata, groups: tuple[Rewritten, ...], *, epoch: int, in_order: bool
    ) -> None:
        self._metadata = metadata
        self._groups = groups
        self._epoch = epoch
        self._in_order = in_order
        self._written: dict[tuple[int, tuple[Identity, ...]], list[_Kept]] = {}
        """By the level and the blocks."""

    def stage(self, head: Stored, _before: Staged | None) -> Staged:
        """Return the content of `head` with all groups in their places.

        Raises:
            SomeGoneError: some do not fit this head; nothing was put for it.
        """
        snapshot = head.snapshot
        wanted = {block.identity for group in self._groups for block in group.inputs}
        segments = self._segments_with(snapshot, wanted)
        places = {
            block.identity: (index, offset)
            for index, segment in segments.items()
            for offset, block in enumerate(segment.blocks)
            if block.identity in wanted
        }
        left = tuple(group for group in self._groups if self._fits(group, snapshot, places))
        if len(left) < len(self._groups):
            raise SomeGoneError(left)
        touched = {index: segments[index] for index in {index for index, _ in places.values()}}
        coming = {
            min(places[block.identity] for block in group.inputs): group.outputs
            for group in self._groups
        }
        blocks = {
            index: tuple(_replaced_blocks(segment, index, wanted, coming))
            for index, segment in touched.items()
        }
        refs: list[SegmentRef] = []
        new: list[_Kept] = []
        for is_touched, run in groupby(range(len(snapshot.segments)), key=touched.__contains__):
            indexes = list(run)
            if is_touched:
                written = self._stored_run(snapshot, indexes, blocks)
                refs += [ref for ref, _ in written]
                new += written
            else:
                refs += [snapshot.segments[index] for index in indexes]
        return Staged(
            schema=snapshot.schema,
            content=Content(
                segments=tuple(refs),
                summary=_summary(
                    snapshot,
                    [segment.summary for segment in touched.values()],
                    [summary for _, summary in new],
                ),
                added=tuple(ref.id for ref, _ in new),
                cluster_key=snapshot.cluster_key,
                required_features=snapshot.required_features,
                ledger=snapshot.ledger,
            ),
        )

    def _segments_with(self, head: Snapshot, wanted: set[Identity]) -> dict[int, Segment]:
        """Return segments of `head`, by place, among them all that hold a wanted block."""
        missing = set(wanted)
        found = {}
        # The small blocks are the new ones, so the old segments need not be opened as a rule.
        for index in range(len(head.segments) - 1, -1, -1):
            if not missing:
                break
            ref = head.segments[index]
            found[index] = self._metadata.load_segment(ref, head.schema.leaf_types)
            missing -= {block.identity for block in found[index].blocks}
        return found

    def _fits(self, group: Rewritten, head: Snapshot, places: Mapping[Identity, Place]) -> bool:
        if may_be_gone(self._epoch, head):
            return False
        if any(block.schema_id != head.schema.id for block in group.outputs):
            return False  # after a rewind, a column may be of the narrower type again
        at = [places.get(block.identity) for block in group.inputs]
        found = [place for place in at if place is not None]
        if len(found) < len(at):
            return False
        return not self._in_order or all(
            _is_next(head, before, after) for before, after in pairwise(found)
        )

    def _stored_run(
        self, head: Snapshot, indexes: list[int], blocks: Mapping[int, Sequence[Block]]
    ) -> list[_Kept]:
        """Return the segments that take the place of these neighbours."""
        level = max(head.segments[index].level for index in indexes)
        merged = [block for index in indexes for block in blocks[index]]
        key = level, tuple(block.identity for block in merged)
        if key not in self._written:
            self._written[key] = [
                stage_segment(self._metadata, head, head.schema, tuple(part), level=level)
                for part in _parts_of_equal_size(merged)
            ]
        return self._written[key]


def _is_next(head: Snapshot, before: Place, after: Place) -> bool:
    (segment, block), last = before, head.segments[before[0]].block_count - 1
    return after == ((segment + 1, 0) if block == last else (segment, block + 1))


def _replaced_blocks(
    segment: Segment, index: int, leaving: set[Identity], coming: Mapping[Place, tuple[Block, ...]]
) -> Iterator[Block]:
    for offset, block in enumerate(segment.blocks):
        yield from coming.get((index, offset), ())
        if block.identity not in leaving:
            yield block


def _parts_of_equal_size(blocks: Sequence[Block]) -> Iterator[Sequence[Block]]:
    count = -(-len(blocks) // MAX_BLOCKS)
    for part in range(count):
        yield blocks[part * len(blocks) // count : (part + 1) * len(blocks) // count]


def _summary(head: Snapshot, old: Sequence[Summary], new: Sequence[Summary]) -> Summary:
    """Return the totals of `head` with these parts in place of those.

    Bounds stay: the rows are the same. Columns that only the new blocks have statistics of were
    null throughout.
    """
    totals = head.summary

    def changed(name: str) -> int:
        came, left = (sum(getattr(item, name) for item in part) for part in (new, old))
        return max(0, int(getattr(totals, name) + came - left))

    rows = sum(summary.row_count for summary in new)
    unknown = [
        (
            {
                column: stats
                for column, stats in summary.col_stats.items()
                if column not in totals.col_stats
            },
            summary.row_count,
        )
        for summary in new
    ]
    return Summary(
        row_count=changed("row_count"),
        block_count=changed("block_count"),
        perfect_block_count=changed("perfect_block_count"),
        uncompressed_byte_size=changed("uncompressed_byte_size"),
        compressed_byte_size=changed("compressed_byte_size"),
        index_size=changed("index_size"),
        col_stats={
            **totals.col_stats,
            **merge_stats([*unknown, ({}, totals.row_count - rows)]),
        },
    )
