"""What a check of a whole table found, in words that a user of the table needs. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


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
