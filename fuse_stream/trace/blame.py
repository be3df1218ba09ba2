"""Find the commits that brought the matching rows of a head, by a walk back over its content.

Rules:
- Rows count for the commit that wrote them. A commit that only rewrites blocks brings none: its new
  blocks are replaced by those that it read. Rows written by an overwrite are new.
- A rewind or a publish brings no rows: the walk continues at the source of its content. A revert
  brings the blocks that it wrote; for blocks that it put back, the walk continues before the commit
  that it undid.
- If snapshots have expired, rows count for the oldest snapshot that can be read, with `is_exact`
  false. So no row is left out. A lost object of a snapshot that has not expired is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from fuse_stream.commit.ledger import Batch
from fuse_stream.errors import CorruptObjectError, NotFoundError
from fuse_stream.feed.diff import diff_snapshots
from fuse_stream.format.one_line import one_line
from fuse_stream.format.operations import BRINGS_ROWS, KEEPS_ROWS
from fuse_stream.format.records import TAKES_CONTENT, Block, Operation, Parent, Snapshot
from fuse_stream.reading.history import History
from fuse_stream.reading.scan import MatchCounts, prune, segment_may_match, select_matches

Progress = Callable[[Snapshot], None]
"""Called with each snapshot that the walk reads."""

_REWRITES = frozenset({Operation.COMPACT, Operation.RECLUSTER, Operation.ERASE})
"""Operations that move rows into other blocks."""
_KEEPS_BLOCKS = (KEEPS_ROWS - _REWRITES) | TAKES_CONTENT | BRINGS_ROWS
"""Operations whose other blocks are also in the source of their content."""

T = TypeVar("T")

_RowCounts = dict[str, int]
"""The number of matching rows by block, for blocks whose commit is not found yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlamedCommit:
    """A commit, and the number of matching rows that it brought."""

    version: int
    branch_id: str
    """The branch that owns the snapshot's slot; after a publish perhaps not the head's."""
    snapshot_id: str
    timestamp_us: int
    operation: Operation
    message: str
    author: str
    batch: Batch | None
    """The batch of the commit, by the ledger; None if it had no batch number."""
    row_count: int
    is_exact: bool = True
    """False if this version or an earlier, expired one brought the rows."""

    __repr__ = one_line(
        "version row_count operation batch_id=batch.batch_id application=batch.application "
        "is_exact at_us=timestamp_us message"
    )


def blame(
    history: History, where: str, *, time_zone: str = "UTC", progress: Progress | None = None
) -> tuple[BlamedCommit, ...]:
    """Return the commits that brought matching rows; arguments and errors of `Table.blame`.

    Reads the snapshots back to the oldest of these commits, and one segment for each append; a
    block is read only if its statistics do not give the number of matching rows.
    """
    walk = _Walk(history, where, time_zone)
    walk.run(progress or (lambda _: None))
    return tuple(sorted(walk.found, key=lambda one: (one.timestamp_us, one.is_exact), reverse=True))


