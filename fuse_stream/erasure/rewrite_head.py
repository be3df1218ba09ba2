"""Erase rows of a branch's head: rewrite every block that holds one, hidden or not.

Rules:
- The commit has the effect of an erasure that runs alone on the head on which it lands. On another
  head, rows are looked for in the blocks that came, and a block is rewritten again if a row that
  was left out is shown there.
- A new block has no row that matches, and none that was hidden when its block was read. Rows that
  were hidden since are hidden in the new block.
- The sides are lists of rows of their own, and are erased from by the same commit.
- Bounds are values: the totals of the snapshot are computed from all segments, not from the head's,
  whose bounds may come from rows that no block has any more.
- Parts of indexes hold values, too: the commit drops each part that covers a block which the head
  does not have after it. A list of indexes that cannot be read is dropped as a whole.
- Two epochs after the first block was put, vacuum may have deleted it: then all is written again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.moved_rows import find_moved
from fuse_stream.commit.plan import Content, Intent, NothingToDoError, Staged, may_be_gone
from fuse_stream.commit.replace import Written, stage_exchange, stage_hidden
from fuse_stream.commit.stage import Rewritten
from fuse_stream.dml.find import Progress, RowFinder
from fuse_stream.erasure.search import views_of
from fuse_stream.erasure.sought import ROWS, Sought
from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.indexes import IndexListRef
from fuse_stream.format.one_line import one_line
from fuse_stream.format.positions import Positions
from fuse_stream.format.private import describing_less, private_leaves
from fuse_stream.format.properties import block_target
from fuse_stream.format.records import (
    Block,
    ColumnStats,
    DeletionFileRef,
    Operation,
    Segment,
    SegmentRef,
    Snapshot,
    Summary,
)
from fuse_stream.format.stats import merge_summaries
from fuse_stream.objects.indexes import load_index_list, store_index_list
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.objects.snapshot_blocks import iter_blocks
from fuse_stream.optimize.compact import run_locally
from fuse_stream.optimize.overlap import is_sorted_by
from fuse_stream.optimize.rewrite import Group, Rewriter
from fuse_stream.reading.scan import stats_may_match

_NOTHING = ColumnStats(null_count=0, in_memory_size=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedSide:
    """The erasure of one side of a branch's head."""

    name: str
    row_count: int = 0
    hidden_count: int = 0
    block_count: int = 0
    """Counts as in `ErasedBranch`."""
    unjudged_count: int = 0
    """The number of rows that a reader can see, and that stay because the predicate cannot say
    whether they are sought: the side lacks a column, or has a mere text."""

    __repr__ = one_line("name row_count hidden_count block_count unjudged_count")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedBranch:
    """The erasure of one branch's head; the counts are of the table's own rows."""

    branch: str
    snapshot: Snapshot | None = None
    """The commit; None if the head had nothing to erase, or for a dry run."""
    row_count: int = 0
    """The number of rows that a reader could see."""
    hidden_count: int = 0
    """The number of rows that were deleted, and were still in a block."""
    block_count: int = 0
    """The number of blocks that were rewritten."""
    sides: tuple[ErasedSide, ...] = ()
    """The sides of the head."""

    __repr__ = one_line("branch version=snapshot.version row_count hidden_count block_count sides")


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A block that holds sought rows."""

    block: Block
    """With the rows that the head hides."""
    rows: Positions
    """The sought rows, hidden ones included."""

    @property
    def shown_count(self) -> int:
        """The number of the sought rows that are not hidden."""
        return len(self.rows - self.block.hidden) if self.block.hidden else len(self.rows)


def erase_head(
    committer: Committer,
    sought: Sought,
    *,
    dry_run: bool = False,
    author: str = "",
    message: str = "",
    progress: Progress | None = None,
) -> ErasedBranch:
    """Erase the rows of a branch's head; the arguments and errors of `Table.erase`."""
    erasure = _HeadErasure(committer.metadata, sought, progress, message=message)
    erasure.find(committer.head().snapshot)  # raises before anything is written
    done = ErasedBranch(branch=committer.branch.name)
    if dry_run:
        return erasure.counted(done)
    intent = Intent(operation=Operation.ERASE, author=author, message=message)
    try:
        stored = committer.commit(intent, erasure.stage).stored
    except NothingToDoError:
        return replace(done, sides=erasure.counted(done).sides)
    return replace(erasure.counted(done), snapshot=stored.snapshot)


