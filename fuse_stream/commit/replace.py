"""Replace blocks of the newest head by rewritten ones.

Rules:
- Blocks are matched by identity, never by segment: other commits may have moved them to other
  segments.
- New blocks take the place of the first input; those of a group without inputs come last.
  Segments without an input do not change; neighbours with inputs become one, up to `MAX_BLOCKS`.
- `commit_groups` commits a group whole or not at all. It drops a group if an input is gone, or if
  the group was written for another schema than the head's, and commits the rest. So no other
  writer fails because of it, and it does not fail because of them.
- Two epochs after the first block was put, vacuum may have deleted it: then nothing is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.plan import Content, Intent, NothingToDoError, Staged, may_be_gone
from fuse_stream.commit.rollup import MAX_BLOCKS
from fuse_stream.commit.stage import Rewritten, StagedSegment, stage_segment
from fuse_stream.format.records import Block, Operation, Segment, SegmentRef, Snapshot, Summary
from fuse_stream.format.stats import merge_stats
from fuse_stream.objects.slots import Metadata, Stored

Identity = tuple[str, str | None]
Place = tuple[int, int]
"""(segment, block within it), both counted from 0."""

Written = dict[tuple[int, tuple[Identity, ...]], list[StagedSegment]]
"""Segments that were put, by their level and blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """The segments of a head after some of its blocks were replaced."""

    refs: tuple[SegmentRef, ...]
    new: tuple[StagedSegment, ...]
    """The segments of `refs` that the head does not have."""
    replaced: frozenset[int]
    """Indexes of the head's segments that are not in `refs`."""

    @property
    def added(self) -> tuple[str, ...]:
        """The ids of the new segments."""
        return tuple(segment.ref.id for segment in self.new)


def stage_exchange(
    metadata: Metadata,
    head: Snapshot,
    segments: Mapping[int, Segment],
    groups: Sequence[Rewritten],
    written: Written | None = None,
) -> Exchange:
    """Put the segments in which the outputs of each group take the place of its inputs.

    Args:
        metadata: the table's.
        head: the snapshot to build on; its schema has all columns of the blocks.
        segments: segments of `head` by index, at least those that hold an input.
        groups: groups whose inputs are all in `segments`.
        written: segments that were put for an earlier head, to use again; those put now are added.
    """
    written = {} if written is None else written
    leaving = {block.identity for group in groups for block in group.inputs}
    places = _places(segments, leaving)
    replaced = frozenset(index for index, _ in places.values())
    coming = {
        min(places[block.identity] for block in group.inputs): group.outputs
        for group in groups
        if group.inputs
    }
    refs: list[SegmentRef] = []
    new: list[StagedSegment] = []

    def put(blocks: Sequence[Block], level: int) -> None:
        key = level, tuple(block.identity for block in blocks)
        if key not in written:
            written[key] = [
                stage_segment(metadata, head, part, level=level)
                for part in _parts_of_equal_size(blocks)
            ]
        new.extend(written[key])
        refs.extend(segment.ref for segment in written[key])

    for is_replaced, run in groupby(range(len(head.segments)), key=replaced.__contains__):
        indexes = list(run)
        if is_replaced:
            blocks = [
                block
                for index in indexes
                for block in _exchanged(segments[index], index, leaving, coming)
            ]
            put(blocks, max(head.segments[index].level for index in indexes))
        else:
            refs += [head.segments[index] for index in indexes]
    put([block for group in groups if not group.inputs for block in group.outputs], 0)
    return Exchange(refs=tuple(refs), new=tuple(new), replaced=replaced)


def _places(segments: Mapping[int, Segment], wanted: set[Identity]) -> dict[Identity, Place]:
    """Return the position of each wanted block that is in `segments`."""
    return {
        block.identity: (index, offset)
        for index, segment in segments.items()
        for offset, block in enumerate(segment.blocks)
        if block.identity in wanted
    }


