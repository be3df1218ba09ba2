"""Choose the neighbouring blocks that compaction merges. Pure.

As in Databend's Fuse, a block is *perfect* with at least 0.8 of the target's rows or bytes.
Imperfect neighbours are packed until they reach the target, which makes a block of one to two
targets. The rest at the end of a run joins the group before if the two together are below two
targets; otherwise it is a group of its own. A single block is not rewritten.

A block is *due*, whatever its size, if many of its rows are deleted, or some for long: it is
rewritten, alone if it has no imperfect neighbour. Sizes are those of the rows that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from fuse_stream.format.properties import BlockTarget
from fuse_stream.format.records import Block


def plan_packing(
    blocks: Iterable[Block],
    target: BlockTarget,
    *,
    limit: int | None = None,
    tiered: bool = False,
    is_due: Callable[[Block], bool] = lambda _: False,
) -> list[tuple[Block, ...]]:
    """Return groups of neighbouring blocks, each to become one block; two at least, or a due one.

    Args:
        blocks: all blocks of a snapshot, in its order.
        target: the size that blocks should have.
        limit: the most blocks in all groups together.
        tiered: leave out a first block of a group that is larger than the rest together. So a row
            is rewritten a few times while its block grows, and not in every run.
        is_due: whether a block has to be rewritten because of its hidden rows.
    """
    groups: list[tuple[Block, ...]] = []
    left = limit
    for run in _imperfect_runs(blocks, target, is_due):
        for group in _packed(run, target):
            chosen = _without_large_starts(group, is_due) if tiered else group
            if left is not None:
                chosen = chosen[:left]
            if len(chosen) > 1 or any(map(is_due, chosen)):
                groups.append(tuple(chosen))
                left = None if left is None else left - len(chosen)
    return groups


def _imperfect_runs(
    blocks: Iterable[Block], target: BlockTarget, is_due: Callable[[Block], bool]
) -> Iterator[list[Block]]:
    run: list[Block] = []
    for block in blocks:
        if is_due(block) or not target.is_perfect(block):
            run.append(block)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _packed(run: Sequence[Block], target: BlockTarget) -> list[Sequence[Block]]:
    groups: list[list[Block]] = [[]]
    rows = size = 0
    for block in run:
        if rows >= target.rows or size >= target.bytes:
            groups.append([])
            rows = size = 0
        groups[-1].append(block)
        rows, size = rows + block.live_rows, size + block.live_size
    joined = [block for group in groups[-2:] for block in group]
    rows = sum(block.live_rows for block in joined)
    size = sum(block.live_size for block in joined)
    if rows < 2 * target.rows and size < 2 * target.bytes:
        groups[-2:] = [joined]
    return list(groups)


def _without_large_starts(
    group: Sequence[Block], is_due: Callable[[Block], bool]
) -> Sequence[Block]:
    sizes = [block.live_size for block in group]
    start, rest = 0, sum(sizes)
    for block, size in zip(group, sizes, strict=True):
        rest -= size
        if size <= rest or is_due(block):
            break
        start += 1
    return group[start:]