class _Walk:
    """The walk from the head back: the snapshots still to read, and the rows counted for each."""

    def __init__(self, history: History, where: str, time_zone: str) -> None:
        self.found: list[BlamedCommit] = []
        self._history = history
        self._metadata = history.metadata
        head = history.head.snapshot
        # In all sources of the head's content an id means one column: one schema reads all blocks.
        self._selection = select_matches(head.schema, where, time_zone=time_zone)
        self._counts = MatchCounts(history.metadata.store)
        self._waiting: dict[tuple[str, int], tuple[Snapshot, _RowCounts]] = {}
        self._pass_on(head, self._count(self._blocks(head)))

    def run(self, progress: Progress) -> None:
        while self._waiting:
            # A source is older than the snapshots made from it, so these are all read before it.
            at = max(self._waiting, key=lambda key: self._waiting[key][0].timestamp_us)
            snapshot, counts = self._waiting.pop(at)
            progress(snapshot)
            self._step(snapshot, counts)

    def _step(self, snapshot: Snapshot, counts: _RowCounts) -> None:
        """Credit a commit with its rows; pass the other rows on to the source of its content."""
        if snapshot.parent is None:
            self._credit(snapshot, counts)
            return
        if snapshot.operation in BRINGS_ROWS:
            added = self._unless_expired(snapshot, lambda: self._added(snapshot))
            brought = None if added is None else _of(counts, added)
            if brought is None:
                self._credit(snapshot, counts, is_exact=False)
                return
            self._credit(snapshot, brought)
            counts = _without(counts, brought)
        if not counts:
            return
        source = self._find(snapshot.source, by=snapshot)
        if source is None:
            self._credit(snapshot, counts, is_exact=False)
        elif snapshot.operation in _KEEPS_BLOCKS:
            self._pass_on(source, counts)
        else:
            self._explain(snapshot, source, counts)

    def _explain(self, snapshot: Snapshot, parent: Snapshot, counts: _RowCounts) -> None:
        """Do the step for a commit that replaced blocks by others."""
        diff = self._unless_expired(
            parent, lambda: diff_snapshots(self._metadata, parent, snapshot)
        )
        if diff is None:
            self._credit(snapshot, counts, is_exact=False)
            return
        made = _of(counts, diff.inserted)
        self._pass_on(parent, _without(counts, made))
        if not made:
            return
        if snapshot.operation in _REWRITES:
            inputs = self._unless_expired(parent, lambda: self._count(diff.removed))
            # If some of the new blocks were removed later, the rows of the others cannot be found.
            if inputs is not None and sum(inputs.values()) == sum(made.values()):
                self._pass_on(parent, inputs)
            else:
                self._credit(snapshot, made, is_exact=False)
        elif snapshot.operation is Operation.REVERT:
            self._pass_back(snapshot, made)
        else:
            self._credit(snapshot, made)

    def _pass_back(self, revert: Snapshot, made: _RowCounts) -> None:
        """Pass the blocks that a revert put back to the parent of the commit that it undid.

        They need not be in the revert's own parent: a rewind may be between the two.
        """
        undone = self._find(revert.target, by=revert)
        before = self._find(undone.parent, by=undone) if undone else None
        if before is None:
            self._credit(revert, made, is_exact=False)
            return
        earlier = self._unless_expired(before, lambda: self._blocks(before))
        if earlier is None:
            self._credit(revert, made, is_exact=False)
            return
        back = _of(made, earlier)
        self._pass_on(before, back)
        self._credit(revert, _without(made, back))

    def _pass_on(self, snapshot: Snapshot, counts: _RowCounts) -> None:
        if not counts:
            return
        _, waiting = self._waiting.setdefault(
            (snapshot.branch_id, snapshot.version), (snapshot, {})
        )
        for block_id, count in counts.items():
            waiting[block_id] = waiting.get(block_id, 0) + count

    def _credit(self, snapshot: Snapshot, counts: _RowCounts, *, is_exact: bool = True) -> None:
        if not counts:
            return
        self.found.append(
            BlamedCommit(
                version=snapshot.version,
                branch_id=snapshot.branch_id,
                snapshot_id=snapshot.snapshot_id,
                timestamp_us=snapshot.timestamp_us,
                operation=snapshot.operation,
                message=snapshot.message,
                author=snapshot.author,
                batch=_batch_of(snapshot) if is_exact else None,
                row_count=sum(counts.values()),
                is_exact=is_exact,
            )
        )

    def _count(self, blocks: Iterable[Block]) -> _RowCounts:
        counted = ((block, self._counts.load(block, self._selection)) for block in blocks)
        return {block.id: count for block, count in counted if count}

    def _blocks(self, snapshot: Snapshot) -> tuple[Block, ...]:
        return tuple(prune(self._metadata, snapshot, self._selection))

    def _added(self, snapshot: Snapshot) -> tuple[Block, ...]:
        """Return the blocks that a commit added; reads one segment."""
        types = snapshot.schema.leaf_types
        return tuple(
            block
            for ref in snapshot.segments
            if ref.id in snapshot.added and segment_may_match(self._selection, ref)
            for block in self._metadata.load_segment(ref, types).blocks
        )

    def _unless_expired(self, oldest: Snapshot, load: Callable[[], T]) -> T | None:
        """Return what `load` reads of a snapshot and later ones; None if it has expired meanwhile.

        A snapshot of another branch, which may have been deleted, counts as expired.
        """
        try:
            return load()
        except CorruptObjectError as error:
            if not isinstance(error.__cause__, NotFoundError):
                raise
            if self._history.contains(oldest):
                head = self._metadata.load_head(self._history.head.snapshot.branch_id)
                if oldest.version >= head.snapshot.floor:
                    raise
            return None

    def _find(self, named: Parent | None, *, by: Snapshot) -> Snapshot | None:
        found = self._history.find_named(named, by=by)
        return found.snapshot if found else None


def _of(counts: _RowCounts, blocks: Iterable[Block]) -> _RowCounts:
    ids = {block.id for block in blocks}
    return {block_id: count for block_id, count in counts.items() if block_id in ids}


def _without(counts: _RowCounts, others: _RowCounts) -> _RowCounts:
    return {block_id: count for block_id, count in counts.items() if block_id not in others}


def _batch_of(snapshot: Snapshot) -> Batch | None:
    """Return the batch that a commit brought, from its ledger entry; None if it has none."""
    for (application, writer), entry in snapshot.batches.items():
        # A published ledger has another branch's version numbers, so the time must agree as well.
        if entry.timestamp_us == snapshot.timestamp_us:
            query_id, batch_id = entry.query_id, entry.batch_id
            return Batch(
                application=application, writer=writer, query_id=query_id, batch_id=batch_id
            )
    return None
