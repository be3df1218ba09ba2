"""Keep what a rewind of several tables needs until it is done: tags on targets, and leases.

The tables are rewound one after the other, and the process may die in between. Until the same call
finishes the work, a tag keeps each target from expiring.

A named consumer's lease admits a reader that continues where the lease ends, and keeps what that
reader needs. The fork of the reader continues earlier, so its lease is widened first.
"""

from __future__ import annotations

import contextlib
import dataclasses

from fuse_stream.commit.committer import Committer
from fuse_stream.errors import AlreadyExistsError, NotFoundError, SnapshotExpiredError
from fuse_stream.feed.consumer import needed_from, resumes
from fuse_stream.format.refs import Position
from fuse_stream.format.source_offset import Offset
from fuse_stream.objects.leases import iter_leases, load_store_time_us, store_lease
from fuse_stream.objects.refs import delete_tag, find_tag
from fuse_stream.objects.slots import Stored
from fuse_stream.reading.history import load_tagged
from fuse_stream.refs.create import create_tag

RETAIN_US = 30 * 86_400 * 1_000_000
"""How long a tag keeps its target if the rewind is never finished."""


def tag_of(query_id: str) -> str:
    """Return the name of the tags of a rewind; `query_id` is that of its first fork."""
    return f"rewind-{query_id}"


def tag_target(committer: Committer, name: str, target: Stored) -> None:
    """Keep the target of a rewind until `drop_tag`; do nothing if an earlier call did it."""
    with contextlib.suppress(AlreadyExistsError):
        create_tag(committer, name, target.snapshot.version, retain_us=RETAIN_US)


def find_target(committer: Committer, name: str) -> Stored | None:
    """Return the target that `tag_target` keeps; None if there is no tag."""
    tag = find_tag(committer.metadata, name)
    return None if tag is None else load_tagged(committer.metadata, tag)


def drop_tag(committer: Committer, name: str) -> None:
    """Delete the tag of a rewind that is done, if there is one."""
    with contextlib.suppress(NotFoundError):
        delete_tag(committer.metadata, name)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a query reads a table, before and after it goes back."""

    committer: Committer
    """That of the table."""
    floor: int
    """That of the branch."""
    left: tuple[Offset, ...]
    """The ends of the last two batches of the old checkpoint."""
    start: Offset
    """Where the last batch of the fork starts, which may run again."""
    end: Offset
    """Where it ends."""

    def check_kept(self, *, runs_again: bool) -> None:
        """Raise SnapshotExpiredError if the fork would need versions that have expired."""
        first = self.start if runs_again else self.end
        if not first.is_undecided and first.version + (first.index == 0) < self.floor:
            raise SnapshotExpiredError(
                "the fork of a query would read versions of this table that have expired: choose a "
                "later target",
                table=self.committer.metadata.store.url,
                version=first.version,
                first=self.floor,
            )

    def admit_fork(self) -> None:
        """Let the fork continue under the name under which the query has read the table, if any.

        No lease names its query, so each that stands where the query has read to may be its own.
        Such a lease admits the fork besides its holder, and loses nothing.
        """
        metadata = self.committer.metadata
        now_us = load_store_time_us(metadata)
        left = {Position(version=one.version, index=one.index) for one in self.left}
        lease_version, positions = needed_from(self.start, self.end), resumes(self.start, self.end)
        for found in tuple(iter_leases(metadata)):
            lease = found.lease
            is_its_own = lease.branch_id == self.committer.branch_id and left & {*lease.resumes}
            if not is_its_own or not found.is_live(now_us):
                continue
            is_kept = lease.version <= lease_version
            store_lease(
                metadata,
                dataclasses.replace(
                    lease,
                    version=min(lease.version, lease_version),
                    resumes=tuple(dict.fromkeys((*lease.resumes, *positions))),
                    unbroken_until_us=lease.unbroken_until_us if is_kept else 0,
                ),
            )
