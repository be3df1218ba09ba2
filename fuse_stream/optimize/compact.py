"""Compaction: merge neighbouring small blocks, and remove deleted rows from blocks.

Rules:
- Rows keep their order (within a block, that of the cluster key); ledger and feed do not change.
  No writer fails because of it: see `commit.replace`.
- Rewritten groups are committed every minute and at the end, so a long run that dies loses little.
- As many groups are rewritten at a time as Arrow has threads, four at most. Each takes the memory
  of up to four blocks of the target size, see `rewrite`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, TypeVar

import pyarrow as pa

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.replace import ReplaceResult, commit_groups
from fuse_stream.commit.stage import Rewritten
from fuse_stream.errors import InvalidInputError
from fuse_stream.format.properties import (
    DELETES_AGE,
    DELETES_ROWS,
    block_target,
    duration_property_us,
    percent_property,
)
from fuse_stream.format.records import Block, Operation, Snapshot
from fuse_stream.format.sides import SideName, side_views
from fuse_stream.format.sizes import size
from fuse_stream.objects.slots import Metadata
from fuse_stream.objects.snapshot_blocks import iter_blocks
from fuse_stream.optimize.overlap import is_sorted_by
from fuse_stream.optimize.packing import plan_packing
from fuse_stream.optimize.rewrite import Group, Rewriter
from fuse_stream.storage.parallel import each

COMMIT_EVERY_S = 60.0
MOST_WORKERS = 4
MIN_LIMIT = 2
"""The least number of blocks: rewriting a single block gains nothing."""
_MARK = ": "
"""Follows the name of a side in the message of its compaction."""

RunGroups: TypeAlias = Callable[[Rewriter, Sequence[Group]], Iterator[Rewritten]]
"""Rewrites groups and yields them in order, each when it and all before it are done."""

Progress: TypeAlias = Callable[[int, int], object]
"""Called with the number of blocks that were rewritten and the number of all to rewrite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """The result of a compaction."""

    snapshot: Snapshot | None = None
    """Its last commit; None if there was nothing to do, or no group was committed."""
    group_count: int = 0
    """The number of groups that were committed; the following figures are theirs."""
    dropped_group_count: int = 0
    """The number of groups of which other commits replaced or removed blocks meanwhile."""
    row_count: int = 0
    blocks_before: int = 0
    blocks_after: int = 0
    bytes_before: int = 0
    """The stored size."""
    bytes_after: int = 0

    def __repr__(self) -> str:
        version = self.snapshot and self.snapshot.version
        return (
            f"CompactionResult(version={version}, blocks={self.blocks_before}->{self.blocks_after},"
            f" bytes={self.bytes_before}->{self.bytes_after}, rows={self.row_count},"
            f" groups={self.group_count}, dropped_groups={self.dropped_group_count})"
        )


Result = TypeVar("Result", bound=CompactionResult)


def compact(
    committer: Committer,
    *,
    limit: int | None = None,
    tiered: bool = False,
    progress: Progress | None = None,
    run: RunGroups | None = None,
) -> CompactionResult:
    """Merge neighbouring small blocks, also of sides; arguments and errors of `Table.compact`.

    `run` rewrites the groups; `run_locally` if not given.
    """
    check_limit(limit)
    head = committer.head().snapshot
    planned: list[tuple[str | None, Snapshot, list[Group]]] = []
    left = limit
    for side, view in ((None, head), *side_views(head).items()):
        if left is not None and left < MIN_LIMIT:
            break
        groups = _groups(committer.metadata, view, limit=left, tiered=tiered)
        planned.append((side, view, groups))
        left = None if left is None else left - _block_count(groups)
    result, done = CompactionResult(), 0
    total = sum(_block_count(groups) for _, _, groups in planned)
    for side, view, groups in planned:
        result = carry_out(
            committer,
            view,
            groups,
            result,
            operation=Operation.COMPACT,
            message=saved if side is None else partial(_saved_in, side),
            run=run or run_locally,
            progress=progress and partial(_report, progress, done, total),
            side=side,
        )
        done += _block_count(groups)
    return result


def _groups(metadata: Metadata, head: Snapshot, *, limit: int | None, tiered: bool) -> list[Group]:
    """Return what to rewrite of the table's rows; of those of a side if `head` is its view."""
    target, is_due = block_target(head.properties), _dues(metadata, head)
    packed = plan_packing(
        iter_blocks(metadata, head), target, limit=limit, tiered=tiered, is_due=is_due
    )
    return [Group(inputs=blocks, level=_level(blocks, head.cluster_key)) for blocks in packed]


def _block_count(groups: Sequence[Group]) -> int:
    return sum(len(group.inputs) for group in groups)


def _report(progress: Progress, before: int, total: int, done: int, _planned: int) -> None:
    progress(before + done, total)


