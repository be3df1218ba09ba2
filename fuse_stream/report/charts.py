"""Charts as SVG: bars, lines, strips. Pure.

Rules:
- A drawing is `WIDTH` units wide and stretched to the width of the page, so it holds no text: the
  page puts the labels around it, which stay readable on a small screen.
- Colours are classes; the page's style has them for light and dark.
- Only numbers come from the table. What a shape says when it is pointed at is escaped text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from fuse_stream.format.text import printable

WIDTH, HEIGHT = 1000, 120
_GAP = 0.15
"""Between two bars, of a bar's width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar from zero up, or down if it is negative."""

    value: float
    style: str = "a"
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A part of a strip, from one share of its width to another."""

    start: float
    end: float
    style: str = "a"
    title: str = ""


def bars(values: Sequence[Bar]) -> Markup:
    """Return bars side by side, with the zero line."""
    top = max([0.0, *(bar.value for bar in values)])
    low = min([0.0, *(bar.value for bar in values)])
    height = (top - low) or 1.0
    width = WIDTH / max(len(values), 1)
    zero = HEIGHT * top / height
    shapes = [_line(0, zero, WIDTH, zero)]
    for at, bar in enumerate(values):
        tall = HEIGHT * abs(bar.value) / height
        if bar.value:
            tall = max(tall, 1.0)
        y = zero - tall if bar.value > 0 else zero
        shapes.append(
            _rect(
                at * width + width * _GAP / 2,
                y,
                width * (1 - _GAP),
                tall,
                style=bar.style,
                title=bar.title,
            )
        )
    return _svg(shapes, HEIGHT)


def area(points: Sequence[tuple[float, float]]) -> Markup:
    """Return a line through points, left to right, with the area below it filled."""
    if not points:
        return _svg([], HEIGHT)
    first, last = points[0][0], points[-1][0]
    top = max(y for _, y in points) or 1.0
    span = (last - first) or 1.0
    placed = [(WIDTH * (x - first) / span, HEIGHT * (1 - y / top)) for x, y in points]
    if len(placed) == 1:
        placed = [(0.0, placed[0][1]), (float(WIDTH), placed[0][1])]
    line = "L".join(f"{_n(x)} {_n(y)}" for x, y in placed)
    shapes = [
        Markup('<path class="f" d="M{} L{} {} L{} {}Z"/>').format(
            line, _n(placed[-1][0]), HEIGHT, _n(placed[0][0]), HEIGHT
        ),
        Markup('<path class="l" d="M{}"/>').format(line),
    ]
    return _svg(shapes, HEIGHT)


def strip(stretches: Iterable[Stretch], *, height: int = 14) -> Markup:
    """Return stretches on one line; each is at least so wide that it can be seen."""
    shapes = []
    for one in stretches:
        width = max((one.end - one.start) * WIDTH, 5.0)
        x = min(one.start * WIDTH, WIDTH - width)
        shapes.append(_rect(x, 0, width, height, style=one.style, title=one.title))
    return _svg(shapes, height)


def _svg(shapes: Iterable[Markup], height: int) -> Markup:
    head = Markup('<svg viewBox="0 0 {} {}" preserveAspectRatio="none" height="{}" role="img">')
    return head.format(WIDTH, height, height) + Markup("").join(shapes) + Markup("</svg>")


def _rect(x: float, y: float, width: float, height: float, *, style: str, title: str) -> Markup:
    shape = Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"')
    drawn = shape.format(style, _n(x), _n(y), _n(width), _n(height))
    if not title:
        return drawn + Markup("/>")
    return drawn + Markup("><title>{}</title></rect>").format(escape(printable(title)))


def _line(x1: float, y1: float, x2: float, y2: float) -> Markup:
    shape = Markup('<line class="z" x1="{}" y1="{}" x2="{}" y2="{}"/>')
    return shape.format(*map(_n, (x1, y1, x2, y2)))


def _n(number: float) -> str:
    return f"{number:.1f}".rstrip("0").rstrip(".")