class _HeadErasure:
    """Stages an erasure on one head after another, with its sides."""

    def __init__(
        self, metadata: Metadata, sought: Sought, progress: Progress | None, *, message: str
    ) -> None:
        self._metadata = metadata
        self._sought = sought
        self._progress = progress
        self._message = message
        self._lists: dict[str, _ListErasure] = {}
        self._views: dict[str, Snapshot] = {}
        """Those of the last head."""

    def find(self, head: Snapshot) -> None:
        """Search a head and its sides."""
        self._views = dict(views_of(head))
        for name, view in self._views.items():
            self._list(name).find(view)

    def _list(self, name: str) -> _ListErasure:
        if name not in self._lists:
            self._lists[name] = _ListErasure(self._metadata, self._sought.of(name), self._progress)
        return self._lists[name]

    def counted(self, done: ErasedBranch) -> ErasedBranch:
        """Return `done` with the counts of what was found on the last head."""
        sides = tuple(
            ErasedSide(
                name=name,
                row_count=_shown(found),
                hidden_count=_held(found) - _shown(found),
                block_count=len(found),
                unjudged_count=self._lists[name].unjudged_count(view),
            )
            for name, view in self._views.items()
            if name != ROWS
            for found in (self._lists[name].found,)
        )
        found = self._lists[ROWS].found
        return replace(
            done,
            row_count=_shown(found),
            hidden_count=_held(found) - _shown(found),
            block_count=len(found),
            sides=sides,
        )

    def stage(self, on: Stored, _before: Staged | None) -> Staged:
        """Put the blocks without the rows, and the segments and deletion files that name them.

        Raises:
            NothingToDoError: the head neither holds the rows nor shows bounds of other rows than
                those of its blocks.
        """
        head = on.snapshot
        self.find(head)
        changed = {
            name: done
            for name, view in self._views.items()
            if (done := self._lists[name].stage(view)) is not None
        }
        found = [match for name in self._views for match in self._lists[name].found]
        indexes = self._kept_indexes(head, {match.block.id for match in found})
        if not changed and indexes == head.index_list:
            raise NothingToDoError
        content = Content.of(
            head,
            sides={
                name: replace(side, **changed[name].fields) if name in changed else side
                for name, side in head.sides.items()
            },
        )
        if own := changed.get(ROWS):
            content = replace(content, added=own.added, **own.fields)
        return Staged(
            schema=head.schema,
            content=content,
            index_list=indexes,
            message=self._message or _said(found),
        )

    def _kept_indexes(self, head: Snapshot, leaving: set[str]) -> IndexListRef | None:
        """Put the list of indexes without the parts that cover blocks which the head lacks.

        `leaving` are the ids of blocks that are rewritten. Returns the head's reference if all
        parts stay.
        """
        if head.index_list is None:
            return None
        try:
            indexes = load_index_list(self._metadata, head.index_list)
        except CorruptObjectError:
            return None
        held = {block.id for block in iter_blocks(self._metadata, head)} - leaving
        parts = tuple(part for part in indexes.parts if held.issuperset(part.blocks))
        if parts == indexes.parts:
            return head.index_list
        return store_index_list(self._metadata, replace(indexes, parts=parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changed:
    """A list of rows after the erasure."""

    segments: tuple[SegmentRef, ...]
    summary: Summary
    deletion_files: tuple[DeletionFileRef, ...]
    added: tuple[str, ...]

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that a snapshot and a side have."""
        return {
            "segments": self.segments,
            "summary": self.summary,
            "deletion_files": self.deletion_files,
        }


class _ListErasure:
    """Erases from one list of one head after another; reuses what still fits."""

    def __init__(self, metadata: Metadata, sought: Sought, progress: Progress | None) -> None:
        self.found: list[Match] = []
        """The rows on the last head."""

        self._metadata = metadata
        self._sought = sought
        self._finder = RowFinder(metadata)
        self._progress = progress
        self._rewriter: Rewriter | None = None
        self._epoch = 0
        """That of the head for which the first of the blocks was put."""
        self._done: dict[str, Rewritten] = {}
        """By the id of the block."""
        self._written: Written = {}

    def find(self, head: Snapshot) -> None:
        """Find the blocks that hold sought rows, oldest first; `head` shows this list alone."""
        test = self._sought.test(head.schema)
        blocks = [
            block
            for block in iter_blocks(self._metadata, head)
            if stats_may_match(test.selection, block.col_stats, block.row_count)
        ]
        self.found = []
        searched = self._finder.search(blocks, test.selection, test.keeps)
        for done, (block, rows) in enumerate(searched, 1):
            if rows:
                self.found.append(Match(block=block, rows=rows))
            if self._progress is not None:
                self._progress(done, len(blocks))

    def unjudged_count(self, head: Snapshot) -> int:
        """Return how many rows that `head` shows can be neither judged nor erased."""
        test = self._sought.test(head.schema)
        if test.unjudged is None:
            return 0 if self._sought.can_judge(head.schema) else head.summary.row_count
        blocks = list(iter_blocks(self._metadata, head))
        found = RowFinder(self._metadata).search(blocks, test.selection, test.unjudged)
        return sum(len(rows - block.hidden if block.hidden else rows) for block, rows in found)

    def stage(self, head: Snapshot) -> _Changed | None:
        """Put what was found without the rows; return None if nothing changes."""
        metadata = self._metadata
        self._forget_what_misfits(head)
        groups = self._rewritten(head)
        segments = {
            index: metadata.load_segment(ref, head.schema.leaf_types)
            for index, ref in enumerate(head.segments)
        }
        late = dict(self._moved(head, groups))
        done = stage_exchange(metadata, head, segments, groups, self._written)
        summary = _summary(head, done.replaced, segments, [new.summary for new in done.new])
        if not groups and not _shows_more(head.summary, summary):
            return None
        leaving = {match.block.id for match in self.found}
        return _Changed(
            segments=done.refs,
            summary=summary,
            deletion_files=stage_hidden(metadata, head, leaving=leaving, hidden=late),
            added=done.added,
        )

    def _forget_what_misfits(self, head: Snapshot) -> None:
        """Drop blocks and segments that were put for an earlier head and do not fit this one."""
        rewriter = Rewriter(
            store=self._metadata.store,
            schema=head.schema,
            cluster_key=head.cluster_key,
            target=block_target(head.properties),
            clock=self._metadata.clock,
        )
        if rewriter != self._rewriter or may_be_gone(self._epoch, head):
            self._rewriter, self._epoch = rewriter, head.epoch
            self._done.clear()
            self._written.clear()

    def _rewritten(self, head: Snapshot) -> list[Rewritten]:
        """Return each block with sought rows, and the blocks that replace it on this head."""
        missing: list[Group] = []
        for match in self.found:
            block = match.block
            left_out = match.rows | (block.hidden or Positions())
            known = self._done.get(block.id)
            if known is not None and (known.inputs[0].hidden or Positions()).issubset(left_out):
                continue
            level = 0
            if block.cluster_stats is not None and is_sorted_by(block, head.cluster_key):
                level = block.cluster_stats.level
            missing.append(Group(inputs=(block.hiding(left_out),), level=level))
        if missing and self._rewriter is not None:
            for done in run_locally(self._rewriter, missing):
                self._done[done.inputs[0].id] = done
        return [self._done[match.block.id] for match in self.found]

    def _moved(self, head: Snapshot, groups: list[Rewritten]) -> Iterator[tuple[str, Positions]]:
        """Yield the rows of the new blocks that were hidden since their blocks were rewritten."""
        for match, group in zip(self.found, groups, strict=True):
            left_out = group.inputs[0].hidden or Positions()
            late = (match.block.hidden or Positions()) - left_out
            rows = {match.block.id: late} if late else {}
            yield from find_moved(self._metadata.store, head.schema, group, rows).items()


def _shown(found: list[Match]) -> int:
    return sum(match.shown_count for match in found)


def _held(found: list[Match]) -> int:
    return sum(len(match.rows) for match in found)


def _summary(
    head: Snapshot,
    replaced: frozenset[int],
    segments: dict[int, Segment],
    new: list[Summary],
) -> Summary:
    """Return the totals of a head of which the segments `new` have replaced some."""
    kept = [segments[index].summary for index in segments if index not in replaced]
    parts = [*kept, *new]
    total = merge_summaries(parts) if parts else Summary()
    return describing_less(total, private_leaves(head.schema, head.properties))


def _shows_more(held: Summary, exact: Summary) -> bool:
    """True if a head's totals show a bound that is not one of its blocks any more."""
    for column, stats in held.col_stats.items():
        now = exact.col_stats.get(column, _NOTHING)
        for before, after in ((stats.min, now.min), (stats.max, now.max)):
            if before is not None and before != after:
                return True
    return False


def _said(found: list[Match]) -> str:
    """Return the commit's message: counts alone, for it must not hold the value."""
    rows = sum(len(match.rows) for match in found)
    return f"{rows:,} rows erased from {len(found):,} blocks"
