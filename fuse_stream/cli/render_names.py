"""How branches, tags and the graph look: records -> renderables. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from fuse_stream.cli.graph_history import Graph
from fuse_stream.cli.graph_lines import Line, draw
from fuse_stream.cli.grid import Grid, Heading
from fuse_stream.cli.names import Branch, Names
from fuse_stream.cli.render import (
    QUIET,
    VERSION_STYLE,
    LogLine,
    change_text,
    full_operation_text,
    labels_text,
)
from fuse_stream.cli.text import count, first_line, iso, printable, short_id

_LANE_STYLE = "cyan"


def tags_view(names: Names) -> RenderableType:
    """Return one line a tag."""
    headings = (
        Heading(text="tag"),
        Heading(text="version", right=True),
        Heading(text="branch"),
        Heading(text="id"),
        Heading(text="created (UTC)"),
        Heading(text="expires (UTC)"),
    )
    rows = [
        [
            Text(tag.name, style="bold"),
            Text(str(tag.target.version), style=VERSION_STYLE),
            Text(names.shown_name(tag.target.branch_id)),
            Text(short_id(tag.snapshot_id)),
            Text(iso(tag.created_us)),
            Text("" if tag.expires_us is None else iso(tag.expires_us)),
        ]
        for tag in names.tags
    ]
    return Grid(headings=headings, rows=rows).without_empty().table()


def branches_view(names: Names, created_us: Mapping[str, int]) -> RenderableType:
    """Return one line a branch; `created_us` by name."""
    headings = (
        Heading(text="branch"),
        Heading(text="head", right=True),
        Heading(text="forked off"),
        Heading(text="commits", right=True),
        Heading(text="created (UTC)"),
    )
    rows = [
        [
            Text(branch.ref.name, style="bold"),
            Text(str(branch.head.snapshot.version), style=VERSION_STYLE),
            Text(_fork(branch, names)),
            Text(count(branch.commit_count)),
            Text(iso(created_us[branch.ref.name])),
        ]
        for branch in names.branches
    ]
    return Grid(headings=headings, rows=rows).without_empty().table()


def graph_view(
    graph: Graph, names: Names, *, seen_from: str, ascii_only: bool = False
) -> RenderableType:
    """Return the lanes, and beside each snapshot what it is.

    Args:
        graph: what to show.
        names: of branches and tags.
        seen_from: the id of the branch on which a number alone means a version.
        ascii_only: keep to ASCII.
    """
    headings = (
        Heading(text=""),
        Heading(text="version"),
        Heading(text="time (UTC)"),
        Heading(text="operation"),
        Heading(text="change", right=True),
        Heading(text="names and message"),
    )
    rows = []
    for line in draw(graph.steps, ascii_only=ascii_only):
        cells = [Text(line.lanes, style=_LANE_STYLE)]
        if line.step is None:
            cells += [Text(_remark(line), style=QUIET), *(Text("") for _ in headings[2:])]
        else:
            cells += _cells(graph.lines[line.step], names, seen_from)
        rows.append(cells)
    lines = Grid(headings=headings, rows=rows).lines()
    for text in lines:
        text.rstrip()
    return Group(*lines)


def _cells(line: LogLine, names: Names, seen_from: str) -> list[Text]:
    snapshot, change = line
    said = Text(" - ").join(
        Text(text) for text in (first_line(snapshot.message), printable(snapshot.author)) if text
    )
    parts = [text for text in (labels_text(snapshot, names), said) if text]
    return [
        Text(names.spell(snapshot, seen_from=seen_from), style=VERSION_STYLE),
        Text(iso(snapshot.timestamp_us)),
        full_operation_text(snapshot, names),
        change_text(change),
        Text(" ").join(parts),
    ]


def _remark(line: Line) -> str:
    return "expired" if line.has_expired else ""


def _fork(branch: Branch, names: Names) -> str:
    if not branch.ref.forks:
        return ""
    fork = branch.ref.forks[-1]
    return f"{names.shown_name(fork.branch_id)}@{fork.version}"
