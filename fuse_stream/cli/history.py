"""What the commands load beyond a call of the table: differences of rows, columns by name.

Which snapshots a graph shows, newest first, loaded one by one as they are reached.

Every snapshot that is shown costs one read, and each that one of those was made from.
"""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Callable
from dataclasses import dataclass

from fuse_stream.cli.graph import (
    Id,
    Node,
    Step,
    lay_out,
)
from fuse_stream.cli.names import Branch, Names
from fuse_stream.cli.render import LogLine
from fuse_stream.errors import (
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
)
from fuse_stream.format.layout import MAIN
from fuse_stream.format.records import Parent, Snapshot
from fuse_stream.format.schema import Leaf, Schema
from fuse_stream.objects.slots import Metadata
from fuse_stream.reading.history import History, check_named, load_tagged
from fuse_stream.table.handle import Table


def log_lines(table: Table, limit: int) -> tuple[list[LogLine], bool]:
    """Return the newest snapshots with their differences, and whether there are older ones."""
    snapshots = list(table.log(limit + 1))  # one more: it tells what the last one changed
    lines: list[LogLine] = []
    for at, snapshot in enumerate(snapshots[:limit]):
        before = snapshots[at + 1] if at + 1 < len(snapshots) else None
        lines.append((snapshot, row_count_change(before, snapshot)))
    return lines, len(snapshots) > limit


def with_change(table: Table, snapshot: Snapshot) -> LogLine:
    """Return a snapshot with its difference from the one before."""
    before, parent = None, snapshot.parent
    if parent and snapshot.version > snapshot.floor:
        try:
            # Not by its number: the snapshot may be of another branch than the table's handle.
            before = table.metadata.load_snapshot(parent.branch_id, parent.version).snapshot
        except (NotFoundError, SnapshotExpiredError):
            before = None  # expired meanwhile: the difference is not known
    return snapshot, row_count_change(before, snapshot)


def row_count_change(before: Snapshot | None, snapshot: Snapshot) -> int | None:
    """Return by how many rows a snapshot differs from the one before; None if that has expired."""
    if before is None:
        return 0 if snapshot.version == 0 else None
    return snapshot.summary.row_count - before.summary.row_count


def find_leaf(schema: Schema, name: str) -> Leaf:
    """Return the column of a dotted name.

    Raises:
        InvalidInputError: there is none with statistics; names the nearest.
    """
    leaves = {".".join(leaf.path): leaf for leaf in schema.leaves() if not leaf.repeated}
    if name in leaves:
        return leaves[name]
    near = difflib.get_close_matches(name, leaves, n=1)
    raise InvalidInputError(
        "no column of this name has statistics; those inside lists and maps have none",
        column=name,
        nearest=near[0] if near else None,
        columns=list(leaves),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A part of a table's history, newest first."""

    lines: tuple[LogLine, ...]
    nodes: tuple[Node, ...]
    """One a line."""
    steps: tuple[Step, ...]
    """One a line."""
    more: bool
    """Whether there are snapshots below."""


def load_graph(
    metadata: Metadata,
    names: Names,
    *,
    limit: int,
    only: Branch | None = None,
    reach: Callable[[int], None] = lambda _: None,
) -> Graph:
    """Return the newest snapshots of all branches and tags, or of one branch, with their lanes.

    Snapshots of deleted branches are shown as far as a tag or a publish leads to them and they
    stand. What all branches that hold it let expire is not shown unless a tag keeps it.

    Args:
        metadata: of the table.
        names: its branches and tags.
        limit: the most snapshots.
        only: show the line of this branch alone.
        reach: told how many are loaded.
    """
    walk = _Walk(metadata, names.branches if only is None else (only,))
    for branch in walk.branches:
        walk.push(branch.head.snapshot)
    if only is None:
        for tag in names.tags:
            # What a branch keeps is met on the way, so its tags cost nothing.
            if not walk.is_kept(tag.target):
                walk.push(load_tagged(metadata, tag).snapshot)
    lines: list[LogLine] = []
    nodes: list[Node] = []
    while walk.waiting and len(lines) < limit:
        snapshot = walk.pop()
        parent = walk.reach(snapshot.parent, snapshot)
        published = names.published_from(snapshot) if only is None else None
        second = walk.reach(published, snapshot)
        nodes.append(
            Node(
                id=_id(snapshot),
                line=snapshot.branch_id if only is None else only.ref.branch_id,
                parent=_id(parent) if parent else None,
                second_parent=_id(second) if second else None,
                parent_expired=parent is None and snapshot.parent is not None,
            )
        )
        lines.append((snapshot, row_count_change(parent, snapshot)))
        reach(len(lines))
    trunk = MAIN if only is None else only.ref.branch_id
    return Graph(
        lines=tuple(lines),
        nodes=tuple(nodes),
        steps=tuple(lay_out(nodes, trunk=trunk)),
        more=bool(walk.waiting),
    )


class _Walk:
    """Snapshots that are reached and not yet shown, the newest first."""

    def __init__(self, metadata: Metadata, branches: tuple[Branch, ...]) -> None:
        self.branches = branches
        self.waiting: list[tuple[int, int, str]] = []
        self._metadata = metadata
        self._snapshots: dict[Id, Snapshot] = {}

    def push(self, snapshot: Snapshot) -> None:
        if _id(snapshot) not in self._snapshots:
            self._snapshots[_id(snapshot)] = snapshot
            order = (-snapshot.timestamp_us, -snapshot.version, snapshot.branch_id)
            heapq.heappush(self.waiting, order)

    def pop(self) -> Snapshot:
        _, version, branch_id = heapq.heappop(self.waiting)
        return self._snapshots[branch_id, -version]

    def is_kept(self, at: Parent) -> bool:
        """Whether a branch holds that snapshot and has not let it expire."""
        return any(branch.keeps(at.branch_id, at.version) for branch in self.branches)

    def reach(self, at: Parent | None, by: Snapshot) -> Snapshot | None:
        """Return the snapshot that another one names, to be shown too; None if it has expired.

        Raises:
            CorruptObjectError: it is missing, or another one stands in its place.
        """
        if at is None:
            return None
        known = self._snapshots.get((at.branch_id, at.version))
        if known is None:
            known = self._load(at, by)
            if known is not None:
                self.push(known)
        return known

    def _load(self, at: Parent, by: Snapshot) -> Snapshot | None:
        keeper = next((one for one in self.branches if one.keeps(at.branch_id, at.version)), None)
        if keeper is not None:
            stored = History(self._metadata, keeper.head).load(at.version)
        elif self._has_expired(at, by):
            return None
        else:  # of a deleted branch: it stands until somebody tidies up
            try:
                stored = self._metadata.load_snapshot(at.branch_id, at.version)
            except (NotFoundError, SnapshotExpiredError):
                return None
        check_named(stored, at, by=by)
        return stored.snapshot

    def _has_expired(self, at: Parent, by: Snapshot) -> bool:
        """Whether a snapshot that no branch keeps is below somebody's floor."""
        is_held = any(branch.holds(at.branch_id, at.version) for branch in self.branches)
        return is_held or (at.branch_id == by.branch_id and at.version < by.floor)


def _id(snapshot: Snapshot) -> Id:
    return snapshot.branch_id, snapshot.version
