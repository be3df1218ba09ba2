"""Which snapshots a graph shows, newest first, loaded one by one as they are reached.

Every snapshot that is shown costs one read, and each that one of those was made from.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

from fuse_stream.cli.graph import Id, Node, Step, lay_out
from fuse_stream.cli.history import row_count_change
from fuse_stream.cli.names import Branch, Names
from fuse_stream.cli.render import LogLine
from fuse_stream.errors import CorruptObjectError, NotFoundError, SnapshotExpiredError
from fuse_stream.format.layout import MAIN
from fuse_stream.format.records import Parent, Snapshot
from fuse_stream.objects.metadata import Metadata
from fuse_stream.reading.history import load_tagged, load_version


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
            stored = load_version(self._metadata, keeper.head, at.version)
        elif self._has_expired(at, by):
            return None
        else:  # of a deleted branch: it stands until somebody tidies up
            try:
                stored = self._metadata.load_snapshot(at.branch_id, at.version)
            except (NotFoundError, SnapshotExpiredError):
                return None
        if stored.sha256 != at.sha256:
            raise CorruptObjectError(
                "a snapshot is not the one that a later snapshot was made from; restore its slot "
                "from a copy",
                version=at.version,
                named_by=by.version,
            )
        return stored.snapshot

    def _has_expired(self, at: Parent, by: Snapshot) -> bool:
        """Whether a snapshot that no branch keeps is below somebody's floor."""
        is_held = any(branch.holds(at.branch_id, at.version) for branch in self.branches)
        return is_held or (at.branch_id == by.branch_id and at.version < by.floor)


def _id(snapshot: Snapshot) -> Id:
    return snapshot.branch_id, snapshot.version
