"""Check the deletion files that snapshots name: their bytes, and the rows that they hide.

Each file is read once. Its rows are kept in memory, within a limit; beyond it, a file is read again
if another branch names it, too. A snapshot is compared only with what differs from the one before
it: the files and blocks that came or left.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from enum import Enum

from fuse_stream.check.findings import (
    Evidence,
    Fault,
    FindingKind,
    Leftovers,
    Place,
    Versions,
    left_over,
)
from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.deletions import MAX_DELETION_FILE_BYTES, decode_deletions
from fuse_stream.format.layout import DELETIONS_PREFIX, deletions_key, slot_key
from fuse_stream.format.positions import BlockRows, Positions
from fuse_stream.format.records import DeletionFileRef, Snapshot

KEPT_BYTES = 256 * 1024 * 1024
"""The limit of the files whose rows are kept in memory, in stored bytes."""

_REPAIR = (
    "put it back from a copy; or rewind to an older version that can be read, and delete again "
    "what was deleted since"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksOf:
    """The blocks of the snapshot that is checked."""

    row_count_of: Callable[[str], int | None]
    """Returns the rows of a block's file, by block id; None if the snapshot has no such block."""
    left: Collection[str]
    """Ids of the blocks that the snapshot checked before has, and this one has not."""
    is_known: bool
    """False if a segment could not be read, and so not all blocks are known."""
    side: str
    """The name of the side that has them; empty for the table's own rows."""


class _Flaw(Enum):
    """How the rows of a file do not fit a snapshot; what is lost by it."""

    NO_BLOCK = "the right number of rows of these versions, which state too few; all can be read"
    NO_ROW = "which rows of these versions are deleted, so they cannot be read"
    TWICE = "the right number of rows of these versions, so they cannot be read"


@dataclass(slots=True)
class _Seen:
    """A deletion file that was checked."""

    ref: DeletionFileRef
    is_readable: bool = True
    needed_by: Versions = field(default_factory=Versions)
    """The versions that name it; kept only if it cannot be read."""


@dataclass(slots=True)
class _Hidden:
    """What the snapshot checked last hides of one list of rows."""

    files: set[str] = field(default_factory=set)
    """Its files, if its rows were right."""
    rows: dict[str, Positions] = field(default_factory=dict)
    """The rows that these files hide."""


