"""The records that keep snapshots from expiring, the optimizer's claim, and the slots of a branch.

Branches, tags, the pins of clones and consumers' leases keep snapshots.

A branch shares the slots of its ancestor branches up to the fork points; only commits to the
branch itself have slots of its own. Version numbers continue: the first commit of a branch that
forked at version 9 is version 10. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fuse_stream.format.one_line import line_of, one_line
from fuse_stream.format.records import FORMAT_VERSION, Parent

REF_FORMAT_VERSION = 2
"""The version of these records. One of version 1 has no hash; it is decoded as the current one."""

DATE_TAG_FORMAT_VERSION = 3
"""The stored version of a tag of digits alone, which a reader of version 2 refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRef:
    """A name for a sequence of snapshots."""

    format_version: int = REF_FORMAT_VERSION
    name: str
    branch_id: str
    """Random, so that a new branch with a deleted branch's name does not get its slots."""
    created_us: int
    forks: tuple[Parent, ...] = ()
    """The fork points of this branch and its ancestors, oldest first; none for `main`."""
    floor: int = 0
    """The oldest version that it shares. The floor of the snapshot at the fork point may be lower:
    it was written before versions up to this one expired."""
    epoch: int = 0
    """Of the snapshot at the fork point."""

    def __repr__(self) -> str:
        forked = self.forks[-1].version if self.forks else None
        facts = {"name": self.name, "forked_at": forked, "branch_id": self.branch_id}
        return line_of("BranchRef", {**facts, "created_us": self.created_us})


@dataclass(frozen=True, slots=True, kw_only=True)
class TagRef:
    """A name for one snapshot."""

    format_version: int = REF_FORMAT_VERSION
    name: str
    created_us: int
    forks: tuple[Parent, ...]
    """Those of a branch that would fork at the snapshot: the last one is the snapshot."""
    snapshot_id: str
    expires_us: int | None = None
    """From this time on the tag is as good as deleted; None for never."""

    __repr__ = one_line(
        "name version=target.version branch_id=target.branch_id created_us expires_us"
    )

    @property
    def target(self) -> Parent:
        """The snapshot that the tag names."""
        return self.forks[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneRef:
    """The pin of a clone: while it exists, the blocks of the cloned snapshot are kept."""

    format_version: int = REF_FORMAT_VERSION
    table_id: str
    """Of the clone."""
    created_us: int
    forks: tuple[Parent, ...]
    """Those of a branch that would fork at the snapshot: the last one is the snapshot."""
    snapshot_id: str
    location: str
    """Where the clone was created. Only for people: the clone may have moved."""

    __repr__ = one_line("location version=target.version table_id created_us")

    @property
    def name(self) -> str:
        """The name in its key."""
        return self.table_id

    @property
    def target(self) -> Parent:
        """The cloned snapshot."""
        return self.forks[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A position in a branch's feed, as in a stream's offset."""

    version: int
    index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A named consumer's lease, which keeps the snapshots that it has not read yet.

    It is live until `lease_us` after its last write, by the store's time.
    """

    format_version: int = REF_FORMAT_VERSION
    consumer: str
    owner_id: str
    """A random id of one run of the consumer."""
    branch_id: str
    forks: tuple[Parent, ...] = ()
    """The fork points in the branch's ref."""
    version: int
    """The last snapshot that was read, or the one whose table is being read. This one and all
    later ones are kept."""
    resumes: tuple[Position, ...] = ()
    """Positions at which a restart may continue: start and end of the last requested batch."""
    lease_us: int
    """How long it is live after its last write."""
    unbroken_until_us: int = 0
    """The end of the lease that this one renewed, by the store's time. If this one was written
    before that, all versions from `version` on were kept without a gap."""

    @property
    def name(self) -> str:
        """The name in its key."""
        return self.consumer


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedPast:
    """A head for which the indexes are up to date; another one like it hardly needs more."""

    index_list: str
    """The id of the list of indexes."""
    perfect_blocks: int
    first_segment: str | None = None
    """The id of the oldest segment, which an overwrite replaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The results of earlier optimizer runs on a branch, for the next run.

    They only save time: if they are lost or wrong, a run may find nothing to do.
    """

    settled_blocks: int = 0
    """The number of imperfect blocks when compaction last found nothing to do."""
    clustered_rows: int = 0
    """The rows, uncompressed bytes and cluster key of the table when reclustering last found
    nothing more to do."""
    clustered_bytes: int = 0
    clustered_key: tuple[int, ...] = ()
    expired_us: int | None = None
    """The time of the last expire, by the clock of the optimizer that ran it; None for never."""
    vacuumed_us: int | None = None
    """The same for the last vacuum."""
    indexed: IndexedPast | None = None
    """What there was when a refresh of the indexes last found nothing more to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceClaim:
    """The claim of the optimizer that works on a branch; it ends `lease_us` after its last write.

    `docs/format.md` calls the optimizer a service.
    """

    format_version: int = FORMAT_VERSION
    branch_id: str
    owner_id: str | None = None
    """A random id of one run of an optimizer. None: none is running."""
    lease_us: int
    """In the store's time."""
    past: Past = field(default_factory=Past)


Forks = tuple[Parent, ...]
"""The fork points of a branch and its ancestors, oldest first, with increasing versions."""


def owner_of(forks: Forks, branch_id: str, version: int) -> str:
    """Return the id of the branch that has the slot of a version of `branch_id`."""
    return next((fork.branch_id for fork in forks if version <= fork.version), branch_id)


def fork_at(forks: Forks, target: Parent) -> Forks:
    """Return the fork points of a new branch at `target`, a snapshot of the branch of `forks`."""
    return (*(fork for fork in forks if fork.version < target.version), target)


def last_shared(one: tuple[Forks, str], other: tuple[Forks, str], *, most: int) -> int:
    """Return the last version, at most `most`, that two branches share."""
    ends = {most} | {fork.version for forks, _ in (one, other) for fork in forks}
    return max(
        (end for end in ends if end <= most and owner_of(*one, end) == owner_of(*other, end)),
        default=0,
    )
