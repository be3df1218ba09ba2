"""Both ways to rewrite blocks, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from fuse_stream.commit.publish import Committer
from fuse_stream.maintenance.compact import MIN_LIMIT, CompactionResult, Progress, compact
from fuse_stream.maintenance.recluster import ReclusterResult, recluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimization:
    """What an optimisation did."""

    compaction: CompactionResult
    reclustering: ReclusterResult | None = None
    """None where the table has no cluster key, or the limit left nothing to it."""


def optimize(
    committer: Committer, *, limit: int | None = None, progress: Progress | None = None
) -> Optimization:
    """Compact, then recluster; arguments and errors of `Table.optimize`."""
    compaction = compact(committer, limit=limit, progress=progress)
    left = None if limit is None else limit - compaction.blocks_before
    if not committer.head().snapshot.cluster_key or (left is not None and left < MIN_LIMIT):
        return Optimization(compaction=compaction)
    return Optimization(
        compaction=compaction, reclustering=recluster(committer, limit=left, progress=progress)
    )