class DeletionFiles:
    """The deletion files that the snapshots checked so far name."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._seen: dict[str, _Seen] = {}
        self._kept: OrderedDict[str, tuple[BlockRows, int]] = OrderedDict()
        """The rows of files, with the size of each file."""
        self._kept_bytes = 0
        self._last: dict[str, _Hidden] = {}
        """By the name of a side, as in `BlocksOf`."""
        self._flawed: dict[tuple[str, _Flaw], Versions] = {}

    @property
    def count(self) -> int:
        return len(self._seen)

    def keep(self, sides: Collection[str]) -> None:
        """Compare the next snapshot with the last one in these lists of rows alone."""
        self._last = {name: self._last.get(name, _Hidden()) for name in sides}

    def see(self, snapshot: Snapshot, place: Place, blocks: BlocksOf) -> bool:
        """Check what a snapshot, or a view of one of its sides, hides.

        Return True if its deletion files are whole and fit it.
        """
        side = f" of side {blocks.side}" if blocks.side else ""
        readable: list[str] = []
        is_whole = True
        for ref in snapshot.deletion_files:
            seen = self._seen.get(ref.id)
            if seen is None:
                seen = self._seen[ref.id] = self._look(ref, side)
            elif seen.ref != ref:
                self._evidence.report(
                    Fault(
                        FindingKind.BROKEN,
                        f"its record of deletion file {ref.id}{side} is not what others say",
                    ),
                    slot_key(*place),
                    "the content of this version is not certain",
                    place=place,
                )
                is_whole = False
            if seen.is_readable:
                readable.append(ref.id)
            else:
                seen.needed_by.add(place)
                is_whole = False
        flaws = list(self._move_to(readable, blocks))
        if flaws or not blocks.is_known:
            self._last[blocks.side] = _Hidden()  # compare the next snapshot as a whole
        for file_id, flaw, wrong in flaws:
            self._report_flaw(file_id, flaw, f"{wrong}{side}").add(place)
        return is_whole and not flaws

    def unreachable(self, leased: Collection[str]) -> Leftovers:
        """Return the objects that no snapshot names, checked or leased; `leased` are ids."""
        sizes = {info.key: info.size for info in self._evidence.store.list(DELETIONS_PREFIX)}
        return left_over(sizes, map(deletions_key, {*self._seen, *leased}))

    def _look(self, ref: DeletionFileRef, side: str) -> _Seen:
        found = self._evidence.load(deletions_key(ref.id), lambda data: _read(data, ref))
        if not isinstance(found, Fault):
            self._keep(ref.id, found, ref.byte_size)
            return _Seen(ref=ref)
        seen = _Seen(ref=ref, is_readable=False)
        lost = (
            f"which {ref.row_count} rows of {ref.block_count} blocks{side} are deleted: without it "
            f"they cannot be left out, so these versions cannot be read. No row is lost: {_REPAIR}"
        )
        self._evidence.report(found, deletions_key(ref.id), lost).places.append(seen.needed_by)
        return seen

    def _move_to(self, files: list[str], blocks: BlocksOf) -> Iterator[tuple[str, _Flaw, str]]:
        """Hide the rows of the next snapshot's files; yield each that does not fit, once a file."""
        last = self._last.setdefault(blocks.side, _Hidden())
        hidden = last.rows
        for file_id in last.files.difference(files):
            for block_id, rows in self._rows_of(file_id).items():
                hidden[block_id] -= rows
                if not hidden[block_id]:
                    del hidden[block_id]
        for file_id in files:
            if file_id not in last.files:
                yield from self._add(file_id, blocks, hidden)
        last.files = set(files)
        for block_id in blocks.left:
            if blocks.is_known and block_id in hidden:
                for file_id in files:
                    if block_id in self._rows_of(file_id):
                        yield file_id, _Flaw.NO_BLOCK, _names_no_block(block_id)

    def _add(
        self, file_id: str, blocks: BlocksOf, hidden: dict[str, Positions]
    ) -> Iterator[tuple[str, _Flaw, str]]:
        found: dict[_Flaw, str] = {}
        for block_id, rows in self._rows_of(file_id).items():
            row_count = blocks.row_count_of(block_id)
            if row_count is None and blocks.is_known:
                found[_Flaw.NO_BLOCK] = _names_no_block(block_id)
            if row_count is not None and rows.max() >= row_count:
                found[_Flaw.NO_ROW] = (
                    f"it hides row {rows.max()} of block {block_id}, whose rows are numbered 0 to "
                    f"{row_count - 1}"
                )
            before = hidden.get(block_id, Positions())
            if both := before & rows:
                found[_Flaw.TWICE] = (
                    f"another deletion file hides row {both.min()} of block {block_id}, too"
                )
            hidden[block_id] = before | rows
        yield from ((file_id, flaw, wrong) for flaw, wrong in found.items())

    def _report_flaw(self, file_id: str, flaw: _Flaw, wrong: str) -> Versions:
        versions = self._flawed.get((file_id, flaw))
        if versions is None:
            versions = self._flawed[file_id, flaw] = Versions()
            lost = (
                f"{flaw.value}. A commit should not have made this: rewind to a version that is "
                "whole"
            )
            fault = Fault(FindingKind.BROKEN, wrong)
            self._evidence.report(fault, deletions_key(file_id), lost).places.append(versions)
        return versions

    def _rows_of(self, file_id: str) -> BlockRows:
        if file_id in self._kept:
            self._kept.move_to_end(file_id)
            return self._kept[file_id][0]
        ref = self._seen[file_id].ref
        found = self._evidence.load(deletions_key(file_id), lambda data: _read(data, ref))
        if isinstance(found, Fault):  # it vanished during the check
            return {}
        self._keep(file_id, found, ref.byte_size)
        return found

    def _keep(self, file_id: str, rows: BlockRows, size: int) -> None:
        self._kept[file_id] = rows, size
        self._kept_bytes += size
        while self._kept_bytes > KEPT_BYTES and len(self._kept) > 1:
            _, (_, dropped) = self._kept.popitem(last=False)
            self._kept_bytes -= dropped


def _names_no_block(block_id: str) -> str:
    return f"it hides rows of block {block_id}, which no segment of the version lists"


def _read(data: bytes, ref: DeletionFileRef) -> BlockRows:
    if len(data) != ref.byte_size:
        raise CorruptObjectError(f"it has {len(data)} bytes, its snapshot says {ref.byte_size}")
    if len(data) > MAX_DELETION_FILE_BYTES:
        raise CorruptObjectError(f"it is larger than {MAX_DELETION_FILE_BYTES} bytes")
    if sha256_hex(data) != ref.sha256:
        raise CorruptObjectError("its bytes were changed: they do not have the recorded hash")
    try:
        file = decode_deletions(data)
    except CorruptObjectError as error:
        reason = error.context.get("reason", error.message)
        raise CorruptObjectError(f"it is not in the format of deletion files: {reason}") from error
    if (file.row_count, len(file.hidden)) != (ref.row_count, ref.block_count):
        raise CorruptObjectError(
            f"it hides {file.row_count} rows of {len(file.hidden)} blocks, its snapshot says "
            f"{ref.row_count} of {ref.block_count}"
        )
    return file.hidden
