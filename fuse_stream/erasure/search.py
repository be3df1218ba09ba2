"""Search versions for erased rows: what their blocks hold, and what their slots show.

A version holds rows if one of its blocks does, also rows that it hides: their values are in the
block's file. It shows them if a bound in its slot is such a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fuse_stream.dml.find import RowFinder
from fuse_stream.erasure.sought import ROWS, Sought
from fuse_stream.errors import CorruptObjectError, NotFoundError, UnsupportedFormatError
from fuse_stream.expiry.mark import SlotName
from fuse_stream.format.codec import decode_snapshot
from fuse_stream.format.layout import block_key, segment_key, slot_key
from fuse_stream.format.records import Block, SegmentRef, Snapshot
from fuse_stream.format.sides import side_views
from fuse_stream.objects.slots import Metadata
from fuse_stream.reading.scan import stats_may_match


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What one version has of the sought rows; false if nothing."""

    row_count: int = 0
    """In its blocks, hidden ones included."""
    is_shown: bool = False
    """True if a bound in its slot is a value of theirs."""
    origins: frozenset[str] = frozenset()
    """The ids of the other tables that have some of the blocks."""

    def __bool__(self) -> bool:
        return self.row_count > 0 or self.is_shown


def views_of(snapshot: Snapshot) -> Iterator[tuple[str, Snapshot]]:
    """Yield the table's rows and each side of a snapshot, as snapshots, with their names."""
    yield ROWS, snapshot
    yield from side_views(snapshot).items()


class VersionSearch:
    """Searches versions of all branches; reads each snapshot, segment and block once."""

    def __init__(self, metadata: Metadata, sought: Sought) -> None:
        self.unreadable: set[str] = set()
        """The keys of objects that cannot be read: what they hold is not known."""

        self._metadata = metadata
        self._sought = sought
        self._finder = RowFinder(metadata)
        self._versions: dict[tuple[SlotName, bool], Held] = {}
        self._segments: dict[tuple[str, int, str], Held] = {}
        """By segment, and the id and branch of the schema that reads it."""

    def held_by(self, place: SlotName, *, deep: bool) -> Held:
        """Return what a version has; without `deep` only what its slot shows.

        Raises:
            InvalidInputError: a block is in another table, whose location the user did not allow.
        """
        if (place, deep) not in self._versions:
            self._versions[place, deep] = self._read(place, deep=deep)
        return self._versions[place, deep]

    def _read(self, place: SlotName, *, deep: bool) -> Held:
        key = slot_key(*place)
        try:
            snapshot = decode_snapshot(self._metadata.store.get(key))
            is_shown = self._is_shown(snapshot)
        except NotFoundError:  # expired, and deleted since it was listed
            return Held()
        except (CorruptObjectError, UnsupportedFormatError):
            self.unreadable.add(key)
            return Held()
        parts = [
            self._of_segment(name, view, ref)
            for name, view in (views_of(snapshot) if deep else ())
            for ref in view.segments
        ]
        return Held(
            row_count=sum(part.row_count for part in parts),
            is_shown=is_shown,
            origins=frozenset[str]().union(*(part.origins for part in parts)),
        )

    def _is_shown(self, snapshot: Snapshot) -> bool:
        return any(
            sought.shows(view.schema, view.summary.col_stats)
            or any(sought.ranges(view.schema, ref.key_range) for ref in view.segments)
            for name, view in views_of(snapshot)
            for sought in (self._sought.of(name),)
        )

    def _of_segment(self, name: str, view: Snapshot, ref: SegmentRef) -> Held:
        key = ref.id, view.schema.id, view.branch_id
        if key not in self._segments:
            self._segments[key] = self._search(name, view, ref)
        return self._segments[key]

    def _search(self, name: str, view: Snapshot, ref: SegmentRef) -> Held:
        try:
            blocks = self._metadata.load_segment(ref, view.schema.leaf_types).blocks
        except CorruptObjectError:
            self.unreadable.add(segment_key(ref.id))
            return Held()
        counts = [(block, self._count(name, view, block)) for block in blocks]
        return Held(
            row_count=sum(count for _, count in counts),
            origins=frozenset(block.origin for block, count in counts if count and block.origin),
        )

    def _count(self, name: str, view: Snapshot, block: Block) -> int:
        test = self._sought.of(name).test(view.schema)
        selection = test.selection
        try:
            if not stats_may_match(selection, block.col_stats, block.row_count):
                return 0
            ((_, rows),) = self._finder.search([block], selection, test.keeps)
        except CorruptObjectError:
            self.unreadable.add(block_key(block.id, block.origin))
            return 0
        return len(rows)
