"""What a branch is made of, what its upkeep did and saved, and which policy is in force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from fuse_stream.commit.committer import Committer
from fuse_stream.feed.diff import diff_snapshots
from fuse_stream.format.codec import encode_snapshot
from fuse_stream.format.properties import DEFAULTS, OWN_PREFIX, RETAIN
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.objects.slots import Metadata
from fuse_stream.optimize.claim import find_claim
from fuse_stream.optimize.policy import imperfect
from fuse_stream.reading.history import History

SEARCHED_SNAPSHOTS = 1000
"""The newest, which tell what upkeep did lately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """What the commits of one kind did, among the snapshots that were looked at."""

    commit_count: int = 0
    blocks_saved: int = 0
    """How many fewer blocks a reader has to open."""
    bytes_rewritten: int = 0
    """As stored; of the blocks that they wrote."""
    bytes_saved: int = 0
    """As stored."""
    last_version: int | None = None
    last_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStats:
    """A branch in numbers."""

    version: int
    row_count: int
    block_count: int
    perfect_block_count: int
    imperfect_block_count: int
    """Smaller than they should be: what compaction may pack."""
    segment_count: int
    compressed_bytes: int
    uncompressed_bytes: int
    snapshot_bytes: int
    """Of the head's slot."""
    segment_bytes: int
    retained_count: int
    """Versions that have not expired."""
    floor: int
    epoch: int
    searched_count: int
    """How many of the newest snapshots tell of compaction, reclustering and expiry."""
    compaction: Upkeep
    reclustering: Upkeep
    expiry: Upkeep
    vacuumed_us: int | None
    """When a service last vacuumed; a vacuum by hand is not noted."""
    policy: Mapping[str, str]
    """The properties in force, defaults among them."""

    @property
    def metadata_bytes(self) -> int:
        """What a reader loads to see all of the head."""
        return self.snapshot_bytes + self.segment_bytes

    @property
    def metadata_bytes_per_block(self) -> float:
        return self.metadata_bytes / max(self.block_count, 1)


def table_stats(committer: Committer) -> TableStats:
    """Return the numbers of a branch; reads its newest snapshots, and no block."""
    metadata = committer.metadata
    head = committer.head()
    snapshot, summary = head.snapshot, head.snapshot.summary
    lately = [
        stored.snapshot
        for stored in islice(History(metadata, head).iter_back(), SEARCHED_SNAPSHOTS)
    ]
    claim = find_claim(metadata, committer.branch_id)
    upkeep = {
        operation: _upkeep(metadata, lately, operation)
        for operation in (Operation.COMPACT, Operation.RECLUSTER, Operation.EXPIRE)
    }
    own = {name: text for name, text in snapshot.properties.items() if name.startswith(OWN_PREFIX)}
    return TableStats(
        version=snapshot.version,
        row_count=summary.row_count,
        block_count=summary.block_count,
        perfect_block_count=summary.perfect_block_count,
        imperfect_block_count=imperfect(summary),
        segment_count=len(snapshot.segments),
        compressed_bytes=summary.compressed_byte_size,
        uncompressed_bytes=summary.uncompressed_byte_size,
        snapshot_bytes=len(encode_snapshot(snapshot)),
        segment_bytes=sum(ref.byte_size for ref in snapshot.segments),
        retained_count=snapshot.version - snapshot.floor + 1,
        floor=snapshot.floor,
        epoch=snapshot.epoch,
        searched_count=len(lately),
        compaction=upkeep[Operation.COMPACT],
        reclustering=upkeep[Operation.RECLUSTER],
        expiry=upkeep[Operation.EXPIRE],
        vacuumed_us=claim.past.vacuumed_us if claim else None,
        policy={**DEFAULTS, RETAIN: "", **own},
    )


def _upkeep(metadata: Metadata, lately: Sequence[Snapshot], operation: Operation) -> Upkeep:
    """Return what the commits of one kind did among snapshots, which stand newest first.

    The oldest one has nothing beside it to compare it with.
    """
    pairs = [(after, before) for after, before in pairwise(lately) if after.operation is operation]
    if not pairs:
        return Upkeep()
    written = [diff_snapshots(metadata, before, after).inserted for after, before in pairs]
    return Upkeep(
        commit_count=len(pairs),
        blocks_saved=sum(b.summary.block_count - a.summary.block_count for a, b in pairs),
        bytes_rewritten=sum(block.file_size for blocks in written for block in blocks),
        bytes_saved=sum(
            b.summary.compressed_byte_size - a.summary.compressed_byte_size for a, b in pairs
        ),
        last_version=pairs[0][0].version,
        last_us=pairs[0][0].timestamp_us,
    )
