"""Replace blocks of the newest head by rewritten ones.

Rules:
- Blocks are matched by id, never by segment: other commits may have moved them to other segments.
- New blocks take the place of the first input; those of a group without inputs come last.
  Segments without an input do not change; neighbours with inputs become one, up to `MAX_BLOCKS`.
- `commit_groups` commits a group whole or not at all. It drops a group if an input is gone, or if
  the group was written for another schema than the head's, and commits the rest. So no other
  writer fails because of it, and it does not fail because of them.
- New blocks have no row that was hidden when the inputs were read. Rows that were hidden since are
  hidden in the new blocks. A group is dropped if such a left-out row is shown again meanwhile.
- No deletion file names a block that is not in the segments: those that name a replaced block are
  rewritten without it.
- Two epochs after the first block was put, vacuum may have deleted it: then nothing is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.moved_rows import find_moved
from fuse_stream.commit.plan import Content, Intent, NothingToDoError, Staged, may_be_gone
from fuse_stream.commit.rollup import MAX_BLOCKS
from fuse_stream.commit.stage import Rewritten, StagedSegment, stage_deletions, stage_segment
from fuse_stream.format.deletions import DeletionFile
from fuse_stream.format.positions import BlockRows, Positions, others
from fuse_stream.format.records import (
    Block,
    DeletionFileRef,
    Operation,
    Segment,
    SegmentRef,
    Snapshot,
    Summary,
)
from fuse_stream.format.sides import side_or_empty
from fuse_stream.format.stats import merge_stats
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.objects.snapshot_blocks import hidden_in

Place = tuple[int, int]
"""(segment, block within it), both counted from 0."""

Written = dict[tuple[int, tuple[str, ...]], list[StagedSegment]]
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

    The schema of `head` has all columns of the blocks. `segments` are segments of it by index, at
    least those that hold an input. Segments that were put for an earlier head, `written`, are used
    again; those put now are added to them.
    """
    written = {} if written is None else written
    leaving = {block.id for group in groups for block in group.inputs}
    places = _places(segments, leaving)
    replaced = frozenset(index for index, _ in places.values())
    coming = {
        min(places[block.id] for block in group.inputs): group.outputs
        for group in groups
        if group.inputs
    }
    refs: list[SegmentRef] = []
    new: list[StagedSegment] = []

    def put(blocks: Sequence[Block], level: int) -> None:
        key = level, tuple(block.id for block in blocks)
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


def stage_hidden(
    metadata: Metadata, head: Snapshot, *, leaving: Collection[str], hidden: BlockRows
) -> tuple[DeletionFileRef, ...]:
    """Put and return the deletion files of `head` after some of its blocks have changed.

    Those that name a block in `leaving` are rewritten without it; then some are added for `hidden`:
    rows of new blocks, and of blocks in `leaving` that are still there.
    """
    deletions, new_id = metadata.deletions, metadata.clock.new_id
    refs: list[DeletionFileRef] = []
    since_us = head.timestamp_us
    for ref in head.deletion_files:
        before = deletions.load(ref).hidden
        kept = {block_id: rows for block_id, rows in before.items() if block_id not in leaving}
        if len(kept) == len(before):
            refs.append(ref)
            continue
        since_us = min(since_us, ref.since_us)
        if kept:
            file = DeletionFile(hidden=kept)
            refs.append(
                deletions.put(file, file_id=new_id(), level=ref.level, since_us=ref.since_us)
            )
    added = {block_id: rows for block_id, rows in hidden.items() if rows}
    return (*refs, *stage_deletions(metadata, added, since_us=since_us))


def stage_difference(
    metadata: Metadata,
    head: Snapshot,
    segments: Mapping[int, Segment],
    *,
    removed: Sequence[Block],
    inserted: Sequence[Block],
) -> tuple[Exchange, tuple[DeletionFileRef, ...]]:
    """Put the segments and deletion files of `head` without some rows, and with some others.

    `removed` and `inserted` show the rows: the head shows the former, and not the latter. A block
    that the head does not have is added; one that would show no row any more is taken out.
    """
    hidden = hidden_in(metadata, head)
    standing = {
        block.id: block.hiding(hidden.get(block.id))
        for segment in segments.values()
        for block in segment.blocks
    }
    shown = {block.id: standing[block.id].shown - block.shown for block in removed}
    counts = {block.id: block.row_count for block in (*removed, *inserted)}
    for block in inserted:
        if block.id not in shown:
            shown[block.id] = standing[block.id].shown if block.id in standing else Positions()
        shown[block.id] |= block.shown
    leaving = tuple(standing[at] for at, rows in shown.items() if at in standing and not rows)
    # A block that shows no row would come back with all of them: no deletion file would name it.
    coming = tuple(block for block in inserted if block.id not in standing and shown[block.id])
    left = {at: others(rows, counts[at]) for at, rows in shown.items() if rows}
    group = Rewritten(inputs=leaving, outputs=coming)
    return (
        stage_exchange(metadata, head, segments, [group]),
        stage_hidden(metadata, head, leaving=shown.keys(), hidden=left),
    )


