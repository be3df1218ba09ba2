"""Copy a whole table: its history, branches, tags and pins, object by object.

The copy has the table's id and the same bytes, so streams that follow the table go on in the copy.

Rules:
- Heads and refs are read before the slots, and the slots before what they name. So everything that
  the copy names was there when its heads were read, beside any commits.
- Segments, blocks, deletion files, source offsets and indexes come first, then slots, markers and
  refs, then the table file. Without that the folder is no table.
- A copy that is finished is brought up to date by the same call: what is new is copied before the
  slots that name it, and these in their order. So it is a table at each moment.
- If vacuum deletes an object meanwhile, the copy is planned anew, with the table's new floors.
- Hints, leases, claims, probes and staged rows are not copied.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from fuse_stream.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptObjectError,
    FuseError,
    NotFoundError,
    SnapshotExpiredError,
)
from fuse_stream.expiry.keepers import KeptVersions
from fuse_stream.expiry.mark import MissingError, SlotName, Slots, list_slots, places_of
from fuse_stream.format.codec import encode_ref, sha256_hex
from fuse_stream.format.indexes import IndexListRef
from fuse_stream.format.layout import (
    BRANCHES_PREFIX,
    CLONES_PREFIX,
    FLOOR_PREFIX,
    MAIN,
    TAGS_PREFIX,
    branch_ref_key,
    clone_ref_key,
    floor_of,
    index_list_key,
    segment_key,
    slot_key,
    tag_ref_key,
)
from fuse_stream.format.records import SegmentRef, Snapshot
from fuse_stream.format.refs import BranchRef, CloneRef, TagRef
from fuse_stream.format.sides import row_lists
from fuse_stream.objects.refs import iter_branches, iter_pins, iter_tags
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.storage.base import Store, find_object
from fuse_stream.storage.parallel import each
from fuse_stream.transfer.claim import CopyClaim, find_claim, other_copy, put_claim
from fuse_stream.transfer.parts import (
    SMALL_OBJECTS,
    Copying,
    Parts,
    load_segments,
    load_slot,
)
from fuse_stream.transfer.stand_alone import StandAlone

ATTEMPTS = 5
"""Attempts to copy a table whose objects vacuum deletes meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What is copied; read once."""

    heads: dict[str, Stored]
    """By branch id."""
    refs: dict[str, BranchRef | TagRef | CloneRef]
    """By key."""
    whole: tuple[SlotName, ...]
    """The slots whose content is copied, too."""
    bare: tuple[SlotName, ...]
    """Slots of expired versions that still stand: without them the head is not found."""

    @property
    def floors(self) -> tuple[tuple[str, int], ...]:
        return tuple((branch, head.snapshot.floor) for branch, head in sorted(self.heads.items()))

    @property
    def owners(self) -> frozenset[str]:
        """The ids of the branches whose slots are copied."""
        return frozenset(owner for owner, _ in (*self.whole, *self.bare))


def copy_history(metadata: Metadata, place: Metadata, copying: Copying) -> Snapshot:
    """Copy a table to `place`, whose folder is free, has a claim, or an older copy.

    Returns the head of `main`.

    Raises:
        AlreadyExistsError: another copy was begun in the folder, or the table there is none.
        ConflictError: vacuum deleted objects of the table in each attempt.
        CorruptObjectError: an object of the table is lost or damaged, or a ref of it is.
        InvalidInputError: the table is a clone, and the user did not allow an origin.
    """
    table_file = metadata.load_table_file()
    current = place.find_table_file()
    if current is None:
        claim = CopyClaim(table_file=table_file, source_id=table_file.table_id)
        found = find_claim(place.store)
        if found is not None and found != claim:
            raise other_copy(place.store)
        put_claim(place.store, claim)
    elif current != table_file:
        raise _is_other(place.store)
    before: tuple[tuple[str, int], ...] | None = None
    for _ in range(ATTEMPTS):
        try:
            plan = _load_plan(metadata)
            _copy(metadata, plan, copying, is_update=current is not None)
            return plan.heads[MAIN].snapshot
        except (NotFoundError, SnapshotExpiredError, MissingError) as error:
            floors = _floors(metadata)
            if floors == before:
                raise _lost(metadata, error) from error
            before = floors
    raise ConflictError(
        "vacuum deleted objects while they were copied, in each attempt: copy the table again when "
        "no vacuum runs, which copies only what lacks",
        path=metadata.store.url,
    )


def _load_plan(metadata: Metadata) -> _Plan:
    """Return what is to be copied now.

    Raises:
        NotFoundError: a branch was deleted meanwhile.
        MissingError: many slots are not listed.
        CorruptObjectError: a ref is damaged.
    """
    branches = tuple(iter_branches(metadata))
    names: tuple[TagRef | CloneRef, ...] = (*iter_tags(metadata), *iter_pins(metadata))
    heads = {one.branch_id: metadata.load_head(one.branch_id) for one in branches}
    slots = list_slots(metadata.store)
    whole, bare = dict[SlotName, None](), dict[SlotName, None]()
    for branch in branches:
        head = heads[branch.branch_id].snapshot
        floor = max(branch.floor, head.floor)
        kept = KeptVersions(
            branch_id=branch.branch_id, forks=branch.forks, first=floor, last=head.version
        )
        whole |= dict.fromkeys(places_of(kept, slots))
        standing = dataclasses.replace(kept, first=0, is_whole=False)
        bare |= dict.fromkeys(places_of(standing, slots))
    whole |= dict.fromkeys((one.target.branch_id, one.target.version) for one in names)
    refs: dict[str, BranchRef | TagRef | CloneRef] = {
        branch_ref_key(one.name): one for one in branches if one.branch_id != MAIN
    }
    for name in names:
        is_tag = isinstance(name, TagRef)
        refs[tag_ref_key(name.name) if is_tag else clone_ref_key(name.name)] = name
    return _Plan(
        heads=heads,
        refs=refs,
        whole=tuple(whole),
        bare=tuple(one for one in bare if one not in whole),
    )


def _copy(metadata: Metadata, plan: _Plan, copying: Copying, *, is_update: bool) -> None:
    store = copying.store
    slots, parts, refs, lists = _read_slots(plan, copying)
    alone = StandAlone()
    wanted = list(refs.values())
    for number, (ref, data, segment) in enumerate(load_segments(store, wanted, segment_key), 1):
        parts.add_segment(segment)
        copying.put(segment_key(ref.id), alone.segment(ref, data, segment))
        copying.report("copying segments", number, len(wanted))
    copying.copy_parts(parts)
    for index_ref, data, indexes in copying.copy_index_parts(lists.values()):
        copying.put(index_list_key(index_ref.id), alone.index_list(index_ref, data, indexes))
    there = list_slots(copying.place)
    # The hash of the newest slot covers those before it, if this is a table and no clone's copy.
    is_covered = is_update and not metadata.is_clone()
    if is_update:
        _check_older(plan, there, copying, is_covered=is_covered)
    _copy_slots(plan, slots, alone, copying, there if is_covered else {})
    for info in store.list(FLOOR_PREFIX):
        marker = floor_of(info.key)
        if marker is not None and marker[0] in plan.owners:
            _put_once(copying, info.key, store.get(info.key))
    _copy_refs(plan, alone, copying)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slot:
    """What is kept of a slot that was read."""

    sha256: str
    timestamp_us: int


def _read_slots(
    plan: _Plan, copying: Copying
) -> tuple[dict[SlotName, _Slot], Parts, dict[str, SegmentRef], dict[str, IndexListRef]]:
    """Read the snapshots that are copied whole.

    Return the parts, segments and lists of indexes that they name.
    """
    store, parts = copying.store, Parts()
    refs: dict[str, SegmentRef] = {}
    lists: dict[str, IndexListRef] = {}
    slots: dict[SlotName, _Slot] = {}
    named: dict[SlotName, str] = {}
    # One reads ahead of the others: the hashes of parents are compared at the end.
    loaded = each(
        lambda at: load_slot(store, slot_key(*at)),
        plan.whole,
        store,
        at_once=SMALL_OBJECTS,
        ahead=1,
    )
    for number, (at, (data, snapshot)) in enumerate(zip(plan.whole, loaded, strict=True), 1):
        slots[at] = _Slot(sha256=sha256_hex(data), timestamp_us=snapshot.timestamp_us)
        if snapshot.parent is not None:
            named[snapshot.parent.branch_id, snapshot.parent.version] = snapshot.parent.sha256
        parts.add_snapshot(snapshot)
        if snapshot.index_list is not None:
            lists[snapshot.index_list.id] = snapshot.index_list
        for view in row_lists(snapshot):
            refs |= {ref.id: ref for ref in view.segments}
        copying.report("reading snapshots", number, len(plan.whole))
    for branch in plan.refs.values():
        named |= {(one.branch_id, one.version): one.sha256 for one in branch.forks}
    for at, sha256 in named.items():
        if at in slots and slots[at].sha256 != sha256:
            raise CorruptObjectError(
                "a snapshot was changed: its hash is not the one that the next version or a ref "
                "names; restore it from a copy, or copy the head alone (history=False)",
                key=slot_key(*at),
                path=store.url,
            )
    return slots, parts, refs, lists


def _copy_slots(
    plan: _Plan, slots: dict[SlotName, _Slot], alone: StandAlone, copying: Copying, there: Slots
) -> None:
    """Put the slots, each after those that it was made from.

    Those in `there` are known to be in the place; others that are there are compared.
    """
    bare = sorted(plan.bare, key=lambda at: (at[1], at[0]))
    whole = sorted(plan.whole, key=lambda at: (slots[at].timestamp_us, at))
    total = len(bare) + len(whole)
    for number, at in enumerate([*bare, *whole], 1):
        copying.report("copying snapshots", number, total)
        sha256 = slots[at].sha256 if at in slots else None
        if at[1] in there.get(at[0], {}):
            continue
        try:
            data, _ = load_slot(copying.store, slot_key(*at), sha256)
        except NotFoundError:
            if sha256 is not None:
                raise
            continue  # freed meanwhile: its chunk has a marker now
        _put_once(copying, slot_key(*at), alone.slot(at, data) if at in slots else data)


def _check_older(plan: _Plan, there: Slots, copying: Copying, *, is_covered: bool) -> None:
    """Raise AlreadyExistsError unless the table in the place is an older state of the source.

    If `is_covered`, the newest slot of each branch is compared, which has the hash of all others.
    """
    for branch_id, own in there.items():
        head, newest = plan.heads.get(branch_id), max(own)
        if head is None:
            continue  # the branch was deleted
        if newest > head.snapshot.version:
            raise _is_other(copying.place)
        key = slot_key(branch_id, newest)
        if is_covered and find_object(copying.store, key) != copying.place.get(key):
            raise _is_other(copying.place)


def _copy_refs(plan: _Plan, alone: StandAlone, copying: Copying) -> None:
    """Put the refs, and delete those that the table has not any more."""
    place = copying.place
    wanted = {key: encode_ref(alone.ref(ref)) for key, ref in plan.refs.items()}
    for prefix in (BRANCHES_PREFIX, TAGS_PREFIX, CLONES_PREFIX):
        for info in place.list(prefix):
            if wanted.get(info.key) != place.get(info.key):
                place.delete(info.key)
    for key, data in wanted.items():
        _put_once(copying, key, data)


def _put_once(copying: Copying, key: str, data: bytes) -> None:
    """Create an object; it may be there with the same bytes."""
    try:
        copying.place.put_if_absent(key, data)
    except FuseError:
        found = find_object(copying.place, key)
        if found is None:
            raise
        if found != data:
            raise _is_other(copying.place) from None
        return
    copying.count(data)


def _floors(metadata: Metadata) -> tuple[tuple[str, int], ...]:
    heads = ((one.branch_id, metadata.load_head(one.branch_id)) for one in iter_branches(metadata))
    return tuple((branch_id, head.snapshot.floor) for branch_id, head in heads)


def _is_other(place: Store) -> AlreadyExistsError:
    return AlreadyExistsError(
        "the table here is no older copy of that table: it is another one, it has commits of its "
        "own, or it is so old that what it ends with was deleted; use another path for the copy",
        path=place.url,
    )


def _lost(
    metadata: Metadata, error: NotFoundError | SnapshotExpiredError | MissingError
) -> CorruptObjectError:
    context = {} if isinstance(error, MissingError) else error.context
    return CorruptObjectError(
        "an object of the table is missing, so it cannot be copied whole: fuse-stream fsck shows "
        "what is lost, and how to restore it; or copy the head alone (history=False)",
        **{"path": metadata.store.url, **context},
    )
