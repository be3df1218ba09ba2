"""The objects that snapshots name, and copying them whole: each is compared with its hash."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from fuse_stream.errors import CorruptObjectError, NotFoundError
from fuse_stream.format.codec import decode_segment, decode_snapshot, sha256_hex
from fuse_stream.format.index_codec import decode_index_list
from fuse_stream.format.indexes import IndexList, IndexListRef
from fuse_stream.format.layout import (
    AGGREGATES_PREFIX,
    BLOCKS_PREFIX,
    DELETIONS_PREFIX,
    INDEX_LISTS_PREFIX,
    OFFSETS_PREFIX,
    SEGMENTS_PREFIX,
    aggregates_key,
    block_key,
    deletions_key,
    id_checked,
    index_list_key,
    offsets_key,
    sha256_checked,
)
from fuse_stream.format.records import Segment, SegmentRef, Snapshot
from fuse_stream.format.sides import row_lists
from fuse_stream.objects.size_limits import limit_of
from fuse_stream.storage.base import Store, get_large
from fuse_stream.storage.parallel import each

_log = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]
"""Called with the name of the present task, how much of it is done, and how much there is."""

REMOTE_BLOCKS, LOCAL_BLOCKS = 4, 2
"""Blocks that are copied at a time; memory holds so many."""
SMALL_OBJECTS = 16
"""Other objects that are copied at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """An object that is copied."""

    source: str
    """Its key; that of a block of an origin has the origin's id."""
    key: str
    """Its key in the copy."""
    sha256: str
    size: int | None = None
    """Bytes, if a record says them."""


