"""Delete the objects of a table that nothing needs any more.

Safety depends on the order of these steps. Writers continue meanwhile, and each of them may sleep
between any two of its calls:

1. A fence is committed on every branch and the refs and leases are read, again and again until all
   branches among the refs are fenced. The floors of these fences count. Whoever makes a tag, branch
   or pin reads the floor afterwards: so the ref is either read here, or taken back by its maker.
   What any of these readings has is kept: a listing may lack an object.
2. A second fence is committed on every branch, which raises no epoch. A writer that builds on an
   older head, and relies on a ref that was deleted meanwhile, finds its slot taken, checks the ref
   again, and finds it deleted.
3. Everything reachable from refs and leases, up to the heads, is marked. Later commits build on a
   marked head and on new objects.
4. A chunk's marker is put before the first of its slots is deleted.
5. An object that is not marked is deleted if it is older than the raise before the last on every
   branch: younger objects may belong to a commit in flight.

If a vacuum dies, the next one finishes its work. Two at once delete only what neither keeps.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from fuse_stream.commit.committer import Committer
from fuse_stream.errors import ConflictError, CorruptObjectError, FuseError, NotFoundError
from fuse_stream.expiry.fence import Fence, check_head, commit_fence, commit_second_fence
from fuse_stream.expiry.keepers import (
    Keepers,
    StoreTime,
    kept_versions_of,
    load_keepers,
    newest_named,
)
from fuse_stream.expiry.mark import (
    Known,
    Marked,
    MissingError,
    Progress,
    SlotName,
    Slots,
    list_slots,
    mark,
)
from fuse_stream.format.layout import (
    AGGREGATES_PREFIX,
    BLOCKS_PREFIX,
    CHUNK_VERSIONS,
    DELETIONS_PREFIX,
    FLOOR_PREFIX,
    HINT_PREFIX,
    INDEX_LISTS_PREFIX,
    MAIN,
    OFFSETS_PREFIX,
    PROBE_PREFIX,
    SEGMENTS_PREFIX,
    SERVICES_PREFIX,
    STAGED_PREFIX,
    floor_key,
    floor_of,
    hint_key,
    id_in,
    lease_key,
    service_key,
    slot_key,
)
from fuse_stream.format.one_line import one_line
from fuse_stream.format.properties import LEDGER_RETAIN, duration_property_us
from fuse_stream.format.refs import BranchRef
from fuse_stream.objects.leases import (
    delete_lease,
    find_written_us,
    load_store_time_us,
)
from fuse_stream.objects.refs import load_branch
from fuse_stream.objects.slots import Metadata
from fuse_stream.storage.base import find_object

SNAPSHOTS, SEGMENTS, BLOCKS = "snapshots", "segments", "blocks"
DELETIONS, OFFSETS = "deletion files", "source offsets"
INDEX_LISTS, INDEX_PARTS = "lists of indexes", "parts of indexes"
PROBES, HINTS, CLAIMS, LEASES = "probes", "hints", "service claims", "leases"
LEFTOVERS = "unfinished writes"

_DELETED_AT_ONCE = 1000
MOST_ROUNDS = 100
"""The most rounds of fencing all new branches and reading the refs again."""
_ATTEMPTS = 3
"""The most attempts to mark, if objects vanish meanwhile: another vacuum may be running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """The number and size of objects of one kind."""

    object_count: int = 0
    byte_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumReport:
    """The report of a vacuum, or of its dry run."""

    dry_run: bool
    deleted: dict[str, Removed]
    """Deleted objects by kind."""
    waiting: dict[str, Removed]
    """Objects by kind that nothing names either, but that may belong to a commit in flight."""
    raised: tuple[str, ...]
    """Branches whose epoch this vacuum raised."""
    due_us: int
    """When the epoch of every branch can be raised again, by the store's time. Only a raise makes
    waiting objects old enough to be deleted."""

    __repr__ = one_line("dry_run object_count byte_size waiting_count raised due_us")

    @property
    def object_count(self) -> int:
        """The number of deleted objects."""
        return sum(removed.object_count for removed in self.deleted.values())

    @property
    def byte_size(self) -> int:
        """The size of the deleted objects."""
        return sum(removed.byte_size for removed in self.deleted.values())

    @property
    def waiting_count(self) -> int:
        """The number of waiting objects."""
        return sum(removed.object_count for removed in self.waiting.values())


