"""Which commits brought the rows of a head that match, found by walking back over its content.

Rules:
- Rows belong to the commit that wrote them. Commits that only rewrite blocks are seen through: what
  they made is counted in the blocks that they made it from. Overwritten rows are new ones.
- A rewind or a publish brings nothing: the walk continues where its content comes from. A revert
  brings what it wrote; blocks that it put back belong to whom they did before it.
- Where that cannot be told any more, because snapshots have expired or files are gone, rows count
  to the last snapshot that can be, marked as brought at it or before. So no row is ever left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from fuse_stream.commit.ledger import Batch
from fuse_stream.errors import CorruptObjectError, NotFoundError
from fuse_stream.feed.diff import (
    diff_snapshots,
)
from fuse_stream.format.records import (
    KEEPS_ROWS,
    TAKES_CONTENT,
    Block,
    Operation,
    Parent,
    Snapshot,
)
from fuse_stream.reading.history import History
from fuse_stream.reading.scan import MatchCounts, prune, segment_may_match, select_matches

Progress = Callable[[Snapshot], None]
"""Told every snapshot that the walk looks at."""

_REWRITES = frozenset({Operation.COMPACT, Operation.RECLUSTER})
"""Operations that put rows into other blocks."""
_ADDS = frozenset({Operation.APPEND, Operation.OVERWRITE})
"""Operations whose new blocks all stand in the segments that the snapshot says it brought."""
_KEEPS_BLOCKS = (KEEPS_ROWS - _REWRITES) | TAKES_CONTENT | _ADDS
"""Operations that leave the other blocks as they were where their content comes from."""

T = TypeVar("T")

_Identity = tuple[str, str | None]
_Held = dict[_Identity, int]
"""How many rows match, by block, of those whose origin is yet to be found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlamedCommit:
    """A commit, and how many of the matching rows it brought."""

    version: int
    branch_id: str
    """In whose slots the snapshot stands; not that of the head where a publish took its rows."""
    snapshot_id: str
    timestamp_us: int
    operation: Operation
    message: str
    author: str
    batch: Batch | None
    """What the ledger says that the commit was; None if nobody numbered it."""
    row_count: int
    is_exact: bool = True
    """False: the rows came with this version or one before it; what is left does not tell."""


def blame(
    history: History,
    where: str,
    *,
    time_zone: str = "UTC",
    progress: Progress | None = None,
) -> tuple[BlamedCommit, ...]:
    """Return the commits that brought the matching rows of a head, newest first.

    Their counts add up to the matching rows. Reads the snapshots back to the oldest of these
    commits and opens one segment an append; blocks are read only to be counted, where statistics
    do not tell.

    Args:
        history: of the branch whose head's rows are asked about.
        where: a SQL predicate with Spark's semantics.
        time_zone: in which the predicate's times without a zone are meant.
        progress: told every snapshot that is looked at.

    Raises:
        InvalidInputError: an unknown column, or a broken predicate.
        CorruptObjectError: an object is damaged, or a slot that has not expired is lost.
    """
    walk = _Walk(history, where, time_zone)
    walk.run(progress or (lambda _: None))
    return tuple(sorted(walk.found, key=lambda one: (one.timestamp_us, one.is_exact), reverse=True))


