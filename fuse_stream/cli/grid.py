"""A grid of cells: how wide it wants to be, and itself as a table or as lines. Pure.

Rows for the eye: pages of them, and which columns fit beside each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from rich.table import Table
from rich.text import Text

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


PAGE_ROWS = 500
GAP = 2
"""Spaces between two columns."""

Row = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some rows of a result."""

    names: tuple[str, ...]
    rows: list[Row]
    more: bool
    """Whether rows follow that the limit leaves out."""


def iter_pages(
    names: tuple[str, ...], batches: Iterable[pa.RecordBatch], *, limit: int | None
) -> Iterator[Page]:
    """Yield rows in pages, at most `limit` in all; at least one page, perhaps empty."""
    rows: list[Row] = []
    left = limit
    for batch in batches:
        for piece in (batch.slice(at, PAGE_ROWS) for at in range(0, len(batch), PAGE_ROWS)):
            taken = len(piece) if left is None else min(left, len(piece))
            rows += rows_of(piece.slice(0, taken))
            if left is not None:
                left -= taken
            if taken < len(piece):
                yield Page(names=names, rows=rows, more=True)
                return
            if len(rows) >= PAGE_ROWS:
                yield Page(names=names, rows=rows, more=False)
                rows = []
    yield Page(names=names, rows=rows, more=False)


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    """Return a batch as rows of Python values; times that Python lacks become text."""
    return list(zip(*(_values(column) for column in batch.columns), strict=True))


def fitting(widths: Sequence[int], width: int | None) -> int:
    """Return how many of the first columns fit into a line of `width`; at least one."""
    if width is None:
        return len(widths)
    used = 0
    for number, column in enumerate(widths):
        used += column + (GAP if number else 0)
        if used > width and number:
            return number
    return len(widths)


def _values(column: pa.Array) -> list[object]:
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):
        return list(pc.cast(column, pa.string()).to_pylist())
