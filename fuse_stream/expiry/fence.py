"""The fences of a vacuum: commits on a branch, after which nobody builds on an older head.

The first one also raises the epoch, if that was raised long enough ago. A commit that sees two
raises between the head for which it put its objects and the one that it builds on puts them again:
so what is unreachable and older than the raise before the last is nobody's any more.

The second one, made when the refs were read, raises nothing: who built on the first, and relied on
a name that went before the refs were read, looks again and misses it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.plan import Content, Intent, Staged
from fuse_stream.errors import CorruptObjectError, NotFoundError
from fuse_stream.expiry.keepers import Moment
from fuse_stream.expiry.mark import (
    BlocksOf,
    MissingError,
    Place,
    Slot,
    read_content,
    read_slot,
)
from fuse_stream.format.layout import slot_key
from fuse_stream.format.properties import VACUUM_AGE, duration_property_us
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.format.refs import BranchRef
from fuse_stream.objects.refs import load_branch
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.objects.source_offsets import load_offsets
from fuse_stream.storage.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Raise:
    """When a branch came to an epoch, by the store's time."""

    time_us: int
    place: Place | None
    """The slot that tells it, where one does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """A branch as the first fence left it; as it would, where none was made."""

    branch: BranchRef
    floor: int
    before: Raise
    """The raise before the last: what is older than that, nobody is about to commit."""
    keeps: frozenset[Place]
    """Slots that the next vacuum asks for times."""
    is_raised: bool
    due_us: int
    """From then on, by the store's time, a vacuum raises the epoch again."""


def check_head(
    metadata: Metadata, branch: BranchRef, *, named: int, listed: int, known: BlocksOf
) -> None:
    """See that the newest slot of a branch is not lost, and that what it names is there.

    A commit would take the place of a lost slot, or name all that a damaged one names.

    Args:
        metadata: of the table.
        branch: any branch.
        named: the greatest of its versions that a ref or lease names, read before.
        listed: the greatest of its own versions that was listed before.
        known: segments that were read, to which those of the newest slot are added.

    Raises:
        NotFoundError: the branch was deleted meanwhile, or its newest slot is lost.
        CorruptObjectError: its newest slots are lost, or the newest one names what is not there.
        MissingError: another was committed meanwhile, and what this one names was deleted.
    """
    head = metadata.load_head(branch.branch_id)
    metadata.check_not_set_back(branch.branch_id, head)
    if head.snapshot.version < named:
        raise CorruptObjectError(
            "a ref or lease names a newer version than the newest slot of the branch: slots are "
            "lost, and nothing was deleted; see what fuse-stream fsck says, and restore them from "
            "a copy, or delete the tag or branch, or release the consumer, that names them",
            branch=branch.name,
            version=head.snapshot.version,
            lost_version=named,
        )
    if head.snapshot.version < listed:
        raise CorruptObjectError(
            "a slot is listed that no search for the newest slot of its branch finds: those before "
            "it are lost, or it is a stray object; nothing was deleted. Restore the lost slots "
            "from a copy, or delete the listed one if the branch never came to its version",
            branch=branch.name,
            version=head.snapshot.version,
            lost_version=head.snapshot.version + 1,
            key=slot_key(branch.branch_id, listed),
        )
    _check_content(metadata, branch, head, known)


def _check_content(metadata: Metadata, branch: BranchRef, head: Stored, known: BlocksOf) -> None:
    place = head.snapshot.branch_id, head.snapshot.version
    try:
        read_content(metadata.store, place, known)
        for entry in head.snapshot.ledger.entries.values():
            for offsets in entry.offsets:
                load_offsets(metadata.store, offsets)
    except (MissingError, CorruptObjectError) as error:
        if metadata.load_head(branch.branch_id).sha256 != head.sha256:
            raise MissingError(str(error)) from error
        _check_stands(metadata, branch)
        wrong = error.message if isinstance(error, CorruptObjectError) else "it is not there"
        context = error.context if isinstance(error, CorruptObjectError) else {"key": str(error)}
        raise CorruptObjectError(
            "the newest slot of a branch names an object that is missing or damaged "
            f"({wrong}), or a byte of the slot itself was changed; nothing was deleted. See what "
            "fuse-stream fsck says, and restore the slot or the object from a copy, or delete the "
            "branch",
            **{**context, "branch": branch.name, "slot": slot_key(*place)},
        ) from error


