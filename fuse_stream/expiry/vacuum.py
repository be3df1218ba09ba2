"""Deleting what nobody needs any more, of the whole table.

The order is the safety. Others go on meanwhile, and each may sleep between any two of its calls:

1. A fence is made on every branch, then the refs and leases are read, until no ref is a branch
   that was not fenced. The floors that count are those of this fence. Who makes a name sees them
   afterwards, so the name is either read here or taken back.
2. A second fence is made on every branch, which raises nothing. Who builds on an older head and
   relies on a name that goes meanwhile looks again, and misses it.
3. What refs and leases reach is marked, up to the heads. What is committed later builds on a
   marked head, and on new objects.
4. A chunk's marker stands before the first of its slots is freed.
5. What is not marked is deleted if it is older than the raise before the last, of every branch:
   younger objects may belong to a commit in flight.

A vacuum that dies is finished by the next one; two at once delete what neither needs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from fuse_stream.commit.committer import Committer
from fuse_stream.errors import (
    ConflictError,
    CorruptObjectError,
    FuseError,
    NotFoundError,
)
from fuse_stream.expiry.fence import (
    Fence,
    check_head,
    put_fence,
    put_second_fence,
)
from fuse_stream.expiry.keepers import (
    Keepers,
    Moment,
    lines_of,
    load_keepers,
    newest_named,
)
from fuse_stream.expiry.mark import (
    BlocksOf,
    Marked,
    MissingError,
    Place,
    Progress,
    Slots,
    list_slots,
    mark,
)
from fuse_stream.format.layout import (
    BLOCKS_PREFIX,
    CHUNK_VERSIONS,
    FLOOR_PREFIX,
    HINT_PREFIX,
    MAIN,
    OFFSETS_PREFIX,
    PROBE_PREFIX,
    SEGMENTS_PREFIX,
    SERVICES_PREFIX,
    floor_key,
    floor_of,
    hint_key,
    id_in,
    lease_key,
    service_key,
    slot_key,
)
from fuse_stream.format.properties import LEDGER_RETAIN, duration_property_us
from fuse_stream.format.refs import BranchRef
from fuse_stream.objects.leases import (
    StoredLease,
    delete_lease,
    find_written_us,
    load_store_time_us,
)
from fuse_stream.objects.refs import load_branch
from fuse_stream.objects.slots import Metadata
from fuse_stream.storage.base import find_object

SNAPSHOTS, SEGMENTS, BLOCKS, OFFSETS = "snapshots", "segments", "blocks", "source offsets"
PROBES, HINTS, CLAIMS, LEASES = "probes", "hints", "service claims", "leases"

_DELETED_AT_ONCE = 1000
MOST_ROUNDS = 100
"""In which all new branches are fenced, before the refs are read again."""
_ATTEMPTS = 3
"""Looks at a table in which objects vanish: another vacuum may be going on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Objects of one kind."""

    object_count: int = 0
    byte_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumReport:
    """What a vacuum deleted, or would delete."""

    dry_run: bool
    deleted: dict[str, Removed]
    """By kind."""
    waiting: dict[str, Removed]
    """What nothing names either, but may belong to a commit in flight."""
    raised: tuple[str, ...]
    """Branches whose epoch this vacuum raised."""
    due_us: int
    """By the store's time: from then on a vacuum raises the epoch of every branch again, without
    which nothing that is waiting grows old enough."""

    @property
    def object_count(self) -> int:
        """How many objects were deleted, or would be."""
        return sum(removed.object_count for removed in self.deleted.values())

    @property
    def byte_size(self) -> int:
        """How many bytes those have."""
        return sum(removed.byte_size for removed in self.deleted.values())


@dataclass(slots=True)
class _Pile:
    """Objects of one kind that are to go."""

    keys: list[str] = field(default_factory=list)
    byte_size: int = 0

    def add(self, key: str, size: int) -> None:
        self.keys.append(key)
        self.byte_size += size

    def described(self) -> Removed:
        return Removed(object_count=len(self.keys), byte_size=self.byte_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """What stays, and why."""

    keepers: Keepers
    fences: dict[str, Fence]
    """By branch id."""
    before_us: int
    """What is older than this belongs to no commit in flight."""
    slots: Slots
    marked: Marked


def vacuum(
    committer: Committer, *, dry_run: bool = False, progress: Progress | None = None
) -> VacuumReport:
    """Vacuum the table of a branch; errors and arguments of `Table.vacuum`."""
    report = progress or _say_nothing
    metadata = committer.metadata
    here_us = metadata.clock.now_us()
    if dry_run:
        now_us = here_us + committer.clock_offset_us
    else:
        committer.prepare()
        now_us = load_store_time_us(metadata)
    moment = Moment(store_us=now_us, offset_us=now_us - here_us, grace_us=committer.grace_us)
    kept = _look(metadata, moment, dry_run=dry_run, report=report)
    freed, markers = _freed_slots(metadata, kept)
    piles = {SNAPSHOTS: freed}
    waiting: dict[str, _Pile] = {}
    _sort_slots_of_deleted(kept, piles, waiting)
    _sort_objects(metadata, kept, piles, waiting)
    _sort_traces_of_deleted(metadata, kept, piles)
    lapsed = _lapsed_for_long(metadata, kept, moment)
    piles[LEASES] = _Pile(keys=[lease_key(item.lease.name) for item in lapsed])
    if not dry_run:
        for branch_id, chunk in markers:
            _put_marker(metadata, branch_id, chunk)
        for item in lapsed:  # but for those whose reader has come back
            if find_written_us(metadata, item.lease.name) == item.written_us:
                delete_lease(metadata, item.lease.name)
        keys = [key for kind, pile in piles.items() if kind != LEASES for key in pile.keys]
        for start in range(0, len(keys), _DELETED_AT_ONCE):
            report("deleting", start, len(keys))
            metadata.store.delete_all(keys[start : start + _DELETED_AT_ONCE])
    fences = kept.fences.values()
    return VacuumReport(
        dry_run=dry_run,
        deleted={kind: pile.described() for kind, pile in piles.items()},
        waiting={kind: pile.described() for kind, pile in waiting.items()},
        raised=tuple(fence.branch.name for fence in fences if fence.is_raised),
        due_us=max(fence.due_us for fence in fences),
    )


def _look(metadata: Metadata, moment: Moment, *, dry_run: bool, report: Progress) -> _Kept:
    missing = MissingError()
    for _ in range(_ATTEMPTS):
        try:
            return _look_once(metadata, moment, dry_run=dry_run, report=report)
        except MissingError as error:
            missing = error
        try:  # without a commit: one that is lost is still missed, and needs no more fences
            _look_once(metadata, moment, dry_run=True, report=report)
        except MissingError as error:
            if str(error) == str(missing):
                break
    raise CorruptObjectError(
        "an object that is to be kept is missing, so what it needs is not known, and nothing was "
        "deleted; see what fuse-stream fsck says of it, and restore it from a copy first, or "
        "delete the tag, branch or pin that needs it if the call that made that never returned",
        key=str(missing),
    ) from missing


def _look_once(metadata: Metadata, moment: Moment, *, dry_run: bool, report: Progress) -> _Kept:
    known: BlocksOf = {}
    keepers, fences = _fence_all(metadata, moment, known, dry_run=dry_run, report=report)
    if not dry_run:
        for branch in keepers.branches:
            with _unless_deleted(metadata, branch):  # else nobody builds on it any more
                put_second_fence(metadata, branch, moment)
    slots = list_slots(metadata.store)
    floors = {branch_id: fence.floor for branch_id, fence in fences.items()}
    marked = mark(metadata.store, slots, lines_of(keepers, floors), report, known=known)
    before_us = min(fences[branch.branch_id].before.time_us for branch in keepers.branches)
    for fence in fences.values():
        marked.places.update(fence.keeps)
    return _Kept(keepers=keepers, fences=fences, before_us=before_us, slots=slots, marked=marked)


def _fence_all(
    metadata: Metadata, moment: Moment, known: BlocksOf, *, dry_run: bool, report: Progress
) -> tuple[Keepers, dict[str, Fence]]:
    """Return refs and leases that were read after all of the branches among them were fenced.

    What the segments of heads name is added to `known`.

    Raises:
        CorruptObjectError: the newest slot of a branch is lost or damaged; no fence takes its
            place, and none builds on it.
        MissingError: another head was committed meanwhile; look again.
        ConflictError: branches come faster than they are fenced.
    """
    fences: dict[str, Fence] = {}
    for _ in range(MOST_ROUNDS):
        keepers = load_keepers(metadata, moment)
        new = [branch for branch in keepers.branches if branch.branch_id not in fences]
        if not new:
            return keepers, fences
        slots = list_slots(metadata.store)
        named = newest_named(keepers)
        for branch in new:  # all of them, before the first commit
            with _unless_deleted(metadata, branch):
                check_head(
                    metadata,
                    branch,
                    named=named.get(branch.branch_id, 0),
                    listed=max(slots.get(branch.branch_id, ()), default=0),
                    known=known,
                )
        for done, branch in enumerate(new, 1):
            own = slots.get(branch.branch_id, {})
            made_us = keepers.created_us[branch.branch_id]
            created_us = own[0].modified_us if 0 in own else made_us
            with _unless_deleted(metadata, branch):
                fences[branch.branch_id] = put_fence(
                    metadata, branch, own, moment, created_us=created_us, dry_run=dry_run
                )
            report("fencing branches", done, len(new))
    raise ConflictError(
        "branches are made faster than a vacuum fences them; nothing was deleted, try again later",
        rounds=MOST_ROUNDS,
    )


@contextlib.contextmanager
def _unless_deleted(metadata: Metadata, branch: BranchRef) -> Iterator[None]:
    """Pass over what fails because a branch was deleted since it was listed; not because of a loss.

    Raises:
        CorruptObjectError: its ref names it still, so its newest slot is lost.
    """
    try:
        yield
    except NotFoundError as error:
        with contextlib.suppress(NotFoundError):
            if load_branch(metadata, branch.name) == branch:
                raise CorruptObjectError(
                    "the newest slot of a branch is lost, so what it needs is not known, and "
                    "nothing was deleted; see what fuse-stream fsck says, and restore the slot "
                    "from a copy, or delete the branch",
                    **{**error.context, "branch": branch.name},
                ) from error


def _freed_slots(metadata: Metadata, kept: _Kept) -> tuple[_Pile, list[Place]]:
    """Return the slots of expired chunks, and the chunks that lack their marker."""
    standing = {
        found for info in metadata.store.list(FLOOR_PREFIX) if (found := floor_of(info.key))
    }
    freed, chunks = _Pile(), set()
    for branch_id, fence in kept.fences.items():
        end = fence.floor // CHUNK_VERSIONS * CHUNK_VERSIONS
        for version, slot in kept.slots.get(branch_id, {}).items():
            if version < end and (branch_id, version) not in kept.marked.places:
                freed.add(slot_key(branch_id, version), slot.size)
                chunks.add((branch_id, version // CHUNK_VERSIONS))
    return freed, sorted(chunks - standing)


def _sort_slots_of_deleted(kept: _Kept, piles: dict[str, _Pile], waiting: dict[str, _Pile]) -> None:
    """Add the slots of branches that no ref names any more."""
    for branch_id in kept.slots.keys() - kept.fences.keys():
        for version, slot in kept.slots[branch_id].items():
            if (branch_id, version) not in kept.marked.places:
                is_old = slot.modified_us < kept.before_us
                pile = (piles if is_old else waiting).setdefault(SNAPSHOTS, _Pile())
                pile.add(slot_key(branch_id, version), slot.size)


def _sort_objects(
    metadata: Metadata, kept: _Kept, piles: dict[str, _Pile], waiting: dict[str, _Pile]
) -> None:
    """Add what no kept snapshot names, by age."""
    kinds = (
        (SEGMENTS, SEGMENTS_PREFIX, kept.marked.segments),
        (BLOCKS, BLOCKS_PREFIX, kept.marked.blocks),
        (OFFSETS, OFFSETS_PREFIX, kept.marked.offsets),
        (PROBES, PROBE_PREFIX, set[bytes]()),
    )
    for kind, prefix, marked in kinds:
        old, young = piles.setdefault(kind, _Pile()), waiting.setdefault(kind, _Pile())
        for info in metadata.store.list(prefix):
            object_id = id_in(info.key, prefix)
            if object_id is None or bytes.fromhex(object_id) in marked:
                continue
            (old if info.modified_us < kept.before_us else young).add(info.key, info.size)


def _sort_traces_of_deleted(metadata: Metadata, kept: _Kept, piles: dict[str, _Pile]) -> None:
    """Add the hints of deleted branches, and the claims of services on them."""
    standing = {
        HINTS: (HINT_PREFIX, {hint_key(branch_id) for branch_id in kept.fences}),
        CLAIMS: (SERVICES_PREFIX, {service_key(branch_id) for branch_id in kept.fences}),
    }
    for kind, (prefix, needed) in standing.items():
        pile = piles[kind] = _Pile()
        for info in metadata.store.list(prefix):
            if info.key not in needed and info.modified_us < kept.before_us:
                pile.add(info.key, info.size)


def _lapsed_for_long(metadata: Metadata, kept: _Kept, moment: Moment) -> list[StoredLease]:
    """Return the leases of consumers that nobody has heard of for as long as of idle writers."""
    head = metadata.load_head(MAIN).snapshot
    idle_us = duration_property_us(head.properties, LEDGER_RETAIN)
    return [item for item in kept.keepers.lapsed if moment.store_us - item.lapses_us >= idle_us]


def _put_marker(metadata: Metadata, branch_id: str, chunk: int) -> None:
    # The branch's own, though another may own the chunk's first versions: it began in there.
    key = floor_key(branch_id, chunk * CHUNK_VERSIONS)
    try:
        metadata.store.put_if_absent(key, b"expired")
    except FuseError:  # the reply may have been lost, or another vacuum was first
        if find_object(metadata.store, key) is None:
            raise


def _say_nothing(_what: str, _done: int, _total: int) -> None:
    pass
