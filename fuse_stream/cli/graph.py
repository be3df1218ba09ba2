"""The graph of a history: its snapshots, the lane of each, and the lanes as characters.

Rules:
- Each snapshot that is shown costs one read, and so does the parent of each.
- The snapshots of one branch are in one lane; a branch that forks off is drawn to the right.
- A lane leads from a snapshot down to its parent. Two share a lane only where the next snapshot
  below is the same for both.
- A lane ends at a snapshot, or it is cut: the parent is past the limit, or has expired.
- A lane is two columns wide. Lanes that end in a snapshot join above it, the lane to its second
  parent starts below it, as in Git's own graph.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from fuse_stream.cli.history import Branch, LogLine, Names, row_count_change
from fuse_stream.errors import NotFoundError, SnapshotExpiredError
from fuse_stream.format.layout import MAIN
from fuse_stream.format.records import Parent, Snapshot
from fuse_stream.objects.slots import Metadata
from fuse_stream.reading.history import History, check_named, load_tagged

Id = tuple[str, int]
"""The branch that has the snapshot in a slot, and its version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A snapshot of the graph, without its content."""

    id: Id
    line: str
    """The branch id; consecutive snapshots of one branch are drawn in one lane."""
    parent: Id | None = None
    second_parent: Id | None = None
    """Of a publish: the snapshot of another branch that it took."""
    parent_expired: bool = False
    """True if the parent has expired; `parent` is None then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The lanes around one snapshot, from above it to below it."""

    lane: int
    above: frozenset[int]
    """Lanes that come from above."""
    joins: tuple[int, ...]
    """Lanes from above that end in this snapshot, without its own lane."""
    merge: int | None
    """The lane that leads to its second parent, and starts or continues here."""
    is_cut: bool
    """True if its own lane ends below it, because the parent has expired."""
    below: frozenset[int]
    """Lanes that continue below."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Track:
    """A part of one lane, from the row where it starts to the row where it ends."""

    line: str
    top: int
    bottom: int
    nodes: list[int] = field(default_factory=list)
    joined: int | None = None
    """The row of the snapshot of another lane in which it ends."""
    lane: int = -1


def lay_out(nodes: Sequence[Node], *, trunk: str) -> list[Step]:
    """Return a step for each snapshot of a history, newest first; a parent is after its children.

    `trunk` is the id of the branch that is drawn on the left.
    """
    row_of = {node.id: row for row, node in enumerate(nodes)}
    tracks = _line_tracks(nodes, row_of)
    own = {row: track for track in tracks for row in track.nodes}
    merges = _merge_tracks(nodes, row_of, own)
    everything = list(dict.fromkeys([*tracks, *merges.values()]))
    _choose_lanes(everything, own, trunk)
    return _steps(nodes, everything, own, merges)


def _line_tracks(nodes: Sequence[Node], row_of: dict[Id, int]) -> list[_Track]:
    tracks: list[_Track] = []
    waiting: dict[Id, _Track] = {}
    for row, node in enumerate(nodes):
        track = waiting.pop(node.id, None)
        if track is None:
            track = _Track(line=node.line, top=row, bottom=row)
            tracks.append(track)
        track.nodes.append(row)
        track.bottom = row
        if node.parent is None:
            continue
        parent_row = row_of.get(node.parent, -1)
        if parent_row <= row:
            track.bottom = len(nodes)  # past the end of the list
        elif nodes[parent_row].line == node.line and node.parent not in waiting:
            waiting[node.parent] = track
        else:
            track.bottom = track.joined = parent_row
    return tracks


def _merge_tracks(
    nodes: Sequence[Node], row_of: dict[Id, int], own: dict[int, _Track]
) -> dict[int, _Track]:
    """Return the tracks that lead to a second parent, by row; make existing ones longer."""
    found: dict[int, _Track] = {}
    extra: dict[Id, _Track] = {}
    for row, node in enumerate(nodes):
        if node.second_parent is None:
            continue
        target = row_of.get(node.second_parent, len(nodes))
        of_target = own.get(target)
        if target < row or of_target is own[row]:
            continue
        if of_target and not any(row < other < target for other in of_target.nodes):
            of_target.top = min(of_target.top, row)
            found[row] = of_target
            continue
        if node.second_parent not in extra:
            extra[node.second_parent] = _Track(
                line=node.second_parent[0],
                top=row,
                bottom=target,
                joined=target if of_target else None,
            )
        found[row] = extra[node.second_parent]
    return found