def _exchanged(
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceResult:
    """Which groups were committed, and which were dropped."""

    snapshot: Snapshot | None = None
    """The commit; None where all groups were dropped, and nothing was committed."""
    committed: tuple[Rewritten, ...] = ()
    dropped: tuple[Rewritten, ...] = ()


def commit_groups(
    committer: Committer,
    done: Sequence[Rewritten],
    *,
    operation: Operation,
    message: Callable[[Sequence[Rewritten]], str],
    epoch: int,
    in_order: bool,
) -> ReplaceResult:
    """Commit the groups whose inputs are all still in the head.

    Args:
        committer: the branch's.
        done: the rewritten groups.
        operation: the snapshot's operation.
        message: returns the snapshot's message for the groups that are committed.
        epoch: the epoch of a head that was read before the first block was put.
        in_order: whether to drop a group, too, whose inputs are no longer neighbours.

    Raises:
        ConflictError: other writers won every attempt; nothing was committed, try again.
        CommitStateUnknownError: the store failed; the commit may have landed.
    """
    replacement = _Replacement(committer.metadata, done, message, epoch=epoch, in_order=in_order)
    try:
        stored = committer.commit(Intent(operation=operation), replacement.stage).stored
    except NothingToDoError:
        return ReplaceResult(dropped=tuple(done))
    committed = replacement.committed
    dropped = tuple(group for group in done if group not in committed)
    return ReplaceResult(snapshot=stored.snapshot, committed=committed, dropped=dropped)


class _Replacement:
    """Stages groups for one head after another; reuses the segments written for the one before."""

    def __init__(
        self,
        metadata: Metadata,
        groups: Sequence[Rewritten],
        message: Callable[[Sequence[Rewritten]], str],
        *,
        epoch: int,
        in_order: bool,
    ) -> None:
        self.committed: tuple[Rewritten, ...] = ()
        """The groups that fit the last head."""

        self._metadata = metadata
        self._groups = groups
        self._message = message
        self._epoch = epoch
        self._in_order = in_order
        self._written: Written = {}

    def stage(self, on: Stored, _before: Staged | None) -> Staged:
        """Put the segments in which the outputs of each fitting group replace its inputs.

        Raises:
            NothingToDoError: no group fits this head.
        """
        head = on.snapshot
        wanted = {block.identity for group in self._groups for block in group.inputs}
        segments = self._load_segments(head, wanted)
        places = _places(segments, wanted)
        self.committed = tuple(group for group in self._groups if self._fits(group, head, places))
        if not self.committed:
            raise NothingToDoError
        done = stage_exchange(self._metadata, head, segments, self.committed, self._written)
        summary = _summary(
            head.summary,
            [segments[index].summary for index in done.replaced],
            [segment.summary for segment in done.new],
        )
        return Staged(
            schema=head.schema,
            content=Content.of(head, segments=done.refs, summary=summary, added=done.added),
            message=self._message(self.committed),
        )

    def _load_segments(self, head: Snapshot, wanted: set[Identity]) -> dict[int, Segment]:
        """Return segments of `head` by index, at least those that hold a wanted block."""
        missing = set(wanted)
        found: dict[int, Segment] = {}
        # Newest first: small blocks are new blocks, so old segments are seldom needed.
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
            return False  # a rewind may have given a column its narrower type back
        at = [places.get(block.identity) for block in group.inputs]
        found = [place for place in at if place is not None]
        if len(found) < len(at):
            return False
        return not self._in_order or all(
            _is_next(head, before, after) for before, after in pairwise(found)
        )


def _is_next(head: Snapshot, before: Place, after: Place) -> bool:
    (segment, block), last = before, head.segments[before[0]].block_count - 1
    return after == ((segment + 1, 0) if block == last else (segment, block + 1))


def _summary(totals: Summary, old: Sequence[Summary], new: Sequence[Summary]) -> Summary:
    """Return the totals of a head after the segments `new` have replaced the segments `old`.

    Bounds do not change, since the rows are the same. A column that has statistics only in new
    blocks is null in all other rows.
    """

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
        col_stats={**totals.col_stats, **merge_stats([*unknown, ({}, totals.row_count - rows)])},
    )
