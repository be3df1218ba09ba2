"""Reclustering: sort blocks together that overlap in the order of the cluster key.

Rules:
- A run has rounds, each planned on the newest head, until there is nothing to do or the limit is
  reached. A round builds on the blocks of the round before.
- If sorting did not separate the bounds of a group's blocks, as with long strings that start with
  the same characters, it never will: the blocks get the last level and are not taken again.
- No writer fails because of it, and ledger and feed do not change: see `commit.replace`.

`optimize` compacts and then reclusters.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.stage import Rewritten
from fuse_stream.errors import InvalidInputError
from fuse_stream.format.one_line import line_of
from fuse_stream.format.properties import CLUSTER_DEPTH, block_target, count_property
from fuse_stream.format.records import Block, Operation, Snapshot
from fuse_stream.objects.snapshot_blocks import iter_blocks
from fuse_stream.optimize.compact import (
    MIN_LIMIT,
    CompactionResult,
    Progress,
    carry_out,
    check_limit,
    compact,
    saved,
)
from fuse_stream.optimize.overlap import Clustering, is_sorted_by, measure_clustering
from fuse_stream.optimize.plan_recluster import LAST_LEVEL, depth_between, plan_recluster
from fuse_stream.optimize.rewrite import Group, Rewriter, at_level

MOST_ROUNDS = 10 * LAST_LEVEL
"""The most rounds of one run; the next run continues."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReclusterResult(CompactionResult):
    """The result of a reclustering."""

    depth_before: float = 0.0
    """The average depth of the blocks."""
    depth_after: float = 0.0

    def __repr__(self) -> str:
        version = self.snapshot and self.snapshot.version
        return (
            f"ReclusterResult(version={version}, blocks={self.blocks_before}->{self.blocks_after},"
            f" depth={self.depth_before:.1f}->{self.depth_after:.1f}, rows={self.row_count},"
            f" groups={self.group_count}, dropped_groups={self.dropped_group_count})"
        )


def clustering(committer: Committer) -> Clustering:
    """Return the overlap of the head's blocks; errors of `Table.clustering`."""
    head = _clustered_head(committer)
    return measure_clustering(head, tuple(iter_blocks(committer.metadata, head)))


def recluster(
    committer: Committer, *, limit: int | None = None, progress: Progress | None = None
) -> ReclusterResult:
    """Sort overlapping blocks together; arguments and errors of `Table.recluster`."""
    check_limit(limit)
    result = None
    mine: set[str] = set()
    read = 0
    for _ in range(MOST_ROUNDS):
        head = _clustered_head(committer)
        blocks = tuple(iter_blocks(committer.metadata, head))
        depth = measure_clustering(head, blocks).average_depth
        if result is None:
            result = ReclusterResult(depth_before=depth)
            mine = {block.id for block in blocks}
        result = dataclasses.replace(result, depth_after=depth)
        groups = plan_recluster(
            # Blocks that others add meanwhile are left to the next run, or this one might not end.
            [block for block in blocks if block.id in mine],
            head.cluster_key,
            depth=count_property(head.properties, CLUSTER_DEPTH),
            target=block_target(head.properties),
            limit=None if limit is None else limit - read,
        )
        if not groups:
            break
        current = _Round(head, blocks)
        result = carry_out(
            committer,
            head,
            groups,
            result,
            operation=Operation.RECLUSTER,
            message=current.message,
            run=current.run,
            progress=progress and partial(_report, progress, read),
        )
        read += sum(len(group.inputs) for group in groups)
        mine |= {block.id for done in current.done for block in done.outputs}
    return result or ReclusterResult()


class _Round:
    """One round: the groups that were rewritten so far."""

    def __init__(self, head: Snapshot, blocks: Sequence[Block]) -> None:
        self.done: list[Rewritten] = []
        self._head = head
        self._blocks = blocks

    def run(self, rewriter: Rewriter, groups: Sequence[Group]) -> Iterator[Rewritten]:
        """Rewrite groups one at a time, since each has its rows in memory twice; yield each."""
        for group in groups:
            self.done.append(_marked(rewriter.run(group), self._head.cluster_key))
            yield self.done[-1]

    def message(self, chosen: Sequence[Rewritten]) -> str:
        """Return the commit message for `chosen`, which are among the last groups rewritten."""
        earlier = self.done[: self.done.index(chosen[0])]
        before, after = (
            measure_clustering(self._head, _replaced(self._blocks, groups)).average_depth
            for groups in (earlier, (*earlier, *chosen))
        )
        return f"{saved(chosen)}, average depth {before:,.1f} -> {after:,.1f}"


def _clustered_head(committer: Committer) -> Snapshot:
    head = committer.head().snapshot
    if not head.cluster_key:
        raise no_cluster_key(head)
    return head


def no_cluster_key(snapshot: Snapshot) -> InvalidInputError:
    """Return the error for a table without a cluster key."""
    return InvalidInputError(
        'the table has no cluster key; set one: Table.open(path).cluster_by(["a_column"]), or '
        "ALTER TABLE … CLUSTER BY (a_column) in SQL",
        columns=list(snapshot.schema.names()),
    )


def _replaced(blocks: Sequence[Block], groups: Sequence[Rewritten]) -> list[Block]:
    gone = {block.id for group in groups for block in group.inputs}
    come = [block for group in groups for block in group.outputs]
    return [block for block in blocks if block.id not in gone] + come


def _marked(done: Rewritten, cluster_key: tuple[int, ...]) -> Rewritten:
    """Return a group, with its blocks at the last level if sorting did not lower their depth."""
    if not all(is_sorted_by(block, cluster_key) for block in done.inputs):
        return done
    before, after = (depth_between(part, cluster_key) for part in (done.inputs, done.outputs))
    if after < before:
        return done
    return dataclasses.replace(
        done, outputs=tuple(at_level(block, LAST_LEVEL) for block in done.outputs)
    )


def _report(progress: Progress, read: int, done: int, total: int) -> None:
    progress(read + done, read + total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimization:
    """The results of a compaction and a reclustering."""

    compaction: CompactionResult
    reclustering: ReclusterResult | None = None
    """None if the table has no cluster key, or the compaction used up the limit."""

    def __repr__(self) -> str:
        done = {"compaction": self.compaction, "reclustering": self.reclustering}
        facts = {
            name: f"version {result.snapshot.version}, blocks {result.blocks_before}->"
            f"{result.blocks_after}"
            if result.snapshot
            else "nothing to do"
            for name, result in done.items()
            if result is not None
        }
        return line_of("Optimization", facts)


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
