"""The fences of a vacuum: two commits on each branch. No later commit builds on an older head.

The first fence also raises the epoch, if the last raise was long enough ago. A writer that sees two
raises between the head for which it put its objects and the head on which it commits puts them
again. So no commit needs an unreachable object that is older than the raise before the last.

The second fence is made after the refs were read, and raises nothing. A writer that built on the
first fence, and relied on a ref that was deleted before the refs were read, finds its slot taken,
checks the ref again, and finds it deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.plan import Content, Intent, Staged
from fuse_stream.errors import CorruptObjectError, NotFoundError
from fuse_stream.expiry.keepers import StoreTime
from fuse_stream.expiry.mark import Known, MissingError, Slot, SlotName, read_content, read_slot
from fuse_stream.format.layout import slot_key
from fuse_stream.format.properties import VACUUM_AGE, duration_property_us
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.format.refs import BranchRef
from fuse_stream.objects.head_search import LOOKS
from fuse_stream.objects.refs import load_branch
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.objects.source_offsets import load_offsets
from fuse_stream.storage.base import Store
from fuse_stream.storage.parallel import each


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRaise:
    """The time of a raise of a branch's epoch, by the store's clock."""

    time_us: int
    place: SlotName | None
    """The slot that shows the time, if one does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """A branch after the first fence; in a dry run, as the fence would leave it."""

    branch: BranchRef
    floor: int
    before: EpochRaise
    """The raise before the last: no commit in flight needs older objects."""
    keeps: frozenset[SlotName]
    """Slots whose times the next vacuum needs."""
    is_raised: bool
    due_us: int
    """When a vacuum may raise the epoch again, by the store's time."""


def check_head(
    metadata: Metadata, branch: BranchRef, *, named: int, listed: int, known: Known
) -> None:
    """Raise if the newest slot of a branch is lost, or names a missing or damaged object.

    A fence would take the name of a lost slot, or would again name what a damaged slot names.

    `named` is the greatest of its versions that a ref or lease names, `listed` the greatest of its
    own versions that was listed; both were read before. The segments and deletion files of the
    newest slot are added to `known`.

    Raises:
        NotFoundError: the branch was deleted meanwhile, or its newest slot is lost.
        CorruptObjectError: its newest slots are lost, or name a missing or damaged object.
        MissingError: a newer slot was committed meanwhile, and an object of this one was deleted.
    """
    head = metadata.load_head(branch.branch_id)
    if head.snapshot.version < max(named, listed):
        _check_not_deleted(metadata, branch)
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
            "a slot is listed that no search for the newest slot of its branch finds: the slots "
            "before it are lost, or it is a stray object; nothing was deleted. Restore the lost "
            "slots from a copy, or delete the listed one if the branch never had its version",
            branch=branch.name,
            version=head.snapshot.version,
            lost_version=head.snapshot.version + 1,
            key=slot_key(branch.branch_id, listed),
        )
    _check_content(metadata, branch, head, known)


def _check_content(metadata: Metadata, branch: BranchRef, head: Stored, known: Known) -> None:
    place = head.snapshot.branch_id, head.snapshot.version
    try:
        read_content(metadata.store, place, known)
        for entry in head.snapshot.ledger.entries.values():
            for offsets in entry.offsets:
                load_offsets(metadata.store, offsets)
    except (MissingError, CorruptObjectError) as error:
        if metadata.load_head(branch.branch_id).sha256 != head.sha256:
            raise MissingError(str(error)) from error
        _check_not_deleted(metadata, branch)
        wrong = error.message if isinstance(error, CorruptObjectError) else "it is missing"
        context = error.context if isinstance(error, CorruptObjectError) else {"key": str(error)}
        raise CorruptObjectError(
            "the newest slot of a branch names an object that is missing or damaged "
            f"({wrong}), or the slot itself is damaged; nothing was deleted. See what fuse-stream "
            "fsck says, and restore the slot or the object from a copy, or delete the branch",
            **{**context, "branch": branch.name, "slot": slot_key(*place)},
        ) from error


