"""The parts of a command's output: cells in columns, named facts and sections. Pure.

Text from a table is never parsed as rich's markup. A cell that is a `str` is made printable here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fuse_stream.cli.text import printable

INSERTED_STYLE, REMOVED_STYLE, QUIET, VERSION_STYLE = "green", "red", "dim", "yellow"
ALARM = "bold red"
GAP = 2
"""Spaces between two columns."""

_READABLE = 30
_MOST_INDENT = 7

Cell = str | Text
Cells = Mapping[str, Text]
"""The cells of a row that are not empty, by heading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """The heading of a column, and the layout of its cells."""

    text: str
    right: bool = False
    """Cells are aligned to the right, as numbers are."""
    shrinks: bool = False
    """Cells are cut, with an ellipsis, if a line is too short for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Headings and rows, with a cell for each heading."""

    headings: tuple[Heading, ...]
    rows: Sequence[Sequence[Text]]

    @classmethod
    def of(cls, *headings: str | Heading, rows: Iterable[Iterable[Cell]]) -> Grid:
        """Return a grid with these headings.

        The heading ">rows" aligns its cells to the right, "~note" lets them shrink. A name from a
        table is given as a `Heading`, because it may begin with these characters.
        """
        return cls(
            headings=tuple(_heading(heading) for heading in headings),
            rows=[[_text(cell) for cell in row] for row in rows],
        )

    def widths(self) -> list[int]:
        """Return the width of the longest cell of each column."""
        heads = [Text(max(heading.text.split("\n"), key=len)) for heading in self.headings]
        return [max(cell.cell_len for cell in cells) for cells in zip(heads, *self.rows)]  # noqa: B905 - rows are of one length

    def narrowest_width(self) -> int:
        """Return the least width of a line, with columns that may shrink at a readable width."""
        widths = [
            min(wide, _READABLE) if heading.shrinks else wide
            for wide, heading in zip(self.widths(), self.headings, strict=True)
        ]
        return sum(widths) + GAP * (len(widths) - 1)

    def without_empty(self) -> Grid:
        """Return the grid without columns whose cells are all empty."""
        keep = [
            at for at in range(len(self.headings)) if not self.rows or any(r[at] for r in self.rows)
        ]
        return self._columns(keep)

    def fit(self, width: int | None) -> tuple[Grid, tuple[str, ...]]:
        """Return a grid of the first columns that fit (at least one), and the other headings."""
        number, used = len(self.headings), -GAP
        for at, wide in enumerate(self.widths()):
            used += wide + GAP
            if width is not None and used > width and at:
                number = at
                break
        left_out = tuple(heading.text for heading in self.headings[number:])
        return self._columns(range(number)), left_out

    def without(self, *headings: str) -> Grid:
        """Return the grid without the columns that have these headings."""
        return self._columns(
            [at for at, heading in enumerate(self.headings) if heading.text not in headings]
        )

    def with_broken_headings(self) -> Grid:
        """Return the grid, headings that are wider than their cells with a word on each line.

        Only `table` shows such headings.
        """
        columns = zip(self.headings, *self.rows, strict=True)
        return replace(
            self,
            headings=tuple(
                heading
                if any(cell.cell_len >= len(heading.text) for cell in cells)
                else replace(heading, text=heading.text.replace(" ", "\n"))
                for heading, *cells in columns
            ),
        )

    def stacked(
        self, width: int | None, *moves: Sequence[str], notes: Callable[[Cells], Iterable[Text]]
    ) -> RenderableType:
        """Return a table, with the cells that do not fit below their row.

        Args:
            width: of a line; None if it is not limited.
            moves: the headings of the columns that leave the rows, one group after another, until
                the rows fit.
            notes: returns the lines below a row from its cells that have left it.
        """
        grid, moved = self, tuple[str, ...]()
        for names in moves:
            if width is None or grid.narrowest_width() <= width:
                break
            moved = (*moved, *names)
            grid = self.without(*moved)
        if not moved:
            return grid.table()
        indent = " " * (min(grid.widths()[0], _MOST_INDENT) + GAP)
        head, *rows = grid.lines()
        lines = [head]
        for row, cells in zip(rows, self.rows, strict=True):
            by_heading = zip((heading.text for heading in self.headings), cells, strict=True)
            left = {name: cell for name, cell in by_heading if name in moved and cell}
            below = Text(indent, no_wrap=True, overflow="ellipsis")
            lines += [row, *(below.copy().append_text(text) for text in notes(left))]
        return Group(*lines)

    def whole(self, width: int | None) -> RenderableType:
        """Return a table; if a line is too short for it, the facts of a row below its first cell.

        Nothing is cut in lines of `width`; None if it is not limited.
        """
        if width is None or self.narrowest_width() <= width:
            return self.table()
        names = [heading.text for heading in self.headings[1:]]
        parts: list[RenderableType] = []
        for first, *others in self.rows:
            facts = facts_view(dict(zip(names, others, strict=True)))
            parts += [Text(overflow="fold").append_text(first), Padding(facts, (0, 0, 0, GAP))]
        return Group(*parts)

    def lines(self) -> list[Text]:
        """Return a line of text for the headings, then one for each row."""
        heads = [Text(heading.text, style="bold") for heading in self.headings]
        widths = self.widths()
        lines = []
        for row in (heads, *self.rows):
            line = Text(no_wrap=True, overflow="ellipsis")
            for at, (cell, wide, heading) in enumerate(
                zip(row, widths, self.headings, strict=True)
            ):
                blank = " " * (wide - cell.cell_len)
                line.append(" " * GAP if at else "")
                line.append(blank if heading.right else "").append_text(cell)
                line.append("" if heading.right else blank)
            lines.append(line)
        return lines

    def table(self) -> Table:
        """Return the grid as a table of rich's."""
        table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
        for heading in self.headings:
            table.add_column(
                Text(heading.text),
                justify="right" if heading.right else "left",
                no_wrap=not heading.shrinks,
                overflow="ellipsis",
            )
        for row in self.rows:
            for cell in row:
                cell.no_wrap, cell.overflow = True, "ellipsis"
            table.add_row(*row)
        return table

    def _columns(self, places: Iterable[int]) -> Grid:
        chosen = tuple(places)
        return replace(
            self,
            headings=tuple(self.headings[at] for at in chosen),
            rows=[[row[at] for at in chosen] for row in self.rows],
        )


def facts_below(cells: Cells) -> Iterator[Text]:
    """Yield the line below a row that has the cells which have left it: notes of `Grid.stacked`."""
    said = [f"{name.removesuffix(' (UTC)')} {cell}" for name, cell in cells.items()]
    yield Text(", ".join(said), style=QUIET)


def facts_view(facts: Mapping[str, Cell]) -> Table:
    """Return a line for each named fact that has a text."""
    grid = Table.grid(padding=(0, GAP))
    grid.add_column(style=QUIET, no_wrap=True)
    grid.add_column(overflow="fold")
    for name, cell in facts.items():
        if cell:
            grid.add_row(printable(name), _text(cell))
    return grid


def section(title: str, *body: RenderableType) -> list[RenderableType]:
    """Return an empty line, the title and `body`."""
    return [Text(""), Text(title, style="bold underline"), *body]


def _heading(spelled: str | Heading) -> Heading:
    if isinstance(spelled, Heading):
        return spelled
    return Heading(
        text=spelled.lstrip(">~"), right=spelled.startswith(">"), shrinks=spelled.startswith("~")
    )


def _text(cell: Cell) -> Text:
    return Text(printable(cell)) if isinstance(cell, str) else cell
