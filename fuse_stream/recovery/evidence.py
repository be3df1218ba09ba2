"""Reading a table's objects past every cache, and keeping what was found wrong with them."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from fuse_stream.errors import CorruptObjectError, FuseError, NotFoundError, StorageError
from fuse_stream.recovery.report import Finding, FindingKind, VersionRange
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
