"""Follow a branch under a name: a lease keeps the versions that the consumer has not read yet.

Rules:
- The lease is written before a batch is handed to the reader. It has the start of the batch,
  because that batch may be asked for again, and its end, because a restart may continue there. A
  reader that asks to continue from one of the two is a restart and takes over.
- Versions below the floor are kept only if a lease on them was written before the floor passed
  them, and leases have been live without a gap since: then no vacuum can have missed them. So a
  lease is written, then the head is read again, and the lease is withdrawn if the floor has passed
  its version, unless the lease before was still live, by the store's time, when this one was
  written. `unbroken_until_us` records that, for a restart as well.
- A lost lease is no error while nothing that it kept has expired. After that it is reported.
- A lease is no lock: for one batch two readers may both believe that they hold it. The one whose
  lease was replaced notices when it next asks for a batch, and stops.
"""

from __future__ import annotations

import contextlib
import dataclasses

from fuse_stream.clock import SYSTEM_CLOCK, Clock
from fuse_stream.errors import ConsumerBusyError, NotFoundError, SnapshotExpiredError
from fuse_stream.feed.follow import Follower
from fuse_stream.feed.offsets import Batch
from fuse_stream.feed.views import Request
from fuse_stream.format.names import check_name
from fuse_stream.format.properties import CONSUMER_LEASE, duration_property_us
from fuse_stream.format.refs import Lease, Position
from fuse_stream.format.schema import Column
from fuse_stream.format.source_offset import RESYNC, Offset
from fuse_stream.format.times import iso_time
from fuse_stream.objects.leases import (
    StoredLease,
    delete_lease,
    find_lease,
    find_written_us,
    load_lease,
    load_store_time_us,
    store_lease,
)
from fuse_stream.objects.slots import Stored
from fuse_stream.storage.base import Store

RENEWALS = 4
"""How often a lease whose position does not move is written within its duration."""


def open_follower(
    store: Store,
    request: Request,
    columns: tuple[Column, ...] | None,
    *,
    clock: Clock = SYSTEM_CLOCK,
) -> Follower | Consumer:
    """Open a branch to follow; as a `Consumer` if the request has a name. See `Follower`.

    Raises:
        InvalidInputError: the request's consumer is not a valid name.
    """
    follower = Follower(store, request, columns, clock=clock)
    return follower if request.consumer is None else Consumer(follower, request, clock=clock)


