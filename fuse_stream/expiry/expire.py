"""Expire old snapshots: commit a higher floor, and drop idle ledger entries.

This deletes no file. Whoever reads the head after this commit can no longer read versions below the
floor; vacuum deletes what is then unreachable.

Rules:
- The age of a snapshot counts from the time when its successor was published, by the store's
  clock: before that it was the newest one, perhaps for years.
- A snapshot that was superseded less than the grace ago never expires; nor does the newest.
- The oldest snapshots expire, without a gap: the floor is one number.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.plan import Content, Intent, NothingToDoError, Staged
from fuse_stream.errors import InvalidInputError
from fuse_stream.format.layout import SLOTS_PREFIX, slot_of
from fuse_stream.format.one_line import one_line
from fuse_stream.format.properties import (
    LEDGER_RETAIN,
    RETAIN,
    Duration,
    duration_of,
    duration_property_us,
)
from fuse_stream.format.records import LedgerKey, Operation, Snapshot
from fuse_stream.format.refs import owner_of
from fuse_stream.objects.leases import iter_leases, load_store_time_us
from fuse_stream.objects.slots import Metadata, Stored

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """The report of an expiry, or of its dry run."""

    snapshot: Snapshot | None
    """The commit; None if there was nothing to do, or for a dry run."""
    floor_before: int
    floor: int
    """The oldest version that has not expired."""
    dropped: tuple[LedgerKey, ...] = ()
    """The (application, writer) of each ledger entry dropped because its stream was idle."""
    left_behind: tuple[str, ...] = ()
    """Consumers whose position is below the floor: they can continue only while their lease is
    live."""
    kept_by_grace: int = 0
    """The number of versions that `older_than` and `keep_last` let go, and that the table's
    property `fuse.grace` keeps: they were superseded more recently. A later call expires them."""

    __repr__ = one_line(
        "version=snapshot.version expired_count floor kept_by_grace dropped left_behind"
    )

    @property
    def expired_count(self) -> int:
        """The number of versions that expired."""
        return self.floor - self.floor_before


def expire(
    committer: Committer,
    *,
    older_than: Duration | None = None,
    keep_last: int | None = None,
    dry_run: bool = False,
) -> Expiry:
    """Expire old snapshots of a branch; arguments and errors of `Table.expire`."""
    metadata = committer.metadata
    head = committer.head()
    retention = _retention(head.snapshot, older_than, keep_last)
    if dry_run:
        now_us = metadata.clock.now_us() + committer.clock_offset_us
    else:
        committer.prepare()
        now_us = load_store_time_us(metadata)
    published = _published(metadata, head, committer.branch_id)
    floor, without_grace = (
        choose_floor(head.snapshot.floor, published, retention, now_us=now_us, grace_us=grace_us)
        for grace_us in (committer.grace_us, 0)
    )
    commit_now_us = _commit_time(head.snapshot, published, now_us)
    planned = Expiry(
        snapshot=None,
        floor_before=head.snapshot.floor,
        floor=floor,
        dropped=_idle(head.snapshot, commit_now_us),
        left_behind=tuple(
            standing.lease.name
            for standing in iter_leases(metadata)
            if standing.lease.branch_id == committer.branch_id and standing.lease.version < floor
        ),
        kept_by_grace=without_grace - floor,
    )
    if dry_run or not (planned.expired_count or planned.dropped):
        return planned

    def stage(on: Stored, _before: Staged | None) -> Staged:
        dropped = _idle(on.snapshot, commit_now_us)
        if on.snapshot.floor >= floor and not dropped:
            raise NothingToDoError  # another commit did the same meanwhile
        ledger = on.snapshot.ledger
        entries = {key: entry for key, entry in ledger.entries.items() if key not in dropped}
        ledger = dataclasses.replace(ledger, entries=entries)  # retired queries stay forever
        raised = max(floor, on.snapshot.floor)
        content = Content.of(on.snapshot, floor=raised, ledger=ledger)
        return Staged(schema=on.snapshot.schema, content=content)

    try:
        stored = committer.commit(Intent(operation=Operation.EXPIRE), stage).stored
    except NothingToDoError:
        return dataclasses.replace(planned, floor=planned.floor_before, dropped=())
    entries = stored.snapshot.ledger.entries
    dropped = tuple(key for key in planned.dropped if key not in entries)
    for application, writer in dropped:
        _log.info(
            "the ledger entry of application %r, writer %r was dropped: it was idle for long",
            application,
            writer,
        )
    return dataclasses.replace(
        planned, snapshot=stored.snapshot, floor=stored.snapshot.floor, dropped=dropped
    )


def _retention(head: Snapshot, older_than: Duration | None, keep_last: int | None) -> Retention:
    if keep_last is not None and (type(keep_last) is not int or keep_last < 1):
        raise InvalidInputError("keep_last must be a number from 1", keep_last=keep_last)
    if older_than is not None:
        return Retention(older_than_us=duration_of(older_than), keep_last=keep_last)
    if keep_last is not None:
        return Retention(keep_last=keep_last)
    if RETAIN not in head.properties:
        raise InvalidInputError(
            'no rule says what expires: pass older_than="30d" or keep_last=100, or set the '
            f"property {RETAIN}, which is then used"
        )
    return Retention(older_than_us=duration_property_us(head.properties, RETAIN))


def _published(metadata: Metadata, head: Stored, branch_id: str) -> list[tuple[int, int]]:
    """Return (version, store's time of its slot) for the versions of a branch up to the head."""
    forks = metadata.forks_of(branch_id)
    owners = {fork.branch_id for fork in forks} | {branch_id}
    found = [
        (place[1], info.modified_us)
        for owner in sorted(owners)
        for info in metadata.store.list(f"{SLOTS_PREFIX}{owner}/")
        if (place := slot_of(info.key)) is not None
        and place[1] <= head.snapshot.version
        and owner_of(forks, branch_id, place[1]) == owner
    ]
    return sorted(found)


def _commit_time(head: Snapshot, published: list[tuple[int, int]], now_us: int) -> int:
    """Return the timestamp that a snapshot committed now would have.

    Timestamps come from the writers' clocks, which may be far behind the store's: compared with the
    store's time, an entry that was just made would seem idle.
    """
    published_us = dict(published).get(head.version)  # None if the branch was deleted meanwhile
    return head.timestamp_us + (0 if published_us is None else now_us - published_us)


def _idle(snapshot: Snapshot, now_us: int) -> tuple[LedgerKey, ...]:
    retain_us = duration_property_us(snapshot.properties, LEDGER_RETAIN)
    return tuple(
        key
        for key, entry in sorted(snapshot.ledger.entries.items())
        if now_us - entry.timestamp_us >= retain_us
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The rules of retention. A snapshot expires if every rule that is set allows it."""

    older_than_us: int | None = None
    """The least time since the snapshot was superseded."""
    keep_last: int | None = None
    """The number of newest snapshots that are kept."""


def choose_floor(
    floor: int,
    published: Iterable[tuple[int, int]],
    retention: Retention,
    *,
    now_us: int,
    grace_us: int,
) -> int:
    """Return the new floor of a branch, at least its present `floor`. Pure.

    `published` are (version, store's time) of its slots, in order of versions, listed after the
    store's time `now_us` was read. If a slot is missing, the version before it counts as superseded
    when the next listed one was published, which is later than the truth.
    """
    slots = list(published)
    least_us = max(grace_us, retention.older_than_us or 0)
    last = slots[-1][0] - (retention.keep_last or 1) if slots else floor - 1
    for version, time_us in slots:
        if version <= floor:
            continue
        if now_us - time_us < least_us or version - 1 > last:
            break
        floor = version
    return floor
