"""Verify an erasure: read every object under the table's folder, reachable or not.

Rules:
- Nothing is written. What is committed meanwhile may be missed: run it when the writers pause.
- The blocks of a clone that are in its origin are not under this folder: verify the origin, too.
- If rows that do not match hold a value of the predicate in its column, then finding that value in
  bytes proves nothing. It is left out, and named in `shared`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fuse_stream.erasure.holders import SearchProgress
from fuse_stream.erasure.inspect import (
    BLOCK,
    BRANCH,
    CLAIM,
    DELETION_FILE,
    INDEX_LIST,
    INDEX_PART,
    LEASE,
    OFFSETS,
    PIN,
    PLAIN,
    SEGMENT,
    SNAPSHOT,
    TABLE_FILE,
    TAG,
    Inspected,
    InspectedObject,
    Inspector,
)
from fuse_stream.erasure.sought import Sought
from fuse_stream.errors import NotFoundError, StorageError
from fuse_stream.format.layout import (
    AGGREGATES_PREFIX,
    BLOCKS_PREFIX,
    BRANCHES_PREFIX,
    CLONES_PREFIX,
    DELETIONS_PREFIX,
    FLOOR_PREFIX,
    HINT_PREFIX,
    INDEX_LISTS_PREFIX,
    LEASES_PREFIX,
    OFFSETS_PREFIX,
    PROBE_PREFIX,
    SEGMENTS_PREFIX,
    SERVICES_PREFIX,
    SLOTS_PREFIX,
    TABLE_KEY,
    TAGS_PREFIX,
)
from fuse_stream.format.one_line import one_line
from fuse_stream.objects.slots import Metadata
from fuse_stream.storage.base import ObjectInfo, Store, get_large

LEFTOVER, OTHER = "unfinished write", "object of nobody"

_KINDS = {
    SLOTS_PREFIX: SNAPSHOT,  # first: they have the schemas of the segments
    SEGMENTS_PREFIX: SEGMENT,
    BLOCKS_PREFIX: BLOCK,
    DELETIONS_PREFIX: DELETION_FILE,
    INDEX_LISTS_PREFIX: INDEX_LIST,
    AGGREGATES_PREFIX: INDEX_PART,
    OFFSETS_PREFIX: OFFSETS,
    BRANCHES_PREFIX: BRANCH,
    TAGS_PREFIX: TAG,
    CLONES_PREFIX: PIN,
    LEASES_PREFIX: LEASE,
    SERVICES_PREFIX: CLAIM,
    FLOOR_PREFIX: PLAIN,
    HINT_PREFIX: PLAIN,
    PROBE_PREFIX: PLAIN,
    TABLE_KEY: TABLE_FILE,
}

_LARGE = frozenset({BLOCK, INDEX_PART})


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a verification read and found."""

    objects: tuple[InspectedObject, ...]
    """All objects that were read, with what each of them holds."""
    searched: tuple[str, ...]
    """The values that were searched in bytes and texts, besides rows and bounds."""
    unsearched: tuple[str, ...]
    """The values that are too short to be searched there."""
    shared: tuple[str, ...]
    """Those of them that other rows hold, too: where they were found is left out."""

    __repr__ = one_line("is_clean objects findings unreadable searched")

    @property
    def findings(self) -> tuple[InspectedObject, ...]:
        """The objects that hold something of the erased rows."""
        return tuple(item for item in self.objects if item.found)

    @property
    def unreadable(self) -> tuple[InspectedObject, ...]:
        """The objects that could not be read as a whole."""
        return tuple(item for item in self.objects if item.problem is not None)

    @property
    def is_clean(self) -> bool:
        """True if every object was read, and none holds anything of the erased rows."""
        return not self.findings and not self.unreadable


def verify_erased(
    metadata: Metadata, sought: Sought, progress: SearchProgress | None = None
) -> Verification:
    """Read every object of a table, and return what it holds of the sought rows; writes nothing.

    Raises:
        StorageError: the store cannot be listed.
    """
    store = metadata.store
    inspector = Inspector(sought)
    listed = list(_list_all(store))
    read: list[Inspected] = []
    for done, (kind, info) in enumerate(listed, 1):
        found = _read(store, inspector, kind, info)
        if found is not None:
            read.append(found)
        if progress is not None:
            progress("reading objects", done, len(listed))
    searched = {needle.shown for needle in inspector.needles}
    shared = {needle.shown for needle in inspector.needles if inspector.shared[needle.shown]}
    return Verification(
        objects=tuple(
            replace(
                item.object,
                found=tuple(
                    finding.text
                    for finding in item.findings
                    if finding.needle is None or finding.needle.shown not in shared
                ),
            )
            for item in read
        ),
        searched=tuple(sorted(searched)),
        unsearched=tuple(sorted({repr(item.value) for item in sought.given} - searched, key=str)),
        shared=tuple(sorted(shared)),
    )


def _list_all(store: Store) -> Iterator[tuple[str, ObjectInfo]]:
    """Yield all objects with their kinds; segments after the snapshots, which name them."""
    order = list(_KINDS)
    found: list[tuple[int, str, ObjectInfo]] = []
    for info in store.list(""):
        prefix = next((each for each in order if info.key.startswith(each)), None)
        kind = OTHER if prefix is None else _KINDS[prefix]
        found.append((len(order) if prefix is None else order.index(prefix), kind, info))
    yield from ((kind, info) for _, kind, info in sorted(found, key=lambda item: item[0]))
    yield from ((LEFTOVER, info) for info in store.leftovers())


def _read(store: Store, inspector: Inspector, kind: str, info: ObjectInfo) -> Inspected | None:
    """Return what one object holds; None if it was deleted since it was listed."""
    try:
        data = get_large(store, info.key, info.size) if kind in _LARGE else store.get(info.key)
    except NotFoundError:
        return None
    except StorageError as error:
        problem = f"the store did not return it: {error.message}"
        return Inspected(
            object=InspectedObject(key=info.key, kind=kind, byte_size=info.size, problem=problem)
        )
    if kind == LEFTOVER:
        return _leftover(inspector, info.key, data)
    return inspector.inspect(info.key, kind, data)


def _leftover(inspector: Inspector, key: str, data: bytes) -> Inspected:
    """Return what the file of a write that never ended holds: the start of any object."""
    folder = key.rpartition("/")[0] + "/"
    found = inspector.inspect(key, _KINDS.get(folder, OTHER), data)
    return replace(
        found,
        object=replace(found.object, kind=LEFTOVER),
    )
