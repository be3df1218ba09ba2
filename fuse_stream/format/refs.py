"""Branches, tags, pins of clones, leases and claims; and in which slots versions stand.

What keeps snapshots from expiring: branches, tags, the pins of clones, consumers' leases.

The claim of the service that optimises a branch, and what services have done for it.

Which slots hold the versions of a branch. Pure.

A branch shares the slots of the branches before it, each up to where the next one forked off; only
what was committed to the branch itself stands in slots of its own. Versions go on counting: the
first commit of a branch that forked off version 9 is version 10.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fuse_stream.format.records import FORMAT_VERSION, Parent

REF_FORMAT_VERSION = 2
"""Of the records here; one of version 1 has no hash, and is read as if it were of this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRef:
    """A name for a line of snapshots."""

    format_version: int = REF_FORMAT_VERSION
    name: str
    branch_id: str
    """Random, so that a name which comes back does not bring old slots with it."""
    created_us: int
    forks: tuple[Parent, ...] = ()
    """Where this branch and those before it forked off, oldest first; none for `main`."""
    floor: int = 0
    """The oldest version that it took over. The snapshot that it forked off may say less: it was
    written when older ones still stood."""
    epoch: int = 0
    """Of the snapshot that it forked off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TagRef:
    """A name for one snapshot."""

    format_version: int = REF_FORMAT_VERSION
    name: str
    created_us: int
    forks: tuple[Parent, ...]
    """As those of a branch that forks off here: the last one is the snapshot."""
    snapshot_id: str
    expires_us: int | None = None
    """From then on the name means nothing and keeps nothing."""

    @property
    def target(self) -> Parent:
        """The snapshot."""
        return self.forks[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneRef:
    """The pin of a snapshot that a clone was made of: its blocks stay while the pin does."""

    format_version: int = REF_FORMAT_VERSION
    table_id: str
    """Of the clone."""
    created_us: int
    forks: tuple[Parent, ...]
    """As those of a branch that forks off here: the last one is the snapshot."""
    snapshot_id: str
    location: str
    """Where the clone was made. For people: it may have moved since, and is never followed."""

    @property
    def name(self) -> str:
        """What its key says."""
        return self.table_id

    @property
    def target(self) -> Parent:
        """The snapshot."""
        return self.forks[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place in a branch's feed, spelt as in a stream's offset."""

    version: int
    index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A named consumer's claim on the snapshots that it has yet to read.

    It lives for the table's `fuse.consumer.lease` from the store's time of its last write on.
    """

    format_version: int = REF_FORMAT_VERSION
    consumer: str
    owner_id: str
    """Drawn by the reader at its start: tells one run of a consumer from another."""
    branch_id: str
    forks: tuple[Parent, ...] = ()
    """Where the branch and those before it forked off, as in the branch's ref."""
    version: int
    """The last snapshot that was read, or the one whose table is being read. This one and all
    later ones are kept."""
    resumes: tuple[Position, ...] = ()
    """Where a restart may go on: start and end of the batch that was asked for last."""
    lease_us: int
    """How long it lives after its last write."""
    unbroken_until_us: int = 0
    """If it was written before this, by the store's time, the lease before it was alive until then,
    and all from `version` on has been kept since before a floor passed it."""

    @property
    def name(self) -> str:
        """What its key says."""
        return self.consumer


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What services did for a branch, so that the next one need not find it out again.

    Only pace rests on it: one that is lost, or wrong, costs a look at the table that finds nothing.
    """

    settled_blocks: int = 0
    """Imperfect blocks that stood when compaction last found nothing to do."""
    clustered_rows: int = 0
    """Rows that stood when reclustering last came to its end, uncompressed bytes, and the cluster
    key of that time."""
    clustered_bytes: int = 0
    clustered_key: tuple[int, ...] = ()
    expired_us: int | None = None
    """When the last expire ended, on the clock of the one who did it; None for never."""
    vacuumed_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceClaim:
    """Who works on a branch at this time; dead once `lease_us` have passed since its last write."""

    format_version: int = FORMAT_VERSION
    branch_id: str
    owner_id: str | None = None
    """Drawn by a service at its start. None: nobody is at work."""
    lease_us: int
    """Of the store's time."""
    past: Past = field(default_factory=Past)


Forks = tuple[Parent, ...]
"""Where a branch and those before it forked off, oldest first, versions growing."""


def owner_of(forks: Forks, branch_id: str, version: int) -> str:
    """Return the id of the branch in whose slot a version of `branch_id` stands."""
    return next((fork.branch_id for fork in forks if version <= fork.version), branch_id)


def fork_at(forks: Forks, target: Parent) -> Forks:
    """Return the forks of a branch that forks off `target`, which the line of `forks` holds."""
    return (*(fork for fork in forks if fork.version < target.version), target)


def last_shared(one: tuple[Forks, str], other: tuple[Forks, str], *, most: int) -> int:
    """Return the last version, up to `most`, that two branches have in one slot."""
    ends = {most} | {fork.version for forks, _ in (one, other) for fork in forks}
    return max(
        (end for end in ends if end <= most and owner_of(*one, end) == owner_of(*other, end)),
        default=0,
    )
