"""The tables upstream of a table, and how far each batch has read them, by the ledgers.

A ledger entry names its sources by id; the path beside an id is only where a user once found the
table. So a table is opened at that path, and counts only if it has the id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fuse_stream.errors import FuseError, NotFoundError
from fuse_stream.format.layout import MAIN
from fuse_stream.format.records import LedgerEntry, LedgerKey, Operation, Snapshot
from fuse_stream.format.refs import BranchRef
from fuse_stream.format.source_offset import SourcePosition
from fuse_stream.objects.refs import find_branch
from fuse_stream.objects.slots import UNREADABLE, Metadata
from fuse_stream.reading.history import History
from fuse_stream.reading.line import load_line

_MOST_COUNTED = 1_000
"""Versions that are read to count commits."""

Key = tuple[str, str]
"""The id of a table and that of one of its branches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageSource:
    """How far the last batch of a writer has read a table."""

    application: str
    writer: str
    query_id: str | None
    batch_id: int
    """The last batch with rows: those without rows leave no entry in the ledger."""
    position: SourcePosition
    branch: str | None = None
    """The name of the branch that is read; None if the table could not be opened."""
    head: int | None = None
    """The newest version of that branch; None if the table could not be opened."""
    commits_behind: int | None = None
    """The number of commits after the position that change rows, apart from those that a rewind
    undid. None if not known, or if more than 1,000 versions are not read."""
    is_cycle: bool = False
    """True if the table that is read reads, by itself or through others, the one that reads it."""
    problem: str | None = None
    """Why the table could not be opened, or what became of the version that was read."""

    @property
    def versions_behind(self) -> int | None:
        """The number of versions that are not read yet, or only in part; None if not known."""
        if self.head is None or self.head < self.position.version:
            return None
        return self.head - self.position.version

    @property
    def name(self) -> str:
        """The position with the branch's name, such as "silver/fix@8"; its id if not known."""
        return self.position.spell(self.branch)

    @property
    def key(self) -> Key:
        """The ids of the table and of the branch that are read."""
        return self.position.offset.table_id, self.position.offset.branch_id


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageTable:
    """A branch of a table, and what its writers read."""

    path: str
    table_id: str
    branch: str
    branch_id: str
    head: int
    """Its newest version."""
    sources: tuple[LineageSource, ...]
    """By application and writer; empty if no writer read a table."""

    @property
    def key(self) -> Key:
        """The ids of the table and of the branch."""
        return self.table_id, self.branch_id

    @property
    def name(self) -> str:
        """The last name in the path with the version, such as "silver@8" or "silver/fix@8"."""
        folder = self.path.rstrip("/").rpartition("/")[2] or self.path
        branch = "" if self.branch_id == MAIN else f"/{self.branch}"
        return f"{folder}{branch}@{self.head}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Lineage:
    """A table and those upstream of it."""

    tables: tuple[LineageTable, ...]
    """The table itself, then each table upstream that could be opened, once."""

    def find(self, key: Key) -> LineageTable | None:
        """Return the table with these ids; None if it could not be opened."""
        return next((table for table in self.tables if table.key == key), None)

    def __repr__(self) -> str:
        first, *others = self.tables
        behind = {
            source.name: _UNKNOWN if source.versions_behind is None else source.versions_behind
            for source in first.sources
        }
        shown = [f"{name} ({number} behind)" for name, number in behind.items()]
        more = f"; {len(others)} tables upstream" if len(others) > 1 else ""
        return f"Lineage({first.name} <- {', '.join(shown) or 'no table'}{more})"


_UNKNOWN = "?"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Visit:
    """A table whose sources are being looked at."""

    path: str
    ref: BranchRef
    history: History
    todo: Iterator[tuple[LedgerKey, LedgerEntry, SourcePosition]]
    sources: list[LineageSource] = field(default_factory=list)