class Consumer:
    """Follows a branch under a name: writes the lease before each step of its follower.

    Each `Consumer` object has an owner id of its own.
    """

    def __init__(self, follower: Follower, request: Request, *, clock: Clock) -> None:
        """Set the consumer up; write nothing yet.

        Raises:
            InvalidInputError: the request's consumer is not a valid name.
        """
        assert request.consumer is not None
        self._name = check_name(request.consumer)
        self._on_expired = request.on_expired
        self._follower = follower
        self._metadata = follower.metadata
        self._owner_id = clock.new_id()
        self._clock = clock
        self._held: StoredLease | None = None
        self._held_s = 0.0
        self.head_offset = follower.head_offset
        self.pin_head = follower.pin_head
        self.forget_before = follower.forget_before

    def first_offset(self) -> Offset:
        """Return the first offset of a stream without a checkpoint; see `Follower`."""
        follower = self._follower
        try:
            return follower.first_offset()
        except SnapshotExpiredError:  # a lease keeps the start if the first batch runs again
            follower.kept_from = self._find_kept_version()
            if follower.kept_from is None:
                raise
        try:
            return follower.first_offset()
        finally:
            follower.kept_from = None  # this reader holds no lease yet

    def next_offset(self, asked: Offset, *, is_limited: bool) -> Offset:
        """Return where the batch from `asked` ends, and keep what it needs; see `Follower`.

        Raises:
            ConsumerBusyError: another reader holds the consumer's lease.
            SnapshotExpiredError: the lease was lost, and what it kept has expired.
        """
        if not asked.is_undecided and self._must_renew():
            self._follower.check_history(asked)
            self._hold(asked, asked)  # before reading anything that only a lease keeps
        end = self._planned(asked, is_limited=is_limited)
        if self._held is None or self._held.lease.resumes != resumes(asked, end):
            was_kept = self._follower.kept_from is not None
            if not self._hold(asked, end) and was_kept:
                end = self._planned(asked, is_limited=is_limited)  # raises for what is lost
        return end

    def read_between(self, start: Offset, end: Offset) -> Batch:
        """Return the batch between two offsets, and keep its versions; errors of `next_offset`."""
        if self._held is None:  # a batch that was planned by an earlier run
            self._follower.check_history(end)
            self._hold(start, end)
        return self._follower.read_between(start, end)

    def _planned(self, asked: Offset, *, is_limited: bool) -> Offset:
        try:
            return self._follower.next_offset(asked, is_limited=is_limited)
        except SnapshotExpiredError:
            if self._on_expired == "fail" or asked.settled.index != 0:
                raise
        return self._follower.resync_offset(asked)

    # ---- the lease

    def _must_renew(self) -> bool:
        if self._held is None:
            return True
        age_s = self._clock.monotonic_s() - self._held_s
        return age_s * RENEWALS >= self._held.lease.lease_us / 1_000_000

    def _hold(self, start: Offset, end: Offset) -> bool:
        """Write the lease for a batch; return whether all that the batch needs is kept.

        Raises:
            ConsumerBusyError: another reader holds the lease.
        """
        began_s = self._clock.monotonic_s()
        head, branch = self._follower.seen_head(), self._follower.branch
        lease = Lease(
            consumer=self._name,
            owner_id=self._owner_id,
            branch_id=branch.branch_id,
            forks=branch.forks,
            version=needed_from(start, end),
            resumes=resumes(start, end),
            lease_us=duration_property_us(head.snapshot.properties, CONSUMER_LEASE),
        )
        before = self._find_predecessor(lease)
        if before is None and head.snapshot.floor > lease.version:
            return self._withdraw(head)  # the lease would keep nothing
        # The second write records for a restart what the look at the head after the first showed.
        for _ in range(2):
            lease = extended(lease, before)
            store_lease(self._metadata, lease)
            now_us = find_written_us(self._metadata, self._name)
            if now_us is None:
                return self._withdraw(head)  # the lease was released just now
            before = StoredLease(lease=lease, written_us=now_us)
            if before.is_unbroken:
                break
            head = self._metadata.load_head(branch.branch_id, head)
            if head.snapshot.floor > lease.version:
                return self._withdraw(head)
        self._held = before
        self._held_s = began_s
        self._follower.kept_from = lease.version
        return True

    def _find_predecessor(self, lease: Lease) -> StoredLease | None:
        """Return the live lease that already keeps what `lease` needs; None if none does.

        Raises:
            ConsumerBusyError: another reader holds the lease.
        """
        try:
            current = load_lease(self._metadata, self._name)
        except NotFoundError:
            return None
        if self._held is not None and current.owner_id == self._owner_id:
            return self._held if keeps(self._held.lease, lease) else None
        now_us = load_store_time_us(self._metadata)
        found = find_lease(self._metadata, self._name)
        if found is None or not found.is_live(now_us):
            return None
        if may_take_over(lease, found.lease, has_held=self._held is not None):
            return found if found.is_unbroken and keeps(found.lease, lease) else None
        raise ConsumerBusyError(
            "another reader holds this consumer's lease; stop that reader, or wait until the lease "
            "lapses, or give this stream a consumer name of its own. A restarted stream takes the "
            "lease over at once if it has the checkpoint that the lease was written for; before a "
            "fork, which continues from an earlier position, release(name, force=True) the lease",
            consumer=self._name,
            position=found.lease.version,
            lapses=iso_time(found.lapses_us),
            owner=found.lease.owner_id,
        )

    def _find_kept_version(self) -> int | None:
        """Return the first version that the current lease keeps; None if it keeps nothing."""
        now_us = load_store_time_us(self._metadata)
        found = find_lease(self._metadata, self._name)
        here = self._follower.branch.branch_id
        if found is None or found.lease.branch_id != here or not found.is_unbroken:
            return None
        return found.lease.version if found.is_live(now_us) else None

    def _withdraw(self, head: Stored) -> bool:
        self._held = None
        self._follower.lose_before(head.snapshot.floor)
        with contextlib.suppress(NotFoundError):
            if load_lease(self._metadata, self._name).owner_id == self._owner_id:
                delete_lease(self._metadata, self._name)
        return False


def needed_from(start: Offset, end: Offset) -> int:
    """Return the oldest version that a batch, or any later one, is read from. Pure."""
    if start.is_undecided or end.index == RESYNC:
        return end.version  # the table at that version
    return start.version - 1 if start.index > 0 else start.version


def resumes(start: Offset, end: Offset) -> tuple[Position, ...]:
    """Return the positions from which a reader may be asked to continue after a batch. Pure."""
    places = (Position(version=place.version, index=place.index) for place in (start, end))
    return tuple(dict.fromkeys(places))


def may_take_over(lease: Lease, current: Lease, *, has_held: bool) -> bool:
    """True if this reader resumes from the current lease holder's position. Pure.

    Args:
        lease: the lease to be written.
        current: the lease that is stored, which is live.
        has_held: whether this reader held the lease before: then it is not a restart, but was
            itself replaced by one.
    """
    if current.owner_id == lease.owner_id:
        return True
    is_restart = lease.branch_id == current.branch_id and lease.resumes[0] in current.resumes
    return is_restart and not has_held


def keeps(before: Lease, lease: Lease) -> bool:
    """True if `before`, while it is live, keeps all that `lease` needs. Pure."""
    return before.branch_id == lease.branch_id and before.version <= lease.version


def extended(lease: Lease, before: StoredLease | None) -> Lease:
    """Return `lease` with the time until which `before` keeps all that it needs. Pure."""
    return dataclasses.replace(lease, unbroken_until_us=before.lapses_us if before else 0)
