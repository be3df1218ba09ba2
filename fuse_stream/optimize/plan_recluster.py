"""Choose the blocks of a clustered table that are sorted together next. Pure.

Rules:
- A block that was not written for the table's key is always taken, the oldest first.
- Of the others none is taken while their average depth is not above the threshold.
- Here, blocks overlap if they share more than one key: sorting cannot separate others. So blocks
  with a single key each, and blocks that share a single key, are not taken, however many there are.
- A group has blocks of one level. Groups are chosen where the blocks are deepest: first in levels
  that are too deep by themselves, then in the lowest level that overlaps. The new blocks are one
  level higher, so a row's level counts its rewrites. Blocks of different levels are not sorted
  together: a wide block and a narrow one would make two wide ones.
- Blocks of the last level are not taken: sorting cannot separate their bounds.
- One group fits into memory: its blocks have at most `GROUP_TARGETS` times the target's bytes,
  unless there are only two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from fuse_stream.format.properties import BlockTarget
from fuse_stream.format.records import Block
from fuse_stream.optimize.overlap import Span, depths_of, extent_of, is_sorted_by, mean, spans_of
from fuse_stream.optimize.rewrite import Group

GROUP_TARGETS = 4
"""The most uncompressed bytes of a group, in targets: all are in memory while they are sorted."""
LAST_LEVEL = 100
"""The level of blocks that are not taken any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    block: Block
    level: int
    low: int
    high: int


def plan_recluster(
    blocks: Sequence[Block],
    cluster_key: tuple[int, ...],
    *,
    depth: int,
    target: BlockTarget,
    limit: int | None = None,
) -> tuple[Group, ...]:
    """Return groups of blocks, each to be sorted by itself; none if the depth is low enough.

    Args:
        blocks: the blocks of a snapshot, oldest first.
        cluster_key: the snapshot's cluster key.
        depth: the highest average depth at which no group is needed.
        target: the size that blocks should have.
        limit: the most blocks in all groups together.
    """
    most_bytes = GROUP_TARGETS * target.bytes
    unsorted = [block for block in blocks if not is_sorted_by(block, cluster_key)]
    sizes = [block.block_size for block in unsorted]
    parts = _that_fit(sizes, most_bytes, at_least=1)
    groups = [Group(inputs=tuple(unsorted[part]), level=1) for part in parts]
    groups += _overlapping(_candidates(blocks, cluster_key), depth, most_bytes, limit)
    return tuple(_within(groups, limit))


def depth_between(blocks: Sequence[Block], cluster_key: tuple[int, ...]) -> int:
    """Return the most blocks that overlap between two neighbouring keys, not just at one key."""
    spans = spans_of(extent_of(block, cluster_key) for block in blocks)
    return max(_depths_of_gaps(spans), default=0)


def _candidates(blocks: Iterable[Block], cluster_key: tuple[int, ...]) -> list[_Candidate]:
    """Return the blocks whose extents may get narrower by sorting them with others."""
    known = [
        (block, block.cluster_stats.level, extent_of(block, cluster_key))
        for block in blocks
        if block.cluster_stats is not None and is_sorted_by(block, cluster_key)
    ]
    wide = [
        (block, level, extent)
        for block, level, extent in known
        if extent.low != extent.high and level < LAST_LEVEL
    ]
    spans = spans_of(extent for _, _, extent in wide)
    return [
        _Candidate(block=block, level=level, low=low, high=high)
        for (block, level, _), (low, high) in zip(wide, spans, strict=True)
    ]


def _overlapping(
    candidates: list[_Candidate], depth: int, most_bytes: int, limit: int | None
) -> list[Group]:
    if mean(depths_of([(each.low, each.high) for each in candidates])) <= depth:
        return []
    levels = sorted({each.level for each in candidates})
    layers = [[each for each in candidates if each.level == level] for level in levels]
    deep = [group for layer in layers for group in _groups(layer, depth, most_bytes, limit)]
    if deep:
        return deep
    for layer in layers:
        if groups := list(_groups(layer, 1, most_bytes, limit)):
            return groups
    return []


def _groups(
    layer: list[_Candidate], deeper_than: int, most_bytes: int, limit: int | None
) -> Iterator[Group]:
    """Yield groups from each depth of more than `deeper_than`, deepest first; no block twice."""
    lows = np.array([each.low for each in layer])
    highs = np.array([each.high for each in layer])
    is_free = np.ones(len(layer), bool)
    taken = 0
    for gap in _peaks(_depths_of_gaps([(each.low, each.high) for each in layer]), deeper_than):
        if limit is not None and taken >= limit:
            return
        pile = np.flatnonzero(is_free & (lows <= gap) & (highs > gap))
        if len(pile) <= deeper_than:
            continue
        members = [int(at) for at in sorted(pile, key=lambda at: (lows[at], highs[at]))]
        sizes = [layer[at].block.block_size for at in members]
        for part in _that_fit(sizes, most_bytes, at_least=2):
            chosen = [layer[at] for at in members[part]]
            if len(chosen) > 1:
                is_free[members[part]] = False
                taken += len(chosen)
                yield Group(inputs=tuple(each.block for each in chosen), level=chosen[0].level + 1)


def _peaks(depths: list[int], deeper_than: int) -> list[int]:
    """Return the gaps at which the depth has a local maximum, deepest first."""
    beside = [0, *depths, 0]
    peaks = [
        gap
        for gap, depth in enumerate(depths)
        if depth > deeper_than and beside[gap] <= depth > beside[gap + 2]
    ]
    return sorted(peaks, key=lambda gap: (-depths[gap], gap))


def _depths_of_gaps(spans: Sequence[Span]) -> list[int]:
    """Return how many spans cover each gap, which is the space between two neighbouring ranks."""
    changes = [0] * (max((high for _, high in spans), default=0) + 1)
    for low, high in spans:
        changes[low] += 1
        changes[high] -= 1
    return list(accumulate(changes[:-1]))


def _that_fit(sizes: Sequence[int], most: int, *, at_least: int) -> Iterator[slice]:
    """Yield slices of neighbours with a total of at most `most`, or of `at_least` neighbours."""
    start = total = 0
    for at, size in enumerate(sizes):
        if total + size > most and at - start >= at_least:
            yield slice(start, at)
            start, total = at, 0
        total += size
    if sizes:
        yield slice(start, len(sizes))


def _within(groups: Iterable[Group], limit: int | None) -> Iterator[Group]:
    """Yield `groups` up to `limit` blocks in all; the last one is shortened."""
    for group in groups:
        if limit is None:
            yield group
            continue
        inputs = group.inputs[:limit]
        if len(inputs) == len(group.inputs) or len(inputs) > 1:
            yield replace(group, inputs=inputs)
        limit -= len(inputs)
