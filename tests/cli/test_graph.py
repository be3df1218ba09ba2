"""Lanes of the graph: which snapshots they connect, as properties, and how they are drawn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.cli.graph import (
    ASCII_NODE,
    CUT,
    DOWN,
    LEFT,
    NODE,
    RIGHT,
    UP,
    Id,
    Line,
    Node,
    draw,
    lay_out,
)

TRUNK = "m"
CELLS = {
    " ": 0,
    "│": UP | DOWN,
    "─": LEFT | RIGHT,
    "╭": DOWN | RIGHT,
    "╮": DOWN | LEFT,
    "╰": UP | RIGHT,
    "╯": UP | LEFT,
    "├": UP | DOWN | RIGHT,
    "┤": UP | DOWN | LEFT,
    "┬": LEFT | RIGHT | DOWN,
    "┴": LEFT | RIGHT | UP,
    "┼": UP | DOWN | LEFT | RIGHT,
}

Edge = tuple[Id, Id]


def history(text: str) -> list[Node]:
    """Return nodes from "m3<m2 f3<m2"; `+f3` is a second parent, `<!` a parent that expired."""
    return [_node(word) for word in text.split()]


def _node(word: str) -> Node:
    own, _, rest = word.partition("<")
    parent, _, second = rest.partition("+")
    return Node(
        id=_id(own),
        line=own[0],
        parent=_id(parent) if parent not in {"", "!"} else None,
        second_parent=_id(second) if second else None,
        parent_expired=parent == "!",
    )


def _id(word: str) -> Id:
    return word[0], int(word[1:])


def picture(text: str, *, ascii_only: bool = False) -> str:
    nodes = history(text)
    lines = draw(lay_out(nodes, trunk=TRUNK), ascii_only=ascii_only)
    words = text.split()
    names = ["" if line.step is None else words[line.step].partition("<")[0] for line in lines]
    return "\n".join(f"{line.lanes:8}{name}".rstrip() for line, name in zip(lines, names))  # noqa: B905


def drawn(text: str) -> str:
    """Return a picture in the notation of the tests, without the margin."""
    return "\n".join(line[4:] for line in text.strip("\n").splitlines()).rstrip()


# ---- how it looks


@pytest.mark.parametrize(
    ("text", "unicode", "ascii_only"),
    [
        pytest.param(
            "m2<m1 m1<m0 m0",
            """
    ●       m2
    ●       m1
    ●       m0
            """,
            """
    *       m2
    *       m1
    *       m0
            """,
            id="linear",
        ),
        pytest.param(
            "f3<f2 m2<m1 f2<m1 m1<m0 m0",
            """
      ●     f3
    ● │     m2
    │ ●     f2
    ├─╯
    ●       m1
    ●       m0
            """,
            """
      *     f3
    * |     m2
    | *     f2
    |/
    *       m1
    *       m0
            """,
            id="a branch, newer than main",
        ),
        pytest.param(
            "g3<f2 m3<m2 f3<f2 m2<m1 f2<m1 m1",
            """
        ●   g3
    ●   │   m3
    │ ● │   f3
    ● │ │   m2
    │ ├─╯
    │ ●     f2
    ├─╯
    ●       m1
            """,
            """
        *   g3
    *   |   m3
    | * |   f3
    * | |   m2
    | |/
    | *     f2
    |/
    *       m1
            """,
            id="a branch of a branch",
        ),
        pytest.param(
            "m5<m4+f3 m4<m3 f3<f2 m3<m2 f2<m1 m2<m1 m1",
            """
    ●       m5
    ├─╮
    ● │     m4
    │ ●     f3
    ● │     m3
    │ ●     f2
    ● │     m2
    ├─╯
    ●       m1
            """,
            """
    *       m5
    |\\
    * |     m4
    | *     f3
    * |     m3
    | *     f2
    * |     m2
    |/
    *       m1
            """,
            id="a publish of a head",
        ),
        pytest.param(
            "m4<m3+f2 f3<f2 m3<m2 f2<m1 m2<m1 m1",
            """
    ●       m4
    ├───╮
    │ ● │   f3
    ● │ │   m3
    │ ├─╯
    │ ●     f2
    ● │     m2
    ├─╯
    ●       m1
            """,
            """
    *       m4
    |\\
    |  \\
    | * |   f3
    * | |   m3
    | |/
    | *     f2
    * |     m2
    |/
    *       m1
            """,
            id="a publish of a version that is not the head any more",
        ),
        pytest.param(
            "f4<f3 m4<m3+f3 f3<m2 m3<m2 m2",
            """
      ●     f4
    ● │     m4
    ├─┤
    │ ●     f3
    ● │     m3
    ├─╯
    ●       m2
            """,
            """
      *     f4
    * |     m4
    |\\|
    | *     f3
    * |     m3
    |/
    *       m2
            """,
            id="a publish into an existing lane",
        ),
        pytest.param(
            "f4<f3+m4 m4<m3 f3<m2 m3<m2 m2",
            """
      ●     f4
    ╭─┤
    ● │     m4
    │ ●     f3
    ● │     m3
    ├─╯
    ●       m2
            """,
            """
      *     f4
     /|
    * |     m4
    | *     f3
    * |     m3
    |/
    *       m2
            """,
            id="a publish of main",
        ),
        pytest.param(
            "f3<m2 g3<m2 m2<m1 m1",
            """
        ●   f3
      ● │   g3
    ╭─┴─╯
    ●       m2
    ●       m1
            """,
            """
        *   f3
      * |   g3
     /  |
    |  /
    |/
    *       m2
    *       m1
            """,
            id="two branches off a head",
        ),
        pytest.param(
            "f4<m3 g4<m1 m3<m2 m2<m1 m1",
            """
      ●     f4
      │ ●   g4
    ╭─╯ │
    ●   │   m3
    ●   │   m2
    ├───╯
    ●       m1
            """,
            """
      *     f4
      | *   g4
     /  |
    *   |   m3
    *   |   m2
    |  /
    |/
    *       m1
            """,
            id="the branch that ends first is next to main",
        ),
        pytest.param(
            "m4<m3 f3<m1 m3<m2",
            """
    ●       m4
    │ ●     f3
    ● │     m3
    ┊ ┊
            """,
            """
    *       m4
    | *     f3
    * |     m3
    : :
            """,
            id="cut by a limit",
        ),
        pytest.param(
            "f5<m1 m4<m3 m3<! m1<m0 m0",
            """
      ●     f5
    ● │     m4
    ● │     m3
    ┊ │
    ╭─╯
    ●       m1
    ●       m0
            """,
            """
      *     f5
    * |     m4
    * |     m3
    : |
     /
    *       m1
    *       m0
            """,
            id="expired, except for versions that a branch keeps",
        ),
    ],
)
def test_a_history_is_drawn_as_git_does(text: str, unicode: str, ascii_only: str) -> None:
    assert picture(text) == drawn(unicode)
    assert picture(text, ascii_only=True) == drawn(ascii_only)


# ---- properties


@st.composite
def histories(draw_: st.DrawFn) -> list[Node]:
    """Branches of branches that commit in turns, publish each other, expire, and have a limit."""
    nodes = [Node(id=(TRUNK, 0), line=TRUNK)]
    heads = {TRUNK: nodes[0].id}
    for number in range(1, draw_(st.integers(1, 14))):
        if draw_(st.integers(0, 3)) == 0:
            line, parent = f"b{number}", draw_(st.sampled_from(nodes)).id
        else:
            line = draw_(st.sampled_from(sorted(heads)))
            parent = heads[line]
        others = [node.id for node in nodes if node.id != parent]
        is_publish = bool(others) and draw_(st.integers(0, 3)) == 0
        has_expired = draw_(st.integers(0, 9)) == 0
        node = Node(
            id=(line, number),
            line=line,
            parent=None if has_expired else parent,
            second_parent=draw_(st.sampled_from(others)) if is_publish else None,
            parent_expired=has_expired,
        )
        nodes.append(node)
        heads[line] = node.id
    newest_first = nodes[::-1]
    return newest_first[: draw_(st.integers(1, len(nodes)))]


@given(histories())
def test_every_lane_connects_a_snapshot_with_its_sources(nodes: list[Node]) -> None:
    steps = lay_out(nodes, trunk=TRUNK)
    shown = {node.id for node in nodes}
    lane_of_line = _lanes_of_lines(nodes)

    edges, cut, expired = trace(nodes, draw(steps, ascii_only=False))

    wanted = [(node.id, node.parent) for node in nodes if node.parent]
    merges = [
        (node.id, node.second_parent)
        for node in nodes
        if node.second_parent
        # On one lane the path down is drawn exactly.
        and lane_of_line[node.id] != lane_of_line.get(node.second_parent)
    ]
    assert edges == {edge for edge in [*wanted, *merges] if edge[1] in shown}
    assert cut == {edge[0] for edge in [*wanted, *merges] if edge[1] not in shown}
    assert expired == {node.id for node in nodes if node.parent_expired}


@given(histories())
def test_no_two_lanes_use_the_same_cell(nodes: list[Node]) -> None:
    for step in lay_out(nodes, trunk=TRUNK):
        assert step.lane not in step.joins
        assert set(step.joins) <= step.above
        assert not set(step.joins) & step.below
        assert step.merge is None or step.merge in step.below


@given(histories())
def test_a_branch_is_drawn_to_the_right_of_its_parent(nodes: list[Node]) -> None:
    for step in lay_out(nodes, trunk=TRUNK):
        assert all(lane > step.lane for lane in step.joins)


@given(histories())
def test_the_ascii_graph_has_the_same_lanes(nodes: list[Node]) -> None:
    steps = lay_out(nodes, trunk=TRUNK)
    pictures = [draw(steps, ascii_only=ascii_only) for ascii_only in (False, True)]

    unicode, plain = ([line.lanes for line in lines if line.step is not None] for lines in pictures)
    assert [text.translate({ord(NODE): ASCII_NODE, ord("│"): "|"}) for text in unicode] == plain
    assert all(line.lanes.isascii() for line in pictures[1])


def _lanes_of_lines(nodes: list[Node]) -> dict[Id, int]:
    """Return the unbroken lane of each snapshot."""
    found: dict[Id, int] = {}
    waiting: dict[Id, int] = {}
    for number, node in enumerate(nodes):
        found[node.id] = waiting.pop(node.id, number)
        if node.parent and node.parent[0] == node.line:
            waiting[node.parent] = found[node.id]
    return found


def trace(nodes: list[Node], lines: list[Line]) -> tuple[set[Edge], set[Id], set[Id]]:
    """Follow the lanes of a picture down: the connections, what is cut, what has expired."""
    edges: set[Edge] = set()
    cut: set[Id] = set()
    expired: set[Id] = set()
    coming: dict[int, set[Id]] = {}
    last: Node | None = None
    for line in lines:
        cells = line.lanes[::2]
        if line.step is not None:
            last = nodes[line.step]
            lane = cells.index(NODE)
            edges |= {(child, last.id) for child in coming.pop(lane, set())}
            passing = {at for at, cell in enumerate(cells) if cell == "│"}
            assert passing == set(coming)
            if last.parent or last.parent_expired:
                coming[lane] = {last.id}
        elif line.has_expired:
            lane = cells.index(CUT)
            assert last
            assert coming.pop(lane) == {last.id}
            expired.add(last.id)
        elif CUT in cells:
            assert line is lines[-1]
            assert {at for at, cell in enumerate(cells) if cell == CUT} == set(coming)
            cut = set().union(*coming.values())
            coming.clear()
        else:
            assert last
            _follow(line.lanes, coming, last)
    assert not coming
    return edges, cut, expired


def _follow(text: str, coming: dict[int, set[Id]], last: Node) -> None:
    cells = [CELLS[char] for char in text[::2]]
    for lane, cell in enumerate(cells):
        assert bool(cell & UP) == (lane in coming)
        if cell & RIGHT:
            assert cells[lane + 1] & LEFT
            assert text[2 * lane + 1] == "─"
    for left, right in _runs(cells):
        ends = {left, right}
        if all(cells[end] & DOWN for end in ends):  # a second parent
            (source,) = [end for end in ends if coming.get(end) == {last.id}]
            (target,) = ends - {source}
            coming[target] = coming.get(target, set()) | {last.id}
        else:
            for lane in range(left + 1, right + 1):
                if cells[lane] & UP and not cells[lane] & DOWN:
                    coming[left] = coming.get(left, set()) | coming.pop(lane)


def _runs(cells: list[int]) -> Iterator[tuple[int, int]]:
    start = None
    for lane, cell in enumerate(cells):
        if cell & RIGHT and not cell & LEFT:
            start = lane
        if cell & LEFT and not cell & RIGHT:
            assert start is not None
            yield start, lane
