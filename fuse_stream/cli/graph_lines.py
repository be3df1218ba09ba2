"""Lanes as characters, in Unicode or in ASCII. Pure.

A lane is two columns wide. What ends in a snapshot is drawn above it, what leads to its second
parent below it, as in Git's own graph.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from fuse_stream.cli.graph import Step

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
    """Which snapshot stands on it."""
    has_expired: bool = False
    """Whether it is the mark of a history that has expired."""


def draw(steps: Sequence[Step], *, ascii_only: bool) -> list[Line]:
    """Return the picture of a history, without blanks at the ends of lines."""
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
    """Draw a horizontal line between two lanes; it crosses those between them."""
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
    for lane in step.joins:  # the nearest first: the next one finds its way free
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
    """Return a line with a bar in each of `lanes`, and other signs by their columns."""
    cells = {**{2 * lane: bar for lane in lanes}, **signs}
    return "".join(cells.get(column, " ") for column in range(max(cells) + 1))