def _places(segments: Mapping[int, Segment], wanted: set[str]) -> dict[str, Place]:
    """Return the position of each wanted block that is in `segments`."""
    return {
        block.id: (index, offset)
        for index, segment in segments.items()
        for offset, block in enumerate(segment.blocks)
        if block.id in wanted
    }


def _exchanged(
    segment: Segment, index: int, leaving: set[str], coming: Mapping[Place, tuple[Block, ...]]
) -> Iterator[Block]:
    for offset, block in enumerate(segment.blocks):
        yield from coming.get((index, offset), ())
        if block.id not in leaving:
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
    side: str | None = None,
) -> ReplaceResult:
    """Commit the rewritten groups whose inputs are all still in the head.

    `message` returns the snapshot's message for the groups that are committed. `epoch` is that of a
    head that was read before the first block was put. With `in_order` a group whose inputs are no
    longer neighbours is dropped, too. With `side` they are blocks of that side.

    Raises:
        ConflictError: other writers won every attempt; nothing was committed, try again.
        CommitStateUnknownError: the store failed; the commit may have landed.
    """
    replacement = _Replacement(
        committer.metadata, done, message, epoch=epoch, in_order=in_order, side=side
    )
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
        side: str | None,
    ) -> None:
        self.committed: tuple[Rewritten, ...] = ()
        """The groups that fit the last head."""

        self._metadata = metadata
        self._groups = groups
        self._message = message
        self._epoch = epoch
        self._in_order = in_order
        self._side = side
        self._written: Written = {}

    def stage(self, on: Stored, _before: Staged | None) -> Staged:
        """Put the segments in which the outputs of each fitting group replace its inputs.

        Raises:
            NothingToDoError: no group fits this head.
        """
        head = on.snapshot if self._side is None else side_or_empty(on.snapshot, self._side)
        wanted = {block.id for group in self._groups for block in group.inputs}
        segments = self._load_segments(head, wanted)
        places = _places(segments, wanted)
        hidden = hidden_in(self._metadata, head)
        self.committed = tuple(
            group
            for group in self._groups
            if self._fits(group, head, places) and not _shows_again(group, hidden)
        )
        if not self.committed:
            raise NothingToDoError
        leaving = {block.id for group in self.committed for block in group.inputs}
        late: dict[str, Positions] = {}
        for group in self.committed:
            late |= find_moved(
                self._metadata.store, head.schema, group, _hidden_since(group, hidden)
            )
        done = stage_exchange(self._metadata, head, segments, self.committed, self._written)
        summary = _summary(
            replace(head.summary, row_count=head.stored_rows),
            [segments[index].summary for index in done.replaced],
            [segment.summary for segment in done.new],
        )
        deletion_files = stage_hidden(self._metadata, head, leaving=leaving, hidden=late)
        if self._side is None:
            content = Content.of(
                head,
                segments=done.refs,
                summary=summary,
                added=done.added,
                deletion_files=deletion_files,
            )
        else:
            side = replace(
                on.snapshot.sides[self._side],
                segments=done.refs,
                summary=summary,
                deletion_files=deletion_files,
            )
            content = Content.of(on.snapshot, sides={**on.snapshot.sides, self._side: side})
        return Staged(
            schema=on.snapshot.schema, content=content, message=self._message(self.committed)
        )

    def _load_segments(self, head: Snapshot, wanted: set[str]) -> dict[int, Segment]:
        """Return segments of `head` by index, at least those that hold a wanted block."""
        missing = set(wanted)
        found: dict[int, Segment] = {}
        # Newest first: small blocks are new blocks, so old segments are seldom needed.
        for index in range(len(head.segments) - 1, -1, -1):
            if not missing:
                break
            ref = head.segments[index]
            found[index] = self._metadata.load_segment(ref, head.schema.leaf_types)
            missing -= {block.id for block in found[index].blocks}
        return found

    def _fits(self, group: Rewritten, head: Snapshot, places: Mapping[str, Place]) -> bool:
        if may_be_gone(self._epoch, head):
            return False
        if any(block.schema_id != head.schema.id for block in group.outputs):
            return False  # a rewind may have given a column its narrower type back
        at = [places.get(block.id) for block in group.inputs]
        found = [place for place in at if place is not None]
        if len(found) < len(at):
            return False
        return not self._in_order or all(
            _is_next(head, before, after) for before, after in pairwise(found)
        )


def _shows_again(group: Rewritten, hidden: BlockRows) -> bool:
    """True if a row that was left out of a rewritten group is not hidden any more."""
    return any(
        block.hidden is not None and not block.hidden.issubset(hidden.get(block.id, Positions()))
        for block in group.inputs
    )


def _hidden_since(group: Rewritten, hidden: BlockRows) -> dict[str, Positions]:
    """Return the rows of a group's inputs that were hidden after it was rewritten."""
    late = {
        block.id: hidden[block.id] - (block.hidden or Positions())
        for block in group.inputs
        if block.id in hidden
    }
    return {block_id: rows for block_id, rows in late.items() if rows}


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
    known = totals.col_stats
    unknown = [
        ({c: stats for c, stats in item.col_stats.items() if c not in known}, item.row_count)
        for item in new
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