def _choose_lanes(tracks: Iterable[_Track], own: dict[int, _Track], trunk: str) -> None:
    """Give each track the first free lane to the right of the lane in which it ends.

    Of several that end in one lane, the first to end gets the lane next to it, so none cross.
    """
    taken: dict[int, list[_Track]] = defaultdict(list)
    children: dict[_Track, list[_Track]] = defaultdict(list)
    roots = []
    for track in tracks:
        if track.joined is None:
            roots.append(track)
        else:
            children[own[track.joined]].append(track)
    waiting = sorted(roots, key=lambda track: (track.line == trunk, -track.top))
    while waiting:
        track = waiting.pop()
        lane = 0 if track.joined is None else own[track.joined].lane + 1
        while any(track.top <= other.bottom and other.top <= track.bottom for other in taken[lane]):
            lane += 1
        track.lane = lane
        taken[lane].append(track)
        waiting += sorted(children[track], key=lambda child: (-child.bottom, child.top))


def _steps(
    nodes: Sequence[Node],
    tracks: Iterable[_Track],
    own: dict[int, _Track],
    merges: dict[int, _Track],
) -> list[Step]:
    starting: dict[int, list[int]] = defaultdict(list)
    ending: dict[int, list[int]] = defaultdict(list)
    joining: dict[int, list[int]] = defaultdict(list)
    for track in tracks:
        starting[track.top].append(track.lane)
        ending[track.bottom].append(track.lane)
        if track.joined is not None:
            joining[track.joined].append(track.lane)
    steps = []
    above: frozenset[int] = frozenset()
    for row, node in enumerate(nodes):
        below = (above | set(starting[row])) - set(ending[row])
        merge = merges.get(row)
        steps.append(
            Step(
                lane=own[row].lane,
                above=above,
                joins=tuple(sorted(joining[row])),
                merge=merge.lane if merge else None,
                is_cut=node.parent_expired,
                below=below,
            )
        )
        above = below
    return steps


UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8

