"""Curves as an SVG, written by hand: panels below one another, over one axis of minutes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from soak.trend import Curve, Trend

COLOURS = ("#0969da", "#1a7f37", "#9a6700", "#cf222e", "#8250df", "#bc4c00", "#1b7c83", "#bf3989")
WIDTH, LEFT, RIGHT = 900, 70, 270
TALL, GAP, TOP = 150, 50, 40
_LOOKS = (
    'role="img" aria-labelledby="title" font-size="12" '
    "font-family=\"ui-sans-serif, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif\""
)
_POINTS = 400
"""Points of a curve: more are not visible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Curves by name, over one scale."""

    title: str
    curves: Mapping[str, Curve]
    trends: Mapping[str, Trend] = field(default_factory=dict)


def svg(title: str, panels: Sequence[Panel], seconds: float) -> str:
    """Return a picture of the panels."""
    height = TOP + len(panels) * (TALL + GAP)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {_LOOKS}>',
        f'  <title id="title">{escape(title)}</title>',
        "  <!-- What stands on the page's ground is a grey that reads on white and on black. -->",
        "  <style>text { fill: #7d8590 } .axis { stroke: #7d8590; stroke-width: 1 }",
        "  .bold { font-weight: 600 } polyline { fill: none; stroke-width: 1.3 }",
        "  .fit { stroke: #7d8590; stroke-width: 2; stroke-dasharray: 6 4 }</style>",
    ]
    for number, panel in enumerate(panels):
        lines += _panel(panel, TOP + number * (TALL + GAP), max(seconds, 1.0))
    return "\n".join([*lines, "</svg>", ""])


def _panel(panel: Panel, top: float, seconds: float) -> list[str]:
    values = [value for curve in panel.curves.values() for _, value in curve]
    most = max(values, default=1.0) or 1.0
    bottom, width = top + TALL, WIDTH - LEFT - RIGHT

    minutes = f"{seconds / 60:,.1f}"

    def x(at: float) -> float:
        return round(LEFT + at / seconds * width, 1)

    def y(value: float) -> float:
        return round(bottom - value / most * TALL, 1)

    lines = [
        f'  <text class="bold" x="{LEFT}" y="{top - 8}">{escape(panel.title)}</text>',
        f'  <path class="axis" fill="none" d="M{LEFT} {top} V{bottom} H{LEFT + width}"/>',
        f'  <text x="{LEFT - 6}" y="{top + 4}" text-anchor="end">{most:,.0f}</text>',
        f'  <text x="{LEFT - 6}" y="{bottom}" text-anchor="end">0</text>',
        f'  <text x="{LEFT}" y="{bottom + 16}">0</text>',
        f'  <text x="{LEFT + width}" y="{bottom + 16}" text-anchor="end">{minutes} minutes</text>',
    ]
    for place, (name, curve) in enumerate(panel.curves.items()):
        colour = COLOURS[place % len(COLOURS)]
        step = max(1, len(curve) // _POINTS)
        points = " ".join(f"{x(at)},{y(value)}" for at, value in curve[::step])
        lines.append(f'  <polyline stroke="{colour}" points="{points}"/>')
        row = top + 6 + place * 15
        start = LEFT + width + 14
        lines.append(f'  <path stroke="{colour}" stroke-width="3" d="M{start} {row} h12"/>')
        label = escape(name)
        if trend := panel.trends.get(name):
            (x1, y1), (x2, y2) = trend.line
            lines.append(f'  <path class="fit" d="M{x(x1)} {y(y1)} L{x(x2)} {y(y2)}"/>')
            label += f" ({trend.rise:+.1%})"
        lines.append(f'  <text x="{start + 18}" y="{row + 4}">{label}</text>')
    return lines
