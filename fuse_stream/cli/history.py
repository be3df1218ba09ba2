"""The snapshots of a branch as commands show them: row changes, branch and tag names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fuse_stream.cli.output import Output
from fuse_stream.cli.text import short_id
from fuse_stream.errors import FuseError, NotFoundError, SnapshotExpiredError
from fuse_stream.format.records import Operation, Parent, Snapshot
from fuse_stream.format.refs import BranchRef, Forks, TagRef, owner_of
from fuse_stream.objects.refs import iter_branch_heads
from fuse_stream.objects.slots import UNREADABLE, Metadata, Stored
from fuse_stream.reading.history import History
from fuse_stream.reading.line import find_publish
from fuse_stream.table.handle import Table

LogLine = tuple[Snapshot, int | None]
"""A snapshot, and its number of rows minus that of the one before; None if that has expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A branch and its head."""

    ref: BranchRef
    head: Stored

    @property
    def commit_count(self) -> int:
        """The number of versions committed to the branch itself, with expired ones."""
        before = self.ref.forks[-1].version if self.ref.forks else -1
        return self.head.snapshot.version - before

    def holds(self, branch_id: str, version: int) -> bool:
        """True if the version in a slot of `branch_id` is on this branch, expired or not."""
        return (
            version <= self.head.snapshot.version
            and owner_of(self.ref.forks, self.ref.branch_id, version) == branch_id
        )

    def keeps(self, branch_id: str, version: int) -> bool:
        """True if the version in a slot of `branch_id` is on this branch, unexpired."""
        return version >= self.head.snapshot.floor and self.holds(branch_id, version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The branches and tags of a table, at one moment."""

    branches: tuple[Branch, ...] = ()
    tags: tuple[TagRef, ...] = ()
    forks: Mapping[str, Forks] = field(default_factory=dict)
    """The fork points of each branch by branch id, also of deleted branches."""

    def branches_at(self, snapshot: Snapshot) -> list[str]:
        """Return the names of the branches whose head is this snapshot."""
        found = (branch for branch in self.branches if _is_at(branch.head.snapshot, snapshot))
        return [branch.ref.name for branch in found]

    def tags_at(self, snapshot: Snapshot) -> list[TagRef]:
        """Return the tags that name this snapshot."""
        return [tag for tag in self.tags if _is_at(tag.target, snapshot)]

    def find_name(self, branch_id: str) -> str | None:
        """Return the name of a branch; None if it was deleted."""
        named = (branch.ref for branch in self.branches if branch.ref.branch_id == branch_id)
        return next((ref.name for ref in named), None)

    def shown_name(self, branch_id: str) -> str:
        """Return the name of a branch; the start of its id if it was deleted."""
        return self.find_name(branch_id) or short_id(branch_id)

    def is_on_branch(self, at: Parent | Snapshot, branch_id: str) -> bool:
        """True if the version number of `at` means this snapshot on the branch with the id."""
        return owner_of(self.forks.get(branch_id, ()), branch_id, at.version) == at.branch_id

    def published_from(self, snapshot: Snapshot) -> Parent | None:
        """Return the snapshot that a publish took from another branch; None for other commits."""
        if snapshot.operation is not Operation.PUBLISH or snapshot.target is None:
            return None
        is_own = self.is_on_branch(snapshot.target, snapshot.branch_id)
        return None if is_own else snapshot.target

    def spell(self, at: Parent | Snapshot, *, seen_from: str) -> str:
        """Return a version as text: "12" on the branch with the id, "fix@12" on another."""
        if self.is_on_branch(at, seen_from):
            return str(at.version)
        return self.place(at)

    def place(self, at: Parent | Snapshot) -> str:
        """Return a version with the name of its branch, such as "fix@12"."""
        return f"{self.shown_name(at.branch_id)}@{at.version}"


def load_names(table: Table) -> Names:
    """Return the branches and tags of a table; a few reads for each branch, one for each tag."""
    branches = tuple(Branch(ref=ref, head=head) for ref, head in iter_branch_heads(table.metadata))
    tags = table.tags()
    return Names(branches=branches, tags=tags, forks=dict(_forks(branches, tags)))


def find_names(table: Table, output: Output) -> Names:
    """Return the branches and tags of a table; none, with a note, if they cannot be read.

    The log itself needs no listing, which the rights to a store may not allow.
    """
    try:
        return load_names(table)
    except FuseError as error:
        output.note(f"names of branches and tags are not shown: {error.message}")
        return Names()


def lost_versions(names: Names, branch: Branch) -> list[int]:
    """Return the versions that no branch and no tag has once `branch` is deleted.

    A tag keeps only the snapshot that it names.
    """
    others = [other for other in names.branches if other is not branch]
    tagged = {(tag.target.branch_id, tag.target.version) for tag in names.tags}
    ref, head = branch.ref, branch.head.snapshot
    # Not only its own: it may be the last one with versions of a branch that was deleted before.
    held = (
        (owner_of(ref.forks, ref.branch_id, version), version)
        for version in range(head.floor, head.version + 1)
    )
    return [
        at[1] for at in held if at not in tagged and not any(other.keeps(*at) for other in others)
    ]


def find_published(metadata: Metadata, names: Names, branch: Branch) -> str | None:
    """Return the version of another branch that has published a branch's head, such as "main@6".

    Returns None if there is none, or if snapshots that would show it cannot be read.
    """
    for other in names.branches:
        if other is not branch:
            try:
                version = find_publish(
                    History(metadata, other.head), other.head, branch.head.snapshot
                )
            except UNREADABLE:
                continue
            if version is not None:
                return f"{other.ref.name}@{version}"
    return None


def log_lines(table: Table, limit: int) -> tuple[list[LogLine], bool]:
    """Return the newest snapshots with their row changes, and whether there are older ones."""
    snapshots = list(table.log(limit + 1))  # one more, to compare the last one with
    lines: list[LogLine] = []
    for at, snapshot in enumerate(snapshots[:limit]):
        before = snapshots[at + 1] if at + 1 < len(snapshots) else None
        lines.append((snapshot, row_count_change(before, snapshot)))
    return lines, len(snapshots) > limit


def with_change(table: Table, snapshot: Snapshot) -> LogLine:
    """Return a snapshot with its row change."""
    before, parent = None, snapshot.parent
    if parent and snapshot.version > snapshot.floor:
        try:
            # Not by its number: the snapshot may be of another branch than the table's handle.
            before = table.metadata.load_snapshot(parent.branch_id, parent.version).snapshot
        except (NotFoundError, SnapshotExpiredError):
            before = None  # expired meanwhile: the difference is not known
    return snapshot, row_count_change(before, snapshot)


def row_count_change(before: Snapshot | None, snapshot: Snapshot) -> int | None:
    """Return the row count minus that of the snapshot before; None if that has expired."""
    if before is None:
        return 0 if snapshot.version == 0 else None
    return snapshot.summary.row_count - before.summary.row_count


def _is_at(one: Parent | Snapshot, other: Snapshot) -> bool:
    return (one.branch_id, one.version) == (other.branch_id, other.version)


def _forks(branches: tuple[Branch, ...], tags: tuple[TagRef, ...]) -> Iterator[tuple[str, Forks]]:
    for forks in (*(branch.ref.forks for branch in branches), *(tag.forks for tag in tags)):
        yield from ((fork.branch_id, forks[:count]) for count, fork in enumerate(forks))
    yield from ((branch.ref.branch_id, branch.ref.forks) for branch in branches)
