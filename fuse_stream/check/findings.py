"""The findings of a check: collected from the store without any cache, and the report of them."""

from __future__ import annotations

import contextlib
from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from fuse_stream.errors import CorruptObjectError, FuseError, NotFoundError, StorageError
from fuse_stream.format.one_line import one_line
from fuse_stream.storage.base import Store, find_object, get_large
from fuse_stream.storage.parallel import each

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
    """A fault of one object, and the snapshots that need the object."""

    kind: FindingKind
    key: str
    wrong: str
    lost: str
    row_count: int = 0
    places: list[Versions] = field(default_factory=list)
    """One set for each object through which snapshots need this one."""

    def finding(self, name_of: Callable[[str], str]) -> Finding:
        """Return the finding, with branches by their names."""
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
    """A set of slots, kept as runs: ten thousand snapshots may need one block."""

    runs: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """The first and the last version of each run, by branch id."""

    def add(self, place: Place) -> None:
        branch_id, version = place
        runs = self.runs.setdefault(branch_id, [])
        if runs and runs[-1][0] == version + 1:  # versions are added newest first
            runs[-1] = (version, runs[-1][1])
        elif not any(first <= version <= last for first, last in runs):
            runs.append((version, version))


AT_ONCE = 16
"""Objects for which a remote store is asked at once."""
AHEAD_BYTES = 32 * 1024 * 1024
"""About the most bytes that memory holds of objects that were read ahead."""


class Evidence:
    """The store, and the problems found in it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.problems: list[Problem] = []
        self._ahead: dict[str, bytes | FuseError] = {}
        """The answers for objects that were read ahead, by key; each is used once."""

    def read_ahead(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Ask a remote store at once for objects that `load` is to read next; return those found.

        Of many or large objects only the first ones are read. No other store is asked.
        """
        if not self.store.is_remote:
            return {}
        found: dict[str, bytes] = {}
        held_bytes = 0
        wanted = list(keys)
        answers = each(self._get, wanted, self.store, at_once=AT_ONCE, ahead=1)
        with contextlib.closing(answers):
            for key, answer in zip(wanted, answers, strict=True):
                self._ahead[key] = answer
                if isinstance(answer, bytes):
                    found[key] = answer
                    held_bytes += len(answer)
                if held_bytes > AHEAD_BYTES:
                    break
        return found

    def forget_ahead(self) -> None:
        """Drop what was read ahead and not used."""
        self._ahead.clear()

    def _get(self, key: str) -> bytes | FuseError:
        try:
            return self.store.get(key)
        except FuseError as error:
            return error

    def report(
        self, fault: Fault, key: str, lost: str, *, row_count: int = 0, place: Place | None = None
    ) -> Problem:
        """Record a problem and return it; `place` is a slot that needs the object."""
        problem = Problem(
            kind=fault.kind, key=key, wrong=fault.wrong, lost=lost, row_count=row_count
        )
        if place is not None:
            problem.places.append(versions := Versions())
            versions.add(place)
        self.problems.append(problem)
        return problem

    def note(self, key: str, wrong: str, lost: str) -> None:
        """Record what a user may want to know, though nothing is damaged."""
        self.report(Fault(FindingKind.NOTE, wrong), key, lost)

    def note_foreign(self, key: str) -> None:
        """Note an object among the refs or leases whose key is not that of a valid name."""
        wrong = "no branch, tag, clone or consumer can have such a name"
        self.note(key, wrong, "nothing: every verb ignores it; delete this object")

    def load(self, key: str, read: Callable[[bytes], T], *, size: int | None = None) -> T | Fault:
        """Return the result of `read` for an object's bytes, or the fault that prevents it.

        `size` is that of the object, if it is known; a large one needs it.
        """
        answer = self._ahead.pop(key, None)
        try:
            if isinstance(answer, FuseError):
                raise answer
            if answer is not None:
                data = answer
            else:
                data = self.store.get(key) if size is None else get_large(self.store, key, size)
        except NotFoundError:
            return Fault(FindingKind.MISSING, "it is not there")
        except StorageError as error:
            return Fault(FindingKind.UNREADABLE, error.message)
        except CorruptObjectError as error:  # no file, or one that is too large
            return Fault(FindingKind.DAMAGED, error.message)
        try:
            return read(data)
        except CorruptObjectError as error:
            return Fault(FindingKind.DAMAGED, error.message)
        except FuseError as error:  # a newer release wrote it
            return Fault(FindingKind.UNREADABLE, error.message)

    def has(self, key: str) -> bool:
        """True if a `get` finds the object; a listing may lack it."""
        return find_object(self.store, key) is not None


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
    """The kinds of fault of an object."""

    MISSING = "missing"
    DAMAGED = "damaged"
    """Its bytes are not those that were written."""
    BROKEN = "broken"
    """It can be read, but breaks a rule of the format."""
    UNREADABLE = "unreadable"
    """The store fails on it; its bytes may still be good."""
    NOTE = "note"
    """No damage, but a user may want to know it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRange:
    """Neighbouring versions of a branch, both ends inclusive."""

    branch: str
    """The branch's name; its id if no ref names it."""
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One object with a fault."""

    kind: FindingKind
    key: str
    """The object, relative to the table's folder."""
    wrong: str
    """What is wrong with it."""
    lost: str
    """What a user can no longer read or do."""
    versions: tuple[VersionRange, ...] = ()
    """The versions that cannot be read as a whole because of it."""
    row_count: int = 0
    """Rows that are lost with it."""

    __repr__ = one_line("kind wrong key versions row_count")


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchState:
    """The state of one branch."""

    name: str
    head: int | None
    """The newest version; None if it is not known."""
    floor: int
    """The oldest version that has not expired."""
    last_good: int | None
    """The newest version that can be read as a whole; None if none can."""
    takes_commits: bool
    """True if the branch can be opened and written to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """The number and size of objects that nothing needs; vacuum deletes them."""

    object_count: int = 0
    byte_size: int = 0


def left_over(sizes: Mapping[str, int], named: Iterable[str]) -> Leftovers:
    """Return the listed objects that are not among the named ones; `sizes` is by key."""
    left = sizes.keys() - set(named)
    return Leftovers(object_count=len(left), byte_size=sum(sizes[key] for key in left))


@dataclass(frozen=True, slots=True, kw_only=True)
class FsckReport:
    """The result of a check of a table."""

    path: str
    deep: bool
    """True if every byte of every block was read."""
    branches: tuple[BranchState, ...]
    findings: tuple[Finding, ...]
    """Damage first, then notes."""
    snapshot_count: int
    """How many slots were checked."""
    segment_count: int
    block_count: int
    deletion_file_count: int = 0
    origins: tuple[str, ...] = ()
    """The table ids of the origins that hold blocks, for a clone."""
    unreachable: dict[str, Leftovers] = field(default_factory=dict)
    """By kind, the objects that no retained snapshot names; a commit in flight has such as well."""

    __repr__ = one_line(
        "is_sound findings branches snapshot_count segment_count block_count "
        "deletion_file_count deep"
    )

    @property
    def is_sound(self) -> bool:
        """True if nothing is damaged or missing."""
        return all(finding.kind is FindingKind.NOTE for finding in self.findings)
