"""What keeps snapshots from expiring: branches, tags, the pins of clones, consumers' leases."""

from __future__ import annotations

from dataclasses import dataclass

from fuse_stream.format.records import Parent

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