def _dues(metadata: Metadata, head: Snapshot) -> Callable[[Block], bool]:
    """Return whether a block has to be rewritten because of its hidden rows."""
    percent = percent_property(head.properties, DELETES_ROWS)
    since_us = metadata.clock.now_us() - duration_property_us(head.properties, DELETES_AGE)
    old = {
        block_id
        for ref in head.deletion_files
        if ref.since_us <= since_us
        for block_id in metadata.deletions.load(ref).hidden
    }

    def is_due(block: Block) -> bool:
        if block.hidden is None:
            return False
        return block.id in old or len(block.hidden) * 100 >= block.row_count * percent

    return is_due


def check_limit(limit: int | None) -> None:
    """Raise unless a limit is None or a number of blocks, at least `MIN_LIMIT`.

    Raises:
        InvalidInputError: the limit is neither.
    """
    if limit is not None and (type(limit) is not int or limit < MIN_LIMIT):
        raise InvalidInputError(f"limit must be a number of blocks, from {MIN_LIMIT}", limit=limit)


def carry_out(
    committer: Committer,
    head: Snapshot,
    groups: Sequence[Group],
    result: Result,
    *,
    operation: Operation,
    message: Callable[[Sequence[Rewritten]], str],
    run: RunGroups,
    progress: Progress | None = None,
    side: str | None = None,
) -> Result:
    """Rewrite and commit groups that were planned on `head`; return `result` with them added.

    With `side`, `head` is the view of that side.

    Raises:
        CorruptObjectError: a block is damaged or missing; commits made before that remain.
        ConflictError: as `commit_groups`.
        CommitStateUnknownError: as `commit_groups`.
    """
    if not groups:
        return result
    committer.prepare()
    clock = committer.metadata.clock
    rewriter = Rewriter(
        store=committer.metadata.store,
        schema=head.schema,
        cluster_key=head.cluster_key,
        target=block_target(head.properties),
        clock=clock,
    )
    done: list[Rewritten] = []
    done_blocks, total = 0, sum(len(group.inputs) for group in groups)
    since_s = clock.monotonic_s()
    for count, rewritten in enumerate(run(rewriter, groups), 1):
        done.append(rewritten)
        done_blocks += len(rewritten.inputs)
        if progress is not None:
            progress(done_blocks, total)
        if count == len(groups) or clock.monotonic_s() - since_s > COMMIT_EVERY_S:
            outcome = commit_groups(
                committer,
                done,
                operation=operation,
                message=message,
                epoch=head.epoch,
                in_order=operation is Operation.COMPACT,
                side=side,
            )
            result = _with_commit(result, outcome)
            done, since_s = [], clock.monotonic_s()
    return result


def run_locally(rewriter: Rewriter, groups: Sequence[Group]) -> Iterator[Rewritten]:
    """Rewrite groups in this process, several at a time if the store allows it; yield each."""
    workers = min(pa.cpu_count(), MOST_WORKERS)
    return each(rewriter.run, groups, rewriter.store, at_once=workers)


def saved(groups: Sequence[Rewritten]) -> str:
    """Return the commit message for groups: blocks and stored bytes, before and after."""
    before, after = (
        [block for group in groups for block in getattr(group, name)]
        for name in ("inputs", "outputs")
    )
    sizes = [size(sum(block.file_size for block in blocks)) for blocks in (before, after)]
    return f"{len(before):,} blocks -> {len(after):,}, {sizes[0]} -> {sizes[1]}"


def find_compacted_side(snapshot: Snapshot) -> str | None:
    """Return the side that a compaction is about; None for the table's rows and other commits.

    Only the message says it: the compaction may have removed the side.
    """
    side, mark, _ = snapshot.message.partition(_MARK)
    is_known = snapshot.operation is Operation.COMPACT and mark and side in list(SideName)
    return side if is_known else None


def _saved_in(side: str, groups: Sequence[Rewritten]) -> str:
    return f"{side}{_MARK}{saved(groups)}"


def _level(blocks: Sequence[Block], cluster_key: tuple[int, ...]) -> int:
    """Return the least number of times that these rows were reclustered by this key."""
    return min(
        block.cluster_stats.level if block.cluster_stats and is_sorted_by(block, cluster_key) else 0
        for block in blocks
    )


def _with_commit(before: Result, outcome: ReplaceResult) -> Result:
    inputs = [block for group in outcome.committed for block in group.inputs]
    outputs = [block for group in outcome.committed for block in group.outputs]
    return replace(
        before,
        snapshot=outcome.snapshot or before.snapshot,
        group_count=before.group_count + len(outcome.committed),
        dropped_group_count=before.dropped_group_count + len(outcome.dropped),
        row_count=before.row_count + sum(block.row_count for block in outputs),
        blocks_before=before.blocks_before + len(inputs),
        blocks_after=before.blocks_after + len(outputs),
        bytes_before=before.bytes_before + sum(block.file_size for block in inputs),
        bytes_after=before.bytes_after + sum(block.file_size for block in outputs),
    )
