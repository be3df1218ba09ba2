"""The numbers of a branch: its sizes, the effect of its recent optimization, its properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from fuse_stream.commit.committer import Committer
from fuse_stream.feed.diff import diff_snapshots
from fuse_stream.format.codec import encode_snapshot
from fuse_stream.format.one_line import one_line
from fuse_stream.format.properties import DEFAULTS, OWN_PREFIX, RETAIN
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.format.sides import side_views
from fuse_stream.objects.slots import Metadata
from fuse_stream.optimize.claim import find_claim
from fuse_stream.optimize.policy import imperfect
from fuse_stream.reading.history import History

SEARCHED_SNAPSHOTS = 1000
"""The number of newest snapshots that are searched for compaction, reclustering and expiry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationTotals:
    """The effect of the commits of one operation, among the snapshots searched."""

    commit_count: int = 0
    blocks_saved: int = 0
    """The decrease of the number of blocks."""
    bytes_rewritten: int = 0
    """The stored size of the new blocks."""
    bytes_saved: int = 0
    """The decrease of the stored size of the blocks."""
    last_version: int | None = None
    last_us: int | None = None

    __repr__ = one_line("commit_count blocks_saved bytes_saved last_version last_us")


@dataclass(frozen=True, slots=True, kw_only=True)
class SideStats:
    """The size of a side: rows that the newest version keeps beside the table's."""

    row_count: int
    hidden_rows: int
    """Deleted rows that are still in blocks."""
    block_count: int
    compressed_bytes: int

    __repr__ = one_line("row_count hidden_rows block_count compressed_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStats:
    """The sizes of a branch, the totals of its recent operations, and its properties."""

    version: int
    row_count: int
    """Rows that can be read."""
    hidden_rows: int
    """Deleted rows that are still in blocks: a compaction of the blocks leaves them out."""
    deletion_files: int
    """The number of files that hide them."""
    block_count: int
    perfect_block_count: int
    imperfect_block_count: int
    """Blocks that compaction may merge."""
    segment_count: int
    compressed_bytes: int
    uncompressed_bytes: int
    snapshot_bytes: int
    """The size of the head's slot."""
    segment_bytes: int
    deletion_bytes: int
    """The size of the deletion files."""
    sides: Mapping[str, SideStats]
    """By name; the figures above are without them."""
    retained_count: int
    """Versions that have not expired."""
    floor: int
    epoch: int
    searched_count: int
    """The number of newest snapshots that the next three fields cover."""
    compaction: OperationTotals
    reclustering: OperationTotals
    expiry: OperationTotals
    vacuumed_us: int | None
    """When an `Optimizer` or the sink's process last vacuumed; `vacuum` calls are not recorded."""
    policy: Mapping[str, str]
    """The properties that begin with `fuse.`, with the defaults of those not set."""

    __repr__ = one_line(
        "version row_count hidden_rows block_count imperfect_block_count compressed_bytes"
    )

    @property
    def metadata_bytes(self) -> int:
        """The bytes that a reader loads to read all of the head's metadata."""
        return self.snapshot_bytes + self.segment_bytes + self.deletion_bytes

    @property
    def metadata_bytes_per_block(self) -> float:
        return self.metadata_bytes / max(self.block_count, 1)


def table_stats(committer: Committer) -> TableStats:
    """Return the numbers of a branch; reads its newest snapshots, but no block."""
    metadata = committer.metadata
    head = committer.head()
    snapshot, summary = head.snapshot, head.snapshot.summary
    lately = [
        stored.snapshot
        for stored in islice(History(metadata, head).iter_back(), SEARCHED_SNAPSHOTS)
    ]
    claim = find_claim(metadata, committer.branch_id)
    totals = {
        operation: _totals(metadata, lately, operation)
        for operation in (Operation.COMPACT, Operation.RECLUSTER, Operation.EXPIRE)
    }
    own = {name: text for name, text in snapshot.properties.items() if name.startswith(OWN_PREFIX)}
    return TableStats(
        version=snapshot.version,
        row_count=summary.row_count,
        hidden_rows=snapshot.hidden_rows,
        deletion_files=len(snapshot.deletion_files),
        block_count=summary.block_count,
        perfect_block_count=summary.perfect_block_count,
        imperfect_block_count=imperfect(summary),
        segment_count=len(snapshot.segments),
        compressed_bytes=summary.compressed_byte_size,
        uncompressed_bytes=summary.uncompressed_byte_size,
        snapshot_bytes=len(encode_snapshot(snapshot)),
        segment_bytes=sum(ref.byte_size for ref in snapshot.segments),
        deletion_bytes=sum(ref.byte_size for ref in snapshot.deletion_files),
        sides={
            name: SideStats(
                row_count=view.summary.row_count,
                hidden_rows=view.hidden_rows,
                block_count=view.summary.block_count,
                compressed_bytes=view.summary.compressed_byte_size,
            )
            for name, view in side_views(snapshot).items()
        },
        retained_count=snapshot.version - snapshot.floor + 1,
        floor=snapshot.floor,
        epoch=snapshot.epoch,
        searched_count=len(lately),
        compaction=totals[Operation.COMPACT],
        reclustering=totals[Operation.RECLUSTER],
        expiry=totals[Operation.EXPIRE],
        vacuumed_us=claim.past.vacuumed_us if claim else None,
        policy={**DEFAULTS, RETAIN: "", **own},
    )


def _totals(
    metadata: Metadata, lately: Sequence[Snapshot], operation: Operation
) -> OperationTotals:
    """Return the totals of one operation over `lately`, newest first.

    The oldest snapshot is not counted: there is none before it to compare with.
    """
    pairs = [(after, before) for after, before in pairwise(lately) if after.operation is operation]
    if not pairs:
        return OperationTotals()
    written = [diff_snapshots(metadata, before, after).inserted for after, before in pairs]
    return OperationTotals(
        commit_count=len(pairs),
        blocks_saved=sum(b.summary.block_count - a.summary.block_count for a, b in pairs),
        bytes_rewritten=sum(block.file_size for blocks in written for block in blocks),
        bytes_saved=sum(
            b.summary.compressed_byte_size - a.summary.compressed_byte_size for a, b in pairs
        ),
        last_version=pairs[0][0].version,
        last_us=pairs[0][0].timestamp_us,
    )