@dataclass(slots=True)
class _Objects:
    """Objects of one kind, to delete now or later."""

    keys: list[str] = field(default_factory=list)
    byte_size: int = 0

    def add(self, key: str, size: int) -> None:
        self.keys.append(key)
        self.byte_size += size

    def described(self) -> Removed:
        return Removed(object_count=len(self.keys), byte_size=self.byte_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """The objects that must be kept, and the refs and leases that keep them."""

    keepers: Keepers
    fences: dict[str, Fence]
    """Fences by branch id."""
    before_us: int
    """Objects older than this belong to no commit in flight."""
    slots: Slots
    marked: Marked


def vacuum(
    committer: Committer, *, dry_run: bool = False, progress: Progress | None = None
) -> VacuumReport:
    """Vacuum the whole table of a branch; arguments and errors of `Table.vacuum`."""
    report = progress or (lambda _what, _done, _total: None)
    metadata = committer.metadata
    here_us = metadata.clock.now_us()
    if dry_run:
        now_us = here_us + committer.clock_offset_us
    else:
        committer.prepare()
        now_us = load_store_time_us(metadata)
    store_time = StoreTime(store_us=now_us, offset_us=now_us - here_us, grace_us=committer.grace_us)
    kept = _mark_kept(metadata, store_time, dry_run=dry_run, report=report)
    freed, markers = _freed_slots(metadata, kept)
    deleted = {SNAPSHOTS: freed}
    waiting: dict[str, _Objects] = {}
    _add_slots_of_deleted(kept, deleted, waiting)
    _add_objects(metadata, kept, deleted, waiting)
    _add_leftovers(metadata, kept, deleted, waiting)
    _add_remains_of_deleted(metadata, kept, deleted)
    properties = metadata.load_head(MAIN).snapshot.properties
    idle_us = duration_property_us(properties, LEDGER_RETAIN)
    lapsed = [item for item in kept.keepers.lapsed if now_us - item.lapses_us >= idle_us]
    deleted[LEASES] = _Objects(keys=[lease_key(item.lease.name) for item in lapsed])
    if not dry_run:
        for branch_id, chunk in markers:
            _put_marker(metadata, branch_id, chunk)
        for item in lapsed:  # unless the reader has renewed it since
            if find_written_us(metadata, item.lease.name) == item.written_us:
                delete_lease(metadata, item.lease.name)
        keys = [key for kind, objects in deleted.items() if kind != LEASES for key in objects.keys]
        for start in range(0, len(keys), _DELETED_AT_ONCE):
            chosen = keys[start : start + _DELETED_AT_ONCE]
            metadata.store.delete_all(chosen)
            report("deleting", start + len(chosen), len(keys))
    fences = kept.fences.values()
    return VacuumReport(
        dry_run=dry_run,
        deleted={kind: objects.described() for kind, objects in deleted.items()},
        waiting={kind: objects.described() for kind, objects in waiting.items()},
        raised=tuple(fence.branch.name for fence in fences if fence.is_raised),
        due_us=max(fence.due_us for fence in fences),
    )


def _mark_kept(
    metadata: Metadata, store_time: StoreTime, *, dry_run: bool, report: Progress
) -> _Kept:
    missing = MissingError()
    for _ in range(_ATTEMPTS):
        try:
            return _mark_once(metadata, store_time, dry_run=dry_run, report=report)
        except MissingError as error:
            missing = error
        try:  # without a commit: if the same object is missing again, more fences do not help
            _mark_once(metadata, store_time, dry_run=True, report=report)
        except MissingError as error:
            if str(error) == str(missing):
                break
    raise CorruptObjectError(
        "an object that must be kept is missing, so what it needs is not known, and nothing was "
        "deleted; see what fuse-stream fsck says about it, and restore it from a copy first, or "
        "delete the tag, branch or pin that needs it if the call that made that never returned",
        key=str(missing),
    ) from missing


def _mark_once(
    metadata: Metadata, store_time: StoreTime, *, dry_run: bool, report: Progress
) -> _Kept:
    known = Known()
    keepers, fences = _fence_all(metadata, store_time, known, dry_run=dry_run, report=report)
    if not dry_run:
        for branch in keepers.branches:
            with _unless_deleted(metadata, branch):  # no commit builds on a deleted branch
                commit_second_fence(metadata, branch, store_time)
    slots = list_slots(metadata.store)
    floors = {branch_id: fence.floor for branch_id, fence in fences.items()}
    marked = mark(metadata.store, slots, kept_versions_of(keepers, floors), report, known=known)
    before_us = min(fences[branch.branch_id].before.time_us for branch in keepers.branches)
    for fence in fences.values():
        marked.places.update(fence.keeps)
    return _Kept(keepers=keepers, fences=fences, before_us=before_us, slots=slots, marked=marked)


def _fence_all(
    metadata: Metadata, store_time: StoreTime, known: Known, *, dry_run: bool, report: Progress
) -> tuple[Keepers, dict[str, Fence]]:
    """Return refs and leases that were read after all their branches were fenced, and the fences.

    The segments and deletion files of the heads are added to `known`.

    Raises:
        CorruptObjectError: the newest slot of a branch is lost or damaged; the branch is not
            fenced.
        MissingError: another head was committed meanwhile; mark again.
        ConflictError: branches are made faster than they are fenced.
    """
    fences: dict[str, Fence] = {}
    earlier: Keepers | None = None
    for _ in range(MOST_ROUNDS):
        keepers = load_keepers(metadata, store_time)
        if earlier is not None:
            keepers = keepers.with_those_of(earlier, fences)
        earlier = keepers
        new = [branch for branch in keepers.branches if branch.branch_id not in fences]
        if not new:
            return keepers, fences
        slots = list_slots(metadata.store)
        named = newest_named(keepers)
        for branch in new:  # check all branches before the first commit
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
                fences[branch.branch_id] = commit_fence(
                    metadata, branch, own, store_time, created_us=created_us, dry_run=dry_run
                )
            report("fencing branches", done, len(new))
    raise ConflictError(
        "branches are made faster than a vacuum fences them; nothing was deleted, try again later",
        rounds=MOST_ROUNDS,
    )


@contextlib.contextmanager
def _unless_deleted(metadata: Metadata, branch: BranchRef) -> Iterator[None]:
    """Ignore `NotFoundError` in the `with` block if the branch was deleted since it was listed.

    Raises:
        CorruptObjectError: the branch's ref still exists, so its newest slot is lost.
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


def _freed_slots(metadata: Metadata, kept: _Kept) -> tuple[_Objects, list[SlotName]]:
    """Return the slots of expired chunks, and the chunks that lack their marker."""
    marked = {found for info in metadata.store.list(FLOOR_PREFIX) if (found := floor_of(info.key))}
    freed, chunks = _Objects(), set()
    for branch_id, fence in kept.fences.items():
        end = fence.floor // CHUNK_VERSIONS * CHUNK_VERSIONS
        for version, slot in kept.slots.get(branch_id, {}).items():
            if version < end and (branch_id, version) not in kept.marked.places:
                freed.add(slot_key(branch_id, version), slot.size)
                chunks.add((branch_id, version // CHUNK_VERSIONS))
    return freed, sorted(chunks - marked)


def _add_slots_of_deleted(
    kept: _Kept, deleted: dict[str, _Objects], waiting: dict[str, _Objects]
) -> None:
    """Add the slots of deleted branches, by age."""
    for branch_id in kept.slots.keys() - kept.fences.keys():
        for version, slot in kept.slots[branch_id].items():
            if (branch_id, version) not in kept.marked.places:
                is_old = slot.modified_us < kept.before_us
                objects = (deleted if is_old else waiting).setdefault(SNAPSHOTS, _Objects())
                objects.add(slot_key(branch_id, version), slot.size)


def _add_objects(
    metadata: Metadata, kept: _Kept, deleted: dict[str, _Objects], waiting: dict[str, _Objects]
) -> None:
    """Add the objects that no kept snapshot names, by age."""
    kinds = (
        (SEGMENTS, SEGMENTS_PREFIX, kept.marked.segments),
        (BLOCKS, BLOCKS_PREFIX, kept.marked.blocks),
        (DELETIONS, DELETIONS_PREFIX, kept.marked.deletion_files),
        (OFFSETS, OFFSETS_PREFIX, kept.marked.offsets),
        (INDEX_LISTS, INDEX_LISTS_PREFIX, kept.marked.index_lists),
        (INDEX_PARTS, AGGREGATES_PREFIX, kept.marked.index_parts),
        (PROBES, PROBE_PREFIX, set[bytes]()),
    )
    for kind, prefix, marked in kinds:
        old, young = deleted.setdefault(kind, _Objects()), waiting.setdefault(kind, _Objects())
        for info in metadata.store.list(prefix):
            object_id = id_in(info.key, prefix)
            if object_id is None or bytes.fromhex(object_id) in marked:
                continue
            (old if info.modified_us < kept.before_us else young).add(info.key, info.size)


def _add_leftovers(
    metadata: Metadata, kept: _Kept, deleted: dict[str, _Objects], waiting: dict[str, _Objects]
) -> None:
    """Add the files of writes that never ended, by age: no writer of an old one still runs."""
    old, young = (
        deleted.setdefault(LEFTOVERS, _Objects()),
        waiting.setdefault(LEFTOVERS, _Objects()),
    )
    staged = metadata.store.list(STAGED_PREFIX)
    for info in itertools.chain(metadata.store.leftovers(), staged):
        (old if info.modified_us < kept.before_us else young).add(info.key, info.size)


def _add_remains_of_deleted(metadata: Metadata, kept: _Kept, deleted: dict[str, _Objects]) -> None:
    """Add the hints of deleted branches, and the claims on them."""
    needed_keys = {
        HINTS: (HINT_PREFIX, {hint_key(branch_id) for branch_id in kept.fences}),
        CLAIMS: (SERVICES_PREFIX, {service_key(branch_id) for branch_id in kept.fences}),
    }
    for kind, (prefix, needed) in needed_keys.items():
        objects = deleted[kind] = _Objects()
        for info in metadata.store.list(prefix):
            if info.key not in needed and info.modified_us < kept.before_us:
                objects.add(info.key, info.size)


def _put_marker(metadata: Metadata, branch_id: str, chunk: int) -> None:
    # A marker of this branch, even if the chunk's first versions belong to the branch it left.
    key = floor_key(branch_id, chunk * CHUNK_VERSIONS)
    try:
        metadata.store.put_if_absent(key, b"expired")
    except FuseError:  # the put may have succeeded, or another vacuum's was first
        if find_object(metadata.store, key) is None:
            raise