def trace_sources(
    history: History, *, path: str, ref: BranchRef, open_source: Callable[[str], Metadata]
) -> Lineage:
    """Return the tables upstream of a branch of a table.

    What is wrong with a table upstream is told in the record of who reads it, and never raised.

    Args:
        history: that of the branch.
        path: the location of the table.
        ref: the branch.
        open_source: returns the metadata of the table at a recorded path.
    """
    first = _visit(path, ref, history)
    found = {(history.head.snapshot.table_id, ref.branch_id): first}
    way = [first]
    while way:
        visit = way[-1]
        step = next(visit.todo, None)
        if step is None:
            way.pop()
            continue
        position = step[2]
        key = position.offset.table_id, position.offset.branch_id
        there, problem = found.get(key), None
        is_cycle = there in way
        try:
            if there is None:
                there = found[key] = _opened(position, open_source)
                way.append(there)
            problem = _find_change(there.history, position)
        except FuseError as error:
            problem = error.message.partition(";")[0]
        visit.sources.append(_source(step, there, problem, is_cycle=is_cycle))
    return Lineage(tables=tuple(_table(visit) for visit in found.values()))


def _visit(path: str, ref: BranchRef, history: History) -> _Visit:
    entries = sorted(history.head.snapshot.ledger.entries.items())
    todo = ((key, entry, one) for key, entry in entries for one in entry.sources or ())
    return _Visit(path=path, ref=ref, history=history, todo=todo)


def _opened(position: SourcePosition, open_source: Callable[[str], Metadata]) -> _Visit:
    """Open the branch that was read, where the table was then.

    Raises:
        FuseError: it is not there any more, or cannot be read.
    """
    if position.path is None:
        raise NotFoundError("its path was not recorded")
    metadata = open_source(position.path)
    if metadata.load_table_file().table_id != position.offset.table_id:
        raise NotFoundError("another table is there now")
    branch_id = position.offset.branch_id
    ref = find_branch(metadata, branch_id)
    if ref is None:
        raise NotFoundError("the branch was deleted")
    return _visit(position.path, ref, History(metadata, metadata.load_head(branch_id)))


def _find_change(history: History, position: SourcePosition) -> str | None:
    """Return what became of the version that was read; None if it stands, or has expired."""
    version = position.offset.version
    if version > history.head.snapshot.version:
        return "it ends before this version"
    if position.offset.is_undecided or version < history.floor:
        return None
    if history.load(version).snapshot.snapshot_id != position.offset.snapshot_id:
        return "this version is another commit now"
    line = load_line(history, version - 1, history.head)
    return None if line.find_after(version - 1) == version else "this version is undone now"


def _count_commits(history: History, position: SourcePosition) -> int | None:
    """Return `LineageSource.commits_behind`."""
    head, start = history.head.snapshot.version, position.version
    if not start <= head <= start + _MOST_COUNTED:
        return None
    try:
        steps = load_line(history, start, history.head).iter_steps(head)
        return sum(_changes_rows(history.load(step.version).snapshot, step.base) for step in steps)
    except UNREADABLE:
        return None


def _changes_rows(snapshot: Snapshot, base: int) -> bool:
    """True if a snapshot has other rows than `base`, the version before it on its line."""
    # A rewind to the version before it on the line has the same rows as that.
    target = snapshot.target if snapshot.operation is Operation.REWIND else None
    return snapshot.data_change and (target is None or target.version != base)


def _source(
    step: tuple[LedgerKey, LedgerEntry, SourcePosition],
    there: _Visit | None,
    problem: str | None,
    *,
    is_cycle: bool,
) -> LineageSource:
    (application, writer), entry, position = step
    return LineageSource(
        application=application,
        writer=writer,
        query_id=entry.query_id,
        batch_id=entry.batch_id,
        position=position,
        branch=None if there is None else there.ref.name,
        head=None if there is None else there.history.head.snapshot.version,
        commits_behind=None if there is None else _count_commits(there.history, position),
        is_cycle=is_cycle,
        problem=problem,
    )


def _table(visit: _Visit) -> LineageTable:
    head = visit.history.head.snapshot
    return LineageTable(
        path=visit.path,
        table_id=head.table_id,
        branch=visit.ref.name,
        branch_id=visit.ref.branch_id,
        head=head.version,
        sources=tuple(visit.sources),
    )
