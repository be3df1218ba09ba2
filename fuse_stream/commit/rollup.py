"""Roll up segments and deletion files: merge neighbours of one level into one of the next level.

So a snapshot names O(log n) of each after n commits, and a commit reads none of them.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate, groupby

from fuse_stream.commit.plan import Ref, Rollup, fold
from fuse_stream.commit.stage import stage_segment
from fuse_stream.format.deletions import MAX_DELETION_FILE_BYTES, DeletionFile
from fuse_stream.format.records import DeletionFileRef, SegmentRef, Snapshot
from fuse_stream.format.sides import row_lists
from fuse_stream.format.stats import merge_summaries
from fuse_stream.objects.slots import Metadata

FAN_IN = 16
"""How many neighbours of one level are merged."""
MAX_BLOCKS = 1000
"""The most blocks in a merged segment. A merged deletion file has at most its limit of bytes."""
TRIED_EVERY = 4
"""With so many neighbours more, a merge is tried again: several writers would all do the same."""
FORCED_AT = 64
"""With this many neighbours of one level, the next commit merges some before its put."""


def is_due(head: Snapshot) -> bool:
    """True if the writer of `head` should prepare a merge for its next commit."""
    counts = (
        sum(1 for _ in run)
        for held in row_lists(head)
        for refs in (held.segments, held.deletion_files)
        for _, run in groupby(refs, key=lambda ref: ref.level)
    )
    return any(count >= FAN_IN and (count - FAN_IN) % TRIED_EVERY == 0 for count in counts)


def apply_to(head: Snapshot, rollups: tuple[Rollup, ...]) -> bool:
    """True if one of the roll-ups replaces something of `head`."""
    return any(
        fold(refs, rollups) != refs
        for held in row_lists(head)
        for refs in (held.segments, held.deletion_files)
    )


def choose_rollup(refs: tuple[Ref, ...]) -> tuple[Ref, ...]:
    """Return the oldest neighbours that should become one; empty if none should."""
    for _, run in groupby(refs, key=lambda ref: ref.level):
        neighbours = list(run)
        if len(neighbours) < FAN_IN:
            continue
        # A full one must not prevent the merge of those after it.
        for start in range(len(neighbours) - FAN_IN + 1):
            chosen = _that_fit(neighbours[start : start + FAN_IN])
            if len(chosen) > 1:
                return chosen
    return ()


def _that_fit(neighbours: list[Ref]) -> tuple[Ref, ...]:
    totals = accumulate(map(_share_of_limit, neighbours))
    return tuple(ref for ref, total in zip(neighbours, totals, strict=True) if total <= 1)


def _share_of_limit(ref: SegmentRef | DeletionFileRef) -> Fraction:
    """Return how much of what a merged object may hold is in one of its inputs."""
    if isinstance(ref, SegmentRef):
        return Fraction(ref.block_count, MAX_BLOCKS)
    return Fraction(ref.byte_size, MAX_DELETION_FILE_BYTES)


def must_roll_up(head: Snapshot) -> bool:
    """True if the next commit has to merge neighbours: there are `FORCED_AT` of one level."""
    return any(_is_full(held.segments) or _is_full(held.deletion_files) for held in row_lists(head))


def _is_full(refs: tuple[Ref, ...]) -> bool:
    return any(
        sum(1 for _ in run) >= FORCED_AT for _, run in groupby(refs, key=lambda ref: ref.level)
    ) and bool(choose_rollup(refs))


def prepare_rollups(metadata: Metadata, head: Snapshot) -> tuple[Rollup, ...]:
    """Put what should replace some of the segments and deletion files of `head` and its sides."""
    prepared = (
        prepare(metadata, held)
        for held in row_lists(head)
        for prepare in (_prepare_segment, _prepare_deletion_file)
    )
    return tuple(rollup for rollup in prepared if rollup is not None)


def _prepare_deletion_file(metadata: Metadata, head: Snapshot) -> Rollup | None:
    chosen = choose_rollup(head.deletion_files)
    if not chosen:
        return None
    ref = metadata.deletions.put(
        DeletionFile(hidden=metadata.deletions.hidden_by(chosen)),
        file_id=metadata.clock.new_id(),
        level=chosen[0].level + 1,
        since_us=min(each.since_us for each in chosen),
    )
    return Rollup(inputs=tuple(each.id for each in chosen), ref=ref)


def _prepare_segment(metadata: Metadata, head: Snapshot) -> Rollup | None:
    chosen = choose_rollup(head.segments)
    if not chosen:
        return None
    parts = list(metadata.iter_segments(chosen, head.schema.leaf_types))
    staged = stage_segment(
        metadata,
        head,
        [block for part in parts for block in part.blocks],
        level=chosen[0].level + 1,
        summary=merge_summaries([part.summary for part in parts]),
    )
    return Rollup(inputs=tuple(ref.id for ref in chosen), ref=staged.ref)
