"""Whatever is done to a table in whatever order, its rows are those of the model; see `Course`."""

from __future__ import annotations

import pytest

from tests.dml.row_courses import run_course
from tests.kit.strides import others_at_night

QUICK, LONG = range(8), range(100, 200)


@pytest.mark.parametrize("seed", QUICK)
def test_every_version_change_and_difference_has_the_rows_of_the_model(seed: int) -> None:
    run_course(seed)


def test_the_courses_do_what_they_are_for() -> None:
    courses = [run_course(seed) for seed in (9, 10, 11)]
    met = {step.partition(": ")[2] for course in courses for step in course.trace}
    kept = [snapshot for course in courses for snapshot in course.opened("main").log()]

    assert met >= {"append", "delete", "update", "compact", "recluster", "revert", "rewind"}
    assert any(snapshot.deletion_files for snapshot in kept)


@pytest.mark.long
@pytest.mark.parametrize("seed", others_at_night(LONG, 20))
def test_long_courses_have_the_rows_of_the_model(seed: int) -> None:
    run_course(seed, steps=60)