@dataclass(slots=True, kw_only=True)
class Parts:
    """What the snapshots that were looked at name, but for their segments; each object once."""

    blocks: dict[str, Part] = field(default_factory=dict)
    small: dict[str, Part] = field(default_factory=dict)
    """Deletion files and source offsets, by key."""

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Add the deletion files and source offsets that a snapshot names."""
        for view in row_lists(snapshot):
            for ref in view.deletion_files:
                key = deletions_key(ref.id)
                self.small[key] = Part(source=key, key=key, sha256=ref.sha256, size=ref.byte_size)
        for entry in snapshot.ledger.entries.values():
            for offsets in entry.offsets:
                if offsets.id is not None:
                    key = offsets_key(offsets.id)
                    self.small[key] = Part(source=key, key=key, sha256=offsets.sha256)

    def add_segment(self, segment: Segment) -> None:
        """Add the blocks of a segment."""
        for block in segment.blocks:
            self.blocks[block.id] = Part(
                source=block_key(block.id, block.origin),
                key=block_key(id_checked(block.id)),
                sha256=sha256_checked(block.sha256),
                size=block.file_size,
            )


@dataclass(slots=True, kw_only=True)
class Copying:
    """A copy that is made: what the place has, and what was put there by this call."""

    store: Store
    place: Store
    report: Progress
    sizes: dict[str, int] = field(default_factory=dict)
    """Of the objects that the place had, by key."""
    object_count: int = 0
    byte_count: int = 0

    @classmethod
    def begin(cls, store: Store, place: Store, report: Progress) -> Copying:
        """List what the place has of the objects that are written once."""
        prefixes = (
            BLOCKS_PREFIX,
            SEGMENTS_PREFIX,
            DELETIONS_PREFIX,
            OFFSETS_PREFIX,
            INDEX_LISTS_PREFIX,
            AGGREGATES_PREFIX,
        )
        sizes = {info.key: info.size for one in prefixes for info in place.list(one)}
        return cls(store=store, place=place, report=report, sizes=sizes)

    def put(self, key: str, data: bytes) -> None:
        """Put an object under a random key, unless it is there."""
        if self.sizes.get(key) == len(data):
            return
        self.place.put(key, data)
        self.count(data)
        self.sizes[key] = len(data)

    def count(self, data: bytes) -> None:
        """Count an object that was put."""
        self.object_count += 1
        self.byte_count += len(data)

    def copy_parts(self, parts: Parts) -> None:
        """Copy what the place lacks.

        Raises:
            NotFoundError: the table has no such object, or not any more.
            CorruptObjectError: an object of the table is damaged.
        """
        small = [part for part in parts.small.values() if not self._has(part)]
        self._copy("copying small objects", small, SMALL_OBJECTS)
        blocks = [part for part in parts.blocks.values() if not self._has(part)]
        is_remote = self.store.is_remote or self.place.is_remote
        self._copy("copying blocks", blocks, REMOTE_BLOCKS if is_remote else LOCAL_BLOCKS)

    def copy_index_parts(
        self, refs: Iterable[IndexListRef]
    ) -> list[tuple[IndexListRef, bytes, IndexList]]:
        """Copy the parts of these lists of indexes; return each list with its stored bytes.

        A list or part that is missing or damaged is left out: what is missing is computed.
        """
        found = []
        wanted: dict[str, Part] = {}
        for ref in refs:
            try:
                data = self.store.get(index_list_key(ref.id))
                indexes = decode_index_list(data, ref.sha256)
            except (NotFoundError, CorruptObjectError) as error:
                _log.warning("a list of indexes was not copied: %s", error)
                continue
            found.append((ref, data, indexes))
            for part in indexes.parts:
                key = aggregates_key(part.id)
                wanted[key] = Part(
                    source=aggregates_key(part.id, part.origin),
                    key=key,
                    sha256=part.sha256,
                    size=part.byte_size,
                )
        for done, copied in enumerate(wanted.values(), 1):
            if not self._has(copied):
                try:
                    self.put(copied.key, load_part(self.store, copied))
                except (NotFoundError, CorruptObjectError) as error:
                    _log.warning("a part of an index was not copied: %s", error)
            self.report("copying indexes", done, len(wanted))
        return found

    def _has(self, part: Part) -> bool:
        size = self.sizes.get(part.key)
        return size is not None and part.size in {None, size}

    def _copy(self, what: str, parts: Sequence[Part], at_once: int) -> None:
        done = each(self._copy_one, parts, self.store, self.place, at_once=at_once, ahead=1)
        for number, (part, size) in enumerate(zip(parts, done, strict=True), 1):
            self.object_count += 1
            self.byte_count += size
            self.sizes[part.key] = size
            self.report(what, number, len(parts))

    def _copy_one(self, part: Part) -> int:
        data = load_part(self.store, part)
        self.place.put(part.key, data)
        return len(data)


def load_part(store: Store, part: Part) -> bytes:
    """Return the bytes of an object that is copied.

    Raises:
        NotFoundError: there is no such object.
        CorruptObjectError: it is damaged.
    """
    if part.size is None:
        data = store.get_up_to(part.source, limit_of(part.key))
    else:
        data = get_large(store, part.source, part.size)
    if sha256_hex(data) != part.sha256:
        raise CorruptObjectError(
            "an object differs from its hash, so the table cannot be copied: fuse-stream fsck "
            "shows what is damaged; restore it first, or copy the head alone (history=False) if "
            "that is whole",
            key=part.source,
            path=store.url,
        )
    return data


def load_segments(
    store: Store, refs: Sequence[SegmentRef], key_of: Callable[[str], str]
) -> Iterable[tuple[SegmentRef, bytes, Segment]]:
    """Yield segments with their bytes, compared with their hashes, in order.

    Raises:
        NotFoundError: the table has no such segment, or not any more.
        CorruptObjectError: a segment is damaged.
    """

    def load(ref: SegmentRef) -> tuple[bytes, Segment]:
        part = Part(source=key_of(ref.id), key=key_of(ref.id), sha256=ref.sha256)
        data = load_part(store, part)
        return data, decode_segment(data, ref.sha256, {})

    found = each(load, refs, store, at_once=SMALL_OBJECTS, ahead=1)
    for ref, (data, segment) in zip(refs, found, strict=True):
        yield ref, data, segment


def load_slot(store: Store, key: str, sha256: str | None = None) -> tuple[bytes, Snapshot]:
    """Return the bytes of a slot and its snapshot.

    Raises:
        NotFoundError: there is no such slot.
        CorruptObjectError: it is damaged, or has not this hash.
    """
    data = store.get_up_to(key, limit_of(key))
    if sha256 is not None and sha256_hex(data) != sha256:
        raise CorruptObjectError(
            "a snapshot was changed: it is not the one that the next version names; restore it "
            "from a copy, or copy the head alone (history=False)",
            key=key,
            path=store.url,
        )
    return data, decode_snapshot(data)
