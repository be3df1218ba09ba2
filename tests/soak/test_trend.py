"""A growing curve is recognised, and one that only rises and falls again is not taken for it."""

from __future__ import annotations

import pytest

from soak.trend import LIMIT, Curve, averaged, tooth_of, trend_of

TOOTH = 40.0


def curve(base: float, growth: float, tooth: float = 0.0) -> Curve:
    """Return 160 samples a second apart; `growth` is per second, `tooth` the height of one."""
    return [(float(at), base + growth * at + tooth * (at % TOOTH) / TOOTH) for at in range(160)]


def test_a_level_curve_is_flat() -> None:
    trend = trend_of(curve(100, 0))

    assert trend is not None
    assert trend.rise == pytest.approx(0)
    assert trend.is_flat


def test_a_growing_curve_is_not_flat() -> None:
    trend = trend_of(curve(100, 0.1))

    assert trend is not None
    assert trend.rise == pytest.approx(79 * 0.1 / 111.95, rel=0.01)
    assert not trend.is_flat


def test_a_falling_curve_is_flat() -> None:
    trend = trend_of(curve(100, -0.1))

    assert trend is not None
    assert trend.is_flat


def test_a_sawtooth_is_flat_once_it_is_averaged() -> None:
    teeth = curve(100, 0, tooth=60)
    raw, smooth = trend_of(teeth), trend_of(teeth, teeth_s=[TOOTH])

    assert raw is not None
    assert smooth is not None
    assert raw.rise > LIMIT
    assert smooth.rise == pytest.approx(0, abs=0.001)


def test_growth_under_a_sawtooth_is_recognised() -> None:
    trend = trend_of(curve(100, 0.1, tooth=60), teeth_s=[TOOTH])

    assert trend is not None
    assert trend.rise == pytest.approx(79 * 0.1 / 139.6, rel=0.02)


def test_sawteeth_of_two_periods_are_averaged_one_after_the_other() -> None:
    both = [(at, value + 150 * (at % 50) / 50) for at, value in curve(100, 0, tooth=60)]
    one, all_of_them = trend_of(both, teeth_s=[TOOTH]), trend_of(both, teeth_s=[TOOTH, 50.0])

    assert one is not None
    assert all_of_them is not None
    assert abs(one.rise) > LIMIT
    assert all_of_them.rise == pytest.approx(0, abs=0.001)


def test_growth_in_the_first_half_does_not_count() -> None:
    trend = trend_of([(float(at), min(at, 80.0)) for at in range(160)])

    assert trend is not None
    assert trend.rise == pytest.approx(0, abs=0.001)


def test_a_window_covers_exactly_its_seconds() -> None:
    assert averaged([(0, 1), (1, 2), (2, 3), (3, 4)], 2) == [(2, 2.5), (3, 3.5)]


def test_too_few_samples_give_no_result() -> None:
    assert trend_of([]) is None
    assert trend_of([(0, 1)]) is None
    assert trend_of([(0, 1), (1, 1)], teeth_s=[5]) is None


def test_the_period_of_a_sawtooth_is_the_time_between_two_rises() -> None:
    assert tooth_of([(0, 1), (3, 2), (5, 2), (13, 3), (20, 3), (23, 4)]) == 10
    assert tooth_of([(0, 1), (5, 2)]) == 0
