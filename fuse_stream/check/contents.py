"""Check the segments, blocks, deletion files and long source offsets of snapshots, each once.

Ten thousand snapshots may name a hundred thousand blocks, most of them the same. So only ids, sizes
and hashes are kept, no statistics, and a snapshot is compared only with the one before it.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations

from fuse_stream.check.deletion_files import BlocksOf, DeletionFiles
from fuse_stream.check.findings import (
    Evidence,
    Fault,
    FindingKind,
    Leftovers,
    Place,
    Problem,
    Versions,
    left_over,
)
from fuse_stream.check.indexes import Indexes
from fuse_stream.check.records import flaw_of_block, flaw_of_bounds, flaw_of_segment
from fuse_stream.check.references import Leased
from fuse_stream.errors import CorruptObjectError, FuseError
from fuse_stream.format.codec import decode_segment, sha256_hex
from fuse_stream.format.layout import (
    BLOCKS_PREFIX,
    OFFSETS_PREFIX,
    SEGMENTS_PREFIX,
    block_key,
    deletions_key,
    id_checked,
    id_in,
    offsets_key,
    segment_key,
    slot_key,
)
from fuse_stream.format.reachable import read_snapshot_names
from fuse_stream.format.records import Block, Ledger, Segment, SegmentRef, Snapshot, SourceOffsets
from fuse_stream.format.schema import Schema
from fuse_stream.format.sides import side_views

_ROWS = ""
"""Stands for the table's own rows, beside the names of sides."""

SEGMENTS, BLOCKS = "segments", "blocks"
DELETIONS, OFFSETS = "deletion files", "source offsets"


@dataclass(slots=True)
class _Seen:
    """A segment that was checked."""

    ref: SegmentRef
    blocks: array[int] = field(default_factory=lambda: array("Q"))
    """The numbers of its blocks."""
    is_readable: bool = True
    is_whole: bool = True
    """True if it and all of its blocks can be read."""
    needed_by: Versions = field(default_factory=Versions)
    """The versions that name it; kept only if it is not whole."""


@dataclass(slots=True)
class _List:
    """A list of rows of the snapshot checked last."""

    counts: dict[int, int] = field(default_factory=dict)
    """How often each block is in it."""
    segments: set[str] = field(default_factory=set)


