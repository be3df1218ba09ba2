"""Keeping the list of segments short: neighbours of one level become one of the next.

So a snapshot names O(log n) segments after n appends, and a commit reads none of them.
"""

from __future__ import annotations

from itertools import accumulate, groupby

from fuse_stream.commit.plan import Rollup
from fuse_stream.format.records import Segment, SegmentRef, Snapshot
from fuse_stream.format.stats import merge_summaries
from fuse_stream.objects.slots import Metadata

FAN_IN = 16
"""So many neighbours of one level are merged."""
MAX_BLOCKS = 1000
"""Blocks of a segment, at the most."""
FORCED_AT = 64
"""So many neighbours of one level may stand before a commit merges them itself."""


def choose_rollup(segments: tuple[SegmentRef, ...]) -> tuple[SegmentRef, ...]:
    """Return the oldest neighbours that should become one segment; none if all is well."""
    for _, run in groupby(segments, key=lambda ref: ref.level):
        neighbours = list(run)
        if len(neighbours) < FAN_IN:
            continue
        # One that is full already must not keep those behind it from being merged.
        for start in range(len(neighbours) - FAN_IN + 1):
            chosen = _that_fit(neighbours[start : start + FAN_IN])
            if len(chosen) > 1:
                return chosen
    return ()


def _that_fit(neighbours: list[SegmentRef]) -> tuple[SegmentRef, ...]:
    blocks = accumulate(ref.block_count for ref in neighbours)
    return tuple(ref for ref, total in zip(neighbours, blocks, strict=True) if total <= MAX_BLOCKS)


def must_roll_up(segments: tuple[SegmentRef, ...]) -> bool:
    """Whether so many neighbours stand that the next commit has to merge some."""
    return any(
        sum(1 for _ in run) >= FORCED_AT for _, run in groupby(segments, key=lambda ref: ref.level)
    ) and bool(choose_rollup(segments))


def prepare_rollup(metadata: Metadata, head: Snapshot) -> Rollup | None:
    """Write the segment that should take the place of some of `head`'s; None if all is well."""
    chosen = choose_rollup(head.segments)
    if not chosen:
        return None
    types = head.schema.leaf_types
    parts = [metadata.load_segment(ref, types) for ref in chosen]
    merged = Segment(
        blocks=tuple(block for part in parts for block in part.blocks),
        summary=merge_summaries([part.summary for part in parts]),
    )
    ref = metadata.store_segment(
        merged,
        types,
        segment_id=metadata.clock.new_id(),
        level=chosen[0].level + 1,
        cluster_key=head.cluster_key,
    )
    return Rollup(inputs=tuple(item.id for item in chosen), ref=ref)
