"""A grid of cells: how wide it wants to be, and itself as a table or as lines. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.table import Table
from rich.text import Text

from fuse_stream.cli.rows import GAP, fitting

_READABLE = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """One column's head and manner."""

    text: str
    right: bool = False
    """Numbers stand right."""
    shrinks: bool = False
    """Gives way, with an ellipsis, where a line is too short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Headings, and below them rows of as many cells."""

    headings: tuple[Heading, ...]
    rows: Sequence[Sequence[Text]]

    def widths(self) -> list[int]:
        """Return how wide each column wants to be."""
        heads = [Text(heading.text) for heading in self.headings]
        return [max(cell.cell_len for cell in cells) for cells in zip(heads, *self.rows)]  # noqa: B905 - rows are of one length

    def narrowest_width(self) -> int:
        """Return how wide a line is when what may shrink has just room enough to be read."""
        widths = [
            min(wide, _READABLE) if heading.shrinks else wide
            for wide, heading in zip(self.widths(), self.headings, strict=True)
        ]
        return sum(widths) + GAP * (len(widths) - 1)

    def without_empty(self) -> Grid:
        """Return the grid without the columns that say nothing in any row."""
        keep = [
            at for at in range(len(self.headings)) if not self.rows or any(r[at] for r in self.rows)
        ]
        return self._columns(keep)

    def fit(self, width: int | None) -> tuple[Grid, tuple[str, ...]]:
        """Return the first columns that fit, and the headings of those that do not."""
        number = fitting(self.widths(), width)
        left_out = tuple(heading.text for heading in self.headings[number:])
        return self._columns(list(range(number))), left_out

    def lines(self) -> list[Text]:
        """Return the rows as lines, the headings first."""
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
        """Return the grid as a table."""
        table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
        for heading in self.headings:
            table.add_column(
                Text(heading.text),
                justify="right" if heading.right else "left",
                no_wrap=not heading.shrinks,
                overflow="ellipsis",
            )
        for row in self.rows:
            table.add_row(*(_single_line(cell) for cell in row))
        return table

    def _columns(self, places: Sequence[int]) -> Grid:
        return replace(
            self,
            headings=tuple(self.headings[at] for at in places),
            rows=[[row[at] for at in places] for row in self.rows],
        )


def _single_line(cell: Text) -> Text:
    cell.no_wrap = True
    cell.overflow = "ellipsis"
    return cell
