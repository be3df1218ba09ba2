"""Which of many cases a test runs: few in a quick run, more in a long one, all in a night."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

NIGHT = [pytest.mark.long, pytest.mark.night]
"""The marks of a case that `make test-all` leaves out as well."""


def others_at_night(cases: Sequence[T], first: int) -> list[Any]:
    """Return the cases as parameters; those after the `first` ones have the marks of `NIGHT`."""
    return [*cases[:first], *(pytest.param(case, marks=NIGHT) for case in cases[first:])]


def every_nth(stride: int) -> pytest.MarkDecorator:
    """Run a test with its argument `stride` as given, and with 1 under the marker `long`."""
    return pytest.mark.parametrize("stride", [stride, pytest.param(1, marks=pytest.mark.long)])


def seeds(quick: int, all_: int) -> pytest.MarkDecorator:
    """Run a test with its argument `seed` from 0 to `quick`; and to `all_`, under `long`."""
    more = (pytest.param(seed, marks=pytest.mark.long) for seed in range(quick, all_))
    return pytest.mark.parametrize("seed", [*range(quick), *more])


def strided(cases: Sequence[T], stride: int, turn: int = 0) -> Sequence[T]:
    """Return every `stride`-th case, the last one for `turn` 0; the turns share out all cases."""
    return cases[::-1][turn % stride :: stride][::-1]
