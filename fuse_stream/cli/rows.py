"""Rows for the eye: pages of them, and which columns fit beside each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

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
