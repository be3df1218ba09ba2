"""Drawings: their shapes, and that no text gets out of them."""

from __future__ import annotations

import re

from fuse_stream.report.charts import HEIGHT, WIDTH, Bar, Stretch, area, bars, strip


def rects(drawing: str) -> list[tuple[float, ...]]:
    found = re.findall(r'x="([^"]*)" y="([^"]*)" width="([^"]*)" height="([^"]*)"', drawing)
    return [tuple(map(float, one)) for one in found]


def test_bars_fill_the_width_and_the_highest_fills_the_height() -> None:
    first, second = rects(bars([Bar(value=1), Bar(value=2)]))

    assert second[3] == HEIGHT
    assert first[3] == HEIGHT / 2
    assert first[2] == second[2] < WIDTH / 2


def test_a_negative_bar_hangs_below_the_zero_line() -> None:
    above, below = rects(bars([Bar(value=1), Bar(value=-1)]))

    assert above[1] + above[3] == below[1] == HEIGHT / 2


def test_small_values_are_still_seen() -> None:
    small, _ = rects(bars([Bar(value=1), Bar(value=10**9)]))

    assert small[3] >= 1


def test_no_values_make_an_empty_drawing() -> None:
    assert "rect" not in bars([])
    assert "path" not in area([])


def test_values_of_zero_make_a_drawing() -> None:
    assert "nan" not in bars([Bar(value=0)]) + area([(0, 0), (1, 0)]) + area([(5, 5)])


def test_a_stretch_at_the_end_stays_inside() -> None:
    ((x, _, width, _),) = rects(strip([Stretch(start=1, end=1)]))

    assert width > 0
    assert x + width <= WIDTH


def test_the_title_of_a_shape_is_text() -> None:
    drawing = strip([Stretch(start=0, end=1, title="</title><script>\u202e")])

    assert "<title>&lt;/title&gt;&lt;script&gt;\\u202e</title>" in drawing