def _check_not_deleted(metadata: Metadata, branch: BranchRef) -> None:
    if load_branch(metadata, branch.name) != branch:
        raise NotFoundError("the branch was deleted meanwhile", branch=branch.name)


def commit_fence(
    metadata: Metadata,
    branch: BranchRef,
    slots: Mapping[int, Slot],
    store_time: StoreTime,
    *,
    created_us: int,
    dry_run: bool,
) -> Fence:
    """Commit the first fence, unless in a dry run, and return it.

    The branch's own `slots` were listed and the store's time was read before. `created_us` is the
    store's time of the branch's ref; of version 0 for `main`.

    Raises:
        NotFoundError: the branch was deleted meanwhile, or its newest slot is lost.
    """
    committer = _committer(metadata, branch, store_time)
    now_us = store_time.store_us
    head = committer.head().snapshot
    age_us = duration_property_us(head.properties, VACUUM_AGE)
    last = load_raise(metadata.store, branch, slots, head.epoch, created_us=created_us)
    is_due = now_us - last.time_us >= age_us
    epoch = head.epoch + is_due
    before = last
    if not is_due:
        wanted = max(head.epoch - 1, 0)
        before = load_raise(metadata.store, branch, slots, wanted, created_us=created_us)
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


def commit_second_fence(metadata: Metadata, branch: BranchRef, store_time: StoreTime) -> None:
    """Commit the second fence.

    Raises:
        NotFoundError: the branch was deleted meanwhile.
    """
    _commit(_committer(metadata, branch, store_time), 0)


def load_raise(
    store: Store, branch: BranchRef, slots: Mapping[int, Slot], epoch: int, *, created_us: int
) -> EpochRaise:
    """Return when the epoch of a branch was raised to `epoch`, by searching its own slots.

    Some of the slots may be deleted. An epoch that the branch took over from another counts from
    the creation of its ref: nobody wrote to the branch before. If no slot shows the time for
    certain, the answer is the same: it is too early, which is safe.
    """
    versions = sorted(slots)
    first = _find_epoch(store, branch.branch_id, versions, epoch)
    if epoch > branch.epoch and first < len(versions):
        place = branch.branch_id, versions[first]
        names = read_slot(store, place)
        if names.epoch == epoch and names.operation == Operation.EXPIRE:
            return EpochRaise(time_us=slots[names.version].modified_us, place=place)
    return EpochRaise(time_us=created_us, place=None)


def _find_epoch(store: Store, branch_id: str, versions: Sequence[int], epoch: int) -> int:
    """Return the index of the first version with at least this epoch, which never falls."""

    def epoch_at(index: int) -> int:
        return read_slot(store, (branch_id, versions[index])).epoch

    parts = 1 + (LOOKS if store.is_remote else 1)
    low, high = 0, len(versions)
    while low < high:
        looked = sorted({low + (high - low) * part // parts for part in range(1, parts)})
        for index, found in zip(
            looked, each(epoch_at, looked, store, at_once=parts - 1), strict=True
        ):
            if found < epoch:
                low = index + 1
            else:
                high = min(high, index)
    return low


def _committer(metadata: Metadata, branch: BranchRef, store_time: StoreTime) -> Committer:
    committer = Committer(metadata, branch, grace_us=store_time.grace_us, is_probed=True)
    committer.clock_offset_us = store_time.offset_us
    return committer


def _commit(committer: Committer, epoch: int) -> Snapshot:
    """Commit a fence with at least this epoch; return the new head."""

    def stage(on: Stored, _before: Staged | None) -> Staged:
        content = Content.of(on.snapshot, epoch=max(epoch, on.snapshot.epoch))
        return Staged(schema=on.snapshot.schema, content=content)

    intent = Intent(operation=Operation.EXPIRE, message="fence of a vacuum")
    return committer.commit(intent, stage).stored.snapshot