class _Walk:
    """The way back: snapshots to look at, and the rows whose origin lies there or before."""

    def __init__(self, history: History, where: str, time_zone: str) -> None:
        self.found: list[BlamedCommit] = []
        self._history = history
        self._metadata = history.metadata
        head = history.head.snapshot
        # Along a line of content an id means one column, so the head's schema reads every block.
        self._selection = select_matches(head.schema, where, time_zone=time_zone)
        self._counts = MatchCounts(history.metadata.store)
        self._waiting: dict[tuple[str, int], tuple[Snapshot, _Held]] = {}
        self._pass_on(head, self._count(self._blocks(head)))

    def run(self, progress: Progress) -> None:
        while self._waiting:
            # Times fall towards the root, so whatever leads to a snapshot is looked at before it.
            at = max(self._waiting, key=lambda key: self._waiting[key][0].timestamp_us)
            snapshot, held = self._waiting.pop(at)
            progress(snapshot)
            self._step(snapshot, held)

    def _step(self, snapshot: Snapshot, held: _Held) -> None:
        """Credit what a commit brought, and pass the rest on to where its content comes from."""
        if snapshot.parent is None:
            self._credit(snapshot, held)
            return
        if snapshot.operation in _ADDS:
            added = _if_there(lambda: self._added(snapshot))
            brought = None if added is None else _of(held, added)
            if brought is None:
                self._credit(snapshot, held, is_exact=False)
                return
            self._credit(snapshot, brought)
            held = _without(held, brought)
        if not held:
            return
        source = self._find(snapshot.source, by=snapshot)
        if source is None:
            self._credit(snapshot, held, is_exact=False)
        elif snapshot.operation in _KEEPS_BLOCKS:
            self._pass_on(source, held)
        else:
            self._explain(snapshot, source, held)

    def _explain(self, snapshot: Snapshot, parent: Snapshot, held: _Held) -> None:
        """Do a step over a commit that wrote blocks in place of others."""
        diff = _if_there(lambda: diff_snapshots(self._metadata, parent, snapshot))
        if diff is None:
            self._credit(snapshot, held, is_exact=False)
            return
        made = _of(held, diff.inserted)
        self._pass_on(parent, _without(held, made))
        if not made:
            return
        if snapshot.operation in _REWRITES:
            inputs = _if_there(lambda: self._count(diff.removed))
            # Where some of what was made is gone, nobody can tell whose rows the rest holds.
            if inputs is not None and sum(inputs.values()) == sum(made.values()):
                self._pass_on(parent, inputs)
            else:
                self._credit(snapshot, made, is_exact=False)
        elif snapshot.operation is Operation.REVERT:
            self._pass_back(snapshot, made)
        else:
            self._credit(snapshot, made)

    def _pass_back(self, revert: Snapshot, made: _Held) -> None:
        """Pass the blocks that a revert put back on to before the commit that it undid.

        They need not lie before the revert itself: a rewind may stand between.
        """
        undone = self._find(revert.target, by=revert)
        before = self._find(undone.parent, by=undone) if undone else None
        stood = _if_there(lambda: self._blocks(before) if before else None)
        if before is None or stood is None:
            self._credit(revert, made, is_exact=False)
            return
        back = _of(made, stood)
        self._pass_on(before, back)
        self._credit(revert, _without(made, back))

    def _pass_on(self, snapshot: Snapshot, held: _Held) -> None:
        if not held:
            return
        _, waiting = self._waiting.setdefault(
            (snapshot.branch_id, snapshot.version), (snapshot, {})
        )
        for identity, count in held.items():
            waiting[identity] = waiting.get(identity, 0) + count

    def _credit(self, snapshot: Snapshot, held: _Held, *, is_exact: bool = True) -> None:
        if not held:
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
                row_count=sum(held.values()),
                is_exact=is_exact,
            )
        )

    def _count(self, blocks: Iterable[Block]) -> _Held:
        counted = ((block, self._counts.load(block, self._selection)) for block in blocks)
        return {block.identity: count for block, count in counted if count}

    def _blocks(self, snapshot: Snapshot) -> tuple[Block, ...]:
        return tuple(prune(self._metadata, snapshot, self._selection))

    def _added(self, snapshot: Snapshot) -> tuple[Block, ...]:
        """Return the blocks that a commit added; one segment is opened."""
        types = snapshot.schema.leaf_types
        return tuple(
            block
            for ref in snapshot.segments
            if ref.id in snapshot.added and segment_may_match(self._selection, ref)
            for block in self._metadata.load_segment(ref, types).blocks
        )

    def _find(self, named: Parent | None, *, by: Snapshot) -> Snapshot | None:
        found = self._history.find_named(named, by=by)
        return found.snapshot if found else None


def _if_there(load: Callable[[], T]) -> T | None:
    """Return what `load` does; None where an object is gone, as past a floor or off the line."""
    try:
        return load()
    except CorruptObjectError as error:
        if isinstance(error.__cause__, NotFoundError):
            return None
        raise


def _of(held: _Held, blocks: Iterable[Block]) -> _Held:
    identities = {block.identity for block in blocks}
    return {identity: count for identity, count in held.items() if identity in identities}


def _without(held: _Held, others: _Held) -> _Held:
    return {identity: count for identity, count in held.items() if identity not in others}


def _batch_of(snapshot: Snapshot) -> Batch | None:
    """Return the batch that a commit was: the ledger entry that it made."""
    for (application, writer), entry in snapshot.ledger.entries.items():
        # A published ledger has entries of another branch's versions; times tell them apart.
        if (entry.version, entry.timestamp_us) == (snapshot.version, snapshot.timestamp_us):
            return Batch(
                application=application,
                writer=writer,
                query_id=entry.query_id,
                batch_id=entry.batch_id,
            )
    return None
