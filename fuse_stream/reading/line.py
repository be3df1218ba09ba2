"""The line of a version: the versions of its branch through which its content came.

A rewind or a publish takes the content of another snapshot. The versions between that one and the
rewind are then undone: they are in the history, but nothing of the content came through them. The
line of a version leads back from it, each time to the snapshot whose content it was made from. The
snapshots of another branch are left out: a publish continues the line where that branch meets this
one.

Most snapshots name the start of their line, so each rewind or publish on a line takes one read. In
a table that an earlier release has written to, every snapshot after the reader's version is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from fuse_stream.format.line import LineStart
from fuse_stream.format.records import TAKES_CONTENT, Operation, Snapshot
from fuse_stream.format.refs import last_shared
from fuse_stream.objects.refs import iter_branches
from fuse_stream.objects.slots import UNREADABLE, Stored
from fuse_stream.reading.history import History, Place


class Step(NamedTuple):
    """A version of a line, and the one before it on the line."""

    base: int
    version: int


class Run(NamedTuple):
    """Neighbouring versions of a line: all but the first were made from the version before."""

    base: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The versions of a line after the one that a reader has."""

    start: int
    """The version that the reader has. It may be undone; then it is not on the line."""
    runs: tuple[Run, ...]
    """Oldest first."""

    def iter_steps(self, last: int) -> Iterator[Step]:
        """Yield the versions up to `last`, oldest first."""
        for run in self.runs:
            base = run.base
            for version in range(run.first, min(run.last, last) + 1):
                yield Step(base, version)
                base = version

    def iter_back(self) -> Iterator[int]:
        """Yield the versions, newest first."""
        for run in reversed(self.runs):
            yield from range(run.last, run.first - 1, -1)

    def has(self, version: int) -> bool:
        """True if a version after the start is on the line."""
        return self.find_after(version - 1) == version

    def find_after(self, version: int) -> int | None:
        """Return the first version of the line after `version`; None if there is none."""
        later = (max(run.first, version + 1) for run in self.runs if run.last > version)
        return next(later, None)


def load_line(history: History, start: int, end: Stored) -> Line:
    """Return the versions after `start` on the line of `end`, a snapshot of `history`.

    Raises:
        SnapshotExpiredError: one of them has expired.
    """
    runs: list[Run] = []
    at: Snapshot | None = end.snapshot
    while at is not None and at.version > start:
        found = _find_start(history, at, start)
        base = None if found.since <= start else found.base
        runs.append(
            Run(
                base=max(start, -1 if base is None else base),
                first=max(found.since, start + 1),
                last=at.version,
            )
        )
        at = None if base is None or base <= start else history.load(base).snapshot
    return Line(start=start, runs=tuple(reversed(runs)))


def find_base(history: History, target: Stored) -> int | None:
    """Return the newest version of `history` on the line of `target`, a snapshot of any branch.

    Returns None, or an earlier one, if the line cannot be followed: snapshots of it have expired,
    or it leads over a branch whose ref was not read.
    """
    metadata, head = history.metadata, history.head.snapshot
    own = metadata.forks_of(head.branch_id), head.branch_id
    at: Stored | None = target
    try:
        while at is not None and not history.contains(at.snapshot):
            id_, version = at.snapshot.branch_id, at.snapshot.version
            there = History(metadata, at)
            fork = last_shared(own, (metadata.forks_of(id_), id_), most=min(head.version, version))
            since = _find_start(there, at.snapshot, fork).since
            if since <= fork:
                return fork
            taker = there.load(since).snapshot
            at = there.find_named(taker.target, by=taker, may_be_lost=True)
    except UNREADABLE:
        return None
    return None if at is None else at.snapshot.version


def find_publish(history: History, end: Stored, at: Place) -> int | None:
    """Return the first version on the line of `end` that has the content of another branch's `at`.

    It is a publish from a line that has the version. Returns None if there is none after the floor.

    Args:
        history: of the branch of `end`.
        end: the snapshot where the line ends.
        at: a version of another branch.
    """
    for run in load_line(history, min(history.floor, end.snapshot.version) - 1, end).runs:
        taken = history.load(run.first).snapshot
        source = _published(history, taken, at)
        try:
            if source is not None and load_line(source, at.version - 1, source.head).has(
                at.version
            ):
                return taken.version
        except UNREADABLE:
            continue  # the branch was deleted, or its versions have expired
    return None


def was_published(history: History, at: Place) -> bool:
    """True if a version of another branch came to this one by a publish, also one undone since."""
    version = history.head.snapshot.version
    while version >= history.floor:
        snapshot = history.load(version).snapshot
        since = _find_start(history, snapshot, history.floor - 1).since
        if since < max(history.floor, 1):
            return False
        if _published(history, history.load(since).snapshot, at) is not None:
            return True
        version = since - 1
    return False


def _published(history: History, taken: Snapshot, at: Place) -> History | None:
    """Return the history that a snapshot has published, if `at` is in it."""
    if taken.operation is not Operation.PUBLISH:
        return None
    for _ in iter_branches(history.metadata):  # the forks of the published branch
        pass
    there = history.find_named(taken.target, by=taken, may_be_lost=True)
    if there is None or at.version > there.snapshot.version:
        return None
    source = History(history.metadata, there)
    # A reader of that branch names it also at a version that the branch shares with another.
    return source if at.branch_id == there.snapshot.branch_id or source.contains(at) else None


def _find_start(history: History, at: Snapshot, after: int) -> LineStart:
    """Return the start of a snapshot's line, if it is greater than `after`; else any up to that."""
    if at.line is not None:
        return at.line
    for version in range(at.version, after, -1):
        snapshot = history.load(version).snapshot
        if snapshot.line is not None:
            return snapshot.line
        if snapshot.operation in TAKES_CONTENT:
            target = history.find_named(snapshot.target, by=snapshot, may_be_lost=True)
            base = None if target is None else find_base(history.as_of(version), target)
            return LineStart(since=version, base=base)
    return LineStart(since=max(after, 0))
