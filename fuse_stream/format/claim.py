"""The claim of the service that optimises a branch, and what services have done for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from fuse_stream.format.records import FORMAT_VERSION


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
