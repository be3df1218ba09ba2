"""What a check of a table found: collected past every cache, and reported in a user's words."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from fuse_stream.errors import (
    CorruptObjectError,
    FuseError,
    NotFoundError,
    StorageError,
)
from fuse_stream.storage.base import Store

T = TypeVar("T")

Place = tuple[str, int]
"""A slot: the id of the branch that owns it, and the version."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an object could not be read."""

    kind: FindingKind
    wrong: str


@dataclass(slots=True)
class Problem:
    """What is wrong with one object, and the snapshots that need it, as they are met."""

    kind: FindingKind
    key: str
    wrong: str
    lost: str
    row_count: int = 0
    places: list[Versions] = field(default_factory=list)
    """One for each object through which snapshots need this one."""

    def finding(self, name_of: Callable[[str], str]) -> Finding:
        """Return the finding, branches by their names."""
        return Finding(
            kind=self.kind,
            key=self.key,
            wrong=self.wrong,
            lost=self.lost,
            versions=_ranges(self.places, name_of),
            row_count=self.row_count,
        )


@dataclass(slots=True)
class Versions:
    """A set of slots, kept as runs: a lost block may be missed by ten thousand snapshots."""

    runs: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """First and last version by branch id."""

    def add(self, place: Place) -> None:
        branch_id, version = place
        runs = self.runs.setdefault(branch_id, [])
        if runs and runs[-1][0] == version + 1:  # versions are met newest first
            runs[-1] = (version, runs[-1][1])
        elif not any(first <= version <= last for first, last in runs):
            runs.append((version, version))


class Evidence:
    """The store, and what was found in it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.problems: list[Problem] = []

    def report(
        self,
        fault: Fault,
        key: str,
        lost: str,
        *,
        row_count: int = 0,
        place: Place | None = None,
    ) -> Problem:
        """Keep a problem; `place` is a slot that it concerns."""
        problem = Problem(
            kind=fault.kind, key=key, wrong=fault.wrong, lost=lost, row_count=row_count
        )
        if place is not None:
            problem.places.append(versions := Versions())
            versions.add(place)
        self.problems.append(problem)
        return problem

    def note_foreign(self, key: str) -> None:
        """Note an object among the refs or leases whose key has no name in it."""
        fault = Fault(FindingKind.NOTE, "no branch, tag, clone or consumer has such a name")
        self.report(fault, key, "nothing: every verb passes over it; delete this object")

    def load(self, key: str, read: Callable[[bytes], T]) -> T | Fault:
        """Return what `read` makes of an object, or why that cannot be had."""
        try:
            data = self.store.get(key)
        except NotFoundError:
            return Fault(FindingKind.MISSING, "it is not there")
        except StorageError as error:
            return Fault(FindingKind.UNREADABLE, error.message)
        try:
            return read(data)
        except CorruptObjectError as error:
            return Fault(FindingKind.DAMAGED, error.message)
        except FuseError as error:  # a newer release wrote it
            return Fault(FindingKind.UNREADABLE, error.message)

    def stands(self, key: str) -> bool:
        """Whether an object is there; a listing is not believed when it says no."""
        try:
            self.store.get(key)
        except NotFoundError:
            return False
        return True


def _ranges(places: Iterable[Versions], name_of: Callable[[str], str]) -> tuple[VersionRange, ...]:
    runs: dict[str, list[tuple[int, int]]] = {}
    for versions in places:
        for branch_id, found in versions.runs.items():
            for run in found:
                insort(runs.setdefault(branch_id, []), run)
    return tuple(
        VersionRange(branch=name_of(branch_id), first=first, last=last)
        for branch_id, found in runs.items()
        for first, last in _joined(found)
    )


def _joined(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for first, last in runs:
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


class FindingKind(StrEnum):
    """What is the matter with an object."""

    MISSING = "missing"
    DAMAGED = "damaged"
    """Its bytes are not those that were written."""
    BROKEN = "broken"
    """It is whole, and breaks a rule of the format."""
    UNREADABLE = "unreadable"
    """The store fails on it; its bytes may still be good."""
    NOTE = "note"
    """No damage: worth knowing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRange:
    """Neighbouring versions of a branch, both ends inclusive."""

    branch: str
    """Its name; its id where no ref names it."""
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One object that is not as it should be."""

    kind: FindingKind
    key: str
    """The object, relative to the table's folder."""
    wrong: str
    """What is wrong with it."""
    lost: str
    """What a user can no longer do, or read."""
    versions: tuple[VersionRange, ...] = ()
    """The snapshots that cannot be read whole for it; that it is, for a slot."""
    row_count: int = 0
    """Rows that are lost with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchState:
    """What can still be done with a branch."""

    name: str
    head: int | None
    """The newest version; None where nothing tells it."""
    floor: int
    """The oldest version that has not expired."""
    last_good: int | None
    """The newest version that can be read whole; None: none can."""
    takes_commits: bool
    """Whether it can be opened and written to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """Objects that nothing needs, or that nothing names any more; vacuum's business."""

    object_count: int = 0
    byte_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FsckReport:
    """The state of a table: its damage, and what can be done with it all the same."""

    path: str
    deep: bool
    """Whether every byte of every block was read."""
    branches: tuple[BranchState, ...]
    findings: tuple[Finding, ...]
    """Damage first; then notes."""
    snapshot_count: int
    """Slots that were looked at."""
    segment_count: int
    block_count: int
    origins: tuple[str, ...] = ()
    """Ids of the other tables that hold blocks of this one, which is a clone."""
    unreachable: dict[str, Leftovers] = field(default_factory=dict)
    """By kind of object: what no retained snapshot names. A commit in flight has such, too."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing is damaged or missing."""
        return all(finding.kind is FindingKind.NOTE for finding in self.findings)