def _check_stands(metadata: Metadata, branch: BranchRef) -> None:
    """Raise `NotFoundError` if a branch was deleted."""
    if load_branch(metadata, branch.name) != branch:
        raise NotFoundError("the branch was deleted meanwhile", branch=branch.name)


def put_fence(
    metadata: Metadata,
    branch: BranchRef,
    slots: Mapping[int, Slot],
    moment: Moment,
    *,
    created_us: int,
    dry_run: bool,
) -> Fence:
    """Make the first commit, unless it is only asked what would be.

    Args:
        metadata: of the table.
        branch: any branch.
        slots: its own, listed before.
        moment: the store's time, learned before.
        created_us: the store's time of its ref; of version 0 for `main`.
        dry_run: whether to write nothing.

    Raises:
        NotFoundError: the branch was deleted meanwhile, or its newest slot is lost.
    """
    committer = _committer(metadata, branch, moment)
    now_us = moment.store_us
    head = committer.head().snapshot
    age_us = duration_property_us(head.properties, VACUUM_AGE)
    last = find_raise(metadata.store, branch, slots, head.epoch, created_us=created_us)
    is_due = now_us - last.time_us >= age_us
    epoch = head.epoch + is_due
    before = last
    if not is_due:
        wanted = max(head.epoch - 1, 0)
        before = find_raise(metadata.store, branch, slots, wanted, created_us=created_us)
    if not dry_run:
        head = _commit(committer, epoch)
    return Fence(
        branch=branch,
        floor=head.floor,
        before=before,
        keeps=frozenset(raised.place for raised in (before, last) if raised.place is not None),
        is_raised=is_due,
        due_us=(now_us if is_due else last.time_us) + age_us,
    )


def put_second_fence(metadata: Metadata, branch: BranchRef, moment: Moment) -> None:
    """Make the second commit.

    Raises:
        NotFoundError: the branch was deleted meanwhile.
    """
    _commit(_committer(metadata, branch, moment), 0)


def find_raise(
    store: Store, branch: BranchRef, slots: Mapping[int, Slot], epoch: int, *, created_us: int
) -> Raise:
    """Return when a branch came to an epoch: bisects its own slots, of which some may be gone.

    An epoch that a branch took over counts from when its ref was made: nobody wrote to it before.
    That is also the answer, too early and therefore safe, where no slot tells for certain.
    """
    versions = sorted(slots)
    first = bisect_left(
        versions, epoch, key=lambda version: read_slot(store, (branch.branch_id, version)).epoch
    )
    if epoch > branch.epoch and first < len(versions):
        place = branch.branch_id, versions[first]
        names = read_slot(store, place)
        if names.epoch == epoch and names.operation == Operation.EXPIRE:
            return Raise(time_us=slots[names.version].modified_us, place=place)
    return Raise(time_us=created_us, place=None)


def _committer(metadata: Metadata, branch: BranchRef, moment: Moment) -> Committer:
    committer = Committer(metadata, branch, grace_us=moment.grace_us, is_probed=True)
    committer.clock_offset_us = moment.offset_us
    return committer


def _commit(committer: Committer, epoch: int) -> Snapshot:
    """Return the new head, whose epoch is at least this one."""

    def stage(on: Stored, _before: Staged | None) -> Staged:
        content = Content.of(on.snapshot, epoch=max(epoch, on.snapshot.epoch))
        return Staged(schema=on.snapshot.schema, content=content)

    return committer.commit(Intent(operation=Operation.EXPIRE), stage).stored.snapshot
