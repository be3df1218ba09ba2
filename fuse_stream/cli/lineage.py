"""`lineage`: the tables upstream of a table, and how far each is read, as a tree."""

from __future__ import annotations

from collections.abc import Iterator

import click
from rich.console import RenderableType
from rich.text import Text

from fuse_stream.cli.as_json import Json, json_value, pick
from fuse_stream.cli.grid import ALARM, VERSION_STYLE, Grid
from fuse_stream.cli.options import Target, on_table
from fuse_stream.cli.text import UNKNOWN, count, printable
from fuse_stream.table.verbs import lineage_of
from fuse_stream.trace.lineage import Key, Lineage, LineageSource, LineageTable

_LANE_STYLE = "cyan"
_LANES = {False: ("├─ ", "└─ ", "│  ", "   "), True: ("|- ", "`- ", "|  ", "   ")}
"""A table, the last one, beside those below it, below the last one; in Unicode and in ASCII."""

_SOURCE = "application writer query_id batch_id"
_SEEN = "branch head versions_behind commits_behind is_cycle problem"


@click.command()
@on_table
def lineage(target: Target) -> None:
    """Draw the tables upstream of a table, and how far its batches have read them.

    bronze@26 is everything through version 26 of the table bronze, as of the last batch with rows.
    The number behind is that of the commits not read yet that change rows; of all versions if they
    are too many to count, or some have expired. A table upstream is opened where its
    reader found it; one that cannot be opened is shown with the reason.

    \b
    Example:
      fuse-stream lineage /lake/gold
    """  # noqa: D301 - click's mark for lines to keep
    found = lineage_of(target.open())
    if target.json:
        target.show_json({"tables": [_document(table) for table in found.tables]})
    elif found.tables[0].sources:
        target.output.show(lineage_view(found, ascii_only=target.output.ascii_only))
    else:
        target.output.note("the ledger names no table that was read: there is nothing upstream")


def lineage_view(lineage: Lineage, *, ascii_only: bool = False) -> RenderableType:
    """Return the tree, a line for each table that is read."""
    first = lineage.tables[0]
    rows: list[list[Text | str]] = [[_name("", first.name), "", "", "", printable(first.path)]]
    rows += _lines(lineage, _LANES[ascii_only])
    return Grid.of("table", ">head", ">behind", "batch", "~place", rows=rows).table()


def _lines(lineage: Lineage, lanes: tuple[str, str, str, str]) -> Iterator[list[Text | str]]:
    """Yield the lines below the table itself; those below a table come once."""
    inner, last, beside, below = lanes
    shown: set[Key] = set()
    todo = _below(lineage.tables[0], "")
    while todo:
        source, before, is_last = todo.pop()
        there = lineage.find(source.key)
        is_above = source.is_cycle or source.key in shown
        behind = source.versions_behind if source.commits_behind is None else source.commits_behind
        yield [
            _name(before + (last if is_last else inner), source.name),
            "" if source.head is None else count(source.head),
            UNKNOWN if behind is None else count(behind),
            _batch(source),
            _place(source, is_above=is_above and there is not None and bool(there.sources)),
        ]
        if there is not None and not is_above:
            shown.add(source.key)
            todo += _below(there, before + (below if is_last else beside))


def _below(table: LineageTable, before: str) -> list[tuple[LineageSource, str, bool]]:
    """Return what a table reads, last first, with the lanes before it."""
    last = len(table.sources) - 1
    marked = [(source, before, at == last) for at, source in enumerate(table.sources)]
    return marked[::-1]


def _name(lanes: str, name: str) -> Text:
    return Text(lanes, style=_LANE_STYLE).append(printable(name), style=VERSION_STYLE)


def _batch(source: LineageSource) -> str:
    return f"{source.application}{'/' if source.writer else ''}{source.writer} #{source.batch_id}"


def _place(source: LineageSource, *, is_above: bool) -> Text:
    text = Text()
    if source.is_cycle:
        text.append("a cycle, see above", style=ALARM)
    elif is_above:
        text.append("see above")
    if source.problem is not None:
        text.append("; " if text else "").append(printable(source.problem), style=ALARM)
    if source.position.path is not None:
        text.append(": " if text else "").append(printable(source.position.path))
    return text


def _document(table: LineageTable) -> Json:
    sources = [
        {**pick(source, _SOURCE), **json_value(source.position), **pick(source, _SEEN)}
        for source in table.sources
    ]
    return pick(table, "table_id path branch branch_id head sources", sources=sources)
