"""Mark what kept snapshots reach: segments, blocks, deletion files, offsets and indexes.

Rules:
- An object that cannot be read stops a vacuum: it may name anything.
- Each snapshot and segment is read once, and only the ids in it are kept in memory. A deletion file
  is not read: it names only blocks of the snapshot's segments.
- A list of indexes that cannot be read stops nothing: nobody can find the parts that it alone
  names, and no row is in them.
- If a snapshot and the one after it are both kept, the later one must hold the hash of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from fuse_stream.errors import CorruptObjectError, NotFoundError
from fuse_stream.expiry.keepers import KeptVersions
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.index_codec import decode_index_list
from fuse_stream.format.layout import (
    SLOTS_PREFIX,
    deletions_key,
    index_list_key,
    segment_key,
    slot_key,
    slot_of,
)
from fuse_stream.format.reachable import SnapshotNames, read_block_ids, read_snapshot_names
from fuse_stream.storage.base import Store
from fuse_stream.storage.parallel import each

SlotName = tuple[str, int]
"""Branch id and version of a slot."""

Progress = Callable[[str, int, int], None]
"""Called with the name of the present task, how much of it is done, and how much there is."""

MOST_UNLISTED = 1_000
"""The most versions of one branch that must exist, are not listed, and are read one by one."""

THREADS = 16
"""The number of calls at a time, if the store lets calls overlap."""

T = TypeVar("T")


class MissingError(Exception):
    """An object that must be kept is missing: it is lost, or expired during the search for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A slot, as the store lists it."""

    modified_us: int
    size: int


Slots = dict[str, dict[int, Slot]]
"""By branch id and version."""


@dataclass(slots=True, kw_only=True)
class Known:
    """Objects of the heads that were read; each by its id and hash."""

    blocks: dict[tuple[bytes, str], list[bytes]] = field(default_factory=dict)
    """The ids of the blocks of each segment."""
    deletion_files: set[tuple[str, str]] = field(default_factory=set)


@dataclass(slots=True, kw_only=True)
class Marked:
    """The ids of everything that is reachable."""

    places: set[SlotName] = field(default_factory=set)
    segments: set[bytes] = field(default_factory=set)
    blocks: set[bytes] = field(default_factory=set)
    deletion_files: set[bytes] = field(default_factory=set)
    offsets: set[bytes] = field(default_factory=set)
    index_lists: set[bytes] = field(default_factory=set)
    index_parts: set[bytes] = field(default_factory=set)


def list_slots(store: Store) -> Slots:
    """Return the slots of all branches of a table."""
    slots: Slots = {}
    for info in store.list(SLOTS_PREFIX):
        if (place := slot_of(info.key)) is not None:
            slot = Slot(modified_us=info.modified_us, size=info.size)
            slots.setdefault(place[0], {})[place[1]] = slot
    return slots


def read_slot(store: Store, place: SlotName) -> SnapshotNames:
    """Return the names of objects in the snapshot of a slot.

    Raises:
        MissingError: there is no such slot.
        CorruptObjectError: the slot is damaged.
    """
    try:
        names = read_snapshot_names(store.get(slot_key(*place)))
    except NotFoundError as error:
        raise MissingError(slot_key(*place)) from error
    except CorruptObjectError as error:
        raise _damaged(slot_key(*place)) from error
    if (names.branch_id, names.version) != place:
        raise _damaged(slot_key(*place))
    return names


def places_of(kept: KeptVersions, slots: Slots) -> list[SlotName]:
    """Return the slots of kept versions: all that must exist, or else those that are listed.

    A version that must exist may not be listed, though a later one is: a store may leave out of a
    listing what is created during it. Reading the slot shows if it exists.

    Raises:
        MissingError: many of the slots were not listed; names the first.
    """
    found: list[SlotName] = []
    start = kept.first
    newest = max(slots.get(kept.branch_id, ()), default=-1)
    ends = [*((fork.branch_id, fork.version) for fork in kept.forks), (kept.branch_id, newest)]
    for owner, end in ends:
        last = end if kept.last is None else min(end, kept.last)
        found += _places(slots, owner, start, last, is_whole=kept.is_whole)
        start = max(start, end + 1)
    return found


def _places(slots: Slots, owner: str, start: int, end: int, *, is_whole: bool) -> list[SlotName]:
    own = slots.get(owner, {})
    listed = sorted(version for version in own if start <= version <= end)
    if not is_whole:
        return [(owner, version) for version in listed]
    wanted = range(start, end + 1)
    # Not `len(wanted)`: a stray key or a damaged ref may name any version.
    if end - start + 1 - len(listed) > MOST_UNLISTED:
        missing = next(version for version in wanted if version not in own)
        raise MissingError(slot_key(owner, missing))
    return [(owner, version) for version in wanted]


def read_content(store: Store, place: SlotName, known: Known) -> None:
    """Read the segments and deletion files that a snapshot names, and add them to `known`.

    Raises:
        MissingError: the slot, a segment or a deletion file is missing.
        CorruptObjectError: one of them is damaged.
    """
    names = read_slot(store, place)
    needs = [
        (segment_id, sha256, block_count)
        for segment_id, sha256, block_count in names.segments
        if (bytes.fromhex(segment_id), sha256) not in known.blocks
    ]
    read = each(lambda need: _read_segment(store, *need), needs, store, at_once=THREADS)
    for (segment_id, sha256, _), ids in zip(needs, read, strict=True):
        known.blocks[bytes.fromhex(segment_id), sha256] = ids
    for file_id, sha256 in names.deletion_files:
        if (file_id, sha256) not in known.deletion_files:
            _check_deletion_file(store, file_id, sha256)
            known.deletion_files.add((file_id, sha256))


def mark(
    store: Store, slots: Slots, kept: Iterable[KeptVersions], report: Progress, *, known: Known
) -> Marked:
    """Return what is reachable from kept versions; segments in `known` are not read again.

    Raises:
        MissingError: an object that a kept version needs is missing.
        CorruptObjectError: such an object is damaged, so what it names is not known.
    """
    whole: set[SlotName] = set()
    others: set[SlotName] = set()
    for versions in kept:
        (whole if versions.is_whole else others).update(places_of(versions, slots))
    others -= whole
    marked = Marked(places=whole | others)
    needs: dict[bytes, tuple[str, int, bool]] = {}
    """Hash, block count and whether it must exist, for each segment id."""
    hashes: dict[SlotName, str] = {}
    lists: dict[str, str] = {}
    """Hash of each list of indexes, by id."""
    places = sorted(marked.places, key=lambda place: place[1], reverse=True)
    found = each(
        lambda place: _read(read_slot, store, place, must_exist=place in whole),
        places,
        store,
        at_once=THREADS,
    )
    for done, (place, names) in enumerate(zip(places, found, strict=True), 1):
        report("reading snapshots", done, len(places))
        if names is None:
            continue
        if hashes.pop(place, names.sha256) != names.sha256:
            raise _damaged(slot_key(*place))
        if names.parent is not None:
            hashes[names.parent[0], names.parent[1]] = names.parent[2]
        for segment_id, sha256, block_count in names.segments:
            key = bytes.fromhex(segment_id)
            must_exist = place in whole or needs.get(key, ("", 0, False))[2]
            needs[key] = sha256, block_count, must_exist
        marked.deletion_files.update(bytes.fromhex(name) for name, _ in names.deletion_files)
        marked.offsets.update(map(bytes.fromhex, names.offsets))
        if names.index_list is not None:
            lists.update((names.index_list,))
    marked.index_lists.update(map(bytes.fromhex, lists))
    for part_ids in each(partial(_read_parts, store), lists.items(), store, at_once=THREADS):
        marked.index_parts.update(part_ids)
    marked.segments.update(needs)
    read = each(
        lambda need: (
            known.blocks.get((need[0], need[1][0]))
            or _read(_read_segment, store, need[0].hex(), *need[1][:2], must_exist=need[1][2])
        ),
        list(needs.items()),
        store,
        at_once=THREADS,
    )
    for done, ids in enumerate(read, 1):
        report("reading segments", done, len(needs))
        marked.blocks.update(ids or ())
    return marked


def _read(read: Callable[..., T], *arguments: object, must_exist: bool) -> T | None:
    try:
        return read(*arguments)
    except MissingError:
        if must_exist:
            raise
        return None


def _read_segment(store: Store, segment_id: str, sha256: str, block_count: int) -> list[bytes]:
    key = segment_key(segment_id)
    try:
        return [bytes.fromhex(id_) for id_ in read_block_ids(store.get(key), sha256, block_count)]
    except NotFoundError as error:
        raise MissingError(key) from error
    except CorruptObjectError as error:
        raise _damaged(key) from error


def _read_parts(store: Store, named: tuple[str, str]) -> list[bytes]:
    """Return the ids of the parts in a list of indexes that are objects of the table."""
    list_id, sha256 = named
    try:
        parts = decode_index_list(store.get(index_list_key(list_id)), sha256).parts
    except (NotFoundError, CorruptObjectError):
        return []
    return [bytes.fromhex(part.id) for part in parts if part.origin is None]


def _check_deletion_file(store: Store, file_id: str, sha256: str) -> None:
    key = deletions_key(file_id)
    try:
        data = store.get(key)
    except NotFoundError as error:
        raise MissingError(key) from error
    if sha256_hex(data) != sha256:
        raise _damaged(key)


def _damaged(key: str) -> CorruptObjectError:
    return CorruptObjectError(
        "an object that must be kept is damaged, so what it needs is not known, and nothing was "
        "deleted; see what fuse-stream fsck says about it, and repair it first",
        key=key,
    )
