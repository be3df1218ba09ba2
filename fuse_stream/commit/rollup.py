"""Roll up segments: merge neighbours of one level into one segment of the next level.

So a snapshot names O(log n) segments after n appends, and a commit reads none of them.
"""

from __future__ import annotations

from itertools import accumulate, groupby

from fuse_stream.commit.plan import Rollup
from fuse_stream.commit.stage import stage_segment
from fuse_stream.format.records import SegmentRef, Snapshot
from fuse_stream.format.stats import merge_summaries
from fuse_stream.objects.slots import Metadata

FAN_IN = 16
"""How many neighbours of one level are merged."""
MAX_BLOCKS = 1000
"""The most blocks in a merged segment."""
FORCED_AT = 64
"""With this many neighbours of one level, the next commit merges some before its put."""


def choose_rollup(segments: tuple[SegmentRef, ...]) -> tuple[SegmentRef, ...]:
    """Return the oldest neighbours that should become one segment; empty if none should."""
    for _, run in groupby(segments, key=lambda ref: ref.level):
        neighbours = list(run)
        if len(neighbours) < FAN_IN:
            continue
        # A full segment must not prevent the merge of the segments after it.
        for start in range(len(neighbours) - FAN_IN + 1):
            chosen = _that_fit(neighbours[start : start + FAN_IN])
            if len(chosen) > 1:
                return chosen
    return ()


def _that_fit(neighbours: list[SegmentRef]) -> tuple[SegmentRef, ...]:
    blocks = accumulate(ref.block_count for ref in neighbours)
    return tuple(ref for ref, total in zip(neighbours, blocks, strict=True) if total <= MAX_BLOCKS)


def must_roll_up(segments: tuple[SegmentRef, ...]) -> bool:
    """True if the next commit has to merge neighbours: there are `FORCED_AT` of one level."""
    return any(
        sum(1 for _ in run) >= FORCED_AT for _, run in groupby(segments, key=lambda ref: ref.level)
    ) and bool(choose_rollup(segments))


def prepare_rollup(metadata: Metadata, head: Snapshot) -> Rollup | None:
    """Put the segment that should replace some of `head`'s; return None if none should merge."""
    chosen = choose_rollup(head.segments)
    if not chosen:
        return None
    types = head.schema.leaf_types
    parts = [metadata.load_segment(ref, types) for ref in chosen]
    staged = stage_segment(
        metadata,
        head,
        [block for part in parts for block in part.blocks],
        level=chosen[0].level + 1,
        summary=merge_summaries([part.summary for part in parts]),
    )
    return Rollup(inputs=tuple(ref.id for ref in chosen), ref=staged.ref)
