"""Choose the neighbouring blocks that compaction merges. Pure.

As in Databend's Fuse, a block is *perfect* with at least 0.8 of the target's rows or bytes.
Imperfect neighbours are packed until they reach the target, which makes a block of one to two
targets. The rest at the end of a run joins the group before if the two together are below two
targets; otherwise it is a group of its own. A single block is not rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fuse_stream.format.properties import BlockTarget
from fuse_stream.format.records import Block


def plan_packing(
    blocks: Iterable[Block], target: BlockTarget, *, limit: int | None = None, tiered: bool = False
) -> list[tuple[Block, ...]]:
    """Return groups of at least two neighbouring blocks, each group to become one block.

    Args:
        blocks: all blocks of a snapshot, in its order.
        target: the size that blocks should have.
        limit: the most blocks in all groups together.
        tiered: leave out a first block of a group that is larger than the rest together. So a row
            is rewritten a few times while its block grows, and not in every run.
    """
    groups: list[tuple[Block, ...]] = []
    left = limit
    for run in _imperfect_runs(blocks, target):
        for group in _packed(run, target):
            chosen = _without_large_starts(group) if tiered else group
            if left is not None:
                chosen = chosen[:left]
                left -= len(chosen) if len(chosen) > 1 else 0
            if len(chosen) > 1:
                groups.append(tuple(chosen))
    return groups


def _imperfect_runs(blocks: Iterable[Block], target: BlockTarget) -> Iterator[list[Block]]:
    run: list[Block] = []
    for block in blocks:
        if not target.is_perfect(block):
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
        rows, size = rows + block.row_count, size + block.block_size
    joined = [block for group in groups[-2:] for block in group]
    rows, size = _totals(joined)
    if rows < 2 * target.rows and size < 2 * target.bytes:
        groups[-2:] = [joined]
    return list(groups)


def _totals(blocks: Sequence[Block]) -> tuple[int, int]:
    return sum(block.row_count for block in blocks), sum(block.block_size for block in blocks)


def _without_large_starts(group: Sequence[Block]) -> Sequence[Block]:
    sizes = [block.block_size for block in group]
    start, rest = 0, sum(sizes)
    for size in sizes:
        rest -= size
        if size <= rest:
            break
        start += 1
    return group[start:]