_UNICODE = {
    0: " ",
    UP | DOWN: "│",
    LEFT | RIGHT: "─",
    DOWN | RIGHT: "╭",
    DOWN | LEFT: "╮",
    UP | RIGHT: "╰",
    UP | LEFT: "╯",
    UP | DOWN | RIGHT: "├",
    UP | DOWN | LEFT: "┤",
    LEFT | RIGHT | DOWN: "┬",
    LEFT | RIGHT | UP: "┴",
    UP | DOWN | LEFT | RIGHT: "┼",
}
NODE, CUT = "●", "┊"
ASCII_NODE, ASCII_CUT = "*", ":"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the picture."""

    lanes: str
    step: int | None = None
    """The number of the snapshot on it."""
    has_expired: bool = False
    """True if it shows that the history below has expired."""


def draw(steps: Sequence[Step], *, ascii_only: bool) -> list[Line]:
    """Return the lines of the drawing of a history."""
    node, cut, bar = (ASCII_NODE, ASCII_CUT, "|") if ascii_only else (NODE, CUT, "│")
    joins, merge = (_ascii_joins, _ascii_merge) if ascii_only else (_joins, _merge)
    lines: list[Line] = []
    for number, step in enumerate(steps):
        lines += [Line(lanes=text) for text in joins(step)]
        passing = step.above - set(step.joins)
        lines.append(Line(lanes=_row(passing, {2 * step.lane: node}, bar), step=number))
        lines += [Line(lanes=text) for text in merge(step)]
        if step.is_cut:
            text = _row(step.below, {2 * step.lane: cut}, bar)
            lines.append(Line(lanes=text, has_expired=True))
    if steps and steps[-1].below:
        lines.append(Line(lanes=_row(steps[-1].below, {}, cut)))
    return lines


def _joins(step: Step) -> Iterator[str]:
    if not step.joins:
        return
    cells = dict.fromkeys(step.above - set(step.joins), UP | DOWN)
    cells[step.lane] = cells.get(step.lane, 0) | DOWN
    for lane in step.joins:
        cells[lane] = cells.get(lane, 0) | UP
        _connect(cells, step.lane, lane)
    yield _boxes(cells)


def _merge(step: Step) -> Iterator[str]:
    if step.merge is None:
        return
    cells = dict.fromkeys(step.below, DOWN)
    if step.is_cut:
        cells[step.lane] = DOWN
    for lane in {*(step.above - set(step.joins)), step.lane}:
        cells[lane] = cells.get(lane, 0) | UP
    _connect(cells, step.lane, step.merge)
    yield _boxes(cells)


def _connect(cells: dict[int, int], one: int, other: int) -> None:
    """Draw a horizontal line between two lanes, across those between them."""
    left, right = min(one, other), max(one, other)
    for lane in range(left, right + 1):
        side = (LEFT if lane > left else 0) | (RIGHT if lane < right else 0)
        cells[lane] = cells.get(lane, 0) | side


def _boxes(cells: dict[int, int]) -> str:
    text = ""
    for lane in range(max(cells) + 1):
        cell = cells.get(lane, 0)
        text += _UNICODE[cell] + ("─" if cell & RIGHT else " ")
    return text.rstrip()


def _ascii_joins(step: Step) -> Iterator[str]:
    standing = set(step.above)
    for lane in step.joins:  # the nearest first: the next one finds it free
        standing.discard(lane)
        for at in range(lane, step.lane, -1):
            yield _row(standing, {2 * at - 1: "/"}, "|")
        standing.add(step.lane)


def _ascii_merge(step: Step) -> Iterator[str]:
    if step.merge is None:
        return
    standing = step.above - set(step.joins) - {step.lane}
    if step.is_cut or step.lane in step.below:
        standing |= {step.lane}
    if step.merge > step.lane:
        slashes: Iterable[tuple[int, str]] = (
            (2 * at + 1, "\\") for at in range(step.lane, step.merge)
        )
    else:
        slashes = ((2 * at - 1, "/") for at in range(step.lane, step.merge, -1))
    for column, slash in slashes:
        yield _row(standing, {column: slash}, "|")


def _row(lanes: Collection[int], signs: dict[int, str], bar: str) -> str:
    """Return a line with a bar in each of `lanes`, and with `signs` by column."""
    cells = {**{2 * lane: bar for lane in lanes}, **signs}
    return "".join(cells.get(column, " ") for column in range(max(cells) + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A part of a table's history, newest first."""

    lines: tuple[LogLine, ...]
    nodes: tuple[Node, ...]
    """One for each of `lines`."""
    steps: tuple[Step, ...]
    """One for each of `lines`."""
    more: bool
    """True if there are older snapshots."""


def load_graph(
    metadata: Metadata,
    names: Names,
    *,
    limit: int,
    only: Branch | None = None,
    reach: Callable[[int], None] = lambda _: None,
) -> Graph:
    """Return the newest snapshots of all branches and tags, or of one branch, with their lanes.

    A snapshot of a deleted branch is shown if it exists and a tag or a publish leads to it. A
    snapshot that has expired on all branches is shown only if a tag keeps it. `reach` is called
    with the number of snapshots loaded so far, of which there are at most `limit`.
    """
    walk = _Walk(metadata, names.branches if only is None else (only,))
    for branch in walk.branches:
        walk.push(branch.head.snapshot)
    if only is None:
        for tag in names.tags:
            # A snapshot that a branch keeps is found from its head: its tags cost no read.
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
    """The snapshots that were found and are not shown yet, the newest first."""

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
        return any(branch.keeps(at.branch_id, at.version) for branch in self.branches)

    def reach(self, at: Parent | None, by: Snapshot) -> Snapshot | None:
        """Return the snapshot `at`, named by the snapshot `by`, and add it; None if it has expired.

        Raises:
            CorruptObjectError: it is missing, or its slot has another snapshot.
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
        else:  # of a deleted branch: it exists until a vacuum
            try:
                stored = self._metadata.load_snapshot(at.branch_id, at.version)
            except (NotFoundError, SnapshotExpiredError):
                return None
        check_named(stored, at, by=by)
        return stored.snapshot

    def _has_expired(self, at: Parent, by: Snapshot) -> bool:
        """True if a snapshot that no branch keeps is below the floor of a branch that had it."""
        is_held = any(branch.holds(at.branch_id, at.version) for branch in self.branches)
        return is_held or (at.branch_id == by.branch_id and at.version < by.floor)


def _id(snapshot: Snapshot) -> Id:
    return snapshot.branch_id, snapshot.version