class Contents:
    """The objects that the snapshots checked so far name."""

    def __init__(
        self, evidence: Evidence, *, deep: bool, newest_us: int, on_block: Callable[[], None]
    ) -> None:
        """List the store's blocks; `on_block` is called for each one that was read.

        `newest_us` is the store's time of the newest slot.
        """
        self._evidence = evidence
        self._deep = deep
        self._on_block = on_block
        self._sizes: dict[str, int] = {}
        self._young: set[str] = set()
        """Blocks that are younger than every slot."""
        for info in evidence.store.list(BLOCKS_PREFIX):
            self._sizes[info.key] = info.size
            if info.modified_us > newest_us and id_in(info.key, BLOCKS_PREFIX) is not None:
                self._young.add(info.key)
        self.foreign: dict[str, int] = {}
        """How many blocks of a clone are in other tables, by those tables' ids."""
        self._segments: dict[str, _Seen] = {}
        self._numbers: dict[str, int] = {}
        """The number of each block, by id, from 0 in the order in which they were found."""
        self._records: list[tuple[int, int, str]] = []
        """The row count, size and hash of the blocks, by number."""
        self._ids: list[str] = []
        """The id of each block, by number."""
        self._deletions = DeletionFiles(evidence)
        self._indexes = Indexes(evidence, deep=deep)
        self._bad_blocks: dict[int, Problem] = {}
        self._offsets: set[str] = set()
        self._read_ahead: set[str] = set()
        """The keys of what was read ahead."""
        self._lists: dict[str, _List] = {}
        """The rows of the snapshot checked last, and those of its sides by their names."""

    @property
    def listed_count(self) -> int:
        return len(self._sizes)

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def block_count(self) -> int:
        return len(self._numbers)

    @property
    def deletion_file_count(self) -> int:
        return self._deletions.count

    def read_ahead(self, slots: Iterable[bytes]) -> None:
        """Ask at once for what the snapshots in these slots name, and was not asked for yet."""
        keys: dict[str, None] = {}
        for data in slots:
            with contextlib.suppress(FuseError):  # `see` reports it
                names = read_snapshot_names(data)
                keys |= dict.fromkeys(segment_key(name) for name, _, _ in names.segments)
                keys |= dict.fromkeys(deletions_key(name) for name, _ in names.deletion_files)
                keys |= dict.fromkeys(map(offsets_key, names.offsets))
        new = [key for key in keys if key not in self._read_ahead]
        self._read_ahead.update(new)
        self._evidence.read_ahead(new)

    def see(self, snapshot: Snapshot, place: Place) -> bool:
        """Check the new objects that a snapshot names; return True if all are whole.

        Call it newest first, and for neighbouring versions in turn where possible.
        """
        self._see_offsets(snapshot.ledger)
        self._indexes.see(snapshot.index_list)
        views = {_ROWS: snapshot, **side_views(snapshot)}
        self._lists = {name: self._lists.get(name, _List()) for name in views}
        self._deletions.keep(views.keys())
        are_whole = [self._see_list(view, name, place) for name, view in views.items()]
        counts = [known.counts.keys() for known in self._lists.values()]
        shared = {number for one, other in combinations(counts, 2) for number in one & other}
        for number in shared:
            self._breach(place, f"block {self._ids[number]} is in two of its lists of rows")
        return all(are_whole) and not shared

    def _see_list(self, view: Snapshot, name: str, place: Place) -> bool:
        """Check the rows of a snapshot, or those of a side, whose view is given."""
        side = f" of side {name}" if name else ""
        is_whole = True
        for ref in view.segments:
            seen = self._segments.get(ref.id)
            if seen is None:
                seen = self._segments[ref.id] = self._see_segment(ref, view, place, side)
            elif _facts(seen.ref) != _facts(ref):
                self._breach(place, f"its record of segment {ref.id}{side} is not what others say")
                is_whole = False
            if not seen.is_whole:
                seen.needed_by.add(place)
                is_whole = False
        known = self._lists[name]
        left, twice = self._move_to(known, {ref.id for ref in view.segments})
        if twice is not None:
            self._breach(place, f"block {twice}{side} is in it twice")
        blocks = BlocksOf(
            row_count_of=lambda block_id: self._row_count_of(block_id, known),
            left=left,
            is_known=all(self._segments[ref.id].is_readable for ref in view.segments),
            side=name,
        )
        return self._deletions.see(view, place, blocks) and is_whole and twice is None

    def unreachable(self, leased: Leased) -> dict[str, Leftovers]:
        """Return, by kind, the objects that no snapshot names, checked or leased."""
        store = self._evidence.store
        segments = {info.key: info.size for info in store.list(SEGMENTS_PREFIX)}
        offsets = {info.key: info.size for info in store.list(OFFSETS_PREFIX)}
        return {
            SEGMENTS: left_over(segments, map(segment_key, {*self._segments, *leased.segments})),
            BLOCKS: left_over(self._sizes, map(block_key, {*self._numbers, *leased.blocks})),
            DELETIONS: self._deletions.unreachable(leased.deletion_files),
            OFFSETS: left_over(offsets, map(offsets_key, self._offsets | leased.offsets)),
            **self._indexes.unreachable(leased.index_lists, leased.index_parts),
        }

    def young(self, leased: Leased) -> list[str]:
        """Return the keys of blocks that are younger than every slot and in no snapshot."""
        named = map(block_key, {*self._numbers, *leased.blocks})
        return sorted(self._young.difference(named))

    def _breach(self, place: Place, wrong: str) -> None:
        self._evidence.report(
            Fault(FindingKind.BROKEN, wrong),
            slot_key(*place),
            "the content of this version is not certain",
            place=place,
        )

    def _see_segment(self, ref: SegmentRef, snapshot: Snapshot, place: Place, side: str) -> _Seen:
        seen = _Seen(ref=ref)
        found = self._evidence.load(
            segment_key(ref.id), lambda data: _read_segment(data, ref, snapshot)
        )
        if isinstance(found, Fault):
            lost = (
                f"the list of {ref.block_count} blocks with {ref.row_count} rows{side}; the blocks "
                "may exist, but no other object names them"
            )
            problem = self._evidence.report(
                found, segment_key(ref.id), lost, row_count=ref.row_count
            )
            problem.places.append(seen.needed_by)
            seen.is_readable = seen.is_whole = False
            return seen
        if wrong := flaw_of_bounds(
            snapshot.summary.col_stats, found.summary.col_stats, found.summary.row_count
        ):
            self._breach(place, f"{wrong}, segment {ref.id}{side}")
        for block in found.blocks:
            number = self._see_block(block, snapshot.schema, ref, side)
            seen.blocks.append(number)
            if problem_of_block := self._bad_blocks.get(number):
                problem_of_block.places.append(seen.needed_by)
                seen.is_whole = False
        return seen

    def _see_block(self, block: Block, schema: Schema, ref: SegmentRef, side: str) -> int:
        number = self._numbers.get(block.id)
        record = (block.row_count, block.file_size, block.sha256)
        if number is not None:
            if self._records[number] != record:
                self._evidence.report(
                    Fault(
                        FindingKind.BROKEN,
                        f"its record of block {block.id} is not what another segment says",
                    ),
                    segment_key(ref.id),
                    "one of the two records of this block is wrong",
                )
            return number
        number = self._numbers[block.id] = len(self._records)
        self._records.append(record)
        self._ids.append(block.id)
        if block.origin is not None:  # a check of that table reads it
            self.foreign[block.origin] = self.foreign.get(block.origin, 0) + 1
            return number
        fault = self._fault_of_block(block, schema)
        if fault is not None:
            lost = f"its rows{side}, {block.row_count} of them"
            self._bad_blocks[number] = self._evidence.report(
                fault, block_key(block.id), lost, row_count=block.row_count
            )
        if self._deep:
            self._on_block()
        return number

    def _fault_of_block(self, block: Block, schema: Schema) -> Fault | None:
        key = block_key(block.id)
        size = self._sizes.get(key)
        if size is not None and size != block.file_size:
            return Fault(
                FindingKind.DAMAGED, f"it has {size} bytes, its record says {block.file_size}"
            )
        if size is None or self._deep:
            # A listing may lack an object that exists: only a `get` decides.
            wrong = self._evidence.load(
                key,
                lambda data: flaw_of_block(data, block, schema) if self._deep else None,
                size=size,
            )
            return Fault(FindingKind.DAMAGED, wrong) if isinstance(wrong, str) else wrong
        return None

    def _row_count_of(self, block_id: str, known: _List) -> int | None:
        """Return the rows of a block of the list checked last; None if it has no such block."""
        number = self._numbers.get(block_id)
        return None if number not in known.counts else self._records[number][0]

    def _move_to(self, known: _List, segments: set[str]) -> tuple[list[str], str | None]:
        """Count the blocks of the next snapshot's segments.

        Return the ids of blocks that only the snapshot before has, and of one that is double.
        """
        counts, twice = known.counts, None
        fewer: set[int] = set()
        for segment_id in known.segments - segments:
            for number in self._segments[segment_id].blocks:
                counts[number] -= 1
                if not counts[number]:
                    del counts[number]
                    fewer.add(number)
        for segment_id in segments - known.segments:
            for number in self._segments[segment_id].blocks:
                counts[number] = counts.get(number, 0) + 1
                if counts[number] > 1:
                    twice = number
        known.segments = segments
        left = [self._ids[number] for number in fewer if number not in counts]
        return left, None if twice is None else self._ids[twice]

    def _see_offsets(self, ledger: Ledger) -> None:
        for (application, writer), entry in ledger.entries.items():
            for offsets in entry.offsets:
                if offsets.id is None or offsets.id in self._offsets:
                    continue
                self._offsets.add(offsets.id)
                fault = self._evidence.load(
                    offsets_key(offsets.id), partial(_fault_of_text, offsets)
                )
                if fault is not None:
                    who = f"{application}/{writer}" if writer else application
                    lost = (
                        f"the source offsets of batch {offsets.batch_id} of {who}: a lost "
                        "checkpoint cannot be rebuilt from them; no row is lost"
                    )
                    self._evidence.report(fault, offsets_key(offsets.id), lost)


def _facts(ref: SegmentRef) -> tuple[object, ...]:
    return ref.sha256, ref.level, ref.row_count, ref.block_count, ref.byte_size


def _read_segment(data: bytes, ref: SegmentRef, snapshot: Snapshot) -> Segment:
    if len(data) != ref.byte_size:
        raise CorruptObjectError(f"it has {len(data)} bytes, its snapshot says {ref.byte_size}")
    segment = decode_segment(data, ref.sha256, snapshot.schema.leaf_types)
    for block in segment.blocks:
        id_checked(block.id)
        id_checked(block.origin or block.id)
        dict(block.col_metas), block.cluster_stats  # decoded lazily: do it now
    if wrong := flaw_of_segment(segment, ref):
        raise CorruptObjectError(wrong)
    return segment


def _fault_of_text(named: SourceOffsets, data: bytes) -> Fault | None:
    if sha256_hex(data) == named.sha256:
        return None
    return Fault(FindingKind.DAMAGED, "its text does not have the hash that the ledger says")
