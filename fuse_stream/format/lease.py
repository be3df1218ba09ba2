"""A lease: what keeps the snapshots that a named consumer has yet to read."""

from __future__ import annotations

from dataclasses import dataclass

from fuse_stream.format.records import FORMAT_VERSION, Parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A named consumer's claim on the snapshots that it has yet to read.

    It lives for the table's `fuse.consumer.lease` from the store's time of its last write on.
    """

    format_version: int = FORMAT_VERSION
    consumer: str
    owner_id: str
    """Drawn by the reader at its start: tells one run of a consumer from another."""
    branch_id: str
    forks: tuple[Parent, ...] = ()
    """Where the branch and those before it forked off, as in the branch's ref."""
    version: int
    """The position: the last snapshot that was read. This one and all later ones are kept."""
    snapshot_id: str
    index: int = 0
    """As in the stream's offset: not 0 where a first full read or a huge commit is split."""
    lease_us: int
    """How long it lives after its last write."""

    @property
    def name(self) -> str:
        """What its key says."""
        return self.consumer
